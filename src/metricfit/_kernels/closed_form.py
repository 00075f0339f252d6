"""The closed-form backward in plain torch: for other dtypes and devices, and where numba is not installed.

The same formulas as the compiled loops, operation by operation. Probabilities and four numbers a sample are kept;
nothing is recorded by autograd.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from metricfit._kernels.batch import FivePoints
from metricfit._kernels.second_order import second_order
from metricfit.steps import SMALLEST_WIDTH, THRESHOLD_MARGIN

__all__ = ["ClosedFormCounts"]


BLOCK_ELEMENTS = 2**17
"""On a CPU the temporaries of a block of rows of this size stay in cache."""


class ClosedFormCounts(torch.autograd.Function):
    """Soft counts (d, d) of scores (n, d), labels (n,) and weights (n,)."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        """Arguments: scores, target, weight, points, is_softmax, is_fixed, plain."""
        scores, target, weight, ctx.points, ctx.is_softmax, ctx.is_fixed, ctx.plain = arguments
        p = scores.softmax(dim=-1) if ctx.is_softmax else scores
        counts: Tensor = p.new_zeros(p.shape[1], p.shape[1])
        kept = [_count(block, ctx.points, counts) for block in _blocks(p, target, weight)]
        places, mean, inverse = (torch.cat(parts) for parts in zip(*kept, strict=True))
        ctx.save_for_backward(scores, target, weight, p, places, mean, inverse)
        return counts

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of the scores alone."""
        scores, target, weight, p, places, mean, inverse = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *second_order(ctx.plain, scores, gradients[0]), None, None, None, None, None, None
        out = torch.empty_like(p)
        for block in _blocks(p, target, weight, places, mean, inverse, out):
            _pull_back(gradients[0], block, ctx.points, ctx.is_softmax, ctx.is_fixed)
        return out, None, None, None, None, None, None


def _blocks(p: Tensor, *others: Tensor) -> Iterable[tuple[Tensor, ...]]:
    rows = max(1, BLOCK_ELEMENTS // p.shape[1]) if p.is_cpu else len(p)
    return zip(*(tensor.split(rows) for tensor in (p, *others)), strict=True)


def _steps(p: Tensor, segments: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The step, where p lies below and above its middle, and p minus the threshold."""
    tau, half, low, middle, high = segments
    offset = p - tau
    below, above = offset < -half, offset > half
    outer = torch.where(above, (1 - p).mul_(high).neg_().add_(1), (offset * middle).add_(0.5))
    return torch.where(below, p * low, outer), below, above, offset


def _count(block: tuple[Tensor, ...], points: FivePoints, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Add a block to the counts; places of the two largest entries, their mean, 1 / sum of steps."""
    p, target, weight = block
    first, at_first = p.max(dim=-1, keepdim=True)
    second, at_second = p.scatter(1, at_first, -1.0).max(dim=-1, keepdim=True)  # topk takes three times as long
    mean = (first + second) / 2
    h = _steps(p, _segments(mean, points))[0]
    total = h.sum(dim=-1, keepdim=True)
    inverse = torch.where(total > torch.finfo(p.dtype).tiny, 1 / total, torch.zeros_like(total))
    counts.index_add_(0, target, h.mul_(inverse * weight[:, None]))
    return torch.cat([at_first, at_second], dim=1), mean, inverse


def _pull_back(
    gradient: Tensor, block: tuple[Tensor, ...], points: FivePoints, is_softmax: bool, is_fixed: bool
) -> None:
    """The gradient of a block, written into its last tensor."""
    p, target, weight, places, mean, inverse, out = block
    segments = _segments(mean, points)
    h, below, above, offset = _steps(p, segments)
    g = gradient.index_select(0, target)
    g.sub_(h.mul_(g).sum(dim=-1, keepdim=True).mul_(inverse)).mul_(inverse * weight[:, None])
    _, _, low, middle, high = segments
    torch.mul(g, torch.where(below, low, torch.where(above, high, middle)), out=out)
    if not is_fixed:
        bend_low, bend_between, bend_middle, bend_high = _bends(mean, points)
        inside = offset.mul_(bend_middle).add_(bend_between)
        bend = torch.where(below, p * bend_low, torch.where(above, (1 - p).mul_(bend_high), inside))
        out.scatter_add_(1, places, (g.mul_(bend).sum(dim=-1, keepdim=True) / 2).expand(-1, 2))
    if is_softmax:
        out.sub_((out * p).sum(dim=-1, keepdim=True)).mul_(p)


def _segments(mean: Tensor, points: FivePoints) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Threshold, half the middle width and the three slopes, each (n, 1)."""
    margin, smallest = _limits(mean.dtype)
    tau = mean.clamp(margin, 1 - margin)
    width = (points.factor * torch.minimum(tau, 1 - tau)).clamp_min(smallest)
    half = width / 2
    low = points.delta / (tau - half).clamp_min(smallest)
    high = points.delta / (1 - tau - half).clamp_min(smallest)
    return tau, half, low, (1 - 2 * points.delta) / width, high


def _bends(mean: Tensor, points: FivePoints) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """How the step moves with its threshold: at p below, constant and linear part between, at 1 - p above."""
    margin, smallest = _limits(mean.dtype)
    tau, half, low, middle, high = _segments(mean, points)
    moves = ((mean >= margin) & (mean <= 1 - margin)).to(mean.dtype)
    widens = points.factor * torch.minimum(tau, 1 - tau) >= smallest
    growth = torch.sign(1 - 2 * tau) * points.factor * widens
    below, above = tau - half, 1 - tau - half
    bend_low = -low * (1 - growth / 2) / below.clamp_min(smallest) * (below >= smallest) * moves
    bend_high = -high * (1 + growth / 2) / above.clamp_min(smallest) * (above >= smallest) * moves
    return bend_low, -middle * moves, -middle * growth / (2 * half) * moves, bend_high


def _limits(dtype: torch.dtype) -> tuple[float, float]:
    information = torch.finfo(dtype)
    return max(THRESHOLD_MARGIN, information.eps), max(SMALLEST_WIDTH, information.tiny)
