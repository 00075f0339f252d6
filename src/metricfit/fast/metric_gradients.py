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

__all__ = ["ClosedForm", "as_array", "closed_form_of"]

Array = np.ndarray[Any, Any]


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
        from metricfit.fast.matrices import loss_of_matrix  # brings numba

        result: tuple[float, Array] = loss_of_matrix(
            counts, as_array(self.ratio), self.label, self.undefined, skip_absent
        )
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
def as_array(ratio: tuple[float, ...] | None) -> Array:
    """The numbers of a ratio as the compiled loops take them: none for MCC."""
    return np.array(ratio or (), np.float64)
