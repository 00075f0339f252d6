"""Rows without labels: how common the classes are among them, and what a metric is expected to be."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from metricfit.assess.intervals import Estimate, interval
from metricfit.confusion import ConfusionMatrix
from metricfit.decisions.calibration import calibrate, fitted
from metricfit.decisions.problem import as_columns, check_probabilities, class_samples, computed
from metricfit.metrics import MetricLike, resolve

__all__ = ["estimate_prevalence", "expected_metric"]

_MOST_PASSES = 1000
_DRAWS, _FEWER_DRAWS = 200, 40
_MANY = 400_000  # probabilities, from which there are fewer draws

Array = NDArray[np.float64]


def estimate_prevalence(
    new_proba: ArrayLike, y_true: ArrayLike, proba: ArrayLike, *, labels: Sequence[Hashable] | None = None,
    random_state: int = 0,
) -> dict[Any, Estimate]:  # fmt: skip
    """The share of every class among rows without labels, with its interval (EM of Saerens et al. 2002).

    It is the mixture of the classes, as they look among the labelled rows, that makes the new rows' probabilities most
    likely. It holds where the classes have changed in number only: fraud may be rarer, but looks the same. The
    probabilities are calibrated on the labelled rows first, without which the shares are biased. The interval comes
    from drawing weights for both kinds of rows (the Bayesian bootstrap), with calibration and EM done anew.

    ``new_proba`` are the model's probabilities for the rows without labels, (n,) of the second class or (n, classes);
    ``y_true`` and ``proba`` are of other rows, which the model was not fitted on.

    >>> rng = np.random.default_rng(0)
    >>> def rows(n, share):
    ...     y = rng.random(n) < share
    ...     return y, 1 / (1 + np.exp(-(2 * rng.normal(size=n) + 4 * y - 2)))
    >>> y, p = rows(2000, 0.5)
    >>> _, new = rows(2000, 0.1)
    >>> print(estimate_prevalence(new, y, p)[True])
    0.108 (0.084 to 0.135)
    """
    classes, shares, _ = without_labels(new_proba, None, y_true, proba, labels, random_state)
    return {label: interval(shares[:, k]) for k, label in enumerate(classes)}


def expected_metric(
    metric: MetricLike, new_proba: ArrayLike, decided: ArrayLike, y_true: ArrayLike, proba: ArrayLike, *,
    labels: Sequence[Hashable] | None = None, random_state: int = 0,
) -> Estimate:  # fmt: skip
    """What a metric of decisions about rows without labels is expected to be, with its interval.

    The unknown labels are drawn by the probabilities that calibration and the estimated shares of the classes give,
    under the assumption of :func:`estimate_prevalence`, whose arguments these are. ``decided`` (n,) are the decisions
    about the new rows as positions of the classes: 0 or 1 where there are two.
    """
    _, _, cm = without_labels(new_proba, decided, y_true, proba, labels, random_state)
    return interval(computed(resolve(metric, cm.labels or (), cm.task or "binary")[0], cm).numpy())


def without_labels(
    new_proba: ArrayLike, decided: ArrayLike | None, y_true: ArrayLike, proba: ArrayLike,
    labels: Sequence[Hashable] | None, random_state: int,
) -> tuple[tuple[Any, ...], Array, ConfusionMatrix]:  # fmt: skip
    """The classes, their shares among new rows, and the confusion matrix of decisions: the estimate, then draws."""
    known, new = as_columns(proba, "proba"), as_columns(new_proba, "new_proba")
    check_probabilities(new, "new_proba")
    samples = class_samples(y_true, known, labels=labels)
    if new.shape[1:] != known.shape[1:]:
        raise ValueError(f"new_proba: expected {known.shape[1]} columns, as proba has, got shape {new.shape}.")
    classes, (n, size), rng = samples.classes, known.shape, np.random.default_rng(random_state)
    called = np.zeros(len(new), dtype=np.intp) if decided is None else np.asarray(decided, dtype=np.intp)
    method = calibrate(y_true, known, labels=classes).method
    draws = _DRAWS if new.size + known.size <= _MANY else _FEWER_DRAWS
    found: list[Array] = []
    matrices: list[Array] = []
    for i in range(1 + draws):
        weight, drawn = (rng.standard_gamma(1.0, rows) if i else np.ones(rows) for rows in (n, len(new)))
        usual = np.bincount(samples.target, weight, minlength=size) / weight.sum()
        ratio = fitted(method, replace(samples, weight=weight), False).apply(new) / np.where(usual > 0, usual, np.inf)
        # A start at a share of 0 would stay there.
        start = 0.9 * found[0] + 0.1 / size if found else np.full(size, 1 / size)
        found.append(_expectation_maximisation(ratio, drawn, start))
        belief = found[-1] * ratio / (ratio @ found[-1])[:, None]
        if i and decided is not None:  # labels by these beliefs: a metric of few rows is uncertain itself
            belief = np.eye(size)[(rng.random((len(new), 1)) > belief.cumsum(axis=1)[:, :-1]).sum(axis=1)]
        matrices.append(belief.T @ (called[:, None] == np.arange(size)))
    task: Any = "binary" if size == 2 else "multiclass"
    return classes, np.array(found), ConfusionMatrix(torch.from_numpy(np.array(matrices)), task, classes)


def _expectation_maximisation(ratio: Array, weight: Array, shares: Array) -> Array:
    """The shares under which rows with these likelihoods (n, classes), up to a factor per row, are most likely."""
    for _ in range(_MOST_PASSES):
        belief = shares * ratio
        moved = weight @ (belief / belief.sum(axis=1, keepdims=True)) / weight.sum()
        if np.abs(moved - shares).max() < 1e-7:
            return np.asarray(moved)
        shares = moved
    return shares
