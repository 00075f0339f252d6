"""The tables of the page: matrices, classes, confused pairs, training, columns, and how to train the model again."""

from __future__ import annotations

import json
import math
import shlex
import tomllib
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from metricfit.assess.intervals import counted
from metricfit.assess.scores import HeldOutScores
from metricfit.assess.verdicts import MODEL, PLAIN, TUNED
from metricfit.confusion import ConfusionMatrix
from metricfit.data import TablePreprocessor
from metricfit.report.explorer import number
from metricfit.steps import Annealed
from metricfit.steps import get as get_step
from metricfit.training.recipes import Recipe

_SHOWN, _PAIRS = 12, 20

Array = NDArray[np.float64]


def matrices(scores: HeldOutScores, labels: tuple[Any, ...]) -> list[dict[str, Any]]:
    """The matrices before (cross-entropy; without it the model's arg max) and after, as tables of cells."""
    if scores.truth.ndim == 2:
        return []
    shown, joined = np.arange(len(labels)), len(labels) > _SHOWN
    if joined:  # those with most errors; all others together are one more row and column
        ours = counted(scores.truth, scores.decided, labels, scores.weight)
        shown = np.sort(np.argsort(-(ours.fp + ours.fn).numpy(), kind="stable")[:_SHOWN])
    names = [str(labels[k]) for k in shown] + (["all others"] if joined else [])
    place = np.full(len(labels), len(shown))
    place[shown] = np.arange(len(shown))
    found = []
    for name, decided in _decisions(scores).items():
        cells = np.zeros((len(names), len(names)))
        whole = counted(scores.truth, decided, labels, scores.weight).matrix.numpy()
        np.add.at(cells, (place[:, None], place[None, :]), whole)
        shares = cells / np.maximum(cells.sum(axis=1, keepdims=True), np.finfo(float).tiny)
        heat = np.minimum(9, shares * 10).astype(int)
        rows = [
            {"label": label, "cells": [
                {"count": cells[i, j], "share": shares[i, j], "heat": heat[i, j], "right": i == j < len(shown)}
                for j in range(len(names))
            ]}
            for i, label in enumerate(names)
        ]  # fmt: skip
        found.append({"name": name, "rows": rows, "labels": names, "joined": joined})
    return found


def _decisions(scores: HeldOutScores) -> dict[str, NDArray[np.int64]]:
    found: dict[str, NDArray[np.int64]] = {}
    if scores.baseline_decided is not None:
        found[f"Before: {PLAIN}"] = scores.baseline_decided
        if scores.baseline_tuned is not None:
            found[TUNED[0].upper() + TUNED[1:]] = scores.baseline_tuned
    else:
        argmax = scores.proba.argmax(axis=1)
        if not np.array_equal(argmax, scores.decided):
            found["Before: this model, arg max"] = argmax
    found[f"After: {MODEL}" if found else MODEL.capitalize()] = scores.decided
    return found


