"""What a model reaches on held-out rows, and whether it is better than the same network trained with cross-entropy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from metricfit.assess.intervals import Decided, Estimate, difference, estimate
from metricfit.assess.scores import HeldOutScores, codes_of, plain_decisions
from metricfit.decisions.rules import argmax_rule
from metricfit.decisions.threshold import tuned_rule
from metricfit.metrics import Constrained, Metric

__all__ = [
    "MODEL", "PLAIN", "TUNED", "Assessment", "HeldOut", "Reached", "Verdict", "assess", "assess_held_out", "held_out",
    "in_words", "validation_report", "verdict",
]  # fmt: skip

Array = NDArray[np.float64]

MODEL, PLAIN, TUNED = "this model", "cross-entropy, arg max", "cross-entropy, tuned rule"


@dataclass(frozen=True)
class Reached:
    """What the decisions reach of a constraint.

    Attributes:
        constraint: The constraint as text.
        metric: Its metric as text.
        estimate: The value of its metric, with the interval.
        met: Whether the value keeps the bound on these rows.
    """

    constraint: str
    metric: str
    estimate: Estimate
    met: bool


@dataclass(frozen=True)
class Assessment:
    """What one way to decide reaches.

    Attributes:
        name: What to call it.
        estimate: The metric, of a constrained one the objective, with the interval.
        constraints: What it reaches of each constraint.
        rows: How many rows were judged.
    """

    name: str
    estimate: Estimate
    constraints: tuple[Reached, ...] = ()
    rows: int = 0

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
    """A model beside a rival, on the same rows.

    Attributes:
        model: What the model reaches.
        rival: What the rival reaches.
        gain: How much better the model is, paired; positive is better.
    """

    model: Assessment
    rival: Assessment
    gain: Estimate

    @property
    def better(self) -> Literal["model", "rival", "level", "misses", "unknown"]:
        """Which one to prefer.

        ``"misses"``: the model does not meet a constraint. ``"level"``: the paired interval holds 0. ``"unknown"``:
        the metric has no value here. A rival that misses a constraint which the model meets is never preferred.
        """
        if self.model.missed:
            return "misses"
        if self.rival.missed:
            return "model"
        if math.isnan(self.gain.low):
            return "unknown"
        return "model" if self.gain.low > 0 else "rival" if self.gain.high < 0 else "level"

    def __str__(self) -> str:
        """The verdict in one sentence, with advice for Python."""
        return self.sentence("recipe=Recipe('log_loss', rule='tuned')")

    def sentence(self, advice: str) -> str:
        """The verdict in one sentence; ``advice`` is what to try where the rival did better."""
        rival = in_words(self.rival.name)
        between = f" (paired 95 % interval {self.gain.low:+.4f} to {self.gain.high:+.4f})"
        if self.better == "misses":
            return f"On these rows the model does not meet {' and '.join(self.model.missed)}."
        if self.better == "unknown":
            return f"The difference to {rival} has no value on these rows."
        if self.rival.missed:
            return f"{rival[0].upper()}{rival[1:]} does not meet {' and '.join(self.rival.missed)} there."
        if self.better == "model":
            return f"The model gained {self.gain.value:.4f} over {rival}{between}."
        if self.better == "rival":
            return f"{rival[0].upper()}{rival[1:]} did better here, by {-self.gain.value:.4f}{between}: try {advice}."
        return f"The difference to {rival} is within the noise{between}."


def in_words(name: str) -> str:
    """A rival's name as part of a sentence."""
    words = {PLAIN: "the same network trained with cross-entropy", TUNED: "cross-entropy with a tuned rule"}
    return words.get(name, name)


