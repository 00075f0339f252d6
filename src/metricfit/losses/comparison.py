"""The losses that metric losses are compared with: sums over samples, one formula each.

All take the shapes, weights and ``ignore_index`` of :class:`metricfit.MetricLoss` and average with the weights. A
module holds a formula and its options; the function of the same name calls the same formula.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict, Unpack

import torch
from torch import Tensor, nn

from metricfit.confusion import indicator, probabilities
from metricfit.distributed import sum_over_processes
from metricfit.inputs import Samples, Task, check_task, flatten_inputs, safe_divide
from metricfit.losses.companions import cross_entropy_of_samples

__all__ = [
    "DiceLoss",
    "FocalLoss",
    "MAELoss",
    "SampleLoss",
    "SampleOptions",
    "WMWLoss",
    "dice_loss",
    "focal_loss",
    "mae_loss",
    "sample_loss",
    "wmw_loss",
]


class SampleOptions(TypedDict, total=False):
    """Options of every such loss, with the meaning they have in :class:`metricfit.MetricLoss`."""

    task: Task
    weight: Tensor | None
    ignore_index: int
    from_probabilities: bool
    members: int | None
    validate: bool


class Formula(Protocol):
    """The loss of flattened samples: a scalar, or one per member."""

    def __call__(self, samples: Samples, task: Task, from_probabilities: bool, group: Any) -> Tensor:
        """The formula."""


def sample_loss(
    formula: Formula,
    input: Tensor,
    target: Tensor,
    sample_weight: Tensor | None = None,
    *,
    group: Any = None,
    **options: Unpack[SampleOptions],
) -> Tensor:
    """The loss of a batch by a formula; 0 where everything is ignored.

    Args:
        formula: The formula.
        input: Logits.
        target: Classes.
        sample_weight: Weights of the samples.
        group: Processes whose sums are added up, for formulas that do so; see :mod:`metricfit.distributed`.
        options: See :class:`SampleOptions`.
    """
    task = options.setdefault("task", "multiclass")
    check_task(task)
    with torch.autocast(input.device.type if isinstance(input, Tensor) else "cpu", enabled=False):
        samples = flatten_inputs(input, target, sample_weight=sample_weight, allow_empty=group is not None, **options)
        loss = formula(samples, task, options.get("from_probabilities", False), group)
        (weight,) = sum_over_processes([samples.total], group)
        return torch.where(weight > 0, loss, torch.zeros_like(loss))


class SampleLoss(nn.Module):
    """A formula with its options; the base of the losses below."""

    weight: Tensor | None
    group: Any = None
    """Processes whose sums are added up, for formulas that do so."""

    def __init__(self, formula: Formula, **options: Unpack[SampleOptions]) -> None:
        super().__init__()
        check_task(options.setdefault("task", "multiclass"))
        self.register_buffer("weight", options.pop("weight", None), persistent=False)
        self.formula, self.options = formula, options

    @property
    def task(self) -> Task:
        """The task."""
        return self.options["task"]

    def forward(self, input: Tensor, target: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """The loss of a batch, a scalar; 0 where everything is ignored."""
        options: SampleOptions = {**self.options, "weight": self.weight}
        return sample_loss(self.formula, input, target, sample_weight, group=self.group, **options)


@dataclass(frozen=True)
class _MeanAbsoluteError:
    def __call__(self, samples: Samples, task: Task, from_probabilities: bool, group: Any) -> Tensor:
        truth = _share_of_truth(samples, probabilities(samples.scores, task, from_probabilities))
        return safe_divide((samples.weight * (2 - 2 * truth)).sum(), samples.weight.sum())


class MAELoss(SampleLoss):
    """The mean absolute error 2 - 2 f_y, f_y the probability of the true class (surrogate-fbeta eq. 14).

    >>> MAELoss()(torch.zeros(1, 2), torch.tensor([0]))
    tensor(1.)
    """

    def __init__(self, **options: Unpack[SampleOptions]) -> None:
        super().__init__(_MeanAbsoluteError(), **options)


def mae_loss(
    input: Tensor, target: Tensor, sample_weight: Tensor | None = None, **options: Unpack[SampleOptions]
) -> Tensor:
    """The functional form of :class:`MAELoss`."""
    return sample_loss(_MeanAbsoluteError(), input, target, sample_weight, **options)


@dataclass(frozen=True)
class _Dice:
    squared: bool
    smooth: float

    def __post_init__(self) -> None:
        if self.smooth < 0:
            raise ValueError(f"smooth: expected a number >= 0, got {self.smooth}.")

    def __call__(self, samples: Samples, task: Task, from_probabilities: bool, group: Any) -> Tensor:
        p = probabilities(samples.scores, task, from_probabilities)
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
        super().__init__(_Dice(squared, smooth), **options)


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
    return sample_loss(_Dice(squared, smooth), input, target, sample_weight, **options)


@dataclass(frozen=True)
class _Focal:
    gamma: float

    def __post_init__(self) -> None:
        if self.gamma < 0:
            raise ValueError(f"gamma: expected a number >= 0, got {self.gamma}.")

    def __call__(self, samples: Samples, task: Task, from_probabilities: bool, group: Any) -> Tensor:
        truth = _share_of_truth(samples, probabilities(samples.scores, task, from_probabilities))
        eased = _safe_power(1 - truth, self.gamma)
        focused = Samples(samples.scores, samples.target, samples.weight * eased, samples.ignored)
        mean = cross_entropy_of_samples(focused, task=task, from_probabilities=from_probabilities)
        # The mean above divides by the focused weights; the focal loss divides by the plain ones.
        return mean * safe_divide(focused.weight.sum(), samples.weight.sum())


class FocalLoss(SampleLoss):
    """The focal loss (1 - f_y)^gamma · (-log f_y) of Lin et al. 2017; class weights play the part of alpha.

    Args:
        gamma: How much well-classified samples are played down; 0 is cross-entropy.
        options: task, weight, ignore_index, from_probabilities, validate.

    >>> FocalLoss(gamma=2.0)(torch.zeros(1, 2), torch.tensor([0]))
    tensor(0.1733)
    """

    def __init__(self, *, gamma: float = 2.0, **options: Unpack[SampleOptions]) -> None:
        super().__init__(_Focal(gamma), **options)


def focal_loss(
    input: Tensor,
    target: Tensor,
    sample_weight: Tensor | None = None,
    *,
    gamma: float = 2.0,
    **options: Unpack[SampleOptions],
) -> Tensor:
    """The functional form of :class:`FocalLoss`."""
    return sample_loss(_Focal(gamma), input, target, sample_weight, **options)


@dataclass(frozen=True)
class _WilcoxonMannWhitney:
    margin: float
    power: int

    def __post_init__(self) -> None:
        if not 0 < self.margin <= 1:
            raise ValueError(f"margin: expected a number in (0, 1], got {self.margin}.")
        if not isinstance(self.power, int) or self.power < 2:
            raise ValueError(f"power: expected a whole number >= 2, got {self.power}.")

    def __call__(self, samples: Samples, task: Task, from_probabilities: bool, group: Any) -> Tensor:
        """Σᵢⱼ wᵢ wⱼ max(0, γ - fᵢ + fⱼ)^q by the binomial theorem over sorted negatives."""
        f = probabilities(samples.scores, task, from_probabilities)[:, 0]
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
        super().__init__(_WilcoxonMannWhitney(margin, power), **_binary(options))


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
    return sample_loss(_WilcoxonMannWhitney(margin, power), input, target, sample_weight, **_binary(options))


def _binary(options: SampleOptions) -> SampleOptions:
    if options.setdefault("task", "binary") != "binary":
        raise ValueError(
            f"task: the statistic compares positives with negatives, 'binary' only, got {options['task']!r}."
        )
    return options


def _share_of_truth(samples: Samples, p: Tensor) -> Tensor:
    """The probability given to the true class: (n,) for class indices, otherwise one per class share."""
    if samples.target.ndim == 1:
        return p.gather(1, samples.target[:, None]).squeeze(1)
    if samples.weight.ndim == 1:
        return (p * samples.target).sum(dim=-1)
    return p * samples.target + (1 - p) * (1 - samples.target)


def _safe_power(base: Tensor, exponent: float) -> Tensor:
    """``base ** exponent`` for base >= 0, with a finite gradient at 0 whatever the exponent."""
    if exponent == 0:
        return torch.ones_like(base)
    positive = base > 0
    return torch.where(positive, torch.where(positive, base, torch.ones_like(base)) ** exponent, torch.zeros_like(base))
