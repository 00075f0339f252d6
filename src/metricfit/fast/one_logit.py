"""One logit a sample at the threshold 1/2: soft counts, and the gradient of the logits, compiled.

All is a function of the probability that the wrong class gets, as in :mod:`metricfit.fast.member_loss`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from metricfit.fast.compiled import compiled, exponential, segments_of_step, slope_at, step_at

__all__ = ["count", "pull_back"]

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
def _probabilities(margins: Any, limits: Any) -> None:
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
def count(
    scores: Array, target: Array, weight: Array, class_weight: Array, ignore: int, delta: float, factor: float,
    limits: Array, wrong: Array, weights: Array, counts: Array,
) -> bool:  # fmt: skip
    """Soft counts of a batch; whether labels, logits and weights are in order.

    Args:
        scores: Logits (n,), float32.
        target: 0 and 1, or what is ignored.
        weight: Sample weights (n,), or none.
        class_weight: Of the two classes.
        ignore: The target of samples that do not count.
        delta: Of the step, see ``FivePoints``.
        factor: Of the step.
        limits: See :mod:`metricfit.fast.compiled`.
        wrong: Where the probabilities of the wrong class go, (n,).
        weights: Where the weights go, (n,).
        counts: Where the counts are added, (2, 2).
    """
    number = scores.dtype.type
    if not _margins(scores, target, weight, class_weight, ignore, wrong, weights):
        return False
    _probabilities(wrong, limits)
    missed = np.empty_like(scores)
    _missed(wrong, weights, segments_of_step(number(0.5), number(delta), number(factor), limits), missed)
    for i in range(len(scores)):
        row = 1 if target[i] == 1 else 0
        counts[row, 1 - row] += missed[i]
        counts[row, row] += weights[i] - missed[i]
    return True


@compiled()
def pull_back(
    target: Array, delta: float, factor: float, limits: Array, wrong: Array, weights: Array, of_counts: Array,
    gradient: Array,
) -> None:  # fmt: skip
    """The gradient of the logits, given that of the counts; arguments as above."""
    number = wrong.dtype.type
    one = number(1)
    tau, half, low, middle, high = segments_of_step(number(0.5), number(delta), number(factor), limits)
    for i in range(len(wrong)):
        p = wrong[i]
        gradient[i] = weights[i] * slope_at(p, tau, half, low, middle, high) * p * (one - p)
    of_negative = number(of_counts[0, 1] - of_counts[0, 0])
    of_positive = number(of_counts[1, 1] - of_counts[1, 0])
    for i in range(len(wrong)):
        gradient[i] *= of_positive if target[i] == 1 else of_negative
