"""What all members minimise, each on its own batch, also under constraints; and how they do on validation rows."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from metricfit.confusion import ConfusionMatrix, Grid, as_confusion_matrix, count_samples, hard_matrix
from metricfit.distributed import sum_over_processes
from metricfit.inputs import Samples, Task, safe_divide
from metricfit.losses.companions import ConfusionMemory, class_weights, cross_entropy_of_sums, cross_entropy_sums
from metricfit.losses.metric_loss import MetricLoss
from metricfit.losses.rivals import SurrogateFBetaLoss
from metricfit.metrics import ClassMetric, Constrained, FBeta, Metric
from metricfit.metrics.base import MatrixSource
from metricfit.steps import Amplifier, Annealed, Sigmoid, Step
from metricfit.steps import get as get_step
from metricfit.training import networks
from metricfit.training.recipes import Recipe
from metricfit.training.rows import TrainingData, strata, take_rows

__all__ = ["MemberObjective", "Multipliers", "Scores", "Validation"]


class MemberObjective(nn.Module):
    """The loss of every member of an ensemble, as the recipe says; its state goes into checkpoints.

    A network for two classes has two logits: to :class:`metricfit.MetricLoss` that is a problem of two classes. The
    prior, for class weights, are class shares (d,), or (L, 2) shares of negatives and positives.
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
        self.multipliers = None
        judge, names = _with_numbers(self.metric, labels)
        if recipe.objective == "metric" and isinstance(self.metric, Constrained):
            self.multipliers = Multipliers(self.metric, members)
            judge = _Lagrangian(self.metric.objective, self.metric.constraints, multipliers=self.multipliers)
        balanced = bool(recipe.cross_entropy) and recipe.balance != "none"
        remembers = recipe.objective == "metric" and self.multipliers is None
        self.loss = MetricLoss(
            judge,
            task=self.task,
            cross_entropy=recipe.cross_entropy,
            balance=recipe.balance if balanced else "none",
            prior=(prior[:, 1] if self.task == "multilabel" else prior) if balanced else None,
            # Under constraints the soft matrix gets no memory: multipliers that chase a lagging value swing, which
            # cost more precision at a given recall than the memory gained.
            memory=recipe.memory if remembers else 0.0,
            members=members,
            labels=names,
            sync=False,
            validate=False,
            **({"temperature": recipe.temperature} if isinstance(step, Annealed) else {"step": step}),
        )
        weights = None if recipe.balance == "none" else class_weights(prior, recipe.balance)
        self.register_buffer("class_weights", weights, persistent=False)
        # The surrogate is of positives against negatives; the metric names which class is which.
        self._positive = 1 if getattr(self.metric, "label", None) != labels[0] else 0
        share = prior[:, 1] if task == "multilabel" else prior[self._positive]
        self.surrogate_loss = _surrogate(recipe, self.metric, task, members, share)

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
                hard = hard_matrix(self.samples(logits.detach(), target, weight), labels=self.labels)
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
        return cross_entropy_sums(samples, self.recipe.balance, self.class_weights)

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
    Violations are taken from a memory of the hard matrix. Multipliers do not rise above the ceiling, so that a
    constraint nobody can meet does not drown the objective.
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


def _surrogate(
    recipe: Recipe, metric: Metric, task: Task, members: int, positive_share: Tensor
) -> SurrogateFBetaLoss | None:
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
    share = positive_share.clamp(1e-6, 1 - 1e-6)  # a label that no row has, or every row, has no odds
    return SurrogateFBetaLoss(beta, task=task, members=members, positive_share=share, validate=False)


class Scores(NamedTuple):
    """Each member on its validation rows, all of shape (members,)."""

    soft: Tensor  # the metric at the selection temperature
    hard: Tensor  # the exact metric of the decisions
    log_loss: Tensor
    key: Tensor  # what the selection compares; more is better
    loss: Tensor  # as trained, at the current temperature


