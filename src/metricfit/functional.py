"""The losses as plain functions, for those who keep no module."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from metricfit.confusion import hard_confusion_matrix, soft_confusion_matrix
from metricfit.losses.comparison import dice_loss, focal_loss, mae_loss, wmw_loss
from metricfit.losses.metric_loss import metric_loss
from metricfit.losses.surrogate_fbeta import surrogate_fbeta_loss
from metricfit.metrics import AUPRC, AUROC, FBeta, MetricLike

__all__ = [
    "any_loss",
    "auprc_loss",
    "auroc_loss",
    "dice_loss",
    "focal_loss",
    "hard_confusion_matrix",
    "mae_loss",
    "metric_loss",
    "soft_confusion_matrix",
    "soft_fbeta_loss",
    "surrogate_fbeta_loss",
    "wmw_loss",
]


def auroc_loss(input: Tensor, target: Tensor, *, grid: int = 99, task: Any = "binary", **options: Any) -> Tensor:
    """The functional form of :class:`metricfit.losses.AUROCLoss`."""
    return metric_loss(input, target, AUROC(grid=grid), task=task, **options)


def auprc_loss(input: Tensor, target: Tensor, *, grid: int = 99, task: Any = "binary", **options: Any) -> Tensor:
    """The functional form of :class:`metricfit.losses.AUPRCLoss`."""
    return metric_loss(input, target, AUPRC(grid=grid), task=task, **options)


def soft_fbeta_loss(input: Tensor, target: Tensor, *, beta: float = 1.0, **options: Any) -> Tensor:
    """The functional form of :class:`metricfit.losses.SoftFBetaLoss`."""
    return metric_loss(input, target, FBeta(beta=beta), step="identity", **options)


def any_loss(
    input: Tensor,
    target: Tensor,
    metric: MetricLike = "f1",
    *,
    sharpness: float = 73.0,
    task: Any = "binary",
    **options: Any,
) -> Tensor:
    """The functional form of :class:`metricfit.losses.AnyLoss`."""
    return metric_loss(input, target, metric, step="amplifier", sharpness=sharpness, task=task, **options)
