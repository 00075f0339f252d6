"""Tables that do not fit into memory: Parquet and CSV files, read piece by piece in an order of one's own."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
from numpy.typing import NDArray

from metricfit.data.reader import Rows, TableFile, open_table

__all__ = ["OPEN_PIECES", "ROWS_AT_ONCE", "Chunk", "Shards", "share_of_rows"]

ROWS_AT_ONCE = 16_384
"""Rows that come from a file at once."""

OPEN_PIECES = 8
"""Pieces that are read in turn: rows of so many places of the table meet in the shuffling buffer."""

_SUFFIXES = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv"}


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
        source: A folder, a file, or several files; Parquet (``.parquet``, ``.pq``) or CSV (``.csv``), one kind only.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for part in range(2):
    ...         pd.DataFrame({"x": range(3), "y": part}).to_parquet(f"{folder}/{part}.parquet")
    ...     shards = Shards(folder)
    ...     len(shards.pieces), shards.columns, shards.values("y")
    (2, ['x', 'y'], {0: 3, 1: 3})
    """

    def __init__(self, source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> None:
        self.files = _files(source)
        kinds = {_SUFFIXES[file.suffix.lower()] for file in self.files}
        if len(kinds) > 1:
            raise ValueError("source: expected files of one kind, got both Parquet and CSV.")
        if kinds == {"parquet"}:
            dataset = ds.dataset([str(file) for file in self.files], format="parquet")
            self.columns: list[str] = list(dataset.schema.names)
            self.pieces: list[Any] = [p for fragment in dataset.get_fragments() for p in fragment.split_by_row_group()]
            self._schema = dataset.schema
        else:
            self.pieces = [open_table(file) for file in self.files]
            self.columns = self.pieces[0].columns
            # The first rows of every file say what a column holds; a value further on that does not fit is an error.
            for file in self.pieces:
                file.check_columns(self.columns, "source")
            starts = [next(file.batches(self.columns), None) for file in self.pieces]
            first = pa.Table.from_batches([batch for batch in starts if batch is not None])
            self._formats = Rows(self.pieces[0], first, np.arange(len(first))).formats(self.columns)

    def chunks(
        self,
        *,
        columns: Sequence[str] | None = None,
        order: Sequence[int] | None = None,
        open_pieces: int = 1,
        rows: int = ROWS_AT_ONCE,
    ) -> Iterator[Chunk]:
        """All rows, at most ``rows`` at a time; pieces are opened in the order given and so many are read in turn."""
        waiting = deque(range(len(self.pieces)) if order is None else order)
        opened: deque[Iterator[Chunk]] = deque()
        while waiting or opened:
            while waiting and len(opened) < open_pieces:
                opened.append(self._read(waiting.popleft(), columns, rows))
            chunk = next(opened[0], None)
            if chunk is None:
                opened.popleft()
                continue
            opened.rotate(-1)
            yield chunk

    def values(self, column: str) -> dict[Any, int]:
        """How often each value of a column occurs, in one pass over that column alone."""
        counts: dict[Any, int] = {}
        for chunk in self.chunks(columns=[column]):
            for value, count in chunk.rows[column].value_counts(dropna=False).items():
                counts[value] = counts.get(value, 0) + int(count)
        missing = [value for value in counts if value is None or value != value]
        if missing:
            raise ValueError(
                f"{column}: {sum(counts[value] for value in missing):,} rows have no value; a target needs one in "
                "every row, drop the others."
            )
        return dict(sorted(counts.items()))

    def _read(self, piece: int, columns: Sequence[str] | None, rows: int) -> Iterator[Chunk]:
        start = 0
        for frame in self._frames(self.pieces[piece], list(columns or self.columns)):
            for first in range(0, len(frame), rows):
                part = frame[first : first + rows]
                yield Chunk(piece, start, part)
                start += len(part)

    def _frames(self, piece: Any, columns: list[str]) -> Iterator[pd.DataFrame]:
        if isinstance(piece, TableFile):
            for frame, _ in piece.frames({name: self._formats[name] for name in columns}):
                texts = frame.select_dtypes("category").columns  # pieces need not have the same categories
                yield frame.astype(dict.fromkeys(texts, object))
            return
        # Without these options pyarrow reads far ahead: dozens of batches per file, whatever the reader needs.
        for batch in piece.to_batches(
            schema=self._schema, columns=columns, batch_size=ROWS_AT_ONCE, batch_readahead=0, fragment_readahead=0,
            use_threads=False,
        ):  # fmt: skip
            yield batch.to_pandas()


def share_of_rows(chunk: Chunk, share: float, seed: int) -> NDArray[np.bool_]:
    """Which rows of a chunk belong to a random share of the table; the same ones whenever they are read."""
    place = (np.uint64(chunk.piece) << np.uint64(40)) + np.arange(
        chunk.start, chunk.start + len(chunk.rows), dtype=np.uint64
    )
    with np.errstate(over="ignore"):  # splitmix64, whose products wrap around
        x = place * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    chosen: NDArray[np.bool_] = (x >> np.uint64(11)) < np.uint64(share * 2**53)
    return chosen


def _files(source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Path]:
    given = [Path(source)] if isinstance(source, str | os.PathLike) else [Path(one) for one in source]
    found: list[Path] = []
    for path in given:
        if path.is_dir():
            found += sorted(file for file in path.rglob("*") if file.suffix.lower() in _SUFFIXES)
        elif not path.exists():
            raise FileNotFoundError(f"source: there is no file or folder {str(path)!r}.")
        elif path.suffix.lower() not in _SUFFIXES:
            raise ValueError(f"source: expected .parquet, .pq or .csv files, got {str(path)!r}.")
        else:
            found.append(path)
    if not found:
        raise ValueError(f"source: no .parquet, .pq or .csv file in {', '.join(map(str, given))}.")
    return found
