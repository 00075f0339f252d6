"""torchmetrics: any metric of this package as a ``torchmetrics.Metric``, added up over batches and processes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from metricfit.confusion import Absent, as_confusion_matrix, hard_confusion_matrix
from metricfit.inputs import Task, check_task
from metricfit.integrations import library
from metricfit.losses.metric_loss import with_average
from metricfit.metrics import MetricLike, get

TorchMetric: Any = library("torchmetrics", "metricfit[torchmetrics]").Metric

__all__ = ["ConfusionMetric"]


class ConfusionMetric(TorchMetric):  # type: ignore[misc]
    """The exact metric of everything seen since the last reset, whatever the batches and processes.

    The state is the confusion matrix, summed over batches and, when torchmetrics synchronises, over processes. A
    ranking metric keeps one matrix per threshold of its grid and is the area over that grid.

    Args:
        metric: A name, spec, expression, :class:`metricfit.metrics.Metric` or function of the confusion matrix.
        num_classes: Classes of a multiclass task, labels of a multi-label one; a binary task needs none.
        average: Of a metric named without one, as in :class:`metricfit.MetricLoss`.
        task: ``"multiclass"``, ``"binary"`` or ``"multilabel"``.
        threshold: Of binary and multi-label tasks: one number, or one per label.
        weight: Class weights.
        ignore_index: Target value of positions that do not count.
        absent: Whether averages over classes ``"count"`` (as scikit-learn) or ``"skip"`` classes that never occur.
        labels: Class names, so that ``"recall[fraud]"`` finds its class.
        from_probabilities: The predictions are probabilities, not logits; never guessed.
        validate: Look at the values (NaN, labels out of range); shapes are always checked.
        options: Of ``torchmetrics.Metric``, such as ``dist_sync_on_step``.

    >>> mcc = ConfusionMetric("mcc", num_classes=2)
    >>> mcc.update(torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 1]))
    >>> mcc.update(torch.tensor([[2.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 1]))
    >>> mcc.compute()
    tensor(0.5774, dtype=torch.float64)
    """

    full_state_update = False
    is_differentiable = False

    def __init__(
        self, metric: MetricLike, num_classes: int | None = None, *, average: str | int | None = None,
        task: Task = "multiclass", threshold: float | Sequence[float] | Tensor = 0.5, weight: Tensor | None = None,
        ignore_index: int = -100, absent: Absent = "count", labels: Sequence[Hashable] | None = None,
        from_probabilities: bool = False, validate: bool = True, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(**options)
        check_task(task)
        self.metric = with_average(get(metric), average)
        if task == "binary":
            if num_classes not in (None, 2):
                raise ValueError(f"num_classes: a binary task has 2, got {num_classes}.")
        elif num_classes is None or num_classes < (2 if task == "multiclass" else 1):
            raise ValueError(f"num_classes: a {task} task needs the number of classes, got {num_classes}.")
        self.task, self.num_classes, self.ignore_index = task, num_classes, ignore_index
        self.absent, self.labels = absent, None if labels is None else tuple(labels)
        self.from_probabilities, self.validate = from_probabilities, validate
        # In float64, so that a float64 score of 0.3 reaches a threshold of 0.3; other scores round it to their dtype.
        self.register_buffer("threshold", torch.as_tensor(threshold, dtype=torch.float64), persistent=False)
        self.register_buffer("weight", weight, persistent=False)
        self._grids = sorted(self.metric.grids(), key=lambda grid: grid or ())
        columns = () if task == "binary" else (num_classes or 0,)
        for number, grid in enumerate(self._grids):
            square = (*columns, *columns) if task == "multiclass" and grid is None else (*columns, 2, 2)
            shape = square if grid is None else (len(grid), *square)
            self.add_state(f"counts_{number}", torch.zeros(shape, dtype=torch.float64), "sum")

    @property
    def higher_is_better(self) -> bool | None:
        """The metric's direction."""
        return self.metric.greater_is_better

    def update(self, preds: Tensor, target: Tensor, sample_weight: Tensor | None = None) -> None:
        """Count a batch of logits (or probabilities) of the shapes :class:`metricfit.MetricLoss` takes."""
        for number, grid in enumerate(self._grids):
            counts: Tensor = getattr(self, f"counts_{number}")
            cm = hard_confusion_matrix(
                preds, target, task=self.task, threshold=self.threshold, thresholds=grid, weight=self.weight,
                sample_weight=sample_weight, ignore_index=self.ignore_index,
                from_probabilities=self.from_probabilities, validate=self.validate,
            )  # fmt: skip
            if cm.matrix.shape != counts.shape:
                raise ValueError(
                    f"preds: num_classes={self.num_classes} makes counts of shape {tuple(counts.shape)}, this batch "
                    f"has {tuple(cm.matrix.shape)}."
                )
            counts += cm.matrix

    def compute(self) -> Tensor:
        """The metric of all that was counted."""
        made = {}
        for number, grid in enumerate(self._grids):
            counts: Tensor = getattr(self, f"counts_{number}")
            counts = counts.unsqueeze(-3) if self.task == "binary" else counts
            made[grid] = as_confusion_matrix(counts, self.task, grid, self.labels, self.absent)
        return self.metric.evaluate(made.__getitem__)

    def extra_repr(self) -> str:
        """The metric and the task."""
        return f"{self.metric}, task={self.task!r}"
