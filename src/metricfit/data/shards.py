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
import pyarrow.compute as pc
import pyarrow.dataset as ds
from numpy.typing import NDArray

__all__ = ["OPEN_PIECES", "ROWS_AT_ONCE", "Chunk", "Shards", "frame_of", "share_of_rows"]

ROWS_AT_ONCE = 16_384
"""Rows that come from a file at once."""

OPEN_PIECES = 8
"""Pieces that are read in turn: rows of so many places of the table meet in the shuffling buffer."""

_SUFFIXES = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv"}


@dataclass(frozen=True)
class Chunk:
    """Consecutive rows of one piece of the table.

    Attributes:
        piece: Number of the piece.
        start: Place of the first row in the piece.
        rows: The rows.
    """

    piece: int
    start: int
    rows: pa.RecordBatch


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
        self.kind = kinds.pop()
        self._dataset = ds.dataset([str(file) for file in self.files], format=self.kind)
        fragments = self._dataset.get_fragments()
        if self.kind == "parquet":
            self.pieces = [piece for fragment in fragments for piece in fragment.split_by_row_group()]
        else:
            self.pieces = list(fragments)

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self._dataset.schema.names)

    def chunks(
        self,
        *,
        columns: Sequence[str] | None = None,
        order: Sequence[int] | None = None,
        open_pieces: int = 1,
        rows: int = ROWS_AT_ONCE,
    ) -> Iterator[Chunk]:
        """All rows, a bounded number at a time.

        Args:
            columns: The columns wanted; all by default.
            order: Numbers of the pieces, in the order in which they are opened; all of them, in turn, by default.
            open_pieces: How many pieces are read in turn.
            rows: How many rows come at once, at most.
        """
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
            for entry in pc.value_counts(chunk.rows.column(0)):
                value = entry["values"].as_py()
                counts[value] = counts.get(value, 0) + entry["counts"].as_py()
        missing = [value for value in counts if value is None or value != value]
        if missing:
            raise ValueError(
                f"{column}: {sum(counts[value] for value in missing):,} rows have no value; a target needs one in "
                "every row, drop the others."
            )
        return dict(sorted(counts.items()))

    def _read(self, piece: int, columns: Sequence[str] | None, rows: int) -> Iterator[Chunk]:
        start = 0
        # Without this pyarrow reads far ahead: dozens of batches a file, whatever the reader needs.
        batches = self.pieces[piece].to_batches(
            schema=self._dataset.schema, columns=None if columns is None else list(columns), batch_size=ROWS_AT_ONCE,
            batch_readahead=0, fragment_readahead=0, use_threads=False,
        )  # fmt: skip
        for batch in batches:
            for first in range(0, batch.num_rows, rows):
                part = batch.slice(first, rows)
                yield Chunk(piece, start, part)
                start += part.num_rows


def share_of_rows(chunk: Chunk, share: float, seed: int) -> NDArray[np.bool_]:
    """Which rows of a chunk belong to a random share of the table; the same ones whenever they are read."""
    place = (np.uint64(chunk.piece) << np.uint64(40)) + np.arange(
        chunk.start, chunk.start + chunk.rows.num_rows, dtype=np.uint64
    )
    with np.errstate(over="ignore"):  # splitmix64, whose products wrap around
        x = place * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    chosen: NDArray[np.bool_] = (x >> np.uint64(11)) < np.uint64(share * 2**53)
    return chosen


def frame_of(chunks: Sequence[pa.RecordBatch]) -> pd.DataFrame:
    """Record batches of one schema as one frame."""
    frame: pd.DataFrame = pa.Table.from_batches(chunks).to_pandas(split_blocks=True, self_destruct=True)
    return frame


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
