"""The memberships of logits and the way back in few operations on arrays, for CPUs without numba.

With softmax the threshold is at most 1/2, and only the largest probability lies over it. In units of the threshold,
u = p / tau, the step up to tau is therefore the same for all samples: two lines. What a sample has of its own are
vectors. Those two lines do not change when all probabilities grow alike, so that whatever softmax and the moving
threshold add to the gradient cancels out but at the two largest; only a largest one over the middle leaves more.

NumPy, not torch: an operation on a small array takes a fraction of the time that one on a small tensor takes, and on
large batches each thread works on blocks of its own, which torch's own threads would disturb.

Arrays are (b, classes, l), so that a table (l = 1), its transpose (b = 1) and images with their classes in front are
the same to every formula; vectors, with one number a sample, are (b, 1, l).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from metricfit.fast.batch import FivePoints
from metricfit.fast.loops import TINY
from metricfit.steps import SMALLEST_WIDTH, THRESHOLD_MARGIN

__all__ = ["Counted", "Lines", "count_logits", "covers", "places_of", "pull_back_logits", "steps_of"]

Array = np.ndarray[Any, Any]


def covers(points: FivePoints, classes: int) -> bool:
    """Whether thresholds and widths stay clear of the bounds that the step keeps."""
    return points.factor * THRESHOLD_MARGIN > SMALLEST_WIDTH and classes * 2 * THRESHOLD_MARGIN < 1


@dataclass(frozen=True, slots=True)
class Lines:
    """The step up to tau in terms of v = scale · u: v itself below the middle, ratio · v + offset inside.

    Attributes:
        scale: The slope below the middle; that inside where the middle begins at 0.
        ratio: The slope inside divided by ``scale``.
        offset: Of the line inside.
        end: The v at which the middle ends.
        delta: The height where the middle begins.
        is_one: Whether the middle begins at 0.
    """

    scale: float
    ratio: float
    offset: float
    end: float
    delta: float
    is_one: bool

    @staticmethod
    @lru_cache(maxsize=64)
    def of(points: FivePoints) -> Lines:
        """Those of a step."""
        start, slope = 1 - points.factor / 2, (1 - 2 * points.delta) / points.factor
        scale = points.delta / start if start > 0 else slope
        end = scale * (1 + points.factor / 2)
        return Lines(scale, slope / scale, 0.5 - slope, end, points.delta, start <= 0)


@dataclass(slots=True)
class Counted:
    """A block and what its gradient needs.

    Attributes:
        v: p / tau times a number, (b, classes, l).
        h: Steps, (b, classes, l); None where they are not kept.
        inverse: 1 / sum of steps.
        total: The sum of v: p = v / total.
        largest: The largest v.
        above: ``total`` - v at the end of the middle.
        over: How far the largest lies over the middle, in parts of ``above``.
        step: The step of the largest.
        first: Flat places of the largest.
        second: Flat places of the second largest.
    """

    v: Array
    h: Array | None
    inverse: Array
    total: Array
    largest: Array
    above: Array
    over: Array
    step: Array
    first: Array
    second: Array


def places_of(x: Array) -> Array:
    """The flat places of class 0 in a block, a vector; those of class k are k · l further on."""
    size, classes, length = x.shape
    columns = np.arange(length).reshape(1, 1, -1)
    return columns if size == 1 else columns + np.arange(0, x.size, classes * length).reshape(-1, 1, 1)


def count_logits(x: Array, origin: Array, lines: Lines) -> Counted:
    """The steps of a block, not yet divided by their sums; overwrites the logits, which have to be contiguous.

    Args:
        x: Logits.
        origin: Their ``places_of``.
        lines: The step.
    """
    flat = x.reshape(-1)
    most, first = _largest(x, origin)
    flat[first] = -np.inf
    next_most, second = _largest(x, origin)
    largest = 2 * lines.scale / (1 + np.exp(next_most - most))
    v = np.exp(np.subtract(x, most - np.log(largest), out=x), out=x)
    flat[first] = largest
    total = np.add.reduce(v, axis=1, keepdims=True)
    above = np.maximum(total - lines.end, TINY)  # 0 with two classes and a middle that ends at 1
    over = np.maximum(largest - lines.end, 0) / above
    step = np.minimum(lines.ratio * largest + lines.offset, 1 - lines.delta) + lines.delta * over
    counted = Counted(v, None, total, total, largest, above, over, step, first, second)
    counted.h = steps_of(counted, lines)
    counted.inverse = 1 / np.add.reduce(counted.h, axis=1, keepdims=True)
    return counted


def steps_of(block: Counted, lines: Lines) -> Array:
    """The steps, kept or computed again."""
    if block.h is not None:
        return block.h
    h = block.v * lines.ratio
    h += lines.offset
    if not lines.is_one:
        (np.maximum if lines.ratio > 1 else np.minimum)(h, block.v, out=h)
    h.reshape(-1)[block.first] = block.step
    return h


def pull_back_logits(g: Array, h: Array, block: Counted, lines: Lines, *, is_fixed: bool) -> Array:
    """The gradient of the logits, given that of the steps.

    Args:
        g: The gradient of the steps; overwritten.
        h: The steps; overwritten.
        block: The block.
        lines: The step.
        is_fixed: Whether the threshold stays where it is.
    """
    v, first, largest, buffer, flat = block.v, block.first, block.largest, np.empty_like(g), g.reshape(-1)
    of_over = flat[first]
    of_over *= block.over
    of_over *= lines.delta
    of_over /= block.above
    if lines.is_one:
        weights = h - lines.offset  # the derivative with respect to the logarithm of v
    else:
        is_inside = (np.greater if lines.ratio > 1 else np.less)(h, v, out=buffer, casting="unsafe")
        is_inside *= lines.offset
        weights = np.subtract(h, is_inside, out=h)
    weights.reshape(-1)[first] = largest * np.where(block.over > 0, lines.delta / block.above, lines.ratio)
    g *= weights
    change = np.add.reduce(g, axis=1, keepdims=True)
    if is_fixed:
        g -= np.multiply(v, change / block.total, out=buffer)
        return g
    g -= np.multiply(v, of_over, out=buffer)
    change -= of_over * block.total
    share = largest * (0.5 / lines.scale)
    flat[first] -= change * share
    flat[block.second] -= change * (1 - share)
    return g


def _largest(x: Array, origin: Array) -> tuple[Array, Array]:
    """The largest of each sample and its flat place."""
    flat, (_, classes, length) = x.reshape(-1), x.shape
    if length == 1 or classes > 255:
        places = x.argmax(1, keepdims=True)
        places *= length
        places += origin
        return flat[places], places
    largest = np.maximum.reduce(x, axis=1, keepdims=True)
    found = (x >= largest).view(np.uint8)
    # Quicker than argmax along a dimension that does not lie side by side; but of equals the classes are added up.
    found *= np.arange(classes, dtype=np.uint8).reshape(1, -1, 1)
    places = np.minimum(np.add.reduce(found, axis=1, keepdims=True, dtype=np.uint8), classes - 1) * np.int64(length)
    places += origin
    if (flat[places] == largest).all():
        return largest, places
    places = x.argmax(1, keepdims=True) * length + origin
    return flat[places], places
