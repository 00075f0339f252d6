"""The whole matrix of soft counts in plain torch, for the metrics that need it; its backward pass in closed form."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metricfit.fast.closed_form import count_block, pull_back_block
from metricfit.fast.layout import Layout
from metricfit.fast.second_order import second_order

__all__ = ["ClosedFormCounts"]


class ClosedFormCounts(torch.autograd.Function):
    """Soft counts (d, d) of scores (n, d), labels (n,) and weights (n,)."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        """Arguments: scores, target, weight, points, is_softmax, is_fixed, plain."""
        scores, target, weight, ctx.points, ctx.is_softmax, ctx.is_fixed, ctx.plain = arguments
        ctx.layout = layout = Layout(scores)
        counts: Tensor = scores.new_zeros(scores.shape[1], scores.shape[1])
        ctx.kept = []
        for block, labels, weights in _blocks(layout, scores, target, weight):
            h, counted = count_block(block.contiguous(), ctx.points, is_softmax=ctx.is_softmax)
            rows = h.mul_(weights).movedim(1, -1).reshape(-1, layout.classes)
            counts.index_add_(0, labels.flatten(), rows)
            ctx.kept.append(counted)
        ctx.save_for_backward(scores, target, weight)
        return counts

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of the scores alone."""
        scores, target, weight = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *second_order(ctx.plain, scores, gradients[0]), None, None, None, None, None, None
        result = torch.empty_like(scores)
        blocks = _blocks(ctx.layout, result, target, weight)
        options = {"is_softmax": ctx.is_softmax, "is_fixed": ctx.is_fixed}
        for counted, (out, labels, weights) in zip(ctx.kept, blocks, strict=True):
            size, _, length = labels.shape
            g = gradients[0].index_select(0, labels.flatten()).view(size, length, -1).movedim(-1, 1).contiguous()
            out.copy_(pull_back_block(g, weights, counted, ctx.points, **options))
        return result, None, None, None, None, None, None


def _blocks(layout: Layout, scores: Tensor, target: Tensor, weight: Tensor) -> Any:
    return zip(layout.scores(scores), layout.samples(target), layout.samples(weight), strict=True)
