"""Permutation importance: the drop of the metric, column by column."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score

from metricfit import MetricClassifier
from metricfit.assess import permutation_importance
from tests.cli.helper import Program, customers, write_csv


@pytest.fixture(scope="module")
def fitted():
    random = np.random.default_rng(0)
    X = pd.DataFrame({"noise": random.normal(size=600), "signal": random.normal(size=600)})
    X["plan"] = random.choice(["a", "b"], 600)
    y = np.where(X["signal"] + (X["plan"] == "b") + 0.3 * random.normal(size=600) > 1, "yes", "no")
    clf = MetricClassifier("f1", models="boosting", cv=2, random_state=0).fit(X[:300], y[:300])
    return clf, X[300:], y[300:]


def test_the_drop_is_that_of_scikit_learns_metric_on_the_shuffled_rows(fitted):
    clf, X, y = fitted
    found = permutation_importance(clf, X, y, repeats=3, random_state=7).set_index("column")
    random = np.random.default_rng(7)
    orders = [random.permutation(len(X)) for _ in range(3)]
    whole = f1_score(y, clf.predict(X), pos_label="yes")
    for column in X.columns:
        drops = []
        for order in orders:
            shuffled = X.copy()
            shuffled[column] = X[column].to_numpy()[order]
            drops.append(whole - f1_score(y, clf.predict(shuffled), pos_label="yes"))
        assert found.loc[column, "drop"] == pytest.approx(np.mean(drops))
    assert list(found.index[:2]) == ["signal", "plan"]
    assert found.loc["signal", "low"] > 0
    assert found.loc["noise", "low"] <= 0 <= found.loc["noise", "high"]
    assert (found["low"] <= found["drop"]).all()


def test_another_metric_and_wrong_arguments(fitted):
    clf, X, y = fitted
    found = permutation_importance(clf, X, y, metric="recall[no]", repeats=1)
    assert found["column"].nunique() == 3
    with pytest.raises(ValueError, match="repeats: expected at least 1"):
        permutation_importance(clf, X, y, repeats=0)


def test_the_command(fitted, tmp_path, capsys, monkeypatch):
    program = Program(capsys, monkeypatch)
    data = write_csv(tmp_path / "customers.csv", customers())
    program("train", data, "--target", "churn", "--metric", "f1", "--ignore", "day", "--quick", "--out", tmp_path / "m")
    found = json.loads(program("importance", tmp_path / "m", data, "--repeats", 2, "--json"))
    assert {row["column"] for row in found["columns"]} == {"age", "plan"}
    assert found["columns"][0]["column"] == "age"
    assert "Drop of f1[yes]" in program("importance", tmp_path / "m", data, "--repeats", 1)
