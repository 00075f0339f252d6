"""What ``fit`` and ``predict`` take: tables of two dimensions, dense features, a device."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array
from sklearn.utils.validation import _num_samples

from metricfit.data import TablePreprocessor

__all__ = ["as_dense", "as_device", "check_two_dimensions", "matches_names", "row_count"]


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
