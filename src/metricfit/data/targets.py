"""The target: labels of a file's columns or of any array, as codes of classes or 0/1 labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from metricfit.choices import Choice
from metricfit.data.columns import find_format, read_column, without_gaps
from metricfit.data.errors import BadArgumentError, BadDataError, BadValueError, close_to
from metricfit.data.reader import Rows
from metricfit.data.tables import repeated
from metricfit.inputs import Task

__all__ = [
    "Target",
    "indicators_of_rows",
    "keep_labelled",
    "labels_of_column",
    "matched_labels",
    "positive_class",
    "read_classes",
    "read_labels",
    "read_target",
    "read_truth",
]

_GAPS = ("", "?", "NaN", "nan")
"""Texts that stand for a missing label; other words for gaps, such as "None", may be the name of a class."""

_MANY_CLASSES = 100
_INDICATORS = {"0": 0, "false": 0, "1": 1, "true": 1}


@dataclass(frozen=True)
class Target:
    """What is to be predicted.

    Attributes:
        task: ``"binary"``, ``"multiclass"`` or ``"multilabel"``.
        classes: Class labels in sorted order; label names for a multi-label target.
        codes: Positions among the classes (n,), or 0/1 (n, labels).
    """

    task: Task
    classes: NDArray[Any]
    codes: NDArray[np.int64]

    @property
    def labels(self) -> tuple[Any, ...]:
        """The classes as plain Python values."""
        return tuple(self.classes.tolist())

    @property
    def truth(self) -> NDArray[Any]:
        """Labels (n,), or 0/1 (n, labels): what metrics take."""
        return self.codes if self.task == "multilabel" else self.classes[self.codes]

    @property
    def smallest_class(self) -> int:
        """Rows of the rarest class, or positives of the rarest label."""
        counts = self.codes.sum(axis=0) if self.task == "multilabel" else np.bincount(self.codes)
        return int(counts.min())


def read_target(y: Any, rows: int) -> Target:
    """Read y: labels of any sortable kind (n,), or 0/1 indicators (n, labels).

    >>> read_target(["b", "a", "b"], 3).codes
    array([1, 0, 1])
    """
    array = _checked_array(y)
    if array.ndim == 2 and array.shape[1] > 1:
        names = range(array.shape[1]) if _column_names(y) is None else y.columns
        target = Target("multilabel", np.asarray(names), _read_indicators(array))
    else:
        array = column_or_1d(array, warn=True)
        if array.dtype == object:
            array = _plain_objects(array)
        check_classification_targets(array)
        classes, codes = np.unique(array, return_inverse=True)
        target = Target("binary" if len(classes) == 2 else "multiclass", classes, codes.astype(np.int64))
    if len(array) != rows:
        raise ValueError(
            f"y: expected one label per row of X, {rows}, got {len(array)}: inconsistent numbers of samples."
        )
    if len(target.classes) < 2:
        only = target.classes.tolist()[0]
        raise ValueError(f"y: holds one class only, {only!r}; a classifier needs at least two classes.")
    return target


def read_truth(y: Any, task: Task, classes: NDArray[Any]) -> NDArray[Any]:
    """Read y to score predictions: labels (n,), or 0/1 (n, labels) in the order of the classes.

    Task and classes are those of the fitted target. Columns of a frame are matched by name.

    >>> import pandas as pd
    >>> read_truth(pd.DataFrame({"b": [0, 0], "a": [1, 0]}), "multilabel", np.array(["a", "b"]))
    array([[1, 0],
           [0, 0]])
    """
    if task != "multilabel":
        return _plain_array(y)
    array = _checked_array(y)
    if array.ndim != 2 or array.shape[1] != len(classes):
        raise ValueError(
            f"y: expected 0/1 indicators of shape (n, {len(classes)}), one column per label, got {array.shape}."
        )
    order = _column_order(_column_names(y), classes.tolist())
    return _read_indicators(array)[:, order]


def _column_names(y: Any) -> list[Any] | None:
    """The names of a frame's columns, checked; None for what has none."""
    if not hasattr(y, "columns"):
        return None
    names = [name.item() if isinstance(name, np.generic) else name for name in y.columns]
    wrong = [
        n for n in names if not isinstance(n, str | int | float) or (isinstance(n, float) and not math.isfinite(n))
    ]
    if wrong:
        raise ValueError(f"y: expected columns named by text or numbers, got {wrong[0]!r}; rename the columns.")
    if twice := repeated(names):
        raise ValueError(f"y: expected columns of different names, got {twice[0]!r} twice; rename the columns.")
    return names


