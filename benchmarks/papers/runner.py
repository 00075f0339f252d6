"""The run: what is missing is computed, job by job, and written down at once."""

from __future__ import annotations

import sys
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits

from benchmarks.papers import grid as grids
from benchmarks.papers.config import Config, Experiment, Method
from benchmarks.papers.fits import Choice, Made, fit, protocol_of
from benchmarks.papers.results import append, done, now, version
from benchmarks.running import outcomes

__all__ = ["Job", "Plan", "jobs", "run"]


@dataclass(frozen=True)
class Plan:
    """What is asked for.

    Attributes:
        configs: Tables and figures; a training that several share is made once.
        size: ``"full"``, ``"reduced"`` or ``"toy"``.
        datasets: Only these; empty for all.
        methods: Only these, with or without their approximation; empty for all.
        trials: So many trials instead of what the files say.
        grid: Name of the grid to search where the protocol has one.
        encodings: Only these encodings; empty for all.
    """

    configs: Sequence[Config]
    size: str = "full"
    datasets: Sequence[str] = ()
    methods: Sequence[str] = ()
    trials: int | None = None
    grid: str = "full"
    encodings: Sequence[str] = ()

    def wanted(self) -> dict[Experiment, int]:
        """Each experiment with its number of trials, in the order of the data sets asked for."""
        found: dict[Experiment, int] = {}
        for config in self.configs:
            for experiment in config.experiments(self.size):
                if not self._asked(experiment):
                    continue
                usual = protocol_of(experiment).trials if self.size == "toy" else config.trials_of(experiment)
                trials = self.trials or usual
                found[experiment] = max(found.get(experiment, 0), trials)
        if self.datasets:
            order = {name: i for i, name in enumerate(self.datasets)}
            found = dict(sorted(found.items(), key=lambda item: order[item[0].dataset]))
        return found

    def check(self) -> None:
        """Every name must occur in the tables at this size, so that a slip of the pen does not go unseen."""
        every = [experiment for config in self.configs for experiment in config.experiments(self.size)]
        if not every:
            raise ValueError(
                f"size: the tables have no section for {self.size!r}; python -m benchmarks.papers list shows what "
                "there is."
            )
        methods = {str(Method(e.method, e.approximation)) for e in every}
        known = {"--datasets": {e.dataset for e in every}, "--methods": methods | {e.method for e in every}}
        for option, asked in (("--datasets", self.datasets), ("--methods", self.methods)):
            for name in asked:
                if name not in known[option]:
                    raise ValueError(f"{option}: {name!r} is not in these tables; there are: {_listed(known[option])}.")

    def _asked(self, experiment: Experiment) -> bool:
        names = {experiment.method, str(Method(experiment.method, experiment.approximation))}
        return (
            (not self.datasets or experiment.dataset in self.datasets)
            and (not self.methods or bool(names & set(self.methods)))
            and (not self.encodings or not experiment.encoding or experiment.encoding in self.encodings)
        )


@dataclass(frozen=True)
class Job:
    """A trial of an experiment, after the grid search it may need."""

    experiment: Experiment
    trial: int
    grid: str
    folder: Path
    deadline: float = float("inf")

    @property
    def title(self) -> str:
        return f"{self.experiment.title} trial {self.trial}"


def jobs(plan: Plan, folder: Path, deadline: float = float("inf")) -> Iterator[Job]:
    """What is still needed: of each data set the first trial of all methods before the second of any."""
    there = done(folder, {name for config in plan.configs for name in config.all_protocols()})
    by_dataset: dict[str, list[Job]] = {}
    for experiment, trials in plan.wanted().items():
        by_dataset.setdefault(experiment.dataset, []).extend(
            Job(experiment, trial, plan.grid, folder, deadline)
            for trial in range(trials)
            if (experiment, trial) not in there
        )
    for waiting in by_dataset.values():
        yield from sorted(waiting, key=lambda job: job.trial)


