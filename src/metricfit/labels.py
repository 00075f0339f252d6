"""Arrays of labels, scores and weights: read, checked and encoded, for training and for evaluation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from metricfit.inputs import Task, expect

Labels = Sequence[Hashable] | None
Weights = ArrayLike | None


def codes_of_labels(
    y_true: ArrayLike, y_pred: ArrayLike, labels: Labels, sample_weight: Weights
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.float64] | None, tuple[Any, ...] | None, Task]:
    """Codes of true and predicted labels (or 0/1 indicators), weights, class names and task."""
    true, pred = as_label_array(y_true, "y_true"), as_label_array(y_pred, "y_pred")
    expect(true.shape == pred.shape, "y_pred", f"the shape of y_true, {true.shape}", pred.shape)
    weight = checked_weights(sample_weight, len(true))
    if true.ndim == 2:
        return _indicators(true, "y_true"), _indicators(pred, "y_pred"), weight, _given_labels(labels), "multilabel"
    names = class_labels(true, pred, labels=labels)
    task: Task = "binary" if len(names) == 2 else "multiclass"
    return encode_labels(true, names, "y_true"), encode_labels(pred, names, "y_pred"), weight, names, task


def sweep_of_scores(
    y_true: ArrayLike, score: ArrayLike, thresholds: Sequence[float] | None, labels: Labels, sample_weight: Weights
) -> tuple[NDArray[np.float64], Task, tuple[Any, ...] | None]:
    """Counts at every cut-off; see :meth:`metricfit.ConfusionMatrix.from_scores`."""
    true = as_label_array(y_true, "y_true")
    scores = score_array(score, "y_pred")
    expect(len(scores) == len(true), "y_pred", f"{len(true)} scores, one per sample of y_true", len(scores))
    weight = checked_weights(sample_weight, len(true))
    if true.ndim == 2:
        names, indicator = _given_labels(labels), _indicators(true, "y_true").astype(bool)
    else:
        names = class_labels(true, labels=labels)
        indicator = encode_labels(true, names, "y_true")[:, None] == np.arange(len(names))
        if indicator.shape[1] == 2 and scores.shape in ((len(true),), (len(true), 2)):
            return _sweep(indicator[:, 1], scores.reshape(len(true), -1)[:, -1], weight, thresholds), "binary", names
    wanted = f"scores of shape {indicator.shape}, one column for each of {indicator.shape[1]} classes"
    advice = "name classes that do not occur with labels=[…]"
    expect(indicator.shape == scores.shape, "y_pred", wanted, scores.shape, advice)
    sweeps = [_sweep(indicator[:, k], scores[:, k], weight, thresholds) for k in range(scores.shape[1])]
    longest = max(len(s) for s in sweeps)
    padded = [np.concatenate([s, np.repeat(s[-1:], longest - len(s), axis=0)]) for s in sweeps]
    return np.stack(padded, axis=1), "multilabel", names


def _sweep(
    positive: NDArray[np.bool_], score: NDArray[Any], weight: NDArray[Any] | None, thresholds: Sequence[float] | None
) -> NDArray[np.float64]:
    order = np.argsort(score, kind="stable")[::-1]
    falling, hit = score[order], positive[order]
    if thresholds is None:
        chosen = np.concatenate([[0], np.flatnonzero(np.diff(falling)) + 1, [len(score)]])
    else:  # compared in the scores' dtype, so that a float32 score of 0.7 reaches a threshold of 0.7
        chosen = len(score) - np.searchsorted(falling[::-1], np.asarray(thresholds, dtype=score.dtype), side="left")
    rows = np.stack([~hit, hit], axis=1) * (np.ones(len(score)) if weight is None else weight[order])[:, None]
    above = np.vstack([np.zeros((1, 2)), np.cumsum(rows, axis=0)])
    below = np.vstack([np.cumsum(rows[::-1], axis=0)[::-1], np.zeros((1, 2))])
    return np.asarray(np.stack([below, above], axis=-1)[chosen])


def as_numpy(values: Any) -> Any:
    """A tensor as an array; other values as they are."""
    if isinstance(values, torch.Tensor):
        values = (values.float() if values.dtype == torch.bfloat16 else values).detach().cpu().numpy()
    return values


def score_array(values: ArrayLike, name: str) -> NDArray[Any]:
    """Scores as an array of finite floats."""
    array = np.asarray(as_numpy(values))
    # Frames with nullable columns become objects.
    is_number_objects = array.dtype.kind == "O" and all(isinstance(v, Real) for v in array.flat)
    if array.dtype.kind in "biu" or is_number_objects:
        array = array.astype(np.float64)
    if array.dtype.kind != "f":
        raise TypeError(f"{name}: expected numbers, got {array.dtype}.")
    expect(array.ndim and len(array), name, "scores of at least one sample", array.shape)
    if not np.isfinite(array).all():
        places = f"{int((~np.isfinite(array)).sum())} places; drop those samples or mend the model"
        raise ValueError(f"{name}: expected finite numbers, got NaN or infinity in {places}.")
    return array


def _indicators(array: NDArray[Any], name: str) -> NDArray[np.int64]:
    """0/1 indicators (n, labels), checked."""
    if not np.isin(array, (0, 1)).all():
        expected = "labels of shape (n,) or 0/1 indicators of shape (n, labels)"
        got = f"an array of shape {array.shape} with the values {np.unique(array).tolist()[:10]}"
        raise ValueError(f"{name}: expected {expected}, got {got}; several columns must hold 0 and 1 only.")
    return array.astype(np.int64)


def _given_labels(labels: Labels) -> tuple[Any, ...] | None:
    """The labels as plain Python values."""
    return None if labels is None else tuple(v.item() if isinstance(v, np.generic) else v for v in labels)


def as_label_array(values: Any, name: str) -> NDArray[Any]:
    """Labels as an array of one or two dimensions, of text or of numbers, with a clear error for what is not."""
    values = values.toarray() if hasattr(values, "toarray") else as_numpy(values)
    try:
        array = np.asarray(values)
    except ValueError:
        raise ValueError(f"{name}: expected labels of shape (n,) or (n, labels), got rows of unequal length.") from None
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    expect(array.ndim in (1, 2), name, "labels of shape (n,) or (n, labels)", array.shape)
    expect(len(array) > 0, name, "at least one sample", array.shape)
    gap = np.zeros(0, dtype=bool)
    if array.dtype.kind == "O" or (array.dtype.kind == "U" and not isinstance(values, np.ndarray)):
        from pandas import isna

        flat = np.asarray(values, dtype=object).ravel()
        gap, text = isna(flat), [isinstance(value, str) for value in flat]
        if not gap.any():
            if any(text) and not all(text):  # would silently become text
                raise TypeError(f"{name}: holds both text and numbers; convert the labels to one type.")
            array = np.array(flat.tolist()).reshape(array.shape)
    if array.dtype.kind in "fc":
        gap = ~np.isfinite(array)
    if gap.any():
        found = f"{int(gap.sum())} of them; drop the rows without a label."
        raise ValueError(f"{name}: Input {name} contains NaN, infinity or missing values (None), {found}")
    return array


def class_labels(*arrays: NDArray[Any], labels: Labels = None) -> tuple[Any, ...]:
    """The classes that occur (or those given), plain Python values in sorted order."""
    if labels is not None:
        classes = _given_labels(labels) or ()
        expect(classes and len(set(classes)) == len(classes), "labels", "distinct class labels", list(classes))
        return classes
    if len({a.dtype.kind in "US" for a in arrays}) > 1:
        raise TypeError("y_true and y_pred: one holds text, the other numbers; convert one of them.")
    found = np.unique(np.concatenate([np.unique(a) for a in arrays]))
    classes = tuple(found.tolist())
    if len(classes) == 1 and classes[0] in (-1, 0, 1):  # completed to its usual pair
        kind: Any = type(classes[0])
        return (kind(-1 if classes[0] == -1 else 0), kind(1))
    return classes


def encode_labels(values: NDArray[Any], classes: tuple[Any, ...], name: str) -> NDArray[np.intp]:
    """Positions of labels among the classes."""
    known = np.asarray(classes)
    expected, got = ("text" if array.dtype.kind in "US" else "numbers" for array in (known, values))
    if expected != got:
        raise TypeError(f"{name}: the classes {list(classes)[:20]} are {expected}, the labels are {got}.")
    order = np.argsort(known, kind="stable")
    places: NDArray[np.intp] = order[np.minimum(np.searchsorted(known[order], values), len(known) - 1)]
    for example in values[known[places] != values].tolist()[:1]:
        raise ValueError(f"{name}: label {example!r} is not among the classes {list(classes)[:20]}.")
    return places


def checked_weights(sample_weight: Weights, n: int, *, all_zero: bool = False) -> NDArray[np.float64] | None:
    """Sample weights as an array of finite numbers >= 0 that are not all zero, unless they are a part that may be."""
    if sample_weight is None:
        return None
    try:
        weight = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError("sample_weight: expected numbers, one per sample.") from None
    expect(weight.shape == (n,), "sample_weight", f"shape ({n},)", weight.shape)
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise ValueError("sample_weight: expected finite weights >= 0.")
    if not all_zero and not weight.any():
        advice = "Sample weights must contain at least one non-zero number."
        raise ValueError(f"sample_weight: all weights are zero. {advice}")
    return weight


def combined_weights(
    target: Target, sample_weight: Weights, class_weight: Any
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Weights for training (sample times class weights) and for the metric (sample weights), both (n,) of mean 1."""
    from sklearn.utils.class_weight import compute_sample_weight

    given = checked_weights(sample_weight, len(target.codes))
    weight = trained = np.ones(len(target.codes)) if given is None else given / given.mean()
    if class_weight is not None:
        if target.task == "multilabel":
            raise ValueError("class_weight: has no meaning for a multi-label target; use sample_weight.")
        for label, value in class_weight.items() if isinstance(class_weight, dict) else ():
            if not isinstance(value, int | float | np.number) or not 0 <= value < math.inf:
                raise ValueError(f"class_weight: expected finite weights >= 0, got {value!r} for class {label!r}.")
        trained = weight * compute_sample_weight(class_weight, target.truth)
        if not trained.sum() > 0:
            raise ValueError("class_weight: all rows have weight zero.")
        trained = trained / trained.mean()
    return trained.astype(np.float32), weight.astype(np.float32)


