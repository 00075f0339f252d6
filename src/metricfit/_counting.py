"""Count memberships into matrices, block by block of rows so that temporaries stay small."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from metricfit.inputs import Samples, Task, values_can_be_inspected
from metricfit.membership import dynamic_membership, threshold_membership
from metricfit.numerics import safe_divide
from metricfit.steps import Step

__all__ = ["count_each_class", "count_hard", "count_samples", "indicator", "probabilities"]

WHOLE_ELEMENTS = 2**25
"""Up to this many memberships are counted at once."""

BLOCK_ELEMENTS = 2**22
"""More are counted in blocks of rows of about this size. Each block's backward pass recomputes what it needs, so
that the extra memory stays a few times the logits', for about half as much time again."""


def probabilities(scores: Tensor, task: Task, from_probabilities: bool = False) -> Tensor:
    """Softmax for a multiclass task, sigmoid for the others."""
    if from_probabilities:
        return scores
    return scores.softmax(dim=-1) if task == "multiclass" else scores.sigmoid()


def count_samples(
    samples: Samples,
    task: Task,
    step: Step,
    *,
    threshold: Tensor | float = 0.5,
    thresholds: Sequence[float] | None = None,
    detach_threshold: bool = False,
    from_probabilities: bool = False,
) -> Tensor:
    """The soft counts: (d, d) at a dynamic threshold, else (…, L, 2, 2), with the grid of thresholds in front."""
    count = partial(
        _count_block,
        task=task,
        step=step,
        threshold=threshold,
        thresholds=thresholds,
        detach_threshold=detach_threshold,
        from_probabilities=from_probabilities,
    )
    return _count_in_blocks(count, samples, samples.scores, 1 if thresholds is None else len(thresholds))


def count_each_class(
    samples: Samples, step: Step, *, detach_threshold: bool = False, from_probabilities: bool = False
) -> Tensor:
    """The (d, 2, 2) counts of each class against the rest at the dynamic threshold, without the (d, d) matrix.

    For class indices as targets. What metrics that are averages over classes need: 4 d numbers instead of d².
    """
    count = partial(_count_classes, step=step, detach_threshold=detach_threshold, from_probabilities=from_probabilities)
    return _count_in_blocks(count, samples, samples.scores)


def _count_classes(
    scores: Tensor, target: Tensor, weight: Tensor, *, step: Step, detach_threshold: bool, from_probabilities: bool
) -> Tensor:
    p = probabilities(scores, "multiclass", from_probabilities)
    membership = dynamic_membership(p, step, detach_threshold=detach_threshold)
    hit = membership.gather(1, target[:, None]).squeeze(1)
    nothing = membership.new_zeros(membership.shape[1])
    tp = nothing.index_add(0, target, weight * hit)
    fn = nothing.index_add(0, target, weight * (1 - hit))
    fp = weight @ membership.scatter(1, target[:, None], 0.0)
    tn = (weight.sum() - tp - fn - fp).clamp_min(0)
    return torch.stack([torch.stack([tn, fp], dim=-1), torch.stack([fn, tp], dim=-1)], dim=-2)


def _count_in_blocks(count: Callable[..., Tensor], samples: Samples, scores: Tensor, grid: int = 1) -> Tensor:
    """The counts of other scores of the same samples."""
    target, weight = samples.target, samples.weight
    row = scores.shape[1] * grid
    rows = max(1, BLOCK_ELEMENTS // row)
    if len(scores) * row <= WHOLE_ELEMENTS or not values_can_be_inspected():
        return count(scores, target, weight)
    blocks = zip(scores.split(rows), target.split(rows), weight.split(rows), strict=True)
    if torch.is_grad_enabled() and scores.requires_grad:
        count = partial(checkpoint, count, use_reentrant=False, preserve_rng_state=False)
    return reduce(torch.add, (count(*block) for block in blocks))


def _count_block(
    scores: Tensor,
    target: Tensor,
    weight: Tensor,
    *,
    task: Task,
    step: Step,
    threshold: Tensor | float,
    thresholds: Sequence[float] | None,
    detach_threshold: bool,
    from_probabilities: bool,
) -> Tensor:
    p = probabilities(scores, task, from_probabilities)
    if task == "multiclass" and thresholds is None:
        membership = dynamic_membership(p, step, detach_threshold=detach_threshold)
        return _add_rows(membership, target, weight)
    if task == "multiclass":
        target, weight = _one_against_rest(target, weight, p)
    if thresholds is not None:
        threshold = torch.as_tensor(thresholds, dtype=p.dtype, device=p.device)[:, None, None]
    return _count_labels(threshold_membership(p, threshold, step), target, weight)


def _add_rows(membership: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Add each membership row to the row of its true class: O(n·d) for indices, one product for probabilities."""
    weighted = membership * weight[:, None]
    if target.ndim == 2:
        return target.T @ weighted
    classes = membership.shape[-1]
    return membership.new_zeros(classes, classes).index_add(0, target, weighted)


def indicator(target: Tensor, like: Tensor) -> Tensor:
    """1 at the target's class, else 0, in the shape (n, d) and dtype of ``like``; no int64 one-hot rows."""
    return (target[:, None] == torch.arange(like.shape[-1], device=like.device)).to(like.dtype)


def _one_against_rest(target: Tensor, weight: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """Share of positive and weight, both (n, d), of every class against the rest."""
    if target.ndim == 1:
        return indicator(target, p), weight[:, None].expand_as(p)
    mass = target.sum(dim=-1, keepdim=True)  # not 1 where class weights scaled a row of probabilities
    return safe_divide(target, mass.expand_as(target)), (weight[:, None] * mass).expand_as(p)


def _count_labels(membership: Tensor, positive: Tensor, weight: Tensor) -> Tensor:
    """L×2×2 counts of soft predictions (…, n, L) against the share of positive (n, L)."""
    positives, negatives = positive * weight, (1 - positive) * weight
    rejected = 1 - membership
    tn, fp = (rejected * negatives).sum(dim=-2), (membership * negatives).sum(dim=-2)
    fn, tp = (rejected * positives).sum(dim=-2), (membership * positives).sum(dim=-2)
    return torch.stack([torch.stack([tn, fp], dim=-1), torch.stack([fn, tp], dim=-1)], dim=-2)


def count_hard(samples: Samples) -> Tensor:
    """The (d, d) counts of arg max predictions, in float64."""
    classes = samples.scores.shape[-1]
    predicted = samples.scores.argmax(dim=-1)
    weight = samples.weight.double()
    if samples.target.ndim == 2:
        rows = samples.target.double() * weight[:, None]
        return rows.new_zeros(classes, classes).index_add(0, predicted, rows).T
    cells = samples.target * classes + predicted
    return weight.new_zeros(classes * classes).index_add(0, cells, weight).reshape(classes, classes)
