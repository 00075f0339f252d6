"""Tables from files and standard input: what kind of file it is, its columns, its rows batch by batch."""

from __future__ import annotations

import csv
import gzip
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from metricfit.cli.errors import BadDataError, UsageError, close_to

__all__ = ["TableFile", "open_table"]

_SAMPLE_BYTES = 1 << 18
_BLOCK_BYTES = 1 << 22
_BATCH_ROWS = 1 << 14
_SEPARATORS = (",", ";", "\t", "|")


@dataclass
class TableFile:
    """A CSV or Parquet file.

    Attributes:
        path: Where its bytes are; a temporary copy for standard input.
        name: What to call it in messages.
        kind: ``"csv"`` or ``"parquet"``.
        columns: Names of the columns in the file's order.
        separator: Between the fields of a CSV file.
        encoding: Of a CSV file.
        compressed: Whether a CSV file is gzipped.
        rows: Number of rows: exact for Parquet, else estimated from the size and the first lines.
        size: Bytes of the rows when they are not compressed, estimated likewise.
        choices: What was found out about the file, in words.
    """

    path: Path
    name: str
    kind: str
    columns: list[str] = field(default_factory=list)
    separator: str = ","
    encoding: str = "utf-8"
    compressed: bool = False
    rows: int = 0
    size: int = 0
    choices: list[str] = field(default_factory=list)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows in order, some ten thousand at a time; all fields of a CSV file are text.

        Args:
            columns: Only these.
        """
        wanted = list(self.columns if columns is None else columns)
        found = self._parquet_batches(wanted) if self.kind == "parquet" else self._csv_batches(wanted)
        for batch in found:
            for start in range(0, batch.num_rows, _BATCH_ROWS):
                yield batch.slice(start, _BATCH_ROWS)

    def check_columns(self, names: Sequence[str], option: str) -> None:
        """Raise a usage error, with what is close, for a name that is no column."""
        for name in names:
            if name not in self.columns:
                raise UsageError(f"{option}: {self.name} has no column {name!r}; {close_to(name, self.columns)}")

    def line_of(self, record: int) -> int:
        """The line on which a data record (from 0) starts, header and quoted line breaks counted."""
        if self.kind == "parquet":
            return record + 1
        for number, (line, _) in enumerate(self._records()):
            if number == record + 1:
                return line
        return record + 2

    def _parquet_batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        try:
            with pq.ParquetFile(self.path) as file:
                yield from file.iter_batches(_BATCH_ROWS, columns=columns)
        except pa.ArrowException as error:
            raise BadDataError(f"{self.name}: damaged Parquet file ({error}).") from error

    def _csv_batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        read = pa_csv.ReadOptions(
            column_names=self.columns,
            skip_rows_after_names=1,
            encoding=self.encoding,
            block_size=_BLOCK_BYTES,
            use_threads=False,  # threads read many blocks ahead: a third more memory for little time
        )
        parse = pa_csv.ParseOptions(delimiter=self.separator, newlines_in_values=True)
        text = dict.fromkeys(self.columns, pa.string())
        convert = pa_csv.ConvertOptions(column_types=text, strings_can_be_null=False, include_columns=columns)
        try:
            with (
                pa.input_stream(str(self.path), compression="gzip" if self.compressed else None) as stream,
                pa_csv.open_csv(stream, read_options=read, parse_options=parse, convert_options=convert) as reader,
            ):
                yield from reader
        except (pa.ArrowException, UnicodeDecodeError, EOFError) as error:
            if "Empty CSV" in str(error):
                return
            raise self._explained(error) from error

    def _explained(self, error: Exception) -> BadDataError:
        """What is wrong, with its line: found by reading the file once more, slowly."""
        try:
            for line, fields in self._records():
                if len(fields) != len(self.columns):
                    found = f"{len(fields)} field{'s' if len(fields) != 1 else ''}"
                    where = f"after column {self.columns[min(len(fields), len(self.columns)) - 1]!r}"
                    return BadDataError(
                        f"{self.name}, line {line}: expected {len(self.columns)} fields as in the header, found {found}"
                        f" (it differs {where}); correct the line, or quote a field that holds the separator "
                        f"{self.separator!r}."
                    )
        except UnicodeDecodeError as wrong:
            return BadDataError(
                f"{self.name}: not {self.encoding} text at byte {wrong.start} of a block; name the encoding, for "
                "instance --encoding cp1252."
            )
        except (EOFError, OSError, csv.Error) as wrong:
            return BadDataError(f"{self.name}: damaged, it cannot be read to its end ({wrong}).")
        return BadDataError(f"{self.name}: cannot be read as CSV ({error}).")

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        with _opened(self.path, self.compressed) as raw, _text(raw, self.encoding, "strict") as text:
            line = 1
            reader = csv.reader(text, delimiter=self.separator)
            for fields in reader:
                if fields:
                    yield line, fields
                line = reader.line_num + 1


def open_table(path: str, *, separator: str | None = None, encoding: str | None = None) -> TableFile:
    """Look at a file: its kind, columns, separator and encoding.

    Args:
        path: A CSV, CSV.gz or Parquet file, whatever its name; ``-`` for standard input.
        separator: Of a CSV file, if it is not to be found out.
        encoding: Likewise.
    """
    name = "standard input" if path == "-" else path
    file = Path(path) if path != "-" else _spooled(sys.stdin.buffer)
    if file.is_dir():
        raise UsageError(f"{name}: is a folder, expected a CSV or Parquet file.")
    if not file.exists():
        raise UsageError(f"{name}: no such file.")
    with file.open("rb") as start:
        magic = start.read(4)
    if not magic:
        raise BadDataError(f"{name}: the file is empty.")
    if magic == b"PAR1":
        return _open_parquet(file, name)
    csv.field_size_limit(1 << 30)
    return _open_csv(file, name, magic[:2] == b"\x1f\x8b", separator, encoding)


def _open_parquet(path: Path, name: str) -> TableFile:
    try:
        with pq.ParquetFile(path) as file:
            columns, rows = list(file.schema_arrow.names), int(file.metadata.num_rows)
            size = sum(file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups))
    except pa.ArrowException as error:
        raise BadDataError(f"{name}: damaged Parquet file ({error}).") from error
    return TableFile(path, name, "parquet", _checked_names(columns, name), rows=rows, size=size)


def _open_csv(path: Path, name: str, compressed: bool, separator: str | None, encoding: str | None) -> TableFile:
    try:
        with _opened(path, compressed) as raw:
            sample = raw.read(_SAMPLE_BYTES)
    except (EOFError, OSError) as error:
        raise BadDataError(f"{name}: damaged, it cannot be read ({error}).") from error
    table = TableFile(path, name, "csv", compressed=compressed)
    table.encoding = encoding or _find_encoding(sample, table.choices)
    try:
        with _text(io.BytesIO(sample), table.encoding, "replace") as text:
            content = text.read()
    except LookupError:
        raise UsageError(f"--encoding: {encoding!r} is no encoding; try utf-8, cp1252 or latin-1.") from None
    if "\0" in content[:1000]:
        raise BadDataError(f"{name}: neither text nor Parquet.")
    whole = len(sample) < _SAMPLE_BYTES
    table.separator = separator or _find_separator(content, whole, table.choices)
    if len(table.separator) != 1:
        raise UsageError(f"--separator: expected one character, got {table.separator!r}.")
    records = _sample_records(content, table.separator, whole)
    if not records:
        raise BadDataError(f"{name}: holds no header.")
    table.columns = _checked_names(records[0], name)
    table.size = path.stat().st_size * (4 if compressed else 1)
    shown = max(1, len(records) - 1)
    table.rows = shown if whole else int(table.size / (len(sample) / shown))
    return table


def _spooled(stream: IO[bytes]) -> Path:
    """Standard input as a file: it is read more than once, and may be larger than memory."""
    handle, name = tempfile.mkstemp(prefix="metricfit-stdin-")
    with os.fdopen(handle, "wb") as file:
        shutil.copyfileobj(stream, file)
    import atexit

    atexit.register(lambda: Path(name).unlink(missing_ok=True))
    return Path(name)


def _opened(path: Path, compressed: bool) -> Any:
    return gzip.open(path, "rb") if compressed else path.open("rb")


def _text(raw: Any, encoding: str, errors: str) -> io.TextIOWrapper:
    # A byte order mark is no part of the first column's name.
    return io.TextIOWrapper(raw, encoding="utf-8-sig" if encoding == "utf-8" else encoding, errors=errors, newline="")


def _find_encoding(sample: bytes, choices: list[str]) -> str:
    if sample[:2] in (b"\xff\xfe", b"\xfe\xff"):
        choices.append("encoding utf-16: the file starts with its mark (--encoding)")
        return "utf-16"
    try:
        sample.decode()
    except UnicodeDecodeError as error:
        # The sample may end in the middle of a character.
        if error.start < len(sample) - 4:
            choices.append(f"encoding cp1252: byte {error.start} is not UTF-8 (--encoding)")
            return "cp1252"
    return "utf-8"


def _find_separator(content: str, whole: bool, choices: list[str]) -> str:
    best, score = ",", (0.0, 0)
    for candidate in _SEPARATORS:
        records = _sample_records(content, candidate, whole)
        width = len(records[0]) if records else 0
        if width < 2:
            continue
        share = sum(len(record) == width for record in records) / len(records)
        if (share, width) > score:
            best, score = candidate, (share, width)
    if best != ",":
        shown = "tab" if best == "\t" else best
        choices.append(f"separator {shown!r}: it divides the lines into {score[1]} fields (--separator)")
    return best


def _sample_records(content: str, separator: str, whole: bool) -> list[list[str]]:
    try:
        records = [fields for fields in csv.reader(io.StringIO(content, newline=""), delimiter=separator) if fields]
    except csv.Error:
        return []
    return records if whole or len(records) < 2 else records[:-1]


def _checked_names(names: list[str], file: str) -> list[str]:
    cleaned = [name.strip() or f"column_{i}" for i, name in enumerate(names, start=1)]
    for name in cleaned:
        if cleaned.count(name) > 1:
            raise BadDataError(f"{file}, line 1: the header has the column {name!r} twice; rename one of them.")
    return cleaned
