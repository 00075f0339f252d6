"""Metric losses with a name of their own: areas under curves, the soft F-score, AnyLoss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from metricfit.inputs import Task
from metricfit.losses.metric_loss import MetricLoss, metric_loss
from metricfit.metrics import AUPRC, AUROC, FBeta, MetricLike
from metricfit.steps import Amplifier, Identity

__all__ = [
    "AUPRCLoss",
    "AUROCLoss",
    "AnyLoss",
    "SoftFBetaLoss",
    "any_loss",
    "auprc_loss",
    "auroc_loss",
    "soft_fbeta_loss",
]


class AUROCLoss(MetricLoss):
    """One minus the area under the ROC curve of soft counts over a grid of thresholds (btg section 1.2.2).

    Args:
        grid: How many thresholds inside (0, 1), or the thresholds.
        task: "binary", "multilabel", or "multiclass" (each class against the rest).
        options: As in :class:`metricfit.MetricLoss`.

    >>> import torch
    >>> AUROCLoss(grid=9)(torch.tensor([2.0, -2.0, 1.0]), torch.tensor([1, 0, 0])).round(decimals=3)
    tensor(0.1720)
    """

    def __init__(self, *, grid: int | Sequence[float] = 99, task: Task = "binary", **options: Any) -> None:
        super().__init__(AUROC(grid=grid), task=task, **options)


def auroc_loss(
    input: Tensor, target: Tensor, *, grid: int | Sequence[float] = 99, task: Task = "binary", **options: Any
) -> Tensor:
    """The functional form of :class:`AUROCLoss`."""
    return metric_loss(input, target, AUROC(grid=grid), task=task, **options)


class AUPRCLoss(MetricLoss):
    """One minus the area under the precision-recall curve (average precision) of soft counts.

    Args:
        grid: How many thresholds inside (0, 1), or the thresholds.
        task: "binary", "multilabel", or "multiclass" (each class against the rest).
        options: As in :class:`metricfit.MetricLoss`.

    >>> import torch
    >>> AUPRCLoss(grid=9)(torch.tensor([2.0, -2.0, 1.0]), torch.tensor([1, 0, 0])).round(decimals=3)
    tensor(0.3670)
    """

    def __init__(self, *, grid: int | Sequence[float] = 99, task: Task = "binary", **options: Any) -> None:
        super().__init__(AUPRC(grid=grid), task=task, **options)


def auprc_loss(
    input: Tensor, target: Tensor, *, grid: int | Sequence[float] = 99, task: Task = "binary", **options: Any
) -> Tensor:
    """The functional form of :class:`AUPRCLoss`."""
    return metric_loss(input, target, AUPRC(grid=grid), task=task, **options)


class SoftFBetaLoss(MetricLoss):
    """One minus the macro soft F-beta score: the F-score of raw probabilities (surrogate-fbeta eq. 23-24).

    Args:
        beta: Recall counts beta times as much as precision; one number, or one per class.
        options: As in :class:`metricfit.MetricLoss`.

    >>> import torch
    >>> SoftFBetaLoss(task="binary")(torch.tensor([9.0, -9.0]), torch.tensor([1, 0]))
    tensor(0.0001)
    """

    def __init__(self, beta: float | tuple[float, ...] = 1.0, **options: Any) -> None:
        super().__init__(FBeta(beta=beta), step=Identity(), **options)


def soft_fbeta_loss(input: Tensor, target: Tensor, *, beta: float | tuple[float, ...] = 1.0, **options: Any) -> Tensor:
    """The functional form of :class:`SoftFBetaLoss`."""
    return metric_loss(input, target, FBeta(beta=beta), step=Identity(), **options)


class AnyLoss(MetricLoss):
    """AnyLoss (Han et al. 2024): a metric of amplified probabilities, one minus its value.

    Args:
        metric: Any metric of a binary confusion matrix.
        sharpness: L of the amplifier 1 / (1 + exp(-L (p - 1/2))).
        task: "binary" or "multilabel".
        options: As in :class:`metricfit.MetricLoss`.

    >>> import torch
    >>> AnyLoss("f1")(torch.tensor([9.0, -9.0]), torch.tensor([1, 0]))
    tensor(0.)
    """

    def __init__(
        self, metric: MetricLike = "f1", *, sharpness: float = 73.0, task: Task = "binary", **options: Any
    ) -> None:
        super().__init__(metric, step=Amplifier(sharpness), task=task, **options)


def any_loss(
    input: Tensor,
    target: Tensor,
    metric: MetricLike = "f1",
    *,
    sharpness: float = 73.0,
    task: Task = "binary",
    **options: Any,
) -> Tensor:
    """The functional form of :class:`AnyLoss`."""
    return metric_loss(input, target, metric, step=Amplifier(sharpness), task=task, **options)
