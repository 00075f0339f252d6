"""A table's columns: from any table or file, what each holds, and its values.

Typed columns (numbers, truth values, dates, categories) are believed. Text is typed by its content.
"""

from __future__ import annotations

import datetime
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_array

from metricfit.data.errors import BadValueError
from metricfit.labels import repeated

__all__ = [
    "GAPS",
    "LABEL_GAPS",
    "Column",
    "ColumnFormat",
    "Kind",
    "Table",
    "as_dates",
    "as_keys",
    "as_numbers",
    "find_format",
    "formats_from_json",
    "formats_to_json",
    "identifier_reason",
    "is_frame",
    "labels_of_column",
    "read_column",
    "without_gaps",
]  # fmt: skip

Column = NDArray[Any] | pd.Series
"""Values of one column: an array of numbers or booleans (NaN for gaps), else a pandas Series."""

Kind = Literal["number", "flag", "date", "category", "empty"]

GAPS = (
    "", "?", "NA", "N/A", "n/a", "NaN", "nan", "-NaN", "-nan", "<NA>", "NULL", "null", "None", "#N/A", "#NA",
    "#N/A N/A", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN",
)  # fmt: skip
"""Texts that stand for a missing value: "?" and those that :func:`pandas.read_csv` knows."""

LABEL_GAPS = ("", "?", "NaN", "nan")
"""Texts that stand for a missing label; other words for gaps, such as "None", may be the name of a class."""

_NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal", "timedelta", "timedelta64")
_DATES = ("datetime64", "datetime", "date", "period")
_ISO_DATE = r"^\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?$"
_UTC_OFFSET = r"([T ]\d{2}[\d:.,]*) ?(?:Z|[+-]\d{2}(?::?\d{2})?)$"
_DECIMAL_COMMA = r"^[+-]?\d*(,\d+)?([eE][+-]?\d+)?$"
_GROUPED = r"^[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?$"
_THOUSANDS = rf"{_GROUPED}|^[+-]?\d{{1,3}}(\.\d+)?$"
_CODE = r"^0\d+$"
_FLAG = r"(?i)^(true|false)$"
_LENIENT_SHARE, _LENIENT_DISTINCT = 0.9, 20
_DATE_FORMATS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y")
_TIMES = ("", " %H:%M", " %H:%M:%S")
_LOOKED_AT = 1000
_ID_NAME = re.compile(r"(^|[\W_])(id|index|uuid|rownum|row_number)$|^unnamed|[a-z]I[Dd]$|^column_1$", re.IGNORECASE)
_FEWEST_IDENTIFIERS = 20


class Table:
    """Columns of ``X`` by position, each converted only when it is asked for.

    Nothing is copied here: a column of an array or a frame is a view wherever its type allows that.

    Args:
        X: Two-dimensional array or list, pandas or polars frame, or sparse matrix.

    Attributes:
        rows: Number of rows.
        names: Names of the columns of a frame, None for other tables.

    Example:
        >>> table = Table([[1, "a"], [2, "b"]])
        >>> table.rows, table.columns
        (2, 2)
    """

    def __init__(self, X: Any) -> None:
        self.names: list[Any] | None = None
        if _is_polars(X):
            if not hasattr(X, "height"):
                raise TypeError("X: expected a polars DataFrame, got a LazyFrame; call .collect() first.")
            self.names, self.rows, self.columns = list(X.columns), int(X.height), int(X.width)
        elif isinstance(X, pd.DataFrame):
            self.names, (self.rows, self.columns) = list(X.columns), X.shape
        else:
            if isinstance(X, list | tuple) and np.asarray(X).dtype.kind in "US":
                # NumPy would turn the numbers of a mixed list into text.
                X = np.array(X, dtype=object)
            X = check_array(X, accept_sparse="csc", dtype=None, ensure_all_finite=False)
            self.rows, self.columns = X.shape
        if self.rows == 0 or self.columns == 0:
            what = "sample(s)" if self.rows == 0 else "feature(s)"
            shape = f"(shape=({self.rows}, {self.columns}))"
            raise ValueError(f"X: found 0 {what} {shape} while a minimum of 1 is required.")
        if self.names is not None and (twice := repeated(self.names)):
            raise ValueError(f"X: column names must be distinct, got {twice[0]!r} twice; rename one of them.")
        self._data: Any = X

    def column(self, position: int) -> Column:
        """The values of one column."""
        data = self._data
        if isinstance(data, pd.DataFrame):
            return _plain(data.iloc[:, position])
        if isinstance(data, np.ndarray):
            values = data[:, position]
            return values if values.dtype.kind in "biuf" else _plain(pd.Series(values, copy=False))
        if isinstance(data, sparse.sparray | sparse.spmatrix):
            return np.asarray(self._data[:, [position]].toarray()[:, 0])
        return _from_arrow(data[:, position].to_arrow())

    def positions(self, names: list[str]) -> list[int]:
        """Where the named columns are; the order in the frame does not matter, further columns are ignored."""
        where = {name: i for i, name in enumerate(self.names or [])}
        missing = [name for name in names if name not in where]
        if missing:
            raise ValueError(
                f"X: columns seen in fit are missing: {', '.join(repr(m) for m in missing[:10])}"
                f"{' and more' if len(missing) > 10 else ''}; got {list(where)[:20]}."
            )
        return [where[name] for name in names]


