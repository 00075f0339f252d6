"""The best rule for probabilities of any kind of target, in one call."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from metricfit.decisions._samples import plain_array
from metricfit.decisions.goal import ConstraintLike, goal_of
from metricfit.decisions.multilabel import BestLabelThresholds, best_label_thresholds
from metricfit.decisions.offsets import REGULARISATION, BestOffsets, best_offsets
from metricfit.decisions.rules import DecisionRule, bayes_rule
from metricfit.decisions.search import BestThreshold, best_threshold
from metricfit.metrics import ExpectedCost, MetricLike

__all__ = ["BestRule", "best_rule"]


@dataclass(frozen=True)
class BestRule:
    """A rule and what it reaches on the data it was chosen on.

    Attributes:
        rule: The rule; its classes are in the order of the probabilities' columns.
        value: The metric with it.
        search: The search's own result.
    """

    rule: DecisionRule
    value: float
    search: BestThreshold | BestOffsets | BestLabelThresholds


def best_rule(
    y_true: ArrayLike,
    proba: ArrayLike,
    metric: MetricLike,
    *,
    subject_to: ConstraintLike | Sequence[ConstraintLike] = (),
    confidence: float | None = None,
    sample_weight: ArrayLike | None = None,
    labels: Sequence[Hashable] | None = None,
    regularisation: float = REGULARISATION,
    random_state: int | np.random.Generator | None = 0,
) -> BestRule:
    """A threshold for two classes, offsets (or the Bayes rule of a cost matrix) for more, thresholds for labels.

    Args:
        y_true: Labels (n,), or a 0/1 array (n, labels).
        proba: Probabilities (n,) of the second class, (n, classes) or (n, labels).
        metric: As for :func:`best_threshold`.
        subject_to: Constraints.
        confidence: As for :func:`best_threshold`.
        sample_weight: Weights.
        labels: The classes in the order of the columns.
        regularisation: As for :func:`best_offsets`.
        random_state: As for :func:`best_offsets`.

    >>> best_rule([0, 0, 1, 1], [[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.4, 0.6]], "f1").rule
    DecisionRule(kind='threshold', classes=(0, 1), parameter=0.25, metric='f1')
    """
    p = plain_array(proba)
    if np.ndim(y_true) == 2 and (np.shape(y_true)[1] > 1 or p.shape[1:] == (1,)):
        several = best_label_thresholds(
            y_true, p, metric, subject_to=subject_to, confidence=confidence, sample_weight=sample_weight,
            labels=labels, random_state=random_state,
        )  # fmt: skip
        return BestRule(several.rule, several.value, several)
    if p.ndim == 1 or p.shape[1] == 2:
        one = best_threshold(
            y_true, p if p.ndim == 1 else p[:, 1], metric, subject_to=subject_to, confidence=confidence,
            sample_weight=sample_weight, labels=labels,
        )  # fmt: skip
        return BestRule(one.rule, one.value, one)
    found = best_offsets(
        y_true, p, metric, subject_to=subject_to, confidence=confidence, sample_weight=sample_weight, labels=labels,
        regularisation=regularisation, random_state=random_state,
    )  # fmt: skip
    goal = goal_of(metric, subject_to)
    if isinstance(goal.metric, ExpectedCost) and not goal.constraints:
        rule = bayes_rule(goal.metric.matrix, found.rule.classes)
        cost = goal.metric.score(y_true, rule.apply(p), sample_weight, labels=found.rule.classes)
        # Tuned offsets must beat what follows from the costs alone; on a tie, nothing was tuned.
        if cost <= found.value:
            return BestRule(rule, cost, found)
    return BestRule(found.rule, found.value, found)
