"""Monitoring: what is compared, what an alarm is, and metrics without labels."""

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

from metricfit import MetricClassifier, metrics
from metricfit.assess import HeldOutScores, expected_metric, monitor, scores_of
from metricfit.assess.watching import _chance
from metricfit.decisions import TunedRuleClassifier, best_threshold


def world(rng, n, share=0.2):
    y = (rng.random(n) < share).astype(int)
    p = 1 / (1 + np.exp(-(1.8 * (rng.normal(size=n) + 1.8 * y) - 3.0)))
    return y, np.stack([1 - p, p], axis=1)


def model(rng, spec="f1", n=1500):
    y, p = world(rng, n)
    rule = best_threshold(y, p[:, 1], spec).rule
    held = HeldOutScores(y, p.astype(np.float32), rule.decide(p))
    given = {"metric_": metrics.get(spec), "classes_": np.array([0, 1]), "decision_rule_": rule, "task_": "binary"}
    return SimpleNamespace(held_out_=held, predict_as_held_out=np.asarray, predict_proba=lambda X, raw: X, **given)


def test_rows_of_the_same_kind_raise_no_alarm_and_a_shift_does():
    rng = np.random.default_rng(0)
    watched = model(rng, "precision[1] subject to recall[1] >= 0.9")
    y, p = world(rng, 800)
    found = monitor(watched, p, scores_of(watched, p, y))
    assert not any(each.alarm for each in found)
    kinds = ["scores", "predicted share", "true share", "expected", "expected", "measured", "measured"]
    assert [each.kind for each in found] == kinds
    assert found[2].now.value == y.mean(), "labels that have come in are counted"
    y, p = world(rng, 800, share=0.5)
    found = {(each.kind, each.about): each for each in monitor(watched, p)}
    assert found["scores", 1].alarm
    assert found["predicted share", 1].alarm
    assert found["true share", 1].now.low < 0.5 < found["true share", 1].now.high
    assert not found["expected", "recall[1] >= 0.9"].alarm, "the classes are what they were, there are only more"


def test_a_model_that_is_wrong_on_new_rows_is_found_by_their_labels_only():
    rng = np.random.default_rng(1)
    watched = model(rng, "f1 subject to recall[1] >= 0.6")
    y, p = world(rng, 600)
    found = monitor(watched, p, scores_of(watched, p, rng.permutation(y)))
    assert {each.kind for each in found if each.alarm} == {"measured"}
    assert [each.missed for each in found if each.kind == "measured"] == [False, True]


def test_the_expected_metric_holds_the_true_one_where_only_the_share_has_changed():
    inside = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        y, p = world(rng, 1500)
        y_new, new = world(rng, 800, share=0.05)
        decided = new[:, 1] > 0.4
        found = expected_metric("recall", new, decided, y, p)
        inside.append(found.low <= metrics.get("recall").score(y_new, decided) <= found.high)
    assert sum(inside) >= 8


def test_new_rows_are_scored_by_one_fold_each_as_the_held_out_ones_were():
    X, y = make_classification(300, random_state=0)
    clf = MetricClassifier("f1", models=["forest"], cv=3, random_state=0, verbose=False, baseline=False).fit(X, y)
    table = clf._table(X)
    each = clf.models_["forest"].each_fold(table)
    np.testing.assert_allclose(clf.predict_as_held_out(X), [each[i % 3, i] for i in range(300)], atol=1e-12)
    assert not any(one.alarm for one in monitor(clf, X, alarm=1e-9))


@pytest.mark.parametrize(("change", "message"), [({"alarm": 0.0}, "alarm: expected a prob"), ({}, "no rows were held")])
def test_what_cannot_be_watched(change, message):
    watched = model(np.random.default_rng(0))
    if not change:
        watched.held_out_ = None
    with pytest.raises(ValueError, match=message):
        monitor(watched, world(np.random.default_rng(1), 50)[1], **change)


def test_few_draws_are_no_proof_at_a_strict_level():
    gap = np.random.default_rng(0).normal(-3.5, 1.0, 400)
    assert (gap < 0).all(), "their share is 0, and yet"
    assert _chance(gap) == pytest.approx(0.0002, abs=0.0003)
    assert _chance(np.append(gap, np.nan)) == _chance(gap)
    assert _chance(gap + 3.5) == pytest.approx(0.5, abs=0.1)
    assert _chance(-np.ones(40)) == 0
    assert np.isnan(_chance(np.full(3, np.nan)))


@pytest.mark.parametrize("cv", ["prefit", 5])
def test_a_tuned_rule_is_watched_too(cv):
    X, y = make_classification(3000, weights=[0.8], random_state=0)
    y = np.array(["no", "yes"])[y]
    base = LogisticRegression()
    if cv == "prefit":
        base.fit(X[:1000], y[:1000])
    model = TunedRuleClassifier(base, "precision[yes] subject to recall[yes] >= 0.7", cv=cv).fit(
        X[1000:2000], y[1000:2000]
    )
    same = monitor(model, X[2000:], scores_of(model, X[2000:], y[2000:]))
    assert [each.kind for each in same if each.alarm] == []
    assert same[-1].about == "recall[yes] >= 0.7"
    assert {each.kind for each in monitor(model, X[2000:] + 0.5) if each.alarm} >= {"scores", "predicted share"}


def test_a_rule_by_groups_is_not_watched():
    rng = np.random.default_rng(0)
    y, X = rng.integers(0, 2, 100), rng.normal(size=(100, 2))
    model = TunedRuleClassifier(metric="f1", by="sex").fit(X, y, columns={"sex": ["f", "m"] * 50})
    with pytest.raises(ValueError, match="classifier: decides by groups of rows"):
        monitor(model, X)
