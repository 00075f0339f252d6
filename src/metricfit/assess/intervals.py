"""The one confidence interval: of a metric's value, and of the paired difference of two sets of decisions.

Rows fall into cells (truth, decision), or (truth, decision, other decision) for a difference. What is unknown is how
probable each cell is; given the counts, the shares of the cells are Dirichlet-distributed with Jeffreys' prior of one
half per cell of a 2 x 2 matrix (for a share such as precision this is Jeffreys' interval). The metric of many draws of
these shares gives the interval. It covers the value of *these fixed decisions* on new rows of the same kind, not
another training (:func:`over_splits`); docs/reference/assess.md says more and shows how often it holds the truth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import sparse, stats

from metricfit.confusion import ConfusionMatrix
from metricfit.decisions.problem import Rows, computed
from metricfit.inputs import Task
from metricfit.labels import group_names
from metricfit.metrics import Constraint, Metric
from metricfit.metrics.algebra import Coverage
from metricfit.metrics.money import Money

TAILS = (1 - 0.95) / 2, (1 + 0.95) / 2  # the quantiles at which the 95 % interval ends
_PRIOR = 2.0  # its weight in rows: one half for each cell of a 2 x 2 matrix
_DRAWS, _FEWEST_DRAWS = 2000, 200
_NUMBERS = 4_000_000  # drawn at a time
_MOST_NUMBERS = 200_000_000  # drawn in all, before the number of draws goes down
_MOST_CELLS = 4096  # to which the prior is added; with more, it would be less than 1/2000 of a row per cell
_WEIGHT_BINS = 64

Array = NDArray[np.float64]
Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval; NaN where there is none.

    >>> str(Estimate(0.8123, 0.79, 0.8355))
    '0.812 (0.790 to 0.836)'
    """

    value: float
    low: float = math.nan
    high: float = math.nan

    def __str__(self) -> str:
        ends = "" if math.isnan(self.low) else f" ({self.low:.3f} to {self.high:.3f})"
        return f"{self.value:.3f}{ends}"


@dataclass(frozen=True)
class Decided(Rows):
    """Decisions about rows, beside the truth: class codes (n,), or 0/1 (n, labels), of these labels.

    Rows with a decision of -1 are left to a person and count in nothing but the coverage. ``proba`` (n, labels), before
    the decision rule, is for metrics of scores.
    """

    truth: Codes
    decided: Codes
    labels: tuple[Any, ...]
    proba: NDArray[Any] | None = None
    weight: Array | None = None
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # those that the metric names

    @property
    def task(self) -> Task:
        """The kind of target."""
        if self.truth.ndim == 2:
            return "multilabel"
        return "binary" if len(self.labels) == 2 else "multiclass"

    @property
    def confusion(self) -> ConfusionMatrix:
        """The confusion matrix, (classes, classes) or (labels, 2, 2)."""
        size, of = len(self.labels), self if self.decided.ndim == 2 else self.take(self.decided >= 0)
        return ConfusionMatrix.from_codes(of.truth, of.decided, size, of.weight, task=self.task, labels=self.labels)


def estimate(metric: Metric, rows: Decided, *, seed: int = 0) -> Estimate:
    """The metric (the objective of a constrained one) of decisions, with its interval.

    >>> from metricfit import metrics
    >>> truth = np.repeat([0, 1], [80, 20])
    >>> found = estimate(metrics.get("accuracy"), Decided(truth, truth, (0, 1)))
    >>> found.value, round(found.low, 2), found.high
    (1.0, 0.97, 1.0)
    """
    return interval(drawn(metric, [rows], seed)[0])


def reached(constraint: Constraint, rows: Decided, *, seed: int = 0) -> Estimate:
    """What decisions reach of a constraint: of one in groups the worst group's value, or the difference."""
    if isinstance(constraint.metric, Coverage):
        return share(float(np.average(rows.decided >= 0, weights=rows.weight)) * len(rows.truth), len(rows.truth))
    if constraint.within is None:
        return estimate(constraint.metric, rows, seed=seed)
    names = group_names(rows.columns, constraint.within, len(rows.truth))
    groups = [rows.take(names == name) for name in np.unique(names)]
    found = [drawn(constraint.strict, [group], seed + k)[0] for k, group in enumerate(groups)]
    least = min(map(len, found))
    return interval(constraint.of_groups(torch.from_numpy(np.stack([values[:least] for values in found]))).numpy())