def is_frame(X: Any) -> bool:
    """Whether ``X`` is a pandas or polars frame.

    >>> is_frame([[1.0]])
    False
    """
    return isinstance(X, pd.DataFrame) or _is_polars(X)


def _from_arrow(values: Any) -> Column:
    """A typed Arrow column, as Parquet files and polars frames have them; other columns as they are."""
    if isinstance(values, np.ndarray | pd.Series):
        return values
    if pa.types.is_decimal(values.type):
        values = pc.cast(values, pa.float64())
    elif pa.types.is_date(values.type):
        values = pc.cast(values, pa.timestamp("us"))
    return _plain(values.to_pandas())


def _is_polars(X: Any) -> bool:
    # A polars frame can only arrive when polars has been imported; importing it here would cost everyone else.
    polars = sys.modules.get("polars")
    return polars is not None and isinstance(X, polars.DataFrame | polars.LazyFrame)


def _plain(values: pd.Series[Any]) -> Column:
    """Numbers, booleans and durations (in days) as an array, gaps as NaN; all else unchanged."""
    dtype = values.dtype
    if pd.api.types.is_complex_dtype(dtype):
        raise ValueError(f"Complex data not supported: column {values.name!r} of X has type {dtype}.")
    if dtype.kind == "m":
        return np.asarray(values.dt.total_seconds() / 86400.0, dtype=np.float64)
    if isinstance(dtype, np.dtype):
        return values.to_numpy() if dtype.kind in "biuf" else values
    if isinstance(dtype, pd.SparseDtype):
        return _plain(pd.Series(np.asarray(values), name=values.name, copy=False))
    if pd.api.types.is_bool_dtype(dtype) or pd.api.types.is_numeric_dtype(dtype):
        if isinstance(dtype, pd.CategoricalDtype):
            return values
        if not values.isna().any():
            return values.to_numpy(dtype=getattr(dtype, "numpy_dtype", np.dtype(np.float64)))
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    return values


@dataclass(frozen=True)
class ColumnFormat:
    """What a column holds and how its text is read.

    Attributes:
        kind: ``"number"``, ``"flag"`` (true or false), ``"date"``, ``"category"`` or ``"empty"``.
        style: Of numbers ``"decimal_comma"``, ``"thousands"`` or ``"lenient"`` (what is no number is a gap); of dates
            the format, if it is not ISO 8601; of categories ``"code"`` for digits with leading zeros.
        text: Whether it was text.
        reason: Why it was taken for that, in words.
    """

    kind: Kind
    style: str = ""
    text: bool = False
    reason: str = ""


def find_format(values: Any, gaps: Sequence[str] = GAPS) -> ColumnFormat:
    """What a column (an array, a pandas Series or an Arrow array) holds, from all of its values.

    >>> find_format(pd.Series(["1,5", "?", "2,25"])).style
    'decimal_comma'
    >>> find_format(pd.Series(["2024-05-01", None])).kind
    'date'
    """
    text = _as_text(values)
    if text is None:
        return _typed_format(_from_arrow(values))
    kind, style, reason = _text_format(without_gaps(text, gaps).drop_null())
    return ColumnFormat(kind, style, True, reason)


