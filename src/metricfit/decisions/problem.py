"""What a search is given: labels, scores and weights, checked and encoded; a metric and its constraints."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from metricfit import metrics
from metricfit.confusion import ConfusionMatrix
from metricfit.inputs import Task
from metricfit.labels import as_label_array, checked_weights, class_labels, encode_labels
from metricfit.metrics import ClassMetric, Constrained, Constraint, Metric, MetricLike

__all__ = [
    "ConstraintLike", "Goal", "Groups", "InfeasibleError", "Samples", "UntunableError", "binary_samples",
    "check_decides", "check_probabilities", "class_samples", "computed", "goal_of", "label_samples", "of_groups",
    "plain_array", "reached", "score_array", "values_of",
]  # fmt: skip

ConstraintLike = Constraint | str
Groups = Callable[[str], ConfusionMatrix]
"""Gives the matrices of all groups of a column, (groups, …)."""
Labels = Sequence[Hashable] | None
Weights = ArrayLike | None


class UntunableError(ValueError):
    """Samples that no decision rule can be tuned on: one class only, or scores that are all the same."""


@dataclass(frozen=True)
class Samples:
    """What a rule is chosen on.

    Attributes:
        target: Positive or not, (n,) or (n, labels); or class codes (n,).
        score: A score each, higher ones mean positive; or probabilities (n, classes).
        weight: Weights (n,), or None.
        classes: A tuple of the classes, negative first, or of the labels' names, if they have any.
    """

    target: NDArray[Any]
    score: NDArray[Any]
    weight: NDArray[np.float64] | None
    classes: Any = None

    def take(self, rows: Any) -> Samples:
        """Some of the samples."""
        weight = None if self.weight is None else self.weight[rows]
        return Samples(self.target[rows], self.score[rows], weight, self.classes)

    def confusion(self, decided: NDArray[Any]) -> ConfusionMatrix:
        """The confusion matrix of decisions about several classes (n,) or labels (n, labels)."""
        task: Task | None = "multilabel" if self.target.ndim == 2 else None
        size = self.score.shape[1]
        return ConfusionMatrix.from_codes(self.target, decided, size, self.weight, task=task, labels=self.classes)

    def at_prevalence(self, prevalence: Any) -> Samples:
        """The same samples, weighed so that the classes have these shares; the sum of the weights stays."""
        codes, size = self.target.astype(np.intp), len(self.classes)
        if isinstance(prevalence, Mapping):
            if set(prevalence) != set(self.classes):
                raise ValueError(f"prevalence: expected a share for each of {list(self.classes)}, got {prevalence}.")
            prevalence = [prevalence[label] for label in self.classes]
        try:
            both = [1 - prevalence, prevalence] if isinstance(prevalence, Real) else prevalence
            shares = np.asarray(both, dtype=np.float64)
        except (TypeError, ValueError):
            shares = np.empty(0)
        if shares.shape != (size,) or not (shares >= 0).all() or not (shares < 1).all() or abs(shares.sum() - 1) > 1e-6:
            raise ValueError(
                f"prevalence: expected the share of each of the {size} classes, 1 in sum, or of two classes the second "
                f"one's alone, between 0 and 1, got {prevalence!r}."
            )
        weight = np.ones(len(codes)) if self.weight is None else self.weight
        now = np.bincount(codes, weight, minlength=size)
        if lacking := [c for c, share, seen in zip(self.classes, shares, now, strict=True) if share and not seen]:
            raise ValueError(f"prevalence: {lacking[0]!r} has no samples here, so nothing is known about it.")
        return replace(self, weight=weight * (shares * now.sum() / np.where(now > 0, now, 1))[codes])


def binary_samples(
    y_true: ArrayLike, score: ArrayLike, sample_weight: Weights = None, labels: Labels = None, pos_label: Any = None
) -> Samples:
    """Two classes and one score per sample; the second class (or ``pos_label``) is the positive one."""
    true, scores = as_label_array(y_true, "y_true"), score_array(score, "score")
    if true.ndim != 1 or scores.ndim != 1:
        wrong, shape = ("score", scores.shape) if scores.ndim != 1 else ("y_true", true.shape)
        raise ValueError(
            f"{wrong}: expected shape (n,), got {shape}; give the positive class's column (proba[:, 1]), or use "
            "best_offsets for several classes and best_label_thresholds for several labels."
        )
    _check_length(scores, true, "score")
    classes = class_labels(true, labels=labels)
    if len(classes) > 2:
        raise ValueError(f"y_true: expected two classes, got {len(classes)}; use best_offsets for several classes.")
    if pos_label is not None:
        if pos_label not in classes:
            raise ValueError(f"pos_label: expected one of the classes {list(classes)}, got {pos_label!r}.")
        classes = (*(c for c in classes if c != pos_label), pos_label)
    codes = encode_labels(true, classes, "y_true")
    weight = checked_weights(sample_weight, len(true))
    _check_several(codes, weight, classes, "(with a weight); a cut-off needs both classes")
    if scores.min() == scores.max():
        raise UntunableError(
            f"score: all scores are {scores[0]:g}; no cut-off can separate the classes. Is the model fitted?"
        )
    return Samples(codes == 1, scores, weight, classes)


def class_samples(y_true: ArrayLike, proba: ArrayLike, sample_weight: Weights = None, labels: Labels = None) -> Samples:
    """Several classes and one probability each; columns are in the order of ``labels`` (sorted if not given)."""
    true, scores = as_label_array(y_true, "y_true"), score_array(proba, "proba")
    if true.ndim != 1 or scores.ndim != 2:
        raise ValueError(
            f"proba: expected shape (n, classes) with y_true of shape (n,), got {scores.shape} and {true.shape}."
        )
    _check_length(scores, true, "proba")
    classes = class_labels(true, labels=labels)
    if len(classes) != scores.shape[1]:
        raise ValueError(
            f"proba: expected one column for each of the {len(classes)} classes {list(classes)[:20]}, got "
            f"{scores.shape[1]}; where classes are missing from y_true, name all of them with labels=[…]."
        )
    target = encode_labels(true, classes, "y_true")
    weight = checked_weights(sample_weight, len(true))
    _check_several(target, weight, classes, "(with a weight); a decision rule needs at least two")
    check_probabilities(scores, "proba")
    if (scores == scores[0]).all():
        raise UntunableError("proba: all rows are the same; no rule can separate the classes. Is the model fitted?")
    return Samples(target, np.asarray(scores, dtype=np.float64), weight, classes)


def label_samples(y_true: ArrayLike, score: ArrayLike, sample_weight: Weights = None, labels: Labels = None) -> Samples:
    """A 0/1 indicator and a score for every label."""
    true = plain_array(y_true)
    scores = score_array(score, "score")
    if true.ndim != 2 or scores.shape != true.shape:
        raise ValueError(
            f"score: expected y_true and score of one shape (n, labels), got {true.shape} and {scores.shape}."
        )
    if not np.isin(true, (0, 1)).all():
        raise ValueError(f"y_true: a multi-label array of shape {true.shape} must hold 0 and 1 only.")
    positive = true.astype(bool)
    if positive.all() or not positive.any():
        raise UntunableError(f"y_true: every entry is {int(positive.all())}; a cut-off needs both 0 and 1.")
    if (scores.min(axis=0) == scores.max(axis=0)).all():
        raise UntunableError("score: every label's scores are constant; no cut-off can separate. Is the model fitted?")
    names = None if labels is None else class_labels(true, labels=labels)
    if names is not None and len(names) != true.shape[1]:
        raise ValueError(f"labels: expected {true.shape[1]} of them, got {len(names)}: {list(names)}.")
    return Samples(positive, scores, checked_weights(sample_weight, len(true)), names)


def check_probabilities(values: NDArray[Any], name: str) -> None:
    """Raise unless the values are class probabilities (n, classes): not negative, and not all zero in a row."""
    if (values < 0).any() or (values > 1 + 1e-6).any():
        raise ValueError(
            f"{name}: expected probabilities in [0, 1], got values from {values.min():g} to {values.max():g}; for "
            "logits take the softmax first."
        )
    if not (values.sum(axis=-1) > 0).all():
        raise ValueError(f"{name}: a row of probabilities is all zero.")


def plain_array(values: ArrayLike) -> NDArray[Any]:
    """A tensor, a frame or a list as an array."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        values = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    return np.asarray(values)