def row_count(X: Any) -> int:
    """Rows of a table, at least one; a single row or column must have been made a table."""
    from sklearn.utils.validation import _num_samples

    rows = int(_num_samples(X))
    if len(getattr(X, "shape", (0, 0))) == 1:
        advice = "Reshape your data: X.reshape(1, -1) for one row, X.reshape(-1, 1) for one column."
        raise ValueError(f"X: Expected 2D array, got 1D array instead. {advice}")
    if not rows:
        raise ValueError("X: Found array with 0 sample(s), a minimum of 1 is required.")
    return rows


@dataclass(frozen=True)
class Target:
    """What is to be predicted: sorted classes and each row's place among them, or names of labels and 0/1 codes."""

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
    """Read y: labels of any sortable kind (n,), or 0/1 indicators (n, labels)."""
    from sklearn.utils import column_or_1d
    from sklearn.utils.multiclass import check_classification_targets

    array = as_label_array(y, "y")
    if array.ndim == 2:
        names = range(array.shape[1]) if _column_names(y) is None else y.columns
        target = Target("multilabel", np.asarray(names), _indicators(array, "y"))
    else:
        column_or_1d(y, warn=True)  # warns of a single column
        check_classification_targets(array)
        classes, codes = np.unique(array, return_inverse=True)
        target = Target("binary" if len(classes) == 2 else "multiclass", classes, codes.astype(np.int64))
    expect(len(array) == rows, "y", f"one label per row of X, {rows}", len(array), "inconsistent numbers of samples")
    if len(target.classes) < 2:
        raise ValueError(f"y: holds one class only, {target.labels[0]!r}; a classifier needs at least two classes.")
    return target


