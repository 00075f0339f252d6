"""The whole of ``MetricLoss`` in one step: logits to loss, without intermediate tensors, where everything is usual."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed

from metricfit._kernels import is_ordinary
from metricfit._kernels.batch import Batch, FivePoints, Tensors, is_dense, numba_is_here
from metricfit._kernels.metric_gradients import ClosedForm
from metricfit._kernels.second_order import second_order
from metricfit.distributed import sum_over_processes

__all__ = ["fused_loss"]

Array = np.ndarray[Any, Any]


def fused_loss(
    metric: ClosedForm,
    input: Tensor,
    target: Tensor,
    plain: Callable[[Tensor], Tensor],
    *,
    points: FivePoints,
    weight: Tensor | None,
    sample_weight: Tensor | None,
    ignore_index: int,
    skip_absent: bool,
    detach_threshold: bool,
    group: Any = None,
) -> Tensor | None:
    """The loss of a multiclass batch of logits, or None where the plain way must be taken or finds an error.

    Args:
        metric: The metric, differentiated by hand.
        input: Logits (N, C, …).
        target: Class indices (N, …).
        plain: The reference: the loss of other logits of the same batch.
        points: The step.
        weight: Class weights.
        sample_weight: Sample weights.
        ignore_index: Target value of positions that do not count.
        skip_absent: Whether averages leave out classes without support.
        detach_threshold: Stop the gradient through the threshold.
        group: The processes whose counts are added up, from :func:`metricfit.distributed.group_of`.
    """
    if not isinstance(input, Tensor) or not isinstance(target, Tensor) or not numba_is_here():
        return None
    if not is_ordinary(input, target, weight, sample_weight) or input.ndim < 2:
        return None
    if input.dtype != torch.float32 or not (input.is_cpu and target.is_cpu):
        return None
    positions = input.shape[:1] + input.shape[2:] if input.ndim > 2 else input.shape[:1]
    if target.shape != positions or target.dtype != torch.int64 or not input.numel() or input.shape[1] < 2:
        return None
    if metric.label >= input.shape[1]:
        return None
    if weight is not None and (weight.requires_grad or not weight.is_cpu or weight.shape != input.shape[1:2]):
        return None
    if sample_weight is not None and (
        sample_weight.requires_grad or not sample_weight.is_cpu or sample_weight.shape != positions
    ):
        return None
    tensors = (
        input if is_dense(input) else input.contiguous(),
        target if target.ndim == 1 else target.reshape(-1),
        None if sample_weight is None else sample_weight.reshape(-1).to(input.dtype),
        None if weight is None else weight.to(input.dtype),
    )
    batch = Batch(points, ignore=ignore_index, is_softmax=True, is_fixed=detach_threshold)
    wants_gradient = torch.is_grad_enabled() and input.requires_grad
    counts = batch.count(tensors)
    if counts is None:
        return None
    if group is not None:
        counts = _of_all(counts, group)
    value, gradient = metric.loss_and_gradient(counts, skip_absent)
    if group is not None:
        gradient *= distributed.get_world_size(group)  # as in metricfit.distributed
    loss = torch.scalar_tensor(value, dtype=input.dtype)  # torch.tensor takes five times as long
    if not wants_gradient:
        return loss
    result: Tensor = _FusedLoss.apply(tensors[0], tensors, batch, loss, gradient, plain)  # type: ignore[no-untyped-call]
    return result


class _FusedLoss(torch.autograd.Function):
    """Ties a loss that was computed with its gradient to the logits."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        scores, (_, *ctx.others), ctx.batch, loss, ctx.gradient, ctx.plain = arguments
        ctx.save_for_backward(scores)
        result: Tensor = loss
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (scores,) = ctx.saved_tensors
        if torch.is_grad_enabled():
            (gradient,) = second_order(ctx.plain, scores, gradients[0])
        else:
            scale = gradients[0].item()
            tensors: Tensors = (scores, *ctx.others)
            gradient = ctx.batch.pull_back(tensors, ctx.gradient if scale == 1 else ctx.gradient * scale)
        return gradient, None, None, None, None, None


def _of_all(counts: Array, group: Any) -> Array:
    """The counts of all processes. The same message as the plain path's, which another process may have to take."""
    mine = torch.from_numpy(counts.sum(axis=0, dtype=np.float64))
    _, everyone = sum_over_processes([mine.sum(), mine], group)
    return everyone.numpy()[None].astype(counts.dtype)
