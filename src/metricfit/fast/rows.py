"""Many classes side by side in memory: one sample after the other, every loop vectorised over its classes.

Without a block to be brought into order and back this takes a third of the time of :mod:`metricfit.fast.lanes`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from metricfit.fast.lanes import (
    BAD_WEIGHT,
    DELTA,
    END,
    GOOD,
    INVERSE,
    LARGEST,
    LOW,
    MIDDLE,
    NO_SUCH_CLASS,
    NOT_FINITE,
    SHARE,
    START,
    SUMS,
    TOTAL,
    above,
    almost_two,
    compiled,
    exponential,
    movement,
    slope_at,
    step_at,
)  # fmt: skip

__all__ = ["count_rows", "pull_back_rows"]

FLUSH = 256
"""After so many samples sums in the dtype of the scores are added to those in float64."""


def _reorder(builder: Any, bits: Any) -> Any:
    """Flip all but the sign of negative numbers, so that bits are in the order of the numbers; and back again."""
    sign = builder.ashr(bits, ir.Constant(bits.type, bits.type.width - 1))
    return builder.xor(bits, builder.lshr(sign, ir.Constant(bits.type, 1)))


@intrinsic  # type: ignore[untyped-decorator]
def _rank(context: Any, x: Any) -> Any:
    """A whole number that is the larger, the larger x is, and largest of all for NaN.

    LLVM vectorises the maximum of whole numbers, but not that of numbers of which one may be NaN.
    """
    whole = types.int64 if x == types.float64 else types.int32

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _reorder(builder, builder.bitcast(arguments[0], context.get_value_type(whole)))

    return whole(x), generate


@intrinsic  # type: ignore[untyped-decorator]
def _of_rank(context: Any, rank: Any) -> Any:
    number = types.float64 if rank == types.int64 else types.float32

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(_reorder(builder, arguments[0]), context.get_value_type(number))

    return number(rank), generate


@compiled(fastmath=SUMS)
def _two_largest(row: Any) -> Any:
    number = row.dtype.type
    first = second = lowest = _rank(number(-np.inf))
    ties = number(0)
    for k in range(len(row)):
        rank = _rank(row[k])
        first = rank if rank > first else first
    for k in range(len(row)):
        rank = _rank(row[k])
        ties += number(rank == first)
        lower = rank if rank < first else lowest
        second = lower if lower > second else second
    return _of_rank(first), _of_rank(first if ties > number(1) else second)


@compiled(fastmath=SUMS)
def _units(row: Any, first: Any, largest: Any, points: Any, u: Any) -> Any:
    """The scores in units of the threshold, into ``u``; their sum and that of the steps, held at the middle's end."""
    zero, one = points.dtype.type(0), points.dtype.type(1)
    low, middle, start, end, top = points[LOW], points[MIDDLE], points[START], points[END], one - points[DELTA]
    total = steps = zero
    for k in range(len(row)):
        x = exponential(row[k] - first, points) * largest
        u[k] = x
        total += x
        steps += step_at(x, low, middle, start, end, top, zero, one)
    return total, steps


@compiled()
def _add_steps(u: Any, share: Any, rate: Any, points: Any, sums: Any) -> None:
    one = points.dtype.type(1)
    low, middle, start, end, top = points[LOW], points[MIDDLE], points[START], points[END], one - points[DELTA]
    for k in range(len(u)):
        sums[k] += share * step_at(u[k], low, middle, start, end, top, rate, one)


