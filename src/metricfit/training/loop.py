"""The training loop: all members together, epoch by epoch, resumable at every epoch."""

from __future__ import annotations

import contextlib
import math
import os
import time
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rich import progress as bars
from rich.console import Console
from torch import Tensor, nn

from metricfit.annealing import TemperatureAnnealer
from metricfit.distributed import group_of
from metricfit.inputs import Task
from metricfit.metrics import Metric
from metricfit.processes import agreed, average_gradients, is_first_process, share_of_batch
from metricfit.training import networks
from metricfit.training.checkpoint import CheckpointFile
from metricfit.training.objective import MemberObjective, Scores, Validation
from metricfit.training.recipes import Recipe
from metricfit.training.rows import BatchOrder, Split, TrainingData, strata, take_rows

__all__ = ["Callback", "EpochEnd", "EpochRecord", "Problem", "TrainingResult", "as_device", "draw_seed", "train"]


@dataclass(frozen=True)
class Problem:
    """What is learned.

    Attributes:
        data: Rows.
        splits: Training and validation rows of each member.
        metric: The metric.
        task: ``"binary"``, ``"multiclass"`` or ``"multilabel"``.
        labels: Class (or label) names.
        shares: Class shares (d,), where they are not those of the rows at hand.
    """

    data: TrainingData
    splits: Sequence[Split]
    metric: Metric
    task: Task
    labels: tuple[Hashable, ...]
    shares: Tensor | None = None

    def prior(self) -> Tensor:
        """Weighted class shares (d,), or (L, 2) of negatives and positives."""
        if self.shares is not None:
            return self.shares
        weight, target = self.data.weight.double().cpu(), self.data.target.cpu()
        if self.task == "multilabel":
            positive = (target * weight[:, None]).sum(dim=0) / weight.sum()
            return torch.stack([1 - positive, positive], dim=-1).float()
        counts = torch.zeros(len(self.labels), dtype=torch.float64).index_add(0, target, weight)
        return (counts / counts.sum()).float()


class EpochRecord(NamedTuple):
    """One epoch, averaged over the members of the ensemble.

    Attributes:
        epoch: From 1 on.
        loss: Mean training loss.
        soft_metric: The soft metric on the validation rows, at the selection temperature.
        hard_metric: The exact metric on the validation rows.
        log_loss: Cross-entropy on the validation rows, with the recipe's class weights.
        temperature: T of the step.
        learning_rate: At the end of the epoch.
        active: Members still training.
        seconds: Time the epoch took, validation included.
    """

    epoch: int
    loss: float
    soft_metric: float
    hard_metric: float
    log_loss: float
    temperature: float
    learning_rate: float
    active: int
    seconds: float


@dataclass(frozen=True)
class EpochEnd:
    """What a callback gets.

    Attributes:
        run: Which network is trained: ``"network"``, or ``"network_ce"`` with cross-entropy.
        record: The epoch.
        epochs: Epochs there will be at most.
    """

    run: str
    record: EpochRecord
    epochs: int


Callback = Callable[[EpochEnd], bool | None]
"""Called after each epoch; a true result ends the training with the best weights so far."""


def callback_list(callbacks: Any) -> list[Callback]:
    """One callback, several or None as a list.

    >>> len(callback_list(print))
    1
    """
    if callable(callbacks):
        return [callbacks]
    if callbacks is None:
        return []
    found = list(callbacks) if isinstance(callbacks, Iterable) else [callbacks]
    wrong = [each for each in found if not callable(each)]
    if wrong:
        raise TypeError(f"callbacks: expected functions of an EpochEnd, in a list, got {type(wrong[0]).__name__}.")
    return found


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
    history: list[EpochRecord]
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
    return Trainer(problem, recipe, seed, torch.device(device)).run(callbacks, run, checkpoint)


