"""Text to values: what a column of a CSV file holds, and the same reading again for new rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["GAPS", "BadValueError", "ColumnFormat", "find_format", "read_column", "read_target"]

GAPS = ("", "?", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "#N/A")
"""Texts that stand for a missing value; a target keeps all but the first two and NaN."""

_TARGET_GAPS = ("", "?", "NaN", "nan")
_DECIMAL_COMMA = r"^[+-]?\d*(,\d+)?([eE][+-]?\d+)?$"
_THOUSANDS = r"^[+-]?\d{1,3}(,\d{3})+(\.\d+)?$|^[+-]?\d+(\.\d+)?$"
_CODE = r"^0\d+$"
_LENIENT_SHARE, _LENIENT_DISTINCT = 0.9, 20
_DATE_FORMATS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%Y%m%d")
_TIMES = ("", " %H:%M", " %H:%M:%S")


class BadValueError(ValueError):
    """A value that a column cannot hold.

    Attributes:
        row: Its place among the values.
        value: The text.
        expected: What the column holds.
    """

    def __init__(self, row: int, value: str, expected: str) -> None:
        super().__init__(f"expected {expected}, got {value!r}")
        self.row, self.value, self.expected = row, value, expected


@dataclass(frozen=True)
class ColumnFormat:
    """How the text of a column is read.

    Attributes:
        kind: ``"number"``, ``"flag"``, ``"date"`` or ``"text"``.
        style: Of numbers ``"decimal_comma"``, ``"thousands"`` or ``"lenient"`` (what is no number is a gap); of dates
            the format, if it is not ISO 8601.
        why: In words, where it is not plain to see.
    """

    kind: str
    style: str = ""
    why: str = ""


def find_format(values: pa.ChunkedArray, *, comma_separated: bool, gaps: Sequence[str] = GAPS) -> ColumnFormat:
    """What a column holds, from all of its values.

    >>> find_format(pa.chunked_array([["1,5", "?", "2,25"]]), comma_separated=False).style
    'decimal_comma'
    """
    if not pa.types.is_string(values.type) and not pa.types.is_large_string(values.type):
        return _typed_format(values.type)
    present = _without_gaps(values, gaps).drop_null()
    if not len(present):
        return ColumnFormat("number")
    if _is_number(present):
        if _any(pc.match_substring_regex(present, _CODE)):
            return ColumnFormat("text", why="digits with leading zeros, taken as codes")
        return ColumnFormat("number")
    if _all(pc.match_substring_regex(present, r"(?i)^(true|false)$")):
        return ColumnFormat("flag")
    if _any(pc.match_substring(present, ",")):
        thousands = _all(pc.match_substring_regex(present, _THOUSANDS))
        decimal = _all(pc.match_substring_regex(present, _DECIMAL_COMMA))
        if decimal and not (thousands and comma_separated):
            return ColumnFormat("number", "decimal_comma", "numbers with a decimal comma")
        if thousands:
            return ColumnFormat("number", "thousands", "numbers with commas between thousands")
    if date := _date_format(present):
        return ColumnFormat("date", date, f"dates written as {date}")
    return _mixed(present)


def read_column(values: pa.ChunkedArray, how: ColumnFormat, gaps: Sequence[str] = GAPS) -> Any:
    """The values of a column as an array of numbers or a pandas Series.

    Raises:
        BadValueError: For the first value that does not go with the format.
    """
    if not pa.types.is_string(values.type) and not pa.types.is_large_string(values.type):
        return _read_typed(values, how)
    clean = _without_gaps(values, gaps)
    if how.kind == "text":
        return clean.to_pandas()
    if how.kind == "flag":
        return _read_flags(clean)
    if how.kind == "date":
        return _read_dates(clean, how.style)
    return _read_numbers(clean, how.style)


def read_target(values: pa.ChunkedArray) -> pd.Series[Any]:
    """Labels as whole numbers, truth values, numbers or text, with None or NaN where there is none.

    >>> read_target(pa.chunked_array([["1", "0", ""]])).tolist()
    [1, 0, None]
    """
    if not pa.types.is_string(values.type) and not pa.types.is_large_string(values.type):
        series: pd.Series[Any] = values.to_pandas()
        if isinstance(series.dtype, pd.CategoricalDtype):
            series = series.astype(object)
        if pa.types.is_integer(values.type) or _whole(series):
            return pd.Series([None if pd.isna(v) else int(v) for v in series], dtype=object)
        return series
    clean = _without_gaps(values, _TARGET_GAPS)
    present = clean.drop_null()
    if len(present) and _is_number(present) and not _any(pc.match_substring_regex(present, _CODE)):
        if _all(pc.match_substring_regex(present, r"^[+-]?\d+(\.0*)?$")):
            numbers = _read_numbers(clean, "")
            return pd.Series([None if np.isnan(v) else int(v) for v in numbers], dtype=object)
        return pd.Series(_read_numbers(clean, ""))
    if len(present) and _all(pc.match_substring_regex(present, r"(?i)^(true|false)$")):
        return _read_flags(clean)
    return pd.Series(clean.to_pandas(), dtype=object)


def _whole(series: pd.Series[Any]) -> bool:
    if series.dtype.kind != "f":
        return False
    present = series.dropna()
    return bool((present == present.round()).all())


def _without_gaps(values: pa.ChunkedArray, gaps: Sequence[str]) -> pa.ChunkedArray:
    trimmed = pc.utf8_trim_whitespace(values)
    gap = pc.is_in(trimmed, value_set=pa.array(list(gaps), pa.string()))
    return pc.if_else(gap, pa.scalar(None, trimmed.type), trimmed)


def _is_number(present: pa.ChunkedArray) -> bool:
    try:
        pc.cast(present, pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def _numbers_or_nan(clean: pa.ChunkedArray) -> np.ndarray[Any, Any]:
    """Each text as a number, NaN where it is none."""
    series = clean.to_pandas()
    return np.array(pd.to_numeric(series, errors="coerce"), dtype=np.float64)


def _read_numbers(clean: pa.ChunkedArray, style: str) -> Any:
    if style == "decimal_comma":
        clean = pc.replace_substring(clean, ",", ".")
    elif style == "thousands":
        clean = pc.replace_substring(clean, ",", "")
    try:
        numbers = np.array(pc.cast(clean, pa.float64()).to_pandas(), dtype=np.float64)
    except pa.ArrowInvalid:
        numbers = _numbers_or_nan(clean)
        if style != "lenient":
            row = int(np.flatnonzero(np.isnan(numbers) & np.asarray(pc.is_valid(clean)))[0])
            raise BadValueError(row, clean[row].as_py(), "a number") from None
    if np.isinf(numbers).any():
        row = int(np.flatnonzero(np.isinf(numbers))[0])
        raise BadValueError(row, clean[row].as_py(), "a finite number")
    return numbers


def _read_flags(clean: pa.ChunkedArray) -> pd.Series[Any]:
    lower = pc.utf8_lower(clean)
    true, false = (pc.is_in(lower, value_set=pa.array(words)) for words in (["true", "1"], ["false", "0"]))
    wrong = pc.and_(pc.is_valid(lower), pc.invert(pc.or_(true, false)))
    if _any(wrong):
        row = int(np.flatnonzero(np.asarray(wrong))[0])
        raise BadValueError(row, clean[row].as_py(), "true or false")
    flags = pc.if_else(pc.is_null(lower), pa.scalar(None, pa.bool_()), true)
    return pd.Series(flags.to_pandas(), dtype=object)


def _read_dates(clean: pa.ChunkedArray, style: str) -> pd.Series[Any]:
    series: pd.Series[Any] = clean.to_pandas()
    if not style:
        return series
    parsed: pd.Series[Any] = pd.to_datetime(series, format=style, errors="coerce")
    wrong = parsed.isna() & series.notna()
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise BadValueError(row, str(series.iloc[row]), f"a date written as {style}")
    return parsed


def _date_format(present: pa.ChunkedArray) -> str:
    first = present[0].as_py()
    if not any(mark in first for mark in "./-") or not first[0].isdigit():
        return ""
    sample = present.slice(0, 1000).to_pandas()
    for date in _DATE_FORMATS[:-1]:
        for time in _TIMES:
            if pd.to_datetime(sample, format=date + time, errors="coerce").notna().all():
                series = present.to_pandas()
                if pd.to_datetime(series, format=date + time, errors="coerce").notna().all():
                    return date + time
    return ""


def _mixed(present: pa.ChunkedArray) -> ColumnFormat:
    numbers = _numbers_or_nan(present)
    other = np.isnan(numbers)
    if other.mean() > 1 - _LENIENT_SHARE or len(np.unique(numbers[~other])) <= _LENIENT_DISTINCT:
        return ColumnFormat("text")
    shown = ", ".join(repr(v) for v in pc.unique(present.filter(pa.array(other))).to_pylist()[:3])
    return ColumnFormat(
        "number", "lenient", f"numbers, but for {int(other.sum())} other values ({shown}, …), taken as gaps"
    )


def _typed_format(kind: pa.DataType) -> ColumnFormat:
    if pa.types.is_boolean(kind):
        return ColumnFormat("flag")
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return ColumnFormat("number")
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return ColumnFormat("date")
    return ColumnFormat("text")


def _read_typed(values: pa.ChunkedArray, how: ColumnFormat) -> Any:
    kind = values.type
    if pa.types.is_decimal(kind):
        values = pc.cast(values, pa.float64())
    if how.kind == "text" and not pa.types.is_dictionary(kind):
        return pc.cast(values, pa.string()).to_pandas()
    if pa.types.is_date(kind):
        return pd.to_datetime(values.to_pandas())
    return values.to_pandas()


def _any(flags: Any) -> bool:
    return bool(pc.any(flags).as_py())


def _all(flags: Any) -> bool:
    return bool(pc.all(flags).as_py())