def read_column(values: Any, how: ColumnFormat, gaps: Sequence[str] = GAPS) -> Column:
    """The values of a column: an array of numbers or truth values, or a Series of dates or categories.

    Whole numbers without gaps are integers. What comes out is typed: read again, it gives the same.

    Raises:
        BadValueError: For the first value that does not go with the format.

    >>> read_column(pd.Series(["1,5", "?"]), ColumnFormat("number", "decimal_comma", text=True))
    array([1.5, nan])
    """
    text = _as_text(values)
    if text is None:
        return _read_typed(_from_arrow(values), how)
    clean = without_gaps(text, gaps)
    if how.kind == "category":
        return pd.Series(pc.dictionary_encode(clean).to_pandas())
    found = _text_values(clean, how)
    gap = np.isnan(found)
    if how.style != "lenient":
        date = f"a date written as {how.style or 'in ISO 8601, YYYY-MM-DD'}"
        _refuse(gap, clean, {"flag": "true or false", "date": date}.get(how.kind, "a number"))
    if how.kind == "date":
        return pd.Series(found)
    if how.kind == "flag":
        return pd.Series(found > 0).astype(object).mask(gap, None) if gap.any() else found > 0
    _refuse(np.isinf(found), clean, "a finite number")
    whole = not gap.any() and (found == np.round(found)).all() and (np.abs(found) < 2**53).all()
    return found.astype(np.int64) if whole else found


def without_gaps(text: pa.ChunkedArray, gaps: Sequence[str] = GAPS) -> pa.ChunkedArray:
    """Text without white space at its ends, null where it stands for a missing value."""
    trimmed = pc.utf8_trim_whitespace(text)
    gap = pc.is_in(trimmed, value_set=pa.array(list(gaps), trimmed.type))
    return pc.if_else(gap, pa.scalar(None, trimmed.type), trimmed)


def identifier_reason(values: NDArray[Any], name: str, *, written: bool = False) -> str:
    """Why a column of numbers is an identifier and not a quantity; empty if it is none.

    Only whole numbers are looked at. Floating-point numbers are believed to be quantities unless they were written
    as text.

    >>> identifier_reason(np.arange(100), "customer")
    'it counts the rows'
    """
    if not (values.dtype.kind in "iu" or (written and values.dtype.kind == "f")) or len(values) < _FEWEST_IDENTIFIERS:
        return ""
    if values.dtype.kind == "f" and not (values == np.round(values)).all():
        return ""
    if (np.diff(values) == 1).all():
        return "it counts the rows"
    named = _ID_NAME.search(name)
    return "its name, and no value occurs twice" if named and len(np.unique(values)) == len(values) else ""


def formats_to_json(formats: dict[str, ColumnFormat]) -> dict[str, dict[str, Any]]:
    """Formats as plain values, to be kept with a model."""
    return {name: {k: v for k, v in asdict(how).items() if v and k != "reason"} for name, how in formats.items()}


def formats_from_json(saved: dict[str, dict[str, Any]]) -> dict[str, ColumnFormat]:
    """Formats from :func:`formats_to_json`."""
    return {name: ColumnFormat(**how) for name, how in saved.items()}


def labels_of_column(values: pa.ChunkedArray, how: ColumnFormat | None = None) -> pd.Series[Any]:
    """The labels in a column of a file: whole numbers, truth values, numbers or text; None or NaN where there is none.

    >>> labels_of_column(pa.chunked_array([["1", "0", ""]])).tolist()
    [1, 0, None]
    """
    if _as_text(values) is not None:
        values = without_gaps(values, LABEL_GAPS)
        how = how or find_format(values, LABEL_GAPS)
        if how.kind not in ("number", "flag") or how.style:
            return pd.Series(values.to_pandas(), dtype=object)
        labels = pd.Series(read_column(values, how, LABEL_GAPS))
    else:
        labels = values.to_pandas()
        if isinstance(labels.dtype, pd.CategoricalDtype):
            labels = labels.astype(object)
    whole = labels.dtype.kind in "iu"
    if labels.dtype.kind == "f":
        present = labels.dropna()
        whole = bool((present == present.round()).all())
    return pd.Series([None if pd.isna(v) else int(v) for v in labels], dtype=object) if whole else labels


