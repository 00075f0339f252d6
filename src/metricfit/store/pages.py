"""The page for people: a model card."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

__all__ = ["model_card"]


def model_card(description: dict[str, Any]) -> str:
    """What the model is, how it was measured and how to use it, as Markdown."""
    return _environment().get_template("card.md").render(_shown(description))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("metricfit.store"),
        # Markdown lets HTML through, so the card is escaped as well.
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = lambda value: "–" if value is None or math.isnan(value) else f"{value:.4f}"
    environment.filters["cell"] = lambda text: " ".join(str(text).split()).replace("|", "\\|")
    return environment


def _shown(description: dict[str, Any]) -> dict[str, Any]:
    rows = []
    for row in description["validation_report"]:
        value, error = row["value"], row["std_error"]
        known = value is not None and error is not None
        rows.append({**row, "low": value - 1.96 * error if known else None,
                     "high": value + 1.96 * error if known else None})  # fmt: skip
    return {
        "metric": description["metric"],
        "task": description["task"],
        "classes": [str(value) for value in description["classes"]["values"]],
        "columns": description["columns"]["kinds"] or [],
        "rows": rows,
        "held_out": description["notes"].get("held_out") or [],
        "rule": description["decision_rule"],
        "libraries": description["libraries"],
    }
