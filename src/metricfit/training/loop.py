"""The training loop: all members together, epoch by epoch, resumable at every epoch."""

from __future__ import annotations

import contextlib
import math
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rich import progress as bars
from rich.console import Console
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from torch import Tensor, nn

from metricfit.annealing import TemperatureAnnealer
from metricfit.distributed import agreed, average_gradients, is_first_process, share_of_batch
from metricfit.training import networks
from metricfit.training.checkpoint import CheckpointFile, Resumable
from metricfit.training.objective import MemberObjective, Scores, Validation
from metricfit.training.recipes import Recipe
from metricfit.training.rows import BatchOrder, Folds, TrainingData, strata, take_rows

SMALL_STEP = 1 << 20  # numbers in a batch of all members up to which a second thread only waits


class EpochRecord(NamedTuple):
    """One epoch, averaged over the members of the ensemble."""

    epoch: int  # from 1 on
    loss: float  # mean training loss
    soft_metric: float  # on the validation rows, at the selection temperature
    hard_metric: float  # exact, there
    log_loss: float  # cross-entropy with the recipe's class weights, there
    temperature: float
    learning_rate: float  # at the end of the epoch
    active: int
    seconds: float
    validation_loss: float = math.nan


class EpochEnd(NamedTuple):
    """What a callback gets: the network ("network" or "network_ce"), its epoch, and how many there are at most."""

    run: str
    record: EpochRecord
    epochs: int


Callback = Callable[[EpochEnd], bool | None]
"""Called after each epoch; a true result ends the training with the best weights so far."""


def callback_list(callbacks: Any) -> list[Callback]:
    """One callback, several or None as a list."""
    several = isinstance(callbacks, Iterable) and not callable(callbacks)
    found = [] if callbacks is None else list(callbacks) if several else [callbacks]
    for each in found:
        if not callable(each):
            raise TypeError(f"callbacks: expected functions of an EpochEnd, in a list, got {type(each).__name__}.")
    return found


class TrainingResult(NamedTuple):
    """A trained ensemble."""

    network: nn.Module  # with the best weights of each member, in evaluation mode
    history: list[EpochRecord]
    best_epoch: list[int]  # that each member's weights are from
    validation: list[NDArray[np.float64]]  # of each member's validation rows, from weights picked without them
    interrupted: bool = False


