"""The run: what is missing is computed, job by job, and written down at once."""

from __future__ import annotations

import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from threadpoolctl import threadpool_limits

from benchmarks.running import outcomes
from benchmarks.suite.cache import CACHE, Cached, keep, recall
from benchmarks.suite.cache import path as cache_path
from benchmarks.suite.datasets import Part, Table, part, table
from benchmarks.suite.methods import METHODS, Prediction
from benchmarks.suite.results import Row, append, existing, machine, now, provenance
from metricfit import metrics
from metricfit.decisions import best_rule

__all__ = ["Job", "Plan", "run"]


@dataclass(frozen=True)
class Plan:
    """What is asked for.

    Attributes:
        datasets: Names of data sets, in order.
        methods: Names of methods.
        metrics: Metrics.
        splits: Numbers of the splits.
        max_train_rows: Cap on the training rows; ``None`` for all.
        threads: Threads of each fit.
        cache: Folder of the probabilities.
    """

    datasets: Sequence[str]
    methods: Sequence[str]
    metrics: Sequence[str]
    splits: Sequence[int]
    max_train_rows: int | None = None
    threads: int = 1
    cache: Path = CACHE

    @property
    def configuration(self) -> str:
        return "full" if self.max_train_rows is None else f"train<={self.max_train_rows}"


@dataclass(frozen=True)
class Job:
    """One fit on one split, and the scores that are wanted of it."""

    dataset: str
    configuration: str
    split: int
    wanted: tuple[tuple[str, str], ...]
    """Pairs of method and metric; all methods share the fit."""
    max_train_rows: int | None
    threads: int
    cache: Path

    @property
    def title(self) -> str:
        method, metric = self.wanted[0]
        fit = METHODS[method].fit
        return f"{self.dataset} {self.split} {fit.name}" + (f" {metric}" if fit.per_metric else "")


def jobs(plan: Plan, folder: Path) -> Iterator[Job]:
    """The fits that are still needed; all sets and methods get their first split before any gets its second.

    So what there is at any time can be compared.
    """
    there = existing(folder)
    for split in plan.splits:
        for dataset in plan.datasets:
            groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
            for method in plan.methods:
                fit = METHODS[method].fit
                for metric in plan.metrics:
                    if (dataset, plan.configuration, split, metric, method) not in there:
                        shared = (fit.name, metric if fit.per_metric else "")
                        groups.setdefault(shared, []).append((method, metric))
            for wanted in groups.values():
                yield Job(
                    dataset, plan.configuration, split, tuple(wanted), plan.max_train_rows, plan.threads, plan.cache
                )


def run(plan: Plan, folder: Path, *, workers: int = 1, budget: float | None = None) -> int:
    """Compute what is missing; returns the number of failed jobs.

    Args:
        plan: What is asked for.
        folder: Where the results are.
        workers: Jobs at the same time, each in a process of its own if more than one.
        budget: No job is started after so many seconds.
    """
    todo = list(jobs(plan, folder))
    deadline = float("inf") if budget is None else time.time() + budget
    failed = 0
    with _progress() as bar:
        task = bar.add_task("", total=len(todo))
        for job, rows, error in outcomes(_outcome, todo, workers, deadline):
            if error:
                failed += 1
                bar.console.print(f"{job.title}: {error}", markup=False, highlight=False)
            append(rows, folder)
            bar.update(task, advance=1, description=job.title)
            if not bar.console.is_terminal:
                done = int(bar.tasks[0].completed)
                left = bar.tasks[0].time_remaining
                eta = f", about {left / 60:.0f} min left" if left is not None else ""
                bar.console.print(f"{done}/{len(todo)} {job.title}{eta}", markup=False, highlight=False)
    return failed


def _progress() -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    console = Console(file=sys.stderr, width=None if sys.stderr.isatty() else 200)
    return Progress(
        *columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal, speed_estimate_period=600
    )


Outcome = tuple[Job, list[Row], str]


def _outcome(job: Job) -> Outcome:
    try:
        return job, list(score(job)), ""
    except Exception:  # one broken fit must not end a night's run; the caller reports it
        return job, [], traceback.format_exc()


@cache
def _table(name: str) -> Table:
    return table(name)


def score(job: Job) -> Iterator[Row]:
    """Fit, and score what is wanted."""
    data = _table(job.dataset)
    split = part(data, job.split, job.max_train_rows)
    torch.set_num_threads(job.threads)
    with threadpool_limits(job.threads), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prediction, fit_seconds, fit_cpu, commit = _prediction(job, split)
        for method, metric in job.wanted:
            start, cpu = time.perf_counter(), time.process_time()
            decided = decisions(prediction, split, data.classes, metric, tuned=METHODS[method].tuned)
            seconds, cpu = fit_seconds + time.perf_counter() - start, fit_cpu + time.process_time() - cpu
            value = metrics.get(metric).score(split.y_test, decided, labels=data.classes)
            yield Row(
                dataset=job.dataset,
                configuration=job.configuration,
                split=job.split,
                metric=metric,
                method=method,
                value=round(float(value), 6),
                seconds=round(seconds, 3),
                cpu_seconds=round(cpu, 3),
                train_rows=len(split.y_train),
                test_rows=len(split.y_test),
                classes=len(data.classes),
                seed=job.split,
                machine=machine(job.threads),
                date=now(),
                **(provenance() | {"commit": _commits(commit, tuned=METHODS[method].tuned)}),
            )


def _commits(fit: str, *, tuned: bool) -> str:
    """The commit of the fit, and of the rule where that was tuned by another one."""
    rule = provenance()["commit"]
    return f"{fit} rule {rule}" if tuned and rule != fit else fit


def _prediction(job: Job, split: Part) -> Cached:
    """From the cache, or by training."""
    method, metric = job.wanted[0]
    fit = METHODS[method].fit
    shared = metric if fit.per_metric else ""
    file = cache_path(job.cache, job.dataset, job.configuration, job.split, fit.name, shared)
    made = recall(file)
    if made is None:
        start, cpu = time.perf_counter(), time.process_time()
        prediction = fit.run(split, job.split, job.threads, metric)
        made = prediction, time.perf_counter() - start, time.process_time() - cpu, provenance()["commit"]
        keep(file, made)
        # Rounded as the cache rounds, so that it makes no difference whether a row came from there.
        made = recall(file) or made
    return made


def decisions(prediction: Prediction, split: Part, classes: tuple[int, ...], metric: str, *, tuned: bool) -> np.ndarray:
    """Arg max, or the rule that is best for the metric on the out-of-fold probabilities."""
    if not tuned:
        return prediction.test.argmax(axis=1)
    if prediction.out_of_fold is None:
        raise ValueError("prediction: a tuned rule needs out-of-fold probabilities, and this fit has none.")
    truth = split.y_train[prediction.rows]
    return best_rule(truth, prediction.out_of_fold, metric, labels=classes).rule.apply(prediction.test)
