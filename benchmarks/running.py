"""What long benchmarks share: jobs on several processes within a time budget, rows appended whole, options."""

from __future__ import annotations

import argparse
import io
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import TypeVar

__all__ = ["cut_half_row", "outcomes", "positive", "seconds"]

Job = TypeVar("Job")
Outcome = TypeVar("Outcome")


def outcomes(
    work: Callable[[Job], Outcome], jobs: Iterable[Job], workers: int, deadline: float = float("inf")
) -> Iterator[Outcome]:
    """What ``work`` returns for each job, as they finish; none is started after the deadline (``time.time()``).

    >>> list(outcomes(abs, [-1, 2], workers=1))
    [1, 2]
    """
    waiting = iter(jobs)
    if workers == 1:
        for job in waiting:
            if time.time() > deadline:
                return
            yield work(job)
        return
    # Spawned, not forked: libraries that hold threads do not survive a fork.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        running: set[Future[Outcome]] = set()
        while True:
            while len(running) < workers and time.time() <= deadline and (job := next(waiting, None)) is not None:
                running.add(pool.submit(work, job))
            if not running:
                return
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in finished)


def cut_half_row(file: io.BufferedRandom) -> None:
    """Remove what a killed process left of its last row, and go to the end."""
    file.seek(0)
    content = file.read()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        file.truncate(whole)
    file.seek(0, os.SEEK_END)


def positive(text: str) -> int:
    """A whole number of an option.

    >>> positive("3")
    3
    """
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number >= 1, got {text!r}")
    return int(text)


def seconds(text: str) -> float:
    """A time of an option.

    >>> seconds("1.5h")
    5400.0
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if not found:
        raise argparse.ArgumentTypeError(f"expected a time such as 90s, 30m or 2h, got {text!r}")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]
