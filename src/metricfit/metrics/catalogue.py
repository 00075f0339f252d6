"""What there is to know of each metric, for the command line and the documentation."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from metricfit.metrics.base import spell
from metricfit.metrics.registry import aliases_of, available, get, metric_class

__all__ = ["describe", "reference_page"]


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
