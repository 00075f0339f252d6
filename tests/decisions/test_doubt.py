"""Rows left to a person, and bounds of possible classes: against plain loops, and the promise by simulation."""

from itertools import pairwise

import numpy as np
import pytest
from sklearn.metrics import f1_score

from metricfit.decisions import best_rule, cautious_rule, least_probabilities


def world(rng, n, classes=2):
    y = rng.integers(0, classes, n)
    p = np.exp(rng.normal(size=(n, classes)) + 1.5 * np.eye(classes)[y])
    return y, p / p.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(("classes", "metric"), [(2, "f1"), (3, "f1_macro"), (2, "f1 subject to recall[1] >= 0.8")])
def test_every_bound_is_compared(classes, metric):
    y, p = world(np.random.default_rng(0), 120, classes)
    found = cautious_rule(y, p, metric, coverage=0.8)
    rule = best_rule(y, p, metric, belief=1.0).rule
    assert found.rule == rule
    sure, decided, best = rule.fold(p).max(axis=1), rule.decide(p), -1.0
    for least in np.unique(sure):
        kept = sure >= least
        if kept.mean() >= 0.8 and ("recall" not in metric or (decided[kept & (y == 1)] == 1).mean() >= 0.8):
            how = "binary" if classes == 2 else "macro"
            best = max(best, f1_score(y[kept], decided[kept], average=how, zero_division=0, labels=None))
    assert found.value == pytest.approx(best)
    labels = found.apply(p)
    assert np.mean([one is not None for one in labels]) == pytest.approx(found.coverage)
    assert all(a <= b for (a, _), (b, _) in pairwise(found.curve.tolist()))


def test_deciding_everything_leaves_no_new_row_undecided():
    rng = np.random.default_rng(1)
    found = cautious_rule(*world(rng, 100), "accuracy", coverage=1.0)
    assert all(one is not None for one in found.apply(world(rng, 2000)[1]))


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
