"""Metrics of the scores rather than of one decision: areas under curves over a grid of thresholds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, cast

import torch
from torch import Tensor

from metricfit.confusion import ConfusionMatrix, Grid
from metricfit.inputs import expect, safe_divide
from metricfit.metrics.algebra import Constrained, DerivedMetric
from metricfit.metrics.base import EVERY_CUT_OFF, ClassMetric, Metric, quote, spell
from metricfit.metrics.rates import predicted_count as PredictedCount
from metricfit.metrics.rates import predicted_share as PredictedShare
from metricfit.metrics.rates import recall as Recall
from metricfit.metrics.registry import get, register

_MOST_THRESHOLDS = 10_000


def _set_thresholds(metric: Metric, grid: int | Sequence[float]) -> None:
    """Give a new metric its thresholds: ``i / (k + 1)`` for i = 1 … k, or those of the grid, kept as a tuple."""
    if isinstance(grid, int) and not isinstance(grid, bool):
        expect(1 <= grid <= _MOST_THRESHOLDS, "grid", f"1 to {_MOST_THRESHOLDS} thresholds", grid)
        values = tuple(i / (grid + 1) for i in range(1, grid + 1))
    else:
        try:
            grid = values = () if isinstance(grid, str) else tuple(float(t) for t in grid)  # type: ignore[union-attr]
        except (TypeError, ValueError):
            values = ()
        inside = 1 <= len(values) <= _MOST_THRESHOLDS and all(0 <= t <= 1 for t in values)
        expect(inside, "grid", "the number of thresholds, or a list of numbers in [0, 1]", grid)
        expect(list(values) == sorted(set(values)), "grid", "increasing thresholds", grid)
    object.__setattr__(metric, "grid", grid)
    object.__setattr__(metric, "thresholds", values)


@dataclass(frozen=True)
class _AreaMetric(ClassMetric):
    """An area under a curve of one-versus-rest counts; ``grid`` is for the loss, ``score`` uses every cut-off."""

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
        return self._area(*(torch.where(forward, count, count.flip(0)) for count in cm.counts))

    def _mean(self, values: Tensor, cm: ConfusionMatrix) -> Tensor:
        return super()._mean(values, cm.with_matrix(cm.matrix[0]))  # the support is the same at each threshold

    @abstractmethod
    def _area(self, tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor) -> Tensor:
        """The area for each class; counts have shape (thresholds, …, classes)."""


@register({"roc_auc": {}, "roc_auc_ovr": {"average": "macro"}, "roc_auc_ovr_weighted": {"average": "weighted"}})
@dataclass(frozen=True)
class AUROC(_AreaMetric):
    """The area under the ROC curve by the trapezoidal rule; ``grid`` is the loss's thresholds, or their number."""

    name: ClassVar[str] = "auroc"
    title: ClassVar[str] = "AUROC"
    formula: ClassVar[str] = "∫ TPR dFPR, trapezoids over the thresholds"
    reference: ClassVar[str] = "sklearn.metrics.roc_auc_score"

    def _area(self, tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor) -> Tensor:
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

    def _area(self, tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor) -> Tensor:
        all_tp, all_fp = (tp + fn)[-1:], (fp + tn)[-1:]  # below the lowest threshold all is predicted positive
        tp, fp, fn = torch.cat([tp, all_tp]), torch.cat([fp, all_fp]), torch.cat([fn, torch.zeros_like(all_tp)])
        precision, recall = safe_divide(tp, tp + fp, 1.0), safe_divide(tp, tp + fn)
        previous = torch.cat([torch.zeros_like(recall[:1]), recall[:-1]])
        area = ((recall - previous) * precision).sum(dim=0)
        return area.masked_fill((tp + fn)[0] <= 0, self.zero_division)


@dataclass(frozen=True)
class _AtMetric(_AreaMetric):
    _of_k: ClassVar[bool]  # rows, or else of the positives
    k: float = field(default=0.05, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        fits = 0 < self.k < 1 or (self.k >= 1 and float(self.k).is_integer())
        expect(fits, "k", "a whole number of rows, or a share of them between 0 and 1", self.k)

    @property
    def decision(self) -> Metric:
        """What the rule for two classes is sought for: the most positives among at most k rows."""
        most = (PredictedCount if self.k >= 1 else PredictedShare)(label=self.label) <= self.k
        return Recall(label=self.label).subject_to(most)

    def _area(self, tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor) -> Tensor:
        positives, total = (tp + fn)[-1:], (tp + fp + fn + tn)[-1:]
        k = total.clamp_max(self.k) if self.k >= 1 else self.k * total
        hits, reached = (torch.cat([torch.zeros_like(k), *ends]) for ends in ((tp, positives), (tp + fp, total)))
        behind = (reached >= k).to(torch.int8).argmax(dim=0, keepdim=True).clamp_min(1)
        (low, high), (least, most) = ((x.gather(0, behind - 1), x.gather(0, behind)) for x in (hits, reached))
        found, of = low + (high - low) * safe_divide(k - least, most - least), k if self._of_k else positives
        return safe_divide(found, of).masked_fill(of <= 0, self.zero_division)[0]


@register()
@dataclass(frozen=True)
class PrecisionAt(_AtMetric):
    """The precision of the ``k`` rows with the highest scores: a number of rows, or a share between 0 and 1 of them.

    Weights count rows, and of rows with the same score each is as likely to be among them. Where there are fewer than
    k rows all are taken. A loss is of the batch: there a share means the same whatever the size of the batch.

    >>> PrecisionAt(k=2).score([0, 1, 1, 0], [0.9, 0.8, 0.3, 0.1])
    0.5
    """

    name: ClassVar[str] = "precision_at"
    title: ClassVar[str] = "precision at k"
    formula: ClassVar[str] = "TP of the k highest scores / k"
    reference: ClassVar[str] = "sklearn.metrics.precision_score of the k highest scores"
    _of_k: ClassVar[bool] = True


@register()
@dataclass(frozen=True)
class RecallAt(_AtMetric):
    """The share of the positives that are among the ``k`` rows with the highest scores; ``k`` as in ``precision_at``.

    >>> RecallAt(k=0.75).score([0, 1, 1, 0], [0.9, 0.8, 0.3, 0.1])
    1.0
    """

    name: ClassVar[str] = "recall_at"
    title: ClassVar[str] = "recall at k"
    formula: ClassVar[str] = "TP of the k highest scores / (TP + FN)"
    reference: ClassVar[str] = "sklearn.metrics.recall_score of the k highest scores"
    _of_k: ClassVar[bool] = False


@register()
@dataclass(frozen=True)
class ThresholdMean(DerivedMetric):
    """The mean of a metric of one decision (or its spec) over a grid: the number of thresholds in (0, 1), or a list.

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
        if not cm.batch_shape:
            raise ValueError(f"{self}: needs a sweep of confusion matrices over thresholds, got a single one.")
        return cast("Metric", self.metric).compute(cm).mean(dim=0)  # __post_init__ has read the spec

    def __str__(self) -> str:
        text = str(self.metric)
        return f"{self.name}:metric={text if text.isidentifier() else quote(text)},grid={spell(self.grid)}"
