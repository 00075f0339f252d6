"""Metrics made of metrics, such as ``0.7 * Recall(1) + 0.3 * Precision(1)``, and of any function of the matrix."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from numbers import Real
from operator import add, mul, sub, truediv
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from metricfit.confusion import ConfusionMatrix, Grid
from metricfit.inputs import Task, expect, safe_divide
from metricfit.metrics.base import ClassMetric, MatrixSource, Metric, quote, spell

_NUMBERS: dict[str, Callable[[Any, Any], Any]] = {"+": add, "-": sub, "*": mul, "/": truediv}
_LEVEL = {"+": 1, "-": 1, "*": 2, "/": 2}


def combine(operator: str, left: Metric | float, right: Metric | float) -> Metric:
    """Join metrics and numbers; two numbers are computed at once."""
    for side in (left, right):
        if not isinstance(side, (Metric, Real)) or isinstance(side, bool):
            raise TypeError(f"a metric combines with metrics and numbers, got {type(side).__name__}.")
    first, second = (side if isinstance(side, Metric) else Constant(float(side)) for side in (left, right))
    if isinstance(first, Constant) and isinstance(second, Constant):
        if operator == "/" and second.value == 0:
            raise ValueError(f"metric: {first} / {second} divides by zero.")
        return Constant(_NUMBERS[operator](first.value, second.value))
    return Combination(operator, first, second)


@dataclass(frozen=True)
class Constant(Metric):
    """A number among metrics."""

    value: float
    greater_is_better: ClassVar[bool | None] = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise ValueError(f"a metric combines with finite numbers, got {self.value}.")

    range = property(lambda self: (self.value, self.value), doc="The number itself, twice.")

    def compute(self, cm: ConfusionMatrix) -> Tensor:
        return cm.matrix.new_full(cm.batch_shape, self.value)

    def grids(self, *, exact: bool = False) -> set[Grid]:
        return set()

    def __str__(self) -> str:
        return spell(self.value)


@dataclass(frozen=True)
class Column(Metric):
    """A column of the rows among numbers, in what an outcome is worth."""

    name: str
    range: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    greater_is_better: ClassVar[bool | None] = None
    columns = property(lambda self: (self.name,), doc="Its own name.")

    def compute(self, cm: ConfusionMatrix) -> Tensor:
        raise ValueError(f"{self}: is a column of the rows; money:tp={self} speaks of it.")

    def evaluate(self, source: Any) -> Tensor:
        return cast("Tensor", source(self.name))

    def __str__(self) -> str:
        return _column(self.name)


@dataclass(frozen=True)
class Coverage(Metric):
    """The share of the rows that a rule decides about, for ``… subject to coverage >= 0.9``; a matrix has no others."""

    def compute(self, cm: ConfusionMatrix) -> Tensor:
        return torch.ones_like(cm.total)

    def resolve(self, labels: tuple[Any, ...], task: Task) -> Coverage:
        if task == "multilabel":
            raise ValueError("coverage: is about rows that have one class each, not several labels; leave it out.")
        return self

    def __str__(self) -> str:
        return "coverage"


@dataclass(frozen=True)
class Combination(Metric):
    """Two metrics joined by ``+``, ``-``, ``*`` or ``/``.

    The best value is the combination of the best values and the range follows by interval arithmetic. Sums and
    products of metrics that pull in opposite directions are refused, and so are quotients without a best value. A
    quotient of two metrics takes its direction from the numerator: ``2 * p * r / (p + r)`` is to be maximised.
    """

    operator: str
    left: Metric
    right: Metric

    def __post_init__(self) -> None:
        if any(isinstance(part, Constrained) for part in self._parts()):
            raise ValueError("metric: combine metrics first, then put the result under constraints with subject_to.")
        if money := [part for part in self._parts() if part.needs_rows and part.greater_is_better]:
            raise ValueError(f"metric: {money[0]} stands alone: its value adds up rows; take constraints beside it.")
        _ = self.greater_is_better
        if self.operator == "/" and self.right.perfect == 0:
            raise ValueError(f"metric: {self}: the best value of the denominator is 0; divide by what stays above 0.")

    @property
    def greater_is_better(self) -> bool | None:  # type: ignore[override]
        left, right = self.left.greater_is_better, self.right.greater_is_better
        if self.operator in "*/":
            if isinstance(self.right, Constant):
                return left if left is None or self.right.value >= 0 else not left
            if isinstance(self.left, Constant) and right is not None:
                return right is ((self.left.value >= 0) is (self.operator == "*"))
            if self.operator == "/":
                return left
        if self.operator == "-" and right is not None:
            right = not right
        if left is not None and right is not None and left != right:
            verb = "multiplies" if self.operator == "*" else "adds up"
            mixed = f"{verb} a metric to be maximised and one to be minimised"
            raise ValueError(f"metric: {self}: {mixed}; turn the sign of one of them, or take 1 minus it.")
        return left if left is not None else right

    @property
    def perfect(self) -> float:
        return float(_NUMBERS[self.operator](self.left.perfect, self.right.perfect))

    @property
    def range(self) -> tuple[float, float]:  # type: ignore[override]
        left, right = self.left.range, self.right.range
        if self.operator != "/" or not right[0] <= 0 <= right[1]:
            ends = [_NUMBERS[self.operator](a, b) for a in left for b in right]
            if not any(map(math.isnan, ends)):  # of two infinities, or zero times infinity
                return (min(ends), max(ends))
        return (-math.inf, math.inf)

    def compute(self, cm: ConfusionMatrix) -> Tensor:
        return self.evaluate(lambda _: cm)

    def evaluate(self, source: MatrixSource) -> Tensor:
        # A number takes the dtype of what it meets: in float32, 0.7 would be off in the eighth digit.
        values: list[Any] = [None if isinstance(p, Constant) else p.evaluate(source) for p in self._parts()]
        left = torch.full_like(values[1], self.left.perfect) if values[0] is None else values[0]
        right = torch.full_like(left, self.right.perfect) if values[1] is None else values[1]
        if left.ndim != right.ndim:  # one has a value per class; the other's is the same for all
            left, right = (v[..., None] if v.ndim < max(left.ndim, right.ndim) else v for v in (left, right))
        if self.operator == "/":
            return safe_divide(*torch.broadcast_tensors(left, right))
        return cast("Tensor", _NUMBERS[self.operator](left, right))

    def _parts(self) -> tuple[Metric, ...]:
        return self.left, self.right

    def resolve(self, labels: tuple[Any, ...], task: Task) -> Combination:
        return replace(self, left=self.left.resolve(labels, task), right=self.right.resolve(labels, task))

    def __str__(self) -> str:
        level = _LEVEL[self.operator]
        left, right = (
            f"({part})" if isinstance(part, Combination) and _LEVEL[part.operator] < least else str(part)
            for part, least in ((self.left, level), (self.right, level + 1))
        )
        if self.operator == "*":
            return f"-{right}" if self.left == Constant(-1.0) else f"{left}*{right}"
        return f"{left} {self.operator} {right}"


class DerivedMetric(Metric):
    """A metric that has its range, its direction and its best value from another, ``_inner``."""

    _inner: Any
    range = property(lambda self: self._inner.range, doc="The other's range.")
    greater_is_better = property(lambda self: self._inner.greater_is_better, doc="The other's direction.")
    perfect = property(lambda self: self._inner.perfect, doc="The other's best value.")


@dataclass(frozen=True)
class Constraint:
    """``metric >= bound`` or ``metric <= bound``; of all rows, or in every group of a column.

    ``within`` is the column whose groups it is about, or None; with ``spread`` it is about the difference between the
    highest and the lowest group.

    >>> from metricfit import metrics
    >>> (metrics.Recall(1) >= 0.9).in_groups("region")
    Constraint(recall[1] >= 0.9 in region)
    """

    metric: Metric
    operator: str
    bound: float
    within: str | None = None
    spread: bool = False

    def __post_init__(self) -> None:
        if self.operator not in (">=", "<="):
            raise ValueError(f"a constraint compares with >= or <=, got {self.operator!r}.")
        if isinstance(self.bound, bool) or not isinstance(self.bound, Real):
            raise TypeError(f"a constraint compares a metric with a number, got {type(self.bound).__name__}.")
        if not math.isfinite(self.bound):
            raise ValueError(f"a constraint compares a metric with a finite number, got {self.bound}.")
        object.__setattr__(self, "bound", float(self.bound))
        if isinstance(self.metric, Constrained):
            raise ValueError("subject_to: a constraint is on a metric of its own, not on one under constraints.")
        if self.metric.needs_rows:
            raise ValueError(f"subject_to: {self.metric} is what to earn, not a constraint; put it first.")
        if isinstance(self.metric, ClassMetric) and self.metric.average == "none":
            raise ValueError(f"{self.metric}: gives one value per class; a constraint needs one, such as recall[1].")
        if isinstance(self.metric, Coverage) and (self.operator != ">=" or self.within or self.bound <= 0):
            raise ValueError(f"{self}: expected the least share of all rows to decide, such as 'coverage >= 0.9'.")
        lowest, highest = self.metric.range
        if (self.operator == ">=" and self.bound > highest) or (self.operator == "<=" and self.bound < lowest):
            raise ValueError(f"{self}: cannot be met, {self.metric} lies between {lowest:g} and {highest:g}.")

    def in_groups(self, column: str, *, spread: bool = False) -> Constraint:
        """The same in every group of a column, or for the difference between its groups (``spread``)."""
        return replace(self, within=column, spread=spread)

    def of_groups(self, values: Tensor) -> Tensor:
        """What counts of the values of all groups (groups, …): the worst one or, of a spread, the difference."""
        low, high = (torch.where(values.isnan(), end, values) for end in (torch.inf, -torch.inf))
        if self.spread:
            return (high.amax(dim=0) - low.amin(dim=0)).clamp_min(0)
        return low.amin(dim=0) if self.operator == ">=" else high.amax(dim=0)

    @property
    def strict(self) -> Metric:
        """Its metric, undefined (NaN) in groups without what it is about."""
        return replace(self.metric, zero_division=math.nan) if isinstance(self.metric, ClassMetric) else self.metric

    def violation(self, value: Tensor) -> Tensor:
        """By how much a value misses the bound; 0 where the constraint holds, but for rounding of a difference."""
        missed = (self.bound - value if self.operator == ">=" else value - self.bound).clamp_min(0)
        return missed.masked_fill(missed < 1e-12, 0.0) if self.spread else missed

    def __bool__(self) -> bool:
        raise TypeError(
            f"{self}: is not true or false; Python's 'and', 'or' and chained comparisons would drop constraints. Give "
            "them one by one: subject_to(Recall(1) >= 0.9, Precision(1) >= 0.5)."
        )

    @property
    def what(self) -> str:
        """What is compared with the bound."""
        return f"spread({self.metric})" if self.spread else str(self.metric)

    @property
    def where(self) -> str:
        """The groups that it is about."""
        return "" if self.within is None else f" in {_column(self.within)}"

    def __str__(self) -> str:
        return f"{self.what} {self.operator} {spell(self.bound)}{self.where}"

    def __repr__(self) -> str:
        return f"Constraint({self})"


@dataclass(frozen=True)
class Constrained(DerivedMetric):
    """An objective under constraints.

    As a score: the objective's value where every constraint holds; otherwise the worst value the objective can
    take, made worse by the largest violation, so that a feasible result always ranks above an infeasible one.
    As a loss: the objective's distance from perfect plus ``penalty`` times the sum of violations.
    ``by`` is the column whose groups get a cut-off each, which is unlawful in places where the groups are of people.
    """

    objective: Metric
    constraints: tuple[Constraint, ...]
    penalty: float = field(default=10.0, kw_only=True)
    by: str | None = field(default=None, kw_only=True)
    _inner = property(lambda self: self.objective)

    def __post_init__(self) -> None:
        object.__setattr__(self, "constraints", tuple(self.constraints))
        if not self.constraints:
            raise ValueError("subject_to: expected at least one constraint, such as Recall(1) >= 0.9.")
        for one in self.constraints:
            if not isinstance(one, Constraint):
                raise TypeError(f"subject_to: expected constraints such as Recall(1) >= 0.9, got {type(one).__name__}.")
        if isinstance(self.objective, Constrained):
            raise ValueError("subject_to: the objective is constrained already; give all constraints at once.")
        expect(self.penalty > 0, "penalty", "a number > 0", self.penalty)
        others = [c for c in self.constraints if c.within not in (None, self.by) or isinstance(c.metric, Coverage)]
        if self.by is not None and (others or self.objective.needs_rows):
            other = [*others, self.objective][0]
            raise ValueError(f"metric: {other} does not go with thresholds by {self.by!r}, which see its groups alone.")

    def with_thresholds_by(self, column: str | None) -> Constrained:
        """The same with a cut-off for each group of a column, or with one for all (None)."""
        return replace(self, by=column)

    @property
    def columns(self) -> tuple[str, ...]:
        within = [str(c.within) for c in self.constraints if c.within is not None]
        return tuple(dict.fromkeys([*self.objective.columns, *within, *([] if self.by is None else [self.by])]))

    @property
    def of_counts(self) -> Metric:  # of constraints shares stay, as those of all rows
        kept = tuple(replace(c, within=None) for c in self.constraints if not c.spread and c.metric.range[1] < math.inf)
        objective = self.objective.of_counts
        return replace(self, objective=objective, constraints=kept, by=None) if kept else objective

    def violations(self, source: MatrixSource) -> list[Tensor]:
        """The violation of each constraint."""
        if grouped := [c for c in self.constraints if c.within is not None]:
            raise ValueError(f"{grouped[0]}: a matrix holds no groups of rows; best_threshold and assess see them.")
        return [c.violation(c.metric.evaluate(source)) for c in self.constraints]

    def compute(self, cm: ConfusionMatrix) -> Tensor:
        return self.evaluate(lambda _: cm)

    def evaluate(self, source: MatrixSource) -> Tensor:
        value = self.objective.evaluate(source)
        worst_violation = torch.stack(self.violations(source)).amax(dim=0)
        infeasible = self.range[0] - worst_violation if self.greater_is_better else self.range[1] + worst_violation
        return torch.where(worst_violation > 0, infeasible, value)

    def loss(self, source: MatrixSource) -> Tensor:
        distance = self.objective.distance(self.objective.evaluate(source))
        return distance + self.penalty * torch.stack(self.violations(source)).sum(dim=0)

    def _parts(self) -> tuple[Metric, ...]:
        return self.objective, *(c.metric for c in self.constraints)

    def resolve(self, labels: tuple[Any, ...], task: Task) -> Constrained:
        constraints = tuple(replace(c, metric=c.metric.resolve(labels, task)) for c in self.constraints)
        return replace(self, objective=self.objective.resolve(labels, task), constraints=constraints)

    def __str__(self) -> str:
        by = "" if self.by is None else f" with thresholds by {_column(self.by)}"
        return f"{self.objective} subject to {' and '.join(str(c) for c in self.constraints)}{by}"


def _column(name: str) -> str:
    return name if name.isidentifier() else quote(name)


def named_class(metric: Metric, labels: tuple[Any, ...]) -> int | None:
    """The position of the class that the metric names; of several the first, None if it names none."""
    if isinstance(metric, DerivedMetric):
        places = (named_class(part, labels) for part in metric._parts())
        return next((place for place in places if place is not None), None)
    names, label = [str(one) for one in labels], str(getattr(metric, "label", None))
    return names.index(label) if getattr(metric, "label", None) is not None and label in names else None


@dataclass(frozen=True)
class CallableMetric(Metric):
    """Any function of one confusion matrix that returns a scalar tensor.

    It always sees a single matrix (``cm.tp[1]`` is class 1's count); a sweep is mapped over it.

    >>> metric = CallableMetric(lambda cm: cm.tp[1] / (cm.tp[1] + cm.fp[1] + 3 * cm.fn[1]))
    >>> metric(ConfusionMatrix(torch.tensor([[5.0, 1.0], [2.0, 3.0]])))
    tensor(0.3000)
    """

    function: Callable[[ConfusionMatrix], Tensor]
    range: tuple[float, float] = (0.0, 1.0)  # type: ignore[misc]
    greater_is_better: bool = True  # type: ignore[misc]

    def compute(self, cm: ConfusionMatrix) -> Tensor:
        if not cm.batch_shape:
            return self._checked(self.function(cm))
        flat = cm.matrix.reshape(-1, *cm.matrix.shape[len(cm.batch_shape) :])
        values = torch.func.vmap(lambda matrix: self._checked(self.function(cm.with_matrix(matrix))))(flat)
        return values.reshape(cm.batch_shape)

    def _checked(self, value: Any) -> Tensor:
        wanted = f"{self}: a metric function must return a scalar tensor computed from the matrix, got"
        if not isinstance(value, Tensor):
            raise TypeError(f"{wanted} {type(value).__name__}.")
        if value.ndim:
            raise ValueError(f"{wanted} shape {tuple(value.shape)}.")
        return value

    def __str__(self) -> str:  # a function has no spec to read back
        return getattr(self.function, "__name__", type(self.function).__name__)
