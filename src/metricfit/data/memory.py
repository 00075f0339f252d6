"""The memory that training requires, from the first rows of a file, before anything else is read."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

from metricfit.data.columns import GAPS
from metricfit.data.preprocessing import TablePreprocessor
from metricfit.data.reader import Rows, TableFile

__all__ = ["NotEnoughMemoryError", "check_memory", "free_memory"]

_PROGRAM = 7.2e8
"""The libraries and the network: what a training on 2,000 rows takes."""

_SMALL = 2_000_000
"""Fewer values than this need too little to be worth a look at the first rows."""

_SAMPLE_ROWS = 4096
_CONTROL_GROUP = Path("/sys/fs/cgroup")


class NotEnoughMemoryError(MemoryError):
    """Training requires more memory than there is.

    Attributes:
        max_rows: How many rows would fit.
    """

    def __init__(self, message: str, max_rows: int) -> None:
        super().__init__(message)
        self.max_rows = max_rows


def check_memory(
    file: TableFile, columns: Sequence[str], rows: int, *, categorical: Sequence[str] = (), gaps: Sequence[str] = GAPS
) -> str:
    """The memory that training on the rows requires, in words; an error if that is more than there is.

    ``categorical`` and ``gaps`` are as for :meth:`Rows.formats`.
    """
    if rows * len(columns) < _SMALL:
        return ""
    per_row = _bytes_per_row(file, columns, categorical, gaps)
    needed = rows * per_row + _PROGRAM
    free = free_memory()
    shape = f"about {rows:,} rows × {len(columns)} columns"
    if free is not None and needed > free:
        fits = max(1000.0, (free - _PROGRAM) / per_row)
        digit = 10 ** math.floor(math.log10(fits))
        most = int(fits // digit * digit)
        raise NotEnoughMemoryError(
            f"{file.name}: {shape} need about {needed / 1e9:.1f} GB of memory and {free / 1e9:.1f} GB are free; train "
            f"on a random part (max_rows={most}), or use a larger machine.",
            most,
        )
    return f"{shape}; training needs about {needed / 1e9:.1f} GB of memory" if needed > 1e9 else ""


def _bytes_per_row(file: TableFile, columns: Sequence[str], categorical: Sequence[str], gaps: Sequence[str]) -> float:
    """The rows as the file has them, their values and features. The factors, for copies, are measured ones."""
    first = next(file.batches(columns)).slice(0, _SAMPLE_ROWS)
    sample = Rows(file, pa.Table.from_batches([first]), np.arange(first.num_rows))
    X = sample.frame(sample.formats(columns, categorical=categorical, gaps=gaps), gaps)
    features = TablePreprocessor(random_state=0).fit(X).transform(X[:1]).shape[1]
    values = X.memory_usage(deep=True).sum() / len(X)
    return float(1.1 * file.size / max(1, file.rows) + 1.9 * values + 1.15 * 4 * features)


def free_memory() -> float | None:
    """Bytes that can be had, within the limit of a container, or None if the system does not say."""
    found = []
    with suppress(OSError, ValueError, AttributeError):
        found.append(float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) * 0.8)
    with suppress(OSError, ValueError, KeyError, IndexError):
        sizes = {line.split(":")[0]: line.split()[1] for line in Path("/proc/meminfo").read_text().splitlines()}
        found = [float(sizes["MemAvailable"]) * 1024]
    for limit, stat, name in (
        ("memory.max", "memory.stat", "anon"),
        ("memory/memory.limit_in_bytes", "memory/memory.stat", "total_rss"),
    ):
        with suppress(OSError, ValueError, KeyError):
            used = dict(line.split() for line in (_CONTROL_GROUP / stat).read_text().splitlines())
            # "max" stands for no limit, and is no number.
            found.append(float((_CONTROL_GROUP / limit).read_text()) - float(used[name]))
    return min(found, default=None)
