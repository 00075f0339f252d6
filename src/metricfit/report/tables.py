"""Confusion matrices, the table of classes and the most confused pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit.assess.intervals import counted
from metricfit.assess.scores import HeldOutScores, plain_decisions
from metricfit.report.answer import MODEL, PLAIN, TUNED

__all__ = ["class_table", "confused_pairs", "matrices"]

_SHOWN = 12
_PAIRS = 20

Array = NDArray[np.float64]


def matrices(scores: HeldOutScores, labels: tuple[Any, ...]) -> list[dict[str, Any]]:
    """The matrices before (cross-entropy; without it the model's arg max) and after, as tables of cells."""
    size = len(labels)
    decisions = _decisions(scores)
    if scores.truth.ndim == 2:
        return []
    ours = counted(scores.truth, scores.decided, labels, scores.weight).matrix.numpy()
    shown = _most_confused(ours) if size > _SHOWN else np.arange(size)
    names = [str(labels[k]) for k in shown] + (["all others"] if size > _SHOWN else [])
    found = []
    for name, decided in decisions.items():
        whole = counted(scores.truth, decided, labels, scores.weight).matrix.numpy()
        cells = _joined(whole, shown) if size > _SHOWN else whole
        shares = cells / np.maximum(cells.sum(axis=1, keepdims=True), np.finfo(float).tiny)
        rows = [
            {
                "label": label,
                "cells": [_cell(c, s, i == j < len(shown)) for j, (c, s) in enumerate(zip(*pair, strict=True))],
            }
            for i, (label, pair) in enumerate(zip(names, zip(cells, shares, strict=True), strict=True))
        ]
        found.append({"name": name, "rows": rows, "labels": names, "joined": size > _SHOWN})
    return found


def _decisions(scores: HeldOutScores) -> dict[str, NDArray[np.int64]]:
    plain = scores.baseline_decided
    found: dict[str, NDArray[np.int64]] = {}
    if plain is not None:
        found[f"Before: {PLAIN[0].lower()}{PLAIN[1:]}"] = plain
        if scores.baseline_tuned is not None:
            found[f"{TUNED}"] = scores.baseline_tuned
    else:
        argmax = plain_decisions(scores.proba, labels=scores.truth.ndim == 2)
        if not np.array_equal(argmax, scores.decided):
            found["Before: this model, arg max"] = argmax
    found[f"After: {MODEL[0].lower()}{MODEL[1:]}" if found else MODEL] = scores.decided
    return found


def _cell(count: float, share: float, right: bool) -> dict[str, Any]:
    return {"count": float(count), "share": float(share), "heat": min(9, int(share * 10)), "right": right}


def _most_confused(matrix: Array) -> NDArray[np.intp]:
    wrong = matrix - np.diag(np.diag(matrix))
    return np.sort(np.argsort(-(wrong.sum(axis=0) + wrong.sum(axis=1)), kind="stable")[:_SHOWN])


def _joined(matrix: Array, shown: NDArray[np.intp]) -> Array:
    """The rows and columns shown, and all others together in one more."""
    place = np.full(len(matrix), len(shown))
    place[shown] = np.arange(len(shown))
    found = np.zeros((len(shown) + 1, len(shown) + 1))
    np.add.at(found, (place[:, None], place[None, :]), matrix)
    return found


def class_table(scores: HeldOutScores, labels: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Of each class (or label): support, predictions, precision, recall, F1, and F1 of the tuned baseline."""
    ours = _rates(counted(scores.truth, scores.decided, labels, scores.weight).matrix.numpy())
    theirs = None
    rival = scores.baseline_tuned if scores.baseline_tuned is not None else scores.baseline_decided
    if rival is not None:
        theirs = _rates(counted(scores.truth, rival, labels, scores.weight).matrix.numpy())
    return [
        {
            "label": str(label),
            **{name: float(values[k]) for name, values in ours.items()},
            "baseline_f1": None if theirs is None else float(theirs["f1"][k]),
        }
        for k, label in enumerate(labels)
    ]


def _rates(matrix: Array) -> dict[str, Array]:
    if matrix.ndim == 3:
        tp, support, predicted = matrix[:, 1, 1], matrix[:, 1].sum(axis=-1), matrix[:, :, 1].sum(axis=-1)
    else:
        tp, support, predicted = np.diag(matrix), matrix.sum(axis=1), matrix.sum(axis=0)
    none = np.full(len(tp), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.where(predicted > 0, tp / predicted, none)
        recall = np.where(support > 0, tp / support, none)
        f1 = np.where(support + predicted > 0, 2 * tp / (support + predicted), none)
    return {"support": support, "predicted": predicted, "precision": precision, "recall": recall, "f1": f1,
            "alarms": predicted - tp, "missed": support - tp}  # fmt: skip


def confused_pairs(scores: HeldOutScores, labels: tuple[Any, ...]) -> list[dict[str, Any]]:
    """The cells off the diagonal that hold most, from high to low."""
    if scores.truth.ndim == 2 or len(labels) == 2:
        return []
    matrix = counted(scores.truth, scores.decided, labels, scores.weight).matrix.numpy()
    support = matrix.sum(axis=1)
    np.fill_diagonal(matrix, 0)
    order = np.argsort(-matrix, axis=None, kind="stable")[:_PAIRS]
    pairs = zip(*np.unravel_index(order, matrix.shape), strict=True)
    return [
        {"true": str(labels[i]), "predicted": str(labels[j]), "count": float(matrix[i, j]),
         "share": float(matrix[i, j] / support[i])}
        for i, j in pairs if matrix[i, j] > 0
    ]  # fmt: skip
