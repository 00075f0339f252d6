"""Money per row: the best cut-off is that of a plain loop over all of them."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from metricfit.decisions import InfeasibleError, TunedRuleClassifier, best_rule, best_threshold


def total(y, called, gain, weight=None):
    tp, fp, fn, tn = (np.broadcast_to(g, y.shape) for g in gain)
    won = 0.0
    for i in range(len(y)):
        outcome = (tp if called[i] else fn) if y[i] == 1 else (fp if called[i] else tn)
        won += outcome[i] * (1 if weight is None else weight[i])
    return won


def rows(seed, n, digits=1):
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.3).astype(int)
    y[:2] = 0, 1
    score = (rng.normal(size=n) + y).round(digits)
    score[:2] = -9, 9
    amount = rng.lognormal(3, 1, n)
    return y, score, (amount - 5, -5.0 - 0.1 * amount, -amount, 0.02 * amount), rng.random(n) + 0.1


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(4, 60), weighted=st.booleans())
def test_the_total_is_the_highest_of_all_cutoffs(seed, n, weighted):
    y, score, gain, weight = rows(seed, n)
    weight = weight if weighted else None
    best = best_threshold(y, score, gain=gain, sample_weight=weight)
    every = [total(y, score >= t, gain, weight) for t in [*np.unique(score), np.inf]]
    assert best.value == pytest.approx(max(every))
    assert best.value == pytest.approx(total(y, score >= best.threshold, gain, weight))
    assert best.confusion.matrix.sum() == pytest.approx(n if weight is None else weight.sum())


def test_numbers_are_the_cost_matrix():
    y, score, _, _ = rows(1, 300)
    best = best_threshold(y, score, gain=(0, -1, -7, 0))
    cost = best_threshold(y, score, "cost:matrix=[[0,1],[7,0]]")
    assert best.threshold == cost.threshold
    assert best.value == pytest.approx(-cost.value * 300)


def test_constraints_hold_beside_the_money():
    y, score, gain, _ = rows(2, 400)
    best = best_threshold(y, score, gain=gain, subject_to="recall[1] >= 0.95")
    every = [t for t in np.unique(score) if (score[y == 1] >= t).mean() >= 0.95]
    assert best.value == pytest.approx(max(total(y, score >= t, gain) for t in every))
    assert best.constraints[0].value >= 0.95
    assert (
        best_threshold(y, score, gain=gain, subject_to="recall[1] >= 0.8", confidence=0.9).constraints[0].promised
        >= 0.8
    )
    with pytest.raises(InfeasibleError, match="best reachable value"):
        best_threshold(y, score, gain=gain, subject_to=["recall[1] >= 0.999", "precision[1] >= 0.999"])


def test_the_positive_class_can_be_the_first():
    y, score, gain, _ = rows(3, 100)
    names = np.where(y == 1, "a", "b")
    assert best_threshold(names, score, gain=gain, labels=["b", "a"]).value == best_threshold(y, score, gain=gain).value


def test_the_tuned_classifier_earns_more_than_f1s_rule():
    rng = np.random.default_rng(0)
    y = (rng.random(3000) < 0.1).astype(int)
    X = rng.normal(size=(3000, 3)) + 1.2 * y[:, None]
    amount = rng.lognormal(3, 1, 3000)
    gain, spec = (amount - 5, -5, -amount, 0), "money:tp=amount-5,fp=-5,fn=-amount"
    money = TunedRuleClassifier(LogisticRegression(), spec).fit(X[:1500], y[:1500], columns={"amount": amount[:1500]})
    plain = TunedRuleClassifier(LogisticRegression(), metric="f1").fit(X[:1500], y[:1500])
    half = [g if np.ndim(g) == 0 else g[1500:] for g in gain]
    assert total(y[1500:], money.predict(X[1500:]), half) > total(y[1500:], plain.predict(X[1500:]), half)
    assert money.value_ >= total(y[:1500], 0 * y[:1500], [g if np.ndim(g) == 0 else g[:1500] for g in gain])


def test_the_search_takes_n_log_n():
    rng = np.random.default_rng(0)
    y = (rng.random(1_000_000) < 0.05).astype(int)
    score, amount = rng.random(1_000_000) + 0.3 * y, rng.random(1_000_000)
    started = time.process_time()
    best_threshold(y, score, gain=(amount, -0.01, -amount, 0))
    assert time.process_time() - started < 20


WRONG = [
    ((1, 2, 3), "expected four numbers or arrays"),
    (([1, 2], -1, 0, 0), r"shape \(3,\) for tp, got \(2,\)"),
    ((np.nan, -1, 0, 0), "expected finite numbers for tp"),
    ((-1, -1, 0, 0), "a positive decision never pays"),
]


@pytest.mark.parametrize(("gain", "message"), WRONG)
def test_bad_gains_get_one_clear_message(gain, message):
    with pytest.raises(ValueError, match=message):
        best_threshold([0, 1, 1], [0.1, 0.4, 0.5], gain=gain)


def test_either_a_metric_or_a_gain():
    for either in ({}, {"metric": "f1", "gain": (1, -1, 0, 0)}):
        with pytest.raises(TypeError, match="either a metric or gain"):
            best_threshold([0, 1, 1], [0.1, 0.4, 0.5], **either)
    with pytest.raises(TypeError, match="gain, columns: are for two classes"):
        best_rule([0, 1, 2], np.eye(3) * 0.7 + 0.1, gain=(1, -1, 0, 0))
    with pytest.raises(TypeError, match="expected numbers for fp"):
        best_threshold([0, 1, 1], [0.1, 0.4, 0.5], gain=(1, "cheap", 0, 0))
