"""Rates, overlaps and costs of a classification decision. Each is one formula, written once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from metricfit.confusion import ConfusionMatrix, Counts
from metricfit.metrics.averaging import ClassMetric
from metricfit.numerics import safe_divide, safe_sqrt

__all__ = [
    "F1",
    "Accuracy",
    "BalancedAccuracy",
    "CriticalSuccessIndex",
    "ExpectedCost",
    "FBeta",
    "FalseNegativeRate",
    "FalsePositiveRate",
    "FowlkesMallows",
    "GMean",
    "Jaccard",
    "NegativePredictiveValue",
    "Precision",
    "PredictedShare",
    "Recall",
    "Specificity",
]


@dataclass(frozen=True)
class Accuracy(ClassMetric):
    """The share of correct predictions."""

    name: ClassVar[str] = "accuracy"
    formula: ClassVar[str] = "Σₖ cₖₖ / n"
    reference: ClassVar[str] = "sklearn.metrics.accuracy_score"

    def per_class(self, counts: Counts) -> Tensor:
        """(TP + TN) / n."""
        tp, fp, fn, tn = counts
        return safe_divide(tp + tn, tp + fp + fn + tn, self.zero_division)

    def of_matrix(self, cm: ConfusionMatrix) -> Tensor:
        """Trace over total."""
        return safe_divide(cm.tp.sum(dim=-1), cm.total, self.zero_division)


@dataclass(frozen=True)
class BalancedAccuracy(ClassMetric):
    """The mean recall of the classes that occur; of one class: the mean of its recall and specificity."""

    name: ClassVar[str] = "balanced_accuracy"
    formula: ClassVar[str] = "meanₖ TPₖ / (TPₖ + FNₖ)"
    reference: ClassVar[str] = "sklearn.metrics.balanced_accuracy_score"

    def per_class(self, counts: Counts) -> Tensor:
        """(TPR + TNR) / 2, or the one of them that is defined."""
        tp, fp, fn, tn = counts
        return _mean_of_supported(torch.stack([tp, tn], dim=-1), torch.stack([tp + fn, tn + fp], dim=-1), self)

    def of_matrix(self, cm: ConfusionMatrix) -> Tensor:
        """Mean recall over classes with support."""
        return _mean_of_supported(cm.tp, cm.support, self)


def _mean_of_supported(hits: Tensor, support: Tensor, metric: ClassMetric) -> Tensor:
    occurs = support > 0
    return safe_divide(safe_divide(hits, support).sum(dim=-1), occurs.to(hits.dtype).sum(dim=-1), metric.zero_division)


@dataclass(frozen=True)
class Precision(ClassMetric):
    """The share of positive predictions that are right (positive predictive value)."""

    name: ClassVar[str] = "precision"
    formula: ClassVar[str] = "TP / (TP + FP)"
    reference: ClassVar[str] = "sklearn.metrics.precision_score"

    def per_class(self, counts: Counts) -> Tensor:
        """TP / (TP + FP)."""
        return safe_divide(counts.tp, counts.tp + counts.fp, self.zero_division)


@dataclass(frozen=True)
class Recall(ClassMetric):
    """The share of positives that are found (sensitivity, true positive rate)."""

    name: ClassVar[str] = "recall"
    formula: ClassVar[str] = "TP / (TP + FN)"
    reference: ClassVar[str] = "sklearn.metrics.recall_score"

    def per_class(self, counts: Counts) -> Tensor:
        """TP / (TP + FN)."""
        return safe_divide(counts.tp, counts.tp + counts.fn, self.zero_division)


@dataclass(frozen=True)
class Specificity(ClassMetric):
    """The share of negatives that are left alone (true negative rate)."""

    name: ClassVar[str] = "specificity"
    formula: ClassVar[str] = "TN / (TN + FP)"
    reference: ClassVar[str] = "recall of the negative class: sklearn.metrics.recall_score(pos_label=0)"

    def per_class(self, counts: Counts) -> Tensor:
        """TN / (TN + FP)."""
        return safe_divide(counts.tn, counts.tn + counts.fp, self.zero_division)


@dataclass(frozen=True)
class NegativePredictiveValue(ClassMetric):
    """The share of negative predictions that are right."""

    name: ClassVar[str] = "npv"
    formula: ClassVar[str] = "TN / (TN + FN)"
    reference: ClassVar[str] = "precision of the negative class: sklearn.metrics.precision_score(pos_label=0)"

    def per_class(self, counts: Counts) -> Tensor:
        """TN / (TN + FN)."""
        return safe_divide(counts.tn, counts.tn + counts.fn, self.zero_division)


@dataclass(frozen=True)
class FalsePositiveRate(ClassMetric):
    """The share of negatives that raise a false alarm; less is better."""

    name: ClassVar[str] = "fpr"
    greater_is_better: ClassVar[bool] = False
    formula: ClassVar[str] = "FP / (FP + TN)"
    reference: ClassVar[str] = "1 - specificity"

    def per_class(self, counts: Counts) -> Tensor:
        """FP / (FP + TN)."""
        return safe_divide(counts.fp, counts.fp + counts.tn, self.zero_division)


@dataclass(frozen=True)
class FalseNegativeRate(ClassMetric):
    """The share of positives that are missed; less is better."""

    name: ClassVar[str] = "fnr"
    greater_is_better: ClassVar[bool] = False
    formula: ClassVar[str] = "FN / (FN + TP)"
    reference: ClassVar[str] = "1 - recall"

    def per_class(self, counts: Counts) -> Tensor:
        """FN / (FN + TP)."""
        return safe_divide(counts.fn, counts.fn + counts.tp, self.zero_division)


@dataclass(frozen=True)
class PredictedShare(ClassMetric):
    """The share of all samples that are predicted to be of the class: the alert volume; less is better."""

    name: ClassVar[str] = "predicted_share"
    greater_is_better: ClassVar[bool] = False
    formula: ClassVar[str] = "(TP + FP) / n"
    reference: ClassVar[str] = "predicted prevalence; made for constraints such as predicted_share[1] <= 0.02"

    def per_class(self, counts: Counts) -> Tensor:
        """(TP + FP) / n."""
        tp, fp, fn, tn = counts
        return safe_divide(tp + fp, tp + fp + fn + tn, self.zero_division)


@dataclass(frozen=True)
class FBeta(ClassMetric):
    """The weighted harmonic mean of precision and recall; recall counts beta times as much.

    Args:
        beta: One number, or one a class (then with a macro or weighted average, none, or a class).
    """

    beta: float | Sequence[float] = field(default=1.0, kw_only=True)

    name: ClassVar[str] = "fbeta"
    formula: ClassVar[str] = "(1 + β²) TP / ((1 + β²) TP + β² FN + FP)"
    reference: ClassVar[str] = "sklearn.metrics.fbeta_score"

    def __post_init__(self) -> None:
        """Check beta; a list becomes a tuple."""
        super().__post_init__()
        several = isinstance(self.beta, Iterable) and not isinstance(self.beta, str)
        try:
            values = [float(b) for b in self.beta] if several else [float(self.beta)]  # type: ignore[arg-type, union-attr]
        except (TypeError, ValueError):
            raise TypeError(f"beta: expected a number or one number a class, got {self.beta!r}.") from None
        if not values or not all(math.isfinite(b) and b >= 0 for b in values):
            raise ValueError(f"beta: expected finite numbers >= 0, got {self.beta!r}.")
        object.__setattr__(self, "beta", tuple(values) if several else values[0])

    def per_class(self, counts: Counts) -> Tensor:
        """(1 + β²) TP / ((1 + β²) TP + β² FN + FP)."""
        tp, fp, fn, _ = counts
        square: Tensor | float
        if isinstance(self.beta, tuple):
            if tp.shape[-1:] != (len(self.beta),):
                raise ValueError(
                    f"beta: expected one number for each of the {tp.shape[-1]} classes, got {len(self.beta)}."
                )
            square = torch.tensor(self.beta, dtype=tp.dtype, device=tp.device) ** 2
        else:
            square = float(self.beta) ** 2  # type: ignore[arg-type]
        hits = (1 + square) * tp
        return safe_divide(hits, hits + square * fn + fp, self.zero_division)

    def for_class(self, index: int | None) -> FBeta:
        """The metric with that class's beta."""
        if not isinstance(self.beta, tuple):
            return self
        if index is None:
            raise ValueError("beta: one number a class has no meaning for a micro average; give one number.")
        if index >= len(self.beta):
            raise ValueError(f"beta: no number for class {index}, got {len(self.beta)} numbers.")
        return replace(self, beta=self.beta[index])

    def _parameters(self) -> dict[str, Any]:
        return {"beta": self.beta}


