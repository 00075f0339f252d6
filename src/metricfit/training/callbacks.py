"""Callbacks: what is told of each epoch, and the progress bar that is one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from metricfit.training.history import EpochRecord

__all__ = ["Callback", "EpochEnd", "TimeLimit", "callback_list", "progress_bar"]


@dataclass(frozen=True)
class EpochEnd:
    """What a callback is told.

    Attributes:
        run: Which network is trained: ``"metric"`` or ``"baseline"``.
        record: The epoch.
        epochs: Epochs there will be at most.
    """

    run: str
    record: EpochRecord
    epochs: int


Callback = Callable[[EpochEnd], bool | None]
"""Called after each epoch; a true result ends the training with the best weights so far."""


class TimeLimit:
    """A callback that ends each run of training after some seconds, with the best weights so far.

    Args:
        seconds: The limit; None for no limit.

    >>> TimeLimit(60).seconds
    60
    """

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._started: dict[str, float] = {}

    def __call__(self, event: EpochEnd) -> bool:
        """Whether the time is over."""
        now = time.monotonic()
        started = self._started.setdefault(event.run, now - event.record.seconds)
        return self.seconds is not None and now - started >= self.seconds


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


@contextlib.contextmanager
def progress_bar(enabled: bool, label: str, console: Console | None = None) -> Iterator[Callback]:
    """A progress bar on stderr, as a callback; silent when stderr is not a terminal.

    Args:
        enabled: Whether to show anything at all.
        label: What is being trained.
        console: Where to write, stderr by default.
    """
    console = console or Console(stderr=True)
    if not enabled or not console.is_terminal:
        yield lambda event: None
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        TextColumn("{task.fields[value]}"),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(label, total=None, value="")

        def update(event: EpochEnd) -> None:
            value = event.record.hard_metric
            shown = "" if value != value else f"{value:.3f}"
            progress.update(task, total=event.epochs, completed=event.record.epoch, value=shown)

        yield update
