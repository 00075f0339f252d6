"""The list of all metrics, generated from the registry: a hook of mkdocs."""

from __future__ import annotations

from typing import Any

from metricfit import metrics

MARK = "<!-- metrics: the list is generated from the registry -->"


def reference_page() -> str:
    """All metrics as Markdown, for the reference: one section each."""
    lines = []
    for name in metrics.available():
        about = metrics.describe(name)
        low, high = about["range"]
        better = "higher" if about["greater_is_better"] else "lower"
        names = [metrics.metric_class(name).__name__, *about["aliases"]]
        given = ", ".join(f"`{key}={value}`" for key, value in about["parameters"].items())
        lines += [
            f"### {name}", "", f"{about['summary']}.", "", f"- Formula: `{about['formula']}`",
            f"- Range: {low:g} to {high:g}, {better} is better", f"- Parameters: {given}",
            f"- Also called: {', '.join(f'`{n}`' for n in names)}",
            "- Reference: " + about["reference"].replace("<", "&lt;"), "",
        ]  # fmt: skip
    return "\n".join(lines)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the list in the place of the mark."""
    return markdown.replace(MARK, reference_page()) if MARK in markdown else markdown
