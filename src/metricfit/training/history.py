"""What happens in each epoch: the record, the history, the callbacks that see it, and the progress bar."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

import pandas as pd
from rich import progress as bars
from rich.console import Console

__all__ = ["Callback", "EpochEnd", "EpochRecord", "History", "Progress", "callback_list", "progress_bar"]


@dataclass(frozen=True)
class EpochRecord:
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


class History:
    """A list of epochs that becomes a DataFrame.

    >>> History([EpochRecord(1, 0.5, 0.6, 0.7, 0.4, 0.2, 1e-3, 5, 0.1)]).frame()[["epoch", "loss", "hard_metric"]]
       epoch  loss  hard_metric
    0      1   0.5          0.7
    """

    def __init__(self, records: list[EpochRecord] | None = None) -> None:
        self.records = [] if records is None else records

    def append(self, record: EpochRecord) -> None:
        """Add an epoch."""
        self.records.append(record)

    def frame(self) -> pd.DataFrame:
        """One row per epoch."""
        return pd.DataFrame([asdict(r) for r in self.records], columns=[f.name for f in fields(EpochRecord)])

    def state(self) -> list[list[Any]]:
        """Plain numbers, for a checkpoint."""
        return [list(asdict(record).values()) for record in self.records]

    @classmethod
    def from_state(cls, state: list[list[Any]]) -> History:
        """Read :meth:`state` back."""
        return cls([EpochRecord(*values) for values in state])


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
