"""Segments, worst errors and partial dependence, against plain loops; how often chance is called a finding."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score

from metricfit import MetricClassifier, metrics
from metricfit.assess import Decided, partial_dependence, segments, worst_errors
from tests.cli.helper import Program, customers, write_csv


def made(seed, n=600, hard="c"):
    """A table, and decisions that are wrong more often where plan is ``hard``."""
    random = np.random.default_rng(seed)
    X = pd.DataFrame({"plan": random.choice(["a", "b", "c"], n), "age": random.integers(18, 80, n).astype(float)})
    X["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(random.integers(0, 300, n), "D")
    X.loc[::7, "age"] = np.nan
    truth = (random.random(n) < 0.4).astype(np.int64)
    wrong = random.random(n) < np.where(X["plan"] == hard, 0.35, 0.1)
    return X, Decided(truth, np.where(wrong, 1 - truth, truth), ("no", "yes")), random


F1 = metrics.get("f1[yes]")


def test_values_are_those_of_scikit_learn_inside_and_outside():
    X, rows, _ = made(0)
    found = segments(F1, rows, X)
    assert set(found["column"]) == {"plan", "age", "day"}
    for row in found[found["column"] == "plan"].itertuples():
        inside = (X["plan"] == row.value).to_numpy()
        assert row.rows == inside.sum()
        assert row.metric == pytest.approx(f1_score(rows.truth[inside], rows.decided[inside]))
        assert row.rest == pytest.approx(f1_score(rows.truth[~inside], rows.decided[~inside]))
        assert row.low < row.metric < row.high
    ages = found[found["column"] == "age"].set_index("value")["rows"]
    assert ages["missing"] == X["age"].isna().sum()
    assert ages.drop("missing").sum() == X["age"].notna().sum()
    first = min((v for v in ages.index if v != "missing"), key=lambda v: float(v.split(" to ")[0]))
    low, high = map(float, first.split(" to "))
    assert (X["age"].between(low, high)).sum() == ages[first]
    assert found.loc[found["column"] == "day", "value"].str.match(r"2024-\d\d-\d\d to 2024-\d\d-\d\d").all()


def test_a_segment_that_is_worse_is_found_and_the_better_side_is_not_called_worse():
    X, rows, _ = made(1)
    found = segments(F1, rows, X)
    assert found.loc[found["worse"], ["column", "value"]].to_numpy().tolist() == [["plan", "c"]]
    error = segments(metrics.get("fpr[yes]"), rows, X)  # of which less is better
    assert error.loc[error["worse"], "value"].tolist() == ["c"]


@pytest.mark.parametrize("metric", [F1, metrics.get("fpr[yes]")], ids=str)
def test_intervals_of_the_first_segments_alone_change_nothing_else(metric):
    X, rows, _ = made(1)
    every, first = segments(metric, rows, X), segments(metric, rows, X, intervals=2)
    pd.testing.assert_frame_equal(first.head(2), every.head(2))
    pd.testing.assert_frame_equal(first.drop(columns=["low", "high"]), every.drop(columns=["low", "high"]))
    assert first["low"].isna().tolist() == [False] * 2 + [True] * (len(every) - 2)


def test_p_is_that_of_a_plain_permutation_test():
    X, rows, _ = made(2, 200)
    found = segments(F1, rows, X[["plan"]], random_state=3)
    random, inside = np.random.default_rng(3), [(X["plan"] == v).to_numpy() for v in "abc"]

    def gaps(order):
        truth, decided = rows.truth[order], rows.decided[order]
        return np.array([f1_score(truth[i], decided[i]) - f1_score(truth[~i], decided[~i]) for i in inside])

    drawn = np.array([gaps(random.permutation(200)) for _ in range(500)])
    score = np.abs((drawn - drawn.mean(axis=0)) / drawn.std(axis=0)).max(axis=1)
    ours = np.abs((gaps(np.arange(200)) - drawn.mean(axis=0)) / drawn.std(axis=0))
    expected = {v: (1 + (score >= z - 1e-9).sum()) / 501 for v, z in zip("abc", ours, strict=True)}
    assert found.set_index("value")["p"].to_dict() == pytest.approx(expected)


def test_weights_count_as_repeated_rows_in_the_values():
    X, rows, random = made(3)
    weight = random.integers(1, 4, len(X))
    weighted = Decided(rows.truth, rows.decided, rows.labels, weight=weight.astype(float))
    repeated = Decided(np.repeat(rows.truth, weight), np.repeat(rows.decided, weight), rows.labels)
    key = ["column", "value"]
    one = segments(F1, weighted, X[["plan"]]).set_index(key)
    two = segments(F1, repeated, X[["plan"]].loc[X.index.repeat(weight)]).set_index(key)
    pd.testing.assert_series_equal(one["metric"].sort_index(), two["metric"].sort_index())


def test_small_segments_and_those_without_a_class_are_left_out():
    X, rows, _ = made(4)
    X["rare"] = np.where(np.arange(600) < 29, "x", "y")
    X["only"] = np.where(rows.truth == 1, "p", "n")
    assert set(segments(F1, rows, X)["column"]) == {"plan", "age", "day"}
    assert not len(segments(F1, rows, X[["rare"]]))
    with pytest.raises(ValueError, match="judges the order of scores"):
        segments(metrics.get("auroc"), rows, X)


@pytest.mark.slow
def test_with_decisions_that_have_nothing_to_do_with_columns_few_tables_show_a_worse_segment():
    false = 0
    for seed in range(60):
        X, rows, random = made(seed, 300, hard="none")
        for k in range(5):
            X[f"x{k}"] = random.normal(size=300)
        false += bool(segments(F1, rows, X, random_state=seed)["worse"].any())
    assert false <= 6  # 5 % of 60 are 3


def test_several_classes_and_labels():
    X, _, random = made(5, 300)
    three, two = random.integers(0, 3, (2, 300)), random.integers(0, 2, (2, 300, 2))
    proba = random.dirichlet([1, 1, 1], 300)
    of = Decided(three[0], three[1], ("a", "b", "c"), proba)
    assert len(segments(metrics.get("mcc"), of, X)) == 12
    labels = Decided(two[0], two[1], ("red", "big"), proba[:, :2])
    found = segments(metrics.get("f1:average=macro"), labels, X).set_index(["column", "value"])
    inside = (X["plan"] == "a").to_numpy()
    expected = f1_score(two[0][inside], two[1][inside], average="macro")
    assert found.loc[("plan", "a"), "metric"] == pytest.approx(expected)
    worst = worst_errors(of, X, most=4)
    wrong = [(proba[i, three[0][i]], i) for i in range(300) if three[0][i] != three[1][i]]
    assert list(worst.index) == [i for _, i in sorted(wrong)[:4]]
    assert worst["true"].tolist() == [of.labels[three[0][i]] for i in worst.index]
    first = worst_errors(labels, X, most=1)
    row = first.index[0]
    name, negated = first["true"].iloc[0].removeprefix("not "), first["true"].iloc[0].startswith("not ")
    label = labels.labels.index(name)
    assert two[0][row, label] == (not negated) != two[1][row, label]
    assert first["probability"].iloc[0] == pytest.approx(abs(1 - two[0][row, label] - proba[row, label]))


@pytest.fixture(scope="module")
def fitted():
    X, _, random = made(6, 400)
    y = np.where((X["age"].fillna(40) > 45) ^ (random.random(400) < 0.1), "yes", "no")
    return MetricClassifier("f1", models="boosting", cv=2, random_state=0).fit(X[:200], y[:200]), X[200:], y[200:]


def test_partial_dependence_is_the_share_of_decisions_with_the_column_set(fitted):
    clf, X, _ = fitted
    for column, count in (("age", 10), ("plan", 3), ("day", 10)):
        found = partial_dependence(clf, X, column)
        assert len(found) == count
        for row in (found.iloc[0], found.iloc[-1]):
            decided = clf.predict(X.assign(**{column: row["value"]}))
            assert row["yes"] == pytest.approx((decided == "yes").mean())
            assert row["yes"] + row["no"] == pytest.approx(1)
    age = partial_dependence(clf, X, "age")
    assert age["yes"].iloc[0] < 0.2 < 0.8 < age["yes"].iloc[-1]
    with pytest.raises(ValueError, match="column: expected one of plan, age, day"):
        partial_dependence(clf, X, "height")


def test_the_command(tmp_path, capsys, monkeypatch):
    program = Program(capsys, monkeypatch)
    data = write_csv(tmp_path / "customers.csv", customers())
    program("train", data, "--target", "churn", "--metric", "f1", "--ignore", "day", "--quick", "--out", tmp_path / "m")
    words = ("segments", tmp_path / "m", data, "--errors", 2)
    found = json.loads(program(*words, "--json"))
    assert {row["column"] for row in found["segments"]} <= {"age", "plan"}
    assert found["segments"]
    text = program(*words)
    assert "segments" in text
    if found["errors"]:
        assert f"row {found['errors'][0]['row']}: {found['errors'][0]['true']}, decided" in text