class Trainer:
    """Networks in training, with everything that the next epoch depends on.

    Args:
        problem: Data, metric, members.
        recipe: How; complete.
        seed: Of starting weights, batches and dropout.
        device: Where to train.
    """

    def __init__(self, problem: Problem, recipe: Recipe, seed: int, device: torch.device) -> None:
        self.problem, self.recipe, self.seed, self.device = problem, recipe, seed, device
        self.data = problem.data.to(device)
        members = len(problem.splits)
        self.network = networks.build_network(
            recipe.network,
            members=members,
            in_features=self.data.features.shape[1],
            out_features=len(problem.labels),
            hidden_sizes=recipe.hidden_sizes,
            dropout=recipe.dropout,
            seed=_epoch_seed(seed, 0),
        ).to(device)
        stratum = strata(problem.data.target.cpu().numpy()) if recipe.stratified else None
        self.batches = BatchOrder([s.train for s in problem.splits], recipe.batch_size, stratum=stratum)
        self.validation = Validation(self.data, [s.validation for s in problem.splits], len(problem.labels))
        self.epochs = recipe.epochs(self.batches.steps)
        self.optimiser = networks.make_optimiser(self.network, recipe)
        self.parameters = list(self.network.parameters())
        self.average_over(recipe.averaging * self.batches.steps)
        self.objective = MemberObjective(
            recipe, problem.metric, problem.task, members, prior=problem.prior(), labels=problem.labels
        ).to(device)
        self.stopping = Stopping(recipe, self.objective)
        self.history: list[EpochRecord] = []
        self.stopped = False
        lower = recipe.mixed_precision and device.type == "cuda" and torch.cuda.is_bf16_supported()
        self.precision = torch.bfloat16 if lower else torch.float32
        self.group = group_of("auto", training=True)
        self.part = share_of_batch(self.batches.batch_size, self.group)
        if self.group is not None:
            self.objective.share_with(self.group)
            if isinstance(self.network, networks.MemberMLP):
                self.network.use_part(self.part, self.batches.batch_size)

    def average_over(self, steps: float) -> None:
        """Average the weights over so many steps, from now on."""
        self.average = networks.WeightAverage(self.network, steps)
        self.best = networks.BestMembers(len(self.problem.splits), self.average.averaged)

    def run(
        self, callbacks: Sequence[Callback] = (), name: str = "network", checkpoint: CheckpointFile | None = None
    ) -> TrainingResult:
        """Train to the end, from where the checkpoint stopped if there is one; Ctrl-C keeps the best weights so far."""
        self.resume(checkpoint)
        interrupted = False
        try:
            while not self.finished:
                event = EpochEnd(name, self.epoch(), self.epochs)
                answers = [callback(event) for callback in callbacks]
                self.stopped = bool(agreed(torch.tensor(any(answers)), self.group))
                if checkpoint is not None and is_first_process():
                    checkpoint.save(self.state_dict(), last=self.finished)
        except KeyboardInterrupt:
            interrupted = True
            warnings.warn(
                f"training was interrupted after {len(self.history)} of up to {self.epochs} epochs; the best weights "
                "so far are kept.",
                RuntimeWarning,
                stacklevel=4,
            )
        return self.result(interrupted)

    @property
    def finished(self) -> bool:
        """Whether there is no epoch left to train."""
        return len(self.history) >= self.epochs or self.stopped or not bool(self.stopping.active.any())

    def epoch(self) -> EpochRecord:
        """Train one epoch, validate if it is time, and note it."""
        started = time.perf_counter()
        number = len(self.history) + 1
        self.objective.warming = number <= self.recipe.warm_start_epochs
        loss, rate = self._steps(number)
        scores = self._validate(number)
        self.stopping.epoch_ended()
        values = (scores.soft, scores.hard, scores.log_loss) if scores else (torch.tensor(math.nan),) * 3
        soft, hard, log_loss = (float(value.mean()) for value in values)
        cold, active = float(self.objective.temperature.mean()), int(self.stopping.active.sum())
        seconds = time.perf_counter() - started
        record = EpochRecord(number, loss, soft, hard, log_loss, cold, rate, active, seconds)
        self.history.append(record)
        return record

    def _steps(self, number: int) -> tuple[float, float]:
        """The steps of one epoch: their mean loss, and the last learning rate."""
        seed, steps = _epoch_seed(self.seed, number), self.batches.steps
        order = self.batches.epoch(torch.Generator().manual_seed(seed))
        total, rate = torch.zeros((), device=self.device), 0.0
        self.network.train()
        with self._randomness(seed):
            for step, index in enumerate(order, start=steps * (number - 1)):
                rate = learning_rate_at(step, self.epochs * steps, self.recipe)
                total += self._step(index[:, self.part].to(self.device), rate)
                self.average.update(step)
        return float(total) / steps, rate

    def _step(self, index: Tensor, rate: float) -> Tensor:
        """One update of the weights; the loss before it."""
        features, target, weight = (take_rows(rows, index) for rows in self.data)
        with torch.autocast(self.device.type, self.precision, enabled=self.precision != torch.float32):
            logits = self.network(features)
        losses: Tensor = self.objective(logits, target, weight)
        for parameter in self.parameters:  # zero_grad's bookkeeping takes longer
            parameter.grad = None
        losses.sum().backward()
        average_gradients(self.parameters, self.group)
        if self.recipe.gradient_clip:
            networks.clip_gradients(self.network.named_parameters(), self.objective.members, self.recipe.gradient_clip)
        networks.take_step(self.optimiser, rate)
        return losses.detach()[self.stopping.active.to(losses.device)].mean()

    def _validate(self, number: int) -> Scores | None:
        active, state = self.stopping.active, self.average.averaged
        every = 1 if self.recipe.patience else max(1, self.epochs // self.recipe.checkpoints)
        if not self.validation:
            self.best.update(torch.zeros(self.objective.members), number, state, active)
            return None
        if number % every and number != self.epochs:
            return None
        with self.average.lent():
            scores = self.validation.score(self.network, self.objective, active)
        scores = scores._replace(key=agreed(scores.key, self.group), loss=agreed(scores.loss, self.group))
        self.best.update(scores.key, number, state, active)
        self.stopping.validated(scores.loss, scores.key)
        return scores

    def _randomness(self, seed: int) -> contextlib.AbstractContextManager[Any]:
        if isinstance(self.network, networks.MemberMLP):
            self.network.use_generator(torch.Generator(self.device).manual_seed(seed))
            return contextlib.nullcontext()
        # Foreign modules draw for their part of the batch alone: not twice the same in two processes.
        return networks.lent_seed(seed + self.part.start, self.device)

    def result(self, interrupted: bool = False) -> TrainingResult:
        """The network with the best weights of each member."""
        missing = self.best.key == -math.inf
        if bool(missing.any()):
            self._keep_what_there_is(missing)
        with torch.no_grad():
            for name, live in self.average.live.items():
                live.copy_(self.best.state[name])
        if isinstance(self.network, networks.MemberMLP):
            self.network.use_generator(None)
        network = self.network.eval()
        for parameter in self.parameters:
            parameter.grad = None
        seconds = sum(record.seconds for record in self.history)
        found = self.validation.probabilities()
        return TrainingResult(network, self.history, self.best.epoch.tolist(), found, seconds, interrupted)

    def _keep_what_there_is(self, missing: Tensor) -> None:
        """Members never validated: interrupted too early, or diverged from the start."""
        state = self.average.averaged
        if not all(bool(value.isfinite().all()) for value in state.values()):
            raise ValueError(
                f"learning_rate: training diverged, the weights are not finite; lower it (now "
                f"{self.recipe.learning_rate:g}) or set gradient_clip."
            )
        if self.validation:
            with self.average.lent():
                self.validation.score(self.network, self.objective, missing)
        self.best.update(torch.zeros(len(missing)), len(self.history), state, missing)

    def _parts(self) -> dict[str, Any]:
        """What has a state; random numbers are drawn from the seed and the epoch alone."""
        names = ("average", "optimiser", "objective", "best", "stopping", "validation")
        return {name: getattr(self, name) for name in names}

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next epoch depends on."""
        parts = {name: part.state_dict() for name, part in self._parts().items()}
        return {"seed": self.seed, "history": list(map(list, self.history)), "stopped": self.stopped, **parts}

    def resume(self, checkpoint: CheckpointFile | None) -> None:
        """Go on where the checkpoint stopped, if there is one."""
        state = None if checkpoint is None else checkpoint.load()
        if state is None:
            return
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.history = [EpochRecord(*values) for values in state["history"]]
        self.stopped = state["stopped"]


def learning_rate_at(step: int, steps: int, recipe: Recipe) -> float:
    """The learning rate of a step, counted from 0: a linear rise, then the schedule.

    >>> learning_rate_at(0, 100, Recipe(learning_rate=1.0, warm_up_updates=4).complete())
    0.25
    """
    if step < recipe.warm_up_updates:
        return recipe.learning_rate * (step + 1) / recipe.warm_up_updates
    if recipe.schedule == "constant":
        return recipe.learning_rate
    share = (step - recipe.warm_up_updates) / max(1, steps - recipe.warm_up_updates)
    return recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * share))


class _OneTemperature:
    """One member's entry of the objective's temperatures, for an annealer."""

    def __init__(self, objective: MemberObjective, member: int) -> None:
        self.objective, self.member = objective, member
        self.temperature: Any = objective.recipe.temperature

    def set_temperature(self, temperature: float) -> None:
        self.objective.set_temperature(self.member, temperature)


class Stopping:
    """Annealing and early stopping of each member by itself.

    Args:
        recipe: Patience, annealing, cooling.
        objective: Whose temperatures are lowered.
    """

    def __init__(self, recipe: Recipe, objective: MemberObjective) -> None:
        members = objective.members
        self.recipe = recipe
        self.active = torch.ones(members, dtype=torch.bool)
        self.waited = torch.zeros(members, dtype=torch.long)
        self.best = torch.full((members,), -math.inf, dtype=torch.float64)
        self.annealers: list[TemperatureAnnealer] = []
        if recipe.annealing == "plateau":
            options: dict[str, Any] = {
                "patience": recipe.patience, "min_delta": recipe.min_delta, "max_fruitless": recipe.max_fruitless,
            }  # fmt: skip
        else:
            options = {"mode": "epoch"}
        if recipe.annealing != "none":
            self.annealers = [
                TemperatureAnnealer(_OneTemperature(objective, k), factor=recipe.cooling, **options)
                for k in range(members)
            ]

    def epoch_ended(self) -> None:
        """Cool once per epoch, where the recipe says so."""
        if self.recipe.annealing == "epoch":
            for annealer in self.annealers:
                annealer.step()

    def validated(self, loss: Tensor, key: Tensor) -> None:
        """Take the validation losses, and what the selection compares (more is better); cool or finish members."""
        finite = loss.isfinite().cpu()
        if self.recipe.annealing == "plateau":
            for k, annealer in enumerate(self.annealers):
                if self.active[k]:
                    annealer.step(float(loss[k]))
                    self.active[k] = not annealer.finished
        elif self.recipe.patience:
            key = key.detach().double().cpu()
            better = key > self.best + self.recipe.min_delta
            self.best = torch.where(better, key, self.best)
            self.waited = torch.where(better, torch.zeros_like(self.waited), self.waited + 1)
            self.active &= self.waited < self.recipe.patience
        # What has become NaN stays NaN: such a member keeps what it had.
        self.active &= finite

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        annealers = [annealer.state_dict() for annealer in self.annealers]
        return {"active": self.active, "waited": self.waited, "best": self.best, "annealers": annealers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        self.active, self.waited, self.best = state["active"], state["waited"], state["best"]
        for annealer, saved in zip(self.annealers, state["annealers"], strict=True):
            annealer.load_state_dict(saved)


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


Progress = Callable[[int, int, str], None]
"""Called with how much is done, of how much, and the value so far as text."""


@contextlib.contextmanager
def progress_bar(enabled: bool, label: str, console: Console | None = None) -> Iterator[Progress]:
    """A progress bar on stderr, as a function to call; silent when stderr is not a terminal.

    Args:
        enabled: Whether to show anything at all.
        label: What is being fitted.
        console: Where to write, stderr by default.
    """
    console = console or Console(stderr=True)
    if not enabled or not console.is_terminal:
        yield lambda done, total, value: None
        return
    columns = (
        bars.TextColumn("{task.description}"), bars.BarColumn(), bars.MofNCompleteColumn(), bars.TimeRemainingColumn(),
        bars.TextColumn("{task.fields[value]}"),
    )  # fmt: skip
    with bars.Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(label, total=None, value="")
        yield lambda done, total, value: progress.update(task, total=total, completed=done, value=value)
