"""Doubt: rows that a model leaves to a person, and sets of classes with a promised error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from metricfit.confusion import ConfusionMatrix
from metricfit.decisions.problem import Goal, InfeasibleError, Key, as_columns, class_samples, goal_of
from metricfit.decisions.rules import BestRule, ConstraintValue
from metricfit.decisions.threshold import best_rule
from metricfit.metrics import Constraint, MetricLike
from metricfit.metrics.algebra import Coverage

__all__ = ["cautious_rule", "least_probabilities"]


def cautious_rule(
    y_true: ArrayLike, proba: ArrayLike, metric: MetricLike, *, coverage: float = 0.9, labels: Any = None,
    sample_weight: ArrayLike | None = None,
) -> BestRule:  # fmt: skip
    """The best rule that decides at least a share ``coverage`` of the rows and leaves unsure ones to a person.

    The rule is tuned for the expected metric of all rows, by probabilities (n, classes); then every bound is compared,
    exactly, by the metric (and its constraints) on the rows that are decided.
    """
    if not 0 < coverage <= 1:
        raise ValueError(f"coverage: expected a share above 0 and at most 1, got {coverage!r}.")
    goal, samples = goal_of(metric), class_samples(y_true, as_columns(proba, "proba"), sample_weight, labels=labels)
    p, (n, size) = samples.score, samples.score.shape
    given: Any = {"labels": samples.classes, "sample_weight": samples.weight, "belief": 1.0}
    try:
        rule = best_rule(y_true, p, metric, **given).rule
    except InfeasibleError:  # of all rows; those that are decided may keep what all do not
        rule = best_rule(y_true, p, goal.metric, **given).rule
    sure, weight = rule.fold(p).max(axis=1), np.ones(n) if samples.weight is None else samples.weight
    order = np.argsort(-sure, kind="stable")
    shares = weight[order].cumsum() / weight.sum()
    enough = np.append(sure[order][1:] != sure[order][:-1], True) & (shares >= coverage - 1e-12)
    cells = (np.eye(size * size)[samples.target * size + rule.decide(p)] * weight[:, None])[order].cumsum(axis=0)[
        enough
    ]
    task: Any = "binary" if size == 2 else "multiclass"
    found = ConfusionMatrix(torch.from_numpy(cells.reshape(-1, size, size)), task, samples.classes)

    def best_of(aim: Goal) -> tuple[int, Key]:
        violation, gain = (part.numpy() for part in aim.keys(found))
        place = int(np.lexsort((shares[enough], gain, -violation))[-1])
        return place, (-float(violation[place]), float(gain[place]))

    best, key = best_of(goal)
    if key[0] < 0:
        raise goal.infeasible(f"rule that decides a share of {coverage:g} of the rows", lambda aim: best_of(aim)[1])
    curve = np.stack([shares[enough], goal.sign * goal.keys(found)[1].numpy()], axis=1)
    asked = Constraint(Coverage(), ">=", coverage)
    spec = replace(goal, constraints=(*goal.constraints, asked)).spec
    rule = replace(rule, least=float(sure[order][enough][best]) if best < len(curve) - 1 else 0.0, metric=spec)
    result = BestRule.of(rule, goal, found.with_matrix(found.matrix[best]), curve=curve)
    return replace(result, constraints=(*result.constraints, ConstraintValue(asked, float(curve[best, 0]))))


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
