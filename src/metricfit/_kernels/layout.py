"""How a batch lies in memory, as blocks (b, classes, l) that suit torch's loops and stay in cache."""

from __future__ import annotations

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
        scores: Logits or probabilities; dense, see :func:`metricfit._kernels.batch.is_dense`.
    """

    def __init__(self, scores: Tensor) -> None:
        self.classes = scores.shape[1]
        self.is_image = scores.ndim > 2 and scores.is_contiguous()
        self.is_transposed = not self.is_image and scores.is_cpu and self.classes < ROWS_FROM
        size, _, length = self._shaped(scores).shape
        self.shape = (size, 1, length)
        most = max(1, (BLOCK_ELEMENTS if scores.is_cpu else BLOCK_ON_DEVICE) // self.classes)
        self.columns = min(most, length)
        self.rows = min(max(1, most // length), size)
        self.is_whole = self.columns == length and self.rows == size

    def scores(self, tensor: Tensor) -> list[Tensor]:
        """Blocks (b, classes, l) of a tensor in the shape of the scores."""
        return self._split(self._shaped(tensor))

    def samples(self, tensor: Tensor) -> list[Tensor]:
        """Blocks (b, 1, l) of a tensor with one number a sample, in their order."""
        return self._split(tensor.reshape(self.shape))

    def _shaped(self, tensor: Tensor) -> Tensor:
        if self.is_image:
            return tensor.view(len(tensor), self.classes, -1)
        if tensor.ndim > 2:  # channels last
            tensor = tensor.movedim(1, -1).reshape(-1, self.classes)
        return tensor.t()[None] if self.is_transposed else tensor[:, :, None]

    def _split(self, tensor: Tensor) -> list[Tensor]:
        if self.is_whole:
            return [tensor]
        size, _, length = self.shape
        return [
            tensor[i : i + self.rows, :, j : j + self.columns]
            for i in range(0, size, self.rows)
            for j in range(0, length, self.columns)
        ]
