"""The run: what is missing is computed, split by split, and written down at once."""

from __future__ import annotations

import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits

from benchmarks.running import outcomes
from benchmarks.suite import cache, results
from benchmarks.suite.fits import FITS, METRICS, Part, Prediction, part
from benchmarks.suite.methods import needs, scored
from benchmarks.suite.tables import splits

__all__ = ["Job", "jobs", "run"]


@dataclass(frozen=True)
class Job:
    """One split of a table, and the methods that are wanted of it; they share fits."""

    table: str
    split: int
    methods: tuple[str, ...]
    cache: Path


def jobs(
    tables: Sequence[str], methods: Sequence[str], numbers: Sequence[int], folder: Path, predictions: Path
) -> Iterator[Job]:
    """What is still missing; all tables get their first split before any gets its second.

    Args:
        tables: Names of tables, in order.
        methods: Names of methods, in order.
        numbers: Numbers of the splits; a table has ten, or three if it is large.
        folder: Where the results are.
        predictions: Where predictions are kept.
    """
    there = results.existing(folder)
    for split in numbers:
        for table in tables:
            wanted = tuple(method for method in methods if (table, split, method) not in there)
            if wanted and split < len(splits(table)):
                yield Job(table, split, wanted, predictions)


def run(todo: Sequence[Job], folder: Path, *, workers: int = 1, budget: float | None = None) -> int:
    """Compute; returns the number of methods that failed.

    Args:
        todo: The jobs.
        folder: Where the results are.
        workers: Jobs at the same time, each in a process of its own if more than one.
        budget: No job is started after so many seconds.
    """
    deadline = float("inf") if budget is None else time.time() + budget
    failed, started = 0, time.time()
    for done, (job, rows, errors) in enumerate(outcomes(outcome, todo, workers, deadline), start=1):
        results.append(rows, folder)
        failed += len(errors)
        left = (time.time() - started) / done * (len(todo) - done) / 60
        told = [f"{done}/{len(todo)} {job.table} {job.split}, about {left:.0f} min left", *errors]
        print("\n".join(told), file=sys.stderr, flush=True)
    return failed


def outcome(job: Job) -> tuple[Job, list[results.Row], list[str]]:
    """Rows of all methods that went well, and what went wrong with the others."""
    rows: list[results.Row] = []
    errors = []
    torch.set_num_threads(1)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = part(job.table, job.split)
        for method in job.methods:
            try:
                rows += _rows(job, data, method)
            except Exception:  # one broken fit must not end a night's run
                errors.append(f"{job.table} {job.split} {method}: {traceback.format_exc()}")
    return job, rows, errors


def _rows(job: Job, data: Part, method: str) -> list[results.Row]:
    found = []
    for metric in METRICS:
        kept = {name: _prediction(job, data, fit) for name, fit in needs(method, metric).items()}
        made = {name: prediction for name, (prediction, _) in kept.items()}
        start = time.process_time()
        score = scored(method, metric, data, made)
        cpu = sum(one.cpu_seconds for one in made.values()) + time.process_time() - start
        found.append(
            results.Row(
                table=job.table,
                split=job.split,
                metric=metric,
                method=method,
                value=round(score.value, 6),
                held_out=round(score.held_out, 6),
                arg_max=round(score.arg_max, 6),
                cpu_seconds=round(cpu, 3),
                train_rows=len(data.y_train),
                test_rows=len(data.y_test),
                classes=len(data.labels),
                commit=" ".join(sorted({results.commit(), *(commit for _, commit in kept.values())})),
                libraries=results.libraries(),
                machine=results.machine(1),
                date=results.now(),
            )
        )
    return found


def _prediction(job: Job, data: Part, fit: str) -> tuple[Prediction, str]:
    """From the cache, or by training."""
    file = cache.path(job.cache, job.table, job.split, fit)
    made = cache.recall(file)
    if made is None:
        made = FITS[fit](data), results.commit()
        cache.keep(file, *made)
    return made