def assess(name: str, metric: Metric, rows: Decided) -> Assessment:
    """What decisions reach: the metric, and of a constrained one each constraint.

    >>> import numpy as np
    >>> from metricfit import metrics
    >>> truth = np.repeat([0, 1], [80, 20])
    >>> found = assess(
    ...     "all", metrics.get("precision[1] subject to recall[1] >= 0.9"), Decided(truth, 0 * truth + 1, (0, 1))
    ... )
    >>> found.estimate.value, found.missed, found.note
    (0.2, (), 'with recall[1] 1.0000')
    """
    limits = []
    for c in metric.constraints if isinstance(metric, Constrained) else ():
        reached = estimate(c.metric, rows)
        met = not float(c.violation(torch.tensor(reached.value))) > 0
        limits.append(Reached(str(c), str(c.metric), reached, met))
    return Assessment(name, estimate(metric, rows), tuple(limits), len(rows.truth))


def verdict(metric: Metric, model: tuple[Assessment, Decided], rival: tuple[Assessment, Decided]) -> Verdict:
    """The model beside a rival that was assessed on the same rows."""
    return Verdict(model[0], rival[0], difference(metric, model[1], rival[1]))


def assess_held_out(
    metric: Metric, scores: HeldOutScores, labels: Sequence[Any]
) -> tuple[Assessment, tuple[Verdict, ...]]:
    """What the model reaches on held-out rows, and the verdicts against cross-entropy, at arg max and tuned.

    Args:
        metric: The metric.
        scores: Held-out scores; rivals are compared if they hold those of a baseline.
        labels: The classes in order.

    Returns:
        The model's assessment, and one verdict per rival; the last is against the strongest one.
    """

    def rows(decided: Any, proba: Any) -> Decided:
        return Decided(scores.truth, decided, tuple(labels), proba, scores.weight)

    ours = rows(scores.decided, scores.proba)
    model = assess(MODEL, metric, ours)
    rivals = []
    if scores.baseline is not None:
        rivals.append((PLAIN, rows(scores.baseline_decided, scores.baseline)))
        if scores.baseline_tuned is not None and not metric.judges_scores:
            rivals.append((TUNED, rows(scores.baseline_tuned, scores.baseline)))
    verdicts = [verdict(metric, (model, ours), (assess(name, metric, theirs), theirs)) for name, theirs in rivals]
    return model, tuple(verdicts)


@dataclass(frozen=True)
class HeldOut:
    """Out-of-fold predictions: probabilities of rows by networks that were not trained on them.

    Attributes:
        rows: The rows.
        fold: The split that held each of them out.
        single: Probabilities of one network.
        ensemble: Mean probabilities of the networks that share a split; ``None`` if none do.
    """

    rows: NDArray[np.intp]
    fold: NDArray[np.intp]
    single: Array
    ensemble: Array | None


def held_out(
    validation: Sequence[NDArray[np.intp]], probabilities: Sequence[Array], members: int = 1
) -> HeldOut | None:
    """Gather the members' held-out probabilities; ``None`` if no row was held out.

    Args:
        validation: The rows that each member did not see.
        probabilities: Each member's probabilities of its rows, (rows, classes).
        members: How many members share each split.
    """
    first = range(0, len(validation), members)
    if not any(len(rows) for rows in validation):
        return None
    rows = np.concatenate([validation[k] for k in first])
    fold = np.repeat(range(len(first)), [len(validation[k]) for k in first])
    together = [np.mean(probabilities[k : k + members], axis=0) for k in first]
    single = np.concatenate([probabilities[k] for k in first])
    return HeldOut(rows, fold, single, np.concatenate(together) if members > 1 else None)


