"""Linear classifiers that papers compare with: SVM-perf, and convex calibrated surrogates for the F-measure."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted, validate_data

from metricfit.models.portfolio import Array


class SVMPerf(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """SVM-perf: a linear classifier with the largest margin for a loss of the whole sample (Joachims 2005).

    It minimises ½ |w|² + C ξ so that w·(Ψ(y) - Ψ(y')) >= Δ(y', y) - ξ for every labelling y'; with the error rate ξ is
    the mean hinge loss, with pairs that of pairs. The most violated constraint is found by sorting, and one after the
    other is added until none is violated by more than ε (the "1-slack" form of Joachims, Finley and Yu 2009). The
    extra ``papers`` brings the solver of the quadratic programs in between.

    Args:
        loss: Δ: the ``"error"`` rate, ``"f1"`` (one minus F1), or ``"roc"``, the share of pairs in the wrong order.
        C: Weight of the loss, which lies in [0, 1]; SVM-perf's own option ``-c`` is a hundredth of it.
        epsilon: Violation that is tolerated; SVM-perf's default.
        max_cuts: Stop after so many constraints at the latest.

    ``objective_`` is ½ |w|² + C ξ over the ``n_cuts_`` constraints found; the most violated one exceeded ξ by ``gap_``.
    The intercept is a weight like the others, and regularised.

    >>> machine = SVMPerf("error", C=100.0).fit([[-2.0], [-1.0], [1.0], [2.0]], [0, 0, 1, 1])
    >>> machine.predict([[-3.0], [0.5]]).tolist(), round(machine.coef_.item(), 3)
    ([0, 1], 1.0)
    """

    def __init__(
        self, loss: Literal["error", "f1", "roc"] = "f1", *, C: float = 1000.0, epsilon: float = 1e-3,
        max_cuts: int = 2000,
    ) -> None:  # fmt: skip
        self.loss, self.C, self.epsilon, self.max_cuts = loss, C, epsilon, max_cuts

    def fit(self, X: Any, y: Any) -> SVMPerf:
        """Train by cutting planes; ``y`` has two classes, the second is the positive one."""
        if self.loss not in LOSSES:
            raise ValueError(f"loss: expected one of {', '.join(LOSSES)}, got {self.loss!r}.")
        X, y = validate_data(self, X, y, dtype=np.float64)
        self.classes_ = np.unique(y)
        if len(self.classes_) != 2:
            raise ValueError(f"y: expected two classes, got {len(self.classes_)}.")
        positive, features = y == self.classes_[1], np.hstack([X, np.ones((len(X), 1))])
        w, slack, gap = np.zeros(features.shape[1]), 0.0, np.inf
        normals, deltas, idle = np.empty((0, len(w))), np.empty(0), np.empty(0, dtype=int)
        self.n_cuts_ = 0
        while self.n_cuts_ < self.max_cuts:
            delta, weights = LOSSES[self.loss](features @ w, positive)
            normal = weights @ features
            gap = delta - float(normal @ w) - slack
            if gap <= self.epsilon:
                break
            normals, deltas = np.vstack([normals, normal]), np.append(deltas, delta)
            w, slack, multipliers = _solve(normals, deltas, self.C)
            idle = np.where(multipliers > 1e-8 * self.C, 0, np.append(idle, 0) + 1)
            kept = idle < 50  # what has long been without effect only costs time
            normals, deltas, idle = normals[kept], deltas[kept], idle[kept]
            self.n_cuts_ += 1
        self.coef_, self.intercept_ = w[None, :-1], w[-1:]
        self.objective_, self.gap_ = float(w @ w / 2 + self.C * slack), float(gap)
        return self

    def decision_function(self, X: Any) -> Array:
        """Decision values, (n,): positive for the second class."""
        check_is_fitted(self)
        values: Array = validate_data(self, X, reset=False, dtype=np.float64) @ self.coef_[0] + self.intercept_
        return values

    def predict(self, X: Any) -> NDArray[Any]:
        """The classes, (n,)."""
        found: NDArray[Any] = np.where(self.decision_function(X) > 0, *self.classes_[::-1])
        return found


def _solve(normals: Array, deltas: Array, C: float) -> tuple[Array, float, Array]:
    """Minimise ½ |w|² + C ξ with ``normals @ w >= deltas - ξ`` and ξ >= 0: w, ξ and the multipliers."""
    try:
        import clarabel
    except ImportError:
        raise ImportError("SVMPerf needs clarabel; install it with: pip install 'metricfit[papers]'") from None
    from scipy import sparse

    size, count = normals.shape[1], len(deltas)
    # Clarabel's form: ½ x'Px + q'x with Ax + s = b, s >= 0, for x = (w, ξ). C is scaled out for its tolerances.
    P, q = sparse.diags(np.append(np.full(size, 1 / C), 0.0), format="csc"), np.append(np.zeros(size), 1.0)
    A, b = sparse.csc_matrix(-np.block([[normals, np.ones((count, 1))], [q]])), np.append(-deltas, 0.0)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    found = clarabel.DefaultSolver(P, q, A, b, [clarabel.NonnegativeConeT(count + 1)], settings).solve()
    if found.status not in (clarabel.SolverStatus.Solved, clarabel.SolverStatus.AlmostSolved):
        raise RuntimeError(f"SVMPerf: clarabel stopped with {found.status}; scale the features to one size.")
    w = np.asarray(found.x)[:size]
    return w, max(0.0, float(np.max(deltas - normals @ w))), C * np.asarray(found.z)[:count]


def _error(scores: Array, y: NDArray[np.bool_]) -> tuple[float, Array]:
    """Flip each sample whose margin is below 1."""
    sign = np.where(y, 1.0, -1.0)
    flipped = sign * scores < 1
    return (float(flipped.mean()), np.where(flipped, sign, 0.0) / len(y))


def _f1(scores: Array, y: NDArray[np.bool_]) -> tuple[float, Array]:
    """For each number a of true positives the best number b of false positives, then the best a."""
    # The best labelling of a and b takes the highest scores of either class. The value gained with one more false
    # positive falls in b, the scores being sorted and -F1 concave in b, so that b is found by bisection.
    n, positives = len(y), int(y.sum())
    of_positives, of_negatives = (
        rows[np.argsort(-scores[rows], kind="stable")] for rows in map(np.flatnonzero, (y, ~y))
    )
    high, low = scores[of_positives] / n, scores[of_negatives] / n
    a = np.arange(positives + 1.0)
    first, last = np.zeros(len(a), dtype=int), np.full(len(a), len(low))
    while (first < last).any():
        middle = (first + last) // 2
        total = positives + a + middle
        gain = low[np.minimum(middle, len(low) - 1)] + 2 * a / total - 2 * a / (total + 1)
        more = (gain > 0) & (first < last)
        first, last = np.where(more, middle + 1, first), np.where(more, last, np.minimum(last, middle))
    delta = 1 - 2 * a / (positives + a + first)
    best = int(np.argmax(delta + np.append(0.0, np.cumsum(high)) + np.append(0.0, np.cumsum(low))[first]))
    weights = np.zeros(n)
    weights[of_positives[best:]], weights[of_negatives[: first[best]]] = 1 / n, -1 / n
    return (float(delta[best]), weights)


def _roc(scores: Array, y: NDArray[np.bool_]) -> tuple[float, Array]:
    """Swap each pair of a positive and a negative whose scores differ by less than 1."""
    high, low = scores[y], scores[~y]
    above = len(low) - np.searchsorted(np.sort(low), high - 1, side="right")
    below = np.searchsorted(np.sort(high), low + 1, side="left")
    pairs = len(high) * len(low)
    weights = np.empty(len(y))
    weights[y], weights[~y] = above / pairs, -below / pairs
    return (float(above.sum()) / pairs, weights)


LOSSES = {"error": _error, "f1": _f1, "roc": _roc}
"""By loss the labelling with the largest Δ(y', y) + w·Ψ(y'): Δ, and Ψ(y) - Ψ(y') as weights of the samples, (n,)."""


class ConvexCalibratedSurrogate(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Convex calibrated surrogates for the F-measure of labels (Zhang, Ramaswamy and Agarwal 2020), linear.

    The set of labels with the largest expected F1 depends on the s² + 1 numbers P(y_j = 1, |y| = k) and P(y = 0)
    alone, s the number of labels. Each is estimated by its own logistic regression; the decision takes for each size m
    the m labels with the largest Σ_k 2 P(y_j = 1, |y| = k) / (m + k), and the best m. Where each sample has one class,
    as in EAST, |y| = 1 always: this is one-versus-rest logistic regression.

    Args:
        C: Inverse strength of each regression's L2 penalty, as in scikit-learn.

    >>> machine = ConvexCalibratedSurrogate().fit([[-2.0], [-1.0], [1.0], [2.0]], ["no", "no", "yes", "yes"])
    >>> machine.predict([[-3.0], [0.5]]).tolist()
    ['no', 'yes']
    """

    def __init__(self, C: float = 1.0) -> None:
        self.C = C

    def fit(self, X: Any, y: Any) -> ConvexCalibratedSurrogate:
        """Fit to classes (n,), or to indicators of labels (n, s)."""
        X, y = validate_data(self, X, y, multi_output=True)
        self.several_ = y.ndim == 2
        self.classes_ = np.arange(y.shape[1]) if self.several_ else np.unique(y)
        has = y.astype(bool) if self.several_ else y[:, None] == self.classes_
        sizes, numbers = has.sum(axis=1), range(1, has.shape[1] + 1)
        self.joint_ = [[self._regression(X, column & (sizes == k)) for k in numbers] for column in has.T]
        self.empty_ = self._regression(X, sizes == 0)
        return self

    def joint_probabilities(self, X: Any) -> tuple[Array, Array]:
        """P(y_j = 1, |y| = k) as (n, s, s) and P(y = 0) as (n,)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False)
        joint = [np.stack([_chance(one, X) for one in of_label], axis=-1) for of_label in self.joint_]
        return np.stack(joint, axis=1), _chance(self.empty_, X)

    def predict_proba(self, X: Any) -> Array:
        """P(y_j = 1), (n, s); for classes one against the rest, so rows need not add up to 1."""
        found: Array = self.joint_probabilities(X)[0].sum(axis=-1)
        return found

    def predict(self, X: Any) -> NDArray[Any]:
        """Classes (n,), or the sets of labels with the largest expected F1 as indicators (n, s)."""
        joint, empty = self.joint_probabilities(X)
        found: NDArray[Any] = decode(joint, empty) if self.several_ else self.classes_[joint[:, :, 0].argmax(axis=1)]
        return found

    def _regression(self, X: Any, y: NDArray[np.bool_]) -> Any:
        # What never or always happens needs no regression.
        return float(y[0]) if y.all() or not y.any() else LogisticRegression(C=self.C, max_iter=1000).fit(X, y)


def decode(joint: Array, empty: Array) -> NDArray[np.bool_]:
    """The sets of labels with the largest expected F1, given P(y_j = 1, |y| = k) and P(y = 0).

    >>> certain = np.array([[[0.9, 0.0], [0.0, 0.0]]])  # label 0 alone with probability 0.9
    >>> decode(certain, np.array([0.1])).tolist()
    [[True, False]]
    """
    sizes = np.arange(1, joint.shape[1] + 1)
    gains = joint @ (2 / (sizes[:, None] + sizes))  # (n, label, m)
    top = np.diagonal(-np.sort(-gains, axis=1).cumsum(axis=1), axis1=1, axis2=2)  # of the m best labels
    best = np.concatenate([empty[:, None], top], axis=1).argmax(axis=1)
    gain = np.take_along_axis(gains, np.maximum(best - 1, 0)[:, None, None], axis=2)[:, :, 0]
    chosen: NDArray[np.bool_] = np.argsort(np.argsort(-gain, axis=1, kind="stable"), axis=1) < best[:, None]
    return chosen


def _chance(regression: Any, X: Any) -> Array:
    if isinstance(regression, float):
        return np.full(len(X), regression)
    found: Array = regression.predict_proba(X)[:, 1].astype(np.float64)
    return found
