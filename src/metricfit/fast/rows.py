"""Many classes side by side in memory: one sample after the other, every loop vectorised over its classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from metricfit.fast.compiled import (
    BAD_WEIGHT,
    GOOD,
    INVERSE,
    LARGEST,
    NO_SUCH_CLASS,
    NOT_FINITE,
    SCALE,
    THRESHOLD,
    TINY,
    bend_at,
    bends_of_step,
    compiled,
    exponential,
    segments_of_step,
    slope_at,
    step_at,
)
from metricfit.fast.lanes import LANES, column, two_largest

__all__ = ["count_rows", "pull_back_rows"]

# Only sums over classes may be reordered. NaN must stay NaN, and p - tau be taken as written.
SUMS = {"reassoc", "nsz"}


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
def _exponentials(row: Any, largest: Any, e: Any, limits: Any) -> Any:
    total = limits.dtype.type(0)
    for k in range(len(row)):
        e[k] = exponential(row[k] - largest, limits)
        total += e[k]
    return total


@compiled(fastmath=SUMS)
def _steps(p: Any, scale: Any, segments: Any, one: Any) -> Any:
    tau, half, low, middle, high = segments
    total = one - one
    for k in range(len(p)):
        p[k] = step_at(p[k] * scale, tau, half, low, middle, high, one)
        total += p[k]
    return total


@compiled()
def count_rows(
    scores: Any, is_softmax: bool, target: Any, weight: Any, class_weight: Any, ignore: int, delta: Any, factor: Any,
    limits: Any, start: int, stop: int, counts: Any, kept: Any, places: Any,
) -> int:  # fmt: skip
    """Add the memberships of samples start … stop to the rows of their true class in ``counts``."""
    classes = scores.shape[1]
    number = limits.dtype.type
    zero, one, two = number(0), number(1), number(2)
    h = np.empty(classes, scores.dtype)
    first, second, at_first, at_second = column(scores), column(scores), column(scores), column(scores)
    for i in range(start, stop):
        label = target[i]
        if label == ignore:
            continue
        if label < 0 or label >= classes:
            return NO_SUCH_CLASS
        w = weight[i] if len(weight) else one
        if len(class_weight):
            w *= class_weight[label]
        if not (w >= zero and w < np.inf):
            return BAD_WEIGHT
        row = scores[i]
        a, b, places[i, 0], places[i, 1] = _two_largest_of_row(row, first, second, at_first, at_second)
        if is_softmax:
            scale = one / _exponentials(row, a, h, limits)
            mean = (one + exponential(b - a, limits)) * scale / two
        else:
            scale, mean = one, (a + b) / two
            h[:] = row
        total = _steps(h, scale, segments_of_step(mean, delta, factor, limits), one)
        if not total >= zero:
            return NOT_FINITE
        inverse = one / total if total > limits[TINY] else zero
        kept[i, LARGEST], kept[i, SCALE] = a, scale
        kept[i, THRESHOLD], kept[i, INVERSE] = mean, inverse
        share = w * inverse
        cells = counts[label]
        for k in range(classes):
            cells[k] += share * h[k]
    return GOOD


@compiled(fastmath=SUMS)
def _mean_gradient(row: Any, g: Any, is_softmax: bool, kept: Any, segments: Any, p: Any, limits: Any) -> Any:
    """Probabilities into ``p``; Σ g·h."""
    tau, half, low, middle, high = segments
    one = limits.dtype.type(1)
    if is_softmax:
        for k in range(len(row)):
            p[k] = exponential(row[k] - kept[LARGEST], limits) * kept[SCALE]
    else:
        for k in range(len(row)):
            p[k] = row[k]
    total = one - one
    for k in range(len(row)):
        total += g[k] * step_at(p[k], tau, half, low, middle, high, one)
    return total


@compiled(fastmath=SUMS)
def _pull_back_step(p: Any, g: Any, out: Any, mean: Any, share: Any, segments: Any, bends: Any, one: Any) -> Any:
    """Gradient with respect to p at a fixed threshold, into ``out``; its product with p, and the threshold's."""
    tau, half, low, middle, high = segments
    bend_low, bend_between, bend_middle, bend_high = bends
    dot = one - one
    of_threshold = one - one
    for k in range(len(p)):
        of_step = (g[k] - mean) * share
        of_threshold += of_step * bend_at(p[k], tau, half, bend_low, bend_between, bend_middle, bend_high, one)
        out[k] = of_step * slope_at(p[k], tau, half, low, middle, high)
        dot += out[k] * p[k]
    return dot, of_threshold


@compiled()
def pull_back_rows(
    scores: Any, is_softmax: bool, target: Any, weight: Any, class_weight: Any, ignore: int, delta: Any, factor: Any,
    limits: Any, start: int, stop: int, gradient: Any, kept: Any, places: Any, is_fixed: bool, out: Any,
) -> int:  # fmt: skip
    """The gradient of samples start … stop, given that of the counts; ``is_fixed``: none flows through thresholds."""
    classes = scores.shape[1]
    number = limits.dtype.type
    zero, one, two = number(0), number(1), number(2)
    p = np.empty(classes, scores.dtype)
    for i in range(start, stop):
        label = target[i]
        result = out[i]
        if label == ignore:
            result[:] = zero
            continue
        w = weight[i] if len(weight) else one
        if len(class_weight):
            w *= class_weight[label]
        mean, inverse = kept[i, THRESHOLD], kept[i, INVERSE]
        segments = segments_of_step(mean, delta, factor, limits)
        bends = bends_of_step(mean, delta, factor, limits)
        g = gradient[label]
        of_mean = _mean_gradient(scores[i], g, is_softmax, kept[i], segments, p, limits) * inverse
        dot, of_threshold = _pull_back_step(p, g, result, of_mean, w * inverse, segments, bends, one)
        if not is_fixed:
            half = of_threshold / two
            for j in range(2):
                result[places[i, j]] += half
                dot += half * p[places[i, j]]
        if is_softmax:
            for k in range(classes):
                result[k] = p[k] * (result[k] - dot)
    return GOOD
