"""The figures of surrogate-fbeta: convergence, loss against score, and the terms of the mean loss."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.papers.config import Config
from benchmarks.papers.plots import analytic, convergence, scatter
from benchmarks.papers.results import read
from benchmarks.papers.verdicts import followed

__all__ = ["figure", "mean_loss_terms", "pairs_of"]


def figure(config: Config, results: Path, image: Path | None) -> str:
    """The figure as Markdown; its picture is written where ``image`` says."""
    head = [f"# {config.name}: {config.title}", ""]
    if config.kind == "analytic":
        return "\n".join([*head, *_terms(config, image), *_notes(config)]) + "\n"
    curves = read("curves", results, config.all_protocols())
    curves = curves[curves["dataset"].isin(config.datasets) & curves["method"].isin([m.name for m in config.methods])]
    if curves.empty:
        return "\n".join([*head, "Not run yet.", "", *_notes(config)]) + "\n"
    size = next(size for size in ("full", "reduced", "toy") if size in set(curves["size"]))
    curves = curves[curves["size"] == size]
    label = [] if size == "full" else [f"**{size.capitalize()} size, not the paper's.**", ""]
    make = _convergence if config.kind == "curves" else _scatter
    return "\n".join([*head, *label, *make(config, curves, image), *_notes(config)]) + "\n"


def _notes(config: Config) -> list[str]:
    return ["", *(f"- {note}" for note in config.notes)]


def _convergence(config: Config, curves: pd.DataFrame, image: Path | None) -> list[str]:
    if image is not None:
        convergence(config, curves, image)
    names = [name.replace("_", " ") for name in config.metrics]
    lines = ["Median over the repetitions in the last epoch, and the best epoch's in brackets.", ""]
    lines += [f"| loss | {' | '.join(names)} | repetitions |", "|---|" + "---|" * (len(names) + 1)]
    for method in config.methods:
        here = curves[curves["method"] == method.name]
        cells = []
        for metric in config.metrics:
            medians = here[here["metric"] == metric].groupby("epoch")["value"].median()
            cells.append(f"{medians.iloc[-1]:.3f} ({medians.max():.3f})" if len(medians) else "not run")
        lines.append(f"| {method.name} | {' | '.join(cells)} | {here['trial'].nunique()} |")
    return lines


def pairs_of(config: Config, curves: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Loss and score on the training part, epoch by epoch of the first repetition, for each β."""
    found = {}
    for method, metric in zip(config.methods, config.metrics, strict=True):
        here = curves[(curves["method"] == method.name) & (curves["trial"] == 0)]
        wide = here.pivot(index="epoch", columns="metric", values="value")
        if {"train_loss", metric} <= set(wide):
            found[f"β = {method.name.split('@')[1]}"] = pd.DataFrame(
                {"loss": wide["train_loss"], "score": wide[metric]}
            )
    return found


def _scatter(config: Config, curves: pd.DataFrame, image: Path | None) -> list[str]:
    pairs = pairs_of(config, curves)
    pearson = {name: float(frame["loss"].corr(frame["score"])) for name, frame in pairs.items()}
    ranks = {name: float(frame.rank().corr().iloc[0, 1]) for name, frame in pairs.items()}
    dataset, loss = config.datasets[0], config.methods[0].name.partition("@")[0]
    every = {name: 0.0 - followed(curves, dataset, loss, name[4:]) for name in pairs}
    size = next(iter(set(curves["size"])))
    for frame in pairs.values():
        frame.attrs["size"] = "" if size == "full" else f" ({size} size)"
    if image is not None:
        scatter(config, pairs, pearson, image)
    lines = [
        "Correlation of the loss with the score over the epochs; a perfect line has -1. The picture and the first",
        "",
    ]
    lines[0] += " two columns are of the first repetition, the median (lowest to highest) of all, where a score that"
    lines[0] += " does not move counts as 0."
    head = ["β", "Pearson", "Spearman", "epochs", "Pearson of all repetitions", "repetitions"]
    lines += [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for n in pairs:
        r = every[n]
        median = f"{r.median():.3f} ({r.min():.3f} to {r.max():.3f})"
        cells = [n[4:], _shown(pearson[n]), _shown(ranks[n]), str(len(pairs[n])), median, str(len(r))]
        lines.append(f"| {' | '.join(cells)} |")
    if any(math.isnan(r) for r in pearson.values()):
        lines += ["", "–: the score is the same after every epoch."]
    return lines


def _shown(correlation: float) -> str:
    return "–" if math.isnan(correlation) else f"{correlation:.3f}"


def mean_loss_terms(q: np.ndarray) -> dict[str, pd.DataFrame]:
    """The two terms of the mean loss (surrogate-fbeta eq. 16, 18, 21) with β = 1 and p = 0.5.

    >>> mean_loss_terms(np.array([0.5]))["function of the false positive rate"].round(3).to_numpy().tolist()
    [[0.693, 0.5, 0.405]]
    """
    entropy, absolute = -np.log1p(-q), q
    names = ["BCE", "MAE", "surrogate Fβ"]
    return {
        "function of the false negative rate": pd.DataFrame(
            np.stack([entropy, absolute, entropy], axis=1), index=q, columns=names
        ),
        "function of the false positive rate": pd.DataFrame(
            np.stack([entropy, absolute, np.log1p(q)], axis=1), index=q, columns=names
        ),
    }


def _terms(config: Config, image: Path | None) -> list[str]:
    if image is not None:
        analytic(config, mean_loss_terms(np.linspace(0, 0.99, 100)), image)
    lines = []
    for name, frame in mean_loss_terms(np.array([0.1, 0.5, 0.9])).items():
        lines += [f"{name.capitalize()} q:", "", f"| q | {' | '.join(frame)} |", "|---|" + "---|" * len(frame.columns)]
        lines += [f"| {q:g} | {' | '.join(f'{value:.3f}' for value in row)} |" for q, row in frame.iterrows()]
        lines += [""]
    return lines[:-1]
