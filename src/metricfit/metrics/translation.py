"""A formula in other forms: text to read, JavaScript for reports, coefficients for the fast path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from metricfit.metrics.formula import COUNTS, Formula

__all__ = ["Fraction", "fraction", "javascript", "text"]

Fraction = tuple[tuple[float, ...], tuple[float, ...]]
"""Coefficients of (tp, fp, fn, tn) in a numerator and in a denominator."""

_ONE = np.array([0.0, 0.0, 0.0, 0.0, 1.0])  # the form without counts; the last place is a constant
_Form = tuple[np.ndarray, np.ndarray] | None  # a numerator and a denominator, linear in the counts
_GREEK = {"alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "theta": "θ", "lambda_": "λ", "tau": "τ"}
_TEXT = {
    "/": "{} / {}", "*": "{}·{}", "**": "{}^{}", "root": "√({})", "sum": "Σₖ {}", "mean": "meanₖ {}",
    "geometric_mean": "geometric meanₖ {}", "observed": "Σᵢⱼ wᵢⱼ cᵢⱼ", "expected": "Σᵢⱼ wᵢⱼ tᵢ pⱼ",
}  # fmt: skip
_JAVASCRIPT = {
    "/": "divide({}, {})", "*": "{} * {}", "**": "({} ** {})", "root": "root({})",
    "sum": "total(m, (c) => {})", "mean": "mean(m, (c) => {})", "geometric_mean": "geometricMean(m, (c) => {})",
    "observed": "observed(m, {})", "expected": "expected(m, {})",
}  # fmt: skip


def text(formula: Formula) -> str:
    """The formula to read.

    >>> from metricfit.metrics.formula import trace
    >>> text(trace(lambda c: c.tp / (c.tp + c.fn) + c.tn / (c.tn + c.fp) - 1))
    'TP / (TP + FN) + TN / (TN + FP) - 1'
    """
    return _printed(formula, len(formula.steps) - 1, _TEXT)[0]


def javascript(formula: Formula) -> str:
    """The formula as a JavaScript function: of the counts ``c`` of a class, or of a matrix ``m``; and parameters.

    >>> from metricfit.metrics.formula import trace
    >>> javascript(trace(lambda c: c.tp / (c.tp + c.fn)))
    '(c, p) => divide(c.tp, c.tp + c.fn)'
    """
    return f"({'m' if formula.whole else 'c'}, p) => {_printed(formula, len(formula.steps) - 1, _JAVASCRIPT)[0]}"


def fraction(formula: Formula, parameters: Mapping[str, Any]) -> Fraction | None:
    """The coefficients of the formula where it is a quotient of linear forms of the counts of a class, else None.

    >>> from metricfit.metrics.formula import trace
    >>> fraction(trace(lambda c: c.tp / (c.tp + c.fn) - 1), {})
    ((0.0, 0.0, -1.0, 0.0), (1.0, 0.0, 1.0, 0.0))
    """
    forms: list[_Form] = []
    for name, *arguments in formula.steps:
        if name in (*COUNTS, "n"):
            forms.append((np.array([float(name in (count, "n")) for count in COUNTS] + [0.0]), _ONE))
        elif name in ("number", "parameter"):
            number = arguments[0] if name == "number" else parameters[arguments[0]]
            forms.append((number * _ONE, _ONE) if isinstance(number, (int, float)) else None)
        else:
            forms.append(_joined(name, *(forms[argument] for argument in arguments)))
    if forms[-1] is None or any(part[-1] for part in forms[-1]):
        return None
    above, below = (tuple(part[:-1].tolist()) for part in forms[-1])
    return above, below


def _joined(name: str, a: _Form, b: _Form = None) -> _Form:
    if a is None or b is None:
        return None
    first, second = (x[0][-1] if x[1] is _ONE and not x[0][:-1].any() else None for x in (a, b))  # if it is a number
    if name in "+-":
        sign = 1 if name == "+" else -1
        if np.array_equal(a[1], b[1]):
            return a[0] + sign * b[0], a[1]
        if second is not None:
            return a[0] + sign * second * a[1], a[1]
        return None if first is None else (first * b[1] + sign * b[0], b[1])
    if name == "**":
        return None if first is None or second is None else (first**second * _ONE, _ONE)
    if second is not None:
        return a[0] * (second if name == "*" else 1 / second), a[1]
    if name == "*":
        return None if first is None else (first * b[0], b[1])
    return (a[0], b[0]) if a[1] is _ONE and b[1] is _ONE else None


def _printed(formula: Formula, index: int, language: dict[str, str]) -> tuple[str, int]:
    """A step in a language, and how firmly it holds together: 1 a sum, 2 a product, 3 what needs no brackets."""
    name, *arguments = formula.steps[index]
    text = language is _TEXT

    def part(place: int, level: int) -> str:
        inner, holds = _printed(formula, arguments[place], language)
        return inner if holds >= level else f"({inner})"

    if name in COUNTS:
        return (name.upper() + ("ₖ" if formula.whole else "") if text else f"c.{name}"), 3
    if name == "n":
        return ("n" if text else "m.n" if formula.whole else "(c.tp + c.fp + c.fn + c.tn)"), 3
    if name == "number":
        return f"{arguments[0]:.17g}", 3 if arguments[0] >= 0 else 1
    if name == "parameter":
        return (_GREEK.get(arguments[0], arguments[0]) if text else f"p.{arguments[0]}"), 3
    if name in "+-":
        return f"{part(0, 1)} {name} {part(1, 1 if name == '+' else 2)}", 1
    power = formula.steps[arguments[1]] if name == "**" else None
    if power == ("number", 0.5):
        return language["root"].format(part(0, 0)), 3
    if text and power == ("number", 2.0):
        return f"{part(0, 3)}²", 3
    if text and name == "*" and formula.steps[arguments[0]][0] == "number":
        return f"{part(0, 3)} {part(1, 3)}", 2
    levels = {"*": (2, 3), "**": (3, 3), "/": (2, 3) if text else (0, 0)}.get(name, (3,) if text else (0,))
    parts = [part(place, levels[place]) for place in range(len(arguments))]
    return language[name].format(*parts), 2 if name == "*" or (text and name == "/") else 3
