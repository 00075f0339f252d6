"""Metrics of predictions with bootstrap intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from metricfit.confusion import ConfusionMatrix
from metricfit.metrics import Constrained, Metric

__all__ = ["Judged", "Measured", "measure"]

_RESAMPLES = 1000
_RANKING_RESAMPLES = 200


@dataclass(frozen=True)
class Judged:
    """Predictions and the truth.

    Attributes:
        truth: True labels (n,).
        predicted: Predicted labels (n,).
        proba: Probabilities (n, classes) before the decision rule, for ranking metrics.
        labels: All classes, in the order of the columns.
        weight: Weights (n,), or None.
    """

    truth: NDArray[Any]
    predicted: NDArray[Any]
    proba: NDArray[np.float64]
    labels: tuple[Any, ...]
    weight: NDArray[np.float64] | None = None

    def codes(self) -> NDArray[np.intp]:
        """The cell of the confusion matrix of each row."""
        place = {label: i for i, label in enumerate(self.labels)}
        true = np.array([place[v] for v in self.truth.tolist()], dtype=np.intp)
        pred = np.array([place[v] for v in self.predicted.tolist()], dtype=np.intp)
        return true * len(self.labels) + pred

    def matrices(self, resamples: int, random: np.random.Generator) -> ConfusionMatrix:
        """The matrix, and after it matrices of resampled rows, (1 + resamples, d, d)."""
        size = len(self.labels)
        codes = self.codes()
        counts = np.bincount(codes, self.weight, minlength=size * size).astype(np.float64)
        if self.weight is None:
            # Rows drawn with replacement, counted by cell, are multinomial.
            draws = random.multinomial(len(codes), counts / counts.sum(), size=resamples).astype(np.float64)
        else:
            draws = np.empty((resamples, size * size))
            for i in range(resamples):
                taken = random.integers(len(codes), size=len(codes))
                draws[i] = np.bincount(codes[taken], self.weight[taken], minlength=size * size)
        matrix = torch.from_numpy(np.concatenate([counts[None], draws]).reshape(-1, size, size))
        return ConfusionMatrix(matrix, "binary" if size == 2 else "multiclass", self.labels)


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
    score = judged.proba[:, 1] if len(judged.labels) == 2 else judged.proba
    rows = np.arange(len(score))
    values_found = []
    for i in range(1 + (_RANKING_RESAMPLES if len(rows) <= 20_000 else 40)):
        taken = rows if i == 0 else random.integers(len(rows), size=len(rows))
        if len(np.unique(judged.truth[taken])) < len(np.unique(judged.truth)):
            continue
        weight = None if judged.weight is None else judged.weight[taken]
        values_found.append(metric.score(judged.truth[taken], score[taken], weight, labels=judged.labels))
    return _measured(np.array(values_found))


def measure_classes(metric: Metric, judged: Judged, *, seed: int = 0) -> list[Measured]:
    """A metric of ``average="none"``: one value a class."""
    values = metric.compute(judged.matrices(_RESAMPLES, np.random.default_rng(seed))).numpy()
    return [_measured(values[:, k]) for k in range(values.shape[1])]


def _measured(values: NDArray[np.float64]) -> Measured:
    finite = values[1:][np.isfinite(values[1:])]
    low, high = np.quantile(finite, [0.025, 0.975]) if len(finite) else (np.nan, np.nan)
    return Measured(float(values[0]), float(low), float(high))
