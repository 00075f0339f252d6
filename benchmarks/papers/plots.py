"""Pictures of the tables and figures."""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")
import math
from io import BytesIO
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from PIL import Image

from benchmarks.papers.config import Config, Method
from benchmarks.papers.tables import Line

__all__ = ["analytic", "beside", "convergence", "scatter"]

OURS, THEIRS, TUNED = "#1b6ca8", "#d1495b", "#6a9f58"
BETAS = (0.5, 1.0, 2.0, 3.0)


def beside(config: Config, lines: list[Line], path: Path) -> None:
    """One panel a data set: the paper's number, ours, and ours with a tuned rule, for each loss and metric."""
    groups: dict[str, list[Line]] = {}
    for line in lines:
        e = line.experiment
        names = [e.dataset, e.encoding, e.protocol if len(config.protocols) > 1 else ""]
        title = " ".join(name for name in names if name) + ("" if e.size == "full" else f" ({e.size} size)")
        groups.setdefault(title, []).append(line)
    columns = min(3, max(1, len(groups)))
    rows = math.ceil(len(groups) / columns) or 1
    tallest = max((len(g) for g in groups.values()), default=1)
    figure, axes = plt.subplots(
        rows, columns, figsize=(4.2 * columns + 0.6, rows * (0.9 + 0.19 * tallest)), layout="constrained", squeeze=False
    )
    for axis in axes.flat[len(groups) :]:
        axis.set_visible(False)
    for axis, (title, here) in zip(axes.flat, groups.items(), strict=False):
        _panel(config, axis, title, here)
    keys = [("D", THEIRS, "paper")] if any(line.theirs is not None for line in lines) else []
    keys += [("o", OURS, "ours")]
    keys += [("|", TUNED, "ours, tuned rule")] if any("tuned" in line.others for line in lines) else []
    handles = [
        plt.Line2D([], [], marker=marker, mew=1.6 if marker == "|" else 1, ls="", color=colour, label=label)
        for marker, colour, label in keys
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    figure.suptitle(f"{config.name}: {config.title}", fontsize=10)
    _save(figure, path)


def _panel(config: Config, axis: Axes, title: str, here: list[Line]) -> None:
    labels = []
    for i, line in enumerate(here):
        method = str(Method(line.experiment.method, line.experiment.approximation))
        method += f" b{line.experiment.batch}" if config.batches else ""
        labels.append(f"{method} · {line.title}")
        if line.theirs is not None:
            axis.errorbar(line.theirs.mean, i - 0.15, xerr=_bar(line.theirs.std), fmt="D", ms=3.5, lw=1, color=THEIRS)
        if line.ours is not None:
            axis.errorbar(line.ours.mean, i + 0.15, xerr=_bar(line.ours.std), fmt="o", ms=3.5, lw=1, color=OURS)
        if "tuned" in line.others:
            axis.plot(line.others["tuned"].mean, i + 0.15, "|", ms=8, mew=1.6, color=TUNED)
    axis.set_yticks(range(len(labels)), labels, fontsize=6.5)
    axis.set_ylim(len(labels) - 0.4, -0.6)
    axis.set_title(title, fontsize=9)
    axis.tick_params(axis="x", labelsize=7)
    axis.locator_params(axis="x", nbins=6)
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="x", color="0.9")
    axis.set_axisbelow(True)
    axis.spines[["top", "right", "left"]].set_visible(False)


def _bar(std: float) -> float:
    return 0.0 if math.isnan(std) else std


def convergence(config: Config, curves: pd.DataFrame, path: Path) -> None:
    """Medians over the repetitions, epoch by epoch."""
    figure, axes = plt.subplots(1, len(config.metrics), figsize=(4 * len(config.metrics), 3.4), layout="constrained")
    for axis, metric in zip(np.atleast_1d(axes), config.metrics, strict=True):
        for i, method in enumerate(config.methods):
            here = curves[(curves["method"] == method.name) & (curves["metric"] == metric)]
            medians = here.groupby("epoch")["value"].median()
            if len(medians):
                axis.plot(medians.index, medians, lw=1.3, color=f"C{i}", label=method.name)
        axis.set_title(metric.replace("_", " "), fontsize=9)
        axis.set_xlabel("epoch", fontsize=8)
        axis.tick_params(labelsize=7)
        axis.grid(color="0.92")
        axis.spines[["top", "right"]].set_visible(False)
    handles, labels = np.atleast_1d(axes)[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=7)
    figure.suptitle(f"{config.name}: {config.title}{_size(curves)}", fontsize=10)
    _save(figure, path)


def scatter(config: Config, pairs: dict[str, pd.DataFrame], correlations: dict[str, float], path: Path) -> None:
    """Loss against score, one dot an epoch."""
    figure, axes = plt.subplots(1, len(pairs), figsize=(3 * len(pairs), 3), layout="constrained", squeeze=False)
    for axis, (name, frame) in zip(axes.flat, pairs.items(), strict=True):
        points = axis.scatter(frame["loss"], frame["score"], c=frame.index, s=9, cmap="viridis")
        r = correlations[name]
        axis.set_title(f"{name}, {'constant score' if math.isnan(r) else f'r = {r:.3f}'}", fontsize=8)
        axis.set_xlabel("loss", fontsize=8)
        axis.tick_params(labelsize=7)
        axis.ticklabel_format(useOffset=False)
        axis.locator_params(nbins=4)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel("score on the training part", fontsize=8)
    figure.colorbar(points, ax=axes, label="epoch", shrink=0.8)
    size = next(iter(pairs.values())).attrs.get("size", "")
    figure.suptitle(f"{config.name}: {config.title}{size}", fontsize=10)
    _save(figure, path)


def analytic(config: Config, curves: dict[str, pd.DataFrame], path: Path) -> None:
    """The terms of the mean losses as functions of the smoothed error rates."""
    figure, axes = plt.subplots(1, len(curves), figsize=(4 * len(curves), 3.2), layout="constrained", squeeze=False)
    for axis, (name, frame) in zip(axes.flat, curves.items(), strict=True):
        for column, style in zip(frame, ("-", "--", ":"), strict=True):
            axis.plot(frame.index, frame[column], style, label=column)
        axis.set_title(name, fontsize=9)
        axis.set_xlabel("q", fontsize=8)
        axis.legend(frameon=False, fontsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{config.name}: {config.title}", fontsize=10)
    _save(figure, path)


def _size(curves: pd.DataFrame) -> str:
    sizes = sorted(set(curves["size"]))
    return "" if sizes == ["full"] else f" ({', '.join(sizes)} size)"


def _save(figure: plt.Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = BytesIO()
    figure.savefig(drawn, dpi=110)
    plt.close(figure)
    # A palette makes the file a third as large; without metadata the same rows give the same bytes.
    Image.open(drawn).convert("RGB").quantize(96).save(path, optimize=True)
