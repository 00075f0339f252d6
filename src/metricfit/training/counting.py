"""Confusion matrices of all members at once: the member dimension leads."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from metricfit._inputs import Task
from metricfit.membership import dynamic_membership, threshold_membership
from metricfit.steps import Step, heaviside

__all__ = ["hard_counts", "member_probabilities", "soft_counts"]


def member_probabilities(logits: Tensor, task: Task) -> Tensor:
    """Softmax, or sigmoid for a multi-label task."""
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
    >>> soft_counts(p, torch.tensor([[0, 0]]), torch.ones(1, 2), "binary", heaviside)
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


def hard_counts(p: Tensor, target: Tensor, weight: Tensor, task: Task) -> Tensor:
    """Counts of arg max decisions (p >= 1/2 for labels); shapes as in :func:`soft_counts`."""
    if task == "multilabel":
        return _label_counts(heaviside(p, 0.5), target, weight)
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
