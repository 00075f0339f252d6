"""The networks of a portfolio: all folds trained as one network, on the metric or with cross-entropy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import safetensors.torch
import torch

from metricfit.inputs import Task
from metricfit.models.base import Array, Deadline, Folds, Model, Table
from metricfit.training.checkpoint import CheckpointFile
from metricfit.training.loop import Callback, EpochEnd, Problem, Progress, TrainingResult, train
from metricfit.training.networks import MemberLinear, MemberMLP, mean_probabilities
from metricfit.training.recipes import Recipe
from metricfit.training.rows import TrainingData

__all__ = ["NetworkModel"]


class NetworkModel(Model):
    """Networks, one or several per fold.

    Args:
        name: What to call it.
        recipe: How they are trained; complete.
        members: Networks per fold, started from different weights.
        device: Where to train.
        checkpoint: Where to save the state of training, and resume.
        callbacks: Called after every epoch.
        plain: Whether to train on the sample weights alone, without class weights.

    Attributes:
        result: What training gave.
    """

    result: TrainingResult
    task: Task
    stops_early = True

    def __init__(
        self,
        name: str,
        recipe: Recipe,
        *,
        members: int = 1,
        device: torch.device | str = "cpu",
        checkpoint: CheckpointFile | None = None,
        callbacks: Sequence[Callback] = (),
        plain: bool = False,
    ) -> None:
        self.name, self.recipe, self.members, self.device = name, recipe, members, torch.device(device)
        self.checkpoint, self.callbacks, self.plain = checkpoint, callbacks, plain

    def fit(self, folds: Folds, deadline: Deadline, progress: Progress) -> list[Array]:
        """Train the networks of all folds together; the mean of those that share a fold."""
        arrays = (folds.table.dense, folds.codes, folds.plain_weight if self.plain else folds.weight)
        splits = [split for split in folds.splits for _ in range(self.members)]
        data = TrainingData(*(torch.from_numpy(a) for a in arrays))
        problem = Problem(data, splits, folds.metric, folds.task, folds.labels)

        def epoch_ended(event: EpochEnd) -> bool:
            value = event.record.hard_metric
            progress(event.record.epoch, event.epochs, "" if value != value else f"{value:.3f}")
            return not deadline.left

        result = train(
            problem,
            self.recipe,
            seed=folds.seed,
            device=self.device,
            checkpoint=self.checkpoint,
            callbacks=[epoch_ended, *self.callbacks],
            run=self.name,
        )
        self.keep(result, folds.task)
        found = result.validation
        return [np.mean(found[k : k + self.members], axis=0) for k in range(0, len(found), self.members)]

    def keep(self, result: TrainingResult, task: Task) -> None:
        """Take trained networks, wherever they were trained."""
        self.result, self.task = result, task
        self.seconds, self.complete = result.seconds, not result.interrupted

    def predict(self, table: Table) -> Array:
        """The mean of all networks."""
        return mean_probabilities(self.result.network, table.dense, self.task, self.device)

    def described(self) -> dict[str, Any]:
        """The shape of the networks."""
        network = self.result.network
        if not isinstance(network, MemberMLP):
            raise ValueError(
                "network: only the built-in networks 'mlp' and 'linear' can be saved as a model folder, because "
                "loading must not run code; save network_.state_dict() with safetensors yourself."
            )
        sizes = [layer.weight.shape for layer in network.layers if isinstance(layer, MemberLinear)]
        return {
            "kind": "networks",
            "members": network.members,
            "inputs": int(sizes[0][1]),
            "outputs": int(sizes[-1][2]),
            "hidden_sizes": [int(size[2]) for size in sizes[:-1]],
        }

    def to_bytes(self) -> bytes:
        """The weights, by safetensors."""
        weights = {name: w.detach().cpu().contiguous() for name, w in self.result.network.state_dict().items()}
        return bytes(safetensors.torch.save(weights, {"format": "pt"}))

    @classmethod
    def restored(cls, name: str, described: dict[str, Any], content: bytes, task: Task, recipe: Recipe) -> NetworkModel:
        """The networks with their weights; how they were trained is not kept here."""
        weights = safetensors.torch.load(content)
        layers = [w.shape for key, w in sorted(weights.items(), key=_layer) if key.endswith(".weight")]
        # Sizes are compared with the weights before anything of that size is made.
        sizes = [described["inputs"], *described["hidden_sizes"], described["outputs"]]
        expected = [(described["members"], *pair) for pair in pairwise(sizes)]
        if [tuple(shape) for shape in layers] != expected or min(sizes) < 1:
            raise ValueError(f"{name}: weights of other shapes than the networks that are described")
        if not all(w.dtype == torch.float32 and w.isfinite().all() for w in weights.values()):
            raise ValueError(f"{name}: weights that are not finite numbers in float32")
        members, inputs, outputs = described["members"], described["inputs"], described["outputs"]
        generator = torch.Generator().manual_seed(0)
        network = MemberMLP(members, inputs, outputs, sizes[1:-1], recipe.dropout, generator=generator)
        network.load_state_dict(weights)
        model = cls(name, recipe)
        model.keep(TrainingResult(network.eval(), [], [], [], 0.0, False), task)
        return model


def _layer(item: tuple[str, torch.Tensor]) -> list[int]:
    return [int(part) for part in item[0].split(".") if part.isdecimal()]
