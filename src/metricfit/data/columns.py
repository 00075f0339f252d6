"""A table's columns: what each holds, and its values. Typed columns are believed, text is typed by its content."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from sklearn.utils.validation import check_array

from metricfit.labels import repeated

Keyed = tuple[NDArray[np.intp], NDArray[Any]]
"""Categories: the place of each row's key, -1 for a gap, and the distinct keys."""

Kind = Literal["number", "flag", "date", "category", "empty"]

GAPS = (
    "", "?", "NA", "N/A", "n/a", "NaN", "nan", "-NaN", "-nan", "<NA>", "NULL", "null", "None", "#N/A", "#NA",
    "#N/A N/A", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN",
)  # fmt: skip
"""Texts that stand for a missing value: "?" and those that :func:`pandas.read_csv` knows."""

LABEL_GAPS = ("", "?", "NaN", "nan")
"""Texts that stand for a missing label; other words for gaps, such as "None", may be the name of a class."""

_KIND_OF_OBJECTS: dict[str, Kind] = {
    "boolean": "flag", "integer": "number", "floating": "number", "mixed-integer-float": "number",
    "decimal": "number", "timedelta": "number", "timedelta64": "number", "datetime64": "date", "datetime": "date",
    "date": "date", "period": "date",
}  # fmt: skip
_ISO_DATE = r"^\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?$"
_UTC_OFFSET = r"([T ]\d{2}[\d:.,]*) ?(?:Z|[+-]\d{2}(?::?\d{2})?)$"
_GROUPED = r"^[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?$"
# "1,234" could be either: thousands if every comma has three digits behind it and longer numbers have commas.
_NUMBERS = {
    "thousands": (rf"{_GROUPED}|^[+-]?\d{{1,3}}(\.\d+)?$", "numbers with commas between thousands"),
    "decimal_comma": (r"^[+-]?\d*(,\d+)?([eE][+-]?\d+)?$", "numbers with a decimal comma"),
    "points": (r"^[+-]?[1-9]\d{0,2}(\.\d{3})*(,\d+)?$|^[+-]?0(,\d+)?$", "numbers with points between thousands"),
}
_POINT_OR_DECIMAL = r"^[+-]?[1-9]\d{0,2}(\.\d{3})?$"
_CODE = r"^0\d+$"
_FLAG = r"(?i)^(true|false)$"
_LENIENT_SHARE, _LENIENT_DISTINCT = 0.9, 20
_DAYS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y")
_DATES = [day + time for day in _DAYS for time in ("", " %H:%M", " %H:%M:%S")]
_LOOKED_AT = 1000
_DAY = datetime.timedelta(days=1)
_ID_NAME = re.compile(r"(^|[\W_])(id|index|uuid|rownum|row_number)$|^unnamed|[a-z]I[Dd]$|^column_1$", re.IGNORECASE)
_FEWEST_IDENTIFIERS = 20


class BadValueError(ValueError):
    """A value, and its row, that a column cannot hold."""

    def __init__(self, row: int, value: Any, expected: str) -> None:
        shown = repr(value)
        super().__init__(f"expected {expected}, got {shown if len(shown) < 100 else shown[:80] + '…'}")
        self.row, self.value = row, value


def columns_of(X: Any, names: Sequence[str] | None = None) -> list[Any]:
    """The columns of an array, list, frame or sparse matrix, not copied; of a frame those named, if names are given."""
    if isinstance(X, list | tuple) and np.asarray(X).dtype.kind in "US":
        X = np.array(X, dtype=object)  # NumPy would turn the numbers of a mixed list into text
    if hasattr(X, "collect"):
        raise TypeError("X: expected a polars DataFrame, got a LazyFrame; call .collect() first.")
    if not hasattr(X, "columns"):  # no frame of pandas or polars
        X = check_array(X, accept_sparse="coo", dtype=None, ensure_all_finite=False)  # coo: repeated entries add up
        sparse: Any = pd.DataFrame.sparse
        X = sparse.from_spmatrix(X) if hasattr(X, "toarray") else pd.DataFrame(X, copy=False)
    if 0 in X.shape:
        what = "sample(s)" if len(X) == 0 else "feature(s)"
        raise ValueError(f"X: found 0 {what} (shape={X.shape}) while a minimum of 1 is required.")
    if twice := repeated(X.columns):
        raise ValueError(f"X: column names must be distinct, got {twice[0]!r} twice; rename one of them.")
    found = [X.iloc[:, i] for i in range(X.shape[1])] if isinstance(X, pd.DataFrame) else X.to_arrow().columns
    if names is None:
        return list(found)
    by_name = dict(zip(X.columns, found, strict=True))
    if missing := [repr(name) for name in names if name not in by_name]:
        shown = ", ".join(missing[:10]) + (" and more" if len(missing) > 10 else "")
        raise ValueError(f"X: columns seen in fit are missing: {shown}; got {list(by_name)[:20]}.")
    return [by_name[name] for name in names]


