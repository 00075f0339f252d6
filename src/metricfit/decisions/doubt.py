"""Doubt: rows that a model leaves to a person, and sets of classes with a promised error."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from metricfit.confusion import ConfusionMatrix
from metricfit.decisions.problem import class_samples, goal_of
from metricfit.decisions.rules import DecisionRule
from metricfit.decisions.threshold import best_rule
from metricfit.metrics import MetricLike

__all__ = ["CautiousRule", "cautious_rule", "least_probabilities"]


class CautiousRule(NamedTuple):
    """A rule that does not decide where no class reaches ``least`` once the rule is folded in.

    ``value`` is the metric of the decided rows, ``coverage`` their share; ``curve`` (k, 2) has both for every bound.
    """

    rule: DecisionRule
    least: float
    value: float
    coverage: float
    curve: NDArray[np.float64]

    def apply(self, proba: ArrayLike) -> NDArray[Any]:
        """Labels (n,), None where the rule does not decide."""
        decided = self.rule.apply(proba).astype(object)
        decided[self.rule.fold(proba).max(axis=1) < self.least] = None
        return decided


def cautious_rule(
    y_true: ArrayLike, proba: ArrayLike, metric: MetricLike, *, coverage: float = 0.9, labels: Any = None
) -> CautiousRule:
    """The best rule that decides at least a share ``coverage`` of the rows and leaves unsure ones to a person.

    The rule is tuned for the expected metric of all rows, by probabilities (n, classes); then every bound is compared,
    exactly, by the metric (and its constraints) on the rows that are decided.
    """
    if not 0 < coverage <= 1:
        raise ValueError(f"coverage: expected a share above 0 and at most 1, got {coverage!r}.")
    goal, samples = goal_of(metric), class_samples(y_true, proba, labels=labels)
    p, (n, size) = samples.score, samples.score.shape
    rule = best_rule(y_true, p, metric, labels=samples.classes, belief=1.0).rule
    sure = rule.fold(p).max(axis=1)
    order = np.argsort(-sure, kind="stable")
    enough = np.append(sure[order][1:] != sure[order][:-1], True) & (np.arange(1, n + 1) >= coverage * n)
    cells = np.eye(size * size)[(samples.target * size + rule.decide(p))[order]].cumsum(axis=0)[enough]
    task: Any = "binary" if size == 2 else "multiclass"
    found = ConfusionMatrix(torch.from_numpy(cells.reshape(-1, size, size)), task, samples.classes)
    violation, gain = (part.numpy() for part in goal.keys(found))
    curve = np.stack([(np.flatnonzero(enough) + 1) / n, goal.sign * gain], axis=1)
    best = int(np.lexsort((curve[:, 0], gain, -violation))[-1])
    share, value = curve[best].tolist()
    return CautiousRule(rule, float(sure[order][enough][best]) if share < 1 else 0.0, value, share, curve)


def least_probabilities(
    y_true: ArrayLike, proba: ArrayLike, error: float = 0.1, *, each_class: bool = False, labels: Any = None
) -> NDArray[np.float64]:
    """The probability from which on each class is possible, so that the true one is for all but ``error`` of new rows.

    This is conformal prediction (Sadinle et al. 2019): the promise holds for any model and on average over rows from
    the same source as these, which the model was not fitted on; with ``each_class`` for every class by itself.
    """
    if not 0 < error < 1:
        raise ValueError(f"error: expected a share between 0 and 1, got {error!r}.")
    samples = class_samples(y_true, proba, labels=labels)
    own, size = samples.score[np.arange(len(samples.target)), samples.target], samples.score.shape[1]
    groups = [np.sort(own[samples.target == k] if each_class else own) for k in range(size)]
    places = [int(error * (len(values) + 1)) for values in groups]
    return np.array([values[k - 1] if k else 0.0 for k, values in zip(places, groups, strict=True)])