def class_table(scores: HeldOutScores, labels: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Of each class (or label): support and its share, predictions, rates, and F1 of the tuned baseline."""
    table = pd.DataFrame(rates(counted(scores.truth, scores.decided, labels, scores.weight)))
    rival = scores.baseline_tuned if scores.baseline_tuned is not None else scores.baseline_decided
    table["baseline_f1"] = None if rival is None else rates(counted(scores.truth, rival, labels, scores.weight))["f1"]
    table.insert(0, "label", [str(label) for label in labels])
    rows: list[Any] = table.to_dict(orient="records")
    return rows


def rates(cm: ConfusionMatrix) -> dict[str, Array]:
    """Counts and rates of each class or label; NaN where a rate is not defined."""
    tp, fp, fn = (count.numpy() for count in (cm.tp, cm.fp, cm.fn))
    support, predicted = tp + fn, tp + fp
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            "support": support,
            "share": support / (float(cm.total) or 1.0),
            "predicted": predicted,
            "precision": tp / predicted,
            "recall": tp / support,
            "f1": 2 * tp / (support + predicted),
            "alarms": fp,
            "missed": fn,
        }


def confused_pairs(scores: HeldOutScores, labels: tuple[Any, ...]) -> list[dict[str, Any]]:
    """The cells off the diagonal that hold most, from high to low."""
    if scores.truth.ndim == 2 or len(labels) == 2:
        return []
    matrix = counted(scores.truth, scores.decided, labels, scores.weight).matrix.numpy()
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
    columns = ("epoch", "loss", "soft_metric", "hard_metric", "log_loss", "temperature")
    uses_step = recipe.objective == "metric"
    return {
        **{name: [number(v) for v in history[name].tolist()] for name in columns},
        "coolings": coolings(history),
        "kept": sorted({int(e) for e in classifier.best_epochs_}),
        "selection_temperature": recipe.selection_temperature,
        "loss_is": recipe.objective,
        "alignment": alignment(history),
        "step": _step_curve(recipe, float(history["temperature"].iloc[-1])) if uses_step else None,
    }


def coolings(history: pd.DataFrame) -> list[int]:
    """Epochs at whose end the temperature was lower than before.

    >>> coolings(pd.DataFrame({"epoch": [1, 2, 3], "temperature": [0.2, 0.2, 0.18]}))
    [3]
    """
    return [int(e) for e in history.loc[history["temperature"].diff() < -1e-12, "epoch"]]


def alignment(history: pd.DataFrame) -> dict[str, Any]:
    """Pairs of the surrogate and the exact metric, epoch by epoch, how closely they go together, and in words."""
    known = history[["epoch", "soft_metric", "hard_metric", "temperature"]].replace([np.inf, -np.inf], np.nan).dropna()
    pair = known[["soft_metric", "hard_metric"]]
    r, ranks = (correlation(*values.to_numpy().T) for values in (pair, pair.rank()))
    text = "One point per validated epoch: the surrogate in the loss against the exact metric."
    if math.isnan(r):
        text += " There are too few different values for a correlation."
    else:
        words = "it tracked the metric closely" if r > 0.9 else "it tracked the metric" if r > 0.6 else (
            "it tracked the metric only loosely" if r > 0.2 else "it did not track the metric")  # fmt: skip
        text += f" Correlation {r:.2f}, of the ranks {ranks:.2f}: {words}."
    return {"points": known.to_numpy(dtype=float).tolist(), "correlation": number(r), "rank_correlation": number(ranks),
            "text": text}  # fmt: skip


def correlation(first: Array, second: Array) -> float:
    """Of two rows of numbers; NaN if there are too few different values."""
    enough = len(first) > 2 and first.std() > 1e-12 and second.std() > 1e-12
    return float(np.corrcoef(first, second)[0, 1]) if enough else math.nan


def _step_curve(recipe: Recipe, temperature: float) -> dict[str, Any]:
    """The step over the probability at the threshold one half, at the first and the last temperature."""
    p, half = torch.linspace(0, 1, 201, dtype=torch.float64), torch.tensor(0.5, dtype=torch.float64)
    chosen, first = get_step(recipe.step), recipe.temperature
    annealed = isinstance(chosen, Annealed)

    def heights(t: float) -> list[float]:
        return [round(float(v), 6) for v in (Annealed(t) if annealed else chosen)(p, half)]

    return {
        "name": str(recipe.step),
        "p": [round(float(v), 4) for v in p],
        "last": heights(temperature),
        "first": heights(first) if annealed and abs(first - temperature) > 1e-6 else None,
        "temperature": round(temperature, 6) if annealed else None,
        "first_temperature": first if annealed else None,
    }


def columns_of(classifier: Any, description: dict[str, Any]) -> list[dict[str, Any]]:
    """Of each column what it was taken for and what it held."""
    noted = (description["notes"].get("data") or {}).get("columns", {})
    preprocessor, summaries = classifier.preprocessor_, {}
    if isinstance(preprocessor, TablePreprocessor):
        summaries = {c.name: c for c in preprocessor.columns_}
    found = []
    for column in description["columns"]["kinds"] or []:
        note, summary = noted.get(column["name"], {}), summaries.get(column["name"])
        levels = None if summary is None else summary.levels
        values = note.get("values") or ("" if levels is None else f"{levels:,} distinct")
        gaps = note.get("gaps", None if summary is None else summary.gaps)
        found.append({**column, "values": values, "gaps": gaps})
    return found


def reproduction(classifier: Any, description: dict[str, Any], settings: str | None) -> dict[str, Any]:
    """Command, recipe, rule and versions."""
    recipe, seed = classifier.recipe_, description["fitted"]["seed"]
    usual = Recipe(recipe.name).complete().parts()
    return {
        "command": _command(settings) if settings else None,
        "python": f"MetricClassifier({description['metric']!r}, recipe={recipe.name!r}, random_state={seed!r})",
        "recipe": [
            {"name": name, "value": json.dumps(value, default=str), "changed": value != usual.get(name)}
            for name, value in recipe.parts().items()
        ],
        "rule": json.dumps(description["decision_rule"], ensure_ascii=False),
        "rule_in_words": classifier.decision_rule_.in_words(),
        "seed": seed,
        "seconds": description["fitted"]["fit_seconds"],
        "libraries": description["libraries"],
        "models": description["models"],
    }


def _command(settings: str) -> str:
    options = tomllib.loads(settings)
    words = ["metricfit", "train", str(options.pop("data", "DATA"))]
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(option if value else f"--no-{option[2:]}")
        else:
            words += [word for one in (value if isinstance(value, list) else [value]) for word in (option, str(one))]
    return shlex.join(words)
