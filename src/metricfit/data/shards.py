"""Tables that do not fit into memory: Parquet and CSV files, read piece by piece in an order of one's own."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from metricfit.data.columns import LABEL_GAPS, find_format
from metricfit.data.reader import BadArgumentError, BadDataError, is_url, joined, open_table, reaching

ROWS_AT_ONCE = 16_384  # rows that come from a file
SUFFIXES = (".parquet", ".pq", ".csv")


@dataclass(frozen=True)
class Chunk:
    """Consecutive rows of one piece of the table; ``start`` is the place of the first one in the piece."""

    piece: int
    start: int
    rows: pd.DataFrame


class Shards:
    """The rows of many files with the same columns; nothing but the file list is held.

    A *piece* is what can be read on its own: a row group of a Parquet file, a whole CSV file.

    Args:
        source: A folder, a file, a pattern such as ``rows/*.parquet``, an address of these (``s3://bucket/rows``), or
            several; Parquet (``.parquet``, ``.pq``) or CSV (``.csv``), one kind only.

    Attributes:
        columns, formats: Their names, and how each is read.
        pieces, sizes: The pieces, and the rows of each; those of a CSV file are estimated.
        empty: Names of files without a row, which are left out.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for part in range(2):
    ...         pd.DataFrame({"x": range(3), "y": part}).to_parquet(f"{folder}/{part}.parquet")
    ...     shards = Shards(folder)
    ...     len(shards.pieces), shards.columns, shards.values("y")
    (2, ['x', 'y'], {0: 3, 1: 3})
    """

    def __init__(self, source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> None:
        given = [source] if isinstance(source, str | os.PathLike) else list(source)
        found = [file for one in given for file in files_of(one)]
        if not found:
            raise BadArgumentError("source", f"no .parquet, .pq or .csv file in {', '.join(map(str, given))}.")
        files = [open_table(file) for file in found]
        if len({file.kind for file in files}) > 1:
            raise BadArgumentError("source", "expected files of one kind, got both Parquet and CSV.")
        self.columns = files[0].columns
        for file in files:
            file.check_columns(self.columns, "source")
        # The first rows of every file say what a column holds; a value further on that does not fit is an error.
        starts = [rows for file in files if (rows := next(file.batches(self.columns), None)) is not None and len(rows)]
        if not starts:
            raise BadDataError(f"{files[0].name}: has no rows, and neither has any other of {len(files)} files.")
        for start in starts[1:]:
            try:
                joined([starts[0], start])
            except pa.ArrowException as error:  # it names the column and both types
                told = f"{start.file.name}: does not go with {starts[0].file.name} ({error})"
                raise BadDataError(f"{told}; write the column with one type, or leave the file out.") from error
        kept = [start.file for start in starts]
        self.empty = [file.name for file in files if file not in kept]
        self.pieces = [(file, group) for file in kept for group in (range(len(file.groups)) if file.groups else [None])]
        self.sizes = [file.rows if group is None else file.groups[group] for file, group in self.pieces]
        first = joined(starts)
        self.formats = first.formats(self.columns)
        self._label_formats = {name: find_format(first.column(name), LABEL_GAPS) for name in self.columns}

    def chunks(
        self, *, columns: Sequence[str] | None = None, target: str | None = None, order: Sequence[int] | None = None,
        rows: int = ROWS_AT_ONCE,
    ) -> Iterator[Chunk]:  # fmt: skip
        """All rows, at most ``rows`` at a time, or those of some pieces in the order given.

        The column ``target`` holds labels: "None" and "NA" are names of classes there, not gaps.
        """
        wanted = list(dict.fromkeys(self.columns if columns is None else columns))
        formats = {name: self.formats[name] for name in wanted if name != target}
        for piece in range(len(self.pieces)) if order is None else order:
            (file, group), start = self.pieces[piece], 0
            for frame, read in file.frames(formats, wanted, group=group):
                texts = frame.select_dtypes("category").columns  # pieces need not have the same categories
                frame = frame.astype(dict.fromkeys(texts, object))
                if target is not None:
                    frame[target] = read.labels(target, self._label_formats[target])
                frame = frame[wanted]
                for row in range(0, len(frame), rows):
                    yield Chunk(piece, start + row, frame[row : row + rows])
                start += len(frame)

    def values(self, column: str, *, weight: str | None = None, order: Sequence[int] | None = None) -> dict[Any, Any]:
        """How often each label of a column occurs, or the sum of its weights, in one pass over these columns alone."""
        counts: Counter[Any] = Counter()
        for chunk in self.chunks(columns=[column, *([weight] if weight else [])], target=column, order=order):
            labels, name = chunk.rows[column], self.pieces[chunk.piece][0].name
            if missing := int(labels.isna().sum()):
                advice = "a target needs one in each row, drop the rest"
                raise BadDataError(f"{name}, column {column!r}: {missing:,} rows have no value; {advice}.")
            each = labels.notna().astype(int) if weight is None else pd.to_numeric(chunk.rows[weight], errors="coerce")
            if not ((each >= 0) & (each < np.inf)).all():
                raise BadDataError(f"{name}, column {weight!r}: expected a weight >= 0 in each row; correct the rest.")
            counts.update(each.groupby(labels.to_numpy()).sum().to_dict())
        return dict(sorted(counts.items()))


def files_of(source: str | os.PathLike[str]) -> list[str]:
    """The files that a file, a folder or a pattern stands for, in order of their names; addresses of these too."""
    name = os.fspath(source)
    pattern, found = glob.has_magic(name) and not Path(name).exists(), list[str]()
    if is_url(name):
        with reaching(name) as (files, place):
            if not pattern and not files.isdir(place):
                return [name]
            found = [files.unstrip_protocol(one) for one in (files.glob(place) if pattern else files.find(place))]
    elif pattern:
        found = glob.glob(name, recursive=True)
    elif Path(name).is_dir():
        found = [str(one) for one in Path(name).rglob("*")]
    else:
        return [name]
    return sorted(one for one in found if one.lower().endswith(SUFFIXES))


def random_numbers(chunk: Chunk, seed: int, group: str | None = None) -> NDArray[np.float64]:
    """A number from [0, 1) for each row, the same whenever it is read; rows of one group have one number."""
    if group is None:
        first = (chunk.piece << 40) + chunk.start
        place = np.arange(first, first + len(chunk.rows), dtype=np.uint64)
    else:
        place = pd.util.hash_array(chunk.rows[group].astype(str).to_numpy(dtype=object))
    mixed = pd.util.hash_array(place * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed))
    return np.asarray((mixed >> np.uint64(11)) / 2**53)


def deal(sizes: Sequence[int], most: int) -> list[list[int]]:
    """Pieces dealt to so many lanes at most, of about equal numbers of rows; fewer lanes where they would not be."""
    for count in range(min(most, len(sizes)), 0, -1):
        lanes: list[list[int]] = [[] for _ in range(count)]
        rows = [0] * count
        for piece in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
            least = rows.index(min(rows))
            lanes[least].append(piece)
            rows[least] += sizes[piece]
        if 2 * min(rows) * count >= sum(rows):
            break
    return lanes
