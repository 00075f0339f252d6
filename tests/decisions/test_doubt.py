"""Rows left to a person, and bounds of possible classes: against plain loops, and the promise by simulation."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score

from metricfit import MetricClassifier, load, save
from metricfit.assess import assess
from metricfit.decisions import (
    DecisionRule,
    InfeasibleError,
    TunedRuleClassifier,
    best_rule,
    best_threshold,
    calibrate,
    cautious_rule,
    least_probabilities,
)
from metricfit.store.onnx import to_onnx


def world(rng, n, classes=2):
    y = rng.integers(0, classes, n)
    p = np.exp(rng.normal(size=(n, classes)) + 1.5 * np.eye(classes)[y])
    return y, p / p.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(("classes", "metric"), [(2, "f1"), (3, "f1_macro"), (2, "f1 subject to recall[1] >= 0.8")])
def test_every_bound_is_compared(classes, metric):
    y, p = world(np.random.default_rng(0), 120, classes)
    found = cautious_rule(y, p, metric, coverage=0.8)
    rule = best_rule(y, p, metric, belief=1.0).rule
    assert replace(found.rule, least=0.0, metric=rule.metric) == rule
    sure, decided, best = rule.fold(p).max(axis=1), rule.decide(p), -1.0
    for least in np.unique(sure):
        kept = sure >= least
        if kept.mean() >= 0.8 and ("recall" not in metric or (decided[kept & (y == 1)] == 1).mean() >= 0.8):
            how = "binary" if classes == 2 else "macro"
            best = max(best, f1_score(y[kept], decided[kept], average=how, zero_division=0, labels=None))
    assert found.value == pytest.approx(best)
    labels = found.rule.apply(p)
    assert np.mean([one is not None for one in labels]) == pytest.approx(found.constraints[-1].value)
    assert all(a <= b for (a, _), (b, _) in pairwise(found.curve.tolist()))


def test_deciding_everything_leaves_no_new_row_undecided():
    rng = np.random.default_rng(1)
    found = cautious_rule(*world(rng, 100), "accuracy", coverage=1.0)
    assert all(one is not None for one in found.rule.apply(world(rng, 2000)[1]))


@pytest.mark.parametrize("each_class", [False, True])
def test_the_true_class_is_possible_as_often_as_promised(each_class):
    rng = np.random.default_rng(2)
    inside = []
    for _ in range(200):
        y, p = world(rng, 150, 3)
        y_new, new = world(rng, 300, 3)
        possible = new >= least_probabilities(y, p, 0.1, each_class=each_class)
        own = possible[np.arange(300), y_new]
        inside.append([own[y_new == k].mean() for k in range(3)] if each_class else own.mean())
    means = np.mean(inside, axis=0)
    assert (means > 0.895).all()
    assert (means < 0.93).all()
    assert not least_probabilities([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]], 0.1).any(), "too few: all possible"


@pytest.mark.parametrize("wrong", [0.0, 1.5])
def test_shares_out_of_range(wrong):
    y, p = world(np.random.default_rng(0), 30)
    with pytest.raises(ValueError, match="coverage: expected a share"):
        cautious_rule(y, p, "f1", coverage=wrong)
    with pytest.raises(ValueError, match="error: expected a share"):
        least_probabilities(y, p, wrong)


SPEC = "f1[yes] subject to coverage >= 0.8"


def test_the_grammars_coverage_is_the_cautious_rules():
    y, p = world(np.random.default_rng(3), 300)
    names = np.where(y == 1, "yes", "no")
    found = best_rule(names, p, SPEC, labels=["no", "yes"])
    assert found.rule == cautious_rule(names, p, "f1[yes]", coverage=0.8).rule
    assert found.rule == DecisionRule.from_json(found.rule.to_json())
    assert found.rule.metric == SPEC
    assert "left to a person" in found.rule.in_words()
    assert found.constraints[0].value == pytest.approx((found.rule.decide(p) >= 0).mean())
    assert found.constraints[0].value >= 0.8
    kept = found.rule.decide(p) >= 0
    assert found.value == pytest.approx(f1_score(y[kept], found.rule.decide(p)[kept]))


def test_weights_are_shares_and_constraints_are_those_of_the_decided_rows():
    y, p = world(np.random.default_rng(4), 200)
    times = np.random.default_rng(5).integers(1, 4, 200)
    weighted = cautious_rule(y, p, "f1", sample_weight=times)
    repeated = cautious_rule(np.repeat(y, times), np.repeat(p, times, axis=0), "f1")
    assert weighted.constraints[0].value >= 0.9
    assert weighted.value == pytest.approx(repeated.value, abs=0.01)
    sharp = "recall[1] subject to precision[1] >= 0.97"
    assert best_rule(y, p, f"{sharp} and coverage >= 0.3").confusion.matrix[:, 1].tolist()[1] > 0
    with pytest.raises(InfeasibleError, match="decides a share of 1 of the rows meets precision") as error:
        best_rule(y, p, "recall[1] subject to precision[1] >= 1 and recall[1] >= 0.9 and coverage >= 1")
    reachable = error.value.reachable
    assert reachable["recall[1] >= 0.9"] > 0 or 0 < reachable["precision[1] >= 1"] < 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda y, p: best_rule(y, p, "f1 subject to coverage <= 0.5"), "the least share of all rows to decide"),
        (lambda y, p: best_rule(y, p, "f1 subject to coverage >= 0.5 in sex"), "the least share of all rows"),
        (lambda y, p: best_rule(y, p, "f1 subject to coverage >= 0.5", confidence=0.9), "together with confidence"),
        (lambda y, p: best_rule(p > 0.5, p, "f1 subject to coverage >= 0.5"), "together with several labels"),
        (lambda y, p: best_threshold(y, p[:, 1], "f1 subject to coverage >= 0.5"), "best_rule, cautious_rule"),
        (lambda y, p: DecisionRule("argmax", (0, 1), least=2.0), "least: expected a probability"),
    ],
)
def test_what_coverage_cannot_be(call, message):
    with pytest.raises(ValueError, match=message):
        call(*world(np.random.default_rng(0), 60))


def test_classifiers_leave_rows_to_a_person(tmp_path):
    rng = np.random.default_rng(6)
    X, y = rng.normal(size=(600, 3)), rng.random(600)
    names = np.where(y < 1 / (1 + np.exp(-3 * X[:, 0])), "yes", "no")
    for model in (
        TunedRuleClassifier(metric=SPEC),
        MetricClassifier(SPEC, models=["extra_trees"], cv=3, baseline=False, verbose=False, random_state=0),
    ):
        decided = model.fit(X[:400], names[:400]).predict(X[400:])
        person = np.array([one is None for one in decided])
        assert 0 < person.mean() < 0.35
        raw = model.predict_proba(X[400:], raw=True)
        plain = TunedRuleClassifier if isinstance(model, TunedRuleClassifier) else MetricClassifier
        rule = model.rule_ if plain is TunedRuleClassifier else model.decision_rule_
        assert (person == (rule.fold(raw).max(axis=1) < rule.least)).all()
        wrong = [(decided == names[400:])[~person].mean(), (rule.fold(raw).argmax(1) == (names[400:] == "yes")).mean()]
        assert wrong[0] > wrong[1]
    held = model.held_out_.judged(("no", "yes"))
    limit = assess("", model.metric_, held).constraints[0]
    assert limit.estimate.value == pytest.approx((held.decided >= 0).mean())
    assert limit.estimate.low < limit.estimate.value < limit.estimate.high
    assert held.confusion.total == (held.decided >= 0).sum()
    kept = ~person
    assert model.score(X[400:], names[400:]) == pytest.approx(
        f1_score(names[400:][kept], decided[kept].astype(str), pos_label="yes") if kept.mean() >= 0.8 else -np.inf
    )
    save(model, tmp_path / "model")
    back = load(tmp_path / "model")
    assert back.predict(X[400:]).tolist() == decided.tolist()
    np.testing.assert_array_equal(back.scorer()(pd.DataFrame(X[400:]))["prediction"].isna(), person)
    with pytest.raises(ValueError, match="leaves rows to a person, for which ONNX has no label"):
        to_onnx(model, tmp_path / "model.onnx")
    with pytest.raises(ValueError, match="rows that are left to a person allow no promise"):
        MetricClassifier(SPEC, models=["forest"], confidence=0.9, verbose=False).fit(X[:400], names[:400])
    with pytest.raises(ValueError, match="not several labels"):
        MetricClassifier("f1 subject to coverage >= 0.8", models=["forest"], verbose=False).fit(
            X, np.c_[y < 0.5, y > 0.3]
        )


@pytest.mark.parametrize("belief", [0.5, 1.0])
def test_with_belief_the_bound_is_the_best_one_for_the_expected_metric(belief):
    y, p = world(np.random.default_rng(8), 120)
    found = cautious_rule(y, p, "f1", coverage=0.7, belief=belief)
    whole = replace(found.rule, least=0.0)
    sure, decided = whole.fold(p).max(axis=1), whole.decide(p)
    positive = (1 - belief) * y + belief * calibrate(y, p, method="temperature").apply(p)[:, 1]
    values = {}
    for least in np.unique(sure):
        kept = sure >= least
        if kept.mean() >= 0.7:
            hits = positive[kept & (decided == 1)].sum()
            values[least] = 2 * hits / (positive[kept].sum() + (decided[kept] == 1).sum())
    best = max(values, key=values.get)
    assert found.rule.least == pytest.approx(best if best > sure.min() else 0.0)
    kept = found.rule.decide(p) >= 0
    assert found.value == pytest.approx(f1_score(y[kept], decided[kept])), "what is shown is of the labels"
    assert best_rule(y, p, "f1 subject to coverage >= 0.7", belief=belief).rule.least == found.rule.least
