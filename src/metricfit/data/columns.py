"""What a column holds, and its values as numbers, dates or category keys."""

from __future__ import annotations

import datetime
import re
import warnings
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.data.tables import Column

__all__ = ["Kind", "as_dates", "as_keys", "as_numbers", "infer_kind", "numbers_in_keys"]

Kind = Literal["number", "category", "date", "empty"]

_NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal", "boolean", "timedelta", "timedelta64")
_DATES = ("datetime64", "datetime", "date", "period")
_ISO_DATE = r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
_UTC_OFFSET = re.compile(r"([T ]\d{2}[\d:.,]*) ?(?:Z|[+-]\d{2}(?::?\d{2})?)$")
_LOOKED_AT = 1000
_GAPS_AS_TEXT = ("", "nan", "none", "<na>")
_LEADING_ZERO = r"0\d+"


def infer_kind(values: Column) -> tuple[Kind, str]:
    """The kind of a column and, in words, why.

    Text is a date only where every value is written as in ISO 8601; numbers written as text are categories
    (:func:`numbers_in_keys` reads them).

    >>> infer_kind(pd.Series(["2024-05-01", None]))
    ('date', 'text in which every value is an ISO date')
    """
    if isinstance(values, np.ndarray):
        return "number", "truth values" if values.dtype == bool else f"numbers ({values.dtype})"
    present = values[values.notna()]
    if present.empty:
        return "empty", "no value at all"
    if isinstance(values.dtype, pd.CategoricalDtype):
        return "category", "type category"
    if pd.api.types.is_datetime64_any_dtype(values.dtype) or isinstance(values.dtype, pd.PeriodDtype):
        return "date", f"dates ({values.dtype})"
    content = pd.api.types.infer_dtype(present, skipna=True)
    if content in _NUMBERS:
        return "number", "truth values" if content == "boolean" else f"numbers among objects ({content})"
    if content in _DATES:
        return "date", f"dates among objects ({content})"
    if content == "string":
        if _are_iso_dates(present):
            return "date", "text in which every value is an ISO date"
        return "category", "text"
    return "category", f"values of several types ({content})"


def _are_iso_dates(present: pd.Series[Any]) -> bool:
    # The first values settle nearly every column; only what looks like dates is read in full.
    return all(
        bool(part.astype(str).str.fullmatch(_ISO_DATE).all()) for part in (present.iloc[:_LOOKED_AT], present)
    ) and bool(_parse(present).notna().all())


def as_numbers(values: Column, name: str, *, written: bool = False) -> NDArray[Any]:
    """Numbers with NaN for gaps; durations in days. Text that is no number is an error.

    Args:
        values: The column.
        name: Its name, for errors.
        written: Whether the numbers were text in ``fit``: text that is no number is then a gap.

    >>> as_numbers(pd.Series([True, None], dtype=object), "paid")
    array([ 1., nan])
    """
    if isinstance(values, np.ndarray):
        return values
    here = values.notna()
    numbers = np.full(len(values), np.nan)
    present = values[here].astype(object)
    durations = present.map(lambda value: isinstance(value, datetime.timedelta))
    if durations.any():
        present[durations] = pd.to_timedelta(present[durations]) / pd.Timedelta(days=1)
    converted = pd.to_numeric(present, errors="coerce")
    wrong = converted.isna() | present.map(_is_date)
    if written:
        wrong &= ~present.map(lambda value: isinstance(value, str))
    if wrong.any():
        raise ValueError(
            f"X: column {name!r} held numbers in fit, now holds {present[wrong].iloc[0]!r}; convert it, or leave the "
            "value missing."
        )
    numbers[here.to_numpy()] = converted.to_numpy(dtype=np.float64)
    return numbers


def _is_date(value: Any) -> bool:
    # pandas would take a date for the number of nanoseconds since 1970.
    return isinstance(value, datetime.date | np.datetime64 | pd.Period)


def as_dates(values: Column, name: str) -> NDArray[np.datetime64]:
    """Dates as ``datetime64`` in local wall-clock time, NaT for gaps and for text that is no date.

    >>> as_dates(pd.Series(["2024-05-01", None]), "day").astype("datetime64[D]")
    array(['2024-05-01', 'NaT'], dtype='datetime64[D]')
    """
    if pd.isna(values).all():
        return np.full(len(values), np.datetime64("NaT"), dtype="datetime64[us]")
    if isinstance(values, np.ndarray):
        raise ValueError(f"X: column {name!r} held dates in fit, now holds numbers ({values.dtype}).")
    if isinstance(values.dtype, pd.PeriodDtype):
        values = pd.Series(values.dt.to_timestamp())
    elif isinstance(values.dtype, pd.ArrowDtype) and values.dtype.type is datetime.date:
        values = values.astype("datetime64[us]")
    elif not pd.api.types.is_datetime64_any_dtype(values.dtype):
        values = _parse(values.astype(object))
    if getattr(values.dt, "tz", None) is not None:
        values = values.dt.tz_localize(None)
    return values.to_numpy().astype("datetime64[us]")


def _parse(values: pd.Series[Any]) -> pd.Series[Any]:
    # Years outside the range of a type, or nonsense, become gaps rather than errors: they come at predict time too.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return pd.to_datetime(values.map(_without_offset), errors="coerce", format="ISO8601")


def _without_offset(value: Any) -> Any:
    # Value by value, so that no row's time depends on the time zones of other rows.
    if isinstance(value, str):
        return _UTC_OFFSET.sub(r"\1", value)
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.replace(tzinfo=None)
    return value


def as_keys(values: Column, name: str) -> tuple[NDArray[np.intp], NDArray[Any]]:
    """Codes and distinct text keys of a column of categories; code -1 is a gap.

    A whole number has the same key whatever its type: 1, 1.0 and "1" are one category, because a gap elsewhere in
    the column turns integers into floats.

    >>> codes, keys = as_keys(np.array([1.0, np.nan, 2.5]), "size")
    >>> codes.tolist(), keys.tolist()
    ([0, -1, 1], ['1', '2.5'])
    """
    if isinstance(values, pd.Series) and isinstance(values.dtype, pd.CategoricalDtype):
        codes, distinct = values.cat.codes.to_numpy(), list(values.cat.categories)
    else:
        try:
            codes, found = pd.factorize(values)
        except TypeError as error:
            raise TypeError(f"X: column {name!r} holds values that are no categories: {error}.") from error
        distinct = list(found)
    merged, keys = pd.factorize(np.array([_key(value) for value in distinct], dtype=object))
    # Code -1 picks the appended last entry.
    return np.append(merged, -1)[codes].astype(np.intp), np.asarray(keys, dtype=object)


def numbers_in_keys(keys: NDArray[Any]) -> NDArray[np.float64] | None:
    """The numbers that text keys spell, or None unless all of them do; NaN for text such as "nan" or "".

    Digits with leading zeros are codes, not numbers.

    >>> numbers_in_keys(np.array(["1.5", "nan", "20"], dtype=object))
    array([ 1.5,  nan, 20. ])
    """
    numbers = np.empty(0)
    # As for dates: the first keys settle nearly every column.
    for part in (keys[:_LOOKED_AT], keys):
        text = pd.Series(part, dtype=object).str.strip()
        numbers = pd.to_numeric(text, errors="coerce").to_numpy(dtype=np.float64)
        spelled = np.isfinite(numbers) & ~text.str.fullmatch(_LEADING_ZERO).to_numpy(dtype=bool)
        if not (spelled | text.str.lower().isin(_GAPS_AS_TEXT).to_numpy()).all():
            return None
    return numbers


def _key(value: Any) -> str:
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)
