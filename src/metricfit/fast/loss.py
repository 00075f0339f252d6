"""The whole of ``MetricLoss`` in one step: logits to loss, without intermediate tensors, where everything is usual."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed

from metricfit.distributed import sum_over_processes
from metricfit.fast import is_ordinary
from metricfit.fast.array_loss import ArrayBatch, takes_arrays
from metricfit.fast.batch import LIMITS, ROWS_FROM, Batch, FivePoints, is_dense, numba_is_here
from metricfit.fast.metric_gradients import ClosedForm, as_array
from metricfit.fast.second_order import second_order
from metricfit.fast.threads import SERIAL_ELEMENTS
from metricfit.fast.torch_loss import TorchBatch
from metricfit.numerics import accumulation_dtype

__all__ = ["fused_binary_loss", "fused_loss"]

Array = np.ndarray[Any, Any]
_LIMITS = LIMITS[np.dtype(np.float32)]
PullBack = Callable[[Tensor, Tensor], Tensor]
"""From the logits and the gradient of the loss to the gradient of the logits."""
Blend = Callable[[Array], tuple[Array, float]]
"""From the counts of a batch to the matrix that the metric is taken of, and its derivative with respect to them."""


def fused_loss(
    metric: ClosedForm,
    points: FivePoints,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    sample_weight: Tensor | None,
    plain: Callable[[Tensor], Tensor],
    *,
    ignore_index: int,
    skip_absent: bool,
    detach_threshold: bool,
    validate: bool = True,
    group: Any = None,
    blend: Blend | None = None,
) -> Tensor | None:
    """The loss of a multiclass batch of logits, or None where the plain way must be taken or finds an error.

    Args:
        metric: The metric, differentiated by hand.
        points: The step.
        input: Logits (N, C, …), an ordinary tensor (:func:`metricfit.fast.is_ordinary`).
        target: Class indices (N, …), ordinary too.
        weight: Class weights.
        sample_weight: Sample weights.
        plain: The reference: the loss of other logits of the same batch.
        ignore_index: Target value of positions that do not count.
        skip_absent: Whether averages leave out classes without support.
        detach_threshold: Stop the gradient through the threshold.
        validate: Whether values may be looked at where that means to wait for a device.
        group: The processes whose counts are added up, from :func:`metricfit.distributed.group_of`.
        blend: A memory of the counts.
    """
    shape, elements = input.shape, input.numel()
    positions = shape[:1] + shape[2:]
    if target.shape != positions or target.dtype is not torch.int64 or not elements or not 1 < shape[1] > metric.label:
        return None
    if weight is not None and not _are_weights(weight, shape[1:2], input):
        return None
    if sample_weight is not None and not _are_weights(sample_weight, positions, input):
        return None
    wants_gradient = input.requires_grad and torch.is_grad_enabled()
    is_compiled = input.dtype is torch.float32 and input.is_cpu and target.is_cpu and numba_is_here()
    is_small = elements <= SERIAL_ELEMENTS and shape[1] < ROWS_FROM
    if not (input.is_contiguous() or is_dense(input)):
        input = input.contiguous()
    value: Any
    pull_back: PullBack
    if not is_compiled:
        # Other processes expect a matrix, which this does without.
        if group is not None or target.device != input.device or not input.is_floating_point() or blend is not None:
            return None
        whole: ArrayBatch | TorchBatch
        arguments = (points, input, target, weight, sample_weight)
        if takes_arrays(input):
            whole = ArrayBatch(*arguments, ignore_index=ignore_index, is_fixed=detach_threshold)
        else:
            whole = TorchBatch(
                *arguments, ignore_index=ignore_index, is_fixed=detach_threshold, may_wait=validate or input.is_cpu
            )
        value = whole.loss(input, metric, skip_absent, wants_gradient)
        if value is None:
            return None
        pull_back = whole.pull_back
    elif is_small and group is None and blend is None and input.is_contiguous() and target.is_contiguous():
        small = _SmallBatch(metric, points, (target, _as_floats(weight), _as_floats(sample_weight)))
        value = small.loss(input, (ignore_index, detach_threshold, skip_absent), wants_gradient)
        if value != value:
            return None
        pull_back = small.pull_back
    else:
        batch = Batch(points, ignore=ignore_index, is_softmax=True, is_fixed=detach_threshold)
        others = (target.reshape(-1), _as_floats(sample_weight), _as_floats(weight))
        counts = batch.count((input, *others))
        if counts is None:
            return None
        if group is not None:
            counts = _of_all(counts, group)
        factor = 1.0
        if blend is not None:
            if not counts.any():
                return None  # nothing to learn from, and nothing to remember
            blended, factor = blend(counts.sum(axis=0, dtype=np.float64))
            counts = blended[None].astype(counts.dtype)
        value, gradient = metric.loss_and_gradient(counts, skip_absent)
        gradient *= factor
        if group is not None:
            gradient *= distributed.get_world_size(group)  # as in metricfit.distributed

        def pull_back(scores: Tensor, scale: Tensor) -> Tensor:
            return batch.pull_back((scores, *others), gradient if scale.item() == 1 else gradient * scale.item())

    if not wants_gradient:
        return _as_scalar(value, input.dtype)
    return _tie(input, value, pull_back, plain)


def fused_binary_loss(
    metric: ClosedForm,
    points: FivePoints,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    sample_weight: Tensor | None,
    plain: Callable[[Tensor], Tensor],
    *,
    ignore_index: int,
    blend: Blend | None = None,
) -> Tensor | None:
    """The loss of one logit a sample at the threshold 1/2, or None; arguments as in :func:`fused_loss`."""
    if not (input.is_cpu and target.is_cpu and input.dtype is torch.float32 and numba_is_here()):
        return None
    if not input.numel() or target.shape != input.shape:
        return None
    if weight is not None and not _are_weights(weight, torch.Size([2]), input):
        return None
    if sample_weight is not None and not _are_weights(sample_weight, input.shape, input):
        return None
    classes = target.long()
    if target.is_floating_point() and not torch.equal(classes.to(target.dtype), target):
        return None  # shares, or NaN
    weights = _NO_WEIGHTS if sample_weight is None else sample_weight.to(torch.float32)
    both = _EQUAL_WEIGHTS if weight is None else weight.to(torch.float32)
    arrays = [tensor.detach().reshape(-1).numpy() for tensor in (input, classes, weights, both)]
    counts, step = np.zeros((2, 2)), (points.delta, points.factor, _LIMITS)
    kept = np.empty((2, input.numel()), np.float32)
    if not _one_logit_kernels().count(*arrays, ignore_index, *step, *kept, counts):
        return None
    if blend is not None and not counts.any():
        return None
    matrix, factor = (counts, 1.0) if blend is None else blend(counts)
    value, gradient = metric.loss_and_gradient(matrix[None], True)
    if not (input.requires_grad and torch.is_grad_enabled()):
        return _as_scalar(value, input.dtype)

    def pull_back(scores: Tensor, scale: Tensor) -> Tensor:
        result = torch.empty(scores.shape)
        out = result.view(-1).numpy()
        _one_logit_kernels().pull_back(arrays[1], *step, *kept, gradient * (factor * scale.item()), out)
        return result

    return _tie(input, value, pull_back, plain)


def _are_weights(weights: Tensor, shape: torch.Size, like: Tensor) -> bool:
    return (
        is_ordinary(weights) and weights.device == like.device and weights.shape == shape and not weights.requires_grad
    )


def _as_floats(weights: Tensor | None) -> Tensor | None:
    # Side by side: the loop for small batches reads them by address. A column of a table stays one when flattened.
    return None if weights is None else weights.reshape(-1).to(torch.float32).contiguous()


def _as_scalar(value: Any, dtype: torch.dtype) -> Tensor:
    dtype = accumulation_dtype(dtype)
    return value.to(dtype) if isinstance(value, Tensor) else torch.scalar_tensor(value, dtype=dtype)


class _FusedLoss(torch.autograd.Function):
    """Ties a loss that was computed with its gradient to the logits."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        scores, value, ctx.pull_back, ctx.plain = arguments
        ctx.save_for_backward(scores)
        return _as_scalar(value, scores.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (scores,) = ctx.saved_tensors
        if torch.is_grad_enabled():
            (gradient,) = second_order(ctx.plain, scores, gradients[0])
        else:
            gradient = ctx.pull_back(scores, gradients[0])
        return gradient, None, None, None


# Function.apply first looks for function transforms; an ordinary tensor has none, and here it would cost a tenth.
_tie: Callable[..., Tensor] = super(torch.autograd.Function, _FusedLoss).apply


class _SmallBatch:
    """A contiguous batch of few classes, which one compiled call serves: :mod:`metricfit.fast.small`."""

    __slots__ = ("gradient", "metric", "options", "points", "tensors")

    def __init__(
        self, metric: ClosedForm, points: FivePoints, tensors: tuple[Tensor, Tensor | None, Tensor | None]
    ) -> None:
        self.metric = metric
        self.points = points
        self.tensors = tensors

    def loss(self, input: Tensor, options: tuple[int, bool, bool], wants_gradient: bool) -> float:
        """The loss, or NaN; the gradient is taken with it, since a call of its own would cost more."""
        self.options = options
        self.gradient = gradient = torch.empty_like(input) if wants_gradient else None
        target, weight, sample_weight = self.tensors
        size, classes = input.shape[:2]
        points, metric = self.points, self.metric
        value: float = _small_kernel()(
            input.data_ptr(),
            target.data_ptr(),
            0 if weight is None else weight.data_ptr(),
            0 if sample_weight is None else sample_weight.data_ptr(),
            0 if gradient is None else gradient.data_ptr(),
            size, classes, 1 if input.ndim == 2 else input.numel() // (size * classes),
            points.delta, points.factor, *options, _LIMITS, as_array(metric.ratio), metric.label, metric.undefined,
        )  # fmt: skip
        return value

    def pull_back(self, input: Tensor, scale: Tensor) -> Tensor:
        """The gradient with respect to the logits, given that of the loss."""
        if self.gradient is None:  # an earlier call gave it away
            self.loss(input, self.options, True)
        gradient: Tensor
        gradient, self.gradient = self.gradient, None  # type: ignore[assignment]
        return gradient if scale.item() == 1 else gradient.mul_(scale)


@cache
def _small_kernel() -> Any:
    from metricfit.fast.small import loss_and_gradient  # brings numba

    return loss_and_gradient


@cache
def _one_logit_kernels() -> Any:
    from metricfit.fast import one_logit  # brings numba

    return one_logit


_NO_WEIGHTS, _EQUAL_WEIGHTS = torch.empty(0), torch.ones(2)


def _of_all(counts: Array, group: Any) -> Array:
    """The counts of all processes. The same message as the plain path's, which another process may have to take."""
    mine = torch.from_numpy(counts.sum(axis=0, dtype=np.float64))
    _, everyone = sum_over_processes([mine.sum(), mine], group)
    return everyone.numpy()[None].astype(counts.dtype)
