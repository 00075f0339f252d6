"""The closed-form backward in plain torch: for other dtypes and devices, and where numba is not installed.

The same formulas as the compiled loops, over whole (n, d) tensors. The places of the two largest probabilities, their
sums and the steps are kept; nothing is recorded by autograd.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metricfit._kernels.batch import FivePoints
from metricfit._kernels.second_order import second_order
from metricfit.steps import SMALLEST_WIDTH, THRESHOLD_MARGIN

__all__ = ["ClosedFormCounts"]


class ClosedFormCounts(torch.autograd.Function):
    """Soft counts (d, d) of scores (n, d), labels (n,) and weights (n,)."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        """Arguments: scores, target, weight, points, is_softmax, is_fixed, plain."""
        scores, target, weight, points, ctx.is_softmax, ctx.is_fixed, ctx.plain = arguments
        p = scores.softmax(dim=-1) if ctx.is_softmax else scores
        largest, places = p.topk(2, dim=-1)
        mean = largest.mean(dim=-1, keepdim=True)
        segments = _segments(mean, points)
        offset = p - segments[0]
        below, above = offset < -segments[1], offset > segments[1]
        h = torch.where(
            below,
            p * segments[2],
            torch.where(above, 1 - (1 - p) * segments[4], (offset * segments[3]).add_(0.5)),
        )
        total = h.sum(dim=-1, keepdim=True)
        inverse = torch.where(total > torch.finfo(p.dtype).tiny, 1 / total, torch.zeros_like(total))
        counts: Tensor = p.new_zeros(p.shape[1], p.shape[1]).index_add_(0, target, h * (inverse * weight[:, None]))
        ctx.points = points
        ctx.save_for_backward(scores, target, weight, p, places, mean, inverse, h)
        return counts

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of the scores alone."""
        scores, target, weight, p, places, mean, inverse, h = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *second_order(ctx.plain, scores, gradients[0]), None, None, None, None, None, None
        tau, half, low, middle, high = _segments(mean, ctx.points)
        g = gradients[0].index_select(0, target)
        g.sub_((g * h).sum(dim=-1, keepdim=True).mul_(inverse)).mul_(inverse * weight[:, None])
        offset = p - tau
        below, above = offset < -half, offset > half
        out = g * torch.where(below, low, torch.where(above, high, middle))
        if not ctx.is_fixed:
            bend_low, bend_between, bend_middle, bend_high = _bends(mean, ctx.points)
            inside = offset.mul_(bend_middle).add_(bend_between)
            bend = torch.where(below, p * bend_low, torch.where(above, (1 - p) * bend_high, inside))
            of_threshold = g.mul_(bend).sum(dim=-1, keepdim=True) / 2
            out.scatter_add_(1, places, of_threshold.expand(-1, 2))
        if ctx.is_softmax:
            out.sub_((out * p).sum(dim=-1, keepdim=True)).mul_(p)
        return out, None, None, None, None, None, None


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
