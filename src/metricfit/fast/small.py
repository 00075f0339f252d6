"""A small batch of few classes, from logits to loss and gradient in one compiled call.

There the calls between Python, NumPy and torch cost more than the samples. So tensors are handed over as addresses, and
the gradient is taken at once: a second call, the arrays it needs and their bookkeeping would take longer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray
from numba.core import types
from numba.extending import intrinsic

from metricfit.fast import lanes
from metricfit.fast.compiled import (
    BAD_WEIGHT,
    GOOD,
    NO_SUCH_CLASS,
    NOT_FINITE,
    TINY,
    compiled,
    exponential,
    step_at,
)
from metricfit.fast.lanes import HALF, HIGH, LANES, LOW, MEAN, MIDDLE, SHARE, TAU, column
from metricfit.fast.matrices import loss_of_sums

__all__ = ["floats_at", "loss_and_gradient"]


def _pointer(element: Any) -> Any:
    @intrinsic  # type: ignore[untyped-decorator]
    def pointer(context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return types.CPointer(element)(types.intp), generate  # type: ignore[attr-defined]

    return pointer


floats_at, _integers = _pointer(types.float32), _pointer(types.int64)


THRESHOLD, INVERSE, SHARE_KEPT, AT_FIRST, AT_SECOND = 0 * LANES, 1 * LANES, 2 * LANES, 3 * LANES, 4 * LANES
COLUMNS = 5 * LANES
"""What a block of samples keeps beside its probabilities."""


@compiled()
def _weigh(
    target: Any, weight: Any, class_weight: Any, ignore: int, position: int, size: int, block: Any, weights: Any
) -> int:
    """The weights of a block, unless labels or weights are wrong; what is ignored becomes 0, even NaN."""
    classes = len(block) // LANES
    number = block.dtype.type
    zero, one = number(0), number(1)
    for r in range(LANES):
        label = target[position + r] if r < size else ignore
        if label == ignore:
            weights[r] = zero
            for k in range(classes):
                block[k * LANES + r] = zero
            continue
        if label < 0 or label >= classes:
            return NO_SUCH_CLASS
        w = weight[position + r] if len(weight) else one
        if len(class_weight):
            w *= class_weight[label]
        if not (w >= zero and w < np.inf):
            return BAD_WEIGHT
        weights[r] = w
    return GOOD


@compiled()
def _steps(p: Any, scale: Any, work: Any, total: Any, h: Any, one: Any) -> None:
    """Exponentials in ``p`` to probabilities, and their steps into ``h``."""
    for r in range(len(scale)):
        total[r] = one - one
    for k in range(len(p) // LANES):
        at = k * LANES
        for r in range(len(scale)):
            x = p[at + r] * scale[r]
            y = step_at(x, work[TAU + r], work[HALF + r], work[LOW + r], work[MIDDLE + r], work[HIGH + r], one)
            p[at + r] = x
            h[at + r] = y
            total[r] += y


@compiled()
def _add(h: Any, share: Any, sums: Any) -> None:
    for k in range(len(h) // LANES):
        at = k * LANES
        for r in range(len(share)):
            sums[at + r] += h[at + r] * share[r]


@compiled()
def _thresholds(first: Any, second: Any, total: Any, scale: Any, mean: Any, limits: Any) -> None:
    one, two = limits.dtype.type(1), limits.dtype.type(2)
    for r in range(len(total)):
        scale[r] = one / total[r]
        mean[r] = (one + exponential(second[r] - first[r], limits)) * scale[r] / two


@compiled()
def _keep(
    mean: Any, total: Any, weights: Any, at_first: Any, at_second: Any, share: Any, limits: Any, kept: Any
) -> None:
    zero, one = limits.dtype.type(0), limits.dtype.type(1)
    for r in range(len(total)):
        inverse = one / total[r] if total[r] > limits[TINY] else zero
        share[r] = inverse * weights[r]
        kept[THRESHOLD + r] = mean[r]
        kept[INVERSE + r] = inverse
        kept[SHARE_KEPT + r] = inverse * weights[r]
        kept[AT_FIRST + r] = at_first[r]
        kept[AT_SECOND + r] = at_second[r]


@compiled()
def _count(
    scores: Any, target: Any, weight: Any, class_weight: Any, ignore: int, points: Any, limits: Any, p: Any, kept: Any,
    hits: Any, true: Any, predicted: Any,
) -> int:  # fmt: skip
    """The three sums that the metric needs, and what the gradient will need."""
    classes, length = scores.shape[1], scores.shape[2]
    number = limits.dtype.type
    zero, one = number(0), number(1)
    h, sums = np.zeros(classes * LANES, scores.dtype), np.zeros(classes * LANES, scores.dtype)
    work = np.zeros(lanes.COLUMNS, scores.dtype)
    first, second, at_first, at_second = column(scores), column(scores), column(scores), column(scores)
    total, scale, mean, share, weights = column(scores), column(scores), column(scores), column(scores), column(scores)
    position = 0
    for b in range(len(p)):
        size = lanes.size_of_block(position, len(target), length)
        block = p[b]
        lanes.load(scores, position, size, block)
        status: int = _weigh(target, weight, class_weight, ignore, position, size, block, weights)
        if status:
            return status
        lanes.two_largest(block, classes, first, second, at_first, at_second)
        lanes.exponentials(block, classes, first, total, limits)
        _thresholds(first, second, total, scale, mean, limits)
        lanes.set_segments(mean, points[0], points[1], limits, work)
        _steps(block, scale, work, total, h, one)
        _keep(mean, total, weights, at_first, at_second, share, limits, kept[b])
        for r in range(size):
            label = target[position + r]
            if label != ignore:
                if not total[r] >= zero:
                    return NOT_FINITE
                hits[label] += share[r] * h[label * LANES + r]
                true[label] += weights[r]
        _add(h, share, sums)
        position += size
    for k in range(classes):
        for r in range(LANES):
            predicted[k] += sums[k * LANES + r]
    return GOOD


@compiled()
def _recall(kept: Any, of_mean: Any, work: Any) -> None:
    for r in range(len(of_mean)):
        work[MEAN + r] = of_mean[r] * kept[INVERSE + r]
        work[SHARE + r] = kept[SHARE_KEPT + r]


@compiled()
def _pull_back(
    p: Any, kept: Any, target: Any, ignore: int, points: Any, limits: Any, columns: Any, diagonal: Any, is_fixed: bool,
    out: Any,
) -> None:  # fmt: skip
    """The gradient, given the two parts of the matrix's that matter: a number for a whole row moves nothing."""
    classes, length = out.shape[1], out.shape[2]
    number = limits.dtype.type
    one, two = number(1), number(2)
    start, g = np.zeros(classes * LANES, p.dtype), np.zeros(classes * LANES, p.dtype)
    for k in range(classes):
        start[k * LANES : (k + 1) * LANES] = number(columns[k])
    work, sums, mean, of_mean = np.zeros(lanes.COLUMNS, p.dtype), np.zeros(2 * LANES, p.dtype), column(p), column(p)
    position = 0
    for b in range(len(p)):
        size = lanes.size_of_block(position, len(target), length)
        block, mine = p[b], kept[b]
        g[:] = start
        for r in range(size):
            label = target[position + r]
            if label != ignore:
                g[label * LANES + r] += number(diagonal[label])
        mean[:] = mine[:LANES]
        lanes.set_segments(mean, points[0], points[1], limits, work)
        lanes.set_bends(mean, points[0], points[1], limits, work)
        lanes.mean_gradient(block, g, classes, work, of_mean, one)
        _recall(mine, of_mean, work)
        lanes.pull_back_step(block, g, classes, work, sums, one)
        if not is_fixed:
            for r in range(size):
                half = sums[LANES + r] / two
                i, j = int(mine[AT_FIRST + r]) * LANES + r, int(mine[AT_SECOND + r]) * LANES + r
                g[i] += half
                g[j] += half
                sums[r] += half * (block[i] + block[j])
        lanes.pull_back_softmax(block, g, classes, sums)
        lanes.store(g, position, size, out)
        position += size


