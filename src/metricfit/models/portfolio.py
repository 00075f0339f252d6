"""What a portfolio is fitted on, what may sit in it, its networks, and fitting one model after another."""

from __future__ import annotations

import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray

from metricfit.inputs import Task
from metricfit.training.checkpoint import CheckpointFile
from metricfit.training.loop import Callback, EpochEnd, Progress, Trainer, TrainingResult, progress_bar
from metricfit.training.networks import MemberLinear, MemberMLP, each_probabilities
from metricfit.training.recipes import Recipe
from metricfit.training.rows import Folds, Table

Array = NDArray[np.float64]


LEAST = 1e-5  # probabilities of 0 count as this: a forest's 0 is no proof


def pooled(each: Array, several: bool) -> Array:
    """The folds' probabilities (folds, n, classes or labels) of the same rows as one: by the mean of their log-odds.

    A rule is chosen on rows that one fold's models have scored each, and decides about all folds' mean. A mean of
    probabilities lies nearer to the middle than they do, so more rows pass a low cut-off and fewer a high one. Log-odds
    are not drawn there: at a recall of 0.9 precision rises by one to two points (benchmarks/decisions/shipped.md).
    """
    if len(each) == 1:
        return np.asarray(each[0])
    p = np.stack([1 - each, each], axis=-1) if several else each
    found = np.exp(np.log(np.where(p > 0, p, LEAST)).mean(axis=0)) * p.any(axis=0)
    found /= found.sum(axis=-1, keepdims=True)
    return np.asarray(found[..., 1] if several else found)


class Model(ABC):
    """A model of the portfolio, with one fit per fold."""

    name: str  # in the leaderboard
    held_out: Sequence[Array] = ()  # probabilities of each fold's validation rows, from fit_models
    stops_early: bool = False  # whether it ends in time with what it has; others raise a TimeoutError
    seconds: float = 0.0  # how long it was fitted
    complete: bool = True  # whether every fold was fitted to its end
    several: bool = False  # whether there are several labels

    @abstractmethod
    def fit(self, folds: Folds, until: float, progress: Progress) -> list[Array]:
        """Fit every fold, or go on from a checkpoint, at most until a ``time.monotonic()``; held-out probabilities."""

    @abstractmethod
    def each_fold(self, table: Table) -> Array:
        """Every fold's probabilities, (folds, n, classes) or (folds, n, labels)."""

    def predict(self, table: Table) -> Array:
        """Probabilities (n, classes) or (n, labels), of all folds together."""
        return pooled(self.each_fold(table), self.several)

    @abstractmethod
    def described(self) -> dict[str, Any]:
        """What a model folder notes of it, as plain values; a ValueError if it cannot be saved."""

    @abstractmethod
    def to_bytes(self) -> bytes:
        """Its fits as a file that holds no code."""

    @classmethod
    @abstractmethod
    def restored(cls, name: str, described: dict[str, Any], content: bytes, task: Task, recipe: Recipe) -> Model:
        """The model again, from :meth:`described` and :meth:`to_bytes`; whatever is not allowed is a ValueError."""


