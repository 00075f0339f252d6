"""Cross-entropy as the companion of a metric: it learns the representation, the metric fixes the decision."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from metricfit.inputs import Samples, Task
from metricfit.numerics import safe_divide

__all__ = [
    "ClassWeighting",
    "class_weights",
    "classes_of_batch",
    "cross_entropy_of_batch",
    "cross_entropy_of_samples",
    "cross_entropy_of_sums",
    "cross_entropy_sums",
]

ClassWeighting = Literal["none", "sqrt", "balanced"]


_POWERS = {"none": 0.0, "sqrt": 0.5, "balanced": 1.0}


def class_weights(prior: Tensor, weighting: ClassWeighting) -> Tensor:
    """Weights that rise as a class gets rare: ∝ prior^-1/2 (``"sqrt"``) or ∝ 1/prior (``"balanced"``).

    Scaled so that the average over samples is 1; classes without samples get 0.

    >>> class_weights(torch.tensor([0.8, 0.2]), "balanced")
    tensor([0.6250, 2.5000])
    """
    power = _POWERS[weighting]
    occurs = prior > 0
    weights = torch.where(occurs, torch.where(occurs, prior, torch.ones_like(prior)) ** -power, torch.zeros_like(prior))
    return weights * safe_divide(prior.sum(dim=-1, keepdim=True), (weights * prior).sum(dim=-1, keepdim=True))


def cross_entropy_of_samples(
    samples: Samples,
    *,
    task: Task,
    weighting: ClassWeighting = "none",
    prior: Tensor | None = None,
    from_probabilities: bool = False,
) -> Tensor:
    """The weighted mean cross-entropy (binary cross-entropy over all labels for the other tasks).

    Args:
        samples: Flattened samples.
        task: The task.
        weighting: How the classes are weighted.
        prior: Class shares (or counts): (C,), or (L, 2) negative and positive; by default the batch's.
        from_probabilities: Whether the samples' scores are probabilities.
    """
    sums = cross_entropy_sums(samples, task=task, weighting=weighting, from_probabilities=from_probabilities)
    return cross_entropy_of_sums(sums, weighting, prior)


def cross_entropy_sums(
    samples: Samples, *, task: Task, weighting: ClassWeighting = "none", from_probabilities: bool = False
) -> Tensor:
    """The sums over samples of weighted losses and of weights, (2, …): of each class if classes are weighted.

    They can be added over batches and processes before the mean is taken.
    """
    losses, mass = _losses_and_mass(samples, task, from_probabilities)
    both = torch.stack([mass * losses, mass])
    if weighting == "none":
        return both.flatten(1).sum(dim=-1)
    if task == "multiclass" and samples.target.ndim == 1:
        # One after the other thousands of float32 numbers would lose digits that a plain sum keeps.
        exact = both if both.device.type == "mps" else both.double()
        classes = samples.scores.shape[1]
        return exact.new_zeros(2, classes).index_add(1, samples.target, exact).to(mass.dtype)
    return both.sum(dim=1)


def cross_entropy_of_sums(sums: Tensor, weighting: ClassWeighting, prior: Tensor | None = None) -> Tensor:
    """The weighted mean cross-entropy, given :func:`cross_entropy_sums`."""
    losses, mass = sums
    if weighting != "none":
        weights = class_weights(mass if prior is None else prior.to(mass), weighting)
        losses, mass = weights * losses, weights * mass
    return safe_divide(losses.sum(), mass.sum())


def classes_of_batch(input: Tensor, target: Tensor, ignore_index: int) -> Tensor | None:
    """Targets as class indices for :func:`cross_entropy_of_batch`, or None where it would not do.

    That is with half precision, shares of classes, and where the scores of ignored positions may be NaN.
    """
    if input.dtype not in (torch.float32, torch.float64) or not input.numel():
        return None
    classes = target.long()
    if target.is_floating_point() and not torch.equal(classes.to(target.dtype), target):
        return None
    ignored = classes == ignore_index
    if not bool(ignored.any()):
        return classes
    usual = input.shape != target.shape and not bool(ignored.all()) and bool(input.detach().sum().isfinite())
    return classes if usual else None


def cross_entropy_of_batch(
    input: Tensor,
    target: Tensor,
    *,
    weighting: ClassWeighting,
    prior: Tensor | None,
    weight: Tensor | None,
    ignore_index: int,
) -> Tensor:
    """The same of an ordinary batch by torch's own losses, without the sums of each class.

    Args:
        input: Logits (N, C, …), or of the shape of the target for one logit.
        target: Class indices, from :func:`classes_of_batch`.
        weighting: How the classes are weighted.
        prior: Class shares (or counts) for that; by default the batch's.
        weight: Class weights.
        ignore_index: Target value of positions that do not count.
    """
    is_binary = input.shape == target.shape
    if weighting == "none" and weight is None:
        if is_binary:
            return F.binary_cross_entropy_with_logits(input, target.to(input))
        return F.cross_entropy(input, target, ignore_index=ignore_index)
    classes = 2 if is_binary else input.shape[1]
    counts = torch.bincount(target[target != ignore_index], minlength=classes).to(input.dtype)
    weights = torch.ones_like(counts) if weight is None else weight.to(counts)
    if weighting != "none":
        shares = counts * weights if prior is None else prior.to(counts)
        # As class_weights, whose scale means nothing to a mean.
        weights = weights * shares.clamp_min(torch.finfo(counts.dtype).tiny) ** -_POWERS[weighting] * (shares > 0)
    mass = (weights * counts).sum()
    if is_binary:
        losses = F.binary_cross_entropy_with_logits(input, target.to(input), weights[target], reduction="sum")
    else:
        losses = F.cross_entropy(input, target, weights, ignore_index=ignore_index, reduction="sum")
    return safe_divide(losses, mass)


def _losses_and_mass(samples: Samples, task: Task, from_probabilities: bool) -> tuple[Tensor, Tensor]:
    """Losses and their weights: (n,) for class indices, else one for each class a sample has a share in."""
    scores, target, weight = samples.scores, samples.target, samples.weight
    smallest = torch.finfo(scores.dtype).tiny
    if task == "multiclass":
        logs = scores.clamp_min(smallest).log() if from_probabilities else scores.log_softmax(dim=-1)
        if target.ndim == 2:
            return -logs, target * weight[:, None]
        return -logs.gather(1, target[:, None]).squeeze(1), weight
    if from_probabilities:
        positive, negative = -scores.clamp_min(smallest).log(), -(1 - scores).clamp_min(smallest).log()
    else:
        positive, negative = F.softplus(-scores), F.softplus(scores)
    shares = torch.stack([1 - target, target], dim=-1)
    return torch.stack([negative, positive], dim=-1), shares * weight[..., None]
