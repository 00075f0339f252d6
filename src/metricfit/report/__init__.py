"""The report: one self-contained HTML page about a model."""

from __future__ import annotations

from typing import Any

__all__ = ["render"]


def render(classifier: Any, description: dict[str, Any], *, settings: str | None = None) -> str:
    """The page."""
    from metricfit.store.pages import report_page

    return report_page(classifier, description)
