"""Few classes, or classes apart in memory: ``LANES`` samples at once, every loop vectorised over them.

Scores are (N, d, L): rows of samples (L = 1), or images with their classes in front, read where they lie. A block of
samples is brought into a (d, LANES) buffer; what belongs to a sample is a column of ``work``. Sums live in arrays of
their own, and a maximum that stays is written as ``+ zero``: with either undone LLVM no longer vectorises the loop.
"""

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
    bends_of_step,
    compiled,
    exponential,
    segments_of_step,
    step_at,
)

__all__ = [
    "LANES",
    "column",
    "count_lanes",
    "exponentials",
    "load",
    "mean_gradient",
    "pull_back_lanes",
    "pull_back_softmax",
    "pull_back_step",
    "set_bends",
    "set_segments",
    "size_of_block",
    "store",
    "two_largest",
]

LANES = 32
"""Four AVX registers; few enough that a block of some classes stays in the first cache."""

TAU, HALF, LOW, MIDDLE, HIGH = 0 * LANES, 1 * LANES, 2 * LANES, 3 * LANES, 4 * LANES
BEND_LOW, BEND_BETWEEN, BEND_MIDDLE, BEND_HIGH = 5 * LANES, 6 * LANES, 7 * LANES, 8 * LANES
MEAN, SHARE = 9 * LANES, 10 * LANES
COLUMNS = 11 * LANES


@compiled()
def column(scores: Any) -> Any:
    return np.zeros(LANES, scores.dtype)


@compiled()
def size_of_block(position: int, stop: int, length: int) -> int:
    size = min(LANES, stop - position)
    return min(size, length - position % length) if length > 1 else size