class Trainer:
    """Networks in training, with everything that the next epoch depends on; arguments as of ``NetworkModel``."""

    RESUMED = ("average", "optimiser", "objective", "best", "stopping", "validation")

    def __init__(
        self, folds: Folds, recipe: Recipe, *, device: torch.device | str = "cpu", plain: bool = False
    ) -> None:
        self.recipe, self.seed, self.device = recipe, folds.seed, (device := torch.device(device))
        arrays = (folds.table.dense, folds.codes, folds.plain_weight if plain else folds.weight)
        self.data = TrainingData(*(torch.from_numpy(array).to(device) for array in arrays))
        splits = [split for split in folds.splits for _ in range(recipe.members)]
        sizes = len(splits), self.data.features.shape[1], len(folds.labels)
        self.network = networks.build_network(recipe, *sizes, seed=_epoch_seed(self.seed, 0)).to(device)
        stratum = strata(folds.codes) if recipe.stratified else None
        self.batches = BatchOrder([split.train for split in splits], recipe.batch_size, stratum=stratum)
        self.validation = Validation(self.data, [split.validation for split in splits], len(folds.labels))
        self.epochs = recipe.epochs(self.batches.steps, self.data.features.shape[1])
        self.optimiser = networks.make_optimiser(self.network, recipe)
        self.parameters = list(self.network.parameters())
        prior = self.data.shares(folds.task, len(folds.labels)) if folds.shares is None else folds.shares
        known = (recipe, folds.metric, folds.task, len(splits))
        self.objective = MemberObjective(*known, prior=prior, labels=folds.labels).to(device)
        self.average_over(recipe.averaging * self.batches.steps)
        self.stopping, self.stopped = Stopping(recipe, self.objective), False
        self.history: list[EpochRecord] = []
        lower = recipe.mixed_precision and device.type == "cuda" and torch.cuda.is_bf16_supported()
        self.precision = torch.bfloat16 if lower else torch.float32
        self.group = self.objective.group
        self.part = share_of_batch(self.batches.batch_size, self.group)
        width = max(self.data.features.shape[1], *recipe.hidden_sizes, 1)
        self.small = len(splits) * self.batches.batch_size * width <= SMALL_STEP

    def average_over(self, steps: float) -> None:
        """Average the weights over so many steps, from now on."""
        self.average = networks.WeightAverage(self.network, steps)
        self.best = networks.BestMembers(self.objective.members, self.average.averaged)

    def run(
        self,
        callbacks: Sequence[Callback] = (),
        name: str = "network",
        checkpoint: CheckpointFile | None = None,
        until: float = math.inf,
    ) -> TrainingResult:
        """Train to the end, from where the checkpoint stopped if there is one; Ctrl-C keeps the best weights so far.

        Callbacks get the run's ``name``. After ``until``, by ``time.monotonic()``, no further epoch is begun.
        """
        if checkpoint is not None and (state := checkpoint.load()) is not None:
            self.load_state_dict(state)
        interrupted = late = False
        try:
            with threadpool_limits(1 if self.small else None):
                while not self.finished and not late:
                    event = EpochEnd(name, self.epoch(), self.epochs)
                    answers = [callback(event) for callback in callbacks]
                    self.stopped = bool(agreed(torch.tensor(any(answers)), self.group))
                    late = bool(agreed(torch.tensor(time.monotonic() >= until), self.group))
                    if checkpoint is not None and is_first_process():
                        checkpoint.save(self.state_dict(), last=self.finished or late)
        except KeyboardInterrupt:
            interrupted, after = True, f"after {len(self.history)} of up to {self.epochs} epochs"
            told = f"training was interrupted {after}; the best weights so far are kept."
            warnings.warn(told, RuntimeWarning, stacklevel=4)
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
        soft, hard, log_loss, _, kept = (float(value.mean()) for value in scores)
        kept = log_loss if self.objective.warming else kept  # while warming up, cross-entropy is trained
        cold, active = float(self.objective.temperature.mean()), int(self.stopping.active.sum())
        seconds = time.perf_counter() - started
        self.history.append(EpochRecord(number, loss, soft, hard, log_loss, cold, rate, active, seconds, kept))
        return self.history[-1]

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
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.optimiser.step()
        return losses.detach()[self.stopping.active.to(losses.device)].mean()

    def _validate(self, number: int) -> Scores:
        active, state = self.stopping.active, self.average.averaged
        every = 1 if self.recipe.patience else max(1, self.epochs // self.recipe.checkpoints)
        if not self.validation:
            self.best.update(torch.zeros(self.objective.members), number, state, active)
        if not self.validation or (number % every and number != self.epochs):
            return Scores(*torch.full((5, 1), math.nan))
        with self.average.lent():
            scores = self.validation.score(self.network, self.objective, active)
        scores = scores._replace(key=agreed(scores.key, self.group), loss=agreed(scores.loss, self.group))
        self.best.update(scores.key, number, state, active)
        self.stopping.validated(scores.loss, scores.key)
        return scores

    def _randomness(self, seed: int) -> contextlib.AbstractContextManager[Any]:
        if isinstance(self.network, networks.MemberMLP):
            part = None if self.group is None else (self.part, self.batches.batch_size)
            self.network.use_generator(torch.Generator(self.device).manual_seed(seed), part)
            return contextlib.nullcontext()
        # Foreign modules draw for their part of the batch alone: not twice the same in two processes.
        return networks.lent_seed(seed + self.part.start, self.device)

    def result(self, interrupted: bool = False) -> TrainingResult:
        """The network with the best weights of each member."""
        missing, state = self.best.key == -math.inf, self.average.averaged
        if bool(missing.any()):  # members never validated: interrupted too early, or diverged from the start
            if not all(bool(value.isfinite().all()) for value in state.values()):
                how = f"lower it (now {self.recipe.learning_rate:g}) or set gradient_clip"
                raise ValueError(f"learning_rate: training diverged, the weights are not finite; {how}.")
            if self.validation:
                with self.average.lent():
                    self.validation.score(self.network, self.objective, missing)
            self.best.update(torch.zeros(len(missing)), len(self.history), state, missing)
        with torch.no_grad():
            for name, live in self.average.live.items():
                live.copy_(self.best.state[name])
        if isinstance(self.network, networks.MemberMLP):
            self.network.use_generator(None)
        for parameter in self.parameters:
            parameter.grad = None
        epochs, found = self.best.epoch.tolist(), self.validation.probabilities()
        return TrainingResult(self.network.eval(), self.history, epochs, found, interrupted)

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next epoch depends on; random numbers are drawn from the seed and the epoch alone."""
        parts = {name: getattr(self, name).state_dict() for name in self.RESUMED}
        return {"seed": self.seed, "history": list(map(list, self.history)), "stopped": self.stopped, **parts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a :meth:`state_dict`."""
        for name in self.RESUMED:
            getattr(self, name).load_state_dict(state[name])
        self.history, self.stopped = [EpochRecord(*values) for values in state["history"]], state["stopped"]


def learning_rate_at(step: int, steps: int, recipe: Recipe) -> float:
    """The learning rate of a step, counted from 0: a linear rise, then the schedule."""
    if step < recipe.warm_up_updates:
        return recipe.learning_rate * (step + 1) / recipe.warm_up_updates
    if recipe.schedule == "constant":
        return recipe.learning_rate
    share = (step - recipe.warm_up_updates) / max(1, steps - recipe.warm_up_updates)
    return recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * share))


