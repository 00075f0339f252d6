"""What all members minimise, each on its own batch: the metric, cross-entropy, or both."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metricfit.confusion import Absent, ConfusionMatrix
from metricfit.distributed import sum_over_processes
from metricfit.inputs import Task
from metricfit.losses.cross_entropy import class_weights
from metricfit.losses.memory import ConfusionMemory
from metricfit.losses.surrogate_fbeta import SurrogateFBetaLoss
from metricfit.metrics import Constrained, FBeta, Metric
from metricfit.metrics.base import MatrixSource
from metricfit.numerics import safe_divide
from metricfit.steps import Annealed, Step
from metricfit.steps import get as get_step
from metricfit.training.constraints import Multipliers
from metricfit.training.counting import hard_counts, member_probabilities, soft_counts, two_class_counts
from metricfit.training.recipes import Recipe

__all__ = ["MemberObjective", "as_matrix"]

Grid = tuple[float, ...] | None

_BALANCE: Any = {"none": "none", "sqrt": "sqrt", "full": "balanced"}


class MemberObjective(nn.Module):
    """The loss of every member of an ensemble, as the recipe says; a state that checkpoints can hold.

    Args:
        recipe: Loss, step, temperature, memory, weights.
        metric: The metric.
        task: ``"binary"`` (two logits), ``"multiclass"`` or ``"multilabel"``.
        members: Ensemble members.
        prior: Class shares (d,), or (L, 2) shares of negatives and positives, for the class weights.
        labels: Class names for the metric.
        positive_share: Share of positives (1,) or (L,), for the surrogate.
    """

    temperature: Tensor
    class_weights: Tensor

    def __init__(
        self,
        recipe: Recipe,
        metric: Metric,
        task: Task,
        members: int,
        *,
        prior: Tensor,
        labels: tuple[Hashable, ...],
    ) -> None:
        super().__init__()
        self.recipe, self.metric, self.task, self.members, self.labels = recipe, metric, task, members, labels
        self.warming = False
        self.group: Any = None
        self.register_buffer("temperature", torch.full((members, 1, 1), recipe.temperature))
        self.register_buffer("class_weights", class_weights(prior, _BALANCE[recipe.balance]), persistent=False)
        constrained = isinstance(metric, Constrained) and recipe.objective == "metric"
        # Under constraints the soft matrix gets no memory: multipliers that chase a lagging value swing, which cost
        # more precision at a given recall than the memory gained.
        uses_memory = bool(recipe.memory) and recipe.objective == "metric" and not constrained
        grids = sorted(metric.grids(), key=lambda grid: grid or ())
        self._grid_index = {grid: i for i, grid in enumerate(grids)}
        self.memories = nn.ModuleList(ConfusionMemory(recipe.memory) for _ in grids) if uses_memory else None
        self.multipliers = Multipliers(metric, members) if constrained else None  # type: ignore[arg-type]
        self._surrogate = _surrogate(recipe, metric, task, prior)
        self._fixed_step = None if isinstance(get_step(recipe.step), Annealed) else get_step(recipe.step)
        if recipe.step == "amplifier" and task == "multiclass":
            raise ValueError(
                "step: the amplifier's threshold is fixed at 1/2, which no class of many need reach; use "
                "step='sigmoid', or another recipe than 'anyloss'."
            )

    def share_with(self, group: Any) -> None:
        """Each process of this group gives a part of every batch: their statistics are added up."""
        self.group = group
        if self._surrogate is not None:
            self._surrogate.group = group

    def set_temperature(self, member: int, temperature: float) -> None:
        """Change one member's T."""
        self.temperature[member] = temperature

    def forward(self, logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        """Losses (members,) of logits (members, n, d), target (members, n) or (members, n, L), weight (members, n)."""
        logits = logits.float()
        if self._surrogate is not None and not self.warming:
            return self.surrogate(logits, target, weight)
        cross_entropy = None
        if self.warming or self.recipe.cross_entropy:
            cross_entropy = self.cross_entropy(logits, target, weight)
        if self.warming or self.recipe.objective == "log_loss":
            return cross_entropy  # type: ignore[return-value]
        source = self._source(logits, target, weight)
        if self.multipliers is not None:
            hard = self._hard_source(logits.detach(), target, weight)
            losses: Tensor = self.multipliers(source, hard, update=self.training)
        else:
            losses = self.metric.loss(source)
        if losses.shape != (self.members,):
            raise ValueError(f"metric: {self.metric} gives shape {tuple(losses.shape[1:])}, a loss needs one number.")
        return losses if cross_entropy is None else losses + self.recipe.cross_entropy * cross_entropy

    def cross_entropy(self, logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        """Class-weighted mean cross-entropy of each member."""
        sums = self.cross_entropy_sums(logits, target, weight)
        total, mass = sum_over_processes(sums, self.group)
        return safe_divide(total, mass)

    def cross_entropy_sums(self, logits: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Weighted sum of the cross-entropies of each member, and the sum of the weights."""
        if self.task == "multilabel":
            mass = weight[..., None] * torch.where(target > 0, self.class_weights[:, 1], self.class_weights[:, 0])
            losses = F.binary_cross_entropy_with_logits(logits, target.to(logits.dtype), reduction="none")
            return (losses * mass).sum(dim=(-1, -2)), mass.sum(dim=(-1, -2))
        mass = weight * self.class_weights[target]
        if self.task == "binary":
            difference = logits[..., 1] - logits[..., 0]
            losses = F.softplus(torch.where(target > 0, -difference, difference))
        else:
            losses = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").reshape(target.shape)
        return (losses * mass).sum(dim=-1), mass.sum(dim=-1)

    @property
    def step(self) -> Step:
        """The step at the current temperatures."""
        return self._fixed_step or Annealed(self.temperature)

    def _source(self, logits: Tensor, target: Tensor, weight: Tensor) -> MatrixSource:
        if self.task == "binary" and self._fixed_step is None and set(self._grid_index) == {None}:
            two = partial(two_class_counts, logits, target, weight, self.temperature)
            return self._cached(lambda grid: two(), remember=self.training)
        p = member_probabilities(logits, self.task)
        return self._cached(partial(soft_counts, p, target, weight, self.task, self.step), remember=self.training)

    def _hard_source(self, logits: Tensor, target: Tensor, weight: Tensor) -> MatrixSource:
        p = member_probabilities(logits, self.task)
        return self._cached(lambda grid: hard_counts(p, target, weight, self.task), remember=False)

    def _cached(self, count: Callable[[Grid], Tensor], *, remember: bool) -> MatrixSource:
        made: dict[Grid, ConfusionMatrix] = {}

        def source(grid: Grid) -> ConfusionMatrix:
            if grid not in made:
                (counts,) = sum_over_processes([count(grid)], self.group)
                matrix = as_matrix(counts, self.task, grid, self.labels)
                if remember and self.memories is not None:
                    matrix = self.memories[self._grid_index[grid]](matrix)
                made[grid] = matrix
            return made[grid]

        return source

    def surrogate(self, logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        """The surrogate F-beta losses (their mean, once a member)."""
        # Members (times labels) take the place of labels, which the surrogate treats one by one; it returns their mean.
        scores = logits if self.task == "multilabel" else (logits[..., 1] - logits[..., 0])[..., None]
        if self.task == "binary" and getattr(self.metric, "label", None) == self.labels[0]:
            scores, target = -scores, 1 - target  # the metric's positives are the first class
        members, n, labels = scores.shape
        as_labels = scores.transpose(0, 1).reshape(n, members * labels)
        truth = target.reshape(scores.shape).transpose(0, 1).reshape(n, members * labels)
        weights = weight[..., None].expand_as(scores).transpose(0, 1).reshape(n, members * labels)
        value: Tensor = self._surrogate(as_labels, truth, weights)  # type: ignore[misc]
        return value.expand(members)


def as_matrix(
    counts: Tensor, task: Task, grid: Grid, labels: tuple[Hashable, ...], absent: Absent = "skip"
) -> ConfusionMatrix:
    """Counts as a confusion matrix of the task; a multiclass grid is many labels."""
    kind: Task = "multilabel" if grid is not None and task == "multiclass" else task
    return ConfusionMatrix(counts, kind, labels, absent)


def _surrogate(recipe: Recipe, metric: Metric, task: Task, prior: Tensor) -> SurrogateFBetaLoss | None:
    if recipe.objective != "surrogate_fbeta":
        return None
    if task == "multiclass":
        raise ValueError(
            "recipe: 'surrogate_fbeta' is a loss of positives against negatives and y has more than two classes; use "
            "another recipe, or one label a class."
        )
    beta = metric.beta if isinstance(metric, FBeta) else 1.0
    if not isinstance(beta, int | float):
        raise ValueError(f"recipe: 'surrogate_fbeta' has one beta for all classes, got {metric}; use another recipe.")
    return SurrogateFBetaLoss(beta, task="multilabel", validate=False)
