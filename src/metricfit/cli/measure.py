"""Metrics of predictions with bootstrap intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from metricfit.confusion import ConfusionMatrix
from metricfit.inputs import Task
from metricfit.metrics import Constrained, Metric

__all__ = ["Judged", "Measured", "measure"]

_RESAMPLES = 1000
_RANKING_RESAMPLES = 200


@dataclass(frozen=True)
class Judged:
    """Predictions and the truth.

    Attributes:
        truth: True classes (n,), or 0/1 labels (n, labels).
        predicted: Predicted ones, likewise.
        proba: Probabilities (n, classes or labels) before the decision rule, for ranking metrics.
        labels: All classes or labels, in the order of the columns.
        weight: Weights (n,), or None.
    """

    truth: NDArray[Any]
    predicted: NDArray[Any]
    proba: NDArray[np.float64]
    labels: tuple[Any, ...]
    weight: NDArray[np.float64] | None = None

    @property
    def task(self) -> Task:
        """What kind of target it is."""
        if self.truth.ndim == 2:
            return "multilabel"
        return "binary" if len(self.labels) == 2 else "multiclass"

    def codes(self) -> NDArray[np.intp]:
        """The cell of the confusion matrix of each row; of several labels, the cells of all of them as one number."""
        if self.truth.ndim == 2:
            found = np.unique(2 * self.truth + self.predicted, axis=0, return_inverse=True)[1]
            return found.reshape(-1)
        place = {label: i for i, label in enumerate(self.labels)}
        true = np.array([place[v] for v in self.truth.tolist()], dtype=np.intp)
        pred = np.array([place[v] for v in self.predicted.tolist()], dtype=np.intp)
        return true * len(self.labels) + pred

    def matrices(self, resamples: int, random: np.random.Generator) -> ConfusionMatrix:
        """The matrix, and after it matrices of resampled rows, (1 + resamples, d, d)."""
        size = len(self.labels)
        codes = self.codes()
        kinds = size * size if self.truth.ndim == 1 else int(codes.max()) + 1
        counts = np.bincount(codes, self.weight, minlength=kinds).astype(np.float64)
        if self.weight is None:
            # Rows drawn with replacement, counted by cell, are multinomial.
            draws = random.multinomial(len(codes), counts / counts.sum(), size=resamples).astype(np.float64)
        else:
            draws = np.empty((resamples, kinds))
            for i in range(resamples):
                taken = random.integers(len(codes), size=len(codes))
                draws[i] = np.bincount(codes[taken], self.weight[taken], minlength=kinds)
        found = np.concatenate([counts[None], draws])
        if self.truth.ndim == 2:
            # Each kind of row adds to one cell of every label's matrix.
            first = np.unique(codes, return_index=True)[1]
            cells = np.eye(4)[2 * self.truth[first] + self.predicted[first]]
            found = np.einsum("rk,klc->rlc", found, cells).reshape(-1, 2, 2)
        shape = (-1, size, 2, 2) if self.truth.ndim == 2 else (-1, size, size)
        return ConfusionMatrix(torch.from_numpy(found.reshape(shape)), self.task, self.labels)


@dataclass(frozen=True)
class Measured:
    """A value with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float


def measure(metric: Metric, judged: Judged, *, seed: int = 0) -> Measured:
    """The metric (the objective of a constrained one) of predictions.

    >>> labels = np.array([0, 1, 0, 1])
    >>> judged = Judged(labels, labels, np.eye(2)[labels], (0, 1))
    >>> from metricfit import metrics
    >>> measure(metrics.get("accuracy"), judged)
    Measured(value=1.0, low=1.0, high=1.0)
    """
    if isinstance(metric, Constrained):
        metric = metric.objective
    random = np.random.default_rng(seed)
    if not metric.judges_scores:
        values = metric.compute(judged.matrices(_RESAMPLES, random)).numpy()
        return _measured(values)
    score = judged.proba[:, 1] if judged.task == "binary" else judged.proba
    rows = np.arange(len(score))
    values_found = []
    for i in range(1 + (_RANKING_RESAMPLES if len(rows) <= 20_000 else 40)):
        taken = rows if i == 0 else random.integers(len(rows), size=len(rows))
        if not _all_there(judged.truth[taken], judged.truth):
            continue
        weight = None if judged.weight is None else judged.weight[taken]
        values_found.append(metric.score(judged.truth[taken], score[taken], weight, labels=judged.labels))
    return _measured(np.array(values_found))


def _all_there(part: NDArray[Any], truth: NDArray[Any]) -> bool:
    if truth.ndim == 2:
        return bool(((part.min(axis=0) == truth.min(axis=0)) & (part.max(axis=0) == truth.max(axis=0))).all())
    return len(np.unique(part)) == len(np.unique(truth))


def measure_classes(metric: Metric, judged: Judged, *, seed: int = 0) -> list[Measured]:
    """A metric of ``average="none"``: one value a class."""
    values = metric.compute(judged.matrices(_RESAMPLES, np.random.default_rng(seed))).numpy()
    return [_measured(values[:, k]) for k in range(values.shape[1])]


def _measured(values: NDArray[np.float64]) -> Measured:
    finite = values[1:][np.isfinite(values[1:])]
    low, high = np.quantile(finite, [0.025, 0.975]) if len(finite) else (np.nan, np.nan)
    return Measured(float(values[0]), float(low), float(high))
