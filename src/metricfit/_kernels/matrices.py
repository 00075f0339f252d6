"""Compiled losses of a confusion matrix with their gradients, in float64.

Plain loops: they compile in a fraction of the time of the same formulas over whole arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from metricfit._kernels.compiled import compiled

__all__ = ["loss_of_mcc", "loss_of_mean_ratio"]

Array = np.ndarray[Any, Any]

TINY = 1.1754943508222875e-38
"""Denominators up to here count as 0, as in float32."""


@compiled()
def loss_of_mean_ratio(
    counts: Array, ratio: Array, label: int, undefined: float, skip_absent: bool
) -> tuple[float, Array]:
    """1 - the mean of ratio[0]·tp / (ratio[1]·tp + ratio[2]·fn + ratio[3]·fp) over classes, and its gradient."""
    parts, classes = counts.shape[0], counts.shape[1]
    hits, misses, false_alarms = np.zeros(classes), np.zeros(classes), np.zeros(classes)
    for part in range(parts):
        for t in range(classes):
            for k in range(classes):
                if t == k:
                    hits[k] += counts[part, k, k]
                else:
                    misses[t] += counts[part, t, k]
                    false_alarms[k] += counts[part, t, k]
    averaged, total = 0, 0.0
    for k in range(classes):
        total += hits[k] + misses[k]
        averaged += label == k or (label < 0 and not (skip_absent and hits[k] + misses[k] <= 0))
    gradient = np.zeros((classes, classes), counts.dtype)
    if not total > 0:
        return 0.0, gradient
    loss = 1.0
    of_hits = np.zeros(classes)
    for k in range(classes):
        below = ratio[1] * hits[k] + ratio[2] * misses[k] + ratio[3] * false_alarms[k]
        takes_part = label == k or (label < 0 and not (skip_absent and hits[k] + misses[k] <= 0))
        if takes_part and below > TINY:
            value = ratio[0] * hits[k] / below
            share = 1.0 / (below * averaged)
            loss -= value / averaged
            of_hits[k] = (value * ratio[1] - ratio[0]) * share
            misses[k], false_alarms[k] = value * ratio[2] * share, value * ratio[3] * share  # from here on gradients
        else:
            loss -= undefined / averaged if takes_part else 0.0
            misses[k], false_alarms[k] = 0.0, 0.0
    for t in range(classes):
        for k in range(classes):
            gradient[t, k] = of_hits[k] if t == k else misses[t] + false_alarms[k]
    return loss, gradient


@compiled()
def loss_of_mcc(counts: Array, ratio: Array, label: int, undefined: float, skip_absent: bool) -> tuple[float, Array]:
    """1 - MCC and its gradient; arguments as above, of which it needs few."""
    parts, classes = counts.shape[0], counts.shape[1]
    predicted, true = np.zeros(classes), np.zeros(classes)
    correct = total = 0.0
    for part in range(parts):
        for t in range(classes):
            correct += counts[part, t, t]
            for k in range(classes):
                true[t] += counts[part, t, k]
                predicted[k] += counts[part, t, k]
    for k in range(classes):
        total += true[k]
    gradient = np.zeros((classes, classes), counts.dtype)
    if not total > 0:
        return 0.0, gradient
    correct /= total
    covariance = correct
    for k in range(classes):
        predicted[k] /= total
        true[k] /= total
        covariance -= predicted[k] * true[k]
    # Twice the sums over pairs of different classes: exactly 0 where there is only one.
    spread = true_spread = before = true_before = 0.0
    for k in range(classes):
        spread += 2.0 * predicted[k] * before
        true_spread += 2.0 * true[k] * true_before
        before += predicted[k]
        true_before += true[k]
    if not (spread > TINY and true_spread > TINY):
        return 1.0 - undefined, gradient
    norm = np.sqrt(spread) * np.sqrt(true_spread)
    value = covariance / norm
    rows, columns = np.zeros(classes), np.zeros(classes)
    for k in range(classes):
        rows[k] = (value * (1.0 - true[k]) / true_spread - (correct - predicted[k]) / norm) / total
        columns[k] = (value * (1.0 - predicted[k]) / spread + true[k] / norm) / total
    for t in range(classes):
        for k in range(classes):
            gradient[t, k] = rows[t] + columns[k]
        gradient[t, t] -= 1.0 / (norm * total)
    return 1.0 - value, gradient
