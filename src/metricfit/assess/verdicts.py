"""Held-out scores, what a model reaches on them, and whether it is better than the same network with cross-entropy."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray

from metricfit.assess.intervals import Decided, Estimate, difference, estimate, over_splits, reached
from metricfit.decisions.calibration import Calibration, calibrate
from metricfit.decisions.problem import Rows, UntunableError
from metricfit.decisions.rules import DecisionRule, argmax_rule
from metricfit.decisions.threshold import tuned_rule
from metricfit.labels import as_label_array, encode_labels, rows_columns
from metricfit.metrics import Constrained, Metric

MODEL, PLAIN, TUNED = "this model", "cross-entropy, arg max", "cross-entropy, tuned rule"
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
        new, taken = weight.copy(), np.zeros(len(self), dtype=np.bool_)
        for k in np.flatnonzero(counts):
            rows = np.flatnonzero(stratum == k)
            chosen = np.sort(random.choice(rows, keep[k], replace=False))
            total, kept = weight[rows].sum(), weight[chosen].sum()
            new[chosen] *= total / kept if kept > 0 else 1.0
            taken[chosen] = True
        return replace(self, weight=new, total=self.total or len(self)).take(taken)


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


@dataclass(frozen=True)
class Reached:
    """What the decisions reach of a constraint: its metric's value, and whether that keeps the bound on these rows."""

    constraint: str
    metric: str
    estimate: Estimate
    met: bool


@dataclass(frozen=True)
class Assessment:
    """What one way to decide reaches: the metric (of a constrained one the objective) on so many rows.

    ``collapsed``: folds, counted from 1, in which every row got the same decision though the rows differ.
    """

    name: str
    estimate: Estimate
    constraints: tuple[Reached, ...] = ()
    rows: int = 0
    collapsed: tuple[int, ...] = ()

    @property
    def missed(self) -> tuple[str, ...]:
        """The constraints that are not met."""
        return tuple(c.constraint for c in self.constraints if not c.met)

    @property
    def note(self) -> str:
        """What is reached of the constraints, in words; empty without any."""
        values = ", ".join(f"{c.metric} {c.estimate.value:.4f}" for c in self.constraints)
        return f"with {values}" if values else ""


@dataclass(frozen=True)
class Verdict:
    """A model beside a rival on the same rows; ``gain`` is how much better the model is, paired.

    ``equal``: the constraints that both were held to, by rules chosen on these very rows, because one of them misses
    a constraint by its own rule; else empty.
    """

    model: Assessment
    rival: Assessment
    gain: Estimate
    equal: tuple[str, ...] = ()

    @property
    def better(self) -> Literal["model", "rival", "level", "unknown"]:
        """Which one to prefer, at equal constraints; "level" if the paired interval holds 0, "unknown" without one."""
        if math.isnan(self.gain.low):
            return "unknown"
        return "model" if self.gain.low > 0 else "rival" if self.gain.high < 0 else "level"

    def __str__(self) -> str:
        return self.sentence()

    def sentence(self, advice: str = "models={!r}") -> str:
        """The verdict in one sentence; ``advice`` is how to ask for the rival where it did better."""
        words = {PLAIN: "the same network trained with cross-entropy", TUNED: "cross-entropy with a tuned rule"}
        rival = words.get(self.rival.name, f"{self.rival.name} alone")
        model = "network_ce" if self.rival.name in words else self.rival.name
        between = f" (paired 95 % interval {self.gain.low:+.4f} to {self.gain.high:+.4f})"
        between += f", both held to {' and '.join(self.equal)}" if self.equal else ""
        if self.better == "unknown":
            return f"The difference to {rival} has no value on these rows."
        if self.better == "model":
            return f"The model gained {self.gain.value:.4f} over {rival}{between}."
        if self.better == "rival":
            by = f"did better here, by {-self.gain.value:.4f}{between}"
            return f"{rival[0].upper()}{rival[1:]} {by}: try {advice.format(model)}."
        return f"The difference to {rival} is within the noise{between}."


def assess(name: str, metric: Metric, rows: Decided) -> Assessment:
    """What decisions reach: the metric, and of a constrained one each constraint.

    >>> from metricfit import metrics
    >>> rows = Decided(np.repeat([0, 1], [80, 20]), np.ones(100, int), (0, 1))
    >>> found = assess("all", metrics.get("precision[1] subject to recall[1] >= 0.9"), rows)
    >>> found.estimate.value, found.missed, found.note
    (0.2, (), 'with recall[1] 1.0000')
    """
    limits = []
    for c in metric.constraints if isinstance(metric, Constrained) else ():
        found = reached(c, rows)
        met = not float(c.violation(torch.tensor(found.value, dtype=torch.float64))) > 0
        limits.append(Reached(str(c), c.what + c.where, found, met))
    return Assessment(name, estimate(metric, rows), tuple(limits), len(rows.truth))


def cautions(model: Assessment, verdicts: Sequence[Verdict], advice: str = "models={!r}") -> list[str]:
    """What to know before the model is used: a missed constraint, a better rival, a fold that has collapsed."""
    # Cross-entropy at arg max has the scores of its tuned rule: the stronger one speaks for both.
    rivals = [v for v in verdicts if v.rival.name != PLAIN or v is verdicts[-1]]
    found = [v.sentence(advice) for v in rivals if v.better == "rival"]
    if model.missed:
        found.insert(0, f"On these rows the model does not meet {' and '.join(model.missed)}.")
    if model.collapsed:
        which = f"fold {model.collapsed[0]}" if len(model.collapsed) == 1 else f"folds {str(model.collapsed)[1:-1]}"
        found.append(f"In {which} every row got the same decision: the model is not stable. Use more rows.")
    return found


