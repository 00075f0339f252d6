"""Cut-offs of groups in the grammar, ``MetricClassifier``, its folder and the command line, beside plain loops."""

import json
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

import metricfit
from metricfit import MetricClassifier, metrics
from metricfit.assess import monitor
from metricfit.comparison import Comparison
from metricfit.decisions import TunedRuleClassifier, best_group_thresholds, best_rule, best_threshold, calibrate
from metricfit.decisions.rules import GroupThresholds
from metricfit.store import ModelFolderError
from metricfit.store.onnx import to_onnx
from metricfit.training.streaming import fit_shards

SPEC = "accuracy subject to spread(recall[1]) <= 0.05 in region with thresholds by region"
QUICK = {"models": [LogisticRegression()], "cv": 3, "baseline": False, "random_state": 0, "verbose": False}


def table(n=600, seed=0):
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.3).astype(int)
    region = rng.choice(["north", "south"], n, p=[0.7, 0.3])
    a = rng.normal(size=n) + 2 * y - 1.5 * y * (region == "south")
    return pd.DataFrame({"a": a, "b": rng.normal(size=n), "region": region}), y


@pytest.fixture(scope="module")
def fitted():
    X, y = table()
    return MetricClassifier(SPEC, **QUICK).fit(X, y), X, y


def mean_before_groups(clf, X):
    """The models' mean, put together here."""
    each = {name: model.predict(clf._table(X))[:, 1] for name, model in clf.models_.items()}
    return sum(clf.weights_[name] * proba for name, proba in each.items())


def recalls(y, called, region):
    return [called[(region == r) & (y == 1)].mean() for r in ("north", "south")]


@pytest.mark.parametrize(
    "spec",
    [SPEC, "f1[yes] subject to recall[yes] >= 0.8 with thresholds by 'a column'",
     "mcc subject to recall[1] >= 0.5 and recall[1] >= 0.4 in sex with thresholds by sex"],
)  # fmt: skip
def test_the_grammar_reads_what_it_writes(spec):
    metric = metrics.get(spec)
    assert str(metric) == spec
    assert metrics.get(str(metric)) == metric
    assert metric.by in metric.columns
    assert str(metric.with_thresholds_by(None)) == spec.split(" with ")[0]
    assert metric != metric.with_thresholds_by(None)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("f1 with thresholds by sex", "expected an operator or the end, got 'with'"),
        ("f1 subject to recall >= 0.5 with thresholds of sex", "expected 'with thresholds by' and a column, got 'of'"),
        ("f1 subject to recall >= 0.5 with thresholds by", "expected a column, got the end"),
        ("f1 subject to recall >= 0.5 in zone with thresholds by sex", "recall >= 0.5 in zone does not go with thresh"),
        ("f1 subject to coverage >= 0.5 with thresholds by sex", "coverage >= 0.5 does not go with thresholds"),
        ("money:tp=a subject to recall >= 0.5 with thresholds by sex", "money:tp=a does not go with thresholds"),
    ],
)
def test_what_does_not_go_with_groups_is_said(spec, told):
    with pytest.raises(ValueError, match=told):
        metrics.get(spec)


@given(
    limits=st.lists(st.floats(1e-6, 1 - 1e-6), min_size=3, max_size=3),
    shared=st.floats(1e-6, 1 - 1e-6),
    scores=st.lists(st.floats(0, 1), min_size=1, max_size=20),
)
def test_moved_probabilities_are_decided_by_one_cut_off_as_rows_by_their_own(limits, shared, scores):
    groups = GroupThresholds("g", (0, 1), dict(zip("abc", limits, strict=True)), 1.0, shared)
    p = np.array([*scores, *limits])
    names = np.array([*("abcd" * len(scores))[: len(scores)], *"abc"])
    moved = groups.moved(np.stack([1 - p, p], axis=1), {"g": names})
    plain = [score >= groups.thresholds.get(name, shared) for score, name in zip(p, names, strict=True)]
    assert (moved[:, 1] >= shared).tolist() == plain
    assert moved.sum(axis=1) == pytest.approx(1)
    assert ((moved >= 0) & (moved <= 1)).all()
    back = groups.moved(moved, {"g": names}, back=True)[:, 1]
    sure = (p > 1e-3) & (p < 1 - 1e-3) & (moved[:, 1] > 1e-3) & (moved[:, 1] < 1 - 1e-3)
    assert back[sure] == pytest.approx(p[sure], abs=1e-6)


