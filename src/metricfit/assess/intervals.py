"""Values with bootstrap intervals, and paired differences, of several sets of decisions about the same rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from metricfit.confusion import ConfusionMatrix
from metricfit.inputs import Task
from metricfit.metrics import Constrained, Metric

__all__ = ["Estimate", "Rival", "Verdict", "confusion_of", "estimate"]

_CELLS_AT_A_TIME = 4_000_000
_WEIGHT_BINS = 64


@dataclass(frozen=True)
class Rival:
    """One way to decide about the rows.

    Attributes:
        name: What to call it.
        decided: Codes (n,), or 0/1 (n, labels).
        proba: Probabilities, for metrics of scores.
    """

    name: str
    decided: NDArray[np.int64]
    proba: NDArray[Any]


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval; NaN where there is none."""

    value: float
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class Verdict:
    """What one rival reaches.

    Attributes:
        name: The rival.
        estimate: The metric, of a constrained one the objective.
        constraints: Text, value and whether it is met, of each constraint.
        gain: How much better the *first* rival is than this one, paired; positive is better.
    """

    name: str
    estimate: Estimate
    constraints: list[tuple[str, float, bool]] = field(default_factory=list)
    gain: Estimate | None = None


def confusion_of(
    truth: NDArray[np.int64], decided: NDArray[np.int64], size: int, weight: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """The matrix (size, size), or (labels, 2, 2) for indicators."""
    if truth.ndim == 2:
        parts = [confusion_of(truth[:, k], decided[:, k], 2, weight) for k in range(truth.shape[1])]
        return np.stack(parts)
    cells = np.bincount(truth * size + decided, weight, minlength=size * size)
    return cells.astype(np.float64).reshape(size, size)


def estimate(
    metric: Metric,
    truth: NDArray[np.int64],
    rivals: Sequence[Rival],
    labels: tuple[Any, ...],
    task: Task,
    weight: NDArray[np.float64] | None = None,
    *,
    seed: int = 0,
) -> list[Verdict]:
    """The metric of every rival, and how much better the first is, by resampling the same rows for all of them.

    >>> truth = np.array([0, 1, 0, 1] * 25)
    >>> rivals = [Rival("right", truth, truth), Rival("wrong", 1 - truth, truth)]
    >>> from metricfit import metrics
    >>> [v.estimate.value for v in estimate(metrics.get("accuracy"), truth, rivals, (0, 1), "binary")]
    [1.0, 0.0]
    """
    objective = metric.objective if isinstance(metric, Constrained) else metric
    random = np.random.default_rng(seed)
    if objective.judges_scores:
        values = _resampled_scores(objective, truth, rivals, labels, task, weight, random)
    else:
        values = _resampled_decisions(objective, truth, rivals, labels, task, weight, random)
    sign = 1.0 if metric.greater_is_better else -1.0
    found = []
    for i, rival in enumerate(rivals):
        limits: list[tuple[str, float, bool]] = []
        if isinstance(metric, Constrained):
            cm = _matrix(confusion_of(truth, rival.decided, len(labels), weight), task, labels)
            for c in metric.constraints:
                value = float(c.metric.compute(cm))
                limits.append((str(c), value, not float(c.violation(torch.tensor(value))) > 0))
        gain = _interval(sign * (values[:, 0] - values[:, i])) if i else None
        found.append(Verdict(rival.name, _interval(values[:, i]), limits, gain))
    return found


def _matrix(counts: NDArray[np.float64], task: Task, labels: tuple[Any, ...]) -> ConfusionMatrix:
    return ConfusionMatrix(torch.from_numpy(counts), task, labels)


def _interval(values: NDArray[np.float64]) -> Estimate:
    drawn = values[1:][np.isfinite(values[1:])]
    low, high = np.quantile(drawn, [0.025, 0.975]) if len(drawn) else (math.nan, math.nan)
    return Estimate(float(values[0]), float(low), float(high))


def _resampled_decisions(
    metric: Metric,
    truth: NDArray[np.int64],
    rivals: Sequence[Rival],
    labels: tuple[Any, ...],
    task: Task,
    weight: NDArray[np.float64] | None,
    random: np.random.Generator,
) -> NDArray[np.float64]:
    """Values (1 + resamples, rivals); the first row is of the rows themselves."""
    size = len(labels)
    shape = (size, 2, 2) if task == "multilabel" else (size, size)
    cells = math.prod(shape)
    resamples = 1000 if cells <= 2500 else 200
    first = [float(metric.compute(_matrix(confusion_of(truth, r.decided, size, weight), task, labels))) for r in rivals]
    patterns, counts, mean_weight = _patterns(truth, rivals, weight)
    tables = [_cells_of(truth[patterns], r.decided[patterns], mean_weight, size) for r in rivals]
    at_a_time = max(1, _CELLS_AT_A_TIME // max(cells, len(counts)))
    blocks = []
    for start in range(0, resamples, at_a_time):
        size_of_block = min(at_a_time, resamples - start)
        draws = random.multinomial(len(truth), counts / counts.sum(), size=size_of_block).astype(np.float64)
        matrices = [np.asarray(draws @ table).reshape(-1, *shape) for table in tables]
        blocks.append(np.stack([metric.compute(_matrix(m, task, labels)).numpy() for m in matrices], axis=1))
    return np.concatenate([np.array([first]), *blocks])


def _patterns(
    truth: NDArray[np.int64], rivals: Sequence[Rival], weight: NDArray[np.float64] | None
) -> tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.float64]]:
    """Rows that agree in truth, decisions and (nearly) weight count together: one row of each, how many, its weight.

    Rows drawn with replacement, counted by pattern, are multinomial; there are far fewer patterns than rows.
    """
    columns = [truth, *(r.decided for r in rivals)]
    table = np.concatenate([c.reshape(len(truth), -1) for c in columns], axis=1)
    if weight is not None:
        distinct, binned = np.unique(weight, return_inverse=True)
        if len(distinct) > _WEIGHT_BINS:
            binned = np.searchsorted(np.quantile(weight, np.linspace(0, 1, _WEIGHT_BINS + 1)[1:-1]), weight)
        table = np.concatenate([table, binned.reshape(-1, 1)], axis=1)
    code = np.zeros(len(table), dtype=np.int64)
    for column in table.T:
        # Codes are made dense again after each column, so that they never overflow.
        code = np.unique(code * (column.max(initial=0) + 1) + column, return_inverse=True)[1].astype(np.int64)
    _, first, place, counts = np.unique(code, return_index=True, return_inverse=True, return_counts=True)
    total = np.bincount(place, weight, minlength=len(counts))
    return first, counts, total / counts


