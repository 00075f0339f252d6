"""ONNX export: onnxruntime decides as the classifier does, whatever the columns and the rule."""

import json

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import StandardScaler

from metricfit.decisions import DecisionRule
from metricfit.store.onnx import onnx_inputs, to_onnx
from tests.helper import make_classifier

QUICK = {"cv": 2, "baseline": False, "min_updates": 40, "max_epochs": 1, "random_state": 0, "verbose": False}

pytestmark = pytest.mark.filterwarnings("ignore:X. column 'name' not used")


def mixed_table(rows, seed=0, unseen=False):
    rng = np.random.default_rng(seed)
    gaps = rng.random(rows) < 0.1
    cities = [f"city {k}" for k in range(60)] + (["nowhere"] if unseen else [])
    return pd.DataFrame(
        {
            "age": np.where(gaps, np.nan, rng.normal(40, 10, rows)),
            "<b>größe</b>": rng.choice(["S", "M", "L", None], rows),
            "city": rng.choice(cities, rows),
            "when": pd.to_datetime("1897-01-01") + pd.to_timedelta(rng.integers(0, 3_000_000, rows), "h"),
            "text day": [None if g else f"20{k % 90:02d}-02-{1 + k % 28:02d}" for k, g in enumerate(gaps)],
            "rooms": rng.integers(0, 6, rows),
            "paid": rng.random(rows) < 0.5,
            "constant": 1,
            "name": [f"row {seed} {i}" for i in range(rows)],
            "written": ["n/a" if unseen and v > 1 else f"{v:.9f}" for v in rng.normal(size=rows)],
        }
    )


@pytest.fixture(scope="module")
def table():
    return mixed_table(400)


@pytest.fixture(scope="module")
def fitted(table):
    score = table["age"].fillna(30) + 8 * table["paid"] + table["when"].dt.month
    return make_classifier("f1", **QUICK).fit(table, np.array(["low", "middle", "high"])[pd.qcut(score, 3).cat.codes])


