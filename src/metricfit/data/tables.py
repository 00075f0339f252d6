"""One view of every kind of table: arrays, lists, pandas and polars frames, sparse matrices."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_array

__all__ = ["Column", "Table", "describe_table", "from_arrow", "is_frame", "repeated"]

Column = NDArray[Any] | pd.Series
"""Values of one column: an array of numbers or booleans (NaN for gaps), else a pandas Series."""


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
        return from_arrow(data[:, position].to_arrow())

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


def repeated(names: Iterable[Any]) -> list[Any]:
    """The names that occur more than once, in their order.

    >>> repeated(["a", "b", "a"])
    ['a']
    """
    return [name for name, count in Counter(names).items() if count > 1]


def from_arrow(values: pa.ChunkedArray) -> Column:
    """A typed Arrow column, as Parquet files and polars frames have them."""
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


def describe_table(table: pd.DataFrame) -> dict[str, Any]:
    """Rows, and of each of the first 500 columns its gaps and a few words on its values: a note to keep with a model.

    >>> describe_table(pd.DataFrame({"age": [20.0, 40.0, None], "plan": ["a", "b", "a"]}))["columns"]["plan"]
    {'gaps': 0, 'values': '2 distinct; a 67 %, b 33 %'}
    """
    shown = ((str(name), table[name]) for name in table.columns[:500])
    columns = {name: {"gaps": int(column.isna().sum()), "values": _in_words(column.dropna())} for name, column in shown}
    return {"rows": len(table), "columns": columns}


def _in_words(known: pd.Series[Any]) -> str:
    if not len(known):
        return "nothing but gaps"
    if known.dtype.kind in "iuf":
        low, middle, high = np.quantile(known.to_numpy(dtype=np.float64), [0, 0.5, 1])
        return f"{low:.4g} to {high:.4g}, median {middle:.4g}"
    if known.dtype.kind == "M":
        return f"{known.min():%Y-%m-%d} to {known.max():%Y-%m-%d}"
    counts = known.astype(str).value_counts()
    top = ", ".join(f"{str(name)[:40]} {100 * count / len(known):.0f} %" for name, count in counts[:3].items())
    return f"{len(counts):,} distinct; {top}"
