"""Changed prevalence: rules against samples that were drawn anew, shares against a direct maximum of the likelihood."""

import pickle

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from metricfit import metrics
from metricfit.assess import estimate_prevalence
from metricfit.decisions import (
    BestRule,
    DecisionRule,
    best_label_thresholds,
    best_offsets,
    best_rule,
    best_threshold,
    calibrate,
)
from tests.decisions.gaussians import TwoGaussians


def two(n, share, rng, sharp=2.0):
    y = (rng.random(n) < share).astype(int)
    y[:2] = 0, 1
    return y, 1 / (1 + np.exp(-(rng.normal(size=n) * 1.5 + sharp * (2 * y - 1))))


def three(n, shares, rng):
    y = rng.choice(3, n, p=shares)
    p = np.exp(rng.normal(size=(n, 3)) + 2 * np.eye(3)[y])
    return y, p / p.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("metric", ["f1", "mcc", "accuracy", "cost:matrix=[[0,1],[9,0]]"])
def test_the_rule_is_the_best_at_the_new_share_by_a_plain_loop(metric):
    y, score = two(300, 0.4, np.random.default_rng(0))
    found = best_threshold(y, score, metric).for_prevalence(0.05)
    weight = np.where(y == 1, 0.05 / y.mean(), 0.95 / (1 - y.mean()))
    own = metrics.get(metric)
    every = [own.score(y, (score >= t).astype(int), weight) for t in [*np.unique(score), np.inf]]
    assert found.value == pytest.approx(max(every) if own.greater_is_better else min(every))
    assert found.confusion.support[1] / found.confusion.total == pytest.approx(0.05)
    assert found.for_prevalence(y.mean()).threshold == best_threshold(y, score, metric).threshold


def test_it_decides_as_well_as_a_rule_of_rows_with_the_new_share():
    rng = np.random.default_rng(1)
    best = best_threshold(*two(20_000, 0.4, rng), "f1")
    y, score = two(100_000, 0.02, rng)
    f1 = metrics.get("f1")
    old, moved = (f1.score(y, (score >= rule.threshold).astype(int)) for rule in (best, best.for_prevalence(0.02)))
    ideal = best_threshold(y, score, "f1").value
    assert moved > old + 0.05
    assert moved > ideal - 0.02


def test_true_value_on_the_known_gaussians():
    y, score = TwoGaussians().sample(4000, np.random.default_rng(2))
    best = best_threshold(y, score, "recall subject to precision >= 0.8")
    assert best.for_prevalence(0.5).threshold < best.for_prevalence(0.05).threshold


def test_offsets_labels_by_name_and_the_bayes_rule():
    rng = np.random.default_rng(3)
    y, p = three(600, [0.4, 0.3, 0.3], rng)
    names = np.array(["a", "b", "c"])[y]
    best = best_offsets(names, p, "accuracy", regularisation=0)
    moved = best.for_prevalence({"c": 0.05, "a": 0.9, "b": 0.05})
    y_new, p_new = three(5000, [0.9, 0.05, 0.05], rng)
    new = np.array(["a", "b", "c"])[y_new]
    assert (moved.rule.apply(p_new) == new).mean() > (best.rule.apply(p_new) == new).mean()
    assert moved.for_prevalence([0.4, 0.3, 0.3]).value == pytest.approx(best.for_prevalence([0.4, 0.3, 0.3]).value)
    assert best_rule(names, p, "cost:matrix=[[0,1,1],[1,0,1],[5,5,0]]").for_prevalence([0.5, 0.3, 0.2]).value > 0


def test_promises_on_recall_stay_and_others_are_refused():
    y, score = two(2000, 0.4, np.random.default_rng(4))
    best = best_threshold(y, score, "precision subject to recall >= 0.8", confidence=0.95)
    moved = best.for_prevalence(0.02)
    assert moved.constraints[0].promised == best.constraints[0].promised >= 0.8
    assert moved.constraints[0].value == pytest.approx(best.constraints[0].value)
    assert moved.value < best.value
    with pytest.raises(ValueError, match=r"precision >= 0\.6 depends on the prevalence"):
        best_threshold(y, score, "recall subject to precision >= 0.6", confidence=0.9).for_prevalence(0.1)


