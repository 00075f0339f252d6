"""Linear classifiers that the papers compare with: SVM-perf, and convex calibrated surrogates for F1."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted, validate_data

__all__ = ["ConvexCalibratedSurrogates", "SVMPerf"]

Array = NDArray[np.float64]


class Cut(NamedTuple):
    """A labelling y' by what it adds: Δ and Ψ(y) - Ψ(y') as weights of the samples' features, (n,)."""

    delta: float
    weights: Array


class SVMPerf(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """SVM-perf: the linear classifier with the largest margin for a loss of the whole sample (Joachims 2005).

    min over w, ξ of ½ |w|² + C ξ   so that   w·(Ψ(y) - Ψ(y')) >= Δ(y', y) - ξ   for every labelling y'

    Δ is the error rate, 1 - F1, or the share of pairs in the wrong order. Ψ is scaled so that with the error rate ξ
    is the mean hinge loss, with pairs the mean hinge loss of pairs. The most violated constraint is found by sorting
    and added, until none is violated by more than ``tol`` (the 1-slack form of Joachims, Finley and Yu 2009). The
    quadratic programs are solved by Clarabel, of the extra ``papers``.

    Args:
        loss: ``"error"``, ``"f1"`` or ``"roc"``.
        C: Weight of the loss, which lies in [0, 1]; SVM-perf's own option ``-c`` is a hundredth of it.
        tol: Violation that is tolerated; SVM-perf's default.
        max_iter: Constraints after which it stops.

    Attributes:
        classes_: The two labels; the second is the positive one.
        coef_, intercept_: Weights (features,), and that of a constant feature, which is regularised like the others.
        objective_, gap_: ½ |w|² + C ξ over the constraints found, and by how much the worst one exceeded ξ at the end.

    >>> machine = SVMPerf("error").fit([[-2.0], [-1.0], [1.0], [2.0]], [0, 0, 1, 1])
    >>> machine.predict([[-3.0], [3.0]]).tolist(), round(float(machine.coef_[0]), 3)
    ([0, 1], 1.0)
    """

    def __init__(self, loss: str = "f1", *, C: float = 100.0, tol: float = 1e-3, max_iter: int = 2000) -> None:
        self.loss = loss
        self.C = C
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any) -> Self:
        """Train by cutting planes."""
        if self.loss not in CUTS:
            raise ValueError(f"loss: expected one of {', '.join(CUTS)}, got {self.loss!r}.")
        X, y = validate_data(self, X, y, dtype=np.float64)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) != 2:
            raise ValueError(f"y: expected two classes, got {len(self.classes_)} class(es); it is for two classes.")
        positive = codes == 1
        features = np.hstack([X, np.ones((len(X), 1))])
        w, slack = np.zeros(features.shape[1]), 0.0
        normals, deltas, idle = np.empty((0, len(w))), np.empty(0), np.empty(0, dtype=int)
        for _ in range(self.max_iter):
            cut = CUTS[self.loss](features @ w, positive)
            normal = cut.weights @ features
            self.gap_ = float(cut.delta - normal @ w - slack)
            if self.gap_ <= self.tol:
                break
            normals, deltas = np.vstack([normals, normal]), np.append(deltas, cut.delta)
            w, slack, multipliers = _solve(normals, deltas, self.C)
            # Constraints that have long been without effect only cost time.
            idle = np.where(multipliers > 1e-8 * self.C, 0, np.append(idle, 0) + 1)
            normals, deltas, idle = normals[idle < 50], deltas[idle < 50], idle[idle < 50]
        self.coef_, self.intercept_, self.objective_ = w[:-1], float(w[-1]), float(w @ w / 2 + self.C * slack)
        return self

    def decision_function(self, X: Any) -> Array:
        """Decision values (n,): positive for the second class."""
        check_is_fitted(self)
        return np.asarray(validate_data(self, X, reset=False) @ self.coef_ + self.intercept_)

    def predict(self, X: Any) -> NDArray[Any]:
        """Labels (n,)."""
        return np.asarray(self.classes_[(self.decision_function(X) > 0).astype(int)])


def _solve(normals: Array, deltas: Array, C: float) -> tuple[Array, float, Array]:
    """Minimise ½ |w|² + C ξ with ``normals @ w >= deltas - ξ`` and ξ >= 0: w, ξ and the multipliers."""
    try:
        import clarabel
    except ImportError as error:
        raise ImportError("SVMPerf needs Clarabel: pip install 'metricfit[papers]'.") from error
    from scipy import sparse

    size, count = normals.shape[1], len(deltas)
    # Clarabel's form: ½ x'Px + q'x with Ax + s = b, s >= 0, for x = (w, ξ). C is scaled out for its tolerances.
    P = sparse.diags(np.append(np.full(size, 1 / C), 0.0), format="csc")
    q = np.append(np.zeros(size), 1.0)
    A = np.zeros((count + 1, size + 1))
    A[:count, :size], A[:, size] = -normals, -1.0
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones, known = [clarabel.NonnegativeConeT(count + 1)], sparse.csc_matrix(A)
    found = clarabel.DefaultSolver(P, q, known, np.append(-deltas, 0.0), cones, settings).solve()
    if found.status not in (clarabel.SolverStatus.Solved, clarabel.SolverStatus.AlmostSolved):
        raise RuntimeError(f"X: Clarabel stopped with {found.status}; bring the features to similar scales.")
    w = np.asarray(found.x)[:size]
    return w, max(0.0, float(np.max(deltas - normals @ w))), C * np.asarray(found.z)[:count]


def _error(scores: Array, y: NDArray[np.bool_]) -> Cut:
    """Flip each sample whose margin is below 1."""
    sign = np.where(y, 1.0, -1.0)
    flipped = sign * scores < 1
    return Cut(float(flipped.mean()), np.where(flipped, sign, 0.0) / len(y))