def run(classifier, X, path):
    to_onnx(classifier, path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    label, proba = session.run(["label", "probabilities"], onnx_inputs(classifier, X))
    return label, proba


def check(classifier, X, path):
    label, proba = run(classifier, X, path)
    expected = classifier.predict_proba(X)
    np.testing.assert_allclose(proba, expected, atol=2e-6)
    # Where two classes are level to rounding, either is right.
    top = np.sort(expected, axis=1)
    clear = top[:, -1] - top[:, -2] > 1e-5
    assert clear.mean() > 0.9
    assert (label[clear] == classifier.predict(X)[clear]).all()


def test_mixed_columns_with_gaps_and_unseen_categories(fitted, table, tmp_path):
    check(fitted, table, tmp_path / "m.onnx")
    new = mixed_table(300, seed=1, unseen=True)[list(reversed(table.columns))]
    check(fitted, new, tmp_path / "m.onnx")


@pytest.mark.parametrize(
    "rule",
    [
        DecisionRule.from_offsets([0.0, 1.5, -0.5], ["high", "low", "middle"]),
        DecisionRule.from_costs([[0, 1, 5], [2, 0, 1], [1, 1, 0]], ["high", "low", "middle"]),
    ],
    ids=lambda rule: rule.kind,
)
def test_rules_of_several_classes(fitted, table, tmp_path, rule):
    before = fitted.decision_rule_
    try:
        fitted.decision_rule_ = rule
        check(fitted, table, tmp_path / "m.onnx")
    finally:
        fitted.decision_rule_ = before


@pytest.mark.parametrize("threshold", [0.0, 0.2, 0.5, 0.93, 1.0])
@pytest.mark.parametrize("labels", [(0, 1), (False, True), ("no", "ja, ü")])
def test_thresholds_and_labels_of_every_type(tmp_path, threshold, labels):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    y = np.array(labels)[(X[:, 0] > 0).astype(int)]
    classifier = make_classifier("mcc", preprocess=None, **QUICK).fit(X.astype(np.float32), y)
    classifier.decision_rule_ = DecisionRule.at_threshold(threshold, classifier.classes_.tolist())
    label, proba = run(classifier, X.astype(np.float32), tmp_path / "m.onnx")
    assert (label == classifier.predict(X.astype(np.float32))).all()
    np.testing.assert_allclose(proba, classifier.predict_proba(X.astype(np.float32)), atol=1e-5)


def test_calendar_of_every_day_of_four_centuries(tmp_path):
    from metricfit.data.encoders import calendar_parts
    from metricfit.store.onnx import _calendar, _Graph

    dates = np.arange("1800-01-01", "2200-03-01", dtype="datetime64[D]").astype("datetime64[us]")
    dates = dates + (np.arange(len(dates)) % 24).astype("timedelta64[h]")
    graph = _Graph()
    for name, value in _calendar(graph.input("days", "double")).items():
        graph.output(f"out {name}", value, "double", ["rows", 1])
    graph.save(tmp_path / "c.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "c.onnx", providers=["CPUExecutionProvider"])
    expected = calendar_parts(dates)
    found = session.run(None, {"days": expected["days"][:, None]})
    for output, values in zip(session.get_outputs(), found, strict=True):
        np.testing.assert_array_equal(values[:, 0], expected[output.name.removeprefix("out ")], output.name)


@pytest.mark.parametrize("knots", [[3.0], [3.0, 5.0], [-1e308, -2.0, 0.0, 0.5, 1e308], []])
def test_numbers_of_any_size_with_any_number_of_knots(tmp_path, knots):
    from metricfit.data import ColumnFormat, FittedColumn
    from metricfit.data.encoders import NumberEncoder
    from metricfit.store.onnx import _Graph, _number

    scores = np.linspace(-3.0, 3.0, len(knots)) if len(knots) > 1 else np.zeros(len(knots))
    encoder = NumberEncoder("both", 1.0, 2.0, 0.25, np.array(knots), scores, np.array([0.0, 3.0]), True)
    x = np.array([np.nan, -1.7e308, -7.0, -2.0, 0.0, 0.25, 3.0, 4.9, 5.0, 1e40, 1.7e308])
    column = FittedColumn("x", ColumnFormat("number"), encoder=encoder)
    expected = np.empty((len(x), len(column.features)), dtype=np.float32)
    column.write(x, expected)
    graph = _Graph()
    first, *others = _number(graph.input("x", "double"), encoder)
    graph.output("features", first.beside(*others), "float", ["rows", expected.shape[1]])
    graph.save(tmp_path / "n.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "n.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"x": x[:, None]})[0], expected, atol=1e-6)


@pytest.mark.parametrize("thresholds", [None, [0.2, 0.7, 0.45]])
def test_several_labels_with_a_threshold_each(table, tmp_path, thresholds):
    labels = pd.DataFrame({"old": table["age"] > 45, "paid late": table["paid"], "big": table["rooms"] > 3}).astype(int)
    classifier = make_classifier("f1", **QUICK).fit(table.drop(columns="paid"), labels)
    if thresholds:
        classifier.decision_rule_ = DecisionRule.at_thresholds(thresholds, labels.columns.tolist())
    label, proba = run(classifier, table, tmp_path / "m.onnx")
    expected = classifier.predict_proba(table)
    np.testing.assert_allclose(proba, expected, atol=2e-6)
    clear = abs(expected - 0.5) > 1e-5
    assert clear.mean() > 0.9
    assert (label[clear] == classifier.predict(table)[clear]).all()
    assert label.shape == (len(table), 3)


