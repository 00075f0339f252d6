"""Compiled building blocks of the fast loss: exponential, step, and the derivatives of the step.

Importing this module imports numba, so :mod:`metricfit.fast` does so only when a loss needs it. The formulas are
those of :mod:`metricfit.steps`; all numbers have the dtype of ``limits``, since one float64 constant would make a whole
loop float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

__all__ = ["bend_at", "bends_of_step", "compiled", "exponential", "segments_of_step", "slope_at", "step_at"]

GOOD, NOT_FINITE, NO_SUCH_CLASS, BAD_WEIGHT = 0, 1, 2, 3
"""What a counting pass reports. Whatever is not good is told in words by the plain path."""

MARGIN, SMALLEST, TINY = 0, 1, 2
"""Positions in ``limits``: margin of the threshold, smallest width of a segment, smallest normal number."""

LARGEST, SCALE, THRESHOLD, INVERSE = 0, 1, 2, 3
"""What a sample keeps for the backward pass, besides the places of its two largest scores: the largest score, 1 / sum
of exponentials, the mean of the two largest probabilities, 1 / sum of steps."""


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
def exponential(x: Any, limits: Any) -> Any:
    """exp(x) for x <= 0, to one unit in the last place or two; vectorises, unlike a call of the C library."""
    number = limits.dtype.type
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
def segments_of_step(mean: Any, delta: Any, factor: Any, limits: Any) -> Any:
    """The five-point step at a threshold: threshold, half the middle width, the three slopes."""
    number = limits.dtype.type
    one, two = number(1), number(2)
    smallest = limits[SMALLEST]
    tau = min(max(mean, limits[MARGIN]), one - limits[MARGIN])
    width = max(factor * min(tau, one - tau), smallest)
    half = width / two
    low = delta / max(tau - half, smallest)
    middle = (one - two * delta) / width
    high = delta / max(one - tau - half, smallest)
    return tau, half, low, middle, high


@compiled()
def bends_of_step(mean: Any, delta: Any, factor: Any, limits: Any) -> Any:
    """How the step moves with its threshold: at p below, constant and linear part between, above."""
    number = limits.dtype.type
    zero, one, two = number(0), number(1), number(2)
    smallest = limits[SMALLEST]
    tau, half, low, middle, high = segments_of_step(mean, delta, factor, limits)
    # Where the threshold, the width or an outer segment is held at a limit it does not move. Zeros and ones, since
    # branches do not vectorise.
    moves = (one if mean >= limits[MARGIN] else zero) * (one if mean <= one - limits[MARGIN] else zero)
    widens = one if factor * min(tau, one - tau) >= smallest else zero
    side = (one if tau < one - tau else zero) - (one if tau > one - tau else zero)
    growth = factor * side * widens  # of the width with the threshold
    below, above = tau - half, one - tau - half
    bend_low = -low * (one - growth / two) / max(below, smallest) * (moves if below >= smallest else zero)
    bend_high = -high * (one + growth / two) / max(above, smallest) * (moves if above >= smallest else zero)
    return bend_low, -middle * moves, -middle * growth / (two * half) * moves, bend_high


@compiled()
def step_at(p: Any, tau: Any, half: Any, low: Any, middle: Any, high: Any, one: Any) -> Any:
    """The value of the step."""
    offset = p - tau
    below = p * low
    between = one / (one + one) + offset * middle
    above = one - (one - p) * high
    return below if offset < -half else (above if offset > half else between)


@compiled()
def slope_at(p: Any, tau: Any, half: Any, low: Any, middle: Any, high: Any) -> Any:
    """The derivative of the step with respect to p."""
    offset = p - tau
    return low if offset < -half else (high if offset > half else middle)


@compiled()
def bend_at(p: Any, tau: Any, half: Any, low: Any, between: Any, middle: Any, high: Any, one: Any) -> Any:
    """The derivative of the step with respect to its threshold."""
    offset = p - tau
    inner = between + offset * middle
    outer = (one - p) * high
    return p * low if offset < -half else (outer if offset > half else inner)
