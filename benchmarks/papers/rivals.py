"""The papers' rivals that are no neural networks: SVM-perf, random forest, linear scores with CCS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import f1_score, roc_auc_score
from torch import Tensor

from benchmarks.papers.data import Parts
from metricfit.models import ConvexCalibratedSurrogates, SVMPerf

__all__ = ["NAMES", "fit"]

NAMES = ("svmperf_error", "svmperf_f1", "svmperf_roc", "rf", "ccs")
VARIANCE = 0.8
"""East keeps so much of the variance of images before random forest and CCS."""

SVM_WEIGHTS = (1.0, 10.0, 100.0, 1e3, 1e4)
"""C of SVM-perf. Btg does not say which it took; the validation part chooses, by what the loss is about."""

REGULARISATION = (0.01, 1.0, 100.0)
"""C of the regressions of CCS; the validation part chooses, by macro F1."""

Array = NDArray[np.float64]
Scores = Callable[[Tensor], Array]


def fit(method: str, parts: Parts, *, seed: int, max_cuts: int = 1000) -> Scores:
    """Fit a rival to the training part; the validation part chooses its regularisation.

    Args:
        method: One of :data:`NAMES`.
        parts: A split.
        seed: Of the random forest.
        max_cuts: Cutting planes after which SVM-perf gives up.

    Returns:
        A function of features that gives (n, d) scores, the largest of a row being the decision: decision values
        -f(x) / 2 and f(x) / 2 for SVM-perf, otherwise probabilities. Those of CCS are one-versus-rest, and add up to
        1 for two classes only.
    """
    if method not in NAMES:
        raise ValueError(f"method: expected one of {', '.join(NAMES)}, got {method!r}.")
    reduced = _reduction(parts.train[0])
    X, y = reduced(parts.train[0]), parts.train[1].numpy()
    X_validation, y_validation = reduced(parts.validation[0]), parts.validation[1].numpy()
    if method == "rf":
        model = RandomForestClassifier(random_state=seed).fit(X, y)
        d = int(max(y.max(), y_validation.max())) + 1
        return lambda features: _columns(model.predict_proba(reduced(features)), model.classes_, d)
    if method == "ccs":
        return _ccs(X, y, X_validation, y_validation, reduced)
    return _svmperf(method.removeprefix("svmperf_"), X, y, X_validation, y_validation, reduced, max_cuts)


def _reduction(train: Tensor) -> Callable[[Tensor], NDArray[Any]]:
    if train.ndim == 2:
        return lambda features: features.numpy()
    pca = PCA(VARIANCE, svd_solver="covariance_eigh").fit(train.flatten(1).numpy())
    return lambda images: pca.transform(images.flatten(1).numpy())


def _columns(found: Array, classes: NDArray[Any], d: int) -> Array:
    """Probabilities of all d classes, where the training part may lack some."""
    scores = np.zeros((len(found), d))
    scores[:, classes] = found
    return scores


def _svmperf(
    loss: str,
    X: NDArray[Any],
    y: NDArray[Any],
    X_held: NDArray[Any],
    y_held: NDArray[Any],
    reduced: Callable[..., Any],
    max_cuts: int,
) -> Scores:
    # The error rate of rare positives is small, and so must be what is tolerated of it.
    epsilon = min(1e-4, 0.01 * min(y.mean(), 1 - y.mean())) if loss == "error" else 1e-4
    machines = [SVMPerf(loss, C=C, tol=epsilon, max_iter=max_cuts).fit(X, y) for C in SVM_WEIGHTS]
    values = [_quality(loss, machine.decision_function(X_held), y_held) for machine in machines]
    best = machines[int(np.argmax(values))]

    def scores(features: Tensor) -> Array:
        half = best.decision_function(reduced(features)) / 2
        return np.stack([-half, half], axis=1)

    return scores


def _quality(loss: str, decision: Array, y: NDArray[Any]) -> float:
    if loss == "roc":
        return float(roc_auc_score(y, decision))
    if loss == "f1":
        return float(f1_score(y, decision > 0, zero_division=0))
    return float(np.mean((decision > 0) == y))


def _ccs(
    X: NDArray[Any], y: NDArray[Any], X_held: NDArray[Any], y_held: NDArray[Any], reduced: Callable[..., Any]
) -> Scores:
    d = int(max(y.max(), y_held.max())) + 1
    models = [ConvexCalibratedSurrogates(C).fit(X, np.eye(d)[y]) for C in REGULARISATION]
    predictions = [model.predict_proba(X_held).argmax(axis=1) for model in models]
    values = [f1_score(y_held, predicted, average="macro", zero_division=0) for predicted in predictions]
    best = models[int(np.argmax(values))]
    return lambda features: best.predict_proba(reduced(features))
