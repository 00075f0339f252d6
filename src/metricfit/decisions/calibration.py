"""Calibration: a model's scores to probabilities that can be trusted.

* Temperature: softmax(t log p + a bias per class), for all classes together.
* Beta (Kull et al. 2017): logit q = a log p - b log(1 - p) + c, each class against the rest.
* Isotonic: any rising function of p, each class against the rest.

The last two are divided by their sum over the classes. A rule can be tuned on labels mixed with calibrated beliefs: the
value of a cut-off is then the metric of the *expected* confusion matrix under the labels (1 - belief) y + belief Q,
where Q are the probabilities after calibration. A few lucky positives then move the cut-off less.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_softmax

from metricfit.decisions.problem import Array, Samples, as_columns, class_samples, label_samples
from metricfit.inputs import expect
from metricfit.labels import Labels, Weights, score_array

Method = Literal["none", "temperature", "beta", "isotonic"]

_FOLDS = 5
_PENALTY = 0.1  # on the squares of the parameters' distance from "no change": about a tenth of a sample's worth


@dataclass(frozen=True)
class Calibration:
    """A map from a model's probabilities to calibrated ones. Make it with :func:`calibrate`.

    ``log_loss`` has the out-of-fold log-loss of every method that was tried.
    """

    method: Method
    parameters: tuple[Any, ...] = field(repr=False)  # one tuple for all classes, or one per class or label
    several: bool = False  # whether the columns are labels, each for itself, and not classes
    log_loss: dict[str, float] = field(default_factory=dict)

    def apply(self, proba: ArrayLike) -> Array:
        """Calibrated probabilities of a model's (n, classes) or (n, labels); of two classes also (n,) of the second."""
        if np.ndim(proba) == 1:
            return np.asarray(self.apply(as_columns(proba, "proba"))[:, 1])
        p = score_array(proba, "proba").astype(np.float64)
        if self.method == "none":
            return p
        if self.method == "temperature" and not self.several:
            *found, smallest = self.parameters
            return np.exp(_log_softmax(np.array(found), np.log(p.clip(min=smallest))[None]))
        if len(self.parameters) == 1 and not self.several:  # of the second class alone
            second = _apply(self.method, self.parameters[0], p[:, 1])
            return np.stack([1 - second, second], axis=1)
        each = np.stack([_apply(self.method, own, p[:, k]) for k, own in enumerate(self.parameters)], axis=1)
        return each if self.several else each / each.sum(axis=1, keepdims=True)