def test_what_cannot_be_exported_is_said(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = (X[:, 0] > 0).astype(int)
    scaled = make_classifier("mcc", preprocess=StandardScaler(), **QUICK).fit(X, y)
    with pytest.raises(ValueError, match="preprocess: only the built-in"):
        to_onnx(scaled, tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


def test_the_command(capsys, monkeypatch, tmp_path, fitted, table):
    from metricfit import save
    from tests.cli.helper import Program

    program = Program(capsys, monkeypatch)
    model = save(fitted, tmp_path / "model")
    program("export", model, "--format", "onnx")
    assert "<b>größe</b>" in program.out
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["inputs"])["when"] == "date"
    assert DecisionRule.from_json(about["decision_rule"]) == fitted.decision_rule_
    label, _ = session.run(["label", "probabilities"], onnx_inputs(fitted, table))
    assert (label == fitted.predict(table)).mean() > 0.99
    program("export", model, "--format", "onnx", code=2)
    program("export", model, "--format", "pmml", code=2)


@pytest.mark.parametrize("models", ["boosting", "extra_trees", "forest", "network_ce", "auto"])
@pytest.mark.parametrize("target", ["two classes", "several classes", "several labels"])
def test_every_model_and_the_portfolio_decide_as_in_python(table, tmp_path, target, models):
    score = table["age"].fillna(30) + 8 * table["paid"] + 9 * table["<b>größe</b>"].isin(["S", "L"])
    y = {
        "two classes": np.where(score > 52, "yes", "no"),
        "several classes": np.array([3, 5, 9])[pd.qcut(score, 3).cat.codes],
        "several labels": pd.DataFrame({"high": score > 52, "big": table["rooms"] > 3}).astype(int),
    }[target]
    classifier = make_classifier("f1", models=models, **QUICK).fit(table, y)
    if models == "auto":
        assert len(classifier.models_) > 1
    new = mixed_table(500, seed=1, unseen=True).astype({"paid": object})
    new.loc[::7, ["rooms", "paid", "when", "city", "age"]] = None
    for X in (table, new):
        label, proba = run(classifier, X, tmp_path / "m.onnx")
        exact = "network" not in models and models != "auto"
        np.testing.assert_allclose(proba, classifier.predict_proba(X), atol=1e-12 if exact else 3e-6)
        assert (label == classifier.predict(X)).all()


def test_trees_split_at_the_very_values_of_the_table(tmp_path):
    """Thresholds are doubles, features floats: a threshold that is rounded up would change rows' sides."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2000, (600, 2)).astype(np.float32) / np.float32(3) * np.float32(1e-3)
    y = (X[:, 0] + X[:, 1] > 0.6).astype(int)
    X = np.nextafter(X, rng.choice([-np.inf, np.inf], X.shape).astype(np.float32))
    classifier = make_classifier("mcc", preprocess=None, models=["boosting", "forest"], **QUICK).fit(X, y)
    label, proba = run(classifier, X, tmp_path / "m.onnx")
    np.testing.assert_allclose(proba, classifier.predict_proba(X), atol=1e-12)
    assert (label == classifier.predict(X)).all()


def test_a_class_that_a_fold_has_not_seen(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    y = np.repeat([0, 1, 2], [30, 28, 2])
    folds = [(np.arange(57), np.arange(57, 60)), (np.arange(30), np.arange(30, 60))]
    classifier = make_classifier("mcc", preprocess=None, models=["boosting", "forest"], **QUICK | {"cv": folds})
    classifier.fit(X, y)
    label, proba = run(classifier, X, tmp_path / "m.onnx")
    np.testing.assert_allclose(proba, classifier.predict_proba(X), atol=1e-12)
    assert (label == classifier.predict(X)).all()


def test_a_model_that_cannot_be_exported_is_named(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = (X[:, 0] > 0).astype(int)
    classifier = make_classifier("mcc", models=[GaussianNB()], **QUICK).fit(X, y)
    with pytest.raises(ValueError, match=r"models: gaussiannb \(GaussianNB\) cannot be exported.* models="):
        to_onnx(classifier, tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []
