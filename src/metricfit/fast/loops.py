"""Compiled loops for CPUs, with the formulas of :mod:`metricfit.fast.blocks` in units of the threshold.

u = p / tau = 2 exp(z - z1) / (1 + exp(z2 - z1)). Between the two passes the gradient's memory holds u.
*Rows*: many classes side by side in memory. One sample after the other, every loop vectorised over its classes.
*Lanes*: few classes, or classes apart in memory as in images, read where they lie. A block of samples is brought into
a (classes, width) buffer, every loop vectorised over them.

Importing this module imports numba. All numbers have the dtype of the scores, since one float64 constant would make a
whole loop float64; float64 serves the comparison with the plain formulas. Every loop that must be vectorised is a
function of its own: inside of a larger one LLVM fails to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from metricfit.fast.closed_form import LEAST_NORM, TINY, fraction, mcc
from metricfit.inputs import LEAST_WEIGHT, WEIGHTS_FROM_TO

LARGEST, TOTAL, INVERSE, SHARE = 0, 1, 2, 3
"""What a sample keeps for its gradient: the largest u, the sum of all u, 1 / sum of steps, that times its weight."""

BLOCK = 8192
"""Scores that are worked on at once: few enough that a block stays in the first cache."""

FLUSH = 256
"""After so many rows sums in the dtype of the scores are added to those in float64."""

LEAST, MOST = WEIGHTS_FROM_TO

SUMS = {"reassoc", "nsz"}
"""Only sums may be reordered: NaN must stay NaN, and u - 1 be taken as written."""


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator that compiles without the interpreter lock, kept on disk where some folder can be written."""

    def decorate(function: Callable[..., Any]) -> Any:
        how = numba.njit(nogil=True, error_model="numpy", **options)(function)
        with contextlib.suppress(RuntimeError):  # neither the package's nor the user's cache folder is writable
            how.enable_caching()
        return how

    return decorate


@compiled(fastmath={"contract"}, forceinline=True)
def exponential(x: Any, like: Any) -> Any:
    """exp(x) for x <= 0, to one unit in the last place or two; vectorises, unlike a call of the C library."""
    number = like.dtype.type
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
        power = number(np.int64((np.int64(whole) + 1023) << 52).view(np.float64))  # 2 ** whole: its exponent's bits
    else:
        r = inner - whole * number(0.693359375) - whole * number(-2.12194440e-4)
        tail = number(1.0 / 5040)
        power = number(np.int32((np.int32(whole) + 127) << 23).view(np.float32))
    series = one + r * (one + r * (number(0.5) + r * (number(1.0 / 6) + r * (
        number(1.0 / 24) + r * (number(1.0 / 120) + r * (number(1.0 / 720) + r * tail))))))  # fmt: skip
    return number(0) if x < lowest else series * power


@compiled(forceinline=True)
def knots_of(points: Any, like: Any) -> Any:
    """The step of a member as numbers, with those that go with it: numbers stay in registers, an array does not."""
    number = like.dtype.type
    delta, low, middle = number(points[0]), number(points[1]), number(points[2])
    # Less the largest u this is a bound that the second largest, 2 - the largest, reaches whatever the roundings.
    almost_two = number(2) - number(4) * (np.nextafter(number(1), number(2)) - number(1))
    start, end, one = number(points[3]), number(points[4]), number(1)
    return delta, low, middle, start, end, one - delta, almost_two, number(1e-37), number(0), one


@compiled(forceinline=True)
def step_at(u: Any, rate: Any, knots: Any) -> Any:
    """The step at u: two lines up to the end of the middle and its ``top``, then one of slope ``rate``."""
    _, low, middle, start, end, top, _, _, _, one = knots
    inside = one / (one + one) + (u - one) * middle
    inside = top + (u - end) * rate if u > end else inside
    return low * u if u < start else inside