def _cells_of(
    truth: NDArray[np.int64], decided: NDArray[np.int64], weight: NDArray[np.float64], size: int
) -> sparse.csr_array:
    """Which cells of the flat matrix each pattern adds to, and how much: (patterns, cells)."""
    rows = np.arange(len(truth))
    if truth.ndim == 1:
        return sparse.csr_array((weight, (rows, truth * size + decided)), shape=(len(rows), size * size))
    labels = truth.shape[1]
    columns = (np.arange(labels) * 4 + truth * 2 + decided).ravel()
    values = (np.repeat(weight, labels), (np.repeat(rows, labels), columns))
    return sparse.csr_array(values, shape=(len(rows), labels * 4))


def _resampled_scores(
    metric: Metric,
    truth: NDArray[np.int64],
    rivals: Sequence[Rival],
    labels: tuple[Any, ...],
    task: Task,
    weight: NDArray[np.float64] | None,
    random: np.random.Generator,
) -> NDArray[np.float64]:
    n = len(truth)
    resamples = 200 if n * len(labels) <= 40_000 else 40
    names = np.array(labels, dtype=object)
    found = []
    for i in range(1 + resamples):
        taken = np.arange(n) if i == 0 else random.integers(n, size=n)
        y = truth[taken]
        if i and truth.ndim == 1 and len(np.unique(y)) < len(np.unique(truth)):
            continue
        w = None if weight is None else weight[taken]
        row = []
        for rival in rivals:
            p = rival.proba[taken]
            known = y if truth.ndim == 2 else names[y]
            row.append(_score(metric, known, p[:, 1] if task == "binary" else p, w, labels))
        found.append(row)
    return np.array(found, dtype=np.float64)


def _score(metric: Metric, y: Any, p: Any, weight: Any, labels: tuple[Any, ...]) -> float:
    try:
        return float(metric.score(y, p, weight, labels=labels))
    except ValueError:
        return math.nan  # combines metrics of scores with metrics of decisions: it has no one value
