"""The losses that metric losses are compared with. Each is one formula; the classes only hold its options.

All take the shapes, weights and ``ignore_index`` of :class:`metricfit.MetricLoss` and average with the weights.
"""

from __future__ import annotations

import math
from typing import Unpack

import torch
from torch import Tensor

from metricfit._counting import indicator
from metricfit.inputs import Samples, Task
from metricfit.losses.cross_entropy import cross_entropy_of_samples
from metricfit.losses.metric_loss import MetricLoss
from metricfit.losses.sample_loss import SampleLoss, SampleOptions, share_of_truth
from metricfit.metrics import FBeta, MetricLike
from metricfit.numerics import safe_divide

__all__ = [
    "AnyLoss",
    "DiceLoss",
    "FocalLoss",
    "MAELoss",
    "SoftFBetaLoss",
    "WMWLoss",
    "dice_loss",
    "focal_loss",
    "mae_loss",
    "wmw_loss",
]


class SoftFBetaLoss(MetricLoss):
    """One minus the macro soft F-beta score: the F-score of raw probabilities (surrogate-fbeta eq. 23-24).

    Args:
        beta: Recall counts beta times as much as precision; one number or one a class.
        options: As in :class:`metricfit.MetricLoss`.

    >>> SoftFBetaLoss(task="binary")(torch.tensor([9.0, -9.0]), torch.tensor([1, 0]))
    tensor(0.0001)
    """

    def __init__(self, beta: float | tuple[float, ...] = 1.0, **options: object) -> None:
        super().__init__(FBeta(beta=beta), step="identity", **options)  # type: ignore[arg-type]


class AnyLoss(MetricLoss):
    """AnyLoss (Han et al. 2024): a metric of amplified probabilities, one minus its value.

    Args:
        metric: Any metric of a binary confusion matrix.
        sharpness: L of the amplifier 1 / (1 + exp(-L (p - 1/2))).
        task: "binary" or "multilabel".
        options: As in :class:`metricfit.MetricLoss`.

    >>> AnyLoss("f1")(torch.tensor([9.0, -9.0]), torch.tensor([1, 0]))
    tensor(0.)
    """

    def __init__(
        self, metric: MetricLike = "f1", *, sharpness: float = 73.0, task: Task = "binary", **options: object
    ) -> None:
        super().__init__(metric, step="amplifier", sharpness=sharpness, task=task, **options)  # type: ignore[arg-type]


class MAELoss(SampleLoss):
    """The mean absolute error 2 - 2 f_y, f_y the probability of the true class (surrogate-fbeta eq. 14).

    >>> MAELoss()(torch.zeros(1, 2), torch.tensor([0]))
    tensor(1.)
    """

    def of_samples(self, samples: Samples) -> Tensor:
        """Weighted mean of 2 - 2 f_y."""
        truth = share_of_truth(samples, self.probabilities(samples))
        return safe_divide((samples.weight * (2 - 2 * truth)).sum(), samples.weight.sum())


class DiceLoss(SampleLoss):
    """One minus the soft Dice coefficient 2 Σ p y / (Σ p + Σ y), averaged over the classes that occur.

    Args:
        squared: Σ p² + Σ y² in the denominator (Milletari et al. 2016).
        smooth: Added to numerator and denominator.
        options: task, weight, ignore_index, from_probabilities, validate.

    >>> DiceLoss(task="binary")(torch.tensor([0.0, 0.0]), torch.tensor([1, 0]))
    tensor(0.5000)
    """

    def __init__(self, *, squared: bool = False, smooth: float = 0.0, **options: Unpack[SampleOptions]) -> None:
        super().__init__(**options)
        if smooth < 0:
            raise ValueError(f"smooth: expected a number >= 0, got {smooth}.")
        self.squared = squared
        self.smooth = smooth

    def of_samples(self, samples: Samples) -> Tensor:
        """Dice of each class, then the mean over classes with support."""
        p = self.probabilities(samples)
        truth, weight = samples.target, samples.weight
        if truth.ndim == 1:
            truth = indicator(truth, p)
        if weight.ndim == 1:
            weight = weight[:, None]
        power = 2 if self.squared else 1
        overlap = (weight * p * truth).sum(dim=0)
        sizes = (weight * (p**power + truth**power)).sum(dim=0)
        occurs = ((weight * truth).sum(dim=0) > 0).to(p.dtype)
        dice = safe_divide(2 * overlap + self.smooth, sizes + self.smooth)
        return 1 - safe_divide((dice * occurs).sum(), occurs.sum())


