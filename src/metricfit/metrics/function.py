"""Any function of the confusion matrix as a metric."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from metricfit.confusion import ConfusionMatrix
from metricfit.metrics.base import Metric

__all__ = ["CallableMetric"]


@dataclass(frozen=True)
class CallableMetric(Metric):
    """Any function of one confusion matrix that returns a scalar tensor.

    Args:
        function: ``cm -> scalar tensor``; it always sees a single matrix (``cm.tp[1]`` is class 1's count), a
            sweep is mapped over it.
        range: Smallest and largest value.
        greater_is_better: The direction.

    >>> metric = CallableMetric(lambda cm: cm.tp[1] / (cm.tp[1] + cm.fp[1] + 3 * cm.fn[1]))
    >>> metric(ConfusionMatrix(torch.tensor([[5.0, 1.0], [2.0, 3.0]])))
    tensor(0.3000)
    """

    function: Callable[[ConfusionMatrix], Tensor]
    range: tuple[float, float] = (0.0, 1.0)  # type: ignore[misc]
    greater_is_better: bool = True  # type: ignore[misc]

    def compute(self, cm: ConfusionMatrix) -> Tensor:
        """Call the function, once per matrix."""
        if not cm.batch_shape:
            return self._checked(self.function(cm))
        flat = cm.matrix.reshape(-1, *cm.matrix.shape[len(cm.batch_shape) :])
        values = torch.func.vmap(lambda matrix: self._checked(self.function(cm.with_matrix(matrix))))(flat)
        return values.reshape(cm.batch_shape)

    def _checked(self, value: Any) -> Tensor:
        if not isinstance(value, Tensor):
            raise TypeError(
                f"{self}: a metric function must return a scalar tensor computed from the matrix, got "
                f"{type(value).__name__}."
            )
        if value.ndim:
            raise ValueError(f"{self}: a metric function must return a scalar tensor, got shape {tuple(value.shape)}.")
        return value

    def __str__(self) -> str:  # a function has no spec to read back
        return getattr(self.function, "__name__", type(self.function).__name__)
