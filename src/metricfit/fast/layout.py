"""How a batch lies in memory, as blocks (b, classes, l) that suit torch's loops and stay in cache."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

__all__ = ["Layout"]

BLOCK_ELEMENTS = 2**18
"""On a CPU: temporaries of this size stay in the caches, and the fixed cost of the operations on a block is small."""

BLOCK_ON_DEVICE = 2**25
"""Elsewhere only memory counts."""

ROWS_FROM = 64
"""From this many classes on a loop over those of one sample is long enough; with fewer, tables are transposed."""


class Layout:
    """The blocks of a batch; scores (N, C, …) and whatever else has one row or one number a sample.

    Args:
        scores: Logits or probabilities; dense, see :func:`metricfit.fast.batch.is_dense`.
    """

    def __init__(self, scores: Tensor) -> None:
        self.classes = scores.shape[1]
        self.is_image = scores.ndim > 2 and scores.is_contiguous()
        self.is_transposed = not self.is_image and scores.is_cpu and self.classes < ROWS_FROM
        samples = scores.numel() // self.classes
        size = len(scores) if self.is_image else 1 if self.is_transposed else samples
        length = samples // size
        self.shape = (size, 1, length)
        most = max(1, (BLOCK_ELEMENTS if scores.is_cpu else BLOCK_ON_DEVICE) // self.classes)
        self.columns = min(most, length)
        self.rows = min(max(1, most // length), size)
        self.is_whole = self.columns == length and self.rows == size

    def scores(self, values: Any) -> list[Any]:
        """Blocks (b, classes, l) of a tensor or array in the shape of the scores."""
        return self._split(self._shaped(values))

    def samples(self, values: Any) -> list[Any]:
        """Blocks (b, 1, l) of a tensor or array with one number a sample, in their order."""
        return self._split(values.reshape(self.shape))

    def _shaped(self, values: Any) -> Any:
        if self.is_image:
            return values.reshape(len(values), self.classes, -1)
        if values.ndim > 2:  # channels last
            values = (values.movedim if isinstance(values, Tensor) else partial(np.moveaxis, values))(1, -1)
            values = values.reshape(-1, self.classes)
        return values.T[None] if self.is_transposed else values[:, :, None]

    def _split(self, values: Any) -> list[Any]:
        if self.is_whole:
            return [values]
        size, _, length = self.shape
        return [
            values[i : i + self.rows, :, j : j + self.columns]
            for i in range(0, size, self.rows)
            for j in range(0, length, self.columns)
        ]
