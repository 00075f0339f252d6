"""Few classes, or classes apart in memory: a block of samples at once, every loop vectorised over them.

Scores are (N, d, L): rows of samples (L = 1), or images with their classes in front, read where they lie. A block of
samples is brought into a (d, width) buffer. Between the two passes the gradient's memory holds the block as it is.

In a small batch the calls between Python, NumPy and torch cost more than the samples. So it takes one call from logits
to losses and gradient, :func:`losses_and_gradient`, which gets tensors as addresses.

Importing this module imports numba, so :mod:`metricfit.fast` does so only when a loss needs it. All numbers have the
dtype of ``points``, since one float64 constant would make a whole loop float64.

The formulas are those of :mod:`metricfit.fast.closed_form`: u = p / tau = 2 exp(z - z1) / (1 + exp(z2 - z1)).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import carray
from numba.core import types
from numba.extending import intrinsic

from metricfit.fast.closed_form import fraction, mcc

__all__ = ["count_lanes", "losses_and_gradient", "losses_of_sums", "pull_back_lanes"]

GOOD, NOT_FINITE, NO_SUCH_CLASS, BAD_WEIGHT = 0, 1, 2, 3
"""What a counting pass reports. Whatever is not good is left to the plain formulas, which raise the error."""

DELTA, LOW, MIDDLE, START, END = 0, 1, 2, 3, 4
"""Positions in ``points``: see :class:`metricfit.fast.closed_form.Points`."""

LARGEST, TOTAL, INVERSE, SHARE = 0, 1, 2, 3
"""What a sample keeps for the backward pass: the largest u, the sum of all u, 1 / sum of steps, and that times its
weight."""

BLOCK = 8192
"""Scores that are worked on at once: few enough that a block stays in the first cache."""

TILE = 64
"""Classes that are brought into a block, and out of it, at once: their lines stay in the first cache too."""

SUMS = {"reassoc", "nsz"}
"""Only sums may be reordered: NaN must stay NaN, and u - 1 be taken as written."""


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator that compiles without the interpreter lock, kept on disk where some folder can be written."""
    options = {"nogil": True, "error_model": "numpy", **options}

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(cache=True, **options)(function)
        except RuntimeError:  # neither the package's nor the user's cache folder is writable
            return numba.njit(**options)(function)

    return decorate


@intrinsic  # type: ignore[untyped-decorator]
def _power_of_two(context: Any, exponent: Any) -> Any:
    """2 to a whole power, written into the exponent bits: the one part of exp that Python cannot say."""
    wide = exponent == types.float64
    integer, real, bias, shift = (
        (ir.IntType(64), ir.DoubleType(), 1023, 52) if wide else (ir.IntType(32), ir.FloatType(), 127, 23)
    )

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        whole = builder.fptosi(arguments[0], integer)
        biased = builder.add(whole, ir.Constant(integer, bias))
        return builder.bitcast(builder.shl(biased, ir.Constant(integer, shift)), real)

    return exponent(exponent), generate


@compiled(fastmath={"contract"})
def exponential(x: Any, points: Any) -> Any:
    """exp(x) for x <= 0, to one unit in the last place or two; vectorises, unlike a call of the C library."""
    number = points.dtype.type
    one = number(1)
    double = one + number(1e-12) != one  # a constant, unlike itemsize: the unused branch disappears
    lowest = number(-708.0) if double else number(-87.0)
    inner = lowest if x < lowest else x  # NaN stays NaN
    whole = np.floor(inner * number(1.4426950408889634) + number(0.5))
    # log 2 in two parts, so that whole * the first is exact.
    if double:
        r = inner - whole * number(0.6931471803691238) - whole * number(1.9082149292705877e-10)
        tail = number(1.0 / 40320)
        tail = tail + r * (number(1.0 / 362880) + r * (number(1.0 / 3628800) + r * (
            number(1.0 / 39916800) + r * (number(1.0 / 479001600) + r * number(1.0 / 6227020800)))))  # fmt: skip
        tail = number(1.0 / 5040) + r * tail
    else:
        r = inner - whole * number(0.693359375) - whole * number(-2.12194440e-4)
        tail = number(1.0 / 5040)
    series = one + r * (one + r * (number(0.5) + r * (number(1.0 / 6) + r * (
        number(1.0 / 24) + r * (number(1.0 / 120) + r * (number(1.0 / 720) + r * tail))))))  # fmt: skip
    return number(0) if x < lowest else series * _power_of_two(whole)