@dataclass(frozen=True)
class F1(ClassMetric):
    """The harmonic mean of precision and recall."""

    name: ClassVar[str] = "f1"
    formula: ClassVar[str] = "2 TP / (2 TP + FN + FP)"
    reference: ClassVar[str] = "sklearn.metrics.f1_score"

    def per_class(self, counts: Counts) -> Tensor:
        """2 TP / (2 TP + FN + FP)."""
        return safe_divide(2 * counts.tp, 2 * counts.tp + counts.fn + counts.fp, self.zero_division)


@dataclass(frozen=True)
class Jaccard(ClassMetric):
    """Intersection over union."""

    name: ClassVar[str] = "jaccard"
    formula: ClassVar[str] = "TP / (TP + FP + FN)"
    reference: ClassVar[str] = "sklearn.metrics.jaccard_score"

    def per_class(self, counts: Counts) -> Tensor:
        """TP / (TP + FP + FN)."""
        return safe_divide(counts.tp, counts.tp + counts.fp + counts.fn, self.zero_division)


@dataclass(frozen=True)
class CriticalSuccessIndex(Jaccard):
    """The forecasters' name of the Jaccard index: hits over hits, misses and false alarms."""

    name: ClassVar[str] = "csi"
    reference: ClassVar[str] = "Schaefer 1990, doi:10.1175/1520-0434(1990)005<0570:TCSIAA>2.0.CO;2; equals jaccard"


