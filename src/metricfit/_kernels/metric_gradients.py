"""Value and gradient of the commonest metrics in closed form.

On a small batch the dozens of tiny tensor operations of a metric and of its backward pass cost more than all samples
together. These metrics are therefore differentiated by hand as well; every other metric goes through autograd, and the
tests compare the two. All these gradients have the form G[t, k] = column[k] + row[t] + (t = k) diagonal[k].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from metricfit.metrics import F1, MCC, CriticalSuccessIndex, FBeta, Jaccard, Metric, Precision, Recall

__all__ = ["ClosedForm", "closed_form_of"]

Array = np.ndarray[Any, Any]

TINY = 1.1754943508222875e-38
"""Denominators up to here count as 0, as in float32."""


@dataclass(frozen=True)
class ClosedForm:
    """A metric whose gradient is known: MCC, or a mean over classes of (a·tp) / (b·tp + c·fn + d·fp).

    Attributes:
        ratio: (a, b, c, d); None for MCC.
        label: The class; -1 for the macro average.
        undefined: The value of 0/0.
    """

    ratio: tuple[float, float, float, float] | None
    label: int
    undefined: float

    def loss_and_gradient(self, counts: Array, skip_absent: bool) -> tuple[float, Array]:
        """1 - metric and its gradient, given counts (parts, d, d) to be added; both 0 without any weight."""
        ratio = np.array(self.ratio if self.ratio is not None else (0.0, 0.0, 0.0, 0.0))
        kernel = _kernel(self.ratio is None)
        result: tuple[float, Array] = kernel(counts, ratio, self.label, self.undefined, skip_absent)
        return result


def closed_form_of(metric: Metric) -> ClosedForm | None:
    """The closed form of a metric of a multiclass matrix, where there is one.

    >>> from metricfit import metrics
    >>> closed_form_of(metrics.get("f1"))
    ClosedForm(ratio=(2.0, 2.0, 1.0, 1.0), label=-1, undefined=0.0)
    >>> closed_form_of(metrics.get("kappa"))
    """
    kind = type(metric)
    if kind is MCC:
        plain = metric.average == "auto" and metric.label is None  # type: ignore[attr-defined]
        return ClosedForm(None, -1, metric.zero_division) if plain else None  # type: ignore[attr-defined]
    if kind not in (F1, FBeta, Precision, Recall, Jaccard, CriticalSuccessIndex):
        return None
    if metric.zero_division != metric.zero_division or metric.average not in ("auto", "macro"):  # type: ignore[attr-defined]
        return None
    label: Any = metric.label  # type: ignore[attr-defined]
    if label is not None and not (isinstance(label, int) and label >= 0):
        return None
    if kind is FBeta:
        if isinstance(metric.beta, tuple):  # type: ignore[attr-defined]
            return None
        square = float(metric.beta) ** 2  # type: ignore[attr-defined]
        ratio = (1 + square, 1 + square, square, 1.0)
    else:
        ratio = _RATIOS[kind]
    return ClosedForm(ratio, -1 if label is None else label, float(metric.zero_division))  # type: ignore[attr-defined]


_RATIOS: dict[type[Metric], tuple[float, float, float, float]] = {
    F1: (2.0, 2.0, 1.0, 1.0),
    Precision: (1.0, 1.0, 0.0, 1.0),
    Recall: (1.0, 1.0, 1.0, 0.0),
    Jaccard: (1.0, 1.0, 1.0, 1.0),
    CriticalSuccessIndex: (1.0, 1.0, 1.0, 1.0),
}


@cache
def _kernel(is_mcc: bool) -> Any:
    from metricfit._kernels.compiled import compiled

    return compiled()(_loss_of_mcc if is_mcc else _loss_of_mean_ratio)


# Plain loops in float64: they compile in a fraction of the time of the same formulas over whole arrays.


def _loss_of_mean_ratio(
    counts: Array, ratio: Array, label: int, undefined: float, skip_absent: bool
) -> tuple[float, Array]:
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


def _loss_of_mcc(counts: Array, ratio: Array, label: int, undefined: float, skip_absent: bool) -> tuple[float, Array]:
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