def as_numbers(values: Column, name: str, how: ColumnFormat | None = None) -> NDArray[Any]:
    """Numbers with NaN for gaps, truth values as 0 and 1, durations in days.

    If the column was text in ``fit``, as its format says, text that is no number is a gap; else it is an error.

    >>> as_numbers(pd.Series([True, None], dtype=object), "paid")
    array([ 1., nan])
    """
    if isinstance(values, np.ndarray):
        return _finite(values, name)
    how = how or ColumnFormat("number")
    text = _as_text(values)
    if text is not None:
        clean = without_gaps(text)
        numbers = _text_values(clean, how)
        if not how.text:
            try:
                _refuse(np.isnan(numbers), clean, "a number")
            except BadValueError as error:
                raise _not_a_number(name, error.value) from None
        return _finite(numbers, name)
    here = values.notna()
    numbers = np.full(len(values), np.nan)
    present = values[here].astype(object)
    durations = present.map(lambda value: isinstance(value, datetime.timedelta))
    if durations.any():
        present[durations] = pd.to_timedelta(present[durations]) / pd.Timedelta(days=1)
    converted = pd.to_numeric(present, errors="coerce")
    wrong = converted.isna() | present.map(_is_date)
    if how.text:
        wrong &= ~present.map(lambda value: isinstance(value, str))
    if wrong.any():
        raise _not_a_number(name, present[wrong].iloc[0])
    numbers[here.to_numpy()] = converted.to_numpy(dtype=np.float64)
    return _finite(numbers, name)


def as_dates(values: Column, name: str, how: ColumnFormat | None = None) -> NDArray[np.datetime64]:
    """Dates as ``datetime64`` in local wall-clock time, NaT for gaps and for text that is no date.

    >>> as_dates(pd.Series(["2024-05-01", None]), "day").astype("datetime64[D]")
    array(['2024-05-01', 'NaT'], dtype='datetime64[D]')
    """
    if pd.isna(values).all():
        return np.full(len(values), np.datetime64("NaT"), dtype="datetime64[us]")
    if isinstance(values, np.ndarray):
        raise ValueError(f"X: column {name!r} held dates in fit, now holds numbers ({values.dtype}).")
    text = _as_text(values)
    if text is not None:
        return _text_values(without_gaps(text), how or ColumnFormat("date"))
    if isinstance(values.dtype, pd.PeriodDtype):
        values = pd.Series(values.dt.to_timestamp())
    elif isinstance(values.dtype, pd.ArrowDtype) and values.dtype.type is datetime.date:
        values = values.astype("datetime64[us]")
    elif not pd.api.types.is_datetime64_any_dtype(values.dtype):
        # Value by value, so that no row's time depends on the time zones of other rows.
        values = pd.to_datetime(values.astype(object).map(_without_zone), errors="coerce", format="ISO8601")
    if getattr(values.dt, "tz", None) is not None:
        values = values.dt.tz_localize(None)
    return values.to_numpy().astype("datetime64[us]")


def as_keys(values: Column, name: str) -> tuple[NDArray[np.intp], NDArray[Any]]:
    """Codes and distinct text keys of a column of categories; code -1 is a gap.

    A whole number has the same key whatever its type: 1, 1.0 and "1" are one category, because a gap elsewhere in
    the column turns integers into floats.

    >>> codes, keys = as_keys(np.array([1.0, np.nan, 2.5]), "size")
    >>> codes.tolist(), keys.tolist()
    ([0, -1, 1], ['1', '2.5'])
    """
    distinct: Any
    text = _as_text(values)
    if text is not None:
        values = pd.Series(pc.dictionary_encode(without_gaps(text)).to_pandas())
    if isinstance(values, pd.Series) and isinstance(values.dtype, pd.CategoricalDtype):
        codes, distinct = values.cat.codes.to_numpy(), values.cat.categories
    else:
        try:
            codes, distinct = pd.factorize(values)
        except TypeError as error:
            raise TypeError(f"X: column {name!r} holds values that are no categories: {error}.") from error
    merged, keys = pd.factorize(np.array([_key(value) for value in distinct], dtype=object))
    # Code -1 picks the appended last entry.
    return np.append(merged, -1)[codes].astype(np.intp), np.asarray(keys, dtype=object)


