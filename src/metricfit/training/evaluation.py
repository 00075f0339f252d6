"""How the members do on their validation rows, and what they say about new ones; block by block of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from metricfit.confusion import ConfusionMatrix, Grid, as_confusion_matrix, count_samples, hard_matrix
from metricfit.inputs import Task, safe_divide
from metricfit.metrics import Constrained, Metric
from metricfit.metrics.base import MatrixSource
from metricfit.steps import Annealed, Step
from metricfit.training.objective import MemberObjective
from metricfit.training.rows import TrainingData, strata, take_rows

__all__ = ["Scores", "Validation", "mean_probabilities"]

BLOCK_CELLS = 1 << 22
"""Inputs of a block hold about this many numbers: 16 MB."""

PIECE_CELLS = 1 << 18
"""Inputs and activations of a layer on a CPU: 1 MB, which stay in cache."""


@dataclass(frozen=True)
class Scores:
    """Each member on its validation rows, all of shape (members,).

    Attributes:
        soft: The soft metric at the selection temperature.
        hard: The exact metric of its decisions.
        log_loss: Cross-entropy.
        key: What the selection compares; more is better.
        loss: The loss as trained, at the current temperature.
    """

    soft: Tensor
    hard: Tensor
    log_loss: Tensor
    key: Tensor
    loss: Tensor

    def of(self, part: int) -> Scores:
        """The scores of one part, where they are of several."""
        return Scores(self.soft[part], self.hard[part], self.log_loss[part], self.key[part], self.loss[part])


class Validation:
    """The validation rows of every member, padded to one length with rows of weight 0.

    Weights that were picked on some rows look better on them than they are. The rows are therefore dealt into two
    halves, and ``held_out`` keeps for each half the probabilities at the checkpoint that the *other* half would pick.

    Args:
        data: All rows.
        rows: Validation rows of each member.
        outputs: Columns of the probabilities.
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

    def score(
        self, network: nn.Module, state: Mapping[str, Tensor], objective: MemberObjective, active: Tensor
    ) -> Scores:
        """Evaluate the network with the given weights, and note the held-out probabilities of the active members."""
        sums = [_Sums(objective), _Sums(objective)]
        found = []
        with torch.no_grad(), evaluating(network):
            for index, weights in self._blocks():
                logits = self._logits(network, dict(state), index)
                target = take_rows(self.data.target, index)
                p = member_probabilities(logits, objective.task)
                for half in (0, 1):
                    sums[half].add(logits, target, weights[half])
                found.append(p)
            scores = _stacked([*sums, sums[0].joined(sums[1])]).scores()
            self._note(torch.cat(found, dim=1), scores.key[:2].double().cpu(), active)
            return scores.of(2)

    def _logits(self, network: nn.Module, state: dict[str, Tensor], index: Tensor) -> Tensor:
        features = self.data.features
        rows = _rows_at_once(len(index), features.shape[1], PIECE_CELLS if features.is_cpu else BLOCK_CELLS)
        named = {f"network.{name}": value for name, value in state.items()}
        logits: Tensor = functional_call(_InPieces(network), named, (features, index.split(rows, dim=1)))
        return logits.float()

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

    def _blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        size = _rows_at_once(len(self._index), self.data.features.shape[1], BLOCK_CELLS)
        for start in range(0, self._index.shape[1], size):
            yield self._index[:, start : start + size], self._weights[:, :, start : start + size]


