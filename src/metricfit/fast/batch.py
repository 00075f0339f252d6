"""A batch as the compiled loops see it, and its counts and gradient."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metricfit.fast.threads import parts_of, run
from metricfit.steps import SMALLEST_WIDTH, THRESHOLD_MARGIN

__all__ = ["LIMITS", "ROWS_FROM", "Batch", "FivePoints", "Tensors", "is_dense", "numba_is_here"]

Array = np.ndarray[Any, Any]

ROWS_FROM = 128
"""From this many classes on a row alone fills the vector registers."""


@dataclass(frozen=True)
class FivePoints:
    """The linear step: height of its first knot, and middle width as a multiple of min(tau, 1 - tau)."""

    delta: float
    factor: float


@cache
def numba_is_here() -> bool:
    """Whether numba can be imported (the extra ``fast``)."""
    try:
        import numba  # noqa: F401
    except ImportError:
        return False
    return True


@cache
def _kernels(by_row: bool) -> tuple[Any, Any]:
    if by_row:
        from metricfit.fast import rows

        return rows.count_rows, rows.pull_back_rows
    from metricfit.fast import lanes

    return lanes.count_lanes, lanes.pull_back_lanes


def _limits_of(dtype: type[np.floating[Any]]) -> Array:
    information = np.finfo(dtype)
    margin, smallest = max(THRESHOLD_MARGIN, float(information.eps)), max(SMALLEST_WIDTH, float(information.tiny))
    return np.array([margin, smallest, information.tiny], dtype)


LIMITS = {np.dtype(kind): _limits_of(kind) for kind in (np.float32, np.float64)}
_EMPTY = {np.dtype(kind): np.empty(0, kind) for kind in (np.float32, np.float64)}
Tensors = tuple[Tensor, Tensor, Tensor | None, Tensor | None]
"""Scores (N, d, …), class indices int64 of the samples in order, sample weights and class weights or None."""


class Batch:
    """Counts a batch on the CPU and pulls gradients back to it; keeps six numbers a sample in between, no tensor.

    Args:
        points: The step.
        ignore: The label of samples that do not count.
        is_softmax: Whether scores are logits.
        is_fixed: Whether no gradient flows through the threshold.
    """

    def __init__(self, points: FivePoints, *, ignore: int, is_softmax: bool, is_fixed: bool) -> None:
        self.points = points
        self.ignore = ignore
        self.is_softmax = is_softmax
        self.is_fixed = is_fixed
        self._ready: tuple[Array, tuple[Any, ...]] | None = None

    def count(self, tensors: Tensors) -> Array | None:
        """The soft counts of each part, shape (parts, d, d); None where labels, scores or weights are out of order."""
        scores, arguments = self._ready = self._arguments(tensors)
        classes, samples = scores.shape[1], scores.size // scores.shape[1]
        self.parts = parts = parts_of(samples, classes)
        counts = np.zeros((len(parts), classes, classes), scores.dtype)
        self.kept = kept = np.empty((samples, 4), scores.dtype)
        self.places = places = np.empty((samples, 2), np.int32)
        kernel = _kernels(scores.ndim == 2)[0]
        if len(parts) == 1:  # on a small batch every call counts
            return None if kernel(*arguments, 0, samples, counts[0], kept, places) else counts

        def part(i: int) -> int:
            result: int = kernel(*arguments, *parts[i], counts[i], kept, places)
            return result

        return None if run(part, len(parts)) else counts

    def pull_back(self, tensors: Tensors, gradient: Array) -> Tensor:
        """The gradient with respect to the scores, given that with respect to the counts."""
        scores, arguments = self._ready or self._arguments(tensors)
        self._ready = None  # from here on only the graph's saved tensors hold the scores
        if tensors[0].is_contiguous():
            out = np.empty(scores.shape, scores.dtype)
            result = torch.from_numpy(out.reshape(tensors[0].shape))
        else:
            result = torch.empty_like(tensors[0])
            out = _samples_and_classes(result)
        kernel = _kernels(scores.ndim == 2)[1]
        if len(self.parts) == 1:
            kernel(*arguments, *self.parts[0], gradient, self.kept, self.places, self.is_fixed, out)
            return result

        def part(i: int) -> int:
            bounds = self.parts[i]
            done: int = kernel(*arguments, *bounds, gradient, self.kept, self.places, self.is_fixed, out)
            return done

        run(part, len(self.parts))
        return result

    def _arguments(self, tensors: Tensors) -> tuple[Array, tuple[Any, ...]]:
        scores, target, weight, class_weight = tensors
        array = _samples_and_classes(scores)
        number, empty = array.dtype.type, _EMPTY[array.dtype]
        return array, (
            array,
            self.is_softmax,
            target.numpy(),
            empty if weight is None else weight.detach().numpy(),
            empty if class_weight is None else class_weight.detach().numpy(),
            self.ignore,
            number(self.points.delta),
            number(self.points.factor),
            LIMITS[array.dtype],
        )


def _samples_and_classes(scores: Tensor) -> Array:
    """(samples, d) where classes lie side by side and are many, else (N, d, L); never a copy of dense scores."""
    array: Array = scores.detach().numpy()
    classes = array.shape[1]
    if array.ndim > 2:
        if array.flags.c_contiguous:
            return array.reshape(len(array), classes, -1)
        array = np.moveaxis(array, 1, -1).reshape(-1, classes)  # channels last
    return array if classes >= ROWS_FROM else array[:, :, None]


def is_dense(scores: Tensor) -> bool:
    """Whether the scores can be read where they lie: contiguous, or with channels last."""
    return scores.is_contiguous() or (scores.ndim > 2 and scores.movedim(1, -1).is_contiguous())
