"""Money: what the decision about each row is worth, where rows differ."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from metricfit.confusion import ConfusionMatrix
from metricfit.metrics import Metric

__all__ = ["TotalGain", "expected_gain", "gain_table"]

_OUTCOMES = ("tp", "fp", "fn", "tn")


class TotalGain(Metric):
    """The sum of a matrix whose cells hold money instead of counts."""

    range = (-math.inf, math.inf)

    def compute(self, cm: ConfusionMatrix) -> Tensor:
        """The sum of all cells."""
        return cm.matrix.sum(dim=(-2, -1))

    def __str__(self) -> str:
        return "total gain"


def gain_table(gain: Sequence[ArrayLike], n: int) -> NDArray[np.float64]:
    """Gains as an array (n, 2, 2): what row i is worth, by its truth and by its decision.

    Args:
        gain: What a true positive, a false positive, a false negative and a true negative are worth, each a number or
            an array (n,). A cost is a negative gain.
        n: The number of rows.

    >>> gain_table((np.array([95, 20]), -5, 0, 0), 2)[:, 1, 1]
    array([95., 20.])
    """
    if isinstance(gain, str) or len(gain) != 4:
        raise ValueError(f"gain: expected four numbers or arrays (tp, fp, fn, tn), got {len(gain)} of them.")
    table = np.empty((n, 4))
    for column, (name, worth) in enumerate(zip(_OUTCOMES, gain, strict=True)):
        try:
            values = np.asarray(worth, dtype=np.float64)
        except (TypeError, ValueError):
            raise TypeError(f"gain: expected numbers for {name}, got {worth!r}.") from None
        if values.shape not in ((), (n,)):
            raise ValueError(f"gain: expected one number or shape ({n},) for {name}, got {values.shape}.")
        if not np.isfinite(values).all():
            raise ValueError(f"gain: expected finite numbers for {name}; fill the gaps first.")
        table[:, column] = values
    tp, fp, fn, tn = table.T
    if (tp <= fn).all() and (fp <= tn).all():
        raise ValueError(
            "gain: a positive decision never pays: tp <= fn and fp <= tn on every row. A cost is a negative gain, such "
            "as fp=-5 and fn=-amount."
        )
    return np.stack([tn, fp, fn, tp], axis=1).reshape(n, 2, 2)


def expected_gain(proba: ArrayLike, gain: Sequence[ArrayLike]) -> NDArray[np.float64]:
    """What calling a row positive is expected to bring more than not: the score to cut where amounts are known.

    Where the amount of a row is known before its truth, p (tp - fn) + (1 - p) (fp - tn) ranks rows by money. With
    probabilities that can be trusted, call all rows above 0; :func:`best_threshold` finds the cut-off for others.

    Args:
        proba: Probabilities of the positive class, (n,).
        gain: What a true positive, a false positive, a false negative and a true negative are worth, numbers or (n,).

    >>> expected_gain([0.1, 0.1], (np.array([95, 20]), -5, 0, 0))
    array([ 5. , -2.5])
    """
    p = np.asarray(proba, dtype=np.float64)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"proba: expected probabilities of the positive class, shape (n,), got shape {p.shape}.")
    (tn, fp), (fn, tp) = gain_table(gain, len(p)).transpose(1, 2, 0)
    return np.asarray(p * (tp - fn) + (1 - p) * (fp - tn))