class _InPieces(nn.Module):
    """A network applied to one piece of rows after the other: lending it other weights takes longer than a piece."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, features: Tensor, pieces: Sequence[Tensor]) -> Tensor:
        return torch.cat([self.network(take_rows(features, piece)) for piece in pieces], dim=1)


class _Sums:
    """What the scores are made of, added up over blocks of rows."""

    def __init__(self, objective: MemberObjective) -> None:
        self.objective = objective
        recipe = objective.recipe
        now = objective.loss.batch(torch.empty(0)).step
        self.steps: dict[str, Step] = {
            "soft": Annealed(recipe.selection_temperature) if isinstance(now, Annealed) else now
        }
        self.follows_loss = recipe.selection == "objective" or recipe.annealing == "plateau"
        self.sums: dict[Any, Tensor] = {}

        if self.follows_loss and recipe.objective == "metric":
            self.steps["loss"] = now

    def add(self, logits: Tensor, target: Tensor, weight: Tensor) -> None:
        objective, task = self.objective, self.objective.task
        samples = objective.samples(logits, target, weight)
        for grid in objective.metric.grids():
            for name, step in self.steps.items():
                self._add((name, grid), count_samples(samples, task, step, threshold=0.5, thresholds=grid).double())
            self._add(("hard", grid), hard_matrix(samples, task, thresholds=grid).matrix)
        total, mass = objective.cross_entropy_sums(samples)
        self._add("log_loss", total.double())
        self._add("mass", mass.double())
        if self.follows_loss and objective.recipe.objective == "surrogate_fbeta":
            self._add("surrogate", objective.surrogate(logits, target, weight).double() * mass)

    def _add(self, name: Any, value: Tensor) -> None:
        self.sums[name] = self.sums[name] + value if name in self.sums else value

    def joined(self, other: _Sums) -> _Sums:
        """The sums over both sets of rows."""
        both = _Sums(self.objective)
        both.sums = {name: value + other.sums[name] for name, value in self.sums.items()}
        return both

    def scores(self) -> Scores:
        metric, recipe = self.objective.metric, self.objective.recipe
        soft, hard, now = (partial(self._matrix, kind) for kind in ("soft", "hard", "loss"))
        log_loss = safe_divide(self.sums["log_loss"], self.sums["mass"])
        soft_value, hard_value = metric.evaluate(soft), metric.evaluate(hard)
        if recipe.objective == "log_loss":
            loss = log_loss
        elif recipe.objective == "surrogate_fbeta":
            loss = safe_divide(self.sums["surrogate"], self.sums["mass"]) if self.follows_loss else log_loss
        else:
            loss = metric.loss(now) if self.follows_loss else _distance(metric, soft, soft_value)
            loss = loss + recipe.cross_entropy * log_loss
        key = {
            "soft": lambda: -_distance(metric, soft, soft_value),
            "hard": lambda: -_distance(metric, hard, hard_value),
            "log_loss": lambda: -log_loss,
            "objective": lambda: -loss,
            "last": lambda: torch.zeros_like(loss),
        }[recipe.selection]()
        return Scores(soft_value, hard_value, log_loss, key, loss)

    def _matrix(self, kind: str, grid: Grid) -> ConfusionMatrix:
        return as_confusion_matrix(self.sums[kind, grid], self.objective.task, grid, self.objective.labels, "skip")


def _stacked(parts: Sequence[_Sums]) -> _Sums:
    """Several sums along a new dimension in front of the members: a metric is then asked once for all of them."""
    together = _Sums(parts[0].objective)
    for name in parts[0].sums:
        sweep = isinstance(name, tuple) and name[1] is not None
        together.sums[name] = torch.stack([part.sums[name] for part in parts], dim=1 if sweep else 0)
    return together


def _distance(metric: Metric, source: MatrixSource, value: Tensor) -> Tensor:
    """The metric's loss, from its value where that is enough."""
    return metric.loss(source) if isinstance(metric, Constrained) else metric.distance(value)


def _halves(rows: NDArray[np.intp], target: Tensor, length: int) -> NDArray[np.int8]:
    """0 and 1 in turn within each class, and 2 where there is no row."""
    half = np.full(length, 2, dtype=np.int8)
    order = np.argsort(strata(target[torch.from_numpy(rows).to(target.device)].cpu().numpy()), kind="stable")
    half[order] = np.arange(len(rows)) % 2
    return half


def member_probabilities(logits: Tensor, task: Task) -> Tensor:
    """Softmax, or sigmoid for a multi-label task."""
    if task != "multilabel" and logits.shape[-1] == 2:  # softmax of two takes ten times as long
        return (logits - logits.flip(-1)).sigmoid()
    return logits.sigmoid() if task == "multilabel" else logits.softmax(dim=-1)


class evaluating:  # noqa: N801 - reads as a statement
    """A network in evaluation mode for the length of a ``with`` block."""

    def __init__(self, network: nn.Module) -> None:
        self.network, self.training = network, network.training

    def __enter__(self) -> nn.Module:
        return self.network.eval()

    def __exit__(self, *error: object) -> None:
        self.network.train(self.training)


def mean_probabilities(
    network: nn.Module, features: NDArray[np.float32], task: Task, device: torch.device | None = None
) -> NDArray[np.float64]:
    """The members' probabilities averaged, (n, classes) or (n, labels)."""
    members = int(getattr(network, "members", 1))
    on_cpu = device is None or device.type == "cpu"
    size = _rows_at_once(members, features.shape[1], PIECE_CELLS if on_cpu else BLOCK_CELLS)
    found = []
    with torch.no_grad(), evaluating(network):
        for start in range(0, len(features), size):
            block = torch.from_numpy(features[start : start + size])
            logits = network(block if device is None else block.to(device)).float()
            found.append(member_probabilities(logits, task).double().mean(dim=0).cpu())
    mean = torch.cat(found).numpy()
    return mean if task == "multilabel" else np.asarray(mean / mean.sum(axis=1, keepdims=True))


def _rows_at_once(members: int, features: int, cells: int) -> int:
    return max(256, cells // (members * max(features, 128)))