@compiled()
def load(scores: Any, position: int, size: int, block: Any) -> None:
    classes, length = scores.shape[1], scores.shape[2]
    if length == 1:
        for r in range(size):
            row = scores[position + r, :, 0]
            for k in range(classes):
                block[k * LANES + r] = row[k]
    else:
        image = scores[position // length, :, position % length :]
        for k in range(classes):
            line = image[k]
            for r in range(size):
                block[k * LANES + r] = line[r]


@compiled()
def store(block: Any, position: int, size: int, out: Any) -> None:
    classes, length = out.shape[1], out.shape[2]
    if length == 1:
        for r in range(size):
            row = out[position + r, :, 0]
            for k in range(classes):
                row[k] = block[k * LANES + r]
    else:
        image = out[position // length, :, position % length :]
        for k in range(classes):
            line = image[k]
            for r in range(size):
                line[r] = block[k * LANES + r]


@compiled()
def two_largest(block: Any, lines: int, first: Any, second: Any, at_first: Any, at_second: Any) -> None:
    """The two largest of every column of a (lines, LANES) block, and in which line they are; of ties the first."""
    number = block.dtype.type
    zero = number(0)
    for r in range(len(first)):
        first[r] = second[r] = -np.inf
        at_first[r] = at_second[r] = zero
    for k in range(lines):
        at, line = k * LANES, number(k)
        for r in range(len(first)):
            x, a, b, i, j = block[at + r], first[r], second[r], at_first[r], at_second[r]
            lower, place = (a, i) if x > a else (x, line)
            first[r] = x if x > a else a + zero
            at_first[r] = line if x > a else i + zero
            second[r] = lower if lower > b else b + zero
            at_second[r] = place if lower > b else j + zero


@compiled()
def exponentials(block: Any, classes: int, first: Any, total: Any, limits: Any) -> None:
    for r in range(len(first)):
        total[r] = limits.dtype.type(0)
    for k in range(classes):
        at = k * LANES
        for r in range(len(first)):
            e = exponential(block[at + r] - first[r], limits)
            block[at + r] = e
            total[r] += e


@compiled()
def _probabilities(block: Any, classes: int, first: Any, scale: Any, limits: Any) -> None:
    for k in range(classes):
        at = k * LANES
        for r in range(len(first)):
            block[at + r] = exponential(block[at + r] - first[r], limits) * scale[r]


@compiled()
def set_segments(mean: Any, delta: Any, factor: Any, limits: Any, work: Any) -> None:
    for r in range(LANES):
        tau, half, low, middle, high = segments_of_step(mean[r], delta, factor, limits)
        work[TAU + r], work[HALF + r] = tau, half
        work[LOW + r], work[MIDDLE + r], work[HIGH + r] = low, middle, high


@compiled()
def set_bends(mean: Any, delta: Any, factor: Any, limits: Any, work: Any) -> None:
    for r in range(LANES):
        low, between, middle, high = bends_of_step(mean[r], delta, factor, limits)
        work[BEND_LOW + r], work[BEND_BETWEEN + r] = low, between
        work[BEND_MIDDLE + r], work[BEND_HIGH + r] = middle, high


@compiled()
def _steps(block: Any, classes: int, scale: Any, work: Any, total: Any, one: Any) -> None:
    for r in range(len(scale)):
        total[r] = one - one
    for k in range(classes):
        at = k * LANES
        for r in range(len(scale)):
            p = block[at + r] * scale[r]
            h = step_at(p, work[TAU + r], work[HALF + r], work[LOW + r], work[MIDDLE + r], work[HIGH + r], one)
            block[at + r] = h
            total[r] += h


@compiled()
def count_lanes(
    scores: Any, is_softmax: bool, target: Any, weight: Any, class_weight: Any, ignore: int, delta: Any, factor: Any,
    limits: Any, start: int, stop: int, counts: Any, kept: Any, places: Any,
) -> int:  # fmt: skip
    """Add the memberships of samples start … stop to the rows of their true class in ``counts``."""
    classes, length = scores.shape[1], scores.shape[2]
    number = limits.dtype.type
    zero, one, two = number(0), number(1), number(2)
    block = np.zeros(classes * LANES, scores.dtype)
    work = np.zeros(COLUMNS, scores.dtype)
    first, second, at_first, at_second = column(scores), column(scores), column(scores), column(scores)
    total, scale, mean = column(scores), column(scores), column(scores)
    position = start
    while position < stop:
        size = size_of_block(position, stop, length)
        load(scores, position, size, block)
        two_largest(block, classes, first, second, at_first, at_second)
        if is_softmax:
            exponentials(block, classes, first, total, limits)
            for r in range(LANES):
                scale[r] = one / total[r]
                mean[r] = (one + exponential(second[r] - first[r], limits)) * scale[r] / two
        else:
            for r in range(LANES):
                scale[r] = one
                mean[r] = (first[r] + second[r]) / two
        set_segments(mean, delta, factor, limits, work)
        _steps(block, classes, scale, work, total, one)
        for r in range(size):
            i = position + r
            label = target[i]
            if label == ignore:
                continue
            if label < 0 or label >= classes:
                return NO_SUCH_CLASS
            if not total[r] >= zero:
                return NOT_FINITE
            w = weight[i] if len(weight) else one
            if len(class_weight):
                w *= class_weight[label]
            if not (w >= zero and w < np.inf):
                return BAD_WEIGHT
            inverse = one / total[r] if total[r] > limits[TINY] else zero
            kept[i, LARGEST], kept[i, SCALE] = first[r], scale[r]
            kept[i, THRESHOLD], kept[i, INVERSE] = mean[r], inverse
            places[i, 0], places[i, 1] = int(at_first[r]), int(at_second[r])
            share = w * inverse
            cells = counts[label]
            for k in range(classes):
                cells[k] += share * block[k * LANES + r]
        position += size
    return GOOD


@compiled()
def mean_gradient(block: Any, g: Any, classes: int, work: Any, mean: Any, one: Any) -> None:
    """Σ g·h of each sample."""
    for r in range(len(mean)):
        mean[r] = one - one
    for k in range(classes):
        at = k * LANES
        for r in range(len(mean)):
            mean[r] += g[at + r] * step_at(
                block[at + r], work[TAU + r], work[HALF + r], work[LOW + r], work[MIDDLE + r], work[HIGH + r], one
            )


@compiled()
def pull_back_step(block: Any, g: Any, classes: int, work: Any, sums: Any, one: Any) -> None:
    """Gradient with respect to p at a fixed threshold, into ``g``; its product with p, and the threshold's."""
    zero = one - one
    for r in range(2 * LANES):
        sums[r] = zero
    for k in range(classes):
        at = k * LANES
        for r in range(len(sums) // 2):
            p = block[at + r]
            offset, half = p - work[TAU + r], work[HALF + r]
            # Products with 0 and 1 in place of a choice: a choice between loads is a branch to LLVM.
            below = one if offset < -half else zero
            above = one if offset > half else zero
            inside = one - below - above
            bend = below * p * work[BEND_LOW + r] + above * (one - p) * work[BEND_HIGH + r]
            bend += inside * (work[BEND_BETWEEN + r] + offset * work[BEND_MIDDLE + r])
            slope = below * work[LOW + r] + inside * work[MIDDLE + r] + above * work[HIGH + r]
            of_step = (g[at + r] - work[MEAN + r]) * work[SHARE + r]
            of_p = of_step * slope
            sums[LANES + r] += of_step * bend
            g[at + r] = of_p
            sums[r] += of_p * p


@compiled()
def pull_back_softmax(block: Any, g: Any, classes: int, sums: Any) -> None:
    for k in range(classes):
        at = k * LANES
        for r in range(len(sums) // 2):
            g[at + r] = block[at + r] * (g[at + r] - sums[r])


@compiled()
def pull_back_lanes(
    scores: Any, is_softmax: bool, target: Any, weight: Any, class_weight: Any, ignore: int, delta: Any, factor: Any,
    limits: Any, start: int, stop: int, gradient: Any, kept: Any, places: Any, is_fixed: bool, out: Any,
) -> int:  # fmt: skip
    """The gradient of samples start … stop, given that of the counts; ``is_fixed``: none flows through thresholds."""
    classes, length = scores.shape[1], scores.shape[2]
    number = limits.dtype.type
    zero, one, two = number(0), number(1), number(2)
    block = np.zeros(classes * LANES, scores.dtype)
    g = np.zeros(classes * LANES, scores.dtype)
    work = np.zeros(COLUMNS, scores.dtype)
    first, scale, mean = column(scores), column(scores), column(scores)
    weights = column(scores)
    sums = np.zeros(2 * LANES, scores.dtype)
    position = start
    while position < stop:
        size = size_of_block(position, stop, length)
        load(scores, position, size, block)
        for r in range(size):
            i = position + r
            label = target[i]
            w = weight[i] if len(weight) else one
            if label == ignore:  # whatever lies there, NaN too, is replaced
                label, w = 0, zero
                first[r] = scale[r] = mean[r] = work[SHARE + r] = zero
                for k in range(classes):
                    block[k * LANES + r] = zero
            else:
                if len(class_weight):
                    w *= class_weight[label]
                first[r], scale[r], mean[r] = kept[i, LARGEST], kept[i, SCALE], kept[i, THRESHOLD]
                work[SHARE + r] = kept[i, INVERSE]
            weights[r] = w
            cells = gradient[label]
            for k in range(classes):
                g[k * LANES + r] = cells[k]
        if is_softmax:
            _probabilities(block, classes, first, scale, limits)
        set_segments(mean, delta, factor, limits, work)
        set_bends(mean, delta, factor, limits, work)
        mean_gradient(block, g, classes, work, mean, one)
        for r in range(LANES):
            work[MEAN + r] = mean[r] * work[SHARE + r]
            work[SHARE + r] *= weights[r]
        pull_back_step(block, g, classes, work, sums, one)
        for r in range(size):
            if is_fixed or target[position + r] == ignore:
                continue
            half = sums[LANES + r] / two
            for j in range(2):
                at = places[position + r, j] * LANES + r
                g[at] += half
                sums[r] += half * block[at]
        if is_softmax:
            pull_back_softmax(block, g, classes, sums)
        store(g, position, size, out)
        position += size
    return GOOD