def _cross_fitted(
    codes: NDArray[np.int64], held: HeldOut, proba: Array, metric: Metric, labels: tuple[Any, ...], weight: Array
) -> NDArray[np.int64]:
    """Decisions (codes) of a tuned rule for each fold, the rule tuned on the other folds: what new data would see."""
    several = codes.ndim == 2
    y = codes if several else np.array(labels)[codes]
    fold = held.fold if len(np.unique(held.fold)) > 1 else np.arange(len(held.fold)) % 2
    decided = np.empty((len(fold), *codes.shape[1:]), dtype=np.int64)
    for k in np.unique(fold):
        here, others = fold == k, fold != k
        rest = held.rows[others]
        # A class that the other folds do not have cannot be tuned for.
        whole = several or len(np.unique(codes[rest])) == len(labels)
        rule = tuned_rule(y[rest], proba[others], metric, labels, weight[rest]) if whole else argmax_rule(y, labels)
        decided[here] = codes_of(rule, proba[here])
    return decided


def validation_report(
    metric: Metric,
    codes: NDArray[np.int64],
    classes: NDArray[Any],
    weight: NDArray[np.float64],
    *,
    trained: HeldOut | None,
    baseline: HeldOut | None,
    trained_on: str,
    tuned: bool,
    ensemble_note: str = "",
) -> tuple[pd.DataFrame, HeldOutScores | None]:
    """What the held-out rows say: a table of values with intervals, and the scores behind it.

    The rows of the table are cross-entropy at arg max, cross-entropy with a tuned rule, the network as trained, and
    the ensemble; its columns model, value, low, high (the 95 % interval), gain (over the first row), rows and note.

    Args:
        metric: The metric.
        codes: Class codes of all rows (n,), or 0/1 (n, labels).
        classes: The classes in order.
        weight: Sample weights of all rows.
        trained: Held-out predictions of the network.
        baseline: Those of the same network trained with cross-entropy.
        trained_on: What to call the network as trained.
        tuned: Whether its decisions come from a tuned rule.
        ensemble_note: Why the ensemble has no value, if it has none.
    """
    labels, ranks = tuple(classes.tolist()), metric.judges_scores
    measurable = len(metric.grids()) == 1 and weight.sum() > 0
    found: dict[str, Decided] = {}
    assessed: list[Assessment] = []

    def add(model: str, held: HeldOut, proba: Array, tuned: bool) -> None:
        if tuned and not ranks:
            decided = _cross_fitted(codes, held, proba, metric, labels, weight)
        else:
            decided = plain_decisions(proba, labels=codes.ndim == 2)
        here = None if (weight[held.rows] == 1).all() else weight[held.rows]
        found[model] = Decided(codes[held.rows], decided, labels, proba.astype(np.float32), here)
        assessed.extend([assess(model, metric, found[model])] if measurable else [])

    if baseline is not None:
        add(PLAIN, baseline, baseline.single, False)
        if not ranks:
            add(TUNED, baseline, baseline.single, True)
    if trained is not None:
        add(trained_on, trained, trained.single, tuned)
        if trained.ensemble is not None:
            add("ensemble", trained, trained.ensemble, tuned)
    rows = [{"model": a.name, **asdict(a.estimate), "rows": a.rows, "note": a.note} for a in assessed]
    if assessed and trained is not None and trained.ensemble is None and ensemble_note:
        rows.append({"model": "ensemble", **asdict(Estimate(math.nan)), "rows": 0, "note": ensemble_note})
    frame = pd.DataFrame(rows, columns=["model", "value", "low", "high", "rows", "note"])
    sign = 1 if metric.greater_is_better else -1
    frame.insert(4, "gain", sign * (frame["value"] - frame["value"].iloc[0]) if len(frame) else [])
    if trained is None:
        return frame, None
    model, tuned_rival = found[trained_on if trained.ensemble is None else "ensemble"], found.get(TUNED)
    return frame, HeldOutScores(
        truth=model.truth,
        proba=np.asarray(model.proba),
        decided=model.decided,
        baseline=None if baseline is None else np.asarray(found[PLAIN].proba),
        baseline_tuned=None if tuned_rival is None else tuned_rival.decided,
        weight=model.weight,
        source="rows of the training table, each predicted by networks that were not trained on it",
        cross_fitted=tuned and not ranks,
        rows=trained.rows,
    )
