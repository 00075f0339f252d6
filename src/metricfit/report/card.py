"""The model card: what the model is, how it was measured and how to use it, as Markdown."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

__all__ = ["measured_rows", "model_card"]


def model_card(description: dict[str, Any]) -> str:
    """Render the card from a description, see :func:`metricfit.store.description_of`."""
    shown = {
        **description,
        "classes": [str(value) for value in description["classes"]["values"]],
        "rows": measured_rows(description),
    }
    return _environment().get_template("card.md").render(shown)


def measured_rows(description: dict[str, Any]) -> list[dict[str, Any]]:
    """What was measured when the model was trained: model, value, low and high; only rows that have a value."""
    rows = description["notes"].get("held_out") or description["validation_report"]
    return [row for row in rows if row["value"] is not None]


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("metricfit.report"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        # The card is no HTML; every text goes through one of the filters below.
        autoescape=False,
    )  # fmt: skip
    environment.filters |= {"number": _number, "text": _text, "code": _code}
    return environment


def _number(value: float | None) -> str:
    return "–" if value is None or math.isnan(value) else f"{value:.4f}"


def _text(value: Any) -> str:
    r"""Text that Markdown shows as it is: no HTML, no end of a table's cell, no formatting.

    >>> print(_text("a|b <b> >= *c*"))
    a\|b &lt;b> >= \*c\*
    """
    line = " ".join(str(value).split()).replace("&", "&amp;").replace("<", "&lt;")
    for mark in "\\`*_|[]":
        line = line.replace(mark, f"\\{mark}")
    return line


def _code(value: Any) -> str:
    """A code span, where the text has nothing that could end it or be taken for HTML."""
    line = " ".join(str(value).split())
    return _text(line) if any(mark in line for mark in "`<|&") else f"`{line}`"