@compiled()
def loss_and_gradient(
    scores_at: int, target_at: int, class_weight_at: int, weight_at: int, gradient_at: int, size: int, classes: int,
    length: int, delta: float, factor: float, ignore: int, is_fixed: bool, skip_absent: bool, limits: Any, ratio: Any,
    label: int, undefined: float,
) -> float:  # fmt: skip
    """The loss of contiguous float32 scores (size, classes, length), or NaN where something is out of order.

    Args:
        scores_at: Address of the logits.
        target_at: Of the class indices, int64.
        class_weight_at: Of the class weights; 0 where there are none.
        weight_at: Of the sample weights; 0 where there are none.
        gradient_at: Where the gradient goes; 0 if none is wanted.
        size: N.
        classes: C.
        length: Positions of one of N.
        delta: Of the step, see ``FivePoints``.
        factor: Of the step.
        ignore: The label of samples that do not count.
        is_fixed: Whether no gradient flows through the threshold.
        skip_absent: Whether averages leave out classes without support.
        limits: See :mod:`metricfit.fast.compiled`.
        ratio: Of the metric, see ``ClosedForm``; empty for MCC.
        label: The class; -1 for the macro average.
        undefined: The value of 0/0.
    """
    number = limits.dtype.type
    scores = carray(floats_at(scores_at), (size, classes, length))
    target = carray(_integers(target_at), (size * length,))
    weight = carray(floats_at(weight_at), (size * length if weight_at else 0,))
    class_weight = carray(floats_at(class_weight_at), (classes if class_weight_at else 0,))
    blocks = size * -(-length // LANES) if length > 1 else -(-size // LANES)
    p, kept = np.empty((blocks, classes * LANES), scores.dtype), np.empty((blocks, COLUMNS), scores.dtype)
    hits, true, predicted = np.zeros(classes), np.zeros(classes), np.zeros(classes)
    points = number(delta), number(factor)
    if _count(scores, target, weight, class_weight, ignore, points, limits, p, kept, hits, true, predicted):
        return np.nan
    value, _, columns, diagonal = loss_of_sums(hits, true, predicted, ratio, label, undefined, skip_absent)
    if gradient_at:
        out = carray(floats_at(gradient_at), (size, classes, length))
        _pull_back(p, kept, target, ignore, points, limits, columns, diagonal, is_fixed, out)
    return float(value)