@pytest.mark.parametrize(("learned", "seen"), [([0, 1], [0.0, 1.0, np.nan]), ([0.0, 1.0, np.nan], [0, 1, 7])])
def test_numbers_are_the_same_groups_with_gaps_and_without(learned, seen):
    score, y = np.tile([0.2, 0.4, 0.6, 0.8], len(learned)), np.tile([0, 1], 2 * len(learned))
    groups = best_group_thresholds(y, score, "accuracy", by="g", columns={"g": np.repeat(learned, 4)})
    low = GroupThresholds("g", (0, 1), dict.fromkeys(groups.thresholds, 0.3), 1.0, 0.6)
    moved = low.moved(np.full((3, 2), 0.5), {"g": np.array(seen)})[:, 1]
    gap_was_seen = np.isnan(learned).any()
    assert (moved[:2] >= 0.6).all()
    assert (moved[2] >= 0.6) == (np.isnan(seen[2]) and bool(gap_was_seen))


def test_the_shared_cut_off_calls_as_many_rows():
    X, y = table()
    score = 1 / (1 + np.exp(-X["a"].to_numpy()))
    groups = best_group_thresholds(y, score, SPEC, columns=X)
    assert groups == best_group_thresholds(y, score, SPEC.split(" with ")[0], by="region", columns=X)
    assert (score >= groups.shared).sum() == groups.apply(score, X).sum()


def test_cut_offs_are_the_best_of_all_pairs_on_held_out_rows():
    X, y = table(150)
    clf = MetricClassifier(SPEC.replace("0.05", "0.1"), **QUICK).fit(X, y)
    held = clf.held_out_
    region, truth = held.columns["region"], held.truth
    score = clf.group_thresholds_.moved(held.proba, held.columns, back=True)[:, 1]
    best = 0.0
    for north in [*np.unique(score[region == "north"]), 2]:
        for south in [*np.unique(score[region == "south"]), 2]:
            called = score >= np.where(region == "north", north, south)
            if abs(np.subtract(*recalls(truth, called, region))) <= 0.1:
                best = max(best, (called == truth).mean())
    assert clf.group_thresholds_.value == pytest.approx(best)
    assert (clf.decision_rule_.decide(held.proba) == truth).mean() == pytest.approx(best)


def test_every_row_is_decided_by_the_cut_off_of_its_group(fitted):
    clf, X, y = fitted
    limits, mean = clf.group_thresholds_.thresholds, mean_before_groups(clf, X)
    assert limits["north"] > limits["south"] + 0.02
    plain = [int(p >= limits[r]) for p, r in zip(mean, X["region"], strict=True)]
    assert clf.predict(X).tolist() == plain
    assert clf.predict_proba(X).argmax(axis=1).tolist() == plain
    assert clf.score(X, y) in (-np.inf, pytest.approx(np.mean(np.array(plain) == y)))
    turned = X.assign(region=np.where(X["region"] == "north", "south", "north"))
    assert (clf.predict(turned) != clf.predict(X)).any()
    unseen = clf.predict(X.assign(region="east"))
    east = mean_before_groups(clf, X.assign(region="east"))
    assert unseen.tolist() == (east >= clf.group_thresholds_.shared).astype(int).tolist()
    assert "cut-offs by region: north 0." in clf.explain().lower()


def test_what_is_said_of_held_out_rows_comes_from_cut_offs_of_other_folds(fitted):
    clf, *_ = fitted
    held = clf.held_out_
    before = clf.group_thresholds_.moved(held.proba, held.columns, back=True)[:, 1]
    decided = np.empty_like(held.truth)
    for k in np.unique(held.fold):
        here, region = held.fold == k, held.columns["region"]
        others = best_group_thresholds(held.truth[~here], before[~here], SPEC, columns={"region": region[~here]})
        decided[here] = others.apply(before[here], {"region": region[here]})
    assert (held.decided == decided).mean() > 0.995  # scores are kept as float32
    gap = np.ptp(recalls(held.truth, held.decided, held.columns["region"]))
    assert clf.validation_report_["note"].iloc[-1] == f"with spread(recall[1]) in region {gap:.4f}"


def test_calibrated_probabilities_are_those_before_cut_offs_are_moved(fitted):
    clf, X, _ = fitted
    held, mean = clf.held_out_, mean_before_groups(clf, X)
    before = clf.group_thresholds_.moved(held.proba, held.columns, back=True)
    expected = calibrate(held.truth, before.astype(np.float32), labels=[0, 1]).apply(np.stack([1 - mean, mean], axis=1))
    assert clf.predict_calibrated_proba(X) == pytest.approx(expected, abs=1e-9)
    sent = pickle.loads(pickle.dumps(clf.scorer(keep=["b"])))
    result = pd.concat([sent(X[:250]), sent(X[250:])])
    assert result["prediction"].tolist() == clf.predict(X).tolist()
    assert result[["probability_0", "probability_1"]].to_numpy() == pytest.approx(expected, abs=1e-9)
    assert (sent(X[:0]).columns == result.columns).all()