def score_array(values: ArrayLike, name: str) -> NDArray[Any]:
    """Scores as an array of finite floats."""
    array = plain_array(values)
    # Frames with nullable columns become objects.
    is_number_objects = array.dtype.kind == "O" and all(isinstance(v, Real) for v in array.flat)
    if array.dtype.kind in "biu" or is_number_objects:
        array = array.astype(np.float64)
    if array.dtype.kind != "f":
        raise TypeError(f"{name}: expected numbers, got {array.dtype}.")
    if len(array) == 0 or array.ndim == 0:
        raise ValueError(f"{name}: expected at least one sample, got shape {array.shape}.")
    if not np.isfinite(array).all():
        raise ValueError(
            f"{name}: expected finite numbers, got NaN or infinity in {int((~np.isfinite(array)).sum())} places; drop "
            "those samples or mend the model."
        )
    return array


def _check_length(scores: NDArray[Any], true: NDArray[Any], name: str) -> None:
    if len(scores) != len(true):
        raise ValueError(f"{name}: expected {len(true)} rows, one per sample of y_true, got {len(scores)}.")


def _check_several(codes: NDArray[Any], weight: NDArray[Any] | None, classes: tuple[Any, ...], needs: str) -> None:
    counted = codes if weight is None else codes[weight > 0]
    if (counted == counted[0]).all():
        raise UntunableError(f"y_true: only the class {classes[counted[0]]!r} occurs {needs}.")


