"""What training needs of memory, said before anything is read."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from metricfit.cli.columns import GAPS
from metricfit.cli.errors import CommandError
from metricfit.cli.frames import Rows, frame_from
from metricfit.cli.tables import TableFile

__all__ = ["check_memory", "free_memory"]

_PROGRAM = 5.5e8
"""The libraries and the network."""

_SMALL = 2_000_000
"""Fewer values than this need too little to be worth a look at the first rows."""

_SAMPLE_ROWS = 4096
_CONTROL_GROUP = Path("/sys/fs/cgroup")


def check_memory(
    file: TableFile, columns: Sequence[str], rows: int, *, as_text: Sequence[str] = (), gaps: Sequence[str] = GAPS
) -> str:
    """What training on the rows needs, in words; an error if that is more than there is.

    Args:
        file: The file.
        columns: Columns to predict from.
        rows: Rows to train on.
        as_text: As for :func:`metricfit.cli.frames.frame_from`.
        gaps: Likewise.
    """
    if rows * len(columns) < _SMALL:
        return ""
    per_row = _bytes_a_row(file, columns, as_text, gaps)
    needed = rows * per_row + _PROGRAM
    free = free_memory()
    shape = f"about {rows:,} rows × {len(columns)} columns"
    if free is not None and needed > free:
        fits = max(1000.0, (free - _PROGRAM) / per_row)
        digit = 10 ** math.floor(math.log10(fits))
        raise CommandError(
            f"{file.name}: {shape} need about {needed / 1e9:.1f} GB of memory and {free / 1e9:.1f} GB are free; train "
            f"on a random part with --max-rows {int(fits // digit * digit)}, or use a larger machine."
        )
    return f"{shape}; training needs about {needed / 1e9:.1f} GB of memory" if needed > 1e9 else ""


def _bytes_a_row(file: TableFile, columns: Sequence[str], as_text: Sequence[str], gaps: Sequence[str]) -> float:
    """Text, values and features of the first rows. The factors, for copies, are measured ones."""
    from metricfit.data import TablePreprocessor

    first = next(file.batches(columns)).slice(0, _SAMPLE_ROWS)
    sample = Rows(file, pa.Table.from_batches([first]), np.arange(first.num_rows))
    X, _ = frame_from(sample, columns, as_text=as_text, gaps=gaps)
    features = TablePreprocessor(random_state=0).fit(X).transform(X[:1]).shape[1]
    text = file.size / max(1, file.rows) if file.kind == "csv" else 0.0
    return float(1.1 * text + 1.7 * X.memory_usage(deep=True).sum() / len(X) + 1.15 * 4 * features)


def free_memory() -> float | None:
    """Bytes that can be had, within the limit of a container, or None if the system does not tell."""
    found = [value for value in (_of_the_machine(), _of_the_container()) if value is not None]
    return min(found, default=None)


def _of_the_machine() -> float | None:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            sizes = {line.split(":")[0]: line.split()[1] for line in file}
        return float(sizes["MemAvailable"]) * 1024
    except (OSError, KeyError, IndexError, ValueError):
        pass
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) * 0.8
    except (ValueError, OSError, AttributeError):
        return None


def _of_the_container() -> float | None:
    for limit, stat, name in (
        ("memory.max", "memory.stat", "anon"),
        ("memory/memory.limit_in_bytes", "memory/memory.stat", "total_rss"),
    ):
        try:
            used = dict(line.split() for line in (_CONTROL_GROUP / stat).read_text().splitlines())
            # "max" stands for no limit, and is no number.
            return float((_CONTROL_GROUP / limit).read_text()) - float(used[name])
        except (OSError, ValueError, KeyError):
            continue
    return None
