"""Many classes side by side in memory: one sample after the other, every loop vectorised over its classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from metricfit.fast.lanes import (
    BAD_WEIGHT,
    DELTA,
    END,
    GOOD,
    INVERSE,
    LANES,
    LARGEST,
    LOW,
    MIDDLE,
    NO_SUCH_CLASS,
    NOT_FINITE,
    SHARE,
    START,
    TOTAL,
    column,
    compiled,
    exponential,
    over_of,
    slope_at,
    step_at,
    two_largest,
)  # fmt: skip

__all__ = ["count_rows", "pull_back_rows"]

# Only sums over classes may be reordered. NaN must stay NaN, and u - 1 be taken as written.
SUMS = {"reassoc", "nsz"}

FLUSH = 256
"""After so many samples sums in the dtype of the scores are added to those in float64."""


@compiled()
def _largest_lane(values: Any) -> Any:
    largest, lane = values[0], 0
    for r in range(1, LANES):
        x = values[r]
        lane = r if x > largest else lane
        largest = x if x > largest else largest
    return largest, lane


@compiled()
def _two_largest_of_row(row: Any, first: Any, second: Any, at_first: Any, at_second: Any) -> Any:
    """The two largest entries and their places: of the columns LANES apart, then of these and what is left over."""
    lines = len(row) // LANES
    two_largest(row, lines, first, second, at_first, at_second)
    a, lane = _largest_lane(first)
    i = lane + LANES * int(at_first[lane])
    b, j = second[lane], lane + LANES * int(at_second[lane])
    first[lane] = -np.inf
    other, lane = _largest_lane(first)
    if other > b:
        b, j = other, lane + LANES * int(at_first[lane])
    for k in range(lines * LANES, len(row)):
        x = row[k]
        if x > a:
            a, b, i, j = x, a, k, i
        elif x > b:
            b, j = x, k
    return a, b, i, j


@compiled(fastmath=SUMS)
def _units(row: Any, largest_score: Any, largest: Any, points: Any, u: Any) -> Any:
    """The scores in units of the threshold, into ``u``; their sum and that of the steps."""
    one = points.dtype.type(1)
    low, middle, start, top = points[LOW], points[MIDDLE], points[START], one - points[DELTA]
    total = steps = one - one
    for k in range(len(row)):
        x = exponential(row[k] - largest_score, points) * largest
        u[k] = x
        total += x
        steps += step_at(x, low, middle, start, top, one)
    return total, steps


@compiled()
def _add_steps(u: Any, share: Any, points: Any, sums: Any) -> None:
    one = points.dtype.type(1)
    low, middle, start, top = points[LOW], points[MIDDLE], points[START], one - points[DELTA]
    for k in range(len(u)):
        sums[k] += share * step_at(u[k], low, middle, start, top, one)


@compiled()
def count_rows(
    scores: Any, target: Any, weight: Any, class_weight: Any, ignore: int, points: Any, parts: Any, begin: int,
    end: int, by_class: bool, counts: Any, keeps: bool, out: Any, kept: Any, places: Any,
) -> int:  # fmt: skip
    """Count the samples of some parts; arguments as in :func:`metricfit.fast.lanes.count_lanes`."""
    classes = scores.shape[1]
    number = points.dtype.type
    zero, one = number(0), number(1)
    scratch, sums = np.empty(classes, scores.dtype), np.zeros(classes, scores.dtype)
    first, second, at_first, at_second = column(scores), column(scores), column(scores), column(scores)
    for part in range(begin, end):
        mine, cells = points[parts[part, 2]], counts[part]
        unflushed = 0
        for i in range(parts[part, 0], parts[part, 1]):
            label = target[i]
            if label == ignore:
                kept[i, SHARE] = zero
                continue
            if label < 0 or label >= classes:
                return NO_SUCH_CLASS
            w = weight[i] if len(weight) else one
            if len(class_weight):
                w *= class_weight[label]
            if not (w >= zero and w < np.inf):
                return BAD_WEIGHT
            a, b, at, places[i, 1] = _two_largest_of_row(scores[i], first, second, at_first, at_second)
            places[i, 0] = at
            u = out[i] if keeps else scratch
            largest = number(2) / (one + exponential(b - a, mine))
            total, steps = _units(scores[i], a, largest, mine, u)
            over, _ = over_of(largest, total, mine)
            extra = mine[DELTA] * over
            steps += extra
            if not steps < np.inf:
                return NOT_FINITE
            inverse = one / steps
            kept[i, LARGEST], kept[i, TOTAL], kept[i, INVERSE], kept[i, SHARE] = largest, total, inverse, w * inverse
            if not by_class:
                _add_steps(u, w * inverse, mine, cells[label])
                cells[label, at] += w * inverse * extra
                continue
            _add_steps(u, w * inverse, mine, sums)
            sums[at] += w * inverse * extra
            hit = step_at(u[label], mine[LOW], mine[MIDDLE], mine[START], one - mine[DELTA], one)
            cells[0, label] += w * inverse * (hit + extra if label == at else hit)
            cells[1, label] += w
            unflushed += 1
            if unflushed == FLUSH:
                cells[2] += sums
                sums[:] = zero
                unflushed = 0
        if by_class:
            cells[2] += sums
            sums[:] = zero
    return GOOD


@compiled(fastmath=SUMS)
def _mean_gradient(u: Any, g: Any, points: Any) -> Any:
    """Σ g·h."""
    one = points.dtype.type(1)
    low, middle, start, top = points[LOW], points[MIDDLE], points[START], one - points[DELTA]
    total = one - one
    for k in range(len(u)):
        total += g[k] * step_at(u[k], low, middle, start, top, one)
    return total


@compiled(fastmath=SUMS)
def _pull_back_steps(u: Any, g: Any, mean: Any, share: Any, of_over: Any, points: Any) -> Any:
    """The gradient of log u in place of u, less what goes through the sum of all u; and the sum of the former."""
    zero = points.dtype.type(0)
    low, middle, start, end = points[LOW], points[MIDDLE], points[START], points[END]
    change = zero
    for k in range(len(u)):
        x = u[k]
        y = (g[k] - mean) * share * x * slope_at(x, low, middle, start, end, zero)
        change += y
        u[k] = y - x * of_over
    return change


@compiled(fastmath=SUMS)
def _change(u: Any, g: Any, mean: Any, share: Any, points: Any) -> Any:
    zero = points.dtype.type(0)
    low, middle, start, end = points[LOW], points[MIDDLE], points[START], points[END]
    total = zero
    for k in range(len(u)):
        total += (g[k] - mean) * share * u[k] * slope_at(u[k], low, middle, start, end, zero)
    return total


@compiled()
def pull_back_rows(
    target: Any, points: Any, parts: Any, begin: int, end: int, by_class: bool, gradient: Any, is_fixed: bool,
    kept: Any, places: Any, out: Any,
) -> int:  # fmt: skip
    """The gradient of some parts; arguments as in :func:`metricfit.fast.lanes.pull_back_lanes`."""
    classes = out.shape[1]
    number = points.dtype.type
    zero, one, two = number(0), number(1), number(2)
    own = np.empty(classes, out.dtype)
    for part in range(begin, end):
        member = parts[part, 2]
        mine = points[member]
        for i in range(parts[part, 0], parts[part, 1]):
            u = out[i]
            share = kept[i, SHARE]
            if share == zero:
                u[:] = zero
                continue
            label, at, second = target[i], places[i, 0], places[i, 1]
            largest, total, inverse = kept[i, LARGEST], kept[i, TOTAL], kept[i, INVERSE]
            if by_class:
                g = own
                g[:] = gradient[member, 0]
                g[label] += gradient[member, 1, label]
            else:
                g = gradient[member, label]
            over, above = over_of(largest, total, mine)
            mean = (_mean_gradient(u, g, mine) + g[at] * mine[DELTA] * over) * inverse
            of_first = (g[at] - mean) * share * mine[DELTA] / above if over > zero else zero
            if is_fixed:
                change = _change(u, g, mean, share, mine) + of_first * largest
                _pull_back_steps(u, g, mean, share, change / total, mine)
                u[at] += of_first * largest
                continue
            of_over = of_first * over
            change = _pull_back_steps(u, g, mean, share, of_over, mine) + of_first * largest - of_over * total
            part_of_first = largest / two
            u[at] += of_first * largest - change * part_of_first
            u[second] -= change * (one - part_of_first)
    return GOOD
