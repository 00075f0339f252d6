"""A memory of the confusion matrix across batches, for batches that are too small for the metric."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from metricfit.confusion import ConfusionMatrix
from metricfit.numerics import accumulation_dtype

__all__ = ["ConfusionMemory"]


class ConfusionMemory(nn.Module):
    """An exponential moving average of normalised confusion matrices.

    ``M = decay · M_previous + (1 - decay) · C``, with C divided by its total weight. The metric is taken of M, so a
    batch without positives still has a sensible F1. The gradient flows through the batch's C alone and keeps the
    size it would have without a memory: dM/dC is taken as 1, not ``1 - decay``.

    The state is a buffer, in float32 or better: it moves with ``.to()``, is saved in the ``state_dict`` and
    synchronises with the module.

    Args:
        decay: Weight of the past, in [0, 1).

    >>> memory = ConfusionMemory(decay=0.9)
    >>> _ = memory(ConfusionMatrix(torch.tensor([[2.0, 0.0], [0.0, 2.0]])))
    >>> memory(ConfusionMatrix(torch.tensor([[0.0, 4.0], [0.0, 0.0]]))).matrix
    tensor([[0.4500, 0.1000],
            [0.0000, 0.4500]])
    """

    matrix: Tensor

    def __init__(self, decay: float) -> None:
        super().__init__()
        if not 0 <= decay < 1:
            raise ValueError(f"memory: expected a decay in [0, 1), got {decay}.")
        self.decay = decay
        self.register_buffer("matrix", torch.zeros(0))

    def reset(self) -> None:
        """Forget everything, for instance before training on other data."""
        self.matrix = self.matrix.new_zeros(0)

    def forward(self, cm: ConfusionMatrix) -> ConfusionMatrix:
        """The remembered matrix with this batch added, and remember it."""
        total = cm.total.detach()
        total = total.reshape(total.shape + (1,) * (cm.matrix.ndim - total.ndim))
        current = cm.matrix / torch.where(total > 0, total, torch.ones_like(total))
        if self.matrix.numel() == 0:
            blended = current.detach()
        else:
            self._check_shape(cm.matrix.shape)
            past = self.matrix.to(current.dtype)
            blended = self.decay * past + (1 - self.decay) * current.detach()
            blended = torch.where(total > 0, blended, past)  # a batch where all is ignored teaches nothing
        self.matrix = blended.to(accumulation_dtype(self.matrix.dtype)) if self.matrix.numel() else blended
        return cm.with_matrix(blended + (current - current.detach()))

    def blend(self, counts: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """:meth:`forward` for counts (…, d, d) without a graph; and the derivative of the matrix, (…, 1, 1)."""
        total = counts.sum(axis=(-1, -2), keepdims=True)
        scale = 1 / np.where(total > 0, total, 1.0)
        current = counts * scale
        if self.matrix.numel():
            self._check_shape(counts.shape)
            past = self.matrix.double().numpy()
            current = np.where(total > 0, self.decay * past + (1 - self.decay) * current, past)
        self.matrix = torch.from_numpy(current).to(accumulation_dtype(self.matrix.dtype))
        return current, scale

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        if tuple(self.matrix.shape) != tuple(shape):
            raise ValueError(
                f"memory: remembers a matrix of shape {tuple(self.matrix.shape)}, got a batch of shape {tuple(shape)}; "
                "call reset() before training on other classes."
            )

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        saved = state_dict.get(prefix + "matrix")
        if saved is not None:
            self.matrix = torch.zeros_like(saved, device=self.matrix.device)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