class InfeasibleError(ValueError):
    """No decision rule meets the constraints on these data.

    Attributes:
        reachable: For each constraint (as text) the best value that a rule can reach; with ``confidence`` the best
            value that can be promised.
    """

    def __init__(self, message: str, reachable: dict[str, float]) -> None:
        super().__init__(message)
        self.reachable = reachable


@dataclass(frozen=True)
class Goal:
    """An objective and its constraints.

    ``sought`` is the constraint whose metric is the objective, in its direction and in its groups, where one is.
    """

    metric: Metric
    constraints: tuple[Constraint, ...] = ()
    sought: Constraint | None = None

    @property
    def spec(self) -> str:
        """Objective and constraints as one spec."""
        return str(self.metric.subject_to(*self.constraints)) if self.constraints else str(self.metric)

    def keys(self, cm: ConfusionMatrix, groups: Groups | None = None) -> tuple[Tensor, Tensor]:
        """What candidates are compared by: first the violation (less is better), then the gain.

        The violation is the largest of any constraint, 0 where all hold; the gain is the objective turned so that more
        is better, minus infinity where it is undefined. ``groups`` gives the matrices (groups, …) of a column.
        """
        worst = torch.zeros(cm.batch_shape, dtype=torch.float64)
        for constraint in self.constraints:
            missed = constraint.violation(reached(constraint, cm, groups))
            worst = torch.maximum(worst, torch.where(missed.isnan(), torch.inf, missed))
        if self.sought is not None:
            values = reached(self.sought, cm, groups).expand(cm.batch_shape)
            gains = values if self.sought.operator == ">=" else -values
        else:
            values = values_of(self.metric, cm)
            gains = values if self.metric.greater_is_better else -values
        return worst, torch.where(gains.isnan(), -torch.inf, gains)

    def reachable(self, best: Callable[[Goal], float | None]) -> dict[Constraint, tuple[float, str]]:
        """How far each constraint can be met beside the others or, where that is impossible, on its own; in words too.

        ``best`` is the best value of a goal, None where its constraints cannot be met.
        """
        found = {}
        for constraint in self.constraints:
            others = tuple(c for c in self.constraints if c is not constraint)
            for kept, given in ((others, " beside the others" if others else ""), ((), " on its own")):
                value = best(Goal(constraint.metric, kept, constraint))
                if value is not None:
                    found[constraint] = (value, given)
                    break
        return found

    def infeasible(self, found: Mapping[Constraint, tuple[float, str]], what: str) -> InfeasibleError:
        """The error for constraints that cannot be met, from the best value of each and under which condition."""
        parts = [f"{c}: the best reachable value{given} is {value:.4g}" for c, (value, given) in found.items()]
        asked = " and ".join(str(c) for c in self.constraints)
        reached = {str(c): value for c, (value, _) in found.items()}
        return InfeasibleError(f"subject_to: no {what} meets {asked}. {'; '.join(parts)}.", reached)


