"""Constraints: "the best precision with a recall of at least 90 %"."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from metricfit.confusion import ConfusionMatrix
from metricfit.inputs import Task
from metricfit.metrics.base import ClassMetric, DerivedMetric, MatrixSource, Metric, spell

__all__ = ["Constrained", "Constraint"]


@dataclass(frozen=True)
class Constraint:
    """``metric >= bound`` or ``metric <= bound``.

    >>> from metricfit import metrics
    >>> metrics.Recall(1) >= 0.9
    Constraint(recall[1] >= 0.9)
    """

    metric: Metric
    operator: str
    bound: float

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
        if isinstance(self.metric, ClassMetric) and self.metric.average == "none":
            raise ValueError(f"{self.metric}: gives one value per class; a constraint needs one, such as recall[1].")
        lowest, highest = self.metric.range
        if (self.operator == ">=" and self.bound > highest) or (self.operator == "<=" and self.bound < lowest):
            raise ValueError(f"{self}: cannot be met, {self.metric} lies between {lowest:g} and {highest:g}.")

    def violation(self, value: Tensor) -> Tensor:
        """By how much a value misses the bound; 0 where the constraint holds."""
        return (self.bound - value if self.operator == ">=" else value - self.bound).clamp_min(0)

    def __bool__(self) -> bool:
        raise TypeError(
            f"{self}: is not true or false; Python's 'and', 'or' and chained comparisons would drop constraints. Give "
            "them one by one: subject_to(Recall(1) >= 0.9, Precision(1) >= 0.5)."
        )

    def __str__(self) -> str:
        return f"{self.metric} {self.operator} {spell(self.bound)}"

    def __repr__(self) -> str:
        return f"Constraint({self})"


@dataclass(frozen=True)
class Constrained(DerivedMetric):
    """An objective under constraints.

    As a score: the objective's value where every constraint holds; otherwise the worst value the objective can
    take, made worse by the largest violation, so that a feasible result always ranks above an infeasible one.
    As a loss: the objective's distance from perfect plus ``penalty`` times the sum of violations.
    """

    objective: Metric
    constraints: tuple[Constraint, ...]
    penalty: float = field(default=10.0, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "constraints", tuple(self.constraints))
        if not self.constraints:
            raise ValueError("subject_to: expected at least one constraint, such as Recall(1) >= 0.9.")
        for constraint in self.constraints:
            if not isinstance(constraint, Constraint):
                raise TypeError(
                    f"subject_to: expected constraints such as Recall(1) >= 0.9, got {type(constraint).__name__}."
                )
        if isinstance(self.objective, Constrained):
            raise ValueError("subject_to: the objective is constrained already; give all constraints at once.")
        if not self.penalty > 0:
            raise ValueError(f"penalty: expected a number > 0, got {self.penalty}.")

    @property
    def _inner(self) -> Metric:
        return self.objective

    def violations(self, source: MatrixSource) -> list[Tensor]:
        """The violation of each constraint."""
        return [c.violation(c.metric.evaluate(source)) for c in self.constraints]

    def compute(self, cm: ConfusionMatrix) -> Tensor:
        """The objective where feasible, else something worse than its worst value."""
        return self.evaluate(lambda _: cm)

    def evaluate(self, source: MatrixSource) -> Tensor:
        """The objective where feasible, else something worse than its worst value."""
        value = self.objective.evaluate(source)
        worst_violation = torch.stack(self.violations(source)).amax(dim=0)
        infeasible = self.range[0] - worst_violation if self.greater_is_better else self.range[1] + worst_violation
        return torch.where(worst_violation > 0, infeasible, value)

    def loss(self, source: MatrixSource) -> Tensor:
        """Distance of the objective from perfect plus the penalised violations."""
        distance = self.objective.distance(self.objective.evaluate(source))
        return distance + self.penalty * torch.stack(self.violations(source)).sum(dim=0)

    def _parts(self) -> tuple[Metric, ...]:
        return self.objective, *(c.metric for c in self.constraints)

    def resolve(self, labels: tuple[Any, ...], task: Task) -> Constrained:
        """The resolved objective under resolved constraints."""
        constraints = tuple(replace(c, metric=c.metric.resolve(labels, task)) for c in self.constraints)
        return replace(self, objective=self.objective.resolve(labels, task), constraints=constraints)

    def __str__(self) -> str:
        return f"{self.objective} subject to " + " and ".join(str(c) for c in self.constraints)