def read_truth(y: Any, task: Task, classes: NDArray[Any]) -> NDArray[Any]:
    """Read y to score predictions of fitted classes: labels (n,), or 0/1 (n, labels), columns of a frame by name."""
    array = as_label_array(y, "y")
    if task != "multilabel":
        return array
    wanted = f"0/1 indicators of shape (n, {len(classes)}), one column per label"
    expect(array.ndim == 2 and array.shape[1] == len(classes), "y", wanted, array.shape)
    return _indicators(array, "y")[:, _column_order(_column_names(y), classes.tolist())]


def _column_names(y: Any) -> list[Any] | None:
    """The names of a frame's columns, checked; None for what has none."""
    if not hasattr(y, "columns"):
        return None
    names = list(_given_labels(y.columns) or ())
    for name in names:
        is_name = isinstance(name, str) or (isinstance(name, int | float) and math.isfinite(name))
        expect(is_name, "y", "columns named by text or numbers", name, "rename the columns")
    if twice := repeated(names):
        raise ValueError(f"y: expected columns of different names, got {twice[0]!r} twice; rename the columns.")
    return names


def _column_order(names: list[Any] | None, classes: list[Any]) -> list[int]:
    """Where the column of each class is; names that only count the columns are none."""
    places = list(range(len(classes)))
    if names is not None and set(names) == set(classes):
        return [names.index(label) for label in classes]
    if names is None or names == places or (classes == places and not set(names) & set(classes)):
        return places
    got = f"got {names[:20]}: {next(name for name in names if name not in classes)!r} is not among them"
    advice = "rename the columns, or give an array with the columns in that order"
    raise ValueError(f"y: expected the columns {classes[:20]}, as at fit, {got}; {advice}.")


