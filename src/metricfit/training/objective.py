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
from metricfit.distributed import group_of, sum_over_processes
from metricfit.inputs import Samples, Task, safe_divide
from metricfit.losses.companions import ConfusionMemory, class_weights, cross_entropy_of_sums, cross_entropy_sums
from metricfit.losses.metric_loss import MetricLoss
from metricfit.losses.rivals import SurrogateFBetaLoss
from metricfit.metrics import ClassMetric, Constrained, FBeta, Metric
from metricfit.metrics.base import MatrixSource
from metricfit.steps import Amplifier, Annealed, Sigmoid, Step
from metricfit.steps import get as get_step
from metricfit.training import networks
from metricfit.training.checkpoint import Resumable
from metricfit.training.recipes import Recipe
from metricfit.training.rows import TrainingData, strata, take_rows


class MemberObjective(nn.Module):
    """The loss of every member of an ensemble, as the recipe says; its state goes into checkpoints.

    A network for two classes has two logits: to :class:`metricfit.MetricLoss` that is a problem of two classes. The
    prior, for class weights, are class shares (d,), or (L, 2) shares of negatives and positives. Where several
    processes train together, each gives a part of every batch: their statistics are added up.
    """

    class_weights: Tensor | None

    def __init__(
        self, recipe: Recipe, metric: Metric, task: Task, members: int, *, prior: Tensor, labels: tuple[Hashable, ...]
    ) -> None:
        super().__init__()
        self.recipe, self.members, self.labels, self.warming = recipe, members, labels, False
        self.group = group_of("auto", training=True)
        self.metric = metric.resolve(labels, task)
        self.task: Task = "multilabel" if task == "multilabel" else "multiclass"
        step = get_step(recipe.step)
        if isinstance(step, Amplifier) and task != "multilabel":
            if task == "multiclass":
                fixed = "the amplifier's threshold is fixed at 1/2, which no class of many need reach"
                raise ValueError(f"step: {fixed}; use step='sigmoid', or another recipe than 'anyloss'.")
            step = Sigmoid(step.sharpness)  # the same at the threshold 1/2, which is that of two classes
        self.multipliers = None
        judge, by_number = self.metric, False
        if isinstance(judge, ClassMetric) and judge.label in labels:  # by its number a class has a closed form
            judge, by_number = replace(judge, label=labels.index(judge.label)), True
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
            labels=None if by_number else labels,
            sync=False if self.group is None else self.group,
            validate=False,
            **({"temperature": recipe.temperature} if isinstance(step, Annealed) else {"step": step}),
        )
        weights = None if recipe.balance == "none" else class_weights(prior, recipe.balance)
        self.register_buffer("class_weights", weights, persistent=False)
        # The surrogate is of positives against negatives; the metric names which class is which.
        self._positive = 1 if getattr(self.metric, "label", None) != labels[0] else 0
        self.surrogate_loss = self._surrogate_loss(task, prior) if recipe.objective == "surrogate_fbeta" else None

    @property
    def temperature(self) -> Tensor:
        """T of each member, (members,)."""
        found = self.loss.temperature
        return torch.full((self.members,), self.recipe.temperature) if found is None else found

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
        return cast("Tensor", cast("SurrogateFBetaLoss", self.surrogate_loss)(scores, target, weight))

    def _surrogate_loss(self, task: Task, prior: Tensor) -> SurrogateFBetaLoss:
        if task == "multiclass":
            why = "is a loss of positives against negatives and y has more than two classes"
            raise ValueError(f"recipe: 'surrogate_fbeta' {why}; use another recipe, or one label per class.")
        beta = self.metric.beta if isinstance(self.metric, FBeta) else 1.0
        if not isinstance(beta, int | float):
            told = f"has one beta for all classes, got {self.metric}; use another recipe"
            raise ValueError(f"recipe: 'surrogate_fbeta' {told}.")
        share = prior[:, 1] if task == "multilabel" else prior[self._positive]
        share = share.clamp(1e-6, 1 - 1e-6)  # a label that no row has, or every row, has no odds
        loss = SurrogateFBetaLoss(beta, task=task, members=self.members, positive_share=share, validate=False)
        loss.group = self.group
        return loss