def _as_text(values: Any) -> pa.ChunkedArray | None:
    """The column as Arrow text, or None if it is not text."""
    if isinstance(values, pa.ChunkedArray):
        return values if pa.types.is_string(values.type) or pa.types.is_large_string(values.type) else None
    if isinstance(values, np.ndarray) or isinstance(values.dtype, pd.CategoricalDtype):
        return None
    if pd.api.types.infer_dtype(values, skipna=True) != "string":
        return None
    try:
        found = pa.array(values, pa.large_string(), from_pandas=True)
    except UnicodeEncodeError:  # half of a surrogate pair; such text can only be a category
        return None
    return found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found])


def _typed_format(values: Column) -> ColumnFormat:
    if values.dtype == bool:
        return ColumnFormat("flag", reason="truth values")
    if isinstance(values, np.ndarray):
        return ColumnFormat("number", reason=f"numbers ({values.dtype})")
    present = values[values.notna()]
    if present.empty:
        return ColumnFormat("empty", reason="no value at all")
    if isinstance(values.dtype, pd.CategoricalDtype):
        return ColumnFormat("category", reason="type category")
    if pd.api.types.is_datetime64_any_dtype(values.dtype) or isinstance(values.dtype, pd.PeriodDtype):
        return ColumnFormat("date", reason=f"dates ({values.dtype})")
    content = pd.api.types.infer_dtype(present, skipna=True)
    if content == "boolean":
        return ColumnFormat("flag", reason="truth values")
    if content in _NUMBERS:
        return ColumnFormat("number", reason=f"numbers among objects ({content})")
    if content in _DATES:
        return ColumnFormat("date", reason=f"dates among objects ({content})")
    return ColumnFormat("category", reason=f"values of several types ({content})")


def _text_format(present: pa.ChunkedArray) -> tuple[Kind, str, str]:
    """Kind, style and reason of text without gaps."""
    if not len(present):
        return "empty", "", "no value at all"
    if _cast(present) is not None:
        if _any(pc.match_substring_regex(present, _CODE)):
            return "category", "code", "digits with leading zeros, taken as codes"
        return "number", "", "text in which every value is a number"
    if _all_match(present, _FLAG):
        return "flag", "", "truth values"
    if _any(pc.match_substring(present, ",")):
        # "1,234" could be either: thousands if every comma has three digits behind it and longer numbers have commas.
        if _all_match(present, _THOUSANDS):
            return "number", "thousands", "numbers with commas between thousands"
        if _all_match(present, _DECIMAL_COMMA):
            return "number", "decimal_comma", "numbers with a decimal comma"
    if _all_match(present, _ISO_DATE) and not np.isnat(_text_dates(present, "")).any():
        return "date", "", "text in which every value is an ISO date"
    if date := _date_style(present):
        return "date", date, f"dates written as {date}"
    numbers = _text_numbers(present, "")
    other = np.isnan(numbers)
    if other.mean() > 1 - _LENIENT_SHARE or len(np.unique(numbers[~other])) <= _LENIENT_DISTINCT:
        return "category", "", "text"
    shown = ", ".join(repr(v) for v in pc.unique(present.filter(pa.array(other))).to_pylist()[:3])
    return "number", "lenient", f"numbers, but for {int(other.sum())} other values ({shown}, …), taken as gaps"


def _date_style(present: pa.ChunkedArray) -> str:
    first = present[0].as_py()
    if not any(mark in first for mark in "./-") or not first[0].isdigit():
        return ""
    for style in (date + time for date in _DATE_FORMATS for time in _TIMES):
        # The first values settle nearly every column; only what looks like dates is read in full.
        if not any(np.isnat(_text_dates(part, style)).any() for part in (present.slice(0, _LOOKED_AT), present)):
            return style
    return ""