def test_the_folder_and_the_report_keep_them(fitted, tmp_path):
    clf, X, _ = fitted
    metricfit.save(clf, tmp_path / "m")
    back = metricfit.load(tmp_path / "m")
    assert back.group_thresholds_ == clf.group_thresholds_
    assert (back.predict_proba(X) == clf.predict_proba(X)).all()
    assert (back.predict_calibrated_proba(X) == clf.predict_calibrated_proba(X)).all()
    assert "cut-offs by region: north" in (tmp_path / "m" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("change", [{"shared": "x"}, {"shared": "nan"}, {"thresholds": [["north"]]}])
def test_a_crafted_description_is_refused(fitted, tmp_path, change):
    from metricfit.store.folder import _checksum

    metricfit.save(fitted[0], tmp_path / "m")
    file = tmp_path / "m" / "model.json"
    described = json.loads(file.read_text())
    described["group_thresholds"] |= change
    described["checksum"] = _checksum(described)
    file.write_text(json.dumps(described))
    with pytest.raises(ModelFolderError):
        metricfit.load(tmp_path / "m")


def test_what_has_no_place_for_groups_refuses_them(fitted, tmp_path):
    clf, X, y = fitted
    with pytest.raises(ValueError, match="rule: has a cut-off for each group, for which ONNX has no place"):
        to_onnx(clf, tmp_path / "m.onnx")
    X.assign(y=y).to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match="fit it on a table in memory"):
        fit_shards(MetricClassifier(SPEC, **QUICK), str(tmp_path / "rows.parquet"), "y")
    with pytest.raises(ValueError, match="confidence: thresholds by groups allow no promise"):
        MetricClassifier(SPEC, confidence=0.9, **QUICK).fit(X, y)
    with pytest.raises(ValueError, match="X: thresholds by 'region' need it among the columns of X"):
        MetricClassifier(SPEC, **QUICK).fit(X[["a"]], y, columns=X)
    with pytest.raises(ValueError, match="for two classes, got 3"):
        MetricClassifier(SPEC, **QUICK).fit(X, np.arange(len(y)) % 3)
    for search in (best_threshold, best_rule):
        with pytest.raises(ValueError, match="asks for cut-offs of groups; best_group_thresholds"):
            search(y, X["a"].to_numpy(), SPEC, columns=X)
    with pytest.raises(TypeError, match="by: expected the column"):
        best_group_thresholds(y, X["a"], "f1", columns=X)


def test_arg_max_where_no_cut_offs_keep_the_constraints(fitted):
    _, X, y = fitted
    hard = "accuracy subject to precision[1] >= 0.999 and recall[1] >= 0.999 with thresholds by region"
    with pytest.warns(UserWarning, match="no decision rule meets the constraints, arg max is used"):
        clf = MetricClassifier(hard, **QUICK).fit(X, y)
    assert clf.group_thresholds_ is None
    assert clf.decision_rule_.kind == "argmax"


def test_watching_finds_nothing_new_in_rows_of_the_same_kind_and_much_in_others(fitted):
    clf, *_ = fitted
    same, other = table(600, seed=1)[0], table(600, seed=1)[0].assign(region="south")
    found = [{w.kind: w.alarm for w in monitor(clf, rows)} for rows in (same, other)]
    assert not found[0]["scores"]
    assert found[1]["predicted share"]


def test_methods_are_compared_with_cut_offs_of_groups():
    X, y = table(300)
    board = Comparison(X, y, SPEC, methods=["boosting", "boosting-tuned"], splits=1).run()
    assert len(board) == 2


def test_any_classifier_is_tuned_by_the_same_spec():
    X, y = table()
    model = TunedRuleClassifier(metric=SPEC).fit(X[["a", "b"]], y, columns=X)
    same = TunedRuleClassifier(metric=SPEC.split(" with ")[0], by="region").fit(X[["a", "b"]], y, columns=X)
    assert model.rule_ == same.rule_
    assert (model.predict(X[["a", "b"]], columns=X) == same.predict(X[["a", "b"]], columns=X)).all()
    assert str(model.metric_) == SPEC