@compiled(forceinline=True)
def slope_at(u: Any, rate: Any, knots: Any) -> Any:
    """The derivative of that with respect to u."""
    _, low, middle, start, end, _, _, _, _, _ = knots
    inside = rate if u > end else middle
    return low if u < start else inside


@compiled(forceinline=True)
def above(total: Any, knots: Any) -> Any:
    """How far p = 1 lies over the middle. The step rises by delta there, and only the largest can be there."""
    distance, least = total - knots[4], knots[7]
    return distance if distance > least else least


@compiled(forceinline=True)
def weight_of(i: int, target: Any, weight: Any, class_weight: Any, ignore: int, classes: int, knots: Any) -> Any:
    """The weight of a sample; -1 if its label or weight is wrong, or so small that it counts as none."""
    zero, one = knots[8], knots[9]
    label = target[i]
    if label == ignore:
        return zero
    if label < 0 or label >= classes:
        return -one
    w = weight[i] if len(weight) else one
    if len(class_weight):
        w *= class_weight[label]
    return w if w == zero or (w >= LEAST_WEIGHT and w < np.inf) else -one


@compiled(forceinline=True)
def inverse_of(largest: Any, total: Any, steps: Any, knots: Any) -> Any:
    """The slope over the middle, and 1 / sum of steps, given their sum as if they stayed at the middle's end."""
    rate, over = knots[0] / above(total, knots), largest - knots[4]
    return rate, knots[9] / (steps + (over if over > knots[8] else knots[8]) * rate)


@compiled(forceinline=True)
def movement(
    of_h: Any, of_slope: Any, slopes: Any, of_largest: Any, firsts: Any, both: Any, largest: Any, total: Any,
    inverse: Any, share: Any, knots: Any,
) -> Any:  # fmt: skip
    """What is taken from every g; from every class in proportion to u; from the largest; and from the two largest.

    The first arguments are Σ g·h, Σ g·u·h', Σ u·h', g of the largest, how many classes are it and the two largest.
    """
    zero, one = knots[8], knots[9]
    mean, distance, over = of_h * inverse, above(total, knots), largest - knots[4]
    change = share * (of_slope - mean * slopes)
    over = over if over > zero else zero
    # The slope over the middle depends on the sum of all u.
    factor = (of_largest - mean) * share * knots[0] / distance * over / distance
    change -= factor * total
    others = both - one
    of_first = change / firsts if firsts > one else change * largest / (one + one)
    of_second = zero if firsts > one else (change - of_first) / (others if others > one else one)
    return mean, factor, of_first - of_second, of_second


@intrinsic  # type: ignore[untyped-decorator]
def _larger(context: Any, a: Any, b: Any) -> Any:
    """The larger of two, anything if one is NaN: LLVM vectorises this, but not a choice that NaN must survive."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = arguments[0].type
        function = builder.module.declare_intrinsic("llvm.maximum", [kind], ir.FunctionType(kind, [kind, kind]))
        return builder.call(function, arguments, fastmath=("nnan", "nsz"))

    return a(a, b), generate


@compiled(fastmath=SUMS)
def _two_largest(row: Any) -> Any:
    number = row.dtype.type
    first = second = number(-np.inf)
    ties = number(0)
    for k in range(len(row)):
        first = _larger(first, row[k])
    for k in range(len(row)):
        is_first = number(row[k] >= first)
        ties += is_first
        second = _larger(second, row[k] - is_first * number(3e38))
    return first, first if ties > number(1) else second


@compiled(fastmath=SUMS)
def _units(row: Any, knots: Any, u: Any) -> Any:
    """Scores to ``u``; the largest, the sum of all, and the sum of their steps held at the middle's end."""
    zero, one = knots[8], knots[9]
    first, second = _two_largest(row)
    largest = (one + one) / (one + exponential(second - first, row))
    total = steps = zero
    for k in range(len(row)):
        x = exponential(row[k] - first, row) * largest
        u[k] = x
        total += x
        steps += step_at(x, zero, knots)
    return largest, total, steps