class Stopping(Resumable):
    """Annealing and early stopping of each member by itself, as the recipe says."""

    kept = ("active", "waited", "best")

    def __init__(self, recipe: Recipe, objective: MemberObjective) -> None:
        self.recipe, members = recipe, objective.members
        self.active, self.waited = torch.ones(members, dtype=torch.bool), torch.zeros(members, dtype=torch.long)
        self.best = torch.full((members,), -math.inf, dtype=torch.float64)
        options: dict[str, Any] = {"mode": "epoch"}
        if recipe.annealing == "plateau":
            options = {part: getattr(recipe, part) for part in ("patience", "min_delta", "max_fruitless")}
        self.annealers = []
        for k in range(members) if recipe.annealing != "none" else ():
            cool = partial(objective.temperature.__setitem__, k)  # one member's entry of the temperatures
            one = SimpleNamespace(temperature=recipe.temperature, set_temperature=cool)
            self.annealers.append(TemperatureAnnealer(one, factor=recipe.cooling, **options))

    def epoch_ended(self) -> None:
        """Cool once per epoch, where the recipe says so."""
        if self.recipe.annealing == "epoch":
            for annealer in self.annealers:
                annealer.step()

    def validated(self, loss: Tensor, key: Tensor) -> None:
        """Take the validation losses, and what the selection compares (more is better); cool or finish members."""
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
        self.active &= loss.isfinite().cpu()

    def state_dict(self) -> dict[str, Any]:
        """The tensors that are kept, and the annealers."""
        return {**super().state_dict(), "annealers": [annealer.state_dict() for annealer in self.annealers]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a :meth:`state_dict`."""
        super().load_state_dict(state)
        for annealer, saved in zip(self.annealers, state["annealers"], strict=True):
            annealer.load_state_dict(saved)


def _epoch_seed(seed: int, epoch: int) -> int:
    return int(np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0] >> 1)


def as_device(device: str | torch.device) -> torch.device:
    """The device, and for ``"auto"`` the GPU of this process, or the CPU."""
    if device == "auto":  # torchrun gives each process of a machine a number: one GPU each
        device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if torch.cuda.is_available() else "cpu"
    return torch.device(device)


def draw_seed(random_state: Any) -> tuple[int, bool]:
    """A seed, and whether it follows from ``random_state`` alone; global generators are left alone."""
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1)), False
    if random_state is None or isinstance(random_state, np.random.Generator):
        return int(np.random.default_rng(random_state).integers(2**31)), False
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool) and 0 <= random_state < 2**32:
        return int(random_state), True
    raise ValueError(f"random_state: expected None, a seed from 0 to 2**32 - 1 or a generator, got {random_state!r}.")


Progress = Callable[[int, int, str], None]
"""Called with how much is done, of how much, and the value so far as text."""


@contextlib.contextmanager
def progress_bar(enabled: bool, label: str, console: Console | None = None) -> Iterator[Progress]:
    """A progress bar on stderr, or another console, as a function to call; off a terminal a line every few seconds."""
    console = console or Console(stderr=True)
    if not enabled or not console.is_terminal:
        due = time.monotonic() if enabled else math.inf

        def line(done: int, total: int, value: str) -> None:
            nonlocal due
            if time.monotonic() >= due:
                due = time.monotonic() + 5.0
                console.out(f"{label}: {done} of {total}{', ' if value else ''}{value}", highlight=False)

        yield line
        return
    columns = (
        bars.TextColumn("{task.description}"), bars.BarColumn(), bars.MofNCompleteColumn(), bars.TimeRemainingColumn(),
        bars.TextColumn("{task.fields[value]}"),
    )  # fmt: skip
    with bars.Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(label, total=None, value="")
        yield lambda done, total, value: progress.update(task, total=total, completed=done, value=value)
