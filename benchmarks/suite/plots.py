"""Pictures of the results."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

from benchmarks.suite.methods import METHODS, METRICS
from benchmarks.suite.summary import Comparison, scores

__all__ = ["TITLES", "heat_map", "rank_plot"]

TITLES = {"f1": "F1", "mcc": "MCC", "balanced_accuracy": "Balanced accuracy", "overall": "All three metrics"}
_COLOURS = {"metricfit": "#c2410c", "same network, cross-entropy": "#2563eb", "other libraries": "#52525b"}


def rank_plot(comparison: Comparison, path: Path) -> None:
    """Average rank of each method for each metric and overall, with standard errors over data sets."""
    average, error = comparison.average(), comparison.error()
    order = list(average.index)[::-1]
    panels = ["overall", *METRICS]
    height = 1.6 + 0.27 * len(order)
    figure, axes = plt.subplots(1, len(panels), figsize=(11, height), sharey=True, layout="constrained")
    for axis, panel in zip(axes, panels, strict=True):
        for i, method in enumerate(order):
            colour = _COLOURS[METHODS[method].family]
            axis.errorbar(
                average.loc[method, panel], i, xerr=error.loc[method, panel], fmt="o", ms=5, lw=1.2, color=colour
            )
        axis.set_title(TITLES[panel], fontsize=10)
        axis.grid(axis="x", color="0.9")
        axis.set_axisbelow(True)
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.tick_params(axis="y", length=0)
    axes[0].set_yticks(range(len(order)), [METHODS[m].title for m in order], fontsize=9)
    for label, method in zip(axes[0].get_yticklabels(), order, strict=True):
        label.set_color(_COLOURS[METHODS[method].family])
        label.set_fontweight("bold" if method == "default" else "normal")
    figure.supxlabel(
        f"average rank over {len(comparison.sets)} data sets (1 is best; bars: standard error)", fontsize=9
    )
    handles = [plt.Line2D([], [], marker="o", ls="", color=c, label=name) for name, c in _COLOURS.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False, fontsize=9)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def heat_map(rows: pd.DataFrame, methods: list[str], path: Path) -> None:
    """How far each method is from the best one on each data set, in points, mean over the metrics."""
    gaps = []
    for metric in METRICS:
        means = scores(rows, metric).reindex(columns=methods).groupby("dataset", observed=True).mean()
        gaps.append(100 * (means.sub(means.max(axis=1), axis=0)))
    table = sum(gaps) / len(gaps)
    figure, axis = plt.subplots(figsize=(2.6 + 0.55 * len(methods), 2.4 + 0.32 * len(table)), layout="constrained")
    shown = table.to_numpy(dtype=float)
    colours = plt.get_cmap("YlGnBu_r").with_extremes(bad="0.93")
    picture = axis.imshow(np.ma.masked_invalid(shown), cmap=colours, vmin=-15, vmax=0, aspect="auto")
    for (i, j), value in np.ndenumerate(shown):
        if np.isfinite(value):
            text = "0" if value > -0.05 else f"{value:.1f}" if value > -9.95 else f"{value:.0f}"
            axis.text(j, i, text, ha="center", va="center", fontsize=7, color="white" if value < -9 else "0.15")
    titles = [METHODS[m].title for m in methods]
    axis.set_xticks(range(len(methods)), titles, rotation=40, ha="left", rotation_mode="anchor", fontsize=8)
    axis.xaxis.tick_top()
    axis.set_yticks(range(len(table)), list(table.index), fontsize=8)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    axis.set_xlabel("points below the best method of the set, mean of F1, MCC and balanced accuracy", fontsize=9)
    figure.colorbar(picture, ax=axis, shrink=0.6, extend="min")
    figure.savefig(path, dpi=130)
    plt.close(figure)