def estimate_classes(metric: Metric, rows: Decided, *, seed: int = 0) -> list[Estimate]:
    """The same for a metric with ``average="none"``: one estimate per class."""
    (values,) = drawn(metric, [rows], seed)
    return [interval(values[:, k]) for k in range(values.shape[1])]


def difference(metric: Metric, first: Decided, second: Decided, *, seed: int = 0) -> Estimate:
    """How much better the first decisions are than the second, about the same rows; positive is better.

    >>> from metricfit import metrics
    >>> truth = np.repeat([0, 1], [80, 20])
    >>> difference(metrics.get("fpr[1]"), Decided(truth, truth, (0, 1)), Decided(truth, 1 - truth, (0, 1))).value
    1.0
    """
    ours, theirs = drawn(metric, [first, second], seed)
    return interval((1.0 if metric.greater_is_better else -1.0) * (ours - theirs))


def share(positives: float, rows: float) -> Estimate:
    """A share of (effective) rows with its interval: what the interval of a precision comes to, without drawing.

    >>> str(share(3, 10))
    '0.300 (0.093 to 0.606)'
    """
    low, high = (float(stats.beta.ppf(tail, positives + 0.5, rows - positives + 0.5)) for tail in TAILS)
    return Estimate(positives / rows, min(low, positives / rows), max(high, positives / rows))


def over_splits(values: Sequence[float], test_share: float) -> Estimate:
    """The mean of values of repeated random splits, with the interval of *another training on other rows*.

    The splits overlap, so their values are not independent: the variance of the mean over k splits is taken as
    (1/k + test share / training share) times that of the values (Nadeau and Bengio, 2003).

    >>> str(over_splits([0.5, 0.52, 0.54], 0.2))
    '0.520 (0.454 to 0.586)'
    """
    k = len(values)
    if k < 2:
        return Estimate(float(np.mean(values)) if k else math.nan)
    spread = math.sqrt(float(np.var(values, ddof=1)) * (1 / k + test_share / (1 - test_share)))
    half, mean = float(stats.t.ppf(TAILS[1], k - 1)) * spread, float(np.mean(values))
    return Estimate(mean, mean - half, mean + half)


def interval(values: Array) -> Estimate:
    """The first value is that of the rows themselves, the others are those of draws."""
    value, drawn = float(values[0]), values[1:][np.isfinite(values[1:])]
    if not len(drawn) or math.isnan(value):
        return Estimate(value)
    if len(drawn) < _FEWEST_DRAWS // 2:  # too few for quantiles, and so many rows that the values are normal
        half = float(stats.norm.ppf(TAILS[1]) * drawn.std(ddof=1)) if len(drawn) > 1 else math.nan
        return Estimate(value, value - half, value + half)
    low, high = np.quantile(drawn, TAILS)
    return Estimate(value, min(float(low), value), max(float(high), value))


