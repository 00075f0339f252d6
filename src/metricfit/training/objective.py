"""What all members minimise, each on its own batch: the metric, cross-entropy, or both; also under constraints."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from metricfit.confusion import ConfusionMatrix, hard_matrix
from metricfit.distributed import sum_over_processes
from metricfit.inputs import Samples, Task
from metricfit.losses.companions import ConfusionMemory, class_weights, cross_entropy_of_sums, cross_entropy_sums
from metricfit.losses.metric_loss import MetricLoss
from metricfit.losses.rivals import SurrogateFBetaLoss
from metricfit.metrics import ClassMetric, Constrained, FBeta, Metric
from metricfit.metrics.base import MatrixSource
from metricfit.steps import Amplifier, Annealed, Sigmoid
from metricfit.steps import get as get_step
from metricfit.training.recipes import Recipe

__all__ = ["MemberObjective", "Multipliers"]


class MemberObjective(nn.Module):
    """The loss of every member of an ensemble, as the recipe says; its state goes into checkpoints.

    A network for two classes has two logits: to :class:`metricfit.MetricLoss` that is a problem of two classes.

    Args:
        recipe: Complete: objective, step, temperature, memory, weights.
        metric: The metric.
        task: ``"binary"`` (two logits), ``"multiclass"`` or ``"multilabel"``.
        members: Ensemble members.
        prior: Class shares (d,), or (L, 2) shares of negatives and positives, for the class weights.
        labels: Class names for the metric.
    """

    class_weights: Tensor | None

    def __init__(
        self, recipe: Recipe, metric: Metric, task: Task, members: int, *, prior: Tensor, labels: tuple[Hashable, ...]
    ) -> None:
        super().__init__()
        self.recipe, self.members, self.labels = recipe, members, labels
        self.metric = metric.resolve(labels, task)
        self.task: Task = "multilabel" if task == "multilabel" else "multiclass"
        self.warming = False
        self.group: Any = None
        step = get_step(recipe.step)
        if isinstance(step, Amplifier) and task != "multilabel":
            if task == "multiclass":
                raise ValueError(
                    "step: the amplifier's threshold is fixed at 1/2, which no class of many need reach; use "
                    "step='sigmoid', or another recipe than 'anyloss'."
                )
            step = Sigmoid(step.sharpness)  # the same at the threshold 1/2, which is that of two classes
        constrained = recipe.objective == "metric" and isinstance(self.metric, Constrained)
        self.multipliers = Multipliers(self.metric, members) if constrained else None  # type: ignore[arg-type]
        balanced = bool(recipe.cross_entropy) and recipe.balance != "none"
        judge, names = _with_numbers(self.metric, labels)
        self.loss = MetricLoss(
            judge if self.multipliers is None else self.multipliers.lagrangian(),
            task=self.task,
            cross_entropy=recipe.cross_entropy,
            balance=recipe.balance if balanced else "none",
            prior=(prior[:, 1] if self.task == "multilabel" else prior) if balanced else None,
            # Under constraints the soft matrix gets no memory: multipliers that chase a lagging value swing, which
            # cost more precision at a given recall than the memory gained.
            memory=0.0 if constrained or recipe.objective != "metric" else recipe.memory,
            members=members,
            labels=names,
            sync=False,
            validate=False,
            **({"temperature": recipe.temperature} if isinstance(step, Annealed) else {"step": step}),
        )
        weights = None if recipe.balance == "none" else class_weights(prior, recipe.balance)
        self.register_buffer("class_weights", weights, persistent=False)
        self.surrogate_loss = _surrogate(recipe, self.metric, task, members)
        # The surrogate is of positives against negatives; the metric names which class is which.
        self._positive = 1 if getattr(self.metric, "label", None) != labels[0] else 0

    @property
    def temperature(self) -> Tensor:
        """T of each member, (members,)."""
        found = self.loss.temperature
        return torch.full((self.members,), self.recipe.temperature) if found is None else found

    def share_with(self, group: Any) -> None:
        """Each process of this group gives a part of every batch: their statistics are added up."""
        self.group = self.loss.sync = group
        if self.surrogate_loss is not None:
            self.surrogate_loss.group = group

    def set_temperature(self, member: int, temperature: float) -> None:
        """Change one member's T."""
        self.temperature[member] = temperature

    def forward(self, logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        """Losses (members,) of logits (members, n, d), target (members, n) or (members, n, L), weight (members, n)."""
        logits = logits.float()
        if self.warming or self.recipe.objective == "log_loss":
            return self.cross_entropy(logits, target, weight)
        if self.recipe.objective == "surrogate_fbeta":
            return self.surrogate(logits, target, weight)
        losses: Tensor = self.loss(logits, target, weight)
        if self.multipliers is not None and self.training:
            with torch.no_grad():
                hard = hard_matrix(self.samples(logits.detach(), target, weight), self.task, labels=self.labels)
                (counts,) = sum_over_processes([hard.matrix.float()], self.group)
                self.multipliers.update(hard.with_matrix(counts))
        return losses

    def samples(self, logits: Tensor, target: Tensor, weight: Tensor) -> Samples:
        """A batch as the counts and sums take it."""
        return self.loss.batch(target, weight, remember=False).samples(logits)

    def cross_entropy(self, logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        """Class-weighted mean cross-entropy of each member."""
        (sums,) = sum_over_processes([self.cross_entropy_sums(self.samples(logits, target, weight))], self.group)
        return cross_entropy_of_sums(sums, self.recipe.balance, members=self.members)

    def cross_entropy_sums(self, samples: Samples) -> Tensor:
        """Weighted sums of the cross-entropies of each member, and sums of the weights, (2, members)."""
        return cross_entropy_sums(samples, task=self.task, balance=self.recipe.balance, weights=self.class_weights)

    def surrogate(self, logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        """The surrogate F-beta loss of each member."""
        if self.task == "multilabel":
            scores = logits
        else:
            scores = logits[..., self._positive] - logits[..., 1 - self._positive]
            target = (target == self._positive).to(target.dtype)
        value: Tensor = cast("SurrogateFBetaLoss", self.surrogate_loss)(scores, target, weight)
        return value


class Multipliers(nn.Module):
    """Training under constraints: one multiplier per member and constraint, moved by the exact violation.

    The two-player scheme of Cotter et al. (2019): the network sees differentiable (soft) constraint values, the
    multipliers rise and fall with the hard ones. The update is a projected gradient ascent of three lines on a
    (members, constraints) tensor; a library that owns one model and one optimiser could not batch the members.

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

    def lagrangian(self) -> Constrained:
        """The metric with the Lagrangian as its loss."""
        return _Lagrangian(self.metric.objective, self.metric.constraints, multipliers=self)

    def loss(self, soft: MatrixSource) -> Tensor:
        """Objective plus multipliers times violations (negative where there is room), one loss per member."""
        objective = self.metric.objective
        multipliers = self.value.clone()
        loss = objective.distance(objective.evaluate(soft)) + (multipliers * self._signed(soft)).sum(dim=-1)
        # As multipliers grow the whole is scaled down, or they would raise the learning rate.
        return loss / (1 + multipliers.sum(dim=-1))

    @torch.no_grad()
    def update(self, hard: ConfusionMatrix) -> None:
        """Move the multipliers by the violations of the exact matrices of a batch."""
        exact = self.memory(hard)
        risen = self.value + self.rate * self._signed(lambda _: exact)
        self.value.copy_(risen.clamp(0, self.ceiling))

    def _signed(self, source: MatrixSource) -> Tensor:
        """By how much each constraint is missed, negative where it holds, (members, constraints)."""
        missed = []
        for constraint in self.metric.constraints:
            value = constraint.metric.evaluate(source)
            missed.append(constraint.bound - value if constraint.operator == ">=" else value - constraint.bound)
        return torch.stack(missed, dim=-1)


@dataclass(frozen=True, eq=False)
class _Lagrangian(Constrained):
    """A constrained metric whose loss is that of its multipliers."""

    multipliers: Any = None

    def loss(self, source: MatrixSource) -> Tensor:
        """The Lagrangian, one per member."""
        value: Tensor = self.multipliers.loss(source)
        return value


def _with_numbers(metric: Metric, labels: tuple[Hashable, ...]) -> tuple[Metric, tuple[Hashable, ...] | None]:
    """A metric of one class with the class's number in place of its name, which has a closed form."""
    if isinstance(metric, ClassMetric) and metric.label in labels:
        return replace(metric, label=labels.index(metric.label)), None
    return metric, labels


def _surrogate(recipe: Recipe, metric: Metric, task: Task, members: int) -> SurrogateFBetaLoss | None:
    if recipe.objective != "surrogate_fbeta":
        return None
    if task == "multiclass":
        raise ValueError(
            "recipe: 'surrogate_fbeta' is a loss of positives against negatives and y has more than two classes; use "
            "another recipe, or one label per class."
        )
    beta = metric.beta if isinstance(metric, FBeta) else 1.0
    if not isinstance(beta, int | float):
        raise ValueError(f"recipe: 'surrogate_fbeta' has one beta for all classes, got {metric}; use another recipe.")
    return SurrogateFBetaLoss(beta, task=task, members=members, validate=False)