@dataclass(frozen=True)
class GMean(ClassMetric):
    """The geometric mean of the recalls of the classes that occur; of one class: of recall and specificity."""

    name: ClassVar[str] = "gmean"
    formula: ClassVar[str] = "(Πₖ TPₖ / (TPₖ + FNₖ))^(1/d)"
    reference: ClassVar[str] = "Kubat & Matwin 1997; imblearn.metrics.geometric_mean_score"

    def per_class(self, counts: Counts) -> Tensor:
        """√(TPR · TNR)."""
        tp, fp, fn, tn = counts
        return self._root(torch.stack([tp, tn], dim=-1), torch.stack([tp + fn, tn + fp], dim=-1))

    def of_matrix(self, cm: ConfusionMatrix) -> Tensor:
        """Geometric mean over classes with support."""
        return self._root(cm.tp, cm.support)

    def _root(self, hits: Tensor, support: Tensor) -> Tensor:
        occurs = support != 0  # and not "> 0", which would hide NaN
        recall = safe_divide(hits, support)
        missed = occurs & (recall <= torch.finfo(recall.dtype).tiny)
        logs = torch.where(occurs & ~missed, recall, torch.ones_like(recall)).log()
        number = occurs.to(recall.dtype).sum(dim=-1)
        mean = safe_divide(logs.sum(dim=-1), number).exp()
        mean = torch.where(missed.any(dim=-1), torch.zeros_like(mean), mean)
        return torch.where(number > 0, mean, torch.full_like(mean, self.zero_division))


@dataclass(frozen=True)
class FowlkesMallows(ClassMetric):
    """The geometric mean of precision and recall."""

    name: ClassVar[str] = "fowlkes_mallows"
    formula: ClassVar[str] = "TP / √((TP + FP)(TP + FN))"
    reference: ClassVar[str] = "Fowlkes & Mallows 1983, taken of the confusion matrix"

    def per_class(self, counts: Counts) -> Tensor:
        """TP / √((TP+FP)(TP+FN))."""
        tp, fp, fn, _ = counts.scaled()
        return safe_divide(tp, safe_sqrt(tp + fp) * safe_sqrt(tp + fn), self.zero_division)


@dataclass(frozen=True)
class ExpectedCost(ClassMetric):
    """The mean cost of a decision under a cost matrix; less is better.

    Args:
        matrix: ``matrix[i][j]`` is the cost of predicting class j when i is true; 2 x 2 for multi-label tasks.
    """

    matrix: Sequence[Sequence[float]] = field(default=((0.0, 1.0), (1.0, 0.0)), kw_only=True)

    greater_is_better: ClassVar[bool] = False
    name: ClassVar[str] = "cost"
    formula: ClassVar[str] = "Σᵢⱼ costᵢⱼ cᵢⱼ / n"
    reference: ClassVar[str] = "Elkan 2001, The Foundations of Cost-Sensitive Learning"

    def __post_init__(self) -> None:
        """Check that the costs are a square matrix of finite numbers."""
        super().__post_init__()
        if self.label is not None or self.average == "weighted":
            raise ValueError("cost: costs are of all classes together; it takes no class and no weighted average.")
        try:
            rows = tuple(tuple(float(v) for v in row) for row in self.matrix)
        except (TypeError, ValueError):
            raise TypeError(f"matrix: expected rows of numbers, got {self.matrix!r}.") from None
        if len(rows) < 2 or any(len(row) != len(rows) for row in rows):
            raise ValueError(f"matrix: expected a square matrix of costs, got {self.matrix!r}.")
        if not all(math.isfinite(v) for row in rows for v in row):
            raise ValueError(f"matrix: expected finite costs, got {self.matrix!r}.")
        object.__setattr__(self, "matrix", rows)

    @property
    def range(self) -> tuple[float, float]:  # type: ignore[override]
        """The smallest and the largest cost."""
        costs = [v for row in self.matrix for v in row]
        return (min(costs), max(costs))

    def per_class(self, counts: Counts) -> Tensor:
        """Cost of a label's 2 x 2 counts."""
        tp, fp, fn, tn = counts
        rows = torch.stack([torch.stack([tn, fp], dim=-1), torch.stack([fn, tp], dim=-1)], dim=-2)
        return self._cost(rows)

    def of_matrix(self, cm: ConfusionMatrix) -> Tensor:
        """Cost of the whole matrix."""
        return self._cost(cm.matrix)

    def _cost(self, matrix: Tensor) -> Tensor:
        costs = torch.tensor(self.matrix, dtype=matrix.dtype, device=matrix.device)
        if costs.shape != matrix.shape[-2:]:
            raise ValueError(
                f"matrix: expected costs for {matrix.shape[-1]} classes, got {costs.shape[0]} x {costs.shape[1]}."
            )
        return safe_divide((costs * matrix).sum(dim=(-1, -2)), matrix.sum(dim=(-1, -2)), self.zero_division)

    def _parameters(self) -> dict[str, Any]:
        return {"matrix": self.matrix}
