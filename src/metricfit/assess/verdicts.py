"""What a model reaches on held-out rows, and whether it is better than the same network trained with cross-entropy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import pandas as pd
import torch

from metricfit.assess.intervals import Decided, Estimate, difference, estimate
from metricfit.assess.scores import HeldOutScores
from metricfit.metrics import Constrained, Metric

__all__ = [
    "MODEL", "PLAIN", "REPORT_COLUMNS", "TUNED", "Assessment", "Reached", "Verdict", "assess", "assess_held_out",
    "in_words", "validation_report", "verdict",
]  # fmt: skip

MODEL, PLAIN, TUNED = "this model", "cross-entropy, arg max", "cross-entropy, tuned rule"


@dataclass(frozen=True)
class Reached:
    """What the decisions reach of a constraint: its metric's value, and whether that keeps the bound on these rows."""

    constraint: str
    metric: str
    estimate: Estimate
    met: bool


@dataclass(frozen=True)
class Assessment:
    """What one way to decide reaches: the metric (of a constrained one the objective) on so many rows."""

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
    """A model beside a rival on the same rows; ``gain`` is how much better the model is, paired."""

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


REPORT_COLUMNS = ("model", "value", "low", "high", "gain", "rows", "note")


def validation_report(metric: Metric, found: Mapping[str, Assessment]) -> pd.DataFrame:
    """What the held-out rows say: one row per way to decide, with its 95 % interval and its gain over the first.

    Args:
        metric: The metric.
        found: What each reaches, by its name; the first is what the others are compared with.
    """
    rows = [{"model": name, **asdict(a.estimate), "rows": a.rows, "note": a.note} for name, a in found.items()]
    frame = pd.DataFrame(rows, columns=list(REPORT_COLUMNS))
    sign = 1 if metric.greater_is_better else -1
    first = frame["value"].iloc[0] if len(frame) else 0.0
    return frame.assign(gain=sign * (frame["value"] - first))
