"""What ``fit`` and ``predict`` take beside the target, read and checked: table, weights, seed and device."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import _check_sample_weight, _num_samples

from metricfit.data.preprocessing import TablePreprocessor
from metricfit.data.targets import Target

__all__ = [
    "as_dense",
    "as_device",
    "check_two_dimensions",
    "combined_weights",
    "draw_seed",
    "matches_names",
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