@compiled()
def _add_steps(u: Any, share: Any, rate: Any, knots: Any, sums: Any) -> None:
    for k in range(len(u)):
        sums[k] += share * step_at(u[k], rate, knots)


@compiled()
def count_rows(data: Any, begin: int, end: int, by_class: bool, counts: Any, keeps: bool, out: Any, kept: Any) -> int:
    """Count the samples of some parts; arguments as in :func:`count_lanes`, scores (N, d)."""
    scores, target, weight, class_weight, ignore, points, parts = data
    classes = scores.shape[1]
    scratch, sums = np.empty(classes, scores.dtype), np.zeros(classes, scores.dtype)
    for part in range(begin, end):
        knots, cells = knots_of(points[parts[part, 2]], scores), counts[part]
        for i in range(parts[part, 0], parts[part, 1]):
            if by_class and i % FLUSH == 0:
                cells[2] += sums
                sums[:] = 0
            w, label = weight_of(i, target, weight, class_weight, ignore, classes, knots), target[i]
            if w < 0:
                return 1
            kept[SHARE, i] = 0
            if label == ignore:
                continue
            u = out[i] if keeps else scratch
            largest, total, steps = _units(scores[i], knots, u)
            rate, inverse = inverse_of(largest, total, steps, knots)
            if not inverse > 0:
                return 1
            share = w * inverse
            kept[LARGEST, i], kept[TOTAL, i], kept[INVERSE, i], kept[SHARE, i] = largest, total, inverse, share
            if by_class:
                cells[0, label] += share * step_at(u[label], rate, knots)
                cells[1, label] += w
                _add_steps(u, share, rate, knots, sums)
            else:
                _add_steps(u, share, rate, knots, cells[label])
        if by_class:
            cells[2] += sums
            sums[:] = 0
    return 0


@compiled(fastmath=SUMS)
def _reduce(u: Any, g: Any, largest: Any, rate: Any, knots: Any) -> Any:
    """The sums that :func:`movement` takes."""
    number = u.dtype.type
    of_h = of_slope = slopes = of_largest = firsts = both = number(0)
    bound = knots[6] - largest
    for k in range(len(u)):
        x = u[k]
        moved, is_first = x * slope_at(x, rate, knots), number(x >= largest)
        of_h += g[k] * step_at(x, rate, knots)
        of_slope += g[k] * moved
        slopes += moved
        of_largest += g[k] * is_first
        firsts += is_first
        both += number(x >= bound)
    return of_h, of_slope, slopes, of_largest, firsts, both


@compiled(forceinline=True)
def gradient_at(x: Any, g: Any, largest: Any, rate: Any, share: Any, moves: Any, knots: Any) -> Any:
    """The gradient of a score."""
    mean, factor, of_first, of_second = moves
    zero = knots[8]
    y = ((g - mean) * share * slope_at(x, rate, knots) - factor) * x
    y -= of_second if x >= knots[6] - largest else zero
    return y - (of_first if x >= largest else zero)


@compiled()
def _pull_back(u: Any, g: Any, largest: Any, rate: Any, share: Any, moves: Any, knots: Any) -> None:
    for k in range(len(u)):
        u[k] = gradient_at(u[k], g[k], largest, rate, share, moves, knots)


@compiled()
def pull_back_rows(
    target: Any, points: Any, parts: Any, begin: int, end: int, by_class: bool, gradient: Any, kept: Any,
    out: Any,
) -> int:  # fmt: skip
    """The gradient of some parts; arguments as in :func:`pull_back_lanes`."""
    own = np.empty(out.shape[1], out.dtype)
    for part in range(begin, end):
        member = parts[part, 2]
        knots = knots_of(points[member], out)
        if by_class:
            own[:] = gradient[member, 0]
        for i in range(parts[part, 0], parts[part, 1]):
            share, largest, total, label = kept[SHARE, i], kept[LARGEST, i], kept[TOTAL, i], target[i]
            if share == 0:  # a label may be any number there
                out[i] = share
                continue
            if by_class:
                own[label] += gradient[member, 1, label]
            g, rate = own if by_class else gradient[member, label], knots[0] / above(total, knots)
            sums = _reduce(out[i], g, largest, rate, knots)
            moves = movement(*sums, largest, total, kept[INVERSE, i], share, knots)
            _pull_back(out[i], g, largest, rate, share, moves, knots)
            if by_class:
                own[label] = gradient[member, 0, label]
    return 0


