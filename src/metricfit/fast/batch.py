"""A batch on the CPU as the compiled loops see it: counted, and its gradient taken, in parts on several threads.

The loops release the interpreter lock, so plain threads do: no second thread library beside torch's, no limit fixed at
import, and parts are the same, and summed in the same order, whenever the number of threads is the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["CompiledBatch", "numba_is_here", "parts_of", "run"]

Array = np.ndarray[Any, Any]

ROWS_FROM = 128
"""From this many classes on a row alone fills the vector registers."""

SERIAL_ELEMENTS = 2**16
"""Up to this many scores a hand-over to another thread takes longer than it saves."""

ROWS_OF_PART = 2**16
"""So many samples at most are summed in float32 before they are added in float64."""


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


class CompiledBatch:
    """Counts a batch and takes its gradient.

    Between the two passes the memory of the gradient holds the batch in units of its thresholds.

    Args:
        target: Class indices int64 of the samples in order.
        weight: Weights of the samples, in the dtype of the scores, or None.
        class_weight: (d,), or None.
        members: How many members the samples are divided into, one after the other.
        points: The step of each member, (M, 5).
        ignore: The label of samples that do not count.
        is_fixed: Whether no gradient flows through the threshold.
    """

    def __init__(
        self, target: Tensor, weight: Tensor | None, class_weight: Tensor | None, *, members: int, points: Array,
        ignore: int, is_fixed: bool,
    ) -> None:  # fmt: skip
        self.target = target.contiguous().numpy()
        self.weight, self.class_weight = weight, class_weight
        self.members, self.points, self.ignore, self.is_fixed = members, points, ignore, is_fixed
        self.gradient: Tensor | None = None

    def count(self, scores: Tensor, by_class: bool, keeps: bool) -> Array | None:
        """The counts of each member, in float64; None where labels, scores or weights are wrong.

        Args:
            scores: Logits (M · N, d, …), contiguous or with channels last.
            by_class: Whether to give hits, true and predicted weights (M, 3, d), else matrices (M, d, d).
            keeps: Whether a gradient will be wanted.
        """
        array = samples_and_classes(scores.detach())
        classes, samples = array.shape[1], len(self.target)
        self.gradient = torch.empty_like(scores, requires_grad=False) if keeps else None
        out = array if self.gradient is None else samples_and_classes(self.gradient)
        self.points = self.points.astype(array.dtype, copy=False)
        self.parts = parts = parts_of(samples // self.members, classes, self.members)
        shape = (3 if by_class else classes, classes)
        counts = np.zeros((len(parts), *shape))  # in float64, also in order that both are compiled once
        self.kept, self.places = np.empty((samples, 4), array.dtype), np.empty((samples, 2), np.int32)
        empty = np.empty(0, array.dtype)
        kernel = _kernels(array.ndim == 2)[0]
        arguments = (
            array, self.target,
            empty if self.weight is None else self.weight.numpy(),
            empty if self.class_weight is None else self.class_weight.numpy(),
            self.ignore, self.points, parts,
        )  # fmt: skip
        results = (by_class, counts, keeps, out, self.kept, self.places)
        if run(lambda begin, end: kernel(*arguments, begin, end, *results), samples * classes, len(parts)):
            return None
        if len(parts) == self.members:
            return counts
        summed: Array = counts.reshape(self.members, -1, *shape).sum(axis=1)
        return summed

    def pull_back(self, scores: Tensor, gradient: Tensor, by_class: bool) -> Tensor:
        """The gradient with respect to the scores, given that of the counts, (M, 2, d) by class or (M, d, d)."""
        if self.gradient is None:  # an earlier call gave it away
            self.count(scores, True, True)
        result: Tensor
        result, self.gradient = self.gradient, None  # type: ignore[assignment]
        out = samples_and_classes(result)
        kernel = _kernels(out.ndim == 2)[1]
        arguments = (self.target, self.points, self.parts)
        others = (by_class, gradient.to(result.dtype).numpy(), self.is_fixed, self.kept, self.places, out)
        run(lambda begin, end: kernel(*arguments, begin, end, *others), out.size, len(self.parts))
        return result


def samples_and_classes(scores: Tensor) -> Array:
    """(samples, d) where classes lie side by side and are many, else (N, d, L); never a copy of dense scores."""
    array: Array = scores.numpy()
    classes = array.shape[1]
    if array.ndim > 2:
        if array.flags.c_contiguous:
            return array.reshape(len(array), classes, -1)
        array = np.moveaxis(array, 1, -1).reshape(-1, classes)  # channels last
    return array if classes >= ROWS_FROM else array[:, :, None]


def parts_of(samples: int, classes: int, members: int = 1) -> Array:
    """First sample, last sample + 1 and member of each part into which members of so many samples are cut.

    >>> parts_of(10, 3)
    array([[ 0, 10,  0]])
    """
    number = 1
    if samples * classes * members > SERIAL_ELEMENTS or samples > ROWS_OF_PART:
        threads = min(torch.get_num_threads(), samples)
        number = max(1, -(-samples // (threads * ROWS_OF_PART))) * threads
    edges = np.arange(number + 1) * samples // number
    parts = np.empty((members, number, 3), np.int64)
    parts[..., 2] = np.arange(members)[:, None]
    parts[..., 0], parts[..., 1] = edges[:-1], edges[1:]
    parts[..., :2] += parts[..., 2:] * samples
    return parts.reshape(-1, 3)


_pool: tuple[int, int, ThreadPoolExecutor] | None = None


def run(kernel: Callable[[int, int], int], elements: int, number: int) -> int:
    """The largest result of a loop over so many parts; the calling thread takes its share."""
    threads = 1 if elements <= SERIAL_ELEMENTS else min(torch.get_num_threads(), number)
    if threads == 1:
        return kernel(0, number)
    edges = [number * i // threads for i in range(threads + 1)]
    pool = _threads(threads - 1)
    others = [pool.submit(kernel, edges[i], edges[i + 1]) for i in range(1, threads)]
    return max([kernel(edges[0], edges[1]), *(other.result() for other in others)])


def _threads(number: int) -> ThreadPoolExecutor:
    global _pool
    # A forked child inherits the pool but none of its threads.
    if _pool is None or _pool[:2] != (os.getpid(), number):
        _pool = (os.getpid(), number, ThreadPoolExecutor(number, thread_name_prefix="metricfit"))
    return _pool[2]
