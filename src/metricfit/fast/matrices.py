"""Compiled losses of a confusion matrix with their gradients, in float64.

A gradient has the form G[t, k] = row[t] + column[k] + (t = k) diagonal[k].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from metricfit.fast.compiled import compiled

__all__ = ["loss_of_matrix", "loss_of_sums"]

Array = np.ndarray[Any, Any]
Parts = tuple[float, Array, Array, Array]
"""1 - metric, and the row, column and diagonal part of its gradient."""

TINY = 1.1754943508222875e-38
"""Denominators up to here count as 0, as in float32."""


def mean_ratio(
    hits: Array, true: Array, predicted: Array, ratio: Array, label: int, undefined: float, skip_absent: bool
) -> Parts:
    """1 - the mean of ratio[0]·tp / (ratio[1]·tp + ratio[2]·fn + ratio[3]·fp); arguments as in ``loss_of_sums``."""
    classes = len(hits)
    rows, columns, diagonal = np.zeros(classes), np.zeros(classes), np.zeros(classes)
    averaged, total = 0, 0.0
    for k in range(classes):
        total += true[k]
        averaged += label == k or (label < 0 and not (skip_absent and true[k] <= 0))
    if not total > 0:
        return 0.0, rows, columns, diagonal
    loss = 1.0
    for k in range(classes):
        misses, false_alarms = max(true[k] - hits[k], 0.0), max(predicted[k] - hits[k], 0.0)
        below = ratio[1] * hits[k] + ratio[2] * misses + ratio[3] * false_alarms
        takes_part = label == k or (label < 0 and not (skip_absent and true[k] <= 0))
        if takes_part and below > TINY:
            value = ratio[0] * hits[k] / below
            share = 1.0 / (below * averaged)
            loss -= value / averaged
            rows[k], columns[k] = value * ratio[2] * share, value * ratio[3] * share
            diagonal[k] = (value * ratio[1] - ratio[0]) * share - rows[k] - columns[k]
        elif takes_part:
            loss -= undefined / averaged
    return loss, rows, columns, diagonal


def mcc(hits: Array, true: Array, predicted: Array, undefined: float) -> Parts:
    """1 - MCC."""
    classes = len(hits)
    rows, columns, diagonal = np.zeros(classes), np.zeros(classes), np.zeros(classes)
    correct = total = 0.0
    for k in range(classes):
        correct += hits[k]
        total += true[k]
    if not total > 0:
        return 0.0, rows, columns, diagonal
    correct /= total
    covariance = correct
    # Twice the sums over pairs of different classes: exactly 0 where there is only one.
    spread = true_spread = before = true_before = 0.0
    for k in range(classes):
        p, t = predicted[k] / total, true[k] / total
        covariance -= p * t
        spread += 2.0 * p * before
        true_spread += 2.0 * t * true_before
        before += p
        true_before += t
    if not (spread > TINY and true_spread > TINY):
        return 1.0 - undefined, rows, columns, diagonal
    norm = np.sqrt(spread) * np.sqrt(true_spread)
    value = covariance / norm
    for k in range(classes):
        p, t = predicted[k] / total, true[k] / total
        rows[k] = (value * (1.0 - t) / true_spread - (correct - p) / norm) / total
        columns[k] = (value * (1.0 - p) / spread + t / norm) / total
        diagonal[k] = -1.0 / (norm * total)
    return 1.0 - value, rows, columns, diagonal


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
