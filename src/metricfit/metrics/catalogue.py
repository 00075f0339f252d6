"""What there is to know of each metric: its formula to read and as JavaScript, its page in the documentation."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, NamedTuple

from metricfit.metrics.base import spell
from metricfit.metrics.formula import COUNTS, Formula
from metricfit.metrics.registry import aliases_of, available, get, metric_class

__all__ = ["describe", "javascript", "reference_page", "text"]

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
    return _printed(formula, _TEXT)


def javascript(formula: Formula) -> str:
    """The formula as a JavaScript function: of the counts ``c`` of a class, or of a matrix ``m``; and parameters.

    >>> from metricfit.metrics.formula import trace
    >>> javascript(trace(lambda c: c.tp / (c.tp + c.fn)))
    '(c, p) => divide(c.tp, c.tp + c.fn)'
    """
    return f"({'m' if formula.whole else 'c'}, p) => {_printed(formula, _JAVASCRIPT)}"


class _Printed(NamedTuple):
    """A step in words, and how firmly it holds together: 1 a sum, 2 a product, 3 what needs no brackets."""

    words: str
    holds: int
    number: float | None = None

    def within(self, level: int) -> str:
        return self.words if self.holds >= level else f"({self.words})"


def _printed(formula: Formula, language: dict[str, str]) -> str:
    text = language is _TEXT

    def in_words(step: str, *parts: Any) -> _Printed:
        if step in COUNTS:
            return _Printed(step.upper() + ("ₖ" if formula.whole else "") if text else f"c.{step}", 3)
        if step == "n":
            return _Printed("n" if text else "m.n" if formula.whole else "(c.tp + c.fp + c.fn + c.tn)", 3)
        if step == "number":
            return _Printed(f"{parts[0]:.17g}", 3 if parts[0] >= 0 else 1, parts[0])
        if step == "parameter":
            return _Printed(_GREEK.get(parts[0], parts[0]) if text else f"p.{parts[0]}", 3)
        if step in "+-":
            return _Printed(f"{parts[0].within(1)} {step} {parts[1].within(1 if step == '+' else 2)}", 1)
        if step == "**" and parts[1].number == 0.5:
            return _Printed(language["root"].format(parts[0].words), 3)
        if text and step == "**" and parts[1].number == 2:
            return _Printed(f"{parts[0].within(3)}²", 3)
        if text and step == "*" and parts[0].number is not None:
            return _Printed(f"{parts[0].within(3)} {parts[1].within(3)}", 2)
        levels = {"*": (2, 3), "**": (3, 3), "/": (2, 3) if text else (0, 0)}.get(step, (3,) if text else (0,))
        inner = [part.within(level) for part, level in zip(parts, levels, strict=True)]
        return _Printed(language[step].format(*inner), 2 if step == "*" or (text and step == "/") else 3)

    printed: _Printed = formula.replay(in_words)
    return printed.words


def describe(name: str) -> dict[str, Any]:
    """What there is to know of a metric, by name or alias: formula, range, parameters, reference.

    >>> describe("f2")["parameters"]["beta"], describe("f2")["formula"]
    ('2', '(1 + β²)·TP / ((1 + β²)·TP + β²·FN + FP)')
    """
    cls, metric = metric_class(name), get(name)
    return {
        "name": name,
        "canonical": cls.name,
        "summary": " ".join((cls.__doc__ or "").split("\n\n")[0].split()).rstrip("."),
        "formula": cls.formula,
        "range": list(metric.range),
        "greater_is_better": metric.greater_is_better is not False,
        "parameters": {f.name: spell(getattr(metric, f.name)) for f in fields(cls)},
        "aliases": aliases_of(cls.name),
        "reference": cls.reference,
    }


def reference_page() -> str:
    """All metrics as Markdown, for the reference: one section each."""
    lines = []
    for name in available():
        about = describe(name)
        low, high = about["range"]
        better = "higher" if about["greater_is_better"] else "lower"
        names = [metric_class(name).__name__, *about["aliases"]]
        given = ", ".join(f"`{key}={value}`" for key, value in about["parameters"].items())
        lines += [
            f"### {name}", "", f"{about['summary']}.", "", f"- Formula: `{about['formula']}`",
            f"- Range: {low:g} to {high:g}, {better} is better", f"- Parameters: {given}",
            f"- Also called: {', '.join(f'`{n}`' for n in names)}",
            "- Reference: " + about["reference"].replace("<", "&lt;"), "",
        ]  # fmt: skip
    return "\n".join(lines)
