"""What the papers prove: how far a batch's matrix can be from the population's."""

from __future__ import annotations

import math

__all__ = ["batch_size_for", "deviation_bound"]


def deviation_bound(n: int, classes: int, *, confidence: float = 0.95) -> float:
    """sqrt(log(2 d² / δ) / (2 n)): no cell of the matrix divided by n is further off, with this confidence.

    This is east Theorem 5.8. A metric that is L-Lipschitz in the cells is then within L times this bound (Theorem 5.9).

    Args:
        n: Number of samples.
        classes: Number of classes d.
        confidence: 1 - δ, the probability that the bound holds.

    >>> round(deviation_bound(1024, 2), 4)
    0.0498
    """
    _check(classes, confidence)
    if n < 1:
        raise ValueError(f"n: expected at least one sample, got {n}.")
    return math.sqrt(math.log(2 * classes**2 / (1 - confidence)) / (2 * n))


def batch_size_for(deviation: float, classes: int, *, confidence: float = 0.95) -> int:
    """The smallest batch whose :func:`deviation_bound` is at most ``deviation``.

    >>> batch_size_for(0.05, 2)
    1016
    """
    _check(classes, confidence)
    if not deviation > 0:
        raise ValueError(f"deviation: expected a number > 0, got {deviation}.")
    return math.ceil(math.log(2 * classes**2 / (1 - confidence)) / (2 * deviation**2))


def _check(classes: int, confidence: float) -> None:
    if classes < 1:
        raise ValueError(f"classes: expected at least 1, got {classes}.")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: expected a number strictly between 0 and 1, got {confidence}.")