def verdict(metric: Metric, model: tuple[Assessment, Decided], rival: tuple[Assessment, Decided]) -> Verdict:
    """The model beside a rival that was assessed on the same rows, at equal constraints."""
    ours, theirs = model[1], rival[1]
    if not isinstance(metric, Constrained) or not (model[0].missed or rival[0].missed) or ours.proba is None:
        return Verdict(model[0], rival[0], difference(metric, ours, theirs))
    equal = tuple(str(c) for c in metric.constraints)
    return Verdict(model[0], rival[0], difference(metric, _held_to(metric, ours), _held_to(metric, theirs)), equal)


def _held_to(metric: Constrained, rows: Decided) -> Decided:
    """The same scores, decided by the best rule that meets the constraints on these rows."""
    truth = rows.truth if rows.truth.ndim == 2 else np.asarray(rows.labels, dtype=object)[rows.truth]
    proba = np.asarray(rows.proba, dtype=np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where no rule meets them, arg max
        one = metric.with_thresholds_by(None)  # groups have been moved to one cut-off
        rule = tuned_rule(truth, proba, one, rows.labels, rows.weight, columns=rows.columns)
    return replace(rows, decided=rule.decide(proba))


def _collapsed(scores: HeldOutScores) -> tuple[int, ...]:
    """The folds in which every row got the same decision, where that is not so in all of them."""
    if scores.fold is None or scores.truth.ndim == 2:
        return ()
    folds = [scores.take(scores.fold == k) for k in np.unique(scores.fold)]
    same = [len(np.unique(f.decided)) == 1 < len(np.unique(f.truth)) for f in folds]
    return () if all(same) else tuple(k + 1 for k, it in enumerate(same) if it)


def assess_held_out(
    metric: Metric, scores: HeldOutScores, labels: Sequence[Any]
) -> tuple[Assessment, tuple[Verdict, ...]]:
    """What the model reaches on held-out rows, and one verdict per rival whose scores are there, the strongest last.

    The rivals are the best single model, and cross-entropy at arg max and with a tuned rule.
    """
    names = tuple(labels)
    ours = scores.judged(names)
    model = replace(assess(MODEL, metric, ours), collapsed=_collapsed(scores))
    rivals = []
    same = scores.single_name == "network_ce" and scores.baseline_tuned is not None  # that is cross-entropy, tuned
    if scores.single is not None and not metric.judges_scores and not same:
        rivals.append((scores.single_name, scores.judged(names, scores.single_decided, scores.single)))
    if scores.baseline is not None:
        rivals.append((PLAIN, scores.judged(names, scores.baseline_decided, scores.baseline)))
        if scores.baseline_tuned is not None and not metric.judges_scores:
            rivals.append((TUNED, scores.judged(names, scores.baseline_tuned, scores.baseline)))
    verdicts = [verdict(metric, (model, ours), (assess(name, metric, theirs), theirs)) for name, theirs in rivals]
    return model, tuple(verdicts)


REPORT_COLUMNS = ("model", "value", "low", "high", "gain", "rows", "note")


def validation_report(metric: Metric, found: Mapping[str, Assessment]) -> pd.DataFrame:
    """What the held-out rows say: one row per way to decide, with its 95 % interval and its gain over the first."""
    rows = [{"model": name, **asdict(a.estimate), "rows": a.rows, "note": a.note} for name, a in found.items()]
    frame = pd.DataFrame(rows, columns=list(REPORT_COLUMNS))
    sign = 1 if metric.greater_is_better else -1
    first = frame["value"].iloc[0] if len(frame) else 0.0
    return frame.assign(gain=sign * (frame["value"] - first))


def leaderboard(
    results: list[dict[str, Any]], methods: list[str], greater_is_better: bool, *, test_share: float = 0.2
) -> list[dict[str, Any]]:
    """Methods from best to worst: mean, interval, paired difference to the first method, mean seconds.

    ``results`` has one row per split and method: split, method, value, seconds and error (empty if it worked).
    ``test_share`` is the share of the rows that each split tests on, see :func:`over_splits`.

    >>> both = [("a", 0.5), ("b", 0.6)]
    >>> row = {"seconds": 1.0, "error": ""}
    >>> rows = [{**row, "split": s, "method": m, "value": v + s / 100} for s in range(3) for m, v in both]
    >>> [(row["method"], round(row["difference"], 2)) for row in leaderboard(rows, ["a", "b"], True)]
    [('b', 0.1), ('a', 0.0)]
    """
    frame = pd.DataFrame(results)
    frame = frame[frame["error"] == ""]
    values = frame.pivot_table(index="split", columns="method", values="value")
    gaps = values.sub(values[methods[0]], axis=0) if methods[0] in values else values[:0]
    board = []
    for method in [m for m in methods if m in values]:
        mean, gap = (over_splits(table[method].dropna().tolist(), test_share) for table in (values, gaps))
        board.append(
            {"method": method, "mean": mean.value, "low": mean.low, "high": mean.high,
             "splits": int(values[method].count()), "difference": gap.value, "difference_low": gap.low,
             "difference_high": gap.high, "seconds": float(frame[frame["method"] == method]["seconds"].mean())}
        )  # fmt: skip
    return sorted(board, key=lambda row: -row["mean"] if greater_is_better else row["mean"])
