"""What a search is given: labels, scores, weights and gains, checked and encoded; a metric and its constraints."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from metricfit import metrics
from metricfit.confusion import ConfusionMatrix
from metricfit.inputs import expect
from metricfit.labels import as_label_array, as_numpy, checked_weights, class_labels, encode_labels, score_array
from metricfit.metrics import Constrained, Constraint, Metric, MetricLike
from metricfit.metrics.algebra import Coverage

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
ConstraintLike = Constraint | str
Constraints = ConstraintLike | Sequence[ConstraintLike]
Key = tuple[float, float]  # what rules are compared by: minus the violation of the constraints, then the gain
Groups = Callable[[str], ConfusionMatrix]  # gives the matrices of all groups of a column, (groups, …)
Labels = Sequence[Hashable] | None
Weights = ArrayLike | None


class UntunableError(ValueError):
    """Samples that no decision rule can be tuned on: one class only, or scores that are all the same."""


class Rows:
    """A dataclass of arrays (n, …), and mappings to such arrays, of which some rows can be taken."""

    def take(self, rows: Any) -> Self:
        """Some of the rows."""
        parts: dict[str, Any] = {}
        for part in fields(self):  # type: ignore[arg-type]
            value = getattr(self, part.name)
            if isinstance(value, np.ndarray):
                parts[part.name] = value[rows]
            elif isinstance(value, Mapping):
                parts[part.name] = {name: column[rows] for name, column in value.items()}
        return replace(self, **parts)  # type: ignore[type-var]


@dataclass(frozen=True)
class Samples(Rows):
    """What a rule is chosen on."""

    target: NDArray[Any]  # positive or not, (n,) or (n, labels); or class codes (n,)
    score: NDArray[Any]  # one each, higher ones mean positive; or probabilities (n, classes)
    weight: Array | None
    classes: Any = None  # a tuple of the classes, negative first, or of the labels' names, if they have any

    def confusion(self, decided: NDArray[Any]) -> ConfusionMatrix:
        """The confusion matrix of decisions about several classes (n,) or labels (n, labels)."""
        how: Any = {"task": "multilabel" if self.target.ndim == 2 else None, "labels": self.classes}
        return ConfusionMatrix.from_codes(self.target, decided, self.score.shape[1], self.weight, **how)

    def at_prevalence(self, prevalence: Any) -> Samples:
        """The same samples, weighed so that the classes have these shares; the sum of the weights stays."""
        codes, size = self.target.astype(np.intp), len(self.classes)
        if isinstance(prevalence, Mapping):
            known = set(prevalence) == set(self.classes)
            expect(known, "prevalence", f"a share for each of {list(self.classes)}", prevalence)
            prevalence = [prevalence[label] for label in self.classes]
        try:
            both = [1 - prevalence, prevalence] if isinstance(prevalence, Real) else prevalence
            shares = np.asarray(both, dtype=np.float64)
        except (TypeError, ValueError):
            shares = np.empty(0)
        valid = shares.shape == (size,) and ((shares >= 0) & (shares < 1)).all() and abs(shares.sum() - 1) <= 1e-6
        alone = "or of two classes the second one's alone, between 0 and 1"
        expect(valid, "prevalence", f"the share of each of the {size} classes, 1 in sum, {alone}", prevalence)
        weight = np.ones(len(codes)) if self.weight is None else self.weight
        now = np.bincount(codes, weight, minlength=size)
        if lacking := [c for c, share, seen in zip(self.classes, shares, now, strict=True) if share and not seen]:
            raise ValueError(f"prevalence: {lacking[0]!r} has no samples here, so nothing is known about it.")
        return replace(self, weight=weight * (shares * now.sum() / np.where(now > 0, now, 1))[codes])


def binary_samples(
    y_true: ArrayLike, score: ArrayLike, sample_weight: Weights = None, labels: Labels = None
) -> Samples:
    """Two classes and one score per sample; the second class is the positive one."""
    true, scores, weight, classes = _read(y_true, score, "score", sample_weight, labels)
    expect(len(classes) <= 2, "y_true", "two classes", len(classes), "use best_offsets for several classes")
    codes = _several_codes(true, weight, classes, "a cut-off needs both classes")
    if scores.min() == scores.max():
        raise UntunableError(f"score: all scores are {scores[0]:g}; no cut-off can separate them. Is the model fitted?")
    return Samples(codes == 1, scores, weight, classes)


def class_samples(y_true: ArrayLike, proba: ArrayLike, sample_weight: Weights = None, labels: Labels = None) -> Samples:
    """Several classes and one probability each; columns are in the order of ``labels`` (sorted if not given)."""
    true, scores, weight, classes = _read(y_true, proba, "proba", sample_weight, labels)
    wanted = f"one column for each of the {len(classes)} classes {list(classes)[:20]}"
    advice = "where classes are missing from y_true, name all of them with labels=[…]"
    expect(len(classes) == scores.shape[1], "proba", wanted, scores.shape[1], advice)
    target = _several_codes(true, weight, classes, "a decision rule needs at least two")
    check_probabilities(scores, "proba")
    if (scores == scores[0]).all():
        raise UntunableError("proba: all rows are the same; no rule can separate the classes. Is the model fitted?")
    return Samples(target, np.asarray(scores, dtype=np.float64), weight, classes)


def label_samples(y_true: ArrayLike, score: ArrayLike, sample_weight: Weights = None, labels: Labels = None) -> Samples:
    """A 0/1 indicator and a score for every label."""
    true, scores = np.asarray(as_numpy(y_true)), score_array(score, "score")
    if true.ndim != 2 or scores.shape != true.shape:
        raise ValueError(f"score: expected one shape (n, labels), as y_true has, got {scores.shape} for {true.shape}.")
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


def _read(y_true: ArrayLike, score: ArrayLike, name: str, sample_weight: Weights, labels: Labels) -> tuple[Any, ...]:
    """Labels (n,), scores (n,) or probabilities (n, classes), weights and classes."""
    true, scores = as_label_array(y_true, "y_true"), score_array(score, name)
    if true.ndim != 1 or scores.ndim != (1 if name == "score" else 2):
        raise ValueError(
            f"{name}: expected shape {'(n,)' if name == 'score' else '(n, classes)'} with y_true of shape (n,), got "
            f"{scores.shape} and {true.shape}; best_threshold takes the positive class's column (proba[:, 1]), "
            "best_offsets several classes, best_label_thresholds several labels."
        )
    expect(len(scores) == len(true), name, f"{len(true)} rows, one per sample of y_true", len(scores))
    return true, scores, checked_weights(sample_weight, len(true)), class_labels(true, labels=labels)


def _several_codes(true: NDArray[Any], weight: Any, classes: tuple[Any, ...], needs: str) -> NDArray[np.intp]:
    """The codes of labels, of which there must be at least two that have a weight."""
    codes = encode_labels(true, classes, "y_true")
    counted = codes if weight is None else codes[weight > 0]
    if (counted == counted[0]).all():
        raise UntunableError(f"y_true: only the class {classes[counted[0]]!r} occurs (with a weight); {needs}.")
    return codes


def as_columns(proba: ArrayLike, name: str) -> NDArray[Any]:
    """Probabilities (n, classes) or (n, labels); of two classes also (n,) of the second."""
    p = score_array(proba, name)
    return np.stack([1 - p, p], axis=1) if p.ndim == 1 else p


def check_probabilities(values: NDArray[Any], name: str) -> None:
    """Raise unless the values are class probabilities (n, classes): not negative, and not all zero in a row."""
    if (values < 0).any() or (values > 1 + 1e-6).any():
        ends = f"{values.min():g} to {values.max():g}"
        raise ValueError(f"{name}: expected probabilities in [0, 1], got {ends}; for logits take the softmax first.")
    if not (values.sum(axis=-1) > 0).all():
        raise ValueError(f"{name}: a row of probabilities is all zero.")


class InfeasibleError(ValueError):
    """No decision rule meets the constraints; ``reachable`` has the best value (or promise) for each, by its text."""

    def __init__(self, message: str, reachable: dict[str, float]) -> None:
        super().__init__(message)
        self.reachable = reachable


@dataclass(frozen=True)
class Goal:
    """An objective and its constraints."""

    metric: Metric
    constraints: tuple[Constraint, ...] = ()
    sought: Constraint | None = None  # the constraint whose metric is the objective, in its direction and groups
    by: str | None = None  # the column whose groups get a cut-off each

    @property
    def whole(self) -> Metric:
        """Objective and constraints as one metric."""
        return (
            self.metric.subject_to(*self.constraints).with_thresholds_by(self.by) if self.constraints else self.metric
        )

    @property
    def spec(self) -> str:
        """The same as text."""
        return str(self.whole)

    @property
    def coverage(self) -> Constraint | None:
        """The least share of the rows to decide about, where some are left to a person."""
        return next((c for c in self.constraints if isinstance(c.metric, Coverage)), None)

    @property
    def sign(self) -> float:
        """1 if more of the objective is better, else -1."""
        upwards = self.metric.greater_is_better if self.sought is None else self.sought.operator == ">="
        return 1.0 if upwards else -1.0

    def keys(self, cm: ConfusionMatrix, groups: Groups | None = None) -> tuple[Tensor, Tensor]:
        """The largest violation of any constraint, and the gain: the objective, more is better, -inf if undefined."""
        worst = torch.zeros(cm.batch_shape, dtype=torch.float64)
        for constraint in self.constraints:
            missed = constraint.violation(reached(constraint, cm, groups))
            worst = torch.maximum(worst, torch.where(missed.isnan(), torch.inf, missed))
        values = values_of(self.metric, cm) if self.sought is None else reached(self.sought, cm, groups)
        gains = self.sign * values.expand(cm.batch_shape)
        return worst, torch.where(gains.isnan(), -torch.inf, gains)

    def infeasible(self, what: str, search: Callable[[Goal], Key]) -> InfeasibleError:
        """The error that says how far each constraint can be met, beside the others or else on its own.

        ``search`` gives the key of the best rule for a goal.
        """
        reachable, parts = {}, []
        for c in self.constraints:
            others = tuple(other for other in self.constraints if other is not c)
            aim, given = Goal(c.metric, others, c), " beside the others" if others else ""
            if (key := search(aim))[0] < 0:
                key, given = search(Goal(c.metric, (), c)), " on its own"
            reachable[str(c)] = value = aim.sign * key[1] if key[0] == 0 else math.nan
            parts.append(f"{c}: the best reachable value{given} is {value:.4g}")
        asked = " and ".join(str(c) for c in self.constraints)
        return InfeasibleError(f"subject_to: no {what} meets {asked}. {'; '.join(parts)}.", reachable)


def reached(constraint: Constraint, cm: ConfusionMatrix, groups: Groups | None = None) -> Tensor:
    """The value of a constraint's metric; of one in groups the worst group's that has one, or the groups' spread."""
    if constraint.within is None or groups is None:
        return values_of(constraint.metric, cm)
    return constraint.of_groups(values_of(constraint.strict, groups(constraint.within)))