def test_money_is_that_of_the_new_shares():
    rng = np.random.default_rng(5)
    y, score = two(500, 0.4, rng)
    amount = rng.random(500)
    gain = (amount, -0.2, -amount, 0.0)
    found = best_threshold(y, score, gain=gain).for_prevalence(0.1)
    weight = np.where(y == 1, 0.1 / y.mean(), 0.9 / (1 - y.mean()))
    assert found.value == pytest.approx(best_threshold(y, score, gain=gain, sample_weight=weight).value)


def test_a_result_can_be_pickled_and_what_has_no_classes_says_so():
    y, score = two(200, 0.4, np.random.default_rng(6))
    again = pickle.loads(pickle.dumps(best_threshold(y, score, "f1")))
    assert again.for_prevalence(0.1).threshold == best_threshold(y, score, "f1").for_prevalence(0.1).threshold
    labels = best_label_thresholds(np.stack([y, 1 - y], axis=1), np.stack([score, 1 - score], axis=1), "f1")
    with pytest.raises(ValueError, match="for rules of classes"):
        labels.for_prevalence(0.1)
    with pytest.raises(ValueError, match="for rules of classes"):
        BestRule(DecisionRule.at_threshold(0.5), 0.5, labels.confusion).for_prevalence(0.1)


@pytest.mark.parametrize("wrong", [1.0, -0.1, 3, "few", [0.2, 0.3], [0.1, 0.2, 0.7], {0: 0.5}, {0: 0.2, 1: 0.9}])
def test_wrong_shares_get_one_clear_message(wrong):
    best = best_threshold(*two(50, 0.4, np.random.default_rng(0)), "f1")
    with pytest.raises(ValueError, match=r"prevalence: expected"):
        best.for_prevalence(wrong)


def test_the_estimate_is_the_maximum_of_the_likelihood():
    rng = np.random.default_rng(7)
    y, p = two(3000, 0.3, rng, sharp=1.0)
    _, new = two(2000, 0.1, rng, sharp=1.0)
    q, usual = calibrate(y, p).apply(new), y.mean()

    def loss(share):
        return -np.log(share * q / usual + (1 - share) * (1 - q) / (1 - usual)).sum()

    expected = minimize_scalar(loss, bounds=(1e-6, 1 - 1e-6), method="bounded", options={"xatol": 1e-8}).x
    found = estimate_prevalence(new, y, p)
    assert found[1].value == pytest.approx(expected, abs=1e-4)
    assert found[0].value == pytest.approx(1 - expected, abs=1e-4)
    assert found[1].low < found[1].value < found[1].high


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.02, 0.15, 0.6])
def test_the_interval_holds_the_truth(share):
    rng = np.random.default_rng(8)
    held = 0
    for _ in range(25):
        y, p = two(600, 0.3, rng, sharp=1.2)
        _, new = two(800, share, rng, sharp=1.2)
        found = estimate_prevalence(new, y, p, random_state=int(rng.integers(10**6)))[1]
        held += found.low <= share <= found.high
    assert held >= 21  # of 25 at 95 %: fewer come about once in 60


def test_several_classes_and_names():
    rng = np.random.default_rng(9)
    y, p = three(2000, [0.3, 0.3, 0.4], rng)
    _, new = three(2000, [0.7, 0.2, 0.1], rng)
    found = estimate_prevalence(new, np.array(["a", "b", "c"])[y], p)
    assert list(found) == ["a", "b", "c"]
    for label, share in zip(found, (0.7, 0.2, 0.1), strict=True):
        assert found[label].value == pytest.approx(share, abs=0.04)
    assert sum(estimate.value for estimate in found.values()) == pytest.approx(1)


def test_a_class_that_is_gone_and_wrong_input():
    rng = np.random.default_rng(10)
    y, p = two(2000, 0.3, rng, sharp=3.0)
    _, new = two(1000, 0.3, rng, sharp=3.0)
    found = estimate_prevalence(new[new < 0.3], y, p)[1]
    assert found.low < 0.01
    with pytest.raises(ValueError, match="new_proba: expected 2 columns"):
        estimate_prevalence(np.ones((3, 3)) / 3, y, p)
    with pytest.raises(ValueError, match="new_proba: expected probabilities"):
        estimate_prevalence([1.5, 2], y, p)