class Validation:
    """The validation rows of every member, padded to one length with rows of weight 0.

    Weights that were picked on some rows look better on them than they are. The rows are therefore dealt into two
    halves, and ``held_out`` keeps for each half the probabilities at the checkpoint that the *other* half would pick.
    """

    def __init__(self, data: TrainingData, rows: Sequence[NDArray[np.intp]], outputs: int) -> None:
        longest = max(len(r) for r in rows)
        padded = np.stack([np.pad(r, (0, longest - len(r))) for r in rows])
        device = data.features.device
        self.data, self.rows = data, rows
        self._index = torch.from_numpy(padded).to(device)
        half = torch.from_numpy(np.stack([_halves(r, data.target, longest) for r in rows])).to(device)
        weight = data.weight[self._index]
        self._weights = torch.stack([weight * (half == 0), weight * (half == 1)])
        self._half = half
        self.held_out = torch.zeros(*padded.shape, outputs)
        self.half_keys = torch.full((2, len(rows)), -torch.inf, dtype=torch.float64)

    def __bool__(self) -> bool:
        """Whether there are any rows."""
        return self._index.shape[1] > 0

    def score(self, network: nn.Module, objective: MemberObjective, active: Tensor) -> Scores:
        """Evaluate the network, and note the held-out probabilities of the active members."""
        sums, found = _Sums(objective), []
        size = networks.rows_at_once(len(self._index), self.data.features.shape[1], networks.BLOCK_CELLS)
        with networks.evaluating(network):
            for start in range(0, self._index.shape[1], size):
                index = self._index[:, start : start + size]
                logits, target = self._logits(network, index), take_rows(self.data.target, index)
                for half, weight in enumerate(self._weights[:, :, start : start + size]):
                    sums.add(half, logits, target, weight)
                found.append(networks.member_probabilities(logits, objective.task))
            scores = sums.scores()
            self._note(torch.cat(found, dim=1), scores.key[:2].double().cpu(), active)
        return Scores(*(of_halves_and_all[2] for of_halves_and_all in scores))

    def _logits(self, network: nn.Module, index: Tensor) -> Tensor:
        features = self.data.features
        cells = networks.PIECE_CELLS if features.is_cpu else networks.BLOCK_CELLS
        pieces = index.split(networks.rows_at_once(len(index), features.shape[1], cells), dim=1)
        return torch.cat([network(take_rows(features, piece)) for piece in pieces], dim=1).float()

    def _note(self, p: Tensor, keys: Tensor, active: Tensor) -> None:
        for half in (0, 1):
            better = (keys[half] >= self.half_keys[half]) & active & keys[half].isfinite()
            self.half_keys[half] = torch.where(better, keys[half], self.half_keys[half])
            taken = better[:, None].to(p.device) & (self._half == 1 - half)
            self.held_out = torch.where(taken[..., None].cpu(), p.cpu(), self.held_out)

    def probabilities(self) -> list[NDArray[np.float64]]:
        """Each member's held-out probabilities of its own validation rows."""
        together = self.held_out.double().numpy()
        return [together[k, : len(rows)] for k, rows in enumerate(self.rows)]

    def state_dict(self) -> dict[str, Tensor]:
        """For a checkpoint."""
        return {"held_out": self.held_out, "half_keys": self.half_keys}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """From a checkpoint."""
        self.held_out, self.half_keys = state["held_out"], state["half_keys"]


class _Sums:
    """What the scores of both halves are made of, added up over blocks of rows."""

    def __init__(self, objective: MemberObjective) -> None:
        self.objective, recipe = objective, objective.recipe
        now = objective.loss.batch(torch.empty(0)).step
        soft: Step = Annealed(recipe.selection_temperature) if isinstance(now, Annealed) else now
        self.steps = {"soft": soft} | ({"loss": now} if recipe.objective == "metric" else {})
        self.sums: dict[Any, list[Tensor]] = {}

    def add(self, half: int, logits: Tensor, target: Tensor, weight: Tensor) -> None:
        """Add a block of rows; those of the other half have the weight 0."""
        objective = self.objective
        samples = objective.samples(logits, target, weight)
        found: dict[Any, Tensor] = {}
        for grid in objective.metric.grids():
            for name, step in self.steps.items():
                found[name, grid] = count_samples(samples, step, thresholds=grid)
            found["hard", grid] = hard_matrix(samples, thresholds=grid).matrix
        found["log_loss"], found["mass"] = objective.cross_entropy_sums(samples)
        if objective.recipe.objective == "surrogate_fbeta":
            found["surrogate"] = objective.surrogate(logits, target, weight).double() * found["mass"]
        for name, value in found.items():
            halves = self.sums.setdefault(name, [torch.zeros_like(value, dtype=torch.float64) for _ in range(2)])
            halves[half] = halves[half] + value.double()

    def scores(self) -> Scores:
        """The scores of the first half, the second and all rows, (3, members): a metric is asked once for all three."""
        sums = {name: torch.stack([a, b, a + b], dim=_leading(name)) for name, (a, b) in self.sums.items()}
        metric, recipe = self.objective.metric, self.objective.recipe
        soft, hard, now = (partial(self._matrix, sums, kind) for kind in ("soft", "hard", "loss"))
        log_loss = safe_divide(sums["log_loss"], sums["mass"])
        soft_value, hard_value = metric.evaluate(soft), metric.evaluate(hard)
        if recipe.objective == "metric":
            loss = metric.loss(now) + recipe.cross_entropy * log_loss
        else:
            loss = safe_divide(sums["surrogate"], sums["mass"]) if "surrogate" in sums else log_loss
        key = {
            "soft": lambda: -_distance(metric, soft, soft_value),
            "hard": lambda: -_distance(metric, hard, hard_value),
            "log_loss": lambda: -log_loss,
            "objective": lambda: -loss,
            "last": lambda: torch.zeros_like(loss),
        }[recipe.selection]()
        return Scores(soft_value, hard_value, log_loss, key, loss)

    def _matrix(self, sums: Mapping[Any, Tensor], kind: str, grid: Grid) -> ConfusionMatrix:
        return as_confusion_matrix(sums[kind, grid], self.objective.task, grid, self.objective.labels, "skip")


def _leading(name: Any) -> int:
    """How many dimensions come before the members': one of the thresholds, where a matrix is of many."""
    return int(isinstance(name, tuple) and name[1] is not None)


def _distance(metric: Metric, source: MatrixSource, value: Tensor) -> Tensor:
    """The metric's loss, from its value where that is enough."""
    return metric.loss(source) if isinstance(metric, Constrained) else metric.distance(value)


def _halves(rows: NDArray[np.intp], target: Tensor, length: int) -> NDArray[np.int8]:
    """0 and 1 in turn within each class, and 2 where there is no row."""
    half = np.full(length, 2, dtype=np.int8)
    order = np.argsort(strata(target[torch.from_numpy(rows).to(target.device)].cpu().numpy()), kind="stable")
    half[order] = np.arange(len(rows)) % 2
    return half