def reached(constraint: Constraint, cm: ConfusionMatrix, groups: Groups | None = None) -> Tensor:
    """The value of a constraint's metric; of one in groups the worst group's, or the spread between groups.

    A group in which the metric is undefined (precision where nobody is called) is left out.
    """
    if constraint.within is None or groups is None:
        return values_of(constraint.metric, cm)
    values = of_groups(constraint, groups)
    low, high = (torch.where(values.isnan(), end, values) for end in (torch.inf, -torch.inf))
    if constraint.spread:
        return (high.amax(dim=0) - low.amin(dim=0)).clamp_min(0)
    return low.amin(dim=0) if constraint.operator == ">=" else high.amax(dim=0)


def of_groups(constraint: Constraint, groups: Groups) -> Tensor:
    """The constraint's metric in each group, (groups, …); NaN where it is undefined."""
    metric = constraint.metric
    strict = replace(metric, zero_division=math.nan) if isinstance(metric, ClassMetric) else metric
    return values_of(strict, groups(str(constraint.within)))


def goal_of(
    metric: MetricLike,
    subject_to: ConstraintLike | Sequence[ConstraintLike] = (),
    groups: Mapping[str, Any] | None = None,
) -> Goal:
    """Read a metric, a spec with ``subject to``, and further constraints into one goal.

    >>> goal_of("precision[1] subject to recall[1] >= 0.9", ["predicted_share[1] <= 0.2"]).spec
    'precision[1] subject to recall[1] >= 0.9 and predicted_share[1] <= 0.2'
    """
    found = metrics.get(metric)
    objective, constraints = found, list[Constraint]()
    if isinstance(found, Constrained):
        objective, constraints = found.objective, list(found.constraints)
    for item in [subject_to] if isinstance(subject_to, (str, Constraint)) else subject_to:
        if isinstance(item, str):
            parsed = metrics.get(f"accuracy subject to {item}")
            constraints.extend(parsed.constraints if isinstance(parsed, Constrained) else ())
        elif isinstance(item, Constraint):
            constraints.append(item)
        else:
            raise TypeError(
                f"subject_to: expected constraints such as metrics.Recall(1) >= 0.9 or 'recall[1] >= 0.9', got "
                f"{type(item).__name__}."
            )
    for part in (objective, *(c.metric for c in constraints)):
        check_decides(part)
    for c in constraints:
        if c.within is not None and (groups is None or c.within not in groups):
            given = "none were given" if groups is None else f"got {list(groups)}"
            raise ValueError(
                f"groups: {c} needs the column, groups={{{c.within!r}: values}}, {given}; best_threshold and "
                "TunedRuleClassifier.fit take it for two classes."
            )
    _check_consistent(constraints)
    return Goal(objective, tuple(constraints))


def computed(metric: Metric, cm: ConfusionMatrix) -> Tensor:
    """The metric of every matrix of a batch, in float64, whatever its shape."""
    with torch.no_grad():
        try:
            values = metric.compute(cm)
        except RuntimeError:
            # A user's function with an if on a value cannot be mapped over a batch; ask it matrix by matrix.
            if not cm.batch_shape:
                raise
            flat = cm.matrix.reshape(-1, *cm.matrix.shape[len(cm.batch_shape) :])
            values = torch.stack([metric.compute(cm.with_matrix(matrix)) for matrix in flat])
            values = values.reshape(*cm.batch_shape, *values.shape[1:])
    return values.double()


def values_of(metric: Metric, cm: ConfusionMatrix) -> Tensor:
    """The metric of every matrix of a batch, in float64, one number each."""
    values = computed(metric, cm)
    if values.shape != cm.batch_shape:
        raise ValueError(
            f"metric: {metric} gives {tuple(values.shape[len(cm.batch_shape) :])} numbers per decision; a search needs "
            "one, choose an average or a class."
        )
    return values


def check_decides(metric: Metric) -> None:
    """Raise unless a decision can change the metric."""
    if metric.grids() - {None}:
        raise ValueError(
            f"metric: {metric} is a metric of the scores, no cut-off changes it; choose a metric of the decision, "
            "such as f1 or mcc."
        )
    if metric.greater_is_better is None:
        raise ValueError(f"metric: {metric} is a constant; there is nothing to search for.")


def _check_consistent(constraints: Sequence[Constraint]) -> None:
    for lower in constraints:
        for upper in constraints:
            opposed = (lower.operator, upper.operator) == (">=", "<=") and str(lower.metric) == str(upper.metric)
            opposed = opposed and not lower.spread and not upper.spread
            if opposed and lower.bound > upper.bound:
                raise InfeasibleError(f"subject_to: {lower} and {upper} contradict each other.", {})
