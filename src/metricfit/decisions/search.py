"""The best cut-off of a score for any metric, exactly."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from metricfit.confusion import ConfusionMatrix
from metricfit.decisions._samples import binary_samples
from metricfit.decisions.confidence import certify_cuts, check_confidence
from metricfit.decisions.goal import ConstraintLike, Goal, InfeasibleError, check_decides, goal_of, values_of
from metricfit.decisions.rules import DecisionRule
from metricfit.decisions.sweep import Cut, Sweep, Wrap, best_cut
from metricfit.metrics import Constraint, MetricLike
from metricfit.metrics import get as get_metric

__all__ = ["BestThreshold", "ConstraintValue", "ThresholdCurve", "best_threshold", "score_sweep"]


@dataclass(frozen=True)
class ConstraintValue:
    """How a constraint fares under the chosen rule.

    Attributes:
        constraint: The constraint.
        value: Its metric on the data given.
        promised: What can be promised for new data at the confidence asked for; ``None`` without one.
    """

    constraint: Constraint
    value: float
    promised: float | None = None


def summary(
    rule: str, metric: str, value: float, constraints: Sequence[ConstraintValue], confidence: float | None
) -> str:
    """A result in a few plain lines."""
    lines = [rule, f"{metric.split(' subject to ')[0]} = {value:.4g}"]
    for c in constraints:
        promise = ""
        if c.promised is not None and confidence is not None:
            word = "at least" if c.constraint.operator == ">=" else "at most"
            promise = f", on new data {word} {c.promised:.4g} with {100 * confidence:g} % confidence"
        lines.append(
            f"{c.constraint.metric} = {c.value:.4g} (asked for {c.constraint.operator} {c.constraint.bound:g}){promise}"
        )
    return "\n".join(lines)


@dataclass(frozen=True)
class BestThreshold:
    """A cut-off and what it reaches on the data it was chosen on.

    Attributes:
        threshold: A sample is positive if ``score >= threshold``.
        value: The metric there.
        metric: The spec that was searched for.
        confusion: The confusion matrix there.
        constraints: How each constraint fares.
        confidence: The confidence of the promises, if any.
        cutoffs: How many distinct cut-offs were compared.
    """

    threshold: float
    value: float
    metric: str
    confusion: ConfusionMatrix
    constraints: tuple[ConstraintValue, ...] = ()
    confidence: float | None = None
    cutoffs: int = 0

    @property
    def rule(self) -> DecisionRule:
        """The cut-off as a rule that can be applied, saved and folded into probabilities."""
        return DecisionRule.at_threshold(self.threshold, self.confusion.labels or (0, 1), metric=self.metric)

    def __str__(self) -> str:
        """The cut-off, the metric and the constraints in plain lines."""
        rule = f"positive from a score of {self.threshold:.4g} on"
        return summary(rule, self.metric, self.value, self.constraints, self.confidence)


def best_threshold(
    y_true: ArrayLike,
    score: ArrayLike,
    metric: MetricLike,
    *,
    subject_to: ConstraintLike | Sequence[ConstraintLike] = (),
    confidence: float | None = None,
    sample_weight: ArrayLike | None = None,
    labels: Sequence[Hashable] | None = None,
    pos_label: Hashable | None = None,
) -> BestThreshold:
    """The cut-off with the best value of ``metric`` among *all* distinct ones, in O(n log n).

    Equal values go to the cut-off with more correct decisions.

    Args:
        y_true: Labels of two classes, shape (n,).
        score: Any score that rises with the positive class, shape (n,): a probability, a logit, a vote.
        metric: A name, an expression, a spec with ``subject to``, a metric or a function of the confusion matrix.
        subject_to: Constraints, such as ``"recall[1] >= 0.9"``; they add to those of ``metric``.
        confidence: If given, the constraints hold on new data from the same source with this probability. It
            speaks of recall, specificity, precision, npv, fpr, fnr and predicted_share of a class.
        sample_weight: Weights, shape (n,).
        labels: The two classes, negative first, where sorted order is not wanted.
        pos_label: The positive class, by default the second one.

    Raises:
        InfeasibleError: If no cut-off meets the constraints; it says the best reachable value.

    >>> best = best_threshold([0, 0, 1, 0, 1, 1], [0.1, 0.2, 0.35, 0.4, 0.6, 0.9], "f1")
    >>> best.threshold, best.value
    (0.275, 0.8571428571428571)
    >>> best_threshold(
    ...     [0, 0, 1, 0, 1, 1], [0.1, 0.2, 0.35, 0.4, 0.6, 0.9], "recall subject to precision >= 1"
    ... ).threshold
    0.5
    """
    goal = goal_of(metric, subject_to)
    samples = binary_samples(y_true, score, sample_weight, labels=labels, pos_label=pos_label)
    sweep = Sweep.of(samples)
    certified = None
    if confidence is not None:
        alpha = check_confidence(confidence, goal.constraints, samples.weight is not None)
        certified = certify_cuts(sweep, goal.constraints, alpha)
    cut = best_cut(sweep, goal, allowed=None if certified is None else certified.allowed)
    if cut is None:
        raise ValueError(f"metric: {goal.metric} is undefined (NaN) at every cut-off.")
    if cut.violation > 0:
        raise infeasible_cuts(sweep, goal)
    cm = sweep.matrix(sweep.counts(cut.index, cut.index + 1)[0])
    promises = (None,) * len(goal.constraints) if certified is None else certified.promises(cut.index)
    return BestThreshold(
        threshold=sweep.threshold(cut.index, low=certified is not None),
        value=float(values_of(goal.metric, cm)),
        metric=goal.spec,
        confusion=cm,
        constraints=tuple(
            ConstraintValue(c, float(values_of(c.metric, cm)), promise)
            for c, promise in zip(goal.constraints, promises, strict=True)
        ),
        confidence=confidence,
        cutoffs=len(sweep),
    )


def infeasible_cuts(sweep: Sweep, goal: Goal, *, wrap: Wrap | None = None, what: str = "cut-off") -> InfeasibleError:
    """The error that says how far each constraint can be met, beside the others or on its own."""
    reachable = {}
    for constraint in goal.constraints:
        others = tuple(c for c in goal.constraints if c is not constraint)
        best = _best_of(sweep, constraint, others, wrap)
        alone = best is None or best.violation > 0
        if alone:
            best = _best_of(sweep, constraint, (), wrap)
        if best is not None:
            value = best.gain if constraint.operator == ">=" else -best.gain
            reachable[constraint] = (value, " on its own" if alone else " beside the others" if others else "")
    return infeasible(goal, reachable, what)


def infeasible(goal: Goal, reachable: Mapping[Constraint, tuple[float, str]], what: str) -> InfeasibleError:
    """The error for constraints that cannot be met, from the best value of each and under which condition."""
    parts = [f"{c}: the best reachable value{given} is {value:.4g}" for c, (value, given) in reachable.items()]
    return InfeasibleError(
        f"subject_to: no {what} meets {' and '.join(str(c) for c in goal.constraints)}. " + "; ".join(parts) + ".",
        {str(c): value for c, (value, _) in reachable.items()},
    )


def _best_of(sweep: Sweep, constraint: Constraint, others: tuple[Constraint, ...], wrap: Wrap | None) -> Cut | None:
    return best_cut(sweep, Goal(constraint.metric, others, maximise=constraint.operator == ">="), wrap=wrap)


@dataclass(frozen=True)
class ThresholdCurve:
    """Metrics over the cut-off, for a plot or a table.

    Attributes:
        thresholds: Rising cut-offs.
        values: For each metric (by its spec) its values at them.
        predicted_share: The share of samples called positive.
    """

    thresholds: NDArray[np.float64]
    values: dict[str, NDArray[np.float64]]
    predicted_share: NDArray[np.float64]


def score_sweep(
    y_true: ArrayLike,
    score: ArrayLike,
    metric: MetricLike | Sequence[MetricLike],
    *,
    points: int | None = 1000,
    sample_weight: ArrayLike | None = None,
    labels: Sequence[Hashable] | None = None,
    pos_label: Hashable | None = None,
) -> ThresholdCurve:
    """The value of one or several metrics over the cut-off.

    Args:
        y_true: Labels of two classes.
        score: Scores of the positive class.
        metric: One metric or several.
        points: At most so many cut-offs, evenly spread over the ranks of the scores; ``None`` for all of them.
        sample_weight: Weights.
        labels: The two classes.
        pos_label: The positive class.

    >>> curve = score_sweep([0, 1, 0, 1], [0.1, 0.4, 0.6, 0.9], ["recall", "precision"])
    >>> curve.thresholds
    array([0.1 , 0.25, 0.5 , 0.75, 0.9 ])
    >>> curve.values["recall"]
    array([1. , 1. , 0.5, 0.5, 0. ])
    """
    several = list(metric) if isinstance(metric, Sequence) and not isinstance(metric, str) else [metric]
    wanted = [get_metric(m) for m in several]
    if not wanted:
        raise ValueError("metric: expected at least one metric, got none.")
    for m in wanted:
        check_decides(m)
    if twice := [str(m) for i, m in enumerate(wanted) if m not in wanted[:i] and str(m) in map(str, wanted[:i])]:
        raise ValueError(f"metric: two metrics are called {twice[0]}; sweep one at a time, or name the functions.")
    if points is not None and points < 2:
        raise ValueError(f"points: expected at least 2, or None for all cut-offs, got {points}.")
    sweep = Sweep.of(binary_samples(y_true, score, sample_weight, labels=labels, pos_label=pos_label))
    last = len(sweep) - 1
    few = points is not None and points <= last
    chosen = np.unique(np.linspace(0, last, points).round().astype(int)) if few else np.arange(last + 1)  # type: ignore[arg-type]
    chosen = chosen[::-1]
    tp, fp = sweep.tp[chosen], sweep.fp[chosen]
    counts = np.stack([sweep.fp[-1] - fp, fp, sweep.tp[-1] - tp, tp], axis=-1).reshape(-1, 2, 2)
    cm = sweep.matrix(torch.from_numpy(counts))
    return ThresholdCurve(
        thresholds=sweep.thresholds(chosen).astype(np.float64),
        values={str(m): values_of(m, cm).numpy() for m in wanted},
        predicted_share=(tp + fp) / (sweep.tp[-1] + sweep.fp[-1]),
    )
