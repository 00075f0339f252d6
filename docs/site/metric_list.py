"""The list of all metrics, generated from the registry: a hook of mkdocs."""

from __future__ import annotations

from typing import Any

from metricfit import metrics

MARK = "<!-- metrics: the list is generated from the registry -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the list in the place of the mark."""
    return markdown.replace(MARK, metrics.reference_page()) if MARK in markdown else markdown