class FocalLoss(SampleLoss):
    """The focal loss (1 - f_y)^gamma · (-log f_y) of Lin et al. 2017; class weights play the part of alpha.

    Args:
        gamma: How much well-classified samples are played down; 0 is cross-entropy.
        options: task, weight, ignore_index, from_probabilities, validate.

    >>> FocalLoss(gamma=2.0)(torch.zeros(1, 2), torch.tensor([0]))
    tensor(0.1733)
    """

    def __init__(self, *, gamma: float = 2.0, **options: Unpack[SampleOptions]) -> None:
        super().__init__(**options)
        if gamma < 0:
            raise ValueError(f"gamma: expected a number >= 0, got {gamma}.")
        self.gamma = gamma

    def of_samples(self, samples: Samples) -> Tensor:
        """Cross-entropy with each sample's weight times (1 - f_y)^gamma."""
        truth = share_of_truth(samples, self.probabilities(samples))
        eased = safe_power(1 - truth, self.gamma)
        focused = Samples(samples.scores, samples.target, samples.weight * eased, samples.ignored)
        mean = cross_entropy_of_samples(focused, task=self.task, from_probabilities=self.from_probabilities)
        # The mean above divides by the focused weights; the focal loss divides by the plain ones.
        return mean * safe_divide(focused.weight.sum(), samples.weight.sum())


def safe_power(base: Tensor, exponent: float) -> Tensor:
    """``base ** exponent`` for base >= 0, with a finite gradient at 0 whatever the exponent.

    >>> safe_power(torch.tensor([0.0, 4.0]), 0.5)
    tensor([0., 2.])
    """
    if exponent == 0:
        return torch.ones_like(base)
    positive = base > 0
    return torch.where(positive, torch.where(positive, base, torch.ones_like(base)) ** exponent, torch.zeros_like(base))


class WMWLoss(SampleLoss):
    """The Wilcoxon-Mann-Whitney surrogate of AUROC (Yan et al. 2003).

    The weighted mean over pairs of a positive i and a negative j of ``max(0, margin - (f_i - f_j))^power``. All pairs
    are summed in O(n log n) by sorting the negatives and adding up their powers, not by forming the pairs.

    Args:
        margin: γ, in (0, 1].
        power: q, a whole number >= 2.
        options: weight, ignore_index, from_probabilities, validate; the task is binary.

    >>> WMWLoss(margin=0.5)(torch.tensor([9.0, -9.0]), torch.tensor([1, 0]))
    tensor(0.)
    """

    def __init__(self, *, margin: float = 0.3, power: int = 2, **options: Unpack[SampleOptions]) -> None:
        if options.setdefault("task", "binary") != "binary":
            raise ValueError(
                f"task: the statistic compares positives with negatives, 'binary' only, got {options['task']!r}."
            )
        super().__init__(**options)
        if not 0 < margin <= 1:
            raise ValueError(f"margin: expected a number in (0, 1], got {margin}.")
        if not isinstance(power, int) or power < 2:
            raise ValueError(f"power: expected a whole number >= 2, got {power}.")
        self.margin = margin
        self.power = power

    def of_samples(self, samples: Samples) -> Tensor:
        """Σᵢⱼ wᵢ wⱼ max(0, γ - fᵢ + fⱼ)^q by the binomial theorem over sorted negatives."""
        f = self.probabilities(samples)[:, 0]
        positives = (samples.weight * samples.target)[:, 0]
        negatives = (samples.weight * (1 - samples.target))[:, 0]
        order = f.detach().argsort(descending=True)
        sorted_f, sorted_weight = f[order], negatives[order]
        # Negatives that come within the margin of positive i are the first reached[i] of the sorted ones.
        reached = torch.searchsorted(-sorted_f.detach(), self.margin - f.detach())
        total = torch.zeros_like(f)
        for m in range(self.power + 1):
            sums = torch.cat([f.new_zeros(1), (sorted_weight * sorted_f**m).cumsum(0)])
            total = total + math.comb(self.power, m) * (self.margin - f) ** (self.power - m) * sums[reached]
        return safe_divide((positives * total).sum(), positives.sum() * negatives.sum())


def mae_loss(
    input: Tensor, target: Tensor, sample_weight: Tensor | None = None, **options: Unpack[SampleOptions]
) -> Tensor:
    """The functional form of :class:`MAELoss`."""
    value: Tensor = MAELoss(**options)(input, target, sample_weight)
    return value


def dice_loss(
    input: Tensor,
    target: Tensor,
    sample_weight: Tensor | None = None,
    *,
    squared: bool = False,
    smooth: float = 0.0,
    **options: Unpack[SampleOptions],
) -> Tensor:
    """The functional form of :class:`DiceLoss`."""
    value: Tensor = DiceLoss(squared=squared, smooth=smooth, **options)(input, target, sample_weight)
    return value


def focal_loss(
    input: Tensor,
    target: Tensor,
    sample_weight: Tensor | None = None,
    *,
    gamma: float = 2.0,
    **options: Unpack[SampleOptions],
) -> Tensor:
    """The functional form of :class:`FocalLoss`."""
    value: Tensor = FocalLoss(gamma=gamma, **options)(input, target, sample_weight)
    return value


def wmw_loss(
    input: Tensor,
    target: Tensor,
    sample_weight: Tensor | None = None,
    *,
    margin: float = 0.3,
    power: int = 2,
    **options: Unpack[SampleOptions],
) -> Tensor:
    """The functional form of :class:`WMWLoss`."""
    value: Tensor = WMWLoss(margin=margin, power=power, **options)(input, target, sample_weight)
    return value
