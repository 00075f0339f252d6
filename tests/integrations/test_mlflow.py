"""A classifier as a model of MLflow: what comes back decides alike and says by which rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris

from metricfit import MetricClassifier
from metricfit.decisions import DecisionRule
from metricfit.integrations.mlflow import log_model, save_model
from tests.helper import make_classifier

mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed: make test-slow installs it")
QUICK = {"models": "boosting", "cv": 2, "baseline": False, "random_state": 0}
# Its library warns of its own future.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(40, 10, 120), "rooms": rng.integers(0, 5, 120)})
    frame["plan"] = rng.choice(["basic", "gold"], 120)
    frame["paid"] = rng.random(120) < 0.5
    frame["since"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, 120), "D")
    frame["day"] = frame["since"].dt.strftime("%Y-%m-%d")
    return frame


@pytest.fixture(scope="module")
def fitted(table: pd.DataFrame) -> MetricClassifier:
    return make_classifier("f1", **QUICK).fit(table, np.where(table["age"] + 9 * table["paid"] > 42, "yes", "no"))


def with_gaps(table: pd.DataFrame) -> pd.DataFrame:
    gaps = table.astype({"rooms": float, "paid": object, "plan": object, "day": object})
    return gaps.mask(np.random.default_rng(1).random(gaps.shape) < 0.3)


def test_a_saved_model_decides_alike_with_gaps(fitted: MetricClassifier, table: pd.DataFrame, tmp_path: Path) -> None:
    save_model(fitted, tmp_path / "model", input_example=table[:3])
    model = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    for X in (table, with_gaps(table)):
        found = model.predict(X)
        assert (found["prediction"] == fitted.predict(X)).all()
        pd.testing.assert_frame_equal(found.drop(columns="rule"), fitted.scorer()(X))
        assert found["rule"].nunique() == 1
    assert not [path for path in (tmp_path / "model").rglob("*") if path.suffix in (".pkl", ".pickle", ".joblib")]


def test_the_signature_names_the_columns_and_refuses_what_does_not_fit(
    fitted: MetricClassifier, table: pd.DataFrame, tmp_path: Path
) -> None:
    save_model(fitted, tmp_path / "model")
    model = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    assert model.metadata.signature.inputs.input_names() == table.columns.tolist()
    named = ["prediction", "probability_no", "probability_yes", "rule"]
    assert model.metadata.signature.outputs.input_names() == named
    with pytest.raises(mlflow.exceptions.MlflowException, match="age"):
        model.predict(table.drop(columns="age"))
    with pytest.raises(ValueError, match="column 'age' held numbers in fit, now holds 'old'"):
        model.predict(table.assign(age="old"))


def test_another_rule_has_another_id(fitted: MetricClassifier, table: pd.DataFrame, tmp_path: Path) -> None:
    import copy

    other = copy.copy(fitted)
    other.decision_rule_ = DecisionRule.at_threshold(0.9, fitted.classes_.tolist())
    found = []
    for name, classifier in (("one", fitted), ("two", fitted), ("other", other)):
        save_model(classifier, tmp_path / name)
        found.append(mlflow.pyfunc.load_model(str(tmp_path / name)).predict(table)["rule"][0])
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("target", ["array", "several labels", "numbers"])
def test_arrays_several_labels_and_numbers_as_labels(target: str, table: pd.DataFrame, tmp_path: Path) -> None:
    X: Any = table[["age", "rooms"]]
    y: Any = (table["age"] > 40).astype(int).to_numpy()
    if target == "several labels":
        y = pd.DataFrame({"old": y, "big": table["rooms"] > 2}).astype(int)
    if target == "array":
        X, y = load_iris(return_X_y=True)
    classifier = make_classifier("f1", **QUICK).fit(X, y)
    save_model(classifier, tmp_path / "model")
    found = mlflow.pyfunc.load_model(str(tmp_path / "model")).predict(X)
    labels = found[["prediction_old", "prediction_big"]] if target == "several labels" else found["prediction"]
    assert (labels.to_numpy() == classifier.predict(X)).all()


def test_a_logged_model_is_found_again(
    fitted: MetricClassifier, table: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a folder instead of a database
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with mlflow.start_run():
        info = log_model(fitted, input_example=table[:3])
    assert info.signature is not None
    found = mlflow.pyfunc.load_model(info.model_uri).predict(table)
    assert (found["prediction"] == fitted.predict(table)).all()
