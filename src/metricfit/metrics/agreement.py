"""Correlation, agreement and skill: how much better than chance a decision is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from metricfit.confusion import ConfusionMatrix, Counts
from metricfit.metrics.averaging import ClassMetric
from metricfit.numerics import safe_divide, safe_sqrt

__all__ = ["MCC", "CohenKappa", "HeidkeSkillScore", "Informedness", "Markedness", "TrueSkillStatistic"]


@dataclass(frozen=True)
class MCC(ClassMetric):
    """Matthews' correlation coefficient; with more than two classes Gorodkin's R_K."""

    range: ClassVar[tuple[float, float]] = (-1.0, 1.0)
    name: ClassVar[str] = "mcc"
    formula: ClassVar[str] = "(c·n - Σₖ pₖ tₖ) / √((n² - Σ pₖ²)(n² - Σ tₖ²)), c correct, pₖ predicted, tₖ true"
    reference: ClassVar[str] = "Gorodkin 2004; sklearn.metrics.matthews_corrcoef"

    def per_class(self, counts: Counts) -> Tensor:
        """(TP·TN - FP·FN) / √((TP+FP)(TP+FN)(TN+FP)(TN+FN))."""
        tp, fp, fn, tn = counts.scaled()
        norm = safe_sqrt((tp + fp) * (tn + fn)) * safe_sqrt((tp + fn) * (tn + fp))
        return safe_divide(tp * tn - fp * fn, norm, self.zero_division)

    def of_matrix(self, cm: ConfusionMatrix) -> Tensor:
        """R_K, with sums of products in place of differences of squares: exact 0 on degenerate matrices."""
        tp, fp, fn, tn = counts = cm.counts.scaled()
        norm = safe_sqrt(((tp + fp) * (tn + fn)).sum(dim=-1)) * safe_sqrt(((tp + fn) * (tn + fp)).sum(dim=-1))
        return safe_divide(_covariance(counts), norm, self.zero_division)


def _covariance(counts: Counts) -> Tensor:
    """Σₖ (TPₖ TNₖ - FPₖ FNₖ), equal to c·n - Σₖ pₖ tₖ without its cancellation."""
    return (counts.tp * counts.tn - counts.fp * counts.fn).sum(dim=-1)


@dataclass(frozen=True)
class CohenKappa(ClassMetric):
    """Agreement beyond chance, with no, linear or quadratic weights for the distance between classes.

    Args:
        weights: ``"none"``, ``"linear"`` or ``"quadratic"``; the order of the classes is the scale.
    """

    weights: str = field(default="none", kw_only=True)

    range: ClassVar[tuple[float, float]] = (-1.0, 1.0)
    name: ClassVar[str] = "kappa"
    formula: ClassVar[str] = "1 - Σ wᵢⱼ cᵢⱼ / Σ wᵢⱼ tᵢ pⱼ / n"
    reference: ClassVar[str] = "Cohen 1960, 1968; sklearn.metrics.cohen_kappa_score"

    def __post_init__(self) -> None:
        """Check the weights."""
        super().__post_init__()
        if self.weights not in ("none", "linear", "quadratic"):
            raise ValueError(f"weights: expected 'none', 'linear' or 'quadratic', got {self.weights!r}.")
        if self.weights != "none" and (self.average != "auto" or self.label is not None):
            raise ValueError(
                f"weights={self.weights!r} needs the order of all classes; it does not go with one class or an average."
            )

    def per_class(self, counts: Counts) -> Tensor:
        """2 (TP·TN - FP·FN) / ((TP+FN)(FN+TN) + (TP+FP)(FP+TN))."""
        return _two_class_kappa(counts, self.zero_division)

    def of_matrix(self, cm: ConfusionMatrix) -> Tensor:
        """1 - observed / expected weighted disagreement."""
        scale = cm.total.detach()[..., None, None]
        observed = cm.matrix / torch.where(scale > 0, scale, torch.ones_like(scale))
        ranks = torch.arange(cm.num_classes, dtype=observed.dtype, device=observed.device)
        gaps = (ranks[:, None] - ranks).abs()
        weight = {"none": (gaps > 0).to(observed.dtype), "linear": gaps, "quadratic": gaps**2}[self.weights]
        expected = observed.sum(dim=-1)[..., :, None] * observed.sum(dim=-2)[..., None, :]
        by_chance = (weight * expected).sum(dim=(-1, -2))
        # The total is 1 here, but not its gradient.
        by_samples = (weight * observed).sum(dim=(-1, -2)) * observed.sum(dim=(-1, -2))
        return safe_divide(by_chance - by_samples, by_chance, self.zero_division)

    def _parameters(self) -> dict[str, Any]:
        return {} if self.weights == "none" else {"weights": self.weights}


def _two_class_kappa(counts: Counts, undefined: float) -> Tensor:
    tp, fp, fn, tn = counts.scaled()
    return safe_divide(2 * (tp * tn - fp * fn), (tp + fn) * (fn + tn) + (tp + fp) * (fp + tn), undefined)


@dataclass(frozen=True)
class HeidkeSkillScore(ClassMetric):
    """The forecasters' name of unweighted kappa: the share of correct forecasts beyond chance."""

    range: ClassVar[tuple[float, float]] = (-1.0, 1.0)
    name: ClassVar[str] = "hss"
    formula: ClassVar[str] = "(Σₖ cₖₖ/n - Σₖ tₖ pₖ/n²) / (1 - Σₖ tₖ pₖ/n²)"
    reference: ClassVar[str] = "Heidke 1926; equals sklearn.metrics.cohen_kappa_score"

    def per_class(self, counts: Counts) -> Tensor:
        """2 (TP·TN - FP·FN) / ((TP+FN)(FN+TN) + (TP+FP)(FP+TN))."""
        return _two_class_kappa(counts, self.zero_division)

    def of_matrix(self, cm: ConfusionMatrix) -> Tensor:
        """Correct beyond chance over what is left to gain: n² - Σ tₖ pₖ = Σₖ tₖ (n - pₖ)."""
        tp, _, fn, tn = counts = cm.counts.scaled()
        return safe_divide(_covariance(counts), ((tp + fn) * (fn + tn)).sum(dim=-1), self.zero_division)


