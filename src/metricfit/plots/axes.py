"""Axes to draw on."""

from __future__ import annotations

from typing import Any

__all__ = ["axes_for", "merged"]


def axes_for(ax: Any) -> Any:
    """The axes given, or those of a new figure."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots()[1]


def merged(defaults: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Our keywords, replaced by the caller's, also by matplotlib's short names.

    >>> merged({"color": "red", "label": "F1"}, {"c": "blue"})
    {'label': 'F1', 'c': 'blue'}
    """
    short = {"c": "color", "ls": "linestyle", "lw": "linewidth", "ms": "markersize"}
    taken = {short.get(name, name) for name in given}
    return {**{name: value for name, value in defaults.items() if name not in taken}, **given}
