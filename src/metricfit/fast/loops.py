"""Compiled building blocks: how loops are compiled, the exponential, the step and the two largest scores of a sample.

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
from numba.core import types
from numba.extending import intrinsic

__all__ = ["LANES", "column", "compiled", "exponential", "over_of", "slope_at", "step_at", "two_largest"]

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
