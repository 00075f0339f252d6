"""Tables that do not fit into memory: Parquet and CSV files, read piece by piece in an order of one's own."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.data.columns import LABEL_GAPS
from metricfit.data.reader import joined, open_table

ROWS_AT_ONCE = 16_384  # rows that come from a file
OPEN_PIECES = 8  # pieces that are read in turn: rows of so many places of the table meet in the shuffling buffer
_SUFFIXES = (".parquet", ".pq", ".csv")


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
        given = [Path(one) for one in ([source] if isinstance(source, str | os.PathLike) else source)]
        found: list[Path] = []
        for path in given:
            inside = sorted(file for file in path.rglob("*") if file.suffix.lower() in _SUFFIXES)
            found += inside if path.is_dir() else [path]
        if not found:
            raise ValueError(f"source: no .parquet, .pq or .csv file in {', '.join(map(str, given))}.")
        files = [open_table(file) for file in found]
        if len({file.kind for file in files}) > 1:
            raise ValueError("source: expected files of one kind, got both Parquet and CSV.")
        self.columns = files[0].columns
        for file in files:
            file.check_columns(self.columns, "source")
        self.pieces = [(file, group) for file in files for group in (range(file.groups) if file.groups else [None])]
        # The first rows of every file say what a column holds; a value further on that does not fit is an error.
        starts = (next(file.batches(self.columns), None) for file in files)
        first = joined([rows for rows in starts if rows is not None])
        self._formats = first.formats(self.columns)
        self._label_formats = first.formats(self.columns, gaps=LABEL_GAPS)

    def chunks(
        self,
        *,
        columns: Sequence[str] | None = None,
        target: str | None = None,
        order: Sequence[int] | None = None,
        open_pieces: int = 1,
        rows: int = ROWS_AT_ONCE,
    ) -> Iterator[Chunk]:
        """All rows, at most ``rows`` at a time; pieces are opened in the order given and so many are read in turn.

        The column ``target`` holds labels: "None" and "NA" are names of classes there, not gaps.
        """
        wanted = list(self.columns if columns is None else columns)
        waiting = deque(range(len(self.pieces)) if order is None else order)
        opened: deque[Iterator[Chunk]] = deque()
        while waiting or opened:
            while waiting and len(opened) < open_pieces:
                opened.append(self._read(waiting.popleft(), wanted, target, rows))
            chunk = next(opened[0], None)
            if chunk is None:
                opened.popleft()
                continue
            opened.rotate(-1)
            yield chunk

    def values(self, column: str) -> dict[Any, int]:
        """How often each label of a column occurs, in one pass over that column alone."""
        counts: Counter[Any] = Counter()
        missing = 0
        for chunk in self.chunks(columns=[column], target=column):
            counts.update({value: int(count) for value, count in chunk.rows[column].value_counts().items()})
            missing += int(chunk.rows[column].isna().sum())
        if missing:
            raise ValueError(
                f"{column}: {missing:,} rows have no value; a target needs one in each row, drop the rest."
            )
        return dict(sorted(counts.items()))

    def _read(self, piece: int, columns: list[str], target: str | None, most: int) -> Iterator[Chunk]:
        file, group = self.pieces[piece]
        formats = {name: self._formats[name] for name in columns if name != target}
        start = 0
        for frame, rows in file.frames(formats, columns, group=group):
            texts = frame.select_dtypes("category").columns  # pieces need not have the same categories
            frame = frame.astype(dict.fromkeys(texts, object))
            if target is not None:
                frame[target] = rows.labels(target, self._label_formats[target])
            frame = frame[columns]
            for row in range(0, len(frame), most):
                yield Chunk(piece, start + row, frame[row : row + most])
            start += len(frame)


def share_of_rows(chunk: Chunk, share: float, seed: int) -> NDArray[np.bool_]:
    """Which rows of a chunk belong to a random share of the table; the same ones whenever they are read."""
    first = (chunk.piece << 40) + chunk.start
    place = np.arange(first, first + len(chunk.rows), dtype=np.uint64)
    mixed = pd.util.hash_array(place * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed))
    chosen: NDArray[np.bool_] = (mixed >> np.uint64(11)) < np.uint64(share * 2**53)
    return chosen