def drawn(metric: Metric, several: Sequence[Decided], seed: int) -> list[Array]:
    """For each of them the value of the rows themselves, then those of draws, the same draws for all."""
    metric, rows, random = getattr(metric, "objective", metric), several[0], np.random.default_rng(seed)
    if isinstance(metric, Money) or metric.judges_scores:
        return _of_rows(metric, several, random)
    first = [computed(metric, r.confusion).numpy() for r in several]
    shape = rows.confusion.matrix.shape
    counts, tables = _cells(several)
    block = max(1, _NUMBERS // max(math.prod(shape), len(counts)))
    draws = int(np.clip(_MOST_NUMBERS // len(counts), _FEWEST_DRAWS, _DRAWS))
    found: list[list[Array]] = [[value[None]] for value in first]
    for start in range(0, draws, block):
        drawn = random.standard_gamma(counts, (min(block, draws - start), len(counts)))
        drawn *= len(rows.truth) / drawn.sum(axis=1, keepdims=True)
        for values, table in zip(found, tables, strict=True):
            matrix = torch.from_numpy(np.asarray(drawn @ table).reshape(-1, *shape))
            values.append(computed(metric, ConfusionMatrix(matrix, rows.task, rows.labels)).numpy())
    return [np.concatenate(values) for values in found]


def _cells(several: Sequence[Decided]) -> tuple[Array, list[sparse.csr_array]]:
    """Kinds of rows: how many there are of each (with the prior), and which cells of each matrix one adds to."""
    truth, weight, size = several[0].truth, several[0].weight, len(several[0].labels)
    columns = [truth, *(rows.decided for rows in several)]
    table = np.concatenate([c.reshape(len(truth), -1) for c in columns], axis=1)
    if weight is not None:
        distinct, binned = np.unique(weight, return_inverse=True)
        if len(distinct) > _WEIGHT_BINS:
            binned = np.searchsorted(np.quantile(weight, np.linspace(0, 1, _WEIGHT_BINS + 1)[1:-1]), weight)
        table = np.concatenate([table, binned.reshape(-1, 1)], axis=1)
    code = pd.DataFrame(table).groupby([*range(table.shape[1])]).ngroup()
    _, first, place, counts = np.unique(code, return_index=True, return_inverse=True, return_counts=True)
    mean_weight = np.bincount(place, weight, minlength=len(counts)) / counts
    tables = [added(truth[first], rows.decided[first], mean_weight, size) for rows in several]
    # The prior: every combination of truth and decisions, for several labels those of each label on its own.
    single = 2 if truth.ndim == 2 else size
    combinations = single ** len(columns)
    if combinations > _MOST_CELLS:
        return counts.astype(np.float64), tables
    grid = np.stack(np.unravel_index(np.arange(combinations), (single,) * len(columns)))
    usual = np.full(combinations, float(mean_weight @ counts / counts.sum()))
    copies = size if truth.ndim == 2 else 1
    prior = [added(grid[0], g, usual, single) for g in grid[1:]]
    both = [sparse.vstack([t, sparse.kron(sparse.eye_array(copies), p)]) for t, p in zip(tables, prior, strict=True)]
    priors = np.full(copies * combinations, _PRIOR / combinations)
    return np.concatenate([counts, priors]), [sparse.csr_array(table) for table in both]


def added(truth: NDArray[Any], decided: NDArray[Any], weight: Array, size: int) -> sparse.csr_array:
    """Which cells of the flat matrix each row, or kind of row, adds to, and how much: (rows, cells)."""
    rows = np.arange(len(truth))
    if truth.ndim == 1:
        counted = weight * (decided >= 0)
        return sparse.csr_array((counted, (rows, truth * size + decided.clip(0))), shape=(len(rows), size * size))
    columns = (np.arange(size) * 4 + truth * 2 + decided).ravel()
    return sparse.csr_array((np.repeat(weight, size), (np.repeat(rows, size), columns)), shape=(len(rows), size * 4))


def _of_rows(metric: Metric, several: Sequence[Decided], random: np.random.Generator) -> list[Array]:
    """The same for money and for metrics of scores: a draw weighs the rows (the Bayesian bootstrap)."""
    rows, n = several[0], len(several[0].truth)
    known = rows.truth if rows.truth.ndim == 2 else np.array(rows.labels, dtype=object)[rows.truth]
    draws = _FEWEST_DRAWS if n * len(rows.labels) <= 40_000 else 40
    table = None
    if isinstance(metric, Money):
        draws = int(np.clip(2 * _NUMBERS // n, _FEWEST_DRAWS, _DRAWS))
        table = metric.table(rows.columns, rows.labels, n)

    def value(judged: Decided, weight: Array) -> float:
        if table is not None:
            return float(weight @ (table[np.arange(n), rows.truth, judged.decided] * (judged.decided >= 0)))
        if judged.proba is None:
            raise ValueError(f"proba: {metric} judges scores, so they are needed.")
        try:
            score = judged.proba[:, 1] if judged.task == "binary" else judged.proba
            return float(metric.score(known, score, weight, labels=judged.labels))
        except ValueError:
            return math.nan  # combines metrics of scores with metrics of decisions: it has no one value

    found: list[list[float]] = []
    for i in range(1 + draws):
        drawn = random.standard_gamma(1.0, n) if i else np.ones(n)
        weight = drawn if rows.weight is None else drawn * rows.weight
        found.append([value(judged, weight * (n / drawn.sum())) for judged in several])
    return list(np.array(found).T)
