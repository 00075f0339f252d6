"""Areas under curves as losses: soft counts over a grid of thresholds (btg section 1.2.2)."""

from __future__ import annotations

from collections.abc import Sequence

from metricfit.inputs import Task
from metricfit.losses.metric_loss import MetricLoss
from metricfit.metrics import AUPRC, AUROC

__all__ = ["AUPRCLoss", "AUROCLoss"]


class AUROCLoss(MetricLoss):
    """One minus the area under the ROC curve of soft counts.

    Args:
        grid: How many thresholds inside (0, 1), or the thresholds.
        task: "binary", "multilabel", or "multiclass" (each class against the rest).
        options: As in :class:`metricfit.MetricLoss`.

    >>> import torch
    >>> AUROCLoss(grid=9)(torch.tensor([2.0, -2.0, 1.0]), torch.tensor([1, 0, 0])).round(decimals=3)
    tensor(0.1720)
    """

    def __init__(self, *, grid: int | Sequence[float] = 99, task: Task = "binary", **options: object) -> None:
        super().__init__(AUROC(grid=grid), task=task, **options)  # type: ignore[arg-type]


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

    def __init__(self, *, grid: int | Sequence[float] = 99, task: Task = "binary", **options: object) -> None:
        super().__init__(AUPRC(grid=grid), task=task, **options)  # type: ignore[arg-type]