def _f1(scores: Array, y: NDArray[np.bool_]) -> Cut:
    """For each number a of true positives the best number b of false positives, then the best a.

    Given a and b the best labelling takes the highest scores of either class. The value gained with one more false
    positive falls in b, the scores being sorted and -F1 concave in b, so that b is found by bisection.
    """
    n, positives = len(y), int(y.sum())
    of_positives, of_negatives = (np.flatnonzero(side) for side in (y, ~y))
    of_positives = of_positives[np.argsort(-scores[of_positives], kind="stable")]
    of_negatives = of_negatives[np.argsort(-scores[of_negatives], kind="stable")]
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
    return Cut(float(delta[best]), weights)


def _roc(scores: Array, y: NDArray[np.bool_]) -> Cut:
    """Swap each pair of a positive and a negative whose scores differ by less than 1."""
    high, low = scores[y], scores[~y]
    above = len(low) - np.searchsorted(np.sort(low), high - 1, side="right")
    below = np.searchsorted(np.sort(high), low + 1, side="left")
    pairs, weights = len(high) * len(low), np.empty(len(y))
    weights[y], weights[~y] = above / pairs, -below / pairs
    return Cut(float(above.sum()) / pairs, weights)


CUTS = {"error": _error, "f1": _f1, "roc": _roc}
"""The search for the most violated constraint, by loss."""


class ConvexCalibratedSurrogates(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Convex calibrated surrogates (CCS) for the multi-label F1 (Zhang, Ramaswamy and Agarwal 2020), linear scores.

    The set of labels with the largest expected F1 depends on P(y_j = 1, |y| = k) and P(y = 0) alone. Each is
    estimated by a logistic regression of its own. Where each sample has exactly one class, as in EAST's tables, only
    one regression per class against the rest remains, and the best class is the one with the largest probability.

    Args:
        C: Inverse strength of each regression's L2 penalty, as in scikit-learn.

    Attributes:
        classes_: The labels, or the numbers of the indicator's columns.

    >>> X, Y = [[-2.0], [-1.0], [1.0], [2.0]], [[1, 0], [1, 0], [1, 1], [1, 1]]
    >>> ConvexCalibratedSurrogates().fit(X, Y).predict([[-3.0], [3.0]]).tolist()
    [[1, 0], [1, 1]]
    """

    def __init__(self, C: float = 1.0) -> None:
        self.C = C

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to labels (n,) or 0/1 indicators (n, labels)."""
        X, y = validate_data(self, X, y, multi_output=True, dtype=np.float64)
        self.multilabel_ = y.ndim == 2
        self.classes_ = np.arange(y.shape[1]) if self.multilabel_ else np.unique(y)
        indicators = (y if self.multilabel_ else y[:, None] == self.classes_).astype(bool)
        sizes, counted = indicators.sum(axis=1), range(len(self.classes_))
        self.joint_ = [[self._regression(X, indicators[:, j] & (sizes == k + 1)) for k in counted] for j in counted]
        self.empty_ = self._regression(X, sizes == 0)
        return self

    def joint_proba(self, X: Any) -> tuple[Array, Array]:
        """P(y_j = 1, |y| = k) as (n, labels, sizes), and P(y = 0) as (n,)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False)
        joint = [np.stack([_positive(model, X) for model in row], axis=-1) for row in self.joint_]
        return np.stack(joint, axis=1), _positive(self.empty_, X)

    def predict_proba(self, X: Any) -> Array:
        """P(y_j = 1), (n, labels); one against the rest, so that they add up to 1 for two classes only."""
        return np.asarray(self.joint_proba(X)[0].sum(axis=-1))

    def predict(self, X: Any) -> NDArray[Any]:
        """Labels (n,), or the sets of labels with the largest expected F1 as 0/1 indicators (n, labels)."""
        if not self.multilabel_:
            return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])
        return most_expected_f1(*self.joint_proba(X)).astype(np.int64)

    def _regression(self, X: Array, y: NDArray[np.bool_]) -> LogisticRegression | float:
        # What never or always happens needs no regression.
        return float(y[0]) if y.all() or not y.any() else LogisticRegression(C=self.C, max_iter=1000).fit(X, y)


def _positive(regression: LogisticRegression | float, X: Array) -> Array:
    if isinstance(regression, float):
        return np.full(len(X), regression)
    return np.asarray(regression.predict_proba(X)[:, 1], dtype=np.float64)


def most_expected_f1(joint: Array, empty: Array) -> NDArray[np.bool_]:
    """The sets of labels with the largest expected F1, given P(y_j = 1, |y| = k) and P(y = 0).

    For each size m the best set has the m labels with the largest Σ_k 2 P(y_j = 1, |y| = k) / (m + k).

    >>> certain = np.array([[[0.9, 0.0], [0.0, 0.0]]])  # label 0 alone with probability 0.9
    >>> most_expected_f1(certain, np.array([0.1])).tolist()
    [[True, False]]
    """
    sizes = np.arange(1, joint.shape[1] + 1)
    gains = joint @ (2 / (sizes[:, None] + sizes))  # (n, label, m)
    order = np.argsort(-gains, axis=1, kind="stable")
    top = np.cumsum(np.take_along_axis(gains, order, axis=1), axis=1)
    best = np.concatenate([empty[:, None], np.diagonal(top, axis1=1, axis2=2)], axis=1).argmax(axis=1)
    ranked = np.take_along_axis(order, np.maximum(best - 1, 0)[:, None, None], axis=2)[:, :, 0]
    chosen = np.zeros(ranked.shape, dtype=bool)
    np.put_along_axis(chosen, ranked, np.arange(len(sizes)) < best[:, None], axis=1)
    return chosen