@dataclass(frozen=True)
class ColumnFormat:
    """What a column holds and how its text is read."""

    kind: Kind  # "flag" is true or false
    # Of numbers "decimal_comma", "thousands" (commas), "points" (1.234,5), "point" (35.000, read as 35) or "lenient"
    # (what is no number is a gap); of dates the format, if not ISO 8601; of categories "code" (leading zeros).
    style: str = ""
    text: bool = False  # whether it was text
    reason: str = ""  # why it was taken for that, in words


NAMED_CATEGORY = ColumnFormat("category", reason="named as a category")


def find_format(values: Any, gaps: Sequence[str] = GAPS) -> ColumnFormat:
    """What a column (an array, a pandas Series or an Arrow array) holds, from all of its values."""
    column = _plain(values, gaps)
    if isinstance(column, pa.ChunkedArray):
        kind, style, reason = _text_format(column.drop_null())
        return ColumnFormat(kind, style, True, reason)
    if column.dtype.kind in "iuf":
        return ColumnFormat("number", reason=f"numbers ({column.dtype})")
    content = pd.api.types.infer_dtype(column, skipna=True)
    if content == "empty" or pd.isna(column).all():
        return ColumnFormat("empty", reason="no value at all")
    if content == "categorical":
        return ColumnFormat("category", reason="type category")
    kind = _KIND_OF_OBJECTS.get(content, "category")
    words = {"flag": "truth values", "number": f"numbers among objects ({content})", "date": f"dates ({content})"}
    return ColumnFormat(kind, reason=words.get(kind, f"values of several types ({content})"))


def read_column(values: Any, how: ColumnFormat, gaps: Sequence[str] = GAPS, *, strict: bool = True) -> Any:
    """The values of a column: numbers (NaN for gaps; truth values, or 0 and 1), dates (NaT), or :data:`Keyed`.

    Text that does not go with the format is a gap, or, if ``strict``, a :class:`BadValueError`.
    """
    column = _plain(values, gaps)
    text = isinstance(column, pa.ChunkedArray)
    if how.kind == "empty":
        return np.full(len(column), np.nan)
    if how.kind == "category":
        return _keys(pd.Series(pc.dictionary_encode(column).to_pandas()) if text else column)
    if not text:
        return _object_dates(column) if how.kind == "date" else _object_numbers(column, strict)
    found: NDArray[Any]
    if how.kind == "flag":
        words = {"true": 1.0, "1": 1.0, "false": 0.0, "0": 0.0}
        found = np.asarray(pc.utf8_lower(column).to_pandas().map(words), dtype=np.float64)
    else:
        found = _text_dates(column, how.style) if how.kind == "date" else _text_numbers(column, how.style)
    if strict:
        date = f"a date written as {how.style or 'in ISO 8601, YYYY-MM-DD'}"
        expected = {"flag": "true or false", "date": date}.get(how.kind, "a number")
        refuse(np.isnan(found) & column.is_valid().to_numpy(), column, expected)
    return found


def refuse(wrong: NDArray[np.bool_], values: Any, expected: str) -> None:
    """Raise :class:`BadValueError` for the first value that is wrong, if there is one."""
    if wrong.any():
        row = int(np.argmax(wrong))
        one = values[row : row + 1]
        raise BadValueError(row, one.to_pylist()[0] if isinstance(one, pa.ChunkedArray) else one.tolist()[0], expected)


def typed(values: Any, how: ColumnFormat) -> Any:
    """What :func:`read_column` returned as a column of a frame, which is typed in the same way again."""
    if isinstance(values, tuple):
        return pd.Series(pd.Categorical.from_codes(values[0], pd.Index(values[1], dtype=object)))
    if how.kind == "date":
        return pd.Series(values)
    if values.dtype.kind != "f":
        return values
    gap = np.isnan(values)
    if how.kind == "flag":
        return pd.Series(values > 0).astype(object).mask(gap, None) if gap.any() else values > 0
    whole = how.text and not gap.any() and (values == np.round(values)).all() and (np.abs(values) < 2**53).all()
    return values.astype(np.int64) if whole else values


