"""The tables of the page: matrices, classes, confused pairs, training, columns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from metricfit.assess import Decided, HeldOutScores
from metricfit.assess.verdicts import MODEL, PLAIN, TUNED
from metricfit.confusion import ConfusionMatrix
from metricfit.data import TablePreprocessor
from metricfit.metrics import get
from metricfit.steps import Annealed
from metricfit.steps import get as get_step
from metricfit.training.recipes import Recipe

_SHOWN, _PAIRS = 12, 20

Array = NDArray[np.float64]


def matrices(scores: HeldOutScores, labels: tuple[Any, ...]) -> list[dict[str, Any]]:
    """The matrices before (cross-entropy; without it the model's arg max) and after: counts and shares of the row."""
    if scores.truth.ndim == 2:
        return []
    shown, joined = np.arange(len(labels)), len(labels) > _SHOWN
    if joined:  # those with most errors; all others together are one more row and column
        ours = scores.judged(labels).confusion
        shown = np.sort(np.argsort(-(ours.fp + ours.fn).numpy(), kind="stable")[:_SHOWN])
    names = [str(labels[k]) for k in shown] + (["all others"] if joined else [])
    place = np.full(len(labels), len(shown))
    place[shown] = np.arange(len(shown))
    found = []
    for name, decided in _decisions(scores).items():
        rows = Decided(
            place[scores.truth], np.where(decided < 0, -1, place[decided]), tuple(names), weight=scores.weight
        )
        cells = rows.confusion.matrix.numpy()
        shares = cells / np.maximum(cells.sum(axis=1, keepdims=True), np.finfo(float).tiny)
        found.append({"name": name, "labels": names, "joined": joined, "cells": np.stack([cells, shares], -1).tolist()})
    return found


def _decisions(scores: HeldOutScores) -> dict[str, NDArray[np.int64]]:
    found: dict[str, NDArray[np.int64]] = {}
    if scores.baseline_decided is not None:
        found[f"Before: {PLAIN}"] = scores.baseline_decided
        if scores.baseline_tuned is not None:
            found[TUNED] = scores.baseline_tuned
    else:
        argmax = scores.proba.argmax(axis=1)
        if not np.array_equal(argmax, scores.decided):
            found["Before: this model, arg max"] = argmax
    found[f"After: {MODEL}" if found else MODEL] = scores.decided
    return found


def class_table(scores: HeldOutScores, labels: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Of each class (or label): support and its share, predictions, rates, and F1 of the tuned baseline."""
    rows = class_rows(scores.judged(labels).confusion)
    rival = scores.baseline_tuned if scores.baseline_tuned is not None else scores.baseline_decided
    usual = None if rival is None else class_rows(scores.judged(labels, rival).confusion)
    return [{**row, "baseline_f1": None if usual is None else usual[k]["f1"]} for k, row in enumerate(rows)]


def class_rows(cm: ConfusionMatrix) -> list[dict[str, Any]]:
    """Counts and rates of each class or label; NaN where a rate is not defined."""
    found = {"support": cm.support, "share": cm.support / (float(cm.total) or 1.0), "predicted": cm.predicted,
             "alarms": cm.fp, "missed": cm.fn}  # fmt: skip
    found |= {name: get(f"{name}:average=none,zero_division=nan").compute(cm) for name in ("precision", "recall", "f1")}
    frame = pd.DataFrame({"label": list(map(str, cm.labels or ())), **{n: v.numpy() for n, v in found.items()}})
    rows: list[Any] = frame.to_dict(orient="records")
    return rows


def confused_pairs(scores: HeldOutScores, labels: tuple[Any, ...]) -> list[dict[str, Any]]:
    """The cells off the diagonal that hold most, from high to low."""
    if scores.truth.ndim == 2 or len(labels) == 2:
        return []
    matrix = scores.judged(labels).confusion.matrix.numpy()
    support = matrix.sum(axis=1)
    np.fill_diagonal(matrix, 0)
    order = np.argsort(-matrix, axis=None, kind="stable")[:_PAIRS]
    return [
        {"true": str(labels[i]), "predicted": str(labels[j]), "count": float(matrix[i, j]),
         "share": float(matrix[i, j] / support[i])}
        for i, j in zip(*np.unravel_index(order, matrix.shape), strict=True) if matrix[i, j] > 0
    ]  # fmt: skip


def training(classifier: Any) -> dict[str, Any] | None:
    """The data of the training charts, or None without a single epoch."""
    history: pd.DataFrame = classifier.history_
    if not len(history):
        return None
    recipe: Recipe = classifier.recipe_
    columns = ("epoch", "loss", "soft_metric", "hard_metric", "temperature")
    return {
        **{name: history[name].tolist() for name in columns},
        "coolings": coolings(history),
        "kept": sorted({int(e) for e in classifier.best_epochs_}),
        "selection_temperature": recipe.selection_temperature,
        "alignment": alignment(history),
        "step": str(recipe.step),
        "steps": _steps(recipe, float(history["temperature"].iloc[-1])) if recipe.objective == "metric" else {},
    }


def coolings(history: pd.DataFrame) -> list[int]:
    """Epochs at whose end the temperature was lower than before."""
    return [int(e) for e in history.loc[history["temperature"].diff() < -1e-12, "epoch"]]


def alignment(history: pd.DataFrame) -> dict[str, Any]:
    """Pairs of the surrogate and the exact metric, epoch by epoch, and how closely they and their ranks go together."""
    known = history[["soft_metric", "hard_metric"]].replace([np.inf, -np.inf], np.nan).dropna()
    r, ranks = (correlation(*values.to_numpy().T) for values in (known, known.rank()))
    return {"points": known.to_numpy(dtype=float).tolist(), "correlation": r, "of_ranks": ranks}


def correlation(first: Array, second: Array) -> float:
    """Of two rows of numbers; NaN if there are too few different values."""
    enough = len(first) > 2 and first.std() > 1e-12 and second.std() > 1e-12
    return float(np.corrcoef(first, second)[0, 1]) if enough else math.nan


def _steps(recipe: Recipe, last: float) -> dict[str, list[list[float]]]:
    """The step over the probability at the threshold one half, at the last temperature and the first, if it has one."""
    p, chosen = torch.linspace(0, 1, 201, dtype=torch.float64), get_step(recipe.step)
    shown = {str(chosen): chosen}
    if isinstance(chosen, Annealed):
        when = {round(recipe.temperature, 6): "start", round(last, 6): "end"}
        shown = {f"T = {t:.3g}, at the {name}": Annealed(t) for t, name in when.items()}
    return {name: torch.stack([p, step(p, torch.tensor(0.5))], 1).tolist() for name, step in shown.items()}


def columns_of(classifier: Any, description: dict[str, Any]) -> list[dict[str, Any]]:
    """Of each column what it was taken for and what it held."""
    made, unknown = classifier.preprocessor_, {"values": "", "gaps": None}
    columns = made.columns_ if isinstance(made, TablePreprocessor) else []
    known = {column.name: {"values": column.values, "gaps": column.gaps} for column in columns}
    return [kind | known.get(kind["name"], unknown) for kind in description["columns"]["kinds"] or []]
