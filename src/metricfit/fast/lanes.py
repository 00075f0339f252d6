"""Few classes, or classes apart in memory: ``LANES`` samples at once, every loop vectorised over them.

Scores are (N, d, L): rows of samples (L = 1), or images with their classes in front, read where they lie. A block of
samples is brought into a (d, LANES) buffer. Between the two passes the gradient's memory holds the block as it is.
Sums live in arrays of their own: without that LLVM no longer vectorises the loops.

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
"""What a sample keeps for the backward pass, besides the places of its two largest scores: the largest u, the sum of
all u, 1 / sum of steps, and that times its weight."""

LANES = 32
"""Samples that are worked on at once. Few enough that a block of some classes stays in the first cache."""


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
def step_at(u: Any, low: Any, middle: Any, start: Any, top: Any, one: Any) -> Any:
    """The step at u, held at ``top`` = 1 - delta over the middle, where only the largest can lie."""
    inside = one / (one + one) + (u - one) * middle
    inside = inside if inside < top else top
    return low * u if u < start else inside


@compiled()
def slope_at(u: Any, low: Any, middle: Any, start: Any, end: Any, zero: Any) -> Any:
    """The derivative of that with respect to u."""
    inside = middle if u <= end else zero
    return low if u < start else inside


@compiled()
def over_of(largest: Any, total: Any, points: Any) -> tuple[Any, Any]:
    """How far the largest lies over the middle, as a part of the distance from there to p = 1; and that distance."""
    number = points.dtype.type
    above = max(total - points[END], number(1e-37))
    return max(largest - points[END], number(0)) / above, above


@compiled()
def column(scores: Any) -> Any:
    """One number for each of the samples that are worked on at once."""
    return np.zeros(LANES, scores.dtype)


@compiled()
def two_largest(block: Any, lines: int, first: Any, second: Any, at_first: Any, at_second: Any) -> None:
    """The two largest of every column of a (lines, LANES) block, and in which line they are; of ties the first.

    A maximum that stays is written as ``+ zero``: without it LLVM no longer vectorises the loop.
    """
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
def _size_of_block(position: int, stop: int, length: int) -> int:
    size = min(LANES, stop - position)
    return min(size, length - position % length) if length > 1 else size


@compiled()
def _load(scores: Any, position: int, size: int, block: Any) -> None:
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
def _store(block: Any, position: int, size: int, out: Any) -> None:
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
def _keep(block: Any, position: int, size: int, out: Any) -> None:
    """Whole blocks of rows are kept as they are, so that they need not be brought into order twice."""
    if out.shape[2] == 1 and size == LANES:
        flat = out.reshape(-1)[position * out.shape[1] :]
        for j in range(len(block)):
            flat[j] = block[j]
    else:
        _store(block, position, size, out)


@compiled()
def _recall(out: Any, position: int, size: int, block: Any) -> None:
    if out.shape[2] == 1 and size == LANES:
        flat = out.reshape(-1)[position * out.shape[1] :]
        for j in range(len(block)):
            block[j] = flat[j]
    else:
        _load(out, position, size, block)


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
def _units(block: Any, h: Any, first: Any, largest: Any, points: Any, total: Any, steps: Any) -> None:
    """Scores in ``block`` to u, their steps into ``h``; the sums of both."""
    one = points.dtype.type(1)
    low, middle, start, top = points[LOW], points[MIDDLE], points[START], one - points[DELTA]
    for r in range(len(first)):
        total[r] = steps[r] = one - one
    for k in range(len(block) // LANES):
        at = k * LANES
        for r in range(len(first)):
            u = exponential(block[at + r] - first[r], points) * largest[r]
            y = step_at(u, low, middle, start, top, one)
            block[at + r] = u
            h[at + r] = y
            total[r] += u
            steps[r] += y


@compiled()
def _largest_units(first: Any, second: Any, points: Any, largest: Any) -> None:
    one = points.dtype.type(1)
    for r in range(len(first)):
        largest[r] = (one + one) / (one + exponential(second[r] - first[r], points))


@compiled()
def _finish(largest: Any, total: Any, steps: Any, weights: Any, points: Any, extra: Any, share: Any) -> None:
    """What the largest has over the middle, added to the steps; 1 / steps in their place, and the samples' shares."""
    one = points.dtype.type(1)
    for r in range(len(largest)):
        over, _ = over_of(largest[r], total[r], points)
        extra[r] = points[DELTA] * over
        steps[r] = one / (steps[r] + extra[r])
        share[r] = steps[r] * weights[r]