def repeated(names: Iterable[Any]) -> list[Any]:
    """The names that occur more than once, in their order."""
    return [name for name, count in Counter(names).items() if count > 1]


def column_of(columns: Mapping[str, Any] | None, name: str, rows: int) -> NDArray[Any]:
    """A column that a metric names, one value for each of the rows."""
    if columns is None or name not in columns:
        known = ", ".join(map(repr, [*(() if columns is None else columns)][:20]))
        got = f"got {known}" if known else "none were given"
        raise ValueError(f"columns: the metric needs {name!r}, {got}; give columns={{{name!r}: values}}, or a table.")
    values = np.asarray(as_numpy(columns[name]))
    expect(values.shape == (rows,), f"columns[{name!r}]", f"shape ({rows},)", values.shape)
    return values


def group_names(columns: Mapping[str, Any] | None, name: str, rows: int) -> NDArray[Any]:
    """The group of each row: dates are taken day by day, and gaps are a group of their own."""
    from pandas import isna

    values = column_of(columns, name, rows)
    gap = isna(values)
    values = values.astype("datetime64[D]") if values.dtype.kind == "M" else values
    return np.where(gap, "missing", values.astype(str)) if gap.any() or values.dtype.kind in "OM" else values


def rows_columns(names: Iterable[str], X: Any, columns: Mapping[str, Any] | None, rows: int) -> dict[str, NDArray[Any]]:
    """The columns that a metric names, as they were given or else as a table has them."""
    table = X if hasattr(X, "columns") else {}
    return {
        name: column_of(columns if columns is not None and name in columns else table, name, rows) for name in names
    }