def calibrate(
    y_true: ArrayLike, proba: ArrayLike, *, method: Method | Literal["auto"] = "auto",
    sample_weight: Weights = None, labels: Labels = None, random_state: int = 0,
) -> Calibration:  # fmt: skip
    """Find the map that makes probabilities fit the labels.

    ``y_true`` are labels (n,) of rows that the model was not fitted on, or 0/1 (n, labels); ``proba`` its probabilities
    of them, (n,) of the second class, (n, classes) or (n, labels), in the order of ``labels`` (or sorted). The
    method ``"auto"`` has the least log-loss on five folds that it was not fitted on.

    >>> rng = np.random.default_rng(0)
    >>> p = rng.random(2000)
    >>> y = rng.random(2000) < p**2  # the model is too sure of the second class
    >>> found = calibrate(y, p)
    >>> found.method, found.apply([0.2, 0.5, 0.9]).round(1)
    ('temperature', array([0. , 0.2, 0.8]))
    """
    expect(method in (*get_args(Method), "auto"), "method", f"one of {', '.join(get_args(Method))} or auto", method)
    p = as_columns(proba, "proba")
    several = np.ndim(y_true) == 2 and np.shape(y_true)[1] > 1
    samples = (label_samples if several else class_samples)(y_true, p, sample_weight, labels=labels)
    if several and (samples.score.min() < 0 or samples.score.max() > 1):
        raise ValueError("proba: expected probabilities in [0, 1].")
    tried: tuple[Method, ...] = get_args(Method) if method == "auto" else (method,)
    shuffled = np.random.default_rng(random_state).permutation(len(p))
    dealt = shuffled if several else shuffled[np.argsort(samples.target[shuffled], kind="stable")]
    fold = np.empty(len(p), dtype=np.intp)
    fold[dealt] = np.arange(len(p)) % max(2, min(_FOLDS, len(p) // 2))
    losses: dict[str, float] = {}
    for one in tried:
        held = np.empty_like(samples.score, dtype=np.float64)
        for k in np.unique(fold):
            held[fold == k] = fitted(one, samples.take(fold != k), several).apply(samples.score[fold == k])
        losses[one] = _log_loss(samples, held)
    best = min(tried, key=lambda one: losses[one])
    return replace(fitted(best, samples, several), log_loss=losses)


def least(score: NDArray[Any]) -> float:
    """Probabilities below it cannot be told apart with so many samples; forests give exact zeros."""
    return 0.5 / len(score)


def _log_softmax(parameters: Array, features: Array) -> Array:
    logits = np.tensordot(parameters[: len(features)], features, axes=1) + parameters[len(features) :]
    return np.asarray(log_softmax(logits, axis=1))


def _fit_softmax(features: Array, target: NDArray[Any], weight: Array | None) -> Array:
    """A factor for each feature (features, n, classes), then a bias for each class, with the least log-loss."""
    several, n, size = features.shape
    rows = np.arange(n)
    w = np.ones(n) if weight is None else weight * (n / weight.sum())
    start = np.append(np.ones(several), np.zeros(size))

    def at(parameters: Array) -> tuple[float, Array]:
        log_p = _log_softmax(parameters, features)
        penalty = _PENALTY / 2 * ((parameters - start) ** 2).sum()
        return float(penalty - w @ log_p[rows, target]), log_p

    found, (loss, log_p) = start, at(start)
    for _ in range(100):  # Newton's steps on a strictly convex function, halved where they overshoot
        p = np.exp(log_p)
        wp = w[:, None] * p
        missed = wp.copy()
        missed[rows, target] -= w
        gradient = np.append((missed * features).sum(axis=(1, 2)), missed.sum(axis=0)) + _PENALTY * (found - start)
        centred = features - (p * features).sum(axis=2, keepdims=True)
        curvature = _PENALTY * np.eye(several + size)
        curvature[:several, :several] += np.einsum("nc,fnc,gnc->fg", wp, centred, centred)
        curvature[:several, several:] += (wp * centred).sum(axis=1)
        curvature[several:, :several] = curvature[:several, several:].T
        curvature[several:, several:] += np.diag(wp.sum(axis=0)) - wp.T @ p
        step = np.linalg.solve(curvature, gradient)
        if gradient @ step <= 1e-9 * n:
            break
        tried = (found - step / 2**halvings for halvings in range(27))
        better = next(((moved, *there) for moved in tried if (there := at(moved))[0] < loss), None)
        if better is None:
            break
        found, loss, log_p = better
    return found


def fitted(method: Method, samples: Samples, several: bool) -> Calibration:
    """The map of this kind with the least log-loss on the samples."""
    p, weight, size = samples.score.astype(np.float64), samples.weight, samples.score.shape[1]
    if method == "none":
        return Calibration(method, (), several)
    if method == "temperature" and not several:
        found = _fit_softmax(np.log(p.clip(min=least(p)))[None], samples.target, weight)
        return Calibration(method, (*found.tolist(), least(p)))
    hits = samples.target if several else samples.target[:, None] == np.arange(size)
    columns = range(size) if several or size > 2 else [1]
    return Calibration(method, tuple(_fit_one(method, p[:, k], hits[:, k], weight) for k in columns), several)


def _fit_one(method: Method, p: Array, hit: NDArray[np.bool_], weight: Array | None) -> tuple[Any, ...]:
    """The parameters for one class against the rest."""
    smallest = least(p)
    if method == "isotonic":
        from sklearn.isotonic import IsotonicRegression

        model = IsotonicRegression(y_min=smallest, y_max=1 - smallest, out_of_bounds="clip").fit(p, hit, weight)
        return tuple(model.X_thresholds_.tolist()), tuple(model.y_thresholds_.tolist())
    found = _fit_softmax(_against_rest(method, p, smallest), hit.astype(np.intp), weight)
    return (*found[:-2].tolist(), float(found[-1] - found[-2]), smallest)


def _apply(method: Method, parameters: tuple[Any, ...], p: Array) -> Array:
    if method == "isotonic":
        return np.asarray(np.interp(p, *parameters))
    *factors, bias, smallest = parameters
    features = _against_rest(method, p, smallest)[:, :, 1]
    return np.asarray(expit(np.array(factors) @ features + bias))


def _against_rest(method: Method, p: Array, smallest: float) -> Array:
    """What speaks for a class, (features, n, 2): its log-odds, or both logarithms on their own."""
    p = p.clip(smallest, 1 - smallest)
    own = [np.log(p / (1 - p))] if method == "temperature" else [np.log(p), -np.log(1 - p)]
    return np.stack([np.stack([np.zeros_like(p), one], axis=1) for one in own])


def _log_loss(samples: Samples, proba: Array) -> float:
    hits = samples.target
    of_truth = np.where(hits, proba, 1 - proba) if hits.ndim == 2 else proba[np.arange(len(hits)), hits][:, None]
    return float(np.average(-np.log(of_truth.clip(min=1e-15)).mean(axis=1), weights=samples.weight))


def mixed_labels(samples: Samples, belief: float) -> Array | None:
    """Labels (n, classes), (n,) or (n, labels), a share of which is replaced by calibrated probabilities."""
    valid = isinstance(belief, (int, float)) and not isinstance(belief, bool) and 0 <= belief <= 1
    expect(valid, "belief", "a number from 0 (labels) to 1 (calibrated probabilities)", belief)
    if belief == 0:
        return None
    target, score, weight = samples.target, samples.score, samples.weight
    if target.dtype != bool:
        known: Array = np.eye(score.shape[1])[target]
        return (1 - belief) * known + belief * fitted("temperature", samples, False).apply(score)
    columns = zip(np.atleast_2d(target.T), np.atleast_2d(score.T), strict=True)
    positive: Array = np.stack([_positive(hit, column, weight) for hit, column in columns], axis=1)
    mixed: Array = (1 - belief) * target + belief * positive.reshape(target.shape)
    return mixed


def _positive(target: NDArray[np.bool_], score: NDArray[Any], weight: Array | None) -> Array:
    """The calibrated probability of being positive, from a probability or from a score of any scale."""
    x = score.astype(np.float64)
    if x.min() >= 0 and x.max() <= 1:
        features = _against_rest("temperature", x, least(x))
    else:
        features = np.stack([np.zeros_like(x), (x - x.mean()) / (x.std() or 1.0)], axis=1)[None]
    return np.exp(_log_softmax(_fit_softmax(features, target.astype(np.intp), weight), features))[:, 1]