def identifier_reason(values: NDArray[Any], name: str, *, written: bool = False) -> str:
    """Why a column of whole numbers, integers or ``written`` as text, only names the rows; empty if it does not."""
    whole = values.dtype.kind in "iu" or (written and values.dtype.kind == "f" and (values == np.round(values)).all())
    if not whole or len(values) < _FEWEST_IDENTIFIERS:
        return ""
    if (np.diff(values) == 1).all():
        return "it counts the rows"
    named = _ID_NAME.search(name)
    return "its name, and no value occurs twice" if named and len(np.unique(values)) == len(values) else ""


def labels_of(values: pa.ChunkedArray, how: ColumnFormat | None = None) -> pd.Series[Any]:
    """The labels in a column of a file: whole numbers, truth values, numbers or text; None or NaN for gaps."""
    how = how or find_format(values, LABEL_GAPS)
    if not how.text:
        labels = values.to_pandas()
        labels = labels.astype(object) if isinstance(labels.dtype, pd.CategoricalDtype) else labels
    elif how.kind not in ("number", "flag") or how.style not in ("", "point"):
        return pd.Series(_plain(values, LABEL_GAPS).to_pandas(), dtype=object)
    else:
        labels = pd.Series(typed(read_column(values, how, LABEL_GAPS), how))
    present = labels.dropna()
    whole = labels.dtype.kind in "iuf" and bool((present == present.round()).all() and np.isfinite(present).all())
    return pd.Series([None if pd.isna(v) else int(v) for v in labels], dtype=object) if whole else labels


def _plain(values: Any, gaps: Sequence[str]) -> Any:
    """A column as numbers (durations in days), truth values, local dates, Arrow text, or else as a pandas Series.

    Text is stripped, and null where it stands for a missing value.
    """
    if isinstance(values, pa.ChunkedArray):
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            trimmed = pc.utf8_trim_whitespace(values)
            gap = pc.is_in(trimmed, value_set=pa.array(list(gaps), trimmed.type))
            return pc.if_else(gap, pa.scalar(None, trimmed.type), trimmed)
        if pa.types.is_decimal(values.type):
            values = pc.cast(values, pa.float64())
        elif pa.types.is_date(values.type):
            values = pc.cast(values, pa.timestamp("us"))
        values = values.to_pandas()
    values = values if isinstance(values, pd.Series) else pd.Series(values, copy=False)
    dtype = values.dtype
    if pd.api.types.is_complex_dtype(dtype):
        raise ValueError(f"Complex data not supported: column {values.name!r} of X has type {dtype}.")
    if dtype.kind == "m":
        return np.asarray(values.dt.total_seconds() / 86400.0, dtype=np.float64)
    if isinstance(dtype, pd.CategoricalDtype):
        return values
    if isinstance(dtype, pd.SparseDtype):
        return _plain(pd.Series(np.asarray(values), name=values.name, copy=False), gaps)
    if dtype.kind in "biuf":
        if isinstance(dtype, np.dtype):
            return values.to_numpy()
        exact = None if values.isna().any() else getattr(dtype, "numpy_dtype", None)
        return values.to_numpy(dtype=exact or np.float64, na_value=np.nan)
    if isinstance(dtype, pd.PeriodDtype):
        values = values.dt.to_timestamp()
    elif isinstance(dtype, pd.ArrowDtype) and dtype.type is datetime.date:
        values = values.astype("datetime64[us]")
    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        return values.dt.tz_localize(None).to_numpy().astype("datetime64[us]")
    if pd.api.types.infer_dtype(values, skipna=True) != "string":
        return values
    try:
        text = pa.array(values, pa.large_string(), from_pandas=True)
    except UnicodeEncodeError:  # half of a surrogate pair; such text can only be a category
        return values
    return _plain(text if isinstance(text, pa.ChunkedArray) else pa.chunked_array([text]), gaps)


def _keys(column: Any) -> Keyed:
    """1, 1.0 and "1" are one category: a gap elsewhere in a column turns integers into floats."""
    distinct: Any
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes, distinct = column.cat.codes.to_numpy(), column.cat.categories
    else:
        codes, distinct = pd.factorize(column)
    whole = (int(v) if isinstance(v, float | np.floating) and float(v).is_integer() else v for v in distinct)
    merged, keys = pd.factorize(np.array([str(value) for value in whole], dtype=object))
    # Code -1 picks the appended last entry.
    return np.append(merged, -1)[codes].astype(np.intp), np.asarray(keys, dtype=object)