@dataclass(eq=False)
class NetworkModel(Model):
    """Networks, one or several per fold; all folds are trained as one network."""

    name: str
    recipe: Recipe  # how they are trained, and how many per fold; complete
    _: KW_ONLY
    device: torch.device | str = "cpu"
    checkpoint: CheckpointFile | None = None
    callbacks: Sequence[Callback] = ()
    plain: bool = False  # whether it trains on the sample weights alone, without class weights
    trainer: Callable[..., Trainer] = Trainer
    result: TrainingResult = field(init=False)  # what training gave
    task: Task = field(init=False)
    stops_early = True

    def fit(self, folds: Folds, until: float, progress: Progress) -> list[Array]:
        """Train the networks of all folds together."""
        folds = folds.of_counts(plain=self.plain) if folds.metric.needs_rows else folds
        trainer = self.trainer(folds, self.recipe, device=self.device, plain=self.plain)

        def epoch_ended(event: EpochEnd) -> None:
            value = event.record.hard_metric
            progress(event.record.epoch, event.epochs, "" if value != value else f"{value:.3f}")

        self.result = trainer.run([epoch_ended, *self.callbacks], self.name, self.checkpoint, until)
        self.task, self.several, self.complete = folds.task, folds.task == "multilabel", not self.result.interrupted
        self.seconds = sum(record.seconds for record in self.result.history)
        found, members = self.result.validation, self.recipe.members
        return [np.mean(found[k : k + members], axis=0) for k in range(0, len(found), members)]

    def each_fold(self, table: Table) -> Array:
        """The mean of the networks of each fold."""
        each = each_probabilities(self.result.network, table.dense, self.task)
        return np.asarray(each.reshape(-1, self.recipe.members, *each.shape[1:]).mean(axis=1))

    def described(self) -> dict[str, Any]:
        """The shape of the networks."""
        network = self.result.network
        if not isinstance(network, MemberMLP):
            why = "only the built-in networks 'mlp' and 'linear' can be saved, because loading must not run code"
            raise ValueError(f"network: {why}; save network_.state_dict() with safetensors yourself.")
        sizes = [layer.weight.shape for layer in network.layers if isinstance(layer, MemberLinear)]
        hidden = [int(size[2]) for size in sizes[:-1]]
        ends = {"inputs": int(sizes[0][1]), "outputs": int(sizes[-1][2])}
        of_fold = {"members": network.members, "members_per_fold": self.recipe.members}
        return {"kind": "networks", **of_fold, **ends, "hidden_sizes": hidden}

    def to_bytes(self) -> bytes:
        """The weights, by safetensors."""
        weights = {name: w.detach().cpu().contiguous() for name, w in self.result.network.state_dict().items()}
        return bytes(safetensors.torch.save(weights, {"format": "pt"}))

    @classmethod
    def restored(cls, name: str, described: dict[str, Any], content: bytes, task: Task, recipe: Recipe) -> NetworkModel:
        """The networks with their weights; how they were trained is not kept here."""
        weights = safetensors.torch.load(content)
        members, inputs, outputs = described["members"], described["inputs"], described["outputs"]
        # Sizes are compared with the weights before anything of that size is made.
        sizes = [inputs, *described["hidden_sizes"], outputs]
        numbers = sorted(int(key.split(".")[1]) for key in weights if key.endswith(".weight"))
        layers = [tuple(weights[f"layers.{number}.weight"].shape) for number in numbers]
        if layers != [(members, *pair) for pair in pairwise(sizes)] or min(sizes) < 1:
            raise ValueError(f"{name}: weights of other shapes than the networks that are described")
        if not all(w.dtype == torch.float32 and w.isfinite().all() for w in weights.values()):
            raise ValueError(f"{name}: weights that are not finite numbers in float32")
        generator = torch.Generator().manual_seed(0)
        network = MemberMLP(members, inputs, outputs, sizes[1:-1], recipe.dropout, generator=generator)
        network.load_state_dict(weights)
        model = cls(name, recipe)
        model.result = TrainingResult(network.eval(), [], [], [])
        model.task, model.several = task, task == "multilabel"
        return model


def fit_models(models: Sequence[Model], folds: Folds, time_limit: float | None, *, show: bool) -> list[Model]:
    """Fit one model after another; those that were fitted when the time, in seconds, was over, or at Ctrl-C.

    The first model is fitted whatever the limit, so that there is one.
    """
    fitted: list[Model] = []
    end = math.inf if time_limit is None else time.monotonic() + time_limit
    for place, model in enumerate(models):
        now = time.monotonic()
        if fitted and now >= end:
            break
        until = end if fitted else math.inf
        if model.stops_early:  # what is left is shared among the networks to come; trees are quick and take their time
            until = now + max(0.0, end - now) / sum(other.stops_early for other in models[place:])
        try:
            with progress_bar(show, model.name) as progress:
                model.held_out = model.fit(folds, until, progress)
        except TimeoutError:
            break
        except KeyboardInterrupt:
            if not fitted:
                raise
            told = f"while {model.name} was fitted; the {len(fitted)} models before it are kept"
            warnings.warn(f"training was interrupted {told}.", RuntimeWarning, stacklevel=3)
            break
        fitted.append(model)
        if not model.complete:
            break
    return fitted