@dataclass(frozen=True)
class Informedness(ClassMetric):
    """Recall plus specificity minus one (Youden's J, DeltaP'), of a class against the rest."""

    range: ClassVar[tuple[float, float]] = (-1.0, 1.0)
    name: ClassVar[str] = "informedness"
    formula: ClassVar[str] = "TP / (TP + FN) + TN / (TN + FP) - 1"
    reference: ClassVar[str] = "Youden 1950; Powers 2011; sklearn.metrics.balanced_accuracy_score(adjusted=True)"

    def per_class(self, counts: Counts) -> Tensor:
        """(TP·TN - FP·FN) / ((TP+FN)(FP+TN))."""
        tp, fp, fn, tn = counts.scaled()
        return safe_divide(tp * tn - fp * fn, (tp + fn) * (fp + tn), self.zero_division)


@dataclass(frozen=True)
class TrueSkillStatistic(Informedness):
    """Peirce's (Hanssen-Kuipers') skill score; with two classes equal to informedness."""

    name: ClassVar[str] = "tss"
    formula: ClassVar[str] = "(c·n - Σₖ pₖ tₖ) / (n² - Σₖ tₖ²)"
    reference: ClassVar[str] = "Peirce 1884; Hanssen & Kuipers 1965"

    def of_matrix(self, cm: ConfusionMatrix) -> Tensor:
        """Correct beyond chance over what a perfect forecast of these frequencies would gain."""
        tp, fp, fn, tn = counts = cm.counts.scaled()
        return safe_divide(_covariance(counts), ((tp + fn) * (fp + tn)).sum(dim=-1), self.zero_division)


@dataclass(frozen=True)
class Markedness(ClassMetric):
    """Precision plus negative predictive value minus one (DeltaP)."""

    range: ClassVar[tuple[float, float]] = (-1.0, 1.0)
    name: ClassVar[str] = "markedness"
    formula: ClassVar[str] = "TP / (TP + FP) + TN / (TN + FN) - 1"
    reference: ClassVar[str] = "Powers 2011, arXiv:2010.16061"

    def per_class(self, counts: Counts) -> Tensor:
        """(TP·TN - FP·FN) / ((TP+FP)(FN+TN))."""
        tp, fp, fn, tn = counts.scaled()
        return safe_divide(tp * tn - fp * fn, (tp + fp) * (fn + tn), self.zero_division)