CEILING = 20.0  # of a multiplier, so that a constraint nobody can meet does not drown the objective


class Multipliers(nn.Module):
    """Training under constraints: one multiplier per member and constraint, moved by the exact violation.

    The two-player scheme of Cotter et al. (2019): the network sees differentiable (soft) constraint values, the
    multipliers rise and fall with the hard ones, by projected gradient ascent on a (members, constraints) tensor.
    Violations are taken from a memory of the hard matrix.
    """

    value: Tensor

    def __init__(self, metric: Constrained, members: int, *, rate: float = 0.02) -> None:
        super().__init__()
        if metric.grids() != {None}:
            raise ValueError(f"metric: {metric} needs a sweep of thresholds; constraints are on decisions, not curves.")
        self.metric, self.rate, self.memory = metric, rate, ConfusionMemory(0.9)
        self.register_buffer("value", torch.zeros(members, len(metric.constraints)))

    def loss(self, soft: MatrixSource) -> Tensor:
        """Objective plus multipliers times violations (negative where there is room), one loss per member."""
        objective, multipliers = self.metric.objective, self.value.clone()
        loss = objective.distance(objective.evaluate(soft)) + (multipliers * self._signed(soft)).sum(dim=-1)
        # As multipliers grow the whole is scaled down, or they would raise the learning rate.
        return loss / (1 + multipliers.sum(dim=-1))

    @torch.no_grad()
    def update(self, hard: ConfusionMatrix) -> None:
        """Move the multipliers by the violations of the exact matrices of a batch."""
        exact = self.memory(hard)
        risen = self.value + self.rate * self._signed(lambda _: exact)
        self.value.copy_(risen.clamp(0, CEILING))

    def _signed(self, source: MatrixSource) -> Tensor:
        """By how much each constraint is missed, negative where it holds, (members, constraints)."""
        pairs = [(one.bound - one.metric.evaluate(source), one.operator) for one in self.metric.constraints]
        return torch.stack([room if operator == ">=" else -room for room, operator in pairs], dim=-1)


@dataclass(frozen=True, eq=False)
class _Lagrangian(Constrained):
    """A constrained metric whose loss is that of its multipliers."""

    multipliers: Any = None

    def loss(self, source: MatrixSource) -> Tensor:
        return cast("Tensor", self.multipliers.loss(source))


class Scores(NamedTuple):
    """Each member on its validation rows, all of shape (members,)."""

    soft: Tensor  # the metric at the selection temperature
    hard: Tensor  # the exact metric of the decisions
    log_loss: Tensor
    key: Tensor  # what the selection compares; more is better
    loss: Tensor  # as trained, at the current temperature


class Validation(Resumable):
    """The validation rows of every member, padded to one length with rows of weight 0.

    Weights that were picked on some rows look better on them than they are. The rows are therefore dealt into two
    halves, and ``held_out`` keeps for each half the probabilities at the checkpoint that the *other* half would pick.
    """

    kept = ("held_out", "half_keys")

    def __init__(self, data: TrainingData, rows: Sequence[NDArray[np.intp]], outputs: int) -> None:
        longest = max(len(r) for r in rows)
        padded = np.stack([np.pad(r, (0, longest - len(r))) for r in rows])
        device = data.features.device
        self.data, self.rows, self._index = data, rows, torch.from_numpy(padded).to(device)
        self._half = torch.from_numpy(np.stack([_halves(r, data.target, longest) for r in rows])).to(device)
        self._weights = torch.stack([data.weight[self._index] * (self._half == k) for k in (0, 1)])
        self.held_out = torch.zeros(*padded.shape, outputs)
        self.half_keys = torch.full((2, len(rows)), -torch.inf, dtype=torch.float64)

    def __bool__(self) -> bool:
        """Whether there are any rows."""
        return self._index.shape[1] > 0

    @torch.no_grad()
    def score(self, network: nn.Module, objective: MemberObjective, active: Tensor) -> Scores:
        """Evaluate the network, and note the held-out probabilities of the active members."""
        network.eval()
        features, sums, found = self.data.features, dict[Any, Tensor](), []
        sizes = len(self._index), features.shape[1]
        block = networks.rows_at_once(*sizes, networks.BLOCK_CELLS)
        piece = networks.rows_at_once(*sizes, networks.PIECE_CELLS) if features.is_cpu else block
        for index, weights in zip(self._index.split(block, 1), self._weights.split(block, 2), strict=True):
            pieces = [network(take_rows(features, rows)) for rows in index.split(piece, 1)]
            logits, target = torch.cat(pieces, dim=1).float(), take_rows(self.data.target, index)
            for name, value in _sums(objective, logits, target, weights).items():
                sums[name] = sums[name] + value if name in sums else value
            found.append(networks.member_probabilities(logits, objective.task))
        scores = _scores(objective, sums)
        self._note(torch.cat(found, dim=1), scores.key[:2].double().cpu(), active)
        return Scores(*(of_halves_and_all[2] for of_halves_and_all in scores))

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