@compiled()
def count_rows(
    scores: Any, target: Any, weight: Any, class_weight: Any, ignore: int, points: Any, parts: Any, begin: int,
    end: int, by_class: bool, counts: Any, keeps: bool, out: Any, kept: Any,
) -> int:  # fmt: skip
    """Count the samples of some parts; arguments as in :func:`metricfit.fast.lanes.count_lanes`, scores (N, d)."""
    classes = scores.shape[1]
    number = points.dtype.type
    zero, one = number(0), number(1)
    scratch, sums = np.empty(classes, scores.dtype), np.zeros(classes, scores.dtype)
    for part in range(begin, end):
        mine, cells = points[parts[part, 2]], counts[part]
        for i in range(parts[part, 0], parts[part, 1]):
            if by_class and (i - parts[part, 0]) % FLUSH == 0:
                cells[2] += sums
                sums[:] = zero
            label = target[i]
            if label == ignore:
                kept[SHARE, i] = zero
                continue
            if label < 0 or label >= classes:
                return NO_SUCH_CLASS
            w = weight[i] if len(weight) else one
            if len(class_weight):
                w *= class_weight[label]
            if not (w >= zero and w < np.inf):
                return BAD_WEIGHT
            u = out[i] if keeps else scratch
            a, b = _two_largest(scores[i])
            largest = number(2) / (one + exponential(b - a, mine))
            total, steps = _units(scores[i], a, largest, mine, u)
            rate = mine[DELTA] / above(total, mine)
            inverse = one / (steps + max(largest - mine[END], zero) * rate)
            if not inverse > zero:
                return NOT_FINITE
            share = w * inverse
            kept[LARGEST, i], kept[TOTAL, i], kept[INVERSE, i], kept[SHARE, i] = largest, total, inverse, share
            if by_class:
                _add_steps(u, share, rate, mine, sums)
                _add_steps(u[label : label + 1], share, rate, mine, cells[0, label : label + 1])
                cells[1, label] += w
            else:
                _add_steps(u, share, rate, mine, cells[label])
        if by_class:
            cells[2] += sums
            sums[:] = zero
    return GOOD


@compiled(fastmath=SUMS)
def _reduce(u: Any, g: Any, points: Any, largest: Any, rate: Any) -> Any:
    """As in :mod:`metricfit.fast.lanes`, of one sample."""
    number = points.dtype.type
    zero, one = number(0), number(1)
    low, middle, start, end, top = points[LOW], points[MIDDLE], points[START], points[END], one - points[DELTA]
    of_h = of_slope = slopes = of_largest = firsts = both = zero
    bound = almost_two(points) - largest
    for k in range(len(u)):
        x = u[k]
        moved = x * slope_at(x, low, middle, start, end, rate)
        of_h += g[k] * step_at(x, low, middle, start, end, top, rate, one)
        of_slope += g[k] * moved
        slopes += moved
        is_first = number(x >= largest)
        of_largest += g[k] * is_first
        firsts += is_first
        both += number(x >= bound)
    return of_h, of_slope, slopes, of_largest, firsts, both


@compiled()
def _pull_back(
    u: Any, g: Any, points: Any, largest: Any, rate: Any, share: Any, mean: Any, factor: Any, of_first: Any,
    of_second: Any,
) -> None:  # fmt: skip
    """The gradient of the scores in the place of u."""
    zero = points.dtype.type(0)
    low, middle, start, end = points[LOW], points[MIDDLE], points[START], points[END]
    bound = almost_two(points) - largest
    for k in range(len(u)):
        x = u[k]
        y = ((g[k] - mean) * share * slope_at(x, low, middle, start, end, rate) - factor) * x
        y -= of_second if x >= bound else zero
        u[k] = y - (of_first if x >= largest else zero)


@compiled()
def pull_back_rows(
    target: Any, points: Any, parts: Any, begin: int, end: int, by_class: bool, gradient: Any, is_fixed: bool,
    kept: Any, out: Any,
) -> int:  # fmt: skip
    """The gradient of some parts; arguments as in :func:`metricfit.fast.lanes.pull_back_lanes`."""
    own = np.empty(out.shape[1], out.dtype)
    for part in range(begin, end):
        member = parts[part, 2]
        mine = points[member]
        if by_class:
            own[:] = gradient[member, 0]
        for i in range(parts[part, 0], parts[part, 1]):
            share, largest, total, label = kept[SHARE, i], kept[LARGEST, i], kept[TOTAL, i], target[i]
            if share == 0:  # a label may be any number there
                out[i] = share
                continue
            if by_class:
                own[label] += gradient[member, 1, label]
            g, rate = own if by_class else gradient[member, label], mine[DELTA] / above(total, mine)
            sums = _reduce(out[i], g, mine, largest, rate)
            mean, factor, of_first, of_second = movement(*sums, largest, total, kept[INVERSE, i], share, mine, is_fixed)
            _pull_back(out[i], g, mine, largest, rate, share, mean, factor, of_first, of_second)
            if by_class:
                own[label] = gradient[member, 0, label]
    return GOOD
