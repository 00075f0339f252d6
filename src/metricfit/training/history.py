"""What happened in each epoch."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

import pandas as pd

__all__ = ["EpochRecord", "History"]


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
