"""What ``MetricLoss`` may be told, checked where it is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import torch
from torch import Tensor

from metricfit.confusion import Absent
from metricfit.inputs import Task, check_ignore_index
from metricfit.losses.cross_entropy import ClassWeighting
from metricfit.metrics import ClassMetric, Metric
from metricfit.steps import Step

if TYPE_CHECKING:
    from metricfit.losses.metric_loss import MetricLoss

__all__ = ["as_weights", "check_options", "check_sizes", "checked_prior", "checked_threshold", "with_average"]


def check_options(loss: MetricLoss, step: str | Step, threshold: object, class_prior: object) -> None:
    """Raise a ``ValueError`` for options out of range, and for those that would have no effect.

    Args:
        loss: With its other options set.
        step: As given.
        threshold: As given.
        class_prior: As given.
    """
    if isinstance(loss.metric, ClassMetric) and loss.metric.average == "none":
        raise ValueError("average: 'none' gives one value a class; a loss needs one number, choose another.")
    if loss.absent not in get_args(Absent):
        raise ValueError(f"absent: expected 'skip' or 'count', got {loss.absent!r}.")
    if loss.class_weighting not in get_args(ClassWeighting):
        raise ValueError(f"class_weighting: expected 'none', 'sqrt' or 'balanced', got {loss.class_weighting!r}.")
    if not 0 <= loss.cross_entropy < float("inf"):
        raise ValueError(f"cross_entropy: expected a weight >= 0, got {loss.cross_entropy}.")
    if not loss.cross_entropy and loss.class_weighting != "none":
        raise ValueError("class_weighting: has no effect without cross_entropy; give cross_entropy a weight.")
    if class_prior is not None and loss.class_weighting == "none":
        raise ValueError("class_prior: has no effect without class_weighting='sqrt' or 'balanced'.")
    check_ignore_index(loss.ignore_index)
    only_grids = None not in loss.metric.grids()
    plain = isinstance(threshold, (int, float)) and threshold == 0.5
    if not plain and (only_grids or loss.task == "multiclass" or step in ("amplifier", "identity")):
        fixed = "a multiclass task, whose threshold is dynamic" if loss.task == "multiclass" else f"step={step!r}"
        fixed = f"{loss.metric}, which has a grid of thresholds" if only_grids else fixed
        raise ValueError(f"threshold: has no effect with {fixed}.")
    if loss.task == "multiclass" and step == "amplifier":
        raise ValueError(
            "step: the amplifier's threshold is fixed at 1/2, which no class of many need reach; use "
            "step='sigmoid' with k=73, or task='binary'."
        )
    if loss.detach_threshold and (only_grids or loss.task != "multiclass" or step in ("amplifier", "identity")):
        raise ValueError("detach_threshold: has no effect, only the dynamic threshold of a multiclass task moves.")


def check_sizes(loss: MetricLoss, columns: int) -> None:
    """Raise a ``ValueError`` where a threshold or a prior does not fit the classes or labels.

    Args:
        loss: With its options set.
        columns: How many scores a sample has.
    """
    if loss.threshold.ndim and len(loss.threshold) != columns:
        raise ValueError(f"threshold: expected a number or {columns} of them, one a label, got {len(loss.threshold)}.")
    size = 2 if loss.task == "binary" else columns
    if loss.class_prior is not None and len(loss.class_prior) != size:
        raise ValueError(f"class_prior: expected {size} shares or counts, got {len(loss.class_prior)}.")


def with_average(metric: Metric, average: str | int | None) -> Metric:
    """The metric with an average, where it has none of its own."""
    if average is None:
        return metric
    if not isinstance(metric, ClassMetric):
        raise ValueError(f"average: has no effect on {metric}; give the average inside the expression.")
    if metric.average != "auto" or metric.label is not None:
        raise ValueError(f"average: {metric} has one already; give it once.")
    return replace(metric, average=average)


def checked_threshold(threshold: float | Sequence[float] | Tensor) -> Tensor:
    """A threshold, or one a label, as a tensor."""
    values = torch.as_tensor(threshold, dtype=torch.float32)
    if values.ndim > 1:
        raise ValueError(f"threshold: expected a number or one a label, got shape {tuple(values.shape)}.")
    if not bool(((values > 0) & (values < 1)).all()):
        raise ValueError(f"threshold: expected numbers strictly between 0 and 1, got {threshold}.")
    return values


def checked_prior(class_prior: Tensor | None, task: Task) -> Tensor | None:
    """Class shares or counts as a tensor."""
    if class_prior is None:
        return None
    prior = as_weights(class_prior, "class_prior")
    if task == "multilabel" and bool((prior > 1).any()):
        raise ValueError(f"class_prior: a multilabel task expects the positive share of each label, got {class_prior}.")
    return prior


def as_weights(values: Tensor, name: str) -> Tensor:
    """A vector of weights or shares; ``name`` is the argument's, for the message."""
    weights = torch.as_tensor(values, dtype=torch.float32 if not isinstance(values, Tensor) else None)
    if weights.ndim != 1 or not bool((weights >= 0).all()) or not bool(weights.isfinite().all()):
        raise ValueError(f"{name}: expected a vector of finite numbers >= 0, got {values}.")
    return weights if weights.is_floating_point() else weights.float()
