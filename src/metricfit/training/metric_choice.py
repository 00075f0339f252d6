"""Which metric is meant: a bare ``f1`` is the positive class's for two classes and the macro average for more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from metricfit.confusion import ConfusionMatrix
from metricfit.inputs import Task
from metricfit.metrics import ClassMetric, Combination, Constrained, Constraint, Metric, MetricLike, get

__all__ = ["check_metric", "resolve_metric"]


def resolve_metric(metric: MetricLike, labels: tuple[Any, ...], task: Task) -> tuple[Metric, str]:
    """The metric with its class or average written out, and a sentence if there was something to choose.

    >>> metric, why = resolve_metric("f1", ("no", "yes"), "binary")
    >>> print(metric, why, sep="; ")
    f1[yes]; f1 was taken of class 'yes', the second in sorted order; write f1[no] for the other
    """
    found = get(metric)
    chosen = _explicit(found, labels, task)
    check_metric(chosen, labels, task)
    if str(chosen) == str(found):
        return found, ""
    if task == "binary":
        other = f"; write {found}[{labels[0]}] for the other" if isinstance(found, ClassMetric) else ""
        return chosen, f"{found} was taken of class {labels[1]!r}, the second in sorted order{other}"
    return chosen, f"{found} was taken as the macro average over the {len(labels)} classes: {chosen}"


def check_metric(metric: Metric, labels: tuple[Any, ...], task: Task) -> None:
    """Ask the metric for a value, so that a class that does not exist is told before training."""
    if len(metric._grids()) > 1 and None in metric._grids():
        raise ValueError(
            f"metric: {metric} combines metrics of scores with metrics of decisions, and no prediction is judged by "
            "both; choose one of them."
        )
    size = len(labels)
    shape = (3, size, 2, 2) if task == "multilabel" else (3, size, size)
    cm = ConfusionMatrix(torch.ones(shape), task, labels)
    values = metric.evaluate(lambda grid: cm)
    # A sweep takes the place of its first dimension.
    expected = (3,) if metric._grids() <= {None} else ()
    if tuple(values.shape) != expected:
        raise ValueError(f"metric: {metric} gives one value a class; training needs one number, choose an average.")
    if metric.greater_is_better is None:
        raise ValueError(f"metric: {metric} is a constant; there is nothing to train for.")


def _explicit(metric: Metric, labels: tuple[Any, ...], task: Task) -> Metric:
    if isinstance(metric, ClassMetric):
        return _explicit_average(metric, labels, task)
    if isinstance(metric, Combination):
        left, right = _explicit(metric.left, labels, task), _explicit(metric.right, labels, task)
        return replace(metric, left=left, right=right)
    if isinstance(metric, Constrained):
        constraints = tuple(
            Constraint(_explicit(c.metric, labels, task), c.operator, c.bound) for c in metric.constraints
        )
        return replace(metric, objective=_explicit(metric.objective, labels, task), constraints=constraints)
    return metric


def _explicit_average(metric: ClassMetric, labels: tuple[Any, ...], task: Task) -> ClassMetric:
    if metric.average != "auto" or metric.label is not None:
        return metric
    if task != "multilabel" and metric.of_matrix(ConfusionMatrix(torch.eye(len(labels)), task)) is not None:
        return metric
    if task == "binary":
        return replace(metric, label=labels[1])
    return replace(metric, average="macro")
