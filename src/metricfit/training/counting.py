"""Confusion matrices of all members at once: the member dimension leads."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from metricfit.inputs import Task
from metricfit.membership import dynamic_membership, threshold_membership
from metricfit.steps import Heaviside, Step

__all__ = ["hard_counts", "member_probabilities", "soft_counts", "two_class_counts"]


def member_probabilities(logits: Tensor, task: Task) -> Tensor:
    """Softmax, or sigmoid for a multi-label task."""
    if task == "binary":  # softmax of two takes ten times as long
        return (logits - logits.flip(-1)).sigmoid()
    return logits.sigmoid() if task == "multilabel" else logits.softmax(dim=-1)


def soft_counts(
    p: Tensor, target: Tensor, weight: Tensor, task: Task, step: Step, thresholds: Sequence[float] | None = None
) -> Tensor:
    """Soft counts of each member.

    Args:
        p: Probabilities (members, n, classes), two columns for a binary task.
        target: Class indices (members, n), or 0/1 (members, n, labels) for a multi-label task.
        weight: Sample weights (members, n).
        task: The task.
        step: The step function.
        thresholds: A grid of thresholds, for ranking metrics: classes one against the rest, the grid in front.

    Returns:
        (members, d, d); (members, L, 2, 2) for a multi-label task; (grid, members, …, 2, 2) for a grid.

    >>> p = torch.tensor([[[0.9, 0.1], [0.2, 0.8]]])
    >>> soft_counts(p, torch.tensor([[0, 0]]), torch.ones(1, 2), "binary", Heaviside())
    tensor([[[1., 1.],
             [0., 0.]]])
    """
    if thresholds is not None:
        grid = torch.as_tensor(thresholds, dtype=p.dtype, device=p.device)[:, None, None, None]
        if task == "binary":
            counts = _label_counts(threshold_membership(p[..., 1:], grid, step), target[..., None], weight)
            return counts.squeeze(-3)
        positive = target if task == "multilabel" else F.one_hot(target, p.shape[-1])
        return _label_counts(threshold_membership(p, grid, step), positive, weight)
    if task == "multilabel":
        return _label_counts(threshold_membership(p, 0.5, step), target, weight)
    if task == "binary":
        # With two classes the dynamic threshold is 1/2 and the second membership 1 minus the first.
        return _label_counts(threshold_membership(p[..., 1:], 0.5, step), target[..., None], weight).squeeze(-3)
    return _rows_added(dynamic_membership(p, step), target, weight)


def two_class_counts(logits: Tensor, target: Tensor, weight: Tensor, temperature: Tensor) -> Tensor:
    """:func:`soft_counts` of EAST's step for two classes, in a third of its operations.

    At the threshold 1/2 the step is symmetric: steep within 5 T / 4 of it, flat outside.

    Args:
        logits: Logits (members, n, 2).
        target: Class indices (members, n).
        weight: Sample weights (members, n).
        temperature: T, one a member, (members, 1, 1).

    >>> logits = torch.tensor([[[3.0, 0.0], [0.0, 2.0]]])
    >>> two_class_counts(logits, torch.tensor([[0, 0]]), torch.ones(1, 2), torch.full((1, 1, 1), 0.2))
    tensor([[[1.0574, 0.9426],
             [0.0000, 0.0000]]])
    """
    t = temperature[..., 0]
    half = 1.25 * t
    offset = (logits[..., 1] - logits[..., 0]).sigmoid() - 0.5
    near = offset.clamp(-half, half)
    outer = torch.where(half < 0.5 - 1e-6, t / (0.5 - half), 0.0)  # at T = 0.4 nothing is outside
    membership = 0.5 + near * ((1 - 2 * t) / (2 * half)) + (offset - near) * outer
    positives = target * weight
    shares = torch.stack([weight - positives, positives], dim=1)
    yes = torch.bmm(shares, membership[..., None])
    no = (shares.sum(dim=-1, keepdim=True) - yes).clamp_min(0)
    return torch.cat([no, yes], dim=-1)


def hard_counts(p: Tensor, target: Tensor, weight: Tensor, task: Task) -> Tensor:
    """Counts of arg max decisions (p >= 1/2 for labels); shapes as in :func:`soft_counts`."""
    if task == "multilabel":
        return _label_counts(Heaviside()(p, 0.5), target, weight)
    members, _, classes = p.shape
    cells = target * classes + p.argmax(dim=-1)
    cells = cells + torch.arange(members, device=p.device)[:, None] * classes**2
    flat = p.new_zeros(members * classes**2).index_add(0, cells.flatten(), weight.to(p.dtype).flatten())
    return flat.reshape(members, classes, classes)


def _rows_added(membership: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    members, _, classes = membership.shape
    rows = target + torch.arange(members, device=target.device)[:, None] * classes
    weighted = (membership * weight[..., None]).reshape(-1, classes)
    added = membership.new_zeros(members * classes, classes).index_add(0, rows.flatten(), weighted)
    return added.reshape(members, classes, classes)


def _label_counts(membership: Tensor, positive: Tensor, weight: Tensor) -> Tensor:
    """(…, members, labels, 2, 2) of memberships (…, members, n, labels)."""
    positives = positive.to(membership.dtype) * weight[..., None]
    shares = torch.stack([weight[..., None] - positives, positives], dim=-2)  # (members, n, 2, labels)
    yes = (membership[..., None, :] * shares).sum(dim=-3)
    no = ((1 - membership)[..., None, :] * shares).sum(dim=-3)
    return torch.stack([no, yes], dim=-1).transpose(-2, -3)