def goal_of(
    metric: MetricLike, subject_to: Constraints = (), *, rows: bool = False, doubt: bool = False, groups: bool = False
) -> Goal:
    """Read a metric, a spec with ``subject to``, and further constraints into one goal.

    It may need columns of the ``rows``, with ``doubt`` leave rows to a person, with ``groups`` have a cut-off for each.
    """
    found = metrics.get(metric)
    found = getattr(found, "decision", found)  # of precision and recall at k
    objective, constraints = (found.objective, found.constraints) if isinstance(found, Constrained) else (found, ())
    for item in [subject_to] if isinstance(subject_to, (str, Constraint)) else subject_to:
        if isinstance(item, str):
            constraints += goal_of(f"accuracy subject to {item}", rows=rows, doubt=doubt).constraints
        elif isinstance(item, Constraint):
            constraints += (item,)
        else:
            raise TypeError(f"subject_to: expected constraints such as 'recall[1] >= 0.9', got {type(item).__name__}.")
    for part in (objective, *(c.metric for c in constraints)):
        if part.grids() - {None}:
            told = "is a metric of the scores, no cut-off changes it; choose one such as f1 or mcc"
            raise ValueError(f"metric: {part} {told}.")
        if part.greater_is_better is None:
            raise ValueError(f"metric: {part} is a constant; there is nothing to search for.")
    goal = Goal(objective, constraints, by=getattr(found, "by", None))
    if goal.by is not None and not groups:
        told = "asks for cut-offs of groups; best_group_thresholds, TunedRuleClassifier and MetricClassifier give them"
        raise ValueError(f"metric: {goal.spec} {told}.")
    if not rows and (objective.needs_rows or any(c.within for c in constraints)):
        told = "looks at columns of the rows, which is for two classes; best_threshold and TunedRuleClassifier do"
        raise ValueError(f"metric: {goal.spec} {told}.")
    if not doubt and goal.coverage is not None:
        told = "leaves rows to a person; best_rule, cautious_rule, TunedRuleClassifier and MetricClassifier do that"
        raise ValueError(f"metric: {goal.spec} {told}.")
    return goal


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
        told = "gives several numbers per decision; a search needs one, choose an average or a class"
        raise ValueError(f"metric: {metric} {told}.")
    return values


@dataclass(frozen=True)
class TotalGain(Metric):
    """The sum of a matrix whose cells hold money instead of counts; ``name`` says which money."""

    name: str = "total gain"
    range = (-math.inf, math.inf)

    def compute(self, cm: ConfusionMatrix) -> Tensor:
        return cm.matrix.sum(dim=(-2, -1))

    def __str__(self) -> str:
        return self.name
