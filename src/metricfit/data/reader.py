"""Tables from files and standard input: what kind of file it is, its columns, its rows, all at once or in batches."""

from __future__ import annotations

import atexit
import bz2
import codecs
import csv
import gzip
import io
import lzma
import os
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq
from numpy.typing import NDArray

from metricfit.choices import Choice, close_to
from metricfit.data.columns import (
    GAPS,
    NAMED_CATEGORY,
    BadValueError,
    ColumnFormat,
    find_format,
    labels_of,
    read_column,
    refuse,
    typed,
)  # fmt: skip
from metricfit.files import names_the_file
from metricfit.labels import repeated

Formats = dict[str, ColumnFormat]
_SAMPLE_BYTES, _LARGEST_SAMPLE = 1 << 18, 1 << 26
_BLOCK_BYTES = 1 << 22
_BATCH_ROWS = 1 << 14
_SEPARATORS = (",", ";", "\t", "|")
_LONGEST_NAME = 1000
_PACKED: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zX": lzma.open}
_DAMAGED = (pa.ArrowException, OSError, EOFError, lzma.LZMAError, zipfile.BadZipFile, zlib.error)


class BadDataError(ValueError):
    """The data cannot be used; the message names the file, and the line and column where there is one."""


class BadArgumentError(ValueError):
    """An argument asks for something that the table does not have; ``problem`` says what to do."""

    def __init__(self, argument: str, problem: str) -> None:
        super().__init__(f"{argument}: {problem}")
        self.argument, self.problem = argument, problem