def _object_numbers(column: Any, strict: bool) -> NDArray[Any]:
    """Numbers among Python objects; unless strict, text that is no number is a gap."""
    if column.dtype.kind in "biuf":
        return np.asarray(column)
    column = pd.Series(column)
    days = [value / _DAY if isinstance(value, datetime.timedelta) else value for value in column]
    numbers = np.array(pd.to_numeric(pd.Series(days, dtype=object), errors="coerce"), dtype=np.float64)
    text = np.array([isinstance(value, str) for value in column])
    refuse(np.isnan(numbers) & column.notna().to_numpy() & (strict | ~text), column, "a number")
    return numbers


def _object_dates(column: Any) -> NDArray[np.datetime64]:
    """Dates among Python objects, NaT for what is none; numbers are errors."""
    if column.dtype.kind == "M":
        return np.asarray(column)
    if column.dtype.kind in "biuf":
        refuse(~np.isnan(column), column, "a date")
        return np.full(len(column), np.datetime64("NaT"), dtype="datetime64[us]")
    # Value by value, so that no row's time depends on the time zones of other rows.
    texts = [re.sub(_UTC_OFFSET, r"\1", str(value)) for value in column]
    return np.asarray(pd.to_datetime(texts, errors="coerce", format="ISO8601"), dtype="datetime64[us]")


def _text_format(present: pa.ChunkedArray) -> tuple[Kind, str, str]:
    """Kind, style and reason of text without gaps."""
    if not len(present):
        return "empty", "", "no value at all"
    if _cast(present) is not None:
        if _match(present, _CODE, pc.any):
            return "category", "code", "digits with leading zeros, taken as codes"
        if _match(present, r"\.", pc.any) and _match(present, _POINT_OR_DECIMAL):
            first = present.filter(pc.match_substring(present, "."))[0].as_py()
            advice = "remove the points if they separate thousands"
            return "number", "point", f"{first} is read as the number {float(first):g}; {advice}"
        return "number", "", "text in which every value is a number"
    if _match(present, _FLAG):
        return "flag", "", "truth values"
    comma = _match(present, ",", pc.any)
    for style, (pattern, reason) in _NUMBERS.items():
        if (comma or style == "points") and _match(present, pattern):
            return "number", style, reason
    if _match(present, _ISO_DATE) and not np.isnat(_text_dates(present, "")).any():
        return "date", "", "text in which every value is an ISO date"
    first = present[0].as_py()
    for date in _DATES if first[0].isdigit() and any(mark in first for mark in "./-") else ():
        # The first values settle nearly every column; only what looks like dates is read in full.
        if not any(np.isnat(_text_dates(part, date)).any() for part in (present.slice(0, _LOOKED_AT), present)):
            return "date", date, f"dates written as {date}"
    numbers = _text_numbers(present, "")
    other = np.isnan(numbers)
    if other.mean() > 1 - _LENIENT_SHARE or len(np.unique(numbers[~other])) <= _LENIENT_DISTINCT:
        return "category", "", "text"
    shown = ", ".join(repr(v) for v in pc.unique(present.filter(pa.array(other))).to_pylist()[:3])
    return "number", "lenient", f"numbers, but for {int(other.sum())} other values ({shown}, …), taken as gaps"


def _text_numbers(clean: pa.ChunkedArray, style: str) -> NDArray[np.float64]:
    """Each text as a number, NaN where it is none."""
    if style == "points":
        clean = pc.replace_substring(clean, ".", "")
    if style in ("points", "decimal_comma"):
        clean = pc.replace_substring(clean, ",", ".")
    elif style == "thousands":
        # "12,5" is no number here, and must not become 125.
        wrong = pc.and_(pc.match_substring(clean, ","), pc.invert(pc.match_substring_regex(clean, _GROUPED)))
        clean = pc.replace_substring(pc.if_else(wrong, pa.scalar(None, clean.type), clean), ",", "")
    numbers = _cast(clean)
    return np.array(pd.to_numeric(clean.to_pandas(), errors="coerce"), float) if numbers is None else numbers


def _cast(text: pa.ChunkedArray) -> NDArray[np.float64] | None:
    """Text as numbers, null as NaN, or None unless all of it is."""
    if _match(text, r"^\+", pc.any):
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


def _match(text: pa.ChunkedArray, pattern: str, count: Any = pc.all) -> bool:
    return bool(count(pc.match_substring_regex(text, pattern)).as_py())
