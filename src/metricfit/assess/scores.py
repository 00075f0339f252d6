"""Probabilities, decisions and truth of held-out rows, from which a report is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metricfit.assess.intervals import Decided
from metricfit.decisions.calibration import Calibration, calibrate
from metricfit.decisions.problem import Rows, UntunableError
from metricfit.decisions.rules import DecisionRule, argmax_rule
from metricfit.labels import as_label_array, encode_labels, rows_columns
from metricfit.metrics import Metric

_MOST_CALIBRATED = 200_000  # rows; more change nothing that can be seen


@dataclass(frozen=True)
class HeldOutScores(Rows):
    """What a model, its cross-entropy baseline and its best member said about rows they were not trained on."""

    truth: NDArray[np.int64]  # class codes (n,), or 0/1 (n, labels)
    proba: NDArray[np.float32]  # (n, classes) or (n, labels), before the decision rule
    decided: NDArray[np.int64]  # where the rule was tuned on these rows, by a rule tuned on the other folds
    baseline: NDArray[np.float32] | None = None  # probabilities of the same network trained with cross-entropy
    baseline_tuned: NDArray[np.int64] | None = None  # its decisions with a tuned rule
    weight: NDArray[np.float64] | None = None
    source: str = ""  # which rows these are, in words
    total: int | None = None  # how many there were, if only a sample of them was kept
    cross_fitted: bool = False  # whether ``decided`` comes from rules tuned fold by fold, not from the model's own
    rows: NDArray[np.intp] | None = None  # where they are in the training table, until the model is saved
    single: NDArray[np.float32] | None = None  # probabilities of the best single model of the portfolio
    single_decided: NDArray[np.int64] | None = None
    single_name: str = ""
    fold: NDArray[np.int64] | None = None  # which one held each row out
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # those that the metric names

    def __post_init__(self) -> None:
        n = len(self.truth)
        shapes = dict.fromkeys(("decided", "baseline_tuned", "single_decided"), self.truth.shape)
        shapes |= dict.fromkeys(("baseline", "single"), self.proba.shape)
        shapes |= dict.fromkeys(("weight", "rows", "fold"), (n,))
        shapes |= dict.fromkeys(self.columns, (n,))
        for name, shape in shapes.items():
            part = self.columns[name] if name in self.columns else getattr(self, name)
            if part is not None and part.shape != shape:
                raise ValueError(f"{name}: expected the shape {shape}, got {part.shape}.")
        fits = self.truth.ndim == 1 or self.truth.shape == self.proba.shape
        if len(self.proba) != n or self.proba.ndim != 2 or not fits:
            raise ValueError(f"proba: expected {n} rows that fit the truth, got the shape {self.proba.shape}.")
        highest = 1 if self.truth.ndim == 2 else self.proba.shape[1] - 1
        for name in ("truth", "decided", "baseline_tuned", "single_decided"):
            part = getattr(self, name)
            lowest = 0 if name == "truth" or self.truth.ndim == 2 else -1  # a decision of -1: left to a person
            if part is not None and len(part) and not (part.min() >= lowest and part.max() <= highest):
                raise ValueError(f"{name}: expected codes from {lowest} to {highest}.")

    def __len__(self) -> int:
        return len(self.truth)

    @property
    def baseline_decided(self) -> NDArray[np.int64] | None:
        """Arg max of the baseline; one half for labels."""
        plain = argmax_rule(self.truth, range(self.proba.shape[1]))
        return None if self.baseline is None else plain.decide(self.baseline)

    @cached_property
    def calibration(self) -> Calibration:
        """What makes the model's probabilities fit the truth of these rows."""
        classes, some = None if self.truth.ndim == 2 else range(self.proba.shape[1]), self.sample(_MOST_CALIBRATED)
        try:
            return calibrate(some.truth, some.proba, sample_weight=some.weight, labels=classes)
        except UntunableError:  # one class, or the same probabilities for all
            return Calibration("none", (), self.truth.ndim == 2)

    def holds(self, metric: Metric) -> bool:
        """Whether the columns that a metric names are there."""
        return set(metric.columns) <= set(self.columns)

    def judged(self, labels: tuple[Any, ...], decided: Any = None, proba: Any = None) -> Decided:
        """The model's decisions, or others about the same rows, to be judged."""
        decided, proba = (self.decided, self.proba) if decided is None else (decided, proba)
        return Decided(self.truth, decided, labels, proba, self.weight, self.columns)

    def with_rule(self, rule: DecisionRule) -> HeldOutScores:
        """The same rows decided by another rule, chosen elsewhere."""
        return replace(self, decided=rule.decide(self.proba), cross_fitted=False, single=None, single_decided=None)

    def finite(self) -> tuple[HeldOutScores, int]:
        """Without the rows that have a score that is no number, and how many they were."""
        parts = [part for part in (self.proba, self.baseline) if part is not None]
        good: NDArray[np.bool_] = np.asarray(np.isfinite(np.concatenate(parts, axis=1)).all(axis=1))
        return (self, 0) if good.all() else (self.take(good), int((~good).sum()))

    def sample(self, most: int, *, seed: int = 0) -> HeldOutScores:
        """At most about ``most`` rows: of every class its share, with weights that make up for the rest."""
        if len(self) <= most:
            return self
        random = np.random.default_rng(seed)
        weight = np.ones(len(self)) if self.weight is None else self.weight
        stratum = np.zeros(len(self), dtype=np.int64) if self.truth.ndim == 2 else self.truth
        counts = np.bincount(stratum)
        # Rare classes keep more than their share: a handful of rows says nothing about a class.
        floor = np.minimum(counts, max(1, most // (4 * len(counts))))
        keep = np.minimum(counts, np.maximum(floor, (counts * (most / len(self))).astype(np.int64)))
        taken: list[NDArray[np.intp]] = []
        new = weight.copy()
        for k in np.flatnonzero(counts):
            rows = np.flatnonzero(stratum == k)
            chosen = np.sort(random.choice(rows, keep[k], replace=False))
            total, kept = weight[rows].sum(), weight[chosen].sum()
            new[chosen] *= total / kept if kept > 0 else 1.0
            taken.append(chosen)
        sample = replace(self, weight=new, total=self.total or len(self))
        return sample.take(np.sort(np.concatenate(taken)))


def scores_of(
    classifier: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, *, source: str = "rows",
    baseline: Any = None, columns: Mapping[str, NDArray[Any]] | None = None,
) -> HeldOutScores:  # fmt: skip
    """What a fitted classifier, and a ``baseline`` trained with cross-entropy, say about labelled rows.

    The ``columns`` that metrics name are those of X that the classifier's metric does, unless they are given.
    """
    classes, several = tuple(classifier.classes_.tolist()), classifier.task_ == "multilabel"
    truth = y if several else encode_labels(as_label_array(y, "y"), classes, "y")
    proba = np.asarray(classifier.predict_proba(X, raw=True))
    raw = None if baseline is None else np.asarray(baseline.predict_proba(X, raw=True))
    return HeldOutScores(
        truth=np.asarray(truth, dtype=np.int64),
        proba=proba.astype(np.float32),
        decided=classifier.decision_rule_.decide(proba),
        baseline=None if raw is None else raw.astype(np.float32),
        baseline_tuned=None if raw is None else baseline.decision_rule_.decide(raw),
        weight=None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64),
        source=source,
        columns=rows_columns(classifier.metric_.columns, X, None, len(X)) if columns is None else columns,
    )