@compiled()
def step_at(u: Any, low: Any, middle: Any, start: Any, end: Any, top: Any, rate: Any, one: Any) -> Any:
    """The step at u: the slope is ``low`` up to ``start``, ``middle`` up to ``end`` and its ``top``, then ``rate``."""
    inside = one / (one + one) + (u - one) * middle
    inside = top + (u - end) * rate if u > end else inside
    return low * u if u < start else inside


@compiled()
def slope_at(u: Any, low: Any, middle: Any, start: Any, end: Any, rate: Any) -> Any:
    """The derivative of that with respect to u."""
    inside = rate if u > end else middle
    return low if u < start else inside


@compiled()
def above(total: Any, points: Any) -> Any:
    """How far p = 1 lies over the middle. The step rises by delta there, and only the largest can be there."""
    least, distance = points.dtype.type(1e-37), total - points[END]
    return distance if distance > least else least


@compiled()
def almost_two(points: Any) -> Any:
    """2 but for some roundings. Less the largest it is a bound that the second largest u = 2 - the largest reaches."""
    number = points.dtype.type
    return number(2) - number(4) * (np.nextafter(number(1), number(2)) - number(1))


@compiled()
def _width(classes: int) -> int:
    """How many samples are worked on at once."""
    return max(32, min(256, BLOCK // classes // 32 * 32))


@compiled()
def _size_of_block(position: int, stop: int, length: int, width: int) -> int:
    size = min(width, stop - position)
    return min(size, length - position % length) if length > 1 else size


@compiled()
def _load(scores: Any, position: int, size: int, block: Any) -> None:
    classes, length = scores.shape[1], scores.shape[2]
    if length == 1:
        for begin in range(0, classes, TILE):
            lines = block[begin : begin + TILE]
            for r in range(size):
                row = scores[position + r, begin : begin + TILE, 0]
                for k in range(len(row)):
                    lines[k, r] = row[k]
    else:
        image = scores[position // length, :, position % length :]
        for k in range(classes):
            line, into = image[k], block[k]
            for r in range(size):
                into[r] = line[r]


@compiled()
def _store(block: Any, position: int, size: int, out: Any) -> None:
    classes, length = out.shape[1], out.shape[2]
    if length == 1:
        for begin in range(0, classes, TILE):
            lines = block[begin : begin + TILE]
            for r in range(size):
                row = out[position + r, begin : begin + TILE, 0]
                for k in range(len(row)):
                    row[k] = lines[k, r]
    else:
        image = out[position // length, :, position % length :]
        for k in range(classes):
            line, source = image[k], block[k]
            for r in range(size):
                line[r] = source[r]


@compiled()
def _whole_block(out: Any, position: int, size: int, block: Any) -> Any:
    """The place of a whole block of rows in the gradient's memory, where it is kept as it is; else nothing."""
    flat = out.reshape(-1)
    return flat[position * out.shape[1] :][: block.size if out.shape[2] == 1 and size == block.shape[1] else 0]


@compiled()
def _keep(block: Any, position: int, size: int, out: Any) -> None:
    place = _whole_block(out, position, size, block)
    if len(place):
        place[:] = block.reshape(-1)
    else:
        _store(block, position, size, out)


@compiled()
def _recall(out: Any, position: int, size: int, block: Any) -> None:
    place = _whole_block(out, position, size, block)
    if len(place):
        block.reshape(-1)[:] = place
    else:
        _load(out, position, size, block)


@compiled()
def _weigh(
    target: Any, weight: Any, class_weight: Any, ignore: int, position: int, size: int, block: Any, weights: Any
) -> int:
    """The weights of a block, unless labels or weights are wrong; what is ignored becomes 0, even NaN."""
    classes, width = block.shape
    number = block.dtype.type
    zero, one = number(0), number(1)
    for r in range(width):
        label = target[position + r] if r < size else ignore
        if label == ignore:
            weights[r] = zero
            for k in range(classes):
                block[k, r] = zero
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
def two_largest(block: Any, first: Any, second: Any) -> None:
    """Of each sample. A maximum that stays is written as ``+ zero``: without it LLVM no longer vectorises the loop."""
    zero = block.dtype.type(0)
    first[:] = -np.inf
    second[:] = -np.inf
    for k in range(len(block)):
        line = block[k]
        for r in range(len(first)):
            x, a, b = line[r], first[r], second[r]
            lower = a if x > a else x
            first[r] = x if x > a else a + zero
            second[r] = lower if lower > b else b + zero


@compiled()
def _largest_units(first: Any, second: Any, points: Any, largest: Any) -> None:
    one = points.dtype.type(1)
    for r in range(len(first)):
        largest[r] = (one + one) / (one + exponential(second[r] - first[r], points))


@compiled()
def _units(block: Any, first: Any, largest: Any, points: Any, total: Any, steps: Any) -> None:
    """Scores to u in place; the sums of u and of their steps, which are held at the end of the middle."""
    zero, one = points.dtype.type(0), points.dtype.type(1)
    low, middle, start, end = points[LOW], points[MIDDLE], points[START], points[END]
    top = one - points[DELTA]
    total[:] = zero
    steps[:] = zero
    for k in range(len(block)):
        line = block[k]
        for r in range(len(first)):
            u = exponential(line[r] - first[r], points) * largest[r]
            line[r] = u
            total[r] += u
            steps[r] += step_at(u, low, middle, start, end, top, zero, one)


@compiled()
def _finish(largest: Any, total: Any, steps: Any, weights: Any, points: Any, rate: Any, share: Any) -> int:
    """1 / steps in their place, the slopes over the middle and the samples' shares; how many samples are finite."""
    zero, one = points.dtype.type(0), points.dtype.type(1)
    finite = 0
    for r in range(len(steps)):
        rate[r] = points[DELTA] / above(total[r], points)
        over = largest[r] - points[END]
        steps[r] = one / (steps[r] + (over if over > zero else zero) * rate[r])
        share[r] = steps[r] * weights[r]
        finite += steps[r] > zero
    return finite


@compiled(fastmath=SUMS)
def _sum_of_steps(line: Any, share: Any, rate: Any, points: Any) -> Any:
    """The steps of a class, each times its sample's share."""
    one = points.dtype.type(1)
    low, middle, start, end = points[LOW], points[MIDDLE], points[START], points[END]
    top, total = one - points[DELTA], one - one
    for r in range(len(line)):
        total += share[r] * step_at(line[r], low, middle, start, end, top, rate[r], one)
    return total


@compiled()
def count_lanes(
    scores: Any, target: Any, weight: Any, class_weight: Any, ignore: int, points: Any, parts: Any, begin: int,
    end: int, by_class: bool, counts: Any, keeps: bool, out: Any, kept: Any,
) -> int:  # fmt: skip
    """Count the samples of the parts from ``begin`` to ``end``, unless labels, weights or scores are wrong.

    Scores are logits (N, d, L); target and weights belong to the N·L samples, and weights may be empty. A part is its
    first sample, last sample + 1 and member, (P, 3); points are one row per member. ``by_class`` counts are hits, true
    and predicted weights, (P, 3, d) in float64, else matrices (P, d, d). If ``keeps``, ``out`` is the memory of the
    gradient, like scores: it holds u until then. ``kept`` (4, N·L) is for the gradient too.
    """
    classes, length = scores.shape[1], scores.shape[2]
    one = points.dtype.type(1)
    width = _width(classes)
    block, columns = np.zeros((classes, width), scores.dtype), np.zeros((8, width), scores.dtype)
    first, second, largest, total, steps, rate, share, weights = (
        columns[0], columns[1], columns[2], columns[3], columns[4], columns[5], columns[6], columns[7],
    )  # fmt: skip
    for part in range(begin, end):
        mine, cells = points[parts[part, 2]], counts[part]
        position, stop = parts[part, 0], parts[part, 1]
        low, middle, start, edge, top = mine[LOW], mine[MIDDLE], mine[START], mine[END], one - mine[DELTA]
        while position < stop:
            size = _size_of_block(position, stop, length, width)
            _load(scores, position, size, block)
            status: int = _weigh(target, weight, class_weight, ignore, position, size, block, weights)
            if status:
                return status
            two_largest(block, first, second)
            _largest_units(first, second, mine, largest)
            _units(block, first, largest, mine, total, steps)
            if _finish(largest, total, steps, weights, mine, rate, share) < width:
                return NOT_FINITE
            span = slice(position, position + size)
            kept[LARGEST, span], kept[TOTAL, span] = largest[:size], total[:size]
            kept[INVERSE, span], kept[SHARE, span] = steps[:size], share[:size]
            for r in range(size):
                label = target[position + r]
                if label == ignore:
                    continue
                if by_class:
                    hit = step_at(block[label, r], low, middle, start, edge, top, rate[r], one)
                    cells[0, label] += share[r] * hit
                    cells[1, label] += weights[r]
                else:
                    row = cells[label]
                    for k in range(classes):
                        row[k] += share[r] * step_at(block[k, r], low, middle, start, edge, top, rate[r], one)
            if by_class:
                for k in range(classes):
                    cells[2, k] += _sum_of_steps(block[k], share, rate, mine)
            if keeps:
                _keep(block, position, size, out)
            position += size
    return GOOD


@compiled()
def _reduce(block: Any, g: Any, points: Any, largest: Any, rate: Any, sums: Any) -> None:
    """Of each sample Σ g·h, Σ g·u·h' and Σ u·h', g of the largest, and how many classes are it and the two largest."""
    zero, one = points.dtype.type(0), points.dtype.type(1)
    low, middle, start, end = points[LOW], points[MIDDLE], points[START], points[END]
    top, margin = one - points[DELTA], almost_two(points)
    of_h, of_slope, slopes, of_largest, firsts, both = sums[0], sums[1], sums[2], sums[3], sums[4], sums[5]
    sums[:] = zero
    for k in range(len(block)):
        line, mine = block[k], g[k]
        for r in range(len(largest)):
            u = line[r]
            moved = u * slope_at(u, low, middle, start, end, rate[r])
            of_h[r] += mine[r] * step_at(u, low, middle, start, end, top, rate[r], one)
            of_slope[r] += mine[r] * moved
            slopes[r] += moved
            of_largest[r] += mine[r] if u >= largest[r] else zero
            firsts[r] += one if u >= largest[r] else zero
            both[r] += one if u >= margin - largest[r] else zero


@compiled()
def movement(
    of_h: Any, of_slope: Any, slopes: Any, of_largest: Any, firsts: Any, both: Any, largest: Any, total: Any,
    inverse: Any, share: Any, points: Any, is_fixed: bool,
) -> Any:  # fmt: skip
    """What is taken from every g; from every class in proportion to u; from the largest; and from the two largest."""
    zero, one = points.dtype.type(0), points.dtype.type(1)
    mean, distance, over = of_h * inverse, above(total, points), largest - points[END]
    change = share * (of_slope - mean * slopes)
    over = over if over > zero else zero
    # The slope over the middle depends on the sum of all u.
    factor = (of_largest - mean) * share * points[DELTA] / distance * over / distance
    change -= factor * total
    others = both - one
    of_first = change / firsts if firsts > one else change * largest / (one + one)
    of_second = zero if firsts > one else (change - of_first) / (others if others > one else one)
    if is_fixed:
        return mean, factor + change / total, zero, zero
    return mean, factor, of_first - of_second, of_second


@compiled()
def _movements(sums: Any, kept: Any, largest: Any, share: Any, points: Any, is_fixed: bool, moves: Any) -> None:
    of_h, of_slope, slopes, of_largest, firsts, both = sums[0], sums[1], sums[2], sums[3], sums[4], sums[5]
    total, inverse, mean, factor, of_first, of_second = kept[0], kept[1], moves[0], moves[1], moves[2], moves[3]
    for r in range(len(largest)):
        mean[r], factor[r], of_first[r], of_second[r] = movement(
            of_h[r], of_slope[r], slopes[r], of_largest[r], firsts[r], both[r], largest[r], total[r], inverse[r],
            share[r], points, is_fixed,
        )  # fmt: skip


@compiled()
def _pull_back(
    block: Any, g: Any, points: Any, largest: Any, rate: Any, share: Any, moves: Any,
) -> None:  # fmt: skip
    """The gradient of the scores in the place of u."""
    mean, factor, of_first, of_second = moves[0], moves[1], moves[2], moves[3]
    zero = points.dtype.type(0)
    low, middle, start, end = points[LOW], points[MIDDLE], points[START], points[END]
    margin = almost_two(points)
    for k in range(len(block)):
        line, mine = block[k], g[k]
        for r in range(len(largest)):
            u = line[r]
            y = ((mine[r] - mean[r]) * share[r] * slope_at(u, low, middle, start, end, rate[r]) - factor[r]) * u
            y -= of_second[r] if u >= margin - largest[r] else zero
            line[r] = y - (of_first[r] if u >= largest[r] else zero)


@compiled()
def pull_back_lanes(
    target: Any, points: Any, parts: Any, begin: int, end: int, by_class: bool, gradient: Any, is_fixed: bool,
    kept: Any, out: Any,
) -> int:  # fmt: skip
    """The gradient of the samples of some parts, in the place of u; arguments as in :func:`count_lanes`.

    The gradient of the counts is G (M, d, d); ``by_class`` it is columns and diagonal (M, 2, d) of the form
    G[t, k] = columns[k] + (t = k) diagonal[k]. ``is_fixed`` lets none flow through the threshold.
    """
    classes, length = out.shape[1], out.shape[2]
    zero = points.dtype.type(0)
    width = _width(classes)
    block, g = np.zeros((classes, width), out.dtype), np.zeros((classes, width), out.dtype)
    mine_kept, rate = np.ones((4, width), out.dtype), np.zeros(width, out.dtype)
    sums, moves = np.zeros((6, width), out.dtype), np.zeros((4, width), out.dtype)
    largest, total, share = mine_kept[LARGEST], mine_kept[TOTAL], mine_kept[SHARE]
    for part in range(begin, end):
        member = parts[part, 2]
        mine = points[member]
        if by_class:
            for k in range(classes):
                g[k] = gradient[member, 0, k]
        position, stop = parts[part, 0], parts[part, 1]
        while position < stop:
            size = _size_of_block(position, stop, length, width)
            _recall(out, position, size, block)
            for j in range(4):
                mine_kept[j, :size] = kept[j, position : position + size]
            for r in range(width):
                rate[r] = mine[DELTA] / above(total[r], mine)
            for r in range(size):
                if share[r] == zero:  # a label may be any number there
                    continue
                label = target[position + r]
                if by_class:
                    g[label, r] += gradient[member, 1, label]
                else:
                    row = gradient[member, label]
                    for k in range(classes):
                        g[k, r] = row[k]
            _reduce(block, g, mine, largest, rate, sums)
            _movements(sums, mine_kept[TOTAL:SHARE], largest, share, mine, is_fixed, moves)
            _pull_back(block, g, mine, largest, rate, share, moves)
            _store(block, position, size, out)
            if by_class:
                for r in range(size):
                    if share[r] != zero:
                        label = target[position + r]
                        g[label, r] = gradient[member, 0, label]
            position += size
    return GOOD


_fraction, _mcc = compiled()(fraction), compiled()(mcc)


def _pointer(element: Any) -> Any:
    @intrinsic  # type: ignore[untyped-decorator]
    def pointer(context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return types.CPointer(element)(types.intp), generate  # type: ignore[attr-defined]

    return pointer


_floats, _integers = _pointer(types.float32), _pointer(types.int64)


@compiled()
def losses_of_sums(sums: Any, form: Any, label: int, skip_absent: bool, losses: Any, gradient: Any) -> None:
    """The loss of each member and its gradient (M, 2, d), given sums (M, 3, d); see ``closed_form``."""
    for member in range(len(sums)):
        if len(form) > 1:
            losses[member] = _fraction(sums[member], form, label, skip_absent, gradient[member])
        else:
            losses[member] = _mcc(sums[member], form, label, skip_absent, gradient[member])


@compiled()
def losses_and_gradient(
    scores_at: int, target_at: int, weight_at: int, class_weight_at: int, gradient_at: int, losses_at: int, size: int,
    classes: int, length: int, ignore: int, knots: Any, is_fixed: bool, form: Any, label: int, skip_absent: bool,
) -> int:  # fmt: skip
    """The losses of contiguous float32 scores (members · size, classes, length), unless something is wrong.

    Args end in ``_at`` where they are addresses; 0 is none. ``form`` and ``label`` are those of ``ClosedForm``; knots
    are the step of each member, (M, 5).
    """
    members, points = len(knots), knots.astype(np.float32)
    shape, samples = (members * size, classes, length), members * size * length
    scores = carray(_floats(scores_at), shape)
    target = carray(_integers(target_at), (samples,))
    weight = carray(_floats(weight_at), (samples if weight_at else 0,))
    class_weight = carray(_floats(class_weight_at), (classes if class_weight_at else 0,))
    out = carray(_floats(gradient_at if gradient_at else scores_at), shape)  # without a gradient nothing is written
    kept = np.empty((4, samples), np.float32)
    parts, sums = np.empty((members, 3), np.int64), np.zeros((members, 3, classes))
    for member in range(members):
        parts[member] = member * size * length, (member + 1) * size * length, member
    status: int = count_lanes(
        scores, target, weight, class_weight, ignore, points, parts, 0, members, True, sums, gradient_at != 0, out,
        kept,
    )  # fmt: skip
    if status:
        return status
    vectors = np.zeros((members, 2, classes))
    losses_of_sums(sums, form, label, skip_absent, carray(_floats(losses_at), (members,)), vectors)
    if gradient_at:
        gradient = vectors.astype(np.float32)
        pull_back_lanes(target, points, parts, 0, members, True, gradient, is_fixed, kept, out)
    return GOOD
