"""Rows as tensors, and batches straight from them: an order of rows for each epoch and member, no Python per row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["BatchOrder", "TrainingData", "take_rows"]


@dataclass(frozen=True)
class TrainingData:
    """Rows as tensors on one device.

    Attributes:
        features: Inputs (n, features), float32.
        target: Class codes (n,), or 0/1 (n, labels) for a multi-label task.
        weight: Weights (n,): sample weights times class weights.
    """

    features: Tensor
    target: Tensor
    weight: Tensor

    def to(self, device: torch.device) -> TrainingData:
        """The same rows on a device."""
        return TrainingData(self.features.to(device), self.target.to(device), self.weight.to(device))


def take_rows(rows: Tensor, index: Tensor) -> Tensor:
    """Rows by an index (members, n), as (members, n, …)."""
    return rows.index_select(0, index.flatten()).reshape(*index.shape, *rows.shape[1:])


class BatchOrder:
    """Row indices of the batches of every member.

    All members get batches of one size, so that they can be stacked. An epoch has ``ceil(n / batch_size)`` steps of
    equal size, n the most rows of a member: no short last batch; a member with fewer rows starts over from its
    first. Stratified orders spread the rows of each class evenly over the epoch.

    Args:
        rows: Training rows of each member.
        batch_size: Rows in a batch, at most.
        stratum: Class of every row of the data, for a stratified order; ``None`` for a plain shuffle.

    >>> order = BatchOrder([np.arange(10)], 4, stratum=np.array([0] * 8 + [1] * 2))
    >>> [len(batch[0]) for batch in order.epoch(torch.Generator().manual_seed(0))]
    [4, 4, 4]
    """

    def __init__(
        self, rows: Sequence[NDArray[np.intp]], batch_size: int, *, stratum: NDArray[np.intp] | None = None
    ) -> None:
        longest = max(len(r) for r in rows)
        self.steps = -(-longest // batch_size)
        self.batch_size = -(-longest // self.steps)
        self._members = [_MemberOrder(r, None if stratum is None else stratum[r]) for r in rows]

    def epoch(self, generator: torch.Generator) -> Iterator[Tensor]:
        """Index tensors (members, batch_size), one per step."""
        yield from self.whole_epoch(generator).unbind(dim=1)

    def whole_epoch(self, generator: torch.Generator) -> Tensor:
        """The rows of all steps, (members, steps, batch_size)."""
        length = self.steps * self.batch_size
        orders = []
        for member in self._members:
            order = member.draw(generator)
            repeats = -(-length // len(order))
            orders.append((order.repeat(repeats) if repeats > 1 else order)[:length])
        return torch.stack(orders).reshape(-1, self.steps, self.batch_size)


class _MemberOrder:
    """The rows of one member, and how their classes interleave."""

    def __init__(self, rows: NDArray[np.intp], stratum: NDArray[np.intp] | None) -> None:
        if stratum is None:
            self.blocks, self.slots = [torch.from_numpy(rows)], None
            return
        counts = np.bincount(stratum)
        by_class = np.argsort(stratum, kind="stable")
        starts = np.cumsum(counts) - counts
        of_row = stratum[by_class]
        # The r-th of m rows of a class sits at (r + 1/2) / m of the epoch.
        place = (np.arange(len(rows)) - starts[of_row] + 0.5) / counts[of_row]
        self.slots = torch.from_numpy(np.argsort(place, kind="stable"))
        blocks = torch.from_numpy(rows[by_class]).split(counts.tolist())
        self.blocks = [block for block in blocks if len(block)]

    def draw(self, generator: torch.Generator) -> Tensor:
        shuffled = [block[torch.randperm(len(block), generator=generator)] for block in self.blocks]
        if self.slots is None:
            return shuffled[0]
        # The turn changes which rows meet in a batch, and where in the epoch a rare class appears.
        turn = int(torch.randint(len(self.slots), (), generator=generator))
        return torch.cat(shuffled)[self.slots].roll(turn)