@compiled()
def _width(classes: int) -> int:
    """How many samples are worked on at once."""
    return max(32, min(256, BLOCK // classes // 32 * 32))


@compiled()
def _place(scores: Any, position: int, size: int) -> Any:
    """The scores (classes, size) of a block in a table or an image."""
    length = scores.shape[2]
    if length == 1:
        return scores[position : position + size, :, 0].T
    return scores[position // length, :, position % length : position % length + size]


@compiled()
def _shelf(out: Any, position: int, size: int) -> Any:
    """The memory of a block's gradient as (classes, size); that of a table without transposing it."""
    if out.shape[2] > 1:
        return _place(out, position, size)
    classes = out.shape[1]
    return out.reshape(-1)[position * classes : (position + size) * classes].reshape(classes, size)


@compiled()
def _copy(source: Any, into: Any, size: int) -> None:
    """In the order of the memory that is not a block's."""
    if source.strides[0] < source.strides[1] or into.strides[0] < into.strides[1]:
        for r in range(size):
            for k in range(len(source)):
                into[k, r] = source[k, r]
    else:
        for k in range(len(source)):
            for r in range(size):
                into[k, r] = source[k, r]


@compiled()
def _weigh_lanes(
    target: Any, weight: Any, class_weight: Any, ignore: int, position: int, size: int, knots: Any, block: Any,
    weights: Any,
) -> int:  # fmt: skip
    """The weights of a block; not 0 if labels or weights are wrong. What is ignored becomes 0, even NaN."""
    weights[size:] = 0
    block[:, size:] = 0
    for r in range(size):
        weights[r] = w = weight_of(position + r, target, weight, class_weight, ignore, len(block), knots)
        if w < 0:
            return 1
        if target[position + r] == ignore:
            block[:, r] = 0
    return 0


@compiled()
def _two_largest_lanes(block: Any, first: Any, second: Any) -> None:
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
def _units_lanes(block: Any, first: Any, second: Any, knots: Any, largest: Any, total: Any, steps: Any) -> None:
    """:func:`_units` of each sample, in the place of the scores."""
    zero, one = knots[8], knots[9]
    for r in range(len(first)):
        largest[r] = (one + one) / (one + exponential(second[r] - first[r], block))
        total[r] = steps[r] = zero
    for k in range(len(block)):
        line = block[k]
        for r in range(len(first)):
            u = exponential(line[r] - first[r], block) * largest[r]
            line[r] = u
            total[r] += u
            steps[r] += step_at(u, zero, knots)


@compiled()
def _finish_lanes(largest: Any, total: Any, steps: Any, weights: Any, knots: Any, rate: Any, share: Any) -> int:
    """1 / steps in their place, the slopes over the middle and the samples' shares; how many samples are finite."""
    finite = 0
    for r in range(len(steps)):
        rate[r], steps[r] = inverse_of(largest[r], total[r], steps[r], knots)
        share[r] = steps[r] * weights[r]
        finite += steps[r] > 0
    return finite


@compiled(fastmath=SUMS)
def _sum_of_steps(line: Any, share: Any, rate: Any, knots: Any) -> Any:
    """The steps of a class, each times its sample's share."""
    total = line.dtype.type(0)
    for r in range(len(line)):
        total += share[r] * step_at(line[r], rate[r], knots)
    return total


@compiled()
def count_lanes(data: Any, begin: int, end: int, by_class: bool, counts: Any, keeps: bool, out: Any, kept: Any) -> int:
    """Count the samples of the parts from ``begin`` to ``end``; not 0 if labels, weights or scores are wrong.

    In ``data`` scores are logits (N, d, L) of N·L samples, weights may be empty; a part is its first sample, last
    sample + 1 and member, (P, 3). ``by_class`` counts are hits, true and predicted weights, (P, 3, d) in float64, else
    matrices (P, d, d). If ``keeps``, ``out``, the gradient's memory, holds u, and ``kept`` (4, N·L) what belongs to it.
    """
    scores, target, weight, class_weight, ignore, points, parts = data
    classes, length = scores.shape[1], scores.shape[2]
    width = _width(classes)
    block, columns = np.zeros((classes, width), scores.dtype), np.zeros((8, width), scores.dtype)
    mine, total, inverse, share = columns[:4], columns[TOTAL], columns[INVERSE], columns[SHARE]
    largest, first, second, rate, weights = columns[LARGEST], columns[4], columns[5], columns[6], columns[7]
    for part in range(begin, end):
        knots, cells = knots_of(points[parts[part, 2]], scores), counts[part]
        position, stop = parts[part, 0], parts[part, 1]
        while position < stop:
            size = min(width, stop - position, length - position % length if length > 1 else width)
            _copy(_place(scores, position, size), block, size)
            if _weigh_lanes(target, weight, class_weight, ignore, position, size, knots, block, weights):
                return 1
            _two_largest_lanes(block, first, second)
            _units_lanes(block, first, second, knots, largest, total, inverse)
            if _finish_lanes(largest, total, inverse, weights, knots, rate, share) < width:
                return 1
            _copy(mine, kept[:, position:], size)
            for r in range(size):
                label = target[position + r]
                if label == ignore:
                    continue
                if by_class:
                    cells[0, label] += share[r] * step_at(block[label, r], rate[r], knots)
                    cells[1, label] += weights[r]
                else:
                    for k in range(classes):
                        cells[label, k] += share[r] * step_at(block[k, r], rate[r], knots)
            if by_class:
                for k in range(classes):
                    cells[2, k] += _sum_of_steps(block[k], share, rate, knots)
            if keeps:
                _copy(block, _shelf(out, position, size), size)
            position += size
    return 0


@compiled()
def _reduce_lanes(block: Any, g: Any, largest: Any, rate: Any, knots: Any, sums: Any) -> None:
    """:func:`_reduce` of each sample."""
    zero, one = knots[8], knots[9]
    of_h, of_slope, slopes, of_largest, firsts, both = sums[0], sums[1], sums[2], sums[3], sums[4], sums[5]
    sums[:] = zero
    for k in range(len(block)):
        line, mine = block[k], g[k]
        for r in range(len(largest)):
            u = line[r]
            moved = u * slope_at(u, rate[r], knots)
            of_h[r] += mine[r] * step_at(u, rate[r], knots)
            of_slope[r] += mine[r] * moved
            slopes[r] += moved
            of_largest[r] += mine[r] if u >= largest[r] else zero
            firsts[r] += one if u >= largest[r] else zero
            both[r] += one if u >= knots[6] - largest[r] else zero


@compiled()
def _pull_back_lanes(block: Any, g: Any, largest: Any, rate: Any, share: Any, moves: Any, knots: Any) -> None:
    """The gradient of the scores in the place of u."""
    mean, factor, of_first, of_second = moves[0], moves[1], moves[2], moves[3]
    for k in range(len(block)):
        line, mine = block[k], g[k]
        for r in range(len(largest)):
            these = mean[r], factor[r], of_first[r], of_second[r]
            line[r] = gradient_at(line[r], mine[r], largest[r], rate[r], share[r], these, knots)


@compiled()
def pull_back_lanes(
    target: Any, points: Any, parts: Any, begin: int, end: int, by_class: bool, gradient: Any, kept: Any,
    out: Any,
) -> int:  # fmt: skip
    """The gradient of the samples of some parts, in the place of u; arguments as in :func:`count_lanes` and ``Job``."""
    classes, length = out.shape[1], out.shape[2]
    width = _width(classes)
    block, g = np.zeros((classes, width), out.dtype), np.zeros((classes, width), out.dtype)
    mine, rate = np.ones((4, width), out.dtype), np.zeros(width, out.dtype)
    sums, moves = np.zeros((6, width), out.dtype), np.zeros((4, width), out.dtype)
    largest, total, inverse, share = mine[LARGEST], mine[TOTAL], mine[INVERSE], mine[SHARE]
    for part in range(begin, end):
        member = parts[part, 2]
        knots = knots_of(points[member], out)
        if by_class:
            for k in range(classes):
                g[k] = gradient[member, 0, k]
        position, stop = parts[part, 0], parts[part, 1]
        while position < stop:
            size = min(width, stop - position, length - position % length if length > 1 else width)
            _copy(_shelf(out, position, size), block, size)
            _copy(kept[:, position:], mine, size)
            for r in range(width):
                rate[r] = knots[0] / above(total[r], knots)
            for r in range(size):
                if share[r] == 0:  # a label may be any number there
                    continue
                label = target[position + r]
                if by_class:
                    g[label, r] += gradient[member, 1, label]
                else:
                    g[:, r] = gradient[member, label]
            _reduce_lanes(block, g, largest, rate, knots, sums)
            for r in range(width):
                moves[0, r], moves[1, r], moves[2, r], moves[3, r] = movement(
                    sums[0, r], sums[1, r], sums[2, r], sums[3, r], sums[4, r], sums[5, r], largest[r], total[r],
                    inverse[r], share[r], knots,
                )  # fmt: skip
            _pull_back_lanes(block, g, largest, rate, share, moves, knots)
            for r in range(size):
                if share[r] == 0:  # the slope of a class that others hardly get may overflow, and 0 times it is NaN
                    block[:, r] = 0
            _copy(block, _place(out, position, size), size)
            if by_class:
                for r in range(size):
                    if share[r] != 0:
                        label = target[position + r]
                        g[label, r] = gradient[member, 0, label]
            position += size
    return 0


_fraction, _mcc = compiled()(fraction), compiled()(mcc)


@compiled()
def losses_of_sums(
    sums: Any, form: Any, label: int, skip_absent: bool, losses: Any, gradient: Any, least: float
) -> None:
    """The loss of each member and its gradient (M, 2, d), given sums (M, 3, d); see ``closed_form``."""
    for member in range(len(sums)):
        if len(form) > 1:
            losses[member] = _fraction(sums[member], form, label, skip_absent, gradient[member])
        else:
            losses[member] = _mcc(sums[member], form, label, skip_absent, gradient[member], TINY, least)


@compiled()
def losses_and_gradient(
    data: Any, form: Any, label: int, skip_absent: bool, losses: Any, wants_gradient: bool, out: Any
) -> int:
    """The losses and the gradient of a batch in one call, since several cost more than the samples of a small batch.

    Arguments as in :func:`count_lanes`, one part per member; ``form`` and ``label`` are those of ``ClosedForm``.
    """
    scores, target, weight, class_weight, _, points, parts = data
    members, classes = len(points), scores.shape[1]
    kept, sums = np.empty((4, len(target)), scores.dtype), np.zeros((members, 3, classes))
    if count_lanes(data, 0, members, True, sums, wants_gradient, out, kept):
        return 1
    for member in range(members):
        total = sums[member, 1].sum()
        if not (LEAST <= total <= MOST or (total == 0 and not (len(weight) and len(class_weight)))):
            return 1
    vectors = np.zeros((members, 2, classes))
    losses_of_sums(sums, form, label, skip_absent, losses, vectors, LEAST_NORM)
    if np.isnan(losses).any():
        return 1
    if wants_gradient:
        gradient = vectors.astype(scores.dtype)
        pull_back_lanes(target, points, parts, 0, members, True, gradient, kept, out)
    return 0
