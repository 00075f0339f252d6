"""Labels mixed with calibrated beliefs: what a rule is tuned on where labels are few.

The value of a cut-off is the metric of the *expected* confusion matrix under the labels (1 - belief) y + belief Q,
where Q are the probabilities after calibration. A few lucky positives then move the cut-off less.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit.decisions.calibration import calibrated, least
from metricfit.decisions.problem import Samples

__all__ = ["check_belief", "mixed_labels"]

Array = NDArray[np.float64]


def check_belief(belief: float) -> None:
    """Raise unless it is a share of a label."""
    if isinstance(belief, bool) or not isinstance(belief, (int, float)) or not 0 <= belief <= 1:
        raise ValueError(
            f"belief: expected a number from 0 (labels alone) to 1 (calibrated probabilities alone), got {belief!r}."
        )


def mixed_labels(samples: Samples, belief: float) -> Array | None:
    """Labels of which the share ``belief`` is replaced by calibrated probabilities; None for a share of 0.

    Returns:
        The weight of each class, (n, classes); of being positive, (n,) or (n, labels).
    """
    if belief == 0:
        return None
    target, score, weight = samples.target, samples.score, samples.weight
    if target.dtype != bool:
        believed = calibrated(np.log(score.clip(min=least(score))), target, weight)
        known: NDArray[Any] = np.eye(score.shape[1])[target]
    elif target.ndim == 2:
        columns = zip(target.T, score.T, strict=True)
        believed = np.stack([_positive(hit, column, weight) for hit, column in columns], axis=1)
        known = target
    else:
        believed, known = _positive(target, score, weight), target
    return (1 - belief) * known + belief * believed


def _positive(target: NDArray[np.bool_], score: NDArray[Any], weight: Array | None) -> Array:
    """The calibrated probability of being positive, from a probability or from a score of any scale."""
    x = score.astype(np.float64)
    if x.min() >= 0 and x.max() <= 1:
        x = x.clip(least(x), 1 - least(x))
        x = np.log(x / (1 - x))
    else:
        x = (x - x.mean()) / (x.std() or 1.0)
    return calibrated(np.stack([np.zeros_like(x), x], axis=1), target.astype(np.intp), weight)[:, 1]
