"""Tables in memory: all rows with their types found out, or batches read as a model was trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from metricfit.cli.columns import GAPS, BadValueError, ColumnFormat, find_format, read_column
from metricfit.cli.errors import BadDataError
from metricfit.cli.tables import TableFile

__all__ = ["Rows", "frame_from", "frames", "label_text", "matched_labels", "read_rows"]


@dataclass
class Rows:
    """Rows of a file as they stand there.

    Attributes:
        file: The file.
        table: The columns: text for CSV.
        records: The place of each row in the file, from 0.
    """

    file: TableFile
    table: pa.Table
    records: NDArray[np.int64]

    def column(self, name: str) -> pa.ChunkedArray:
        """One column."""
        return self.table.column(name)

    def take(self, keep: NDArray[np.bool_]) -> Rows:
        """Some of the rows."""
        return Rows(self.file, self.table.filter(pa.array(keep)), self.records[keep])

    def bad(self, name: str, error: BadValueError) -> BadDataError:
        """A bad value with its file, line and column."""
        line = self.file.line_of(int(self.records[error.row]))
        what = "row" if self.file.kind == "parquet" else "line"
        return BadDataError(f"{self.file.name}, {what} {line}, column {name!r}: {error}.")

    def __len__(self) -> int:
        """The number of rows."""
        return int(self.table.num_rows)


def read_rows(file: TableFile, columns: Sequence[str], max_rows: int | None = None, seed: int = 0) -> Rows:
    """All rows, or a random part of them that is never more in memory than twice its size.

    Args:
        file: The file.
        columns: Columns to read.
        max_rows: Rows to keep at most, drawn at random; their order stays.
        seed: Of the drawing.
    """
    random = np.random.default_rng(seed)
    kept: list[pa.RecordBatch] = []
    keys: list[NDArray[np.float64]] = []
    records: list[NDArray[np.int64]] = []
    count = 0
    for batch in file.batches(columns):
        kept.append(batch)
        records.append(np.arange(count, count + batch.num_rows))
        keys.append(random.random(batch.num_rows))
        count += batch.num_rows
        if max_rows is not None and sum(len(k) for k in keys) > 2 * max_rows:
            kept, keys, records = _smallest(kept, keys, records, max_rows)
    if not count:
        raise BadDataError(f"{file.name}: has a header but no rows.")
    if max_rows is not None and count > max_rows:
        kept, keys, records = _smallest(kept, keys, records, max_rows)
    return Rows(file, pa.Table.from_batches(kept), np.concatenate(records))


def _smallest(
    kept: list[pa.RecordBatch], keys: list[NDArray[np.float64]], records: list[NDArray[np.int64]], most: int
) -> tuple[list[pa.RecordBatch], list[NDArray[np.float64]], list[NDArray[np.int64]]]:
    key, record = np.concatenate(keys), np.concatenate(records)
    if len(key) <= most:
        return kept, keys, records
    keep = key <= np.partition(key, most - 1)[most - 1]
    table = pa.Table.from_batches(kept).filter(pa.array(keep)).combine_chunks()
    return table.to_batches(), [key[keep]], [record[keep]]


def frame_from(
    rows: Rows,
    columns: Sequence[str],
    formats: dict[str, ColumnFormat] | None = None,
    *,
    as_text: Sequence[str] = (),
    gaps: Sequence[str] = GAPS,
) -> tuple[pd.DataFrame, dict[str, ColumnFormat]]:
    """The columns as values, and how they were read.

    Args:
        rows: The rows.
        columns: The columns.
        formats: How to read them, where that is known already.
        as_text: Columns to take as text though they may hold numbers.
        gaps: Texts that stand for a missing value.
    """
    found: dict[str, Any] = {}
    used: dict[str, ColumnFormat] = {}
    comma = rows.file.separator == ","
    for name in columns:
        values = rows.column(name)
        if formats is not None:
            how = formats[name]
        elif name in as_text:
            how = ColumnFormat("text", why="named in --categorical")
        else:
            how = find_format(values, comma_separated=comma, gaps=gaps)
        try:
            found[name] = read_column(values, how, gaps)
        except BadValueError as error:
            raise rows.bad(name, error) from error
        used[name] = how
    return pd.DataFrame(found, columns=list(columns), copy=False), used


def frames(
    file: TableFile, columns: Sequence[str], formats: dict[str, ColumnFormat], more: Sequence[str] = (),
    gaps: Sequence[str] = GAPS,
) -> Iterator[tuple[pd.DataFrame, Rows]]:  # fmt: skip
    """Batches of rows as values, read as they were for training, with the rows they come from.

    Args:
        file: The file.
        columns: The model's columns; an error names those that the file does not have.
        formats: How they are read.
        more: Further columns to have in the rows.
        gaps: Texts that stand for a missing value.
    """
    if missing := [name for name in columns if name not in file.columns]:
        shown = ", ".join(repr(name) for name in missing[:10])
        raise BadDataError(
            f"{file.name}: lacks {len(missing)} column{'s' if len(missing) > 1 else ''} that the model was trained on: "
            f"{shown}{' and more' if len(missing) > 10 else ''}."
        )
    count = 0
    for batch in file.batches(list(dict.fromkeys([*columns, *more]))):
        rows = Rows(file, pa.Table.from_batches([batch]), np.arange(count, count + batch.num_rows))
        count += batch.num_rows
        if batch.num_rows:
            yield frame_from(rows, columns, formats, gaps=gaps)[0], rows


def matched_labels(rows: Rows, name: str, classes: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The target's labels among a model's classes, and which rows have one.

    Returns:
        The labels of the rows that have one, and a mask (rows,).
    """
    known = {label_text(label): label for label in classes.tolist()}
    numeric = classes.dtype.kind in "iuf"
    found: list[Any] = []
    present = np.ones(len(rows), dtype=bool)
    for row, value in enumerate(rows.column(name).to_pylist()):
        key = label_text(value)
        if value is None or key in ("", "?", "nan", "NaN"):
            present[row] = False
            continue
        label = known.get(key)
        if label is None and numeric:
            label = known.get(_number_key(key))
        if label is None:
            label = known.get(key.lower()) if classes.dtype == bool else None
        if label is None:
            shown = ", ".join(repr(c) for c in classes.tolist()[:10])
            raise rows.bad(name, BadValueError(row, key, f"one of the model's classes ({shown})"))
        found.append(label)
    return np.array(found, dtype=classes.dtype), present


def label_text(value: Any) -> str:
    """A label as text: 1, 1.0 and " 1" are the same, and so are True and true."""
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def _number_key(text: str) -> str:
    try:
        return label_text(float(text))
    except ValueError:
        return text


def formats_to_json(formats: dict[str, ColumnFormat]) -> dict[str, dict[str, str]]:
    """For ``model.json``."""
    return {name: {k: v for k, v in asdict(how).items() if v and k != "why"} for name, how in formats.items()}


def formats_from_json(saved: dict[str, dict[str, str]]) -> dict[str, ColumnFormat]:
    """From ``model.json``."""
    return {name: ColumnFormat(**how) for name, how in saved.items()}
