"""Training under constraints: one multiplier a member and constraint, moved by the exact violation.

The two-player scheme of Cotter et al. (2019): the network sees differentiable (soft) constraint values, the
multipliers rise and fall with the hard ones. The update is a projected gradient ascent of three lines on a
(members, constraints) tensor; a library that owns one model and one optimiser could not batch the members.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from metricfit.losses.memory import ConfusionMemory
from metricfit.metrics import Constrained
from metricfit.metrics.base import MatrixSource

__all__ = ["Multipliers"]


class Multipliers(nn.Module):
    """The Lagrangian of a constrained metric.

    Args:
        metric: Objective and constraints.
        members: Ensemble members.
        memory: Decay of the memory of the hard confusion matrix, from which violations are taken.
        rate: Step size of the multipliers.
        ceiling: They do not rise above this, so that a constraint nobody can meet does not drown the objective.
    """

    value: Tensor

    def __init__(
        self, metric: Constrained, members: int, memory: float = 0.9, *, rate: float = 0.02, ceiling: float = 20.0
    ) -> None:
        super().__init__()
        if metric.grids() != {None}:
            raise ValueError(f"metric: {metric} needs a sweep of thresholds; constraints are on decisions, not curves.")
        self.metric, self.rate, self.ceiling = metric, rate, ceiling
        self.memory = ConfusionMemory(memory)
        self.register_buffer("value", torch.zeros(members, len(metric.constraints)))

    def forward(self, soft: MatrixSource, hard: MatrixSource, *, update: bool) -> Tensor:
        """Objective plus multipliers times violations (negative where there is room), a loss a member.

        Args:
            soft: The differentiable matrices.
            hard: The exact ones of the same batch.
            update: Whether to move the multipliers.
        """
        objective = self.metric.objective
        loss = objective.distance(objective.evaluate(soft))
        multipliers = self.value.clone()
        loss = loss + (multipliers * self._signed(soft)).sum(dim=-1)
        if update:
            with torch.no_grad():
                exact = self.memory(hard(None))
                risen = self.value + self.rate * self._signed(lambda _: exact)
                self.value.copy_(risen.clamp(0, self.ceiling))
        # As multipliers grow the whole is scaled down, or they would raise the learning rate.
        return loss / (1 + multipliers.sum(dim=-1))

    def _signed(self, source: MatrixSource) -> Tensor:
        """By how much each constraint is missed, negative where it holds, (members, constraints)."""
        missed = []
        for constraint in self.metric.constraints:
            value = constraint.metric.evaluate(source)
            missed.append(constraint.bound - value if constraint.operator == ">=" else value - constraint.bound)
        return torch.stack(missed, dim=-1)
