"""SVM-perf: a linear classifier with the largest margin for a loss of the whole sample (Joachims 2005).

    min over w, ξ of ½ |w|² + C ξ   so that   w·(Ψ(y) - Ψ(y')) >= Δ(y', y) - ξ   for every labelling y'

Δ is the error rate, 1 - F1, or the share of pairs in the wrong order. Ψ is scaled so that with the error rate ξ is the
mean hinge loss, with pairs the mean hinge loss of pairs. There are exponentially many constraints; the most violated
one is found by sorting, and one after the other is added until none is violated by more than ε (the "1-slack" form of
Joachims, Finley and Yu 2009). The quadratic programs over the constraints so far are solved by Clarabel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["LOSSES", "LinearMachine", "most_violated", "solve", "train"]

Array = NDArray[np.float64]


class Cut(NamedTuple):
    """A labelling y' by what it adds: Δ and Ψ(y) - Ψ(y') as weights of the samples' features, (n,)."""

    delta: float
    weights: Array


@dataclass(frozen=True)
class LinearMachine:
    """What was learned.

    Attributes:
        weight: (features,).
        bias: The weight of a constant feature, so it is regularised like the others.
        objective: ½ |w|² + C ξ over the constraints found; no more than ``C`` times ε below the true minimum.
        cuts: Number of constraints found.
        gap: By how much the most violated constraint exceeded ξ in the end.
    """

    weight: Array
    bias: float
    objective: float
    cuts: int
    gap: float

    def decision(self, X: NDArray[Any]) -> Array:
        """Decision values, (n,): positive for class 1."""
        values: Array = X @ self.weight + self.bias
        return values


def train(
    X: NDArray[Any], y: NDArray[Any], loss: str, *, C: float, epsilon: float = 1e-3, max_cuts: int = 2000
) -> LinearMachine:
    """Train by cutting planes.

    Args:
        X: Features, (n, features).
        y: 0 and 1.
        loss: ``"error"``, ``"f1"`` or ``"roc"``.
        C: Weight of the loss, which lies in [0, 1]; SVM-perf's own option ``-c`` is a hundredth of it.
        epsilon: Violation that is tolerated; SVM-perf's default.
        max_cuts: Stop here at the latest.

    >>> X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    >>> machine = train(X, np.array([0, 0, 1, 1]), "error", C=100.0)
    >>> (machine.decision(X) > 0).tolist(), round(float(machine.weight[0]), 3)
    ([False, False, True, True], 1.0)
    """
    if loss not in LOSSES:
        raise ValueError(f"loss: expected one of {', '.join(LOSSES)}, got {loss!r}.")
    y = np.asarray(y).astype(bool)
    if y.all() or not y.any():
        raise ValueError("y: expected both classes.")
    features = np.hstack([np.asarray(X, dtype=np.float64), np.ones((len(X), 1))])
    w, slack = np.zeros(features.shape[1]), 0.0
    normals, deltas, idle = np.empty((0, len(w))), np.empty(0), np.empty(0, dtype=int)
    made, gap = 0, np.inf
    while made < max_cuts:
        cut = most_violated(features @ w, y, loss)
        normal = cut.weights @ features
        gap = cut.delta - float(normal @ w) - slack
        if gap <= epsilon:
            break
        normals, deltas = np.vstack([normals, normal]), np.append(deltas, cut.delta)
        w, slack, multipliers = solve(normals, deltas, C)
        # Constraints that have long been without effect only cost time.
        idle = np.where(multipliers > 1e-8 * C, 0, np.append(idle, 0) + 1)
        normals, deltas, idle = normals[idle < 50], deltas[idle < 50], idle[idle < 50]
        made += 1
    return LinearMachine(w[:-1], float(w[-1]), float(w @ w / 2 + C * slack), made, float(gap))


def most_violated(scores: Array, y: NDArray[np.bool_], loss: str) -> Cut:
    """The labelling with the largest Δ(y', y) + w·Ψ(y'), given the scores w·x."""
    return LOSSES[loss](scores, y)


def solve(normals: Array, deltas: Array, C: float) -> tuple[Array, float, Array]:
    """Minimise ½ |w|² + C ξ with ``normals @ w >= deltas - ξ`` and ξ >= 0: w, ξ and the multipliers."""
    import clarabel
    from scipy import sparse

    size, count = normals.shape[1], len(deltas)
    # Clarabel's form: ½ x'Px + q'x with Ax + s = b, s >= 0, for x = (w, ξ). C is scaled out for its tolerances.
    P = sparse.diags(np.append(np.full(size, 1 / C), 0.0), format="csc")
    q = np.append(np.zeros(size), 1.0)
    A = np.zeros((count + 1, size + 1))
    A[:count, :size], A[:, size] = -normals, -1.0
    b = np.append(-deltas, 0.0)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.NonnegativeConeT(count + 1)]
    found = clarabel.DefaultSolver(P, q, sparse.csc_matrix(A), b, cones, settings).solve()
    if found.status not in (clarabel.SolverStatus.Solved, clarabel.SolverStatus.AlmostSolved):
        raise RuntimeError(f"Clarabel stopped with {found.status}; features on very different scales? Scale them.")
    x = np.asarray(found.x)
    w = x[:size]
    slack = max(0.0, float(np.max(deltas - normals @ w)))
    return w, slack, C * np.asarray(found.z)[:count]


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
    of_positives, of_negatives = np.flatnonzero(y), np.flatnonzero(~y)
    of_positives = of_positives[np.argsort(-scores[of_positives], kind="stable")]
    of_negatives = of_negatives[np.argsort(-scores[of_negatives], kind="stable")]
    high, low = scores[of_positives] / n, scores[of_negatives] / n
    a = np.arange(positives + 1.0)
    first, last = np.zeros(len(a), dtype=int), np.full(len(a), len(low))
    while (first < last).any():
        middle = (first + last) // 2
        inside = np.minimum(middle, len(low) - 1)
        total = positives + a + middle
        gain = low[inside] + 2 * a / total - 2 * a / (total + 1)
        more = (gain > 0) & (first < last)
        first, last = np.where(more, middle + 1, first), np.where(more, last, np.minimum(last, middle))
    b = first
    delta = 1 - 2 * a / (positives + a + b)
    value = delta + np.append(0.0, np.cumsum(high)) + np.append(0.0, np.cumsum(low))[b]
    best = int(np.argmax(value))
    weights = np.zeros(n)
    weights[of_positives[best:]] = 1 / n
    weights[of_negatives[: b[best]]] = -1 / n
    return Cut(float(delta[best]), weights)


def _roc(scores: Array, y: NDArray[np.bool_]) -> Cut:
    """Swap each pair of a positive and a negative whose scores differ by less than 1."""
    high, low = scores[y], scores[~y]
    above = len(low) - np.searchsorted(np.sort(low), high - 1, side="right")
    below = np.searchsorted(np.sort(high), low + 1, side="left")
    pairs = len(high) * len(low)
    weights = np.empty(len(y))
    weights[y], weights[~y] = above / pairs, -below / pairs
    return Cut(float(above.sum()) / pairs, weights)


LOSSES: dict[str, Callable[[Array, NDArray[np.bool_]], Cut]] = {"error": _error, "f1": _f1, "roc": _roc}
"""The search for the most violated constraint, by loss."""