def _column_order(names: list[Any] | None, classes: list[Any]) -> list[int]:
    """Where the column of each class is; names that only count the columns are none."""
    places = list(range(len(classes)))
    if names is None or names == classes:
        return places
    if set(names) == set(classes):
        where = {name: place for place, name in enumerate(names)}
        return [where[label] for label in classes]
    if names == places or (classes == places and not set(names) & set(classes)):
        return places
    other = next(name for name in names if name not in classes)
    raise ValueError(
        f"y: expected the columns {classes[:20]}, as at fit, got {names[:20]}: {other!r} is not among them; rename the "
        "columns, or give an array with the columns in that order."
    )


def _read_indicators(array: NDArray[Any]) -> NDArray[np.int64]:
    plain = np.array(array.tolist()) if array.dtype == object else array
    kind = type_of_target(plain)
    if kind != "multilabel-indicator" or not np.isin(plain, (0, 1)).all():
        values = f" with the values {np.unique(plain).tolist()}" if kind == "multilabel-indicator" else ""
        raise ValueError(
            f"y: expected labels of shape (n,) or 0/1 indicators of shape (n, labels), got {kind} of shape "
            f"{array.shape}{values}."
        )
    return plain.astype(np.int64)


def _plain_array(y: Any) -> NDArray[Any]:
    return np.asarray(y.toarray() if sparse.issparse(y) else y)  # type: ignore[attr-defined]


def _checked_array(y: Any) -> NDArray[Any]:
    """An array of labels without gaps."""
    array = _plain_array(y)
    bad = ~np.isfinite(array) if array.dtype.kind in "fc" else pd.isna(array)
    if bad.any():
        raise ValueError(
            f"y: Input y contains NaN or infinity (or None), {int(bad.sum())} of them; drop the rows without a label."
        )
    return array


def _plain_objects(array: NDArray[Any]) -> NDArray[Any]:
    kinds = {str if isinstance(v, str) else (bool if isinstance(v, bool | np.bool_) else object) for v in array}
    if kinds == {bool}:
        return array.astype(bool)
    if str in kinds and len(kinds) > 1:
        raise TypeError("y: labels of mixed types (text and numbers); convert them to one type.")
    if kinds == {object} and all(isinstance(v, int | np.integer) for v in array):
        return array.astype(np.int64)
    return array


def labels_of_column(values: pa.ChunkedArray) -> pd.Series[Any]:
    """The labels in a column of a file: whole numbers, truth values, numbers or text; None or NaN where there is none.

    >>> labels_of_column(pa.chunked_array([["1", "0", ""]])).tolist()
    [1, 0, None]
    """
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        values = without_gaps(values, _GAPS)
        how = find_format(values, _GAPS)
        if how.kind not in ("number", "flag") or how.style:
            return pd.Series(values.to_pandas(), dtype=object)
        labels = pd.Series(read_column(values, how, _GAPS))
    else:
        labels = values.to_pandas()
        if isinstance(labels.dtype, pd.CategoricalDtype):
            labels = labels.astype(object)
    whole = labels.dtype.kind in "iu"
    if labels.dtype.kind == "f":
        present = labels.dropna()
        whole = bool((present == present.round()).all())
    return pd.Series([None if pd.isna(v) else int(v) for v in labels], dtype=object) if whole else labels


