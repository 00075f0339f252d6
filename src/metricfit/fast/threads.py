"""Run a compiled loop over parts of the samples on as many threads as torch uses.

The loops release the interpreter lock, so plain threads do: no second thread library beside torch's, no limit fixed at
import, and parts are the same, and summed in the same order, whenever the number of threads is the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import torch

__all__ = ["parts_of", "run"]

SERIAL_ELEMENTS = 2**16
"""Up to this many scores a hand-over to another thread takes longer than it saves."""

ROWS_OF_PART = 2**16
"""A part is summed in float32; parts are added in float64."""

_pool: tuple[int, int, ThreadPoolExecutor] | None = None


def parts_of(samples: int, classes: int) -> list[tuple[int, int]]:
    """Bounds of the parts into which samples are cut.

    >>> parts_of(10, 3)
    [(0, 10)]
    """
    if samples * classes <= SERIAL_ELEMENTS and samples <= ROWS_OF_PART:
        return [(0, samples)]
    threads = min(torch.get_num_threads(), samples)
    number = max(1, -(-samples // (threads * ROWS_OF_PART))) * threads
    edges = [samples * i // number for i in range(number + 1)]
    return list(pairwise(edges))


def run(part: Callable[[int], int], number: int) -> int:
    """The largest result of ``part(0) … part(number - 1)``; the calling thread takes its share."""
    if number == 1:
        return part(0)
    threads = min(torch.get_num_threads(), number)

    def every(first: int) -> int:
        return max(part(i) for i in range(first, number, threads))

    others = [_threads(threads - 1).submit(every, first) for first in range(1, threads)] if threads > 1 else []
    return max([every(0), *(other.result() for other in others)])


def _threads(number: int) -> ThreadPoolExecutor:
    global _pool
    # A forked child inherits the pool but none of its threads.
    if _pool is None or _pool[:2] != (os.getpid(), number):
        _pool = (os.getpid(), number, ThreadPoolExecutor(number, thread_name_prefix="metricfit"))
    return _pool[2]