def _sums(objective: MemberObjective, logits: Tensor, target: Tensor, weights: Tensor) -> dict[Any, Tensor]:
    """What the scores of the rows of each half are made of: sums, (2, …), which add up over blocks of rows."""
    recipe, now = objective.recipe, objective.loss.batch(target).step
    steps: dict[str, Step] = {"soft": Annealed(recipe.selection_temperature) if isinstance(now, Annealed) else now}
    steps |= {"loss": now} if recipe.objective == "metric" else {}
    halves: list[dict[Any, Tensor]] = []
    for weight in weights:  # rows of the other half have the weight 0
        samples, found = objective.samples(logits, target, weight), dict[Any, Tensor]()
        for grid in objective.metric.grids():
            for name, step in steps.items():
                found[name, grid] = count_samples(samples, step, thresholds=grid)
            found["hard", grid] = hard_matrix(samples, thresholds=grid).matrix
        found["log_loss"], found["mass"] = objective.cross_entropy_sums(samples)
        if recipe.objective == "surrogate_fbeta":
            found["surrogate"] = objective.surrogate(logits, target, weight).double() * found["mass"]
        halves.append({name: value.double() for name, value in found.items()})
    return {name: torch.stack([half[name] for half in halves]) for name in halves[0]}


def _scores(objective: MemberObjective, of_halves: Mapping[Any, Tensor]) -> Scores:
    """The scores of the first half, the second and all rows, (3, members): a metric is asked once for all three."""
    # A matrix of many thresholds has their dimension before the members'.
    after = {name: int(isinstance(name, tuple) and name[1] is not None) for name in of_halves}
    sums = {name: torch.stack([a, b, a + b], dim=after[name]) for name, (a, b) in of_halves.items()}

    def matrix(kind: str, grid: Grid) -> ConfusionMatrix:
        return as_confusion_matrix(sums[kind, grid], objective.task, grid, objective.labels, "skip")

    metric, recipe = objective.metric, objective.recipe
    soft, hard, now = (partial(matrix, kind) for kind in ("soft", "hard", "loss"))
    log_loss = safe_divide(sums["log_loss"], sums["mass"])
    if recipe.objective == "metric":
        loss = metric.loss(now) + recipe.cross_entropy * log_loss
    else:
        loss = safe_divide(sums["surrogate"], sums["mass"]) if "surrogate" in sums else log_loss
    if recipe.selection in ("soft", "hard"):
        key = -metric.loss(soft if recipe.selection == "soft" else hard)
    else:
        key = {"log_loss": -log_loss, "objective": -loss, "last": torch.zeros_like(loss)}[recipe.selection]
    return Scores(metric.evaluate(soft), metric.evaluate(hard), log_loss, key, loss)


def _halves(rows: NDArray[np.intp], target: Tensor, length: int) -> NDArray[np.int8]:
    """0 and 1 in turn within each class, and 2 where there is no row."""
    half = np.full(length, 2, dtype=np.int8)
    order = np.argsort(strata(target[torch.from_numpy(rows).to(target.device)].cpu().numpy()), kind="stable")
    half[order] = np.arange(len(rows)) % 2
    return half
