"""Compiled losses of a confusion matrix with their gradients, in float64.

A gradient has the form G[t, k] = row[t] + column[k] + (t = k) diagonal[k].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from metricfit.fast.compiled import compiled
from metricfit.fast.loops import Parts, mcc, mean_ratio

__all__ = ["loss_of_matrix", "loss_of_sums"]

Array = np.ndarray[Any, Any]
_mean_ratio, _mcc = compiled()(mean_ratio), compiled()(mcc)


@compiled()
def loss_of_sums(
    hits: Array, true: Array, predicted: Array, ratio: Array, label: int, undefined: float, skip_absent: bool
) -> Parts:
    """1 - metric and the row, column and diagonal part of its gradient; all 0 without any weight.

    Args:
        hits: The diagonal of the matrix, (d,).
        true: Sums of its rows.
        predicted: Sums of its columns.
        ratio: The metric is the mean of ratio[0]·tp / (ratio[1]·tp + ratio[2]·fn + ratio[3]·fp); empty for MCC.
        label: The only class that counts; -1 for all.
        undefined: The value of 0/0.
        skip_absent: Whether means leave out classes without support.
    """
    result: Parts
    if len(ratio):
        result = _mean_ratio(hits, true, predicted, ratio, label, undefined, skip_absent)
    else:
        result = _mcc(hits, true, predicted, undefined)
    return result


@compiled()
def loss_of_matrix(counts: Array, ratio: Array, label: int, undefined: float, skip_absent: bool) -> tuple[float, Array]:
    """1 - metric of the sum of counts (parts, d, d), and its gradient (d, d); arguments as above."""
    parts, classes = counts.shape[0], counts.shape[1]
    hits, true, predicted = np.zeros(classes), np.zeros(classes), np.zeros(classes)
    for part in range(parts):
        for t in range(classes):
            hits[t] += counts[part, t, t]
            for k in range(classes):
                true[t] += counts[part, t, k]
                predicted[k] += counts[part, t, k]
    loss, rows, columns, diagonal = loss_of_sums(hits, true, predicted, ratio, label, undefined, skip_absent)
    gradient = np.zeros((classes, classes), counts.dtype)
    for t in range(classes):
        for k in range(classes):
            gradient[t, k] = rows[t] + columns[k]
        gradient[t, t] += diagonal[t]
    return loss, gradient
