"""The training loop: all members together, epoch by epoch, resumable at every epoch."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from metricfit.distributed import group_of
from metricfit.inputs import Task
from metricfit.metrics import Metric
from metricfit.training.checkpoint import CheckpointFile
from metricfit.training.evaluation import Scores, Validation
from metricfit.training.history import Callback, EpochEnd, EpochRecord, History
from metricfit.training.networks import MemberMLP, StackedNetworks, build_network, lent_seed
from metricfit.training.objective import MemberObjective
from metricfit.training.optimiser import (
    BestMembers,
    Stopping,
    WeightAverage,
    clip_gradients,
    learning_rate_at,
    make_optimiser,
    take_step,
)
from metricfit.training.processes import agreed, average_gradients, is_first_process, share_of_batch
from metricfit.training.recipes import Recipe
from metricfit.training.rows import BatchOrder, Split, TrainingData, strata, take_rows

__all__ = ["Problem", "TrainingResult", "as_device", "draw_seed", "train"]


@dataclass(frozen=True)
class Problem:
    """What is learned.

    Attributes:
        data: Rows.
        splits: Training and validation rows of each member.
        metric: The metric.
        task: ``"binary"``, ``"multiclass"`` or ``"multilabel"``.
        labels: Class (or label) names.
    """

    data: TrainingData
    splits: Sequence[Split]
    metric: Metric
    task: Task
    labels: tuple[Hashable, ...]

    @property
    def outputs(self) -> int:
        """Logits of the network."""
        return len(self.labels)

    def prior(self) -> Tensor:
        """Weighted class shares (d,), or (L, 2) of negatives and positives."""
        weight, target = self.data.weight.double().cpu(), self.data.target.cpu()
        if self.task == "multilabel":
            positive = (target * weight[:, None]).sum(dim=0) / weight.sum()
            return torch.stack([1 - positive, positive], dim=-1).float()
        counts = torch.zeros(self.outputs, dtype=torch.float64).index_add(0, target, weight)
        return (counts / counts.sum()).float()


@dataclass(frozen=True)
class TrainingResult:
    """A trained ensemble.

    Attributes:
        network: With the best weights of each member, in evaluation mode.
        history: Every epoch.
        best_epoch: The epoch each member's weights are from.
        validation: Each member's probabilities of its validation rows, from weights picked without them.
        seconds: Training time, over all starts of a resumed run.
        interrupted: Whether Ctrl-C ended it.
    """

    network: nn.Module
    history: History
    best_epoch: list[int]
    validation: list[NDArray[np.float64]]
    seconds: float
    interrupted: bool


def train(
    problem: Problem,
    recipe: Recipe,
    *,
    seed: int,
    device: torch.device | str = "cpu",
    checkpoint: CheckpointFile | None = None,
    callbacks: Sequence[Callback] = (),
    run: str = "network",
) -> TrainingResult:
    """Train an ensemble.

    Args:
        problem: Data, metric, members.
        recipe: How; complete.
        seed: Of starting weights, batches and dropout; no global seed is changed.
        device: Where to train.
        checkpoint: Where to save and resume.
        callbacks: Called after every epoch.
        run: The run's name, for callbacks.
    """
    trainer = Trainer(problem, recipe, seed, torch.device(device))
    trainer.resume(checkpoint)
    interrupted = False
    try:
        while not trainer.finished:
            record = trainer.epoch()
            event = EpochEnd(run, record, trainer.epochs)
            answers = [callback(event) for callback in callbacks]
            trainer.stopped = bool(agreed(torch.tensor(any(answers)), trainer.group))
            if checkpoint is not None and is_first_process():
                checkpoint.save(trainer.state_dict(), last=trainer.finished)
    except KeyboardInterrupt:
        interrupted = True
        warnings.warn(
            f"training was interrupted after {len(trainer.history.records)} of up to {trainer.epochs} epochs; the best "
            "weights so far are kept.",
            RuntimeWarning,
            stacklevel=3,
        )
    return trainer.result(interrupted)


class Trainer:
    def __init__(self, problem: Problem, recipe: Recipe, seed: int, device: torch.device) -> None:
        self.problem, self.recipe, self.seed, self.device = problem, recipe, seed, device
        self.data = problem.data.to(device)
        members = len(problem.splits)
        self.network: MemberMLP | StackedNetworks = build_network(
            recipe.network,
            members=members,
            in_features=self.data.features.shape[1],
            out_features=problem.outputs,
            hidden_sizes=recipe.hidden_sizes,
            dropout=recipe.dropout,
            seed=_epoch_seed(seed, 0),
        ).to(device)
        target = problem.data.target.cpu().numpy()
        stratum = strata(target) if recipe.stratified else None
        self.batches = BatchOrder([s.train for s in problem.splits], recipe.batch_size, stratum=stratum)
        self.validation = Validation(self.data, [s.validation for s in problem.splits], problem.outputs)
        self.epochs = recipe.epochs(self.batches.steps)
        self.optimiser = make_optimiser(self.network, recipe)
        self.parameters = list(self.network.parameters())
        live = {**dict(self.network.named_parameters()), **dict(self.network.named_buffers())}
        self.average = WeightAverage(live, recipe.averaging * self.batches.steps)
        self.best = BestMembers(members, self.average.averaged)
        self.objective = MemberObjective(
            recipe, problem.metric, problem.task, members, prior=problem.prior(), labels=problem.labels
        ).to(device)
        self.stopping = Stopping(recipe, self.objective)
        self.history = History()
        self.stopped = False
        lower = recipe.mixed_precision and device.type == "cuda" and torch.cuda.is_bf16_supported()
        self.precision = torch.bfloat16 if lower else torch.float32
        self.group = group_of("auto", training=True)
        self.part = share_of_batch(self.batches.batch_size, self.group)
        if self.group is not None:
            self.objective.share_with(self.group)
            if isinstance(self.network, MemberMLP):
                self.network.use_part(self.part, self.batches.batch_size)

    @property
    def finished(self) -> bool:
        done = len(self.history.records) >= self.epochs
        return done or self.stopped or not bool(self.stopping.active.any())

    def epoch(self) -> EpochRecord:
        """Train one epoch, validate if it is time, and note it."""
        started = time.perf_counter()
        number = len(self.history.records) + 1
        self.objective.warming = number <= self.recipe.warm_start_epochs
        loss, rate = self._steps(number)
        scores = self._validate(number)
        self.stopping.epoch_ended()
        nothing = math.nan
        record = EpochRecord(
            epoch=number,
            loss=loss,
            soft_metric=float(scores.soft.mean()) if scores else nothing,
            hard_metric=float(scores.hard.mean()) if scores else nothing,
            log_loss=float(scores.log_loss.mean()) if scores else nothing,
            temperature=float(self.objective.temperature.mean()),
            learning_rate=rate,
            active=int(self.stopping.active.sum()),
            seconds=time.perf_counter() - started,
        )
        self.history.append(record)
        return record

    def _steps(self, number: int) -> tuple[float, float]:
        seed = _epoch_seed(self.seed, number)
        order = self.batches.whole_epoch(torch.Generator().manual_seed(seed))
        taken, steps = self.batches.steps * (number - 1), self.batches.steps
        rates = [learning_rate_at(taken + step, self.epochs * steps, self.recipe) for step in range(steps)]
        self.network.train()
        with self._randomness(seed):
            total = self._step_by_step(order, taken, rates)
        return total / steps, rates[-1]

    def _step_by_step(self, order: Tensor, taken: int, rates: list[float]) -> float:
        total = torch.zeros((), device=self.device)
        for step, (index, rate) in enumerate(zip(order.unbind(dim=1), rates, strict=True), start=taken):
            total += self._step(index[:, self.part].to(self.device), rate)
            self.average.update(step)
        return float(total)

    def _step(self, index: Tensor, rate: float) -> Tensor:
        target, weight = take_rows(self.data.target, index), take_rows(self.data.weight, index)
        losses = self._gradients(index, target, weight)
        average_gradients(self.parameters, self.group)
        if self.recipe.gradient_clip:
            clip_gradients(self.network.named_parameters(), self.objective.members, self.recipe.gradient_clip)
        take_step(self.optimiser, rate)
        return losses[self.stopping.active.to(losses.device)].mean()

    def _gradients(self, index: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        features = take_rows(self.data.features, index)
        with torch.autocast(self.device.type, self.precision, enabled=self.precision != torch.float32):
            logits = self.network(features)
        losses: Tensor = self.objective(logits, target, weight)
        for parameter in self.parameters:  # zero_grad's bookkeeping takes longer
            parameter.grad = None
        losses.sum().backward()
        return losses.detach()

    def _validate(self, number: int) -> Scores | None:
        state = self.average.averaged
        every = 1 if self.recipe.patience else max(1, self.epochs // self.recipe.checkpoints)
        last = number == self.epochs
        if not self.validation:
            self.best.update(torch.zeros(self.objective.members), number, state, self.stopping.active)
            return None
        if number % every and not last:
            return None
        scores = self.validation.score(self.network, state, self.objective, self.stopping.active)
        scores = replace(scores, key=agreed(scores.key, self.group), loss=agreed(scores.loss, self.group))
        self.best.update(scores.key, number, state, self.stopping.active)
        self.stopping.validated(scores.loss, scores.key)
        return scores

    def _randomness(self, seed: int) -> AbstractContextManager[Any]:
        if isinstance(self.network, MemberMLP):
            self.network.use_generator(torch.Generator(self.device).manual_seed(seed))
            return nullcontext()
        # Foreign modules draw for their part of the batch alone: not twice the same in two processes.
        return lent_seed(seed + self.part.start, self.device)

    def result(self, interrupted: bool) -> TrainingResult:
        """The network with the best weights of each member."""
        if not bool((self.best.key > -math.inf).all()):
            self._keep_what_there_is(interrupted)
        with torch.no_grad():
            for name, live in self.average.live.items():
                live.copy_(self.best.state[name])
        if isinstance(self.network, MemberMLP):
            self.network.use_generator(None)
        network = self.network.eval()
        for parameter in network.parameters():
            parameter.grad = None
        validation = self.validation.probabilities()
        seconds = sum(record.seconds for record in self.history.records)
        return TrainingResult(network, self.history, self.best.epoch.tolist(), validation, seconds, interrupted)

    def _keep_what_there_is(self, interrupted: bool) -> None:
        """Members never validated: interrupted too early, or diverged from the start."""
        state = self.average.averaged
        finite = all(bool(value.isfinite().all()) for value in state.values())
        if not finite:
            raise ValueError(
                f"learning_rate: training diverged, the weights are not finite; lower it (now "
                f"{self.recipe.learning_rate:g}) or set gradient_clip."
            )
        missing = self.best.key == -math.inf
        if self.validation:
            self.validation.score(self.network, state, self.objective, missing)
        self.best.update(torch.zeros(len(missing)), len(self.history.records), state, missing)

    def resume(self, checkpoint: CheckpointFile | None) -> None:
        """Go on where the checkpoint stopped, if there is one."""
        state = None if checkpoint is None else checkpoint.load()
        if state is None:
            return
        with torch.no_grad():
            for name, live in self.average.live.items():
                live.copy_(state["live"][name])
                self.average.averaged[name].copy_(state["averaged"][name])
        self.optimiser.load_state_dict(state["optimiser"])
        self.objective.load_state_dict(state["objective"])
        self.best.load_state_dict(state["best"])
        self.stopping.load_state_dict(state["stopping"])
        self.validation.load_state_dict(state["validation"])
        self.history = History.from_state(state["history"])
        self.stopped = state["stopped"]

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next epoch depends on; random numbers are drawn from the seed and the epoch alone."""
        return {
            "seed": self.seed,
            "live": {name: value.detach() for name, value in self.average.live.items()},
            "averaged": {name: value.detach() for name, value in self.average.averaged.items()},
            "optimiser": self.optimiser.state_dict(),
            "objective": self.objective.state_dict(),
            "best": self.best.state_dict(),
            "stopping": self.stopping.state_dict(),
            "validation": self.validation.state_dict(),
            "history": self.history.state(),
            "stopped": self.stopped,
        }


def _epoch_seed(seed: int, epoch: int) -> int:
    return int(np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0] >> 1)


def as_device(device: str | torch.device) -> torch.device:
    """The device, and for ``"auto"`` the GPU of this process, or the CPU."""
    if device != "auto":
        return torch.device(device)
    if not torch.cuda.is_available():
        return torch.device("cpu")
    # torchrun gives each process of a machine a number: one GPU each.
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))


def draw_seed(random_state: Any) -> tuple[int, bool]:
    """A seed, and whether it follows from ``random_state`` alone; global generators are left alone."""
    if random_state is None:
        return int(np.random.default_rng().integers(2**31)), False
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1)), False
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31)), False
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool) and 0 <= random_state < 2**32:
        return int(random_state), True
    raise ValueError(f"random_state: expected None, a seed from 0 to 2**32 - 1 or a generator, got {random_state!r}.")
