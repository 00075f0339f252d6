"""Weights and seeds: from what is given to plain arrays and numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import _check_sample_weight

from metricfit.data.targets import Target

__all__ = ["combined_weights", "draw_seed"]


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
