"""What a search is after: a metric of the decision, its direction, and the constraints on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from metricfit import metrics
from metricfit.confusion import ConfusionMatrix
from metricfit.metrics import Constrained, Constraint, Metric, MetricLike

__all__ = ["ConstraintLike", "Goal", "InfeasibleError", "check_decides", "goal_of", "values_of"]

ConstraintLike = Constraint | str


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
    """An objective with its direction, and constraints.

    Attributes:
        metric: The objective.
        constraints: What must hold, possibly nothing.
        maximise: The direction, where it is not the metric's own.
    """

    metric: Metric
    constraints: tuple[Constraint, ...] = ()
    maximise: bool | None = None

    @property
    def spec(self) -> str:
        """Objective and constraints as one spec."""
        return str(self.metric.subject_to(*self.constraints)) if self.constraints else str(self.metric)

    def gains(self, cm: ConfusionMatrix) -> Tensor:
        """The objective turned so that more is better; minus infinity where it is undefined."""
        values = values_of(self.metric, cm)
        upwards = self.metric.greater_is_better if self.maximise is None else self.maximise
        gains = values if upwards else -values
        return torch.where(gains.isnan(), -torch.inf, gains)

    def violations(self, cm: ConfusionMatrix) -> Tensor:
        """The largest violation of a constraint; 0 where all hold."""
        worst = torch.zeros(cm.batch_shape, dtype=torch.float64)
        for constraint in self.constraints:
            missed = constraint.violation(values_of(constraint.metric, cm))
            worst = torch.maximum(worst, torch.where(missed.isnan(), torch.inf, missed))
        return worst

    def keys(self, cm: ConfusionMatrix) -> tuple[Tensor, Tensor]:
        """What candidates are compared by: first the violation (less is better), then the gain."""
        return self.violations(cm), self.gains(cm)


def goal_of(metric: MetricLike, subject_to: ConstraintLike | Sequence[ConstraintLike] = ()) -> Goal:
    """Read a metric, a spec with ``subject to``, and further constraints into one goal.

    >>> goal_of("precision[1] subject to recall[1] >= 0.9", ["predicted_share[1] <= 0.2"]).spec
    'precision[1] subject to recall[1] >= 0.9 and predicted_share[1] <= 0.2'
    """
    found = metrics.get(metric)
    objective, constraints = (
        (found.objective, list(found.constraints)) if isinstance(found, Constrained) else (found, [])
    )
    more = [subject_to] if isinstance(subject_to, (str, Constraint)) else list(subject_to)
    for item in more:
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
    _check_consistent(constraints)
    return Goal(objective, tuple(constraints))


def values_of(metric: Metric, cm: ConfusionMatrix) -> Tensor:
    """The metric of every matrix of a batch, in float64, one number each."""
    with torch.no_grad():
        try:
            values = metric.compute(cm)
        except RuntimeError:
            # A user's function with an if on a value cannot be mapped over a batch; ask it matrix by matrix.
            if not cm.batch_shape:
                raise
            flat = cm.matrix.reshape(-1, *cm.matrix.shape[len(cm.batch_shape) :])
            values = torch.stack([metric.compute(cm.with_matrix(matrix)) for matrix in flat]).reshape(cm.batch_shape)
    if values.shape != cm.batch_shape:
        raise ValueError(
            f"metric: {metric} gives {tuple(values.shape[len(cm.batch_shape) :])} numbers a decision; a search needs "
            "one, choose an average or a class."
        )
    return values.double()


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
            if opposed and lower.bound > upper.bound:
                raise InfeasibleError(f"subject_to: {lower} and {upper} contradict each other.", {})
