"""The picture of the results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import pandas as pd
from matplotlib import pyplot as plt

from benchmarks.suite.fits import METRICS
from benchmarks.suite.methods import METHODS, PICK, PORTFOLIO, title
from benchmarks.suite.summary import difference

__all__ = ["TITLES", "picture"]

TITLES = {"f1": "F1", "mcc": "MCC", "balanced_accuracy": "balanced accuracy"}
_COLOURS = {"metricfit": "#c2410c", "other libraries": "#3f3f46", PICK: "#2563eb"}


def picture(rows: pd.DataFrame, methods: Sequence[str], path: Path) -> None:
    """Points of each method above or below the portfolio, mean over tables with two standard errors; one panel each."""
    order = list(methods)[::-1]
    figure, axes = plt.subplots(
        1, len(METRICS), figsize=(11, 1.4 + 0.32 * len(order)), sharey=True, layout="constrained"
    )
    for axis, metric in zip(axes, METRICS, strict=True):
        axis.axvline(0, color=_COLOURS["metricfit"], lw=1.5)
        for place, method in enumerate(order):
            found = None if method == PORTFOLIO else difference(rows, metric, method, PORTFOLIO)
            if found:
                bar = 2 * found.error if len(found.by_table) > 1 else None
                axis.errorbar(found.mean, place, xerr=bar, fmt="o", ms=5, lw=1.2, color=_colour(method))
        axis.plot(0, order.index(PORTFOLIO), "D", ms=7, color=_COLOURS["metricfit"])
        axis.set_title(TITLES[metric], fontsize=10)
        axis.grid(axis="x", color="0.9")
        axis.set_axisbelow(True)
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.tick_params(axis="y", length=0)
    axes[0].set_yticks(range(len(order)), [title(method) for method in order], fontsize=9)
    for label, method in zip(axes[0].get_yticklabels(), order, strict=True):
        label.set_color(_colour(method))
        label.set_fontweight("bold" if method == PORTFOLIO else "normal")
    tables = rows["table"].nunique()
    figure.supxlabel(
        f"points above MetricClassifier, mean over {tables} tables (bars: two standard errors over tables)", fontsize=9
    )
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _colour(method: str) -> str:
    return _COLOURS[method if method == PICK else METHODS[method].family]
