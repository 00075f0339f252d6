"""Labels mixed with calibrated beliefs: what a rule is tuned on where labels are few.

The value of a cut-off is the metric of the *expected* confusion matrix under the labels (1 - belief) y + belief Q,
where Q are the probabilities after calibration. A few lucky positives then move the cut-off less.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from metricfit.decisions.problem import Samples

__all__ = ["calibrated", "check_belief", "mixed_labels"]

_PENALTY = 0.1  # on the squares of temperature - 1 and of the biases: about a tenth of a sample's worth

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
        believed = calibrated(np.log(score.clip(min=_least(score))), target, weight)
        known: NDArray[Any] = np.eye(score.shape[1])[target]
    elif target.ndim == 2:
        columns = zip(target.T, score.T, strict=True)
        believed = np.stack([_positive(hit, column, weight) for hit, column in columns], axis=1)
        known = target
    else:
        believed, known = _positive(target, score, weight), target
    return (1 - belief) * known + belief * believed


def calibrated(evidence: Array, target: NDArray[Any], weight: Array | None = None) -> Array:
    """Probabilities softmax(temperature * evidence + bias of the class) with the least log-loss on the samples.

    Args:
        evidence: Log-probabilities or other scores of the classes, (n, classes).
        target: Class codes (n,).
        weight: Weights (n,); their scale does not matter.

    >>> calibrated(np.log([[0.9, 0.1], [0.9, 0.1], [0.2, 0.8]]), np.array([0, 1, 1])).round(2)
    array([[0.52, 0.48],
           [0.52, 0.48],
           [0.05, 0.95]])
    """
    n, size = evidence.shape
    rows = np.arange(n)
    w = np.ones(n) if weight is None else weight * (n / weight.sum())
    start = np.append(1.0, np.zeros(size))  # the temperature, then the biases
    found, loss, log_p = start, np.inf, evidence

    def at(parameters: Array) -> tuple[float, Array]:
        log_p = log_softmax(parameters[0] * evidence + parameters[1:], axis=1)
        penalty = _PENALTY / 2 * ((parameters - start) ** 2).sum()
        return float(penalty - w @ log_p[rows, target]), log_p

    loss, log_p = at(found)
    for _ in range(100):  # Newton's steps on a strictly convex function, halved where they overshoot
        p = np.exp(log_p)
        wp = w[:, None] * p
        missed = wp.copy()
        missed[rows, target] -= w
        gradient = np.append((missed * evidence).sum(), missed.sum(axis=0)) + _PENALTY * (found - start)
        centred = evidence - (p * evidence).sum(axis=1, keepdims=True)
        curvature = _PENALTY * np.eye(size + 1)
        curvature[0, 0] += (wp * centred**2).sum()
        curvature[0, 1:] += (wp * centred).sum(axis=0)
        curvature[1:, 0] = curvature[0, 1:]
        curvature[1:, 1:] += np.diag(wp.sum(axis=0)) - wp.T @ p
        step = np.linalg.solve(curvature, gradient)
        if gradient @ step <= 1e-9 * n:
            break
        size_of_step = 1.0
        while size_of_step > 1e-8:
            moved = found - size_of_step * step
            moved_loss, moved_log_p = at(moved)
            if moved_loss < loss:
                found, loss, log_p = moved, moved_loss, moved_log_p
                break
            size_of_step /= 2
        else:
            break
    return np.exp(log_p)


def _positive(target: NDArray[np.bool_], score: NDArray[Any], weight: Array | None) -> Array:
    """The calibrated probability of being positive, from a probability or from a score of any scale."""
    x = score.astype(np.float64)
    if x.min() >= 0 and x.max() <= 1:
        x = x.clip(_least(x), 1 - _least(x))
        x = np.log(x / (1 - x))
    else:
        x = (x - x.mean()) / (x.std() or 1.0)
    return calibrated(np.stack([np.zeros_like(x), x], axis=1), target.astype(np.intp), weight)[:, 1]


def _least(score: NDArray[Any]) -> float:
    """Probabilities below it cannot be told apart with so many samples; forests give exact zeros."""
    return 0.5 / len(score)