def read_classes(rows: Rows, name: str, task: str, choices: list[Choice]) -> tuple[Rows, NDArray[Any]]:
    """The classes of those rows that have one, in the column ``name``; what was decided is added to the choices."""
    column = f"{rows.file.name}: the column {name!r}"
    labels = labels_of_column(rows.column(name))
    present = labels.notna().to_numpy()
    if not present.any():
        raise BadDataError(f"{column} holds no label at all.")
    rows, y = keep_labelled(rows, present, f"without a label in {name!r}", choices), labels[present].to_numpy()
    if y.dtype == object:
        y = _plain_objects(y)
        y = np.array([str(v) for v in y], dtype=str) if y.dtype == object else y
    found, counts = np.unique(y, return_counts=True)
    classes = found.tolist()
    if len(classes) < 2:
        raise BadDataError(f"{column} holds only {classes[0]!r}; two classes at least.")
    if y.dtype.kind == "f" or len(classes) > max(_MANY_CLASSES, len(y) // 5):
        raise BadDataError(
            f"{column} has {len(classes)} distinct values, such as {', '.join(map(repr, classes[:3]))}: a quantity or "
            "an identifier, no class. Choose another target, or group its values into classes."
        )
    kind = "binary" if len(classes) == 2 else "multiclass"
    if task == "multilabel":
        raise BadArgumentError("task", "multilabel needs several 0/1 columns as the target.")
    if task not in ("auto", kind):
        raise BadArgumentError("task", f"the column {name!r} has {len(classes)} classes, which is {kind}, not {task}.")
    values = {"i": "whole numbers", "b": "truth values"}.get(y.dtype.kind, "text")
    shares = _shares(classes, counts / len(y))
    held = f"task {kind}: {name!r} holds {len(classes)} classes ({values}): {shares}"
    choices.append(Choice("target", held, ("target", "task")))
    if rare := [c for c, n in zip(classes, counts, strict=True) if n < 5]:
        few = f"classes with fewer than 5 rows can hardly be learned: {', '.join(map(repr, rare[:10]))}"
        choices.append(Choice("target", few))
    return rows, y


def read_labels(rows: Rows, names: Sequence[str], task: str, choices: list[Choice]) -> tuple[Rows, NDArray[Any]]:
    """Several 0/1 columns as labels (rows, labels) of those rows that have them all; arguments as above."""
    if task not in ("auto", "multilabel"):
        raise BadArgumentError("task", f"several target columns are labels, which is multilabel, not {task}.")
    found, present = indicators_of_rows(rows, names)
    if not present.any():
        raise BadDataError(f"{rows.file.name}: no row has all of the labels {', '.join(map(repr, names))}.")
    rows = keep_labelled(rows, present, "that lack one of the labels", choices)
    shares = found.mean(axis=0)
    for name, share in zip(names, shares, strict=True):
        if share in (0, 1):
            raise BadDataError(
                f"{rows.file.name}: the column {name!r} holds only {share:.0f}; there is nothing to learn."
            )
    held = f"task multilabel: {len(names)} labels, of which a row may have any: {_shares(names, shares)}"
    choices.append(Choice("target", held, ("target",)))
    return rows, found


def keep_labelled(rows: Rows, present: NDArray[np.bool_], which: str, choices: list[Choice]) -> Rows:
    """The rows that have a label; a choice says how many were left out."""
    if present.all():
        return rows
    choices.append(Choice("rows", f"{int((~present).sum()):,} rows {which} left out"))
    return rows.take(present)


def _shares(names: Sequence[Any], shares: NDArray[np.float64]) -> str:
    shown = ", ".join(f"{name!r} {share:.1%}" for name, share in list(zip(names, shares, strict=True))[:10])
    return shown + (", …" if len(names) > 10 else "")


def indicators_of_rows(rows: Rows, names: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """0/1 columns of the rows that have a value in each of them (present, columns), and which rows these are."""
    expected = "0 or 1, as one of several target columns"
    columns = np.stack([_matched(rows, name, _INDICATORS, expected) for name in names], axis=1)
    present = np.asarray(~pd.isna(columns).any(axis=1))
    return columns[present].astype(np.int64), present


def matched_labels(rows: Rows, name: str, classes: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The target's labels among a model's classes, of the rows that have one, and which rows these are."""
    known = {_label_text(label): label for label in classes.tolist()}
    expected = f"one of the model's classes ({', '.join(repr(c) for c in classes.tolist()[:10])})"
    labels = _matched(rows, name, known, expected, exact=classes.dtype.kind not in "iufb")
    present = ~pd.isna(labels)
    return np.array(labels[present].tolist(), dtype=classes.dtype), present


def _matched(rows: Rows, name: str, known: dict[str, Any], expected: str, exact: bool = False) -> NDArray[Any]:
    """What the values of a column stand for, None for gaps; unless exact, 1.0 is 1 and TRUE is true."""
    codes, values = pd.factorize(pd.Series(rows.column(name).to_pylist(), dtype=object))
    found: list[Any] = []
    for code, text in enumerate(map(_label_text, values)):
        label = known.get(text)
        if label is None and not exact:
            label = known.get(_number_text(text), known.get(text.lower()))
        if label is None and text not in _GAPS:
            raise rows.bad(name, BadValueError(int(np.flatnonzero(codes == code)[0]), text, expected))
        found.append(label)
    return np.array([*found, None], dtype=object)[codes]


def positive_class(task: str, classes: list[Any], given: str | None) -> Any:
    """The class that is named as the positive one; None if none is."""
    if given is None:
        return None
    if task != "binary":
        what = "labels" if task == "multilabel" else "classes"
        raise BadArgumentError("positive", f"has a meaning for two classes; the target has {len(classes)} {what}.")
    by_text = {str(label): label for label in classes}
    if given not in by_text:
        raise BadArgumentError("positive", f"no class {given!r}; {close_to(given, by_text)}")
    return by_text[given]


def _label_text(value: Any) -> str:
    """A label as text: 1, 1.0 and " 1" are the same, and so are True and true."""
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def _number_text(text: str) -> str:
    try:
        return _label_text(float(text))
    except ValueError:
        return text
