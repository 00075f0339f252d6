"""The pages for people: a model card and a plain report."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

__all__ = ["model_card", "report_page"]


def report_page(classifier: Any, description: dict[str, Any]) -> str:
    """One HTML page without scripts or outside resources; everything in it is escaped."""
    return _environment().get_template("report.html").render(_shown(classifier, description))


def model_card(classifier: Any, description: dict[str, Any]) -> str:
    """What the model is, how it was measured and how to use it, as Markdown."""
    shown = _shown(classifier, description)
    return _environment().get_template("card.md").render(shown)


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


def _shown(classifier: Any, description: dict[str, Any]) -> dict[str, Any]:
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
        "held_out_rows": description["notes"].get("held_out_rows"),
        "explanation": classifier.explain(),
        "choices": description["notes"].get("choices") or description["fitted"]["choices"],
        "rule": description["decision_rule"],
        "history": classifier.history_.to_dict(orient="records"),
        "libraries": description["libraries"],
    }
