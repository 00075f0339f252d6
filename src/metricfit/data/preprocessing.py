"""From a table of any columns to the float32 matrix that a network takes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data

from metricfit.choices import Choice, close_to
from metricfit.data import encoders
from metricfit.data.columns import ColumnFormat, columns_of, find_format, identifier_reason
from metricfit.data.encoders import FittedColumn, Folds, NumericMode
from metricfit.inputs import expect

_FREE_TEXT = "an identifier or free text: hardly a value occurs twice"  # why a column of text was dropped
_QUANTILE_ROWS = 100_000
_TARGET_FOLDS = 5
_TARGET_CLASSES = 10


class TablePreprocessor(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turn any table into a dense float32 matrix: numbers, truth values, categories, dates and gaps.

    * Numbers are standardised (clipped at ±10) and given a second time as normal scores of their ranks (clipped at
      ±3). Columns of few whole numbers, which are often codes, also get an indicator of each value.
    * Categories get an indicator of each frequent level and one for all others. Columns with more levels than
      indicators also get the log-frequency of the level and, if ``y`` is known, how much more often each class
      occurs in it; for the training rows that is cross-fitted, so train on what ``fit_transform`` returns.
    * Dates become elapsed days, year, month, day, weekday, hour.
    * Gaps (NaN, None, NaT, pd.NA) are filled by the median; a column that had some in ``fit`` gets an indicator.
    * Text is typed by its content, as in a CSV file: numbers, truth values, dates, else categories; words such as "?"
      and "NA" are gaps (:data:`metricfit.data.GAPS`). Columns of a type of their own are believed.
    * Not used are constant and empty columns, text in which hardly a value occurs twice, and whole numbers in a named
      column that only count or name the rows (convert them to float to use them); ``columns_`` says which.

    At predict time gaps, unseen categories and empty columns are welcome everywhere. Frames are matched by name, as
    :class:`sklearn.compose.ColumnTransformer` does: the order does not matter, further columns are ignored, a
    missing one is an error. Infinities are errors.

    Args:
        numeric: Features of a number: ``"standard"``, ``"quantile"`` or ``"both"``.
        categorical_features: Columns to treat as categories though they hold numbers: names, positions or a mask.
        max_one_hot: Most indicators of levels a category column gets.
        min_frequency: Levels with fewer rows have no indicator of their own.
        integer_levels: Number columns of at most so many distinct whole values get an indicator of each; 0 for never.
        target_encoding: Whether columns with more than ``max_one_hot`` levels get target rates when ``y`` is given.
        random_state: Seed of the quantile sample (more than 100,000 rows) and of the folds of the target rates.

    Attributes:
        columns_: What each column holds, why, and what became of it, as :class:`FittedColumn`.

    Example:
        >>> import pandas as pd
        >>> X = pd.DataFrame({"age": [20.0, 30.0, None, 50.0], "city": ["Rome", "Oslo", "Rome", "Oslo"]})
        >>> features = TablePreprocessor(numeric="standard").fit(X)
        >>> features.get_feature_names_out().tolist()
        ['age', 'age__missing', 'city=Rome']
        >>> features.transform(pd.DataFrame({"city": ["Bonn"], "age": [40.0]})).shape
        (1, 3)
    """

    def __init__(
        self,
        *,
        numeric: NumericMode = "both",
        categorical_features: Sequence[str] | Sequence[int] | Sequence[bool] | None = None,
        max_one_hot: int = 32,
        min_frequency: int = 2,
        integer_levels: int = 16,
        target_encoding: bool = True,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.numeric = numeric
        self.categorical_features = categorical_features
        self.max_one_hot = max_one_hot
        self.min_frequency = min_frequency
        self.integer_levels = integer_levels
        self.target_encoding = target_encoding
        self.random_state = random_state

    def fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Learn the features of a table (n, columns); ``y``, for target rates only, are classes or 0/1 labels."""
        self._fit(X, y)
        return self

    def fit_transform(self, X: Any, y: ArrayLike | None = None) -> NDArray[np.float32]:
        """Learn the features and return those of the training rows, with cross-fitted target rates."""
        return self._write(X, self._fit(X, y))

    def transform(self, X: Any) -> NDArray[np.float32]:
        """The features of new rows, shape (n, features), float32 and C-contiguous."""
        return self._write(X, None)

    def tree_features(self, X: Any) -> NDArray[np.float32]:
        """The columns that are used as trees take them, (n, tree columns): no scaling, no indicators, gaps as NaN.

        Categories are codes by frequency, of which rare ones share one; an unknown one is rare, or else a gap.
        """
        rows, used = self.read(X)
        out = np.empty((rows, len(self.tree_categories_)), dtype=np.float32)
        for place, part in enumerate(part for column, values in used for part in column.encoder.tree(values)):
            out[:, place] = part
        return out

    @property
    def tree_categories_(self) -> NDArray[np.bool_]:
        """Which columns of :meth:`tree_features` are categories, shape (tree columns,)."""
        check_is_fitted(self)
        used = [column.encoder for column in self.columns_ if column.features]
        kinds = [isinstance(e, encoders.CategoryEncoder) for e in used for _ in getattr(e, "parts", None) or [0]]
        return np.array(kinds, dtype=bool)

    def read(self, X: Any) -> tuple[int, Iterator[tuple[FittedColumn, Any]]]:
        """The rows of a table, and each column that is used with its values as :meth:`FittedColumn.read` gives them."""
        check_is_fitted(self)
        by_name = hasattr(self, "feature_names_in_") and hasattr(X, "shape") and hasattr(X, "columns")
        columns = columns_of(X, self.feature_names_in_ if by_name else None)
        if not by_name:
            validate_data(self, X, reset=False, skip_check_array=True)
        used = ((c, values) for c, values in zip(self.columns_, columns, strict=True) if c.features)
        return len(columns[0]), ((c, c.read(values)) for c, values in used)

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[Any]:
        """Names of the features, e.g. ``age``, ``age__quantile``, ``city=Rome``, ``city__missing``."""
        check_is_fitted(self)
        columns = zip(_check_feature_names_in(self, input_features), self.columns_, strict=True)
        features = [f"{name}{feature.removeprefix(c.name)}" for name, c in columns for feature in c.features]
        return np.array(features or ["constant"], dtype=object)

    def _fit(self, X: Any, y: ArrayLike | None) -> Folds | None:
        expect(self.numeric in get_args(NumericMode), "numeric", f"one of {get_args(NumericMode)}", self.numeric)
        for parameter, least in (("max_one_hot", 2), ("min_frequency", 1), ("integer_levels", 0)):
            value = getattr(self, parameter)
            valid = isinstance(value, int | np.integer) and value >= least
            expect(valid, parameter, f"a whole number >= {least}", value)
        columns = columns_of(X)
        validate_data(self, X, skip_check_array=True)
        random = check_random_state(self.random_state)
        rows = len(columns[0])
        drawn = rows > _QUANTILE_ROWS
        sample = np.sort(random.choice(rows, _QUANTILE_ROWS, replace=False)) if drawn else None
        folds = _folds(y, rows, random) if y is not None and self.target_encoding else None
        names = [str(name) for name in _check_feature_names_in(self)]
        categories = self._categorical_positions(names)
        found = enumerate(zip(names, columns, strict=True))
        self.columns_ = [self._fit_column(*named, i in categories, sample, folds) for i, named in found]
        return folds

    def _fit_column(
        self, name: str, values: Any, category: bool, sample: NDArray[np.intp] | None, folds: Folds | None
    ) -> FittedColumn:
        how = find_format(values)
        if category and how.kind != "empty":
            how = ColumnFormat("category", reason="named in categorical_features")
        column = FittedColumn(name, how)
        found: Any = column.read(values)
        gap = encoders.gaps_of(found)
        column.gaps = int(gap.sum())
        details: dict[str, Any] = {"mode": self.numeric, "integer_levels": self.integer_levels}
        if column.gaps == len(gap):
            return FittedColumn(name, replace(how, kind="empty"), column.gaps, dropped="no value at all")
        if how.kind == "category":
            column.levels = len(np.unique(found[0][~gap]))
            many = column.levels > self.max_one_hot
            most = {"max_one_hot": self.max_one_hot, "min_frequency": self.min_frequency}
            column.encoder = encoders.CategoryEncoder.fit(found, **most, frequency=many, folds=folds if many else None)
        elif how.kind == "date":
            column.encoder = encoders.DateEncoder.fit(found, sample, **details)
        elif hasattr(self, "feature_names_in_") and (why := identifier_reason(found, name, written=how.text)):
            column.dropped = f"an identifier: {why}"
        else:
            column.encoder = encoders.NumberEncoder.fit(found, sample, **details)
        if not column.dropped and not column.encoder.suffixes:
            column.dropped = _FREE_TEXT if (column.levels or 0) > 1 else "constant"
        return column

    def _write(self, X: Any, folds: Folds | None) -> NDArray[np.float32]:
        rows, used = self.read(X)
        # A network needs at least one input, though this one says nothing.
        out = np.zeros((rows, max(1, sum(len(column.features) for column in self.columns_))), dtype=np.float32)
        end = 0
        for column, values in used:
            start, end = end, end + len(column.features)
            column.write(values, out[:, start:end], folds)
        return out

    def _categorical_positions(self, names: list[str]) -> set[int]:
        given, size = list([] if self.categorical_features is None else self.categorical_features), len(names)
        if given and all(isinstance(g, bool | np.bool_) for g in given):
            if len(given) != size:
                raise ValueError(f"categorical_features: a mask needs one entry per column, {size}, got {len(given)}.")
            return {i for i, g in enumerate(given) if g}
        places: dict[Any, int] = {name: i for i, name in enumerate(names)}
        places |= {i - size: i % size for i in range(2 * size)}
        for one in [one for one in given if one not in places]:
            what = f"no column {one!r}; {close_to(str(one), names)}"
            if isinstance(one, int | np.integer):
                what = f"{size} columns, got position {one}."
            raise ValueError(f"categorical_features: X has {what}")
        return {places[one] for one in given}

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        return state | {"columns_": encoders.pack(state["columns_"])} if "columns_" in state else state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state | {"columns_": encoders.unpack(state["columns_"])} if "columns_" in state else state)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        for name in ("allow_nan", "sparse", "categorical", "string"):
            setattr(tags.input_tags, name, True)
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


def _folds(y: ArrayLike, rows: int, random: np.random.RandomState) -> Folds:
    target = np.asarray(y)
    expect(len(target) == rows, "y", f"one label per row of X, {rows}", len(target))
    several = target.ndim == 2 and target.shape[1] > 1
    if several:
        classes, codes = np.arange(target.shape[1]), target.astype(bool)
    else:
        labels = target.ravel().astype(str) if target.dtype == object else target.ravel()
        classes, codes = np.unique(labels, return_inverse=True)
    counts = codes.sum(axis=0) if several else np.bincount(codes)
    frequent = np.sort(np.argsort(-counts, kind="stable")[:_TARGET_CLASSES])
    if not several and len(classes) == 2:
        frequent = np.array([1])
    indicator = codes[:, frequent] if several else codes[:, None] == frequent
    fold = random.permutation(rows) % _TARGET_FOLDS
    return Folds(indicator, [str(classes[i]) for i in frequent], fold.astype(np.int8))


class UnusedColumnsWarning(UserWarning):
    """Columns were not used; the classifier's choices name them too."""


def column_choices(preprocessor: Any, *, stacklevel: int = 2) -> list[Choice]:
    """What the built-in preprocessor decided about columns; warns of text that was dropped, and if nothing is left."""
    if not isinstance(preprocessor, TablePreprocessor):
        return []
    columns, advice = preprocessor.columns_, "turn the rest into numbers, dates or categories that repeat."
    read = [c.name for c in columns if c.format.text and c.format.kind == "number"]
    dropped: dict[str, list[str]] = {}
    for column in columns:
        dropped.setdefault(column.dropped, []).append(column.name)
    unused = [f"{_named(names)} not used: {reason}" for reason, names in dropped.items() if reason]
    shown = ""
    if not any(c.features for c in columns):
        shown = f"no column can be used, so every row will get the same probabilities ({'; '.join(unused)})."
        shown += " Give columns that vary;"
    elif _FREE_TEXT in dropped:
        shown = f"{_named(dropped[_FREE_TEXT])} not used: {_FREE_TEXT}. Leave out of X what says nothing;"
    if shown:
        warnings.warn(f"X: {shown} {advice}", UnusedColumnsWarning, stacklevel=stacklevel + 1)
    were = "was" if len(read) == 1 else "were"
    found = [Choice("columns", f"{_named(read)} written as text {were} read as numbers")] if read else []
    return found + [Choice("unused", text) for text in unused]


def _named(names: list[str]) -> str:
    some = ", ".join(repr(name) for name in names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"column{'s' if len(names) > 1 else ''} {some}"


def matches_names(preprocessor: Any) -> bool:
    """Whether a preprocessor picks the columns of a frame by name, whatever their order, and misses none silently."""
    first = preprocessor.steps[0][1] if isinstance(preprocessor, Pipeline) else preprocessor
    return isinstance(first, TablePreprocessor | ColumnTransformer)


def as_dense(features: Any, name: str) -> NDArray[np.float32]:
    """Features as a C-contiguous float32 array without gaps."""
    if sparse.issparse(features):
        features = features.toarray()  # type: ignore[attr-defined]
    dense = np.ascontiguousarray(check_array(features, dtype=np.float32, estimator=name, input_name="X"))
    return dense if dense.flags.writeable else dense.copy()  # torch shares the memory of writable arrays alone