def run(plan: Plan, folder: Path, *, workers: int = 1, budget: float | None = None) -> int:
    """Compute what is missing; returns the number of failed jobs.

    Args:
        plan: What is asked for.
        folder: Where the results are.
        workers: Jobs at the same time, each in a process of its own if more than one.
        budget: No fit is started after so many seconds.
    """
    deadline = float("inf") if budget is None else time.time() + budget
    plan.check()
    todo = list(jobs(plan, folder, deadline))
    if not todo:
        print("Nothing is missing: all of these fits are there.", file=sys.stderr)
    clock = Clock(todo, done(folder), workers)
    failed = 0
    for job, seconds, error in outcomes(_outcome, todo, workers, deadline):
        failed += bool(error)
        clock.count(job, seconds)
        print(f"{clock} {job.title}: {error or f'{seconds:.0f} s'}", file=sys.stderr, flush=True)
    if clock.done < len(todo):
        print(f"{len(todo) - clock.done} jobs left; the same command goes on with them", file=sys.stderr)
    return failed


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


class Clock:
    """An estimate of the time left: what the experiment took before, else its data set, else the mean so far."""

    def __init__(self, todo: Sequence[Job], before: Mapping[tuple[Experiment, int], float], workers: int) -> None:
        self.todo, self.workers, self.done = list(todo), workers, 0
        self.total = len(self.todo)
        self.seen: dict[Experiment | str, list[float]] = {}
        for (experiment, _), seconds in before.items():
            self._note(experiment, seconds)

    def _note(self, experiment: Experiment, seconds: float) -> None:
        for key in (experiment, f"{experiment.protocol} {experiment.dataset} {experiment.size}", experiment.size):
            self.seen.setdefault(key, []).append(seconds)

    def count(self, job: Job, seconds: float) -> None:
        """A job is over."""
        self.done += 1
        self.todo.remove(job)
        self._note(job.experiment, seconds)

    def left(self) -> float:
        """Seconds left."""
        total = 0.0
        for job in self.todo:
            e = job.experiment
            for key in (e, f"{e.protocol} {e.dataset} {e.size}", e.size):
                if key in self.seen:
                    total += sum(self.seen[key]) / len(self.seen[key])
                    break
        return total / self.workers

    def __str__(self) -> str:
        left = self.left()
        text = f"{left / 3600:.1f} h" if left > 5400 else f"{left / 60:.0f} min"
        return f"[{self.done}/{self.total}, about {text} left]"


Outcome = tuple[Job, float, str]


def _outcome(job: Job) -> Outcome:
    start = time.perf_counter()
    try:
        torch.set_num_threads(1)
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _work(job)
        return job, time.perf_counter() - start, ""
    except Exception:  # one broken fit must not end a night's run; the caller reports it
        return job, time.perf_counter() - start, traceback.format_exc()


def _work(job: Job) -> None:
    choice = grids.fixed(job.experiment)
    if choice is None:
        name = "toy" if job.experiment.size == "toy" else job.grid
        points = grids.points(job.experiment, name)
        for point in grids.missing(job.experiment, name, job.folder) if len(points) > 1 else ():
            if time.time() > job.deadline:
                return
            grids.search(job.experiment, point, job.folder)
        choice = grids.chosen(job.experiment, name, job.folder) if len(points) > 1 else points[0]
    _write(job, choice, fit(job.experiment, job.trial, choice))


def _write(job: Job, choice: Choice, made: Made) -> None:
    about = {"trial": job.trial, "seed": job.trial, "version": version(), "date": now()}
    if made.curve:
        rows = [
            about | {"epoch": epoch, "metric": name, "value": round(value, 6)}
            for epoch, scores in enumerate(made.curve, start=1)
            for name, value in scores.items()
        ]
        append("curves", job.experiment, rows, job.folder)
    about |= {
        "learning_rate": choice.learning_rate, "batch_size": choice.batch_size, "dropout": choice.dropout,
        "factor": choice.factor if protocol_of(job.experiment).annealing else "", "grid": choice.grid,
        "train_rows": made.train_rows,
    }  # fmt: skip
    rows = [
        about | {"rule": s.rule, "metric": s.metric, "class": s.of_class, "value": round(s.value, 6)}
        for s in made.scores
    ]
    append("scores", job.experiment, rows, job.folder)