@compiled()
def _add(h: Any, share: Any, sums: Any) -> None:
    for k in range(len(h) // LANES):
        at = k * LANES
        for r in range(len(share)):
            sums[at + r] += h[at + r] * share[r]


@compiled()
def count_lanes(
    scores: Any, target: Any, weight: Any, class_weight: Any, ignore: int, points: Any, parts: Any, begin: int,
    end: int, by_class: bool, counts: Any, keeps: bool, out: Any, kept: Any, places: Any,
) -> int:  # fmt: skip
    """Count the samples of the parts from ``begin`` to ``end``, unless labels, weights or scores are wrong.

    Scores are logits (N, d, L); target and weights belong to the N·L samples, and weights may be empty. A part is its
    first sample, last sample + 1 and member, (P, 3); points are one row per member. ``by_class`` counts are hits, true
    and predicted weights, (P, 3, d) in float64, else matrices (P, d, d). If ``keeps``, ``out`` is the memory of the
    gradient, like scores: it holds u until then. ``kept`` (N·L, 4) is for the gradient too, and so are ``places``
    (N·L, 2): where the two largest are.
    """
    classes, length = scores.shape[1], scores.shape[2]
    number = points.dtype.type
    zero = number(0)
    block, h = np.zeros(classes * LANES, scores.dtype), np.zeros(classes * LANES, scores.dtype)
    sums = np.zeros(classes * LANES, scores.dtype)
    first, second, at_first, at_second = column(scores), column(scores), column(scores), column(scores)
    total, steps, largest, extra = column(scores), column(scores), column(scores), column(scores)
    share, weights = column(scores), column(scores)
    for part in range(begin, end):
        mine, cells = points[parts[part, 2]], counts[part]
        position, stop = parts[part, 0], parts[part, 1]
        while position < stop:
            size = _size_of_block(position, stop, length)
            _load(scores, position, size, block)
            status: int = _weigh(target, weight, class_weight, ignore, position, size, block, weights)
            if status:
                return status
            two_largest(block, classes, first, second, at_first, at_second)
            _largest_units(first, second, mine, largest)
            _units(block, h, first, largest, mine, total, steps)
            _finish(largest, total, steps, weights, mine, extra, share)
            for r in range(size):
                i = position + r
                if not steps[r] > zero:
                    return NOT_FINITE
                places[i, 0], places[i, 1] = int(at_first[r]), int(at_second[r])
                kept[i, LARGEST], kept[i, TOTAL], kept[i, INVERSE], kept[i, SHARE] = (
                    largest[r], total[r], steps[r], share[r],
                )  # fmt: skip
                h[places[i, 0] * LANES + r] += extra[r]
                label = target[i]
                if label == ignore:
                    continue
                if by_class:
                    cells[0, label] += share[r] * h[label * LANES + r]
                    cells[1, label] += weights[r]
                else:
                    row = cells[label]
                    for k in range(classes):
                        row[k] += share[r] * h[k * LANES + r]
            if by_class:
                _add(h, share, sums)
            if keeps:
                _keep(block, position, size, out)
            position += size
        if by_class:
            for k in range(classes):
                for r in range(LANES):
                    cells[2, k] += sums[k * LANES + r]
            sums[:] = zero
    return GOOD


@compiled()
def _mean_gradient(block: Any, g: Any, points: Any, mean: Any) -> None:
    """Σ g·h of each sample."""
    one = points.dtype.type(1)
    low, middle, start, top = points[LOW], points[MIDDLE], points[START], one - points[DELTA]
    for r in range(len(mean)):
        mean[r] = one - one
    for k in range(len(block) // LANES):
        at = k * LANES
        for r in range(len(mean)):
            mean[r] += g[at + r] * step_at(block[at + r], low, middle, start, top, one)


@compiled()
def _pull_back_steps(block: Any, g: Any, mean: Any, share: Any, points: Any, change: Any) -> None:
    """The gradient of log u, into ``g``; its sum."""
    zero = points.dtype.type(0)
    low, middle, start, end = points[LOW], points[MIDDLE], points[START], points[END]
    for r in range(len(mean)):
        change[r] = zero
    for k in range(len(block) // LANES):
        at = k * LANES
        for r in range(len(mean)):
            u = block[at + r]
            y = (g[at + r] - mean[r]) * share[r] * u * slope_at(u, low, middle, start, end, zero)
            g[at + r] = y
            change[r] += y


@compiled()
def _subtract(block: Any, g: Any, factor: Any) -> None:
    for k in range(len(block) // LANES):
        at = k * LANES
        for r in range(len(factor)):
            g[at + r] -= block[at + r] * factor[r]


@compiled()
def pull_back_lanes(
    target: Any, points: Any, parts: Any, begin: int, end: int, by_class: bool, gradient: Any, is_fixed: bool,
    kept: Any, places: Any, out: Any,
) -> int:  # fmt: skip
    """The gradient of the samples of some parts, in the place of u; arguments as in :func:`count_lanes`.

    The gradient of the counts is G (M, d, d); ``by_class`` it is columns and diagonal (M, 2, d) of the form
    G[t, k] = columns[k] + (t = k) diagonal[k]. ``is_fixed`` lets none flow through the threshold.
    """
    classes, length = out.shape[1], out.shape[2]
    number = points.dtype.type
    zero, one, two = number(0), number(1), number(2)
    block, g = np.zeros(classes * LANES, out.dtype), np.zeros(classes * LANES, out.dtype)
    start = np.zeros(classes * LANES, out.dtype)
    mean, share, change, factor, of_first = column(out), column(out), column(out), column(out), column(out)
    for part in range(begin, end):
        member = parts[part, 2]
        mine = points[member]
        if by_class:
            for k in range(classes):
                start[k * LANES : (k + 1) * LANES] = gradient[member, 0, k]
        position, stop = parts[part, 0], parts[part, 1]
        while position < stop:
            size = _size_of_block(position, stop, length)
            _recall(out, position, size, block)
            if by_class:
                g[:] = start
            for r in range(LANES):
                share[r] = kept[position + r, SHARE] if r < size else zero
                if share[r] == zero:  # a label may be any number there
                    continue
                label = target[position + r]
                if by_class:
                    g[label * LANES + r] += gradient[member, 1, label]
                else:
                    row = gradient[member, label]
                    for k in range(classes):
                        g[k * LANES + r] = row[k]
            _mean_gradient(block, g, mine, mean)
            for r in range(size):
                i = position + r
                over, above = over_of(kept[i, LARGEST], kept[i, TOTAL], mine)
                of_largest = g[places[i, 0] * LANES + r]
                mean[r] = (mean[r] + of_largest * mine[DELTA] * over) * kept[i, INVERSE]
                of_first[r] = (of_largest - mean[r]) * share[r] * mine[DELTA] / above if over > zero else zero
                factor[r] = of_first[r] * over
            _pull_back_steps(block, g, mean, share, mine, change)
            for r in range(size):
                i = position + r
                largest, total = kept[i, LARGEST], kept[i, TOTAL]
                at = places[i, 0] * LANES + r
                g[at] += of_first[r] * largest
                all_change = change[r] + of_first[r] * largest
                if is_fixed:
                    factor[r] = all_change / total
                else:
                    all_change -= factor[r] * total
                    g[at] -= all_change * (largest / two)
                    g[places[i, 1] * LANES + r] -= all_change * (one - largest / two)
            _subtract(block, g, factor)
            _store(g, position, size, out)
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
    kept, places = np.empty((samples, 4), np.float32), np.empty((samples, 2), np.int32)
    parts, sums = np.empty((members, 3), np.int64), np.zeros((members, 3, classes))
    for member in range(members):
        parts[member] = member * size * length, (member + 1) * size * length, member
    status: int = count_lanes(
        scores, target, weight, class_weight, ignore, points, parts, 0, members, True, sums, gradient_at != 0, out,
        kept, places,
    )  # fmt: skip
    if status:
        return status
    vectors = np.zeros((members, 2, classes))
    losses_of_sums(sums, form, label, skip_absent, carray(_floats(losses_at), (members,)), vectors)
    if gradient_at:
        gradient = vectors.astype(np.float32)
        pull_back_lanes(target, points, parts, 0, members, True, gradient, is_fixed, kept, places, out)
    return GOOD