@dataclass
class TableFile:
    """A file that holds a table: CSV, JSON Lines, Parquet or Excel."""

    path: Path  # where its bytes are; a temporary copy for standard input, and of a URL that is not Parquet
    name: str  # what to call it in messages
    kind: Literal["csv", "parquet", "whole"]  # "whole": JSON Lines and Excel are read at once
    columns: list[str] = field(default_factory=list)  # in the file's order
    separator: str = ","  # between the fields of a CSV file
    encoding: str = "utf-8"  # of a CSV file
    groups: list[int] = field(default_factory=list)  # rows of each row group of a Parquet file
    rows: int = 0  # estimated from the size and the first lines for CSV, else exact; 0 only if there are none
    size: int = 0  # bytes of the rows when they are not compressed, estimated likewise
    table: pa.Table | None = None  # all rows, if they were read at once
    choices: list[Choice] = field(default_factory=list)
    gaps: tuple[str, ...] = GAPS  # texts that stand for a missing value

    def batches(self, columns: Sequence[str] | None = None, group: int | None = None) -> Iterator[Rows]:
        """The rows (of a row group) in order, some ten thousand at a time; all fields of a CSV file are text."""
        wanted = list(self.columns if columns is None else columns)
        if self.table is None:
            found = self._csv_batches(wanted) if self.kind == "csv" else self._parquet_batches(wanted, group)
        else:
            found = iter(self.table.select(wanted).to_batches())
        first = 0
        for batch in found:
            for start in range(0, batch.num_rows, _BATCH_ROWS):
                part = pa.Table.from_batches([batch.slice(start, _BATCH_ROWS)])
                yield Rows(self, part, np.arange(first + start, first + start + len(part)))
            first += batch.num_rows

    def read(self, columns: Sequence[str] | None = None, max_rows: int | None = None, seed: int = 0) -> Rows:
        """All rows, or ``max_rows`` drawn at random, in their order; never more than twice as many are in memory."""
        random, most, keys, kept = np.random.default_rng(seed), max_rows or sys.maxsize, np.empty(0), list[Rows]()
        for rows in self.batches(columns):
            kept, keys = [*kept, rows], np.append(keys, random.random(len(rows)))
            if len(keys) > 2 * most:
                kept, keys = _least(kept, keys, most)
        if not kept:
            raise BadDataError(f"{self.name}: has a header but no rows.")
        return joined(kept if len(keys) <= most else _least(kept, keys, most)[0])

    def frames(
        self, formats: Formats, more: Sequence[str] = (), group: int | None = None
    ) -> Iterator[tuple[pd.DataFrame, Rows]]:
        """Batches of rows as values, read as the formats say, with the rows they come from and ``more`` columns."""
        self.check_columns(formats)
        for rows in self.batches(list(dict.fromkeys([*formats, *more])), group):
            yield rows.frame(formats), rows

    def check_columns(self, names: Iterable[str], argument: str | None = None) -> None:
        """Raise an error for names that are no columns: those of an argument, or else those that a model needs."""
        known = set(self.columns)
        missing = [name for name in names if name not in known]
        if missing and argument is not None:
            what = f"{self.name} has no column {missing[0]!r}; {close_to(missing[0], self.columns)}"
            raise BadArgumentError(argument, what)
        if missing:
            what = f"{len(missing)} column{'s' if len(missing) > 1 else ''} that the model was trained on"
            shown = ", ".join(map(repr, missing[:10])) + (" and more" if len(missing) > 10 else "")
            raise BadDataError(f"{self.name}: lacks {what}: {shown}.")

    def line_of(self, record: int) -> int:
        """The line on which a data record (from 0) starts, header and quoted line breaks counted."""
        if self.kind != "csv":
            return record + 1
        with _opened(self.path) as raw, _text(raw, self.encoding, "strict") as text:
            reader, line, seen = csv.reader(text, delimiter=self.separator), 1, -1
            for fields in reader:
                if fields and seen == record:
                    return line
                line, seen = reader.line_num + 1, seen + bool(fields)
        return record + 2

    def _parquet_batches(self, columns: list[str], group: int | None) -> Iterator[pa.RecordBatch]:
        try:
            with _parquet(self.path, self.name) as file:
                groups = None if group is None else [group]
                yield from file.iter_batches(_BATCH_ROWS, groups, columns=columns, use_threads=False)
        except _DAMAGED as error:
            raise BadDataError(f"{self.name}: damaged Parquet file ({error}).") from error

    def _csv_batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        if not self.rows:
            return
        wrong: list[Any] = []

        def stop(row: Any) -> str:
            wrong.append(row)
            return "error"

        read = pa_csv.ReadOptions(
            column_names=self.columns,
            skip_rows_after_names=1,
            encoding=self.encoding,
            block_size=max(_BLOCK_BYTES, _BLOCK_BYTES // 512 * len(self.columns)),  # some thousand rows of a wide table
            use_threads=False,  # threads read many blocks ahead: a third more memory for little time
        )
        parse = pa_csv.ParseOptions(delimiter=self.separator, newlines_in_values=True, invalid_row_handler=stop)
        text = dict.fromkeys(self.columns, pa.string())
        convert = pa_csv.ConvertOptions(column_types=text, strings_can_be_null=False, include_columns=columns)
        try:
            with _opened(self.path) as raw, pa_csv.open_csv(raw, read, parse, convert) as reader:
                yield from reader
        except (*_DAMAGED, UnicodeError) as error:
            raise BadDataError(self._explained(error, *wrong)) from error

    def _explained(self, error: Exception, row: Any = None) -> str:
        """What is wrong with the file, and with the row at which its reading stopped."""
        if row is None:
            advice = "if it has another encoding, name it, for instance encoding='cp1252'"
            return f"{self.name}: damaged, or not {self.encoding} text ({error}); {advice}."
        last, found = self.columns[min(row.actual_columns, row.expected_columns) - 1], row.actual_columns
        return (
            f"{self.name}, line {self.line_of(row.number - 2)}: expected {row.expected_columns} fields as in the "
            f"header, found {found} field{'s' if found != 1 else ''} (it differs after column {last!r}); correct the "
            f"line, or quote a field that holds the separator {self.separator!r}."
        )


@dataclass
class Rows:
    """Rows of a file as they stand there (text for CSV), and the place of each in the file, from 0."""

    file: TableFile
    table: pa.Table
    records: NDArray[np.int64]

    def column(self, name: str) -> pa.ChunkedArray:
        """A column with one value in each row; bytes are taken as text."""
        values = self.table.column(name)
        with suppress(pa.ArrowInvalid):
            values = pc.cast(values, pa.string()) if pa.types.is_binary(values.type) else values
        if pa.types.is_nested(values.type) or pa.types.is_binary(values.type):
            expected = f"expected one number, text or date in each row, got {str(values.type)[:60]}"
            advice = "ignore the column, or turn it into such columns first"
            raise BadDataError(f"{self.file.name}, column {name!r}: {expected}; {advice}.")
        return values

    def take(self, keep: NDArray[np.bool_]) -> Rows:
        """Some of the rows."""
        return Rows(self.file, self.table.filter(pa.array(keep)), self.records[keep])

    def formats(self, columns: Iterable[str], categorical: Sequence[str] = ()) -> Formats:
        """What the columns hold; those named as categories are taken as such though they may hold numbers."""
        gaps, named = self.file.gaps, dict.fromkeys(categorical, NAMED_CATEGORY)
        return {name: named.get(name) or find_format(self.column(name), gaps) for name in columns}

    def frame(self, formats: Formats | None = None) -> pd.DataFrame:
        """Columns as numbers, truth values, dates (``datetime64``) and categories: by the formats, or by content."""
        formats = self.formats(self.table.column_names) if formats is None else formats
        return pd.DataFrame({name: self.read(name, how) for name, how in formats.items()}, copy=False)

    def read(self, name: str, how: ColumnFormat) -> Any:
        """One column as values; a bad one is named by file, line and column."""
        column = self.column(name)
        with self._named(name):
            values = read_column(column, how, self.file.gaps, strict=how.style != "lenient")
            if how.kind == "number" and values.dtype.kind == "f":
                refuse(np.isinf(values), column, "a finite number")
            return typed(values, how)

    def labels(self, name: str, how: ColumnFormat | None = None) -> pd.Series[Any]:
        """The labels in a column, see :func:`labels_of`; a bad one is named likewise."""
        with self._named(name):
            return labels_of(self.column(name), how)

    def refuse(self, name: str, wrong: NDArray[np.bool_], expected: str) -> None:
        """Raise an error that names file, line and column of the first value that is wrong, if there is one."""
        with self._named(name):
            refuse(wrong, self.column(name), expected)

    @contextmanager
    def _named(self, name: str) -> Iterator[None]:
        try:
            yield
        except BadValueError as error:
            line = self.file.line_of(int(self.records[error.row]))
            what = "line" if self.file.kind == "csv" else "row"
            raise BadDataError(f"{self.file.name}, {what} {line}, column {name!r}: {error}.") from error

    def __len__(self) -> int:
        return len(self.table)


def _least(kept: list[Rows], keys: NDArray[np.float64], most: int) -> tuple[list[Rows], NDArray[np.float64]]:
    """The rows with the least keys, and these."""
    keep = keys <= np.partition(keys, most - 1)[most - 1]
    return [joined(kept).take(keep)], keys[keep]


def joined(parts: Sequence[Rows]) -> Rows:
    """Rows of one or several files, one after another."""
    table = pa.concat_tables([part.table for part in parts], promote_options="permissive")
    return Rows(parts[0].file, table, np.concatenate([part.records for part in parts]))


def open_table(path: str | os.PathLike[str], *, separator: str | None = None, encoding: str | None = None) -> TableFile:
    r"""Look at a file: its kind, columns, separator and encoding.

    Args:
        path: A CSV, JSON Lines, Parquet or Excel (first sheet) file, whatever its name, also packed by gzip, bzip2, xz
            or as the only file of a zip archive; ``-`` for standard input.
        separator: Of a CSV file, if it is not to be found out.
        encoding: Likewise.

    Example:
        >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        ...     _ = file.write("size;paid;on\n1,5;true;31.12.2024\n?;false;01.02.2025\n")
        ...     file.flush()
        ...     open_table(file.name).read().frame()
           size   paid         on
        0   1.5   True 2024-12-31
        1   NaN  False 2025-02-01
    """
    name = "standard input" if path == "-" else os.fspath(path)
    file, remote = _spooled(sys.stdin.buffer) if path == "-" else Path(name), is_url(name)
    if not remote and file.is_dir():
        raise BadArgumentError("path", f"{name} is a folder, expected a file that holds a table.")
    if not remote and not file.exists():
        raise BadArgumentError("path", f"{name}: no such file.")
    with _open_url(name) if remote else file.open("rb") as start:
        magic = start.read(4)
        if remote and magic not in (b"", b"PAR1"):
            start.seek(0)
            file = _spooled(start)
    if not magic:
        raise BadDataError(f"{name}: the file is empty.")
    try:
        if magic == b"PAR1":
            with _parquet(file, name) as content:
                groups = [content.metadata.row_group(i) for i in range(content.metadata.num_row_groups)]
                names, rows = _checked_names(list(content.schema_arrow.names), name), [g.num_rows for g in groups]
                size = sum(group.total_byte_size for group in groups)
                return TableFile(file, name, "parquet", names, groups=rows, rows=sum(rows), size=size)
        if magic == b"PK\3\4" and "xl/workbook.xml" in zipfile.ZipFile(file).namelist():
            return _whole(file, name, _read_excel(file, name))
        with _opened(file, name) as raw:
            sample = rest = raw.read(_SAMPLE_BYTES)
            while rest and len(sample.splitlines()) < 3 and len(sample) < _LARGEST_SAMPLE:  # a wide table
                sample += (rest := raw.read(len(sample)))
            whole = not raw.read(1)
        if sample.lstrip()[:1] == b"{":
            with _opened(file) as raw:
                return _whole(file, name, pa_json.read_json(raw))
    except _DAMAGED as error:
        kind = "Parquet file" if magic == b"PAR1" else "file, or no table"
        raise BadDataError(f"{name}: damaged {kind} ({str(error).strip()[:200]}).") from error
    csv.field_size_limit(1 << 30)
    return _open_csv(file, name, sample, whole, magic.startswith((*_PACKED, b"PK")), separator, encoding)


def is_url(name: str) -> bool:
    """Whether a name is an address such as ``s3://bucket/rows.parquet``, not a path."""
    return "://" in name


@contextmanager
def reaching(url: str) -> Iterator[tuple[Any, str]]:
    """The file system of an address, through fsspec, and the place in it; a failure names the address."""
    import fsspec

    try:
        yield fsspec.url_to_fs(url)
    except Exception as error:  # each store has its own kinds of errors
        advice = "check the address, the network and the credentials"
        raise BadDataError(f"{url}: cannot be reached ({type(error).__name__}: {error}); {advice}.") from error


def _open_url(url: str) -> Any:
    with reaching(url) as (files, place):
        return files.open(place, "rb")


@contextmanager
def _parquet(path: Path, name: str) -> Iterator[pq.ParquetFile]:
    with _open_url(name) if is_url(name) else path.open("rb") as raw, pq.ParquetFile(raw) as content:
        yield content


def _whole(path: Path, name: str, table: pa.Table) -> TableFile:
    table = table.rename_columns(_checked_names(table.column_names, name))
    return TableFile(path, name, "whole", table.column_names, rows=len(table), size=table.nbytes, table=table)


def _read_excel(path: Path, name: str) -> pa.Table:
    """The first sheet; columns of several types become text."""
    try:
        sheet = pd.read_excel(path, keep_default_na=False, na_values=[""])
    except ImportError:
        advice = "install it with: pip install 'metricfit[excel]'"
        raise BadDataError(f"{name}: Excel files need openpyxl; {advice}") from None
    for column in sheet:
        if pd.api.types.infer_dtype(sheet[column], skipna=True).startswith("mixed"):
            sheet[column] = sheet[column].map(str, na_action="ignore")
    return pa.Table.from_pandas(sheet.set_axis(sheet.columns.astype(str), axis=1), preserve_index=False)


def _open_csv(
    path: Path, name: str, sample: bytes, whole: bool, packed: bool, separator: str | None, encoding: str | None
) -> TableFile:
    table = TableFile(path, name, "csv")
    table.encoding = encoding or _find_encoding(sample, table.choices)
    try:
        with _text(io.BytesIO(sample), table.encoding, "replace") as text:
            content = text.read()
    except LookupError:
        raise BadArgumentError("encoding", f"{encoding!r} is no encoding; try utf-8, cp1252 or latin-1.") from None
    if "\0" in content[:1000]:
        raise BadDataError(f"{name}: neither text nor Parquet.")
    if content.lstrip()[:1] == "[":
        raise BadDataError(f"{name}: JSON that is one array; write one object per line (JSON Lines).")
    table.separator = separator or _find_separator(content, whole, table.choices)
    if len(table.separator) != 1:
        raise BadArgumentError("separator", f"expected one character, got {table.separator!r}.")
    records = _sample_records(content, table.separator, whole)
    if not records:
        raise BadDataError(f"{name}: holds no header.")
    table.columns = _checked_names(records[0], name)
    table.size = path.stat().st_size * (4 if packed else 1)
    shown = len(records) - 1
    table.rows = shown if whole else max(1, table.size * shown // len(sample))
    return table


def _spooled(stream: IO[bytes]) -> Path:
    """Standard input as a file: it is read more than once, and may be larger than memory."""
    handle, name = tempfile.mkstemp(prefix="metricfit-stdin-")
    atexit.register(lambda: Path(name).unlink(missing_ok=True))
    with names_the_file(Path(name)), os.fdopen(handle, "wb") as file:
        shutil.copyfileobj(stream, file)
    return Path(name)


def _opened(path: Path, name: str = "") -> Any:
    """The bytes of a file, unpacked."""
    with path.open("rb") as start:
        magic = start.read(4)
    if magic == b"PK\3\4":
        archive = zipfile.ZipFile(path)
        members = [one for one in archive.infolist() if not one.is_dir()]
        if len(members) != 1:
            raise BadDataError(f"{name}: a zip archive of {len(members)} files, expected one; unpack it, and name one.")
        return archive.open(members[0])
    return next((unpack for mark, unpack in _PACKED.items() if magic.startswith(mark)), open)(path, "rb")


def _text(raw: Any, encoding: str, errors: str) -> io.TextIOWrapper:
    # A byte order mark is no part of the first column's name.
    return io.TextIOWrapper(raw, encoding="utf-8-sig" if encoding == "utf-8" else encoding, errors=errors, newline="")


def _find_encoding(sample: bytes, choices: list[Choice]) -> str:
    if sample[:2] in (b"\xff\xfe", b"\xfe\xff"):
        choices.append(Choice("file", "encoding utf-16: the file starts with its mark", ("encoding",)))
        return "utf-16"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)  # which may end in the middle of a character
    except UnicodeDecodeError as error:
        choices.append(Choice("file", f"encoding cp1252: byte {error.start} is not UTF-8", ("encoding",)))
        return "cp1252"
    return "utf-8"


def _find_separator(content: str, whole: bool, choices: list[Choice]) -> str:
    best, score = ",", (0.0, 0)
    for candidate in _SEPARATORS:
        widths = [len(record) for record in _sample_records(content, candidate, whole)] or [0]
        share = widths.count(widths[0]) / len(widths)
        if widths[0] > 1 and (share, widths[0]) > score:
            best, score = candidate, (share, widths[0])
    if best != ",":
        shown = "tab" if best == "\t" else best
        found = f"separator {shown!r}: it divides the lines into {score[1]} fields"
        choices.append(Choice("file", found, ("separator",)))
    return best


def _sample_records(content: str, separator: str, whole: bool) -> list[list[str]]:
    try:
        records = [fields for fields in csv.reader(io.StringIO(content, newline=""), delimiter=separator) if fields]
    except csv.Error:
        return []
    return records if whole or len(records) < 2 else records[:-1]


def _checked_names(names: list[str], file: str) -> list[str]:
    cleaned = [name.strip() or f"column_{i}" for i, name in enumerate(names, start=1)]
    if longest := next((name for name in cleaned if len(name) > _LONGEST_NAME), ""):
        shown = f"{len(longest):,} characters ({longest[:40]!r}…)"
        raise BadDataError(f"{file}, line 1: a column name of {shown}; is it a header?")
    if twice := repeated(cleaned):
        raise BadDataError(f"{file}, line 1: the header has the column {twice[0]!r} twice; rename one of them.")
    return cleaned
