"""One logit a sample, from logits to loss and gradient in one compiled call.

All is a function of the probability that the wrong class gets, as in :mod:`metricfit._kernels.member_loss`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from metricfit._kernels.compiled import compiled, exponential, segments_of_step, slope_at, step_at
from metricfit._kernels.matrices import loss_of_matrix

__all__ = ["loss_and_gradient"]

Array = np.ndarray[Any, Any]


@compiled()
def _margins(
    scores: Any, target: Any, weight: Any, class_weight: Any, ignore: int, margins: Any, weights: Any
) -> bool:  # fmt: skip
    """Logits with the sign of the true class, and weights; whether all of them are in order."""
    zero = weights.dtype.type(0)
    for i in range(len(scores)):
        label, margin, w = target[i], zero, zero
        if label != ignore:
            if label < 0 or label > 1:
                return False
            w = class_weight[label] * weight[i] if len(weight) else class_weight[label]
            margin = scores[i] if label else -scores[i]
            if not (w >= zero and w < np.inf and abs(margin) < np.inf):
                return False
        margins[i], weights[i] = margin, w
    return True


@compiled()
def _wrong(margins: Any, limits: Any) -> None:
    """From margins to the probabilities of the wrong class, in place."""
    zero, one = margins.dtype.type(0), margins.dtype.type(1)
    for i in range(len(margins)):
        margin = margins[i]
        tail = exponential(-margin if margin > zero else margin, limits)
        margins[i] = (tail if margin > zero else one) / (one + tail)


@compiled()
def _missed(wrong: Any, weights: Any, step: Any, out: Any) -> None:
    one = wrong.dtype.type(1)
    tau, half, low, middle, high = step
    for i in range(len(wrong)):
        out[i] = weights[i] * step_at(wrong[i], tau, half, low, middle, high, one)


@compiled()
def _slopes(wrong: Any, weights: Any, step: Any, out: Any) -> None:
    one = wrong.dtype.type(1)
    tau, half, low, middle, high = step
    for i in range(len(wrong)):
        p = wrong[i]
        out[i] = weights[i] * slope_at(p, tau, half, low, middle, high) * p * (one - p)


@compiled()
def loss_and_gradient(
    scores: Array, target: Array, weight: Array, class_weight: Array, ignore: int, delta: float, factor: float,
    limits: Array, ratio: Array, label: int, undefined: float, gradient: Array,
) -> float:  # fmt: skip
    """The loss of a batch, or NaN where something is out of order; the gradient goes to the last argument.

    Args:
        scores: Logits (n,), float32.
        target: 0 and 1, or what is ignored.
        weight: Sample weights (n,), or none.
        class_weight: Of the two classes.
        ignore: The target of samples that do not count.
        delta: Of the step, see ``FivePoints``.
        factor: Of the step.
        limits: See :mod:`metricfit._kernels.compiled`.
        ratio: Of the metric, see ``ClosedForm``; empty for MCC.
        label: The class whose metric it is.
        undefined: The value of 0/0.
        gradient: As the logits.
    """
    number = scores.dtype.type
    wrong, weights = np.empty_like(scores), np.empty_like(scores)
    if not _margins(scores, target, weight, class_weight, ignore, wrong, weights):
        return math.nan
    _wrong(wrong, limits)
    step = segments_of_step(number(0.5), number(delta), number(factor), limits)
    _missed(wrong, weights, step, gradient)
    counts = np.zeros((1, 2, 2))
    for i in range(len(scores)):
        row = 1 if target[i] == 1 else 0
        counts[0, row, 1 - row] += gradient[i]
        counts[0, row, row] += weights[i] - gradient[i]
    loss, of_counts = loss_of_matrix(counts, ratio, label, undefined, True)
    of_negative = number(of_counts[0, 1] - of_counts[0, 0])
    of_positive = number(of_counts[1, 1] - of_counts[1, 0])
    _slopes(wrong, weights, step, gradient)
    for i in range(len(scores)):
        gradient[i] *= of_positive if target[i] == 1 else of_negative
    return float(loss)
