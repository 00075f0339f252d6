"""Fast soft counts: the same numbers as :mod:`metricfit.confusion`'s plain formulas, at the cost of cross-entropy.

:func:`count` is called by ``count_samples``, :mod:`metricfit.fast.loss` by ``MetricLoss``. Both decline (``None``)
whatever they do not cover, and the plain formulas then serve: they are the reference, the way of ``torch.compile``,
function transforms and second derivatives, and find the words for inputs that are out of order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from metricfit.fast.batch import Batch, FivePoints, Tensors, is_dense, numba_is_here
from metricfit.fast.second_order import second_order
from metricfit.fast.torch_counts import ClosedFormCounts
from metricfit.inputs import Samples, values_can_be_inspected
from metricfit.steps import Annealed, Linear, Step

__all__ = ["count", "five_points", "is_ordinary"]

_ORDINARY = (Tensor, torch.nn.Parameter)

WHOLE_ELEMENTS = 2**25
"""More scores are left to the plain way without compiled loops: it counts them in blocks."""

NOTHING = torch.iinfo(torch.int64).min
"""A label that no sample has: flattened samples hide what is ignored by a weight of 0."""


def five_points(step: Step) -> FivePoints | None:
    """The knots of a step, if it is one of the two linear ones with a parameter that needs no gradient.

    >>> five_points(Linear())
    FivePoints(delta=0.1, factor=1.0)
    >>> five_points(Annealed(torch.tensor(0.25)))
    FivePoints(delta=0.25, factor=1.25)
    """
    if isinstance(step, Linear):
        return FivePoints(float(step.delta), 1.0)
    if not isinstance(step, Annealed):
        return None
    temperature = step.temperature
    if isinstance(temperature, Tensor):
        if temperature.ndim or temperature.requires_grad or temperature.device.type != "cpu":
            return None
        return _annealed(temperature.item(), temperature.dtype == torch.float32)
    return _annealed(float(temperature), False)


@lru_cache(maxsize=64)
def _annealed(temperature: float, is_float32: bool) -> FivePoints:
    # Five times it, rounded as the plain formula rounds it.
    return FivePoints(temperature, float(np.float32(5 * temperature)) if is_float32 else 5 * temperature)


def is_ordinary(*tensors: Any) -> bool:
    """Whether all are ordinary dense tensors, outside of tracing, function transforms and forward derivatives."""
    if not values_can_be_inspected() or forward_ad._current_level >= 0:
        return False
    for tensor in tensors:  # noqa: SIM110 - takes half as long as all(…)
        if type(tensor) not in _ORDINARY or tensor.layout is not torch.strided:
            return False
    return True


def count(
    samples: Samples,
    step: Step,
    plain: Callable[[Tensor], Tensor],
    *,
    detach_threshold: bool = False,
    from_probabilities: bool = False,
) -> Tensor | None:
    """The (d, d) soft counts at the dynamic threshold, or None.

    Args:
        samples: Of a multiclass task.
        step: The step.
        plain: The reference: the counts of other scores of the same samples.
        detach_threshold: Stop the gradient through the threshold.
        from_probabilities: Whether scores are probabilities.
    """
    scores, target, weight = samples.scores, samples.target, samples.weight
    if not is_ordinary(scores, target, weight) or target.ndim == 2 or weight.requires_grad or not len(scores):
        return None
    points = five_points(step)
    if points is None or (scores.numel() > WHOLE_ELEMENTS and not _is_compiled(scores)):
        return None
    if not (_is_compiled(scores) and target.is_cpu and weight.is_cpu):
        options = (points, not from_probabilities, detach_threshold, plain)
        counted: Tensor = ClosedFormCounts.apply(scores, target, weight, *options)  # type: ignore[no-untyped-call]
        return counted
    batch = Batch(points, ignore=NOTHING, is_softmax=not from_probabilities, is_fixed=detach_threshold)
    dense = scores if is_dense(scores) else scores.contiguous()
    tensors = (dense, target, weight.contiguous(), None)
    counts = batch.count(tensors)
    if counts is None:
        return None
    matrix = torch.from_numpy(
        counts.sum(axis=0, dtype="float64").astype(counts.dtype) if len(counts) > 1 else counts[0]
    )
    if not (torch.is_grad_enabled() and scores.requires_grad):
        return matrix
    result: Tensor = _SoftCounts.apply(*tensors, batch, matrix, plain)  # type: ignore[no-untyped-call]
    return result


def _is_compiled(scores: Tensor) -> bool:
    return scores.is_cpu and scores.dtype == torch.float32 and numba_is_here()


class _SoftCounts(torch.autograd.Function):
    """Ties counts that were made by a batch to its scores."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        *tensors, ctx.batch, matrix, ctx.plain = arguments
        ctx.save_for_backward(*tensors)
        result: Tensor = matrix
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        tensors: Tensors = ctx.saved_tensors
        if torch.is_grad_enabled():
            (gradient,) = second_order(ctx.plain, tensors[0], gradients[0])
        else:
            gradient = ctx.batch.pull_back(tensors, gradients[0].contiguous().numpy())
        return gradient, None, None, None, None, None, None
