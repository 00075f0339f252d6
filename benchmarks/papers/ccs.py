"""Convex calibrated surrogates for the multi-label F-measure (Zhang, Ramaswamy and Agarwal 2020), with linear scores.

The set of labels with the largest expected F1 depends on the s² + 1 numbers P(y_j = 1, |y| = k) and P(y = 0) alone,
s the number of labels. Each is estimated by its own logistic regression, a convex calibrated problem; the decoding
then takes for each size m the m labels with the largest Σ_k 2 P(y_j = 1, |y| = k) / (m + k), and the best m.

East uses the method on data where each sample has exactly one class. Written as indicators, |y| = 1 always, so that
only d of the d² + 1 regressions remain, one per class against the rest; and the best single class is the one with the
largest probability, whatever the weights of the decoding. So on such data this is one-versus-rest logistic regression.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

__all__ = ["ConvexCalibratedSurrogate", "decode"]

Array = NDArray[np.float64]


class ConvexCalibratedSurrogate:
    """The s² + 1 regressions.

    Args:
        C: Inverse strength of each regression's L2 penalty, as in scikit-learn.
    """

    def __init__(self, C: float = 1.0) -> None:
        self.C = C

    def fit(self, X: NDArray[Any], Y: NDArray[Any]) -> ConvexCalibratedSurrogate:
        """Fit to indicators ``Y`` of labels, (n, s)."""
        Y = np.asarray(Y).astype(bool)
        sizes = Y.sum(axis=1)
        self.n_labels_ = Y.shape[1]
        self.joint_ = [
            [self._regression(X, Y[:, j] & (sizes == k + 1)) for k in range(Y.shape[1])] for j in range(Y.shape[1])
        ]
        self.empty_ = self._regression(X, sizes == 0)
        return self

    def probabilities(self, X: NDArray[Any]) -> tuple[Array, Array]:
        """P(y_j = 1, |y| = k) as (n, s, s) and P(y = 0) as (n,)."""
        s = self.n_labels_
        joint = np.stack([np.stack([_positive(self.joint_[j][k], X) for k in range(s)], -1) for j in range(s)], 1)
        return joint, _positive(self.empty_, X)

    def predict(self, X: NDArray[Any]) -> NDArray[np.bool_]:
        """The sets of labels with the largest expected F1 as indicators, (n, s)."""
        return decode(*self.probabilities(X))

    def label_probabilities(self, X: NDArray[Any]) -> Array:
        """P(y_j = 1), (n, s): the arg max is the best set of one label if every sample has one."""
        found: Array = self.probabilities(X)[0].sum(axis=-1)
        return found

    def _regression(self, X: NDArray[Any], y: NDArray[np.bool_]) -> LogisticRegression | float:
        # What never or always happens needs no regression.
        if y.all() or not y.any():
            return float(y[0])
        return LogisticRegression(C=self.C, max_iter=1000).fit(X, y)


def decode(joint: Array, empty: Array) -> NDArray[np.bool_]:
    """The sets of labels with the largest expected F1, given :meth:`ConvexCalibratedSurrogate.probabilities`.

    >>> certain = np.array([[[0.9, 0.0], [0.0, 0.0]]])  # label 0 alone with probability 0.9
    >>> decode(certain, np.array([0.1])).tolist()
    [[True, False]]
    """
    s = joint.shape[1]
    sizes = np.arange(1, s + 1)
    gains = joint @ (2 / (sizes[:, None] + sizes))  # (n, label, m)
    order = np.argsort(-gains, axis=1, kind="stable")
    top = np.cumsum(np.take_along_axis(gains, order, axis=1), axis=1)
    of_size = np.concatenate([empty[:, None], np.diagonal(top, axis1=1, axis2=2)], axis=1)
    best = of_size.argmax(axis=1)
    ranked = np.take_along_axis(order, np.maximum(best - 1, 0)[:, None, None], axis=2)[:, :, 0]
    chosen = np.zeros((len(joint), s), dtype=bool)
    np.put_along_axis(chosen, ranked, np.arange(s) < best[:, None], axis=1)
    return chosen


def _positive(regression: LogisticRegression | float, X: NDArray[Any]) -> Array:
    if isinstance(regression, float):
        return np.full(len(X), regression)
    found: Array = regression.predict_proba(X)[:, 1].astype(np.float64)
    return found