def _text_values(clean: pa.ChunkedArray, how: ColumnFormat) -> NDArray[Any]:
    """Numbers, dates, or 1 for true and 0 for false; NaN or NaT for gaps and for what does not go with the format."""
    if how.kind == "date":
        return _text_dates(clean, how.style)
    if how.kind != "flag":
        return _text_numbers(clean, how.style)
    lower = pc.utf8_lower(clean)
    true, false = (pc.is_in(lower, value_set=pa.array(words, lower.type)) for words in (["true", "1"], ["false", "0"]))
    return np.where(true.to_numpy(), 1.0, np.where(false.to_numpy(), 0.0, np.nan))


def _text_numbers(clean: pa.ChunkedArray, style: str) -> NDArray[np.float64]:
    """Each text as a number, NaN where it is none."""
    if style == "decimal_comma":
        clean = pc.replace_substring(clean, ",", ".")
    elif style == "thousands":
        # "12,5" is no number here, and must not become 125.
        wrong = pc.and_(pc.match_substring(clean, ","), pc.invert(pc.match_substring_regex(clean, _GROUPED)))
        clean = pc.replace_substring(pc.if_else(wrong, pa.scalar(None, clean.type), clean), ",", "")
    numbers = _cast(clean)
    return np.array(pd.to_numeric(clean.to_pandas(), errors="coerce"), float) if numbers is None else numbers


def _cast(text: pa.ChunkedArray) -> NDArray[np.float64] | None:
    """Text as numbers, null as NaN, or None unless all of it is."""
    if _any(pc.starts_with(text, "+")):
        text = pc.replace_substring_regex(text, r"^\+(\d|\.)", r"\1")
    try:
        return np.array(pc.cast(text, pa.float64()).to_pandas(), dtype=np.float64)
    except pa.ArrowInvalid:
        return None


def _text_dates(clean: pa.ChunkedArray, style: str) -> NDArray[np.datetime64]:
    """Each text as a date, NaT where it is none: years outside the range of the type, too."""
    if not style:
        clean = pc.replace_substring_regex(clean, _UTC_OFFSET, r"\1")
    dates = pd.to_datetime(clean.to_pandas().astype(object), format=style or "ISO8601", errors="coerce")
    return np.asarray(dates, dtype="datetime64[us]")


def _refuse(wrong: NDArray[np.bool_], clean: pa.ChunkedArray, expected: str) -> None:
    """Raise for the first value that is there and wrong."""
    if wrong.any():
        rows = np.flatnonzero(wrong & clean.is_valid().to_numpy())
        if len(rows):
            raise BadValueError(int(rows[0]), clean[int(rows[0])].as_py(), expected)


def _read_typed(values: Column, how: ColumnFormat) -> Column:
    if how.kind == "category":
        if isinstance(values, pd.Series) and isinstance(values.dtype, pd.CategoricalDtype):
            return values
        codes, keys = as_keys(values, "")
        return pd.Series(pd.Categorical.from_codes(codes, pd.Index(keys)))
    if how.kind == "date":
        return pd.Series(as_dates(values, ""))
    return values if how.kind == "flag" else as_numbers(values, "")


def _without_zone(value: Any) -> Any:
    if isinstance(value, str):
        return re.sub(_UTC_OFFSET, r"\1", value)
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.replace(tzinfo=None)
    return value


def _is_date(value: Any) -> bool:
    # pandas would take a date for the number of nanoseconds since 1970.
    return isinstance(value, datetime.date | np.datetime64 | pd.Period)


def _finite(numbers: NDArray[Any], name: str) -> NDArray[Any]:
    if numbers.dtype.kind == "f" and np.isinf(numbers).any():
        raise ValueError(
            f"X: column {name!r} contains infinity; replace it by a number, or by NaN if the value is unknown."
        )
    return numbers


def _not_a_number(name: str, value: Any) -> ValueError:
    return ValueError(
        f"X: column {name!r} held numbers in fit, now holds {value!r}; convert it, or leave the value missing."
    )


def _key(value: Any) -> str:
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _all_match(text: pa.ChunkedArray, pattern: str) -> bool:
    return all(
        bool(pc.all(pc.match_substring_regex(part, pattern)).as_py()) for part in (text.slice(0, _LOOKED_AT), text)
    )


def _any(flags: Any) -> bool:
    return bool(pc.any(flags).as_py())
