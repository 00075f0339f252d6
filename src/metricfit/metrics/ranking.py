"""Metrics of the scores rather than of one decision: areas under curves over a grid of thresholds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, cast

import torch
from torch import Tensor

from metricfit.confusion import ConfusionMatrix, Counts, Grid
from metricfit.inputs import safe_divide
from metricfit.metrics.algebra import Constrained, DerivedMetric
from metricfit.metrics.base import EVERY_CUT_OFF, ClassMetric, Metric, quote, spell
from metricfit.metrics.registry import get, register

__all__ = ["AUPRC", "AUROC", "ThresholdMean"]

_MOST_THRESHOLDS = 10_000


def _set_thresholds(metric: Metric, grid: int | Sequence[float]) -> None:
    """Give a new metric its thresholds: ``i / (k + 1)`` for i = 1 … k, or those of the grid, kept as a tuple."""
    if isinstance(grid, int) and not isinstance(grid, bool):
        if not 1 <= grid <= _MOST_THRESHOLDS:
            raise ValueError(f"grid: expected 1 to {_MOST_THRESHOLDS} thresholds, got {grid}.")
        values = tuple(i / (grid + 1) for i in range(1, grid + 1))
    else:
        try:
            grid = values = () if isinstance(grid, str) else tuple(float(t) for t in grid)  # type: ignore[union-attr]
        except (TypeError, ValueError):
            values = ()
        if not 1 <= len(values) <= _MOST_THRESHOLDS or not all(0 <= t <= 1 for t in values):
            raise ValueError(f"grid: expected the number of thresholds, or a list of numbers in [0, 1], got {grid!r}.")
        if list(values) != sorted(set(values)):
            raise ValueError(f"grid: expected increasing thresholds, got {grid!r}.")
    object.__setattr__(metric, "grid", grid)
    object.__setattr__(metric, "thresholds", values)


@dataclass(frozen=True)
class _AreaMetric(ClassMetric):
    """An area under a curve of one-versus-rest counts at falling thresholds.

    ``grid`` is the number of thresholds inside (0, 1) for the loss, or the thresholds; ``score`` uses every cut-off.
    """

    grid: int | Sequence[float] = field(default=99, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.average == "micro":
            raise ValueError("average: a micro average of an area is not defined here; use macro or weighted.")
        _set_thresholds(self, self.grid)

    def grids(self, *, exact: bool = False) -> set[Grid]:
        return {EVERY_CUT_OFF if exact else self.thresholds}

    def of_classes(self, cm: ConfusionMatrix) -> Tensor:
        if not cm.batch_shape:
            needs = "needs a sweep of confusion matrices over thresholds, got a single one"
            raise ValueError(f"{self.name}: {needs}; predicted labels have no curve, give the scores.")
        # Areas are summed from few to many positive predictions, class by class: as thresholds rise, a binary
        # matrix predicts less and less of class 1, and more and more of class 0.
        predicted = cm.predicted.detach()
        forward = predicted[-1] >= predicted[0]
        return self._area(Counts(*(torch.where(forward, c, c.flip(0)) for c in cm.counts)))

    def _mean(self, values: Tensor, cm: ConfusionMatrix) -> Tensor:
        return super()._mean(values, cm.with_matrix(cm.matrix[0]))  # the support is the same at each threshold

    @abstractmethod
    def _area(self, counts: Counts) -> Tensor:
        """The area for each class; counts have shape (thresholds, …, classes)."""


@register({"roc_auc": {}, "roc_auc_ovr": {"average": "macro"}, "roc_auc_ovr_weighted": {"average": "weighted"}})
@dataclass(frozen=True)
class AUROC(_AreaMetric):
    """The area under the ROC curve by the trapezoidal rule; ``grid`` is the loss's thresholds, or their number."""

    name: ClassVar[str] = "auroc"
    title: ClassVar[str] = "AUROC"
    formula: ClassVar[str] = "∫ TPR dFPR, trapezoids over the thresholds"
    reference: ClassVar[str] = "sklearn.metrics.roc_auc_score"

    def _area(self, counts: Counts) -> Tensor:  # between (0, 0), the thresholds' points and (1, 1)
        tp, fp, fn, tn = counts
        tpr, fpr = safe_divide(tp, tp + fn), safe_divide(fp, fp + tn)
        zero, one = torch.zeros_like(tpr[:1]), torch.ones_like(tpr[:1])
        area = torch.trapezoid(torch.cat([zero, tpr, one]), torch.cat([zero, fpr, one]), dim=0)
        undefined = ((tp + fn)[0] <= 0) | ((fp + tn)[0] <= 0)
        return area.masked_fill(undefined, self.zero_division)


@register(["average_precision"])
@dataclass(frozen=True)
class AUPRC(_AreaMetric):
    """The area under the precision-recall curve as average precision; ``grid`` as in :class:`AUROC`."""

    name: ClassVar[str] = "auprc"
    title: ClassVar[str] = "AUPRC"
    formula: ClassVar[str] = "Σᵢ (Rᵢ - Rᵢ₋₁) Pᵢ"
    reference: ClassVar[str] = "sklearn.metrics.average_precision_score"

    def _area(self, counts: Counts) -> Tensor:  # below the lowest threshold everything is predicted positive
        tp, fp, fn, tn = counts
        all_tp, all_fp = (tp + fn)[-1:], (fp + tn)[-1:]
        tp, fp, fn = torch.cat([tp, all_tp]), torch.cat([fp, all_fp]), torch.cat([fn, torch.zeros_like(all_tp)])
        precision, recall = safe_divide(tp, tp + fp, 1.0), safe_divide(tp, tp + fn)
        previous = torch.cat([torch.zeros_like(recall[:1]), recall[:-1]])
        area = ((recall - previous) * precision).sum(dim=0)
        return area.masked_fill((tp + fn)[0] <= 0, self.zero_division)


@register()
@dataclass(frozen=True)
class ThresholdMean(DerivedMetric):
    """The mean of a metric over a grid of thresholds, τ = 0.1 … 0.9 unless given.

    Args:
        metric: A metric of one decision, or its spec.
        grid: The number of thresholds inside (0, 1), or the thresholds.

    >>> str(ThresholdMean("f1"))
    'threshold_mean:metric=f1,grid=9'
    """

    metric: Metric | str = "f1"
    grid: int | Sequence[float] = 9
    _inner = property(lambda self: self.metric)

    name: ClassVar[str] = "threshold_mean"
    formula: ClassVar[str] = "meanᵢ M(C(τᵢ))"
    reference: ClassVar[str] = "Tsoi et al. 2022, evaluation over τ = 0.1 … 0.9"

    def __post_init__(self) -> None:
        if isinstance(self.metric, str):
            object.__setattr__(self, "metric", get(self.metric))
        if not isinstance(self.metric, Metric):
            raise TypeError(f"metric: expected a metric or its spec, got {type(self.metric).__name__}.")
        if self.metric.grids() != {None} or isinstance(self.metric, Constrained):
            raise ValueError(f"metric: expected a metric of one decision without constraints, got {self.metric}.")
        _set_thresholds(self, self.grid)

    def compute(self, cm: ConfusionMatrix) -> Tensor:
        """The mean over the leading dimension."""
        if not cm.batch_shape:
            raise ValueError(f"{self}: needs a sweep of confusion matrices over thresholds, got a single one.")
        return cast("Metric", self.metric).compute(cm).mean(dim=0)  # __post_init__ has read the spec

    def __str__(self) -> str:
        text = str(self.metric)
        return f"{self.name}:metric={text if text.isidentifier() else quote(text)},grid={spell(self.grid)}"
