"""What ``fit`` and ``predict`` take, read and checked: tables, targets, weights, seed and device."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, _num_samples

from metricfit.data import TablePreprocessor
from metricfit.inputs import Task

__all__ = [
    "Target",
    "as_dense",
    "as_device",
    "check_two_dimensions",
    "combined_weights",
    "draw_seed",
    "matches_names",
    "read_target",
    "read_truth",
    "row_count",
]


def row_count(X: Any) -> int:
    """Rows of a table, at least one."""
    rows = int(_num_samples(X))
    check_two_dimensions(X)
    if not rows:
        raise ValueError("X: Found array with 0 sample(s), a minimum of 2 is required.")
    return rows


def check_two_dimensions(X: Any) -> None:
    """Refuse a single row or column that has not been made a table."""
    if len(getattr(X, "shape", (0, 0))) == 1:
        raise ValueError(
            "X: Expected 2D array, got 1D array instead. Reshape your data: X.reshape(1, -1) for one row, "
            "X.reshape(-1, 1) for one column."
        )


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


def as_device(device: str | torch.device) -> torch.device:
    """The device, and for ``"auto"`` the GPU of this process, or the CPU."""
    if device != "auto":
        return torch.device(device)
    if not torch.cuda.is_available():
        return torch.device("cpu")
    # torchrun gives each process of a machine a number: one GPU each.
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))


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
    array = _plain_array(y)
    if array.dtype == object or array.dtype.kind in "fc":
        _check_gaps(array)
    if array.ndim == 2 and array.shape[1] > 1:
        _check_length(len(array), rows)
        names = _column_names(y)
        classes = np.arange(array.shape[1]) if names is None else np.asarray(y.columns)
        return Target("multilabel", classes, _read_indicators(array))
    array = column_or_1d(array, warn=True)
    _check_length(len(array), rows)
    if array.dtype == object:
        array = _plain_objects(array)
    check_classification_targets(array)
    classes, codes = np.unique(array, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"y: holds one class only, {classes.tolist()[0]!r}; a classifier needs at least two classes.")
    return Target("binary" if len(classes) == 2 else "multiclass", classes, codes.astype(np.int64))


def read_truth(y: Any, task: Task, classes: NDArray[Any]) -> NDArray[Any]:
    """Read y to score predictions: labels (n,), or 0/1 (n, labels) in the order of the classes.

    Columns of a frame are matched by name.

    Args:
        y: As for :func:`read_target`.
        task: The task of the fitted target.
        classes: Its classes.

    >>> import pandas as pd
    >>> read_truth(pd.DataFrame({"b": [0, 0], "a": [1, 0]}), "multilabel", np.array(["a", "b"]))
    array([[1, 0],
           [0, 0]])
    """
    array = _plain_array(y)
    if task != "multilabel":
        return array
    if array.ndim != 2 or array.shape[1] != len(classes):
        raise ValueError(
            f"y: expected 0/1 indicators of shape (n, {len(classes)}), one column a label, got {array.shape}."
        )
    if array.dtype == object or array.dtype.kind in "fc":
        _check_gaps(array)
    order = _column_order(_column_names(y), classes.tolist())
    return _read_indicators(array)[:, order]


def _plain_array(y: Any) -> NDArray[Any]:
    """An array of labels, also from a sparse matrix."""
    return np.asarray(y.toarray() if sparse.issparse(y) else y)  # type: ignore[attr-defined]


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
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise ValueError(f"y: expected columns of different names, got {twice[0]!r} twice; rename the columns.")
    return names


def _column_order(names: list[Any] | None, classes: list[Any]) -> list[int]:
    """Where the column of each class is; names that only count the columns are none."""
    places = list(range(len(classes)))
    if names is None or names == classes:
        return places
    if set(names) == set(classes):
        return [names.index(label) for label in classes]
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


def _check_gaps(array: NDArray[Any]) -> None:
    if array.dtype.kind in "fc":
        bad = ~np.isfinite(array)
    else:
        flat = array.ravel()
        bad = np.array([v is None or (isinstance(v, float) and v != v) or type(v).__name__ in ("NAType", "NaTType")
                        for v in flat], dtype=bool)  # fmt: skip
    if bad.any():
        raise ValueError(
            f"y: Input y contains NaN or infinity (or None), {int(bad.sum())} of them; drop the rows without a label."
        )


def _plain_objects(array: NDArray[Any]) -> NDArray[Any]:
    kinds = {str if isinstance(v, str) else (bool if isinstance(v, bool | np.bool_) else object) for v in array}
    if kinds == {bool}:
        return array.astype(bool)
    if str in kinds and len(kinds) > 1:
        raise TypeError("y: labels of mixed types (text and numbers); convert them to one type.")
    if kinds == {object} and all(isinstance(v, int | np.integer) for v in array):
        return array.astype(np.int64)
    return array


def _check_length(found: int, rows: int) -> None:
    if found != rows:
        raise ValueError(f"y: expected one label a row of X, {rows}, got {found}: inconsistent numbers of samples.")


def combined_weights(
    target: Target, X: Any, sample_weight: ArrayLike | None, class_weight: Any
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Weights for training (sample times class weights) and for the metric (sample weights), both (n,).

    Args:
        target: The target.
        X: Anything with the right number of rows.
        sample_weight: Weights, or None.
        class_weight: None, ``"balanced"`` or a dictionary.
    """
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    weight = weight / weight.mean()
    trained = weight
    if class_weight is not None:
        if target.task == "multilabel":
            raise ValueError("class_weight: has no meaning for a multi-label target; use sample_weight.")
        _check_class_weight(class_weight)
        by_class = compute_class_weight(class_weight, classes=target.classes, y=target.truth)
        trained = weight * by_class[target.codes]
        if not trained.sum() > 0:
            raise ValueError("class_weight: all rows have weight zero.")
        trained = trained / trained.mean()
    return trained.astype(np.float32), weight.astype(np.float32)


def _check_class_weight(class_weight: Any) -> None:
    """Refuse weights that are no finite numbers >= 0."""
    if not isinstance(class_weight, dict):
        return
    for label, value in class_weight.items():
        try:
            good = 0 <= float(value) < math.inf
        except (TypeError, ValueError):
            good = False
        if not good:
            raise ValueError(f"class_weight: expected finite weights >= 0, got {value!r} for class {label!r}.")


def draw_seed(random_state: Any) -> tuple[int, bool]:
    """A seed, and whether it follows from ``random_state`` alone; global generators are left alone."""
    if random_state is None:
        return int(np.random.default_rng().integers(2**31)), False
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1)), False
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31)), False
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool) and 0 <= random_state < 2**32:
        return int(random_state), True
    raise ValueError(f"random_state: expected None, a seed from 0 to 2**32 - 1 or a generator, got {random_state!r}.")
