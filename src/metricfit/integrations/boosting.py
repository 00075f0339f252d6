"""LightGBM and XGBoost: a metric as objective and as the measure of early stopping, for their functions and estimators.

First try ``TunedRuleClassifier`` around the same booster trained with log-loss: docs/guides/integrations.md has what
was measured. CatBoost shows one row at a time to an objective of several classes, so it can have none of these.
"""

from __future__ import annotations

import math
import re
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from metricfit.inputs import Task, expect
from metricfit.losses import MetricLoss
from metricfit.metrics import Metric, MetricLike, get, resolve

__all__ = ["eval_metric", "objective", "probabilities"]

Array = NDArray[np.float64]
Library = Literal["lightgbm", "xgboost"]

SMALLEST_HESSIAN = 1e-6  # per unit of weight; with a Hessian of 0 no row is split


def probabilities(raw: ArrayLike, prior: ArrayLike | None = None) -> Array:
    """Probabilities (n, classes) of the raw scores of a booster, (n,) or (n, classes), that an objective trained.

    ``raw`` is what LightGBM's ``predict(X, raw_score=True)`` and XGBoost's ``predict(X, output_margin=True)`` give;
    ``prior`` is the one that the objective was given.

    >>> probabilities([0.0, 0.0], prior=[0.9, 0.1]).round(3).tolist()
    [[0.9, 0.1], [0.9, 0.1]]
    """
    p = _probabilities(_scores(raw, _start(prior)))
    return np.asarray((torch.stack([1 - p, p], dim=1) if p.ndim == 1 else p).numpy())


def objective(metric: MetricLike, *, cross_entropy: float = 0.5, prior: ArrayLike | None = None, **options: Any) -> Any:
    """A metric as the objective of LightGBM or XGBoost: every round takes the soft matrix of all rows.

    The gradient is that of :class:`metricfit.MetricLoss`, times the sum of the rows' weights, so that it has the scale
    of the libraries' own losses. Classes must be 0, 1, …, as their estimators make them. The result is a function for
    ``LGBMClassifier(objective=…)``, ``lightgbm.train({"objective": …})``, ``XGBClassifier(objective=…)`` and
    ``xgboost.train(…, obj=…)``.

    Args:
        metric: As :class:`metricfit.MetricLoss` takes it. Of one score per row a bare ``f1`` is that of class 1.
        cross_entropy: Weight of cross-entropy beside the metric; without it most rows have no gradient at first.
        prior: Shares of the classes (classes,), such as ``np.bincount(y) / len(y)``: where training starts. Give the
            same to :func:`eval_metric` and :func:`probabilities`, because the library's predictions are without it.
        options: Further options of :class:`metricfit.MetricLoss`, such as ``temperature`` and ``balance``.

    >>> goal = objective("f1")
    >>> gradient, hessian = goal(np.array([0, 0, 1]), np.zeros(3))
    >>> gradient.round(2).tolist(), bool((hessian > 0).all())
    ([0.39, 0.39, -0.83], True)
    """
    options["cross_entropy"] = cross_entropy
    MetricLoss(metric, **options)  # wrong options end here, not in the first round
    return partial(_derivatives, metric, options, _start(prior))


def eval_metric(
    metric: MetricLike, *, library: Library = "lightgbm", prior: ArrayLike | None = None,
    from_probabilities: bool = False,
) -> Any:  # fmt: skip
    """The exact metric of the most probable class, a function for ``eval_metric``, ``feval`` and ``custom_metric``.

    Args:
        metric: As :func:`metricfit.metrics.get` takes it. Of one score per row a bare ``f1`` is that of class 1.
        library: LightGBM is told whether more is better. XGBoost wants less: the distance to the best.
        prior: The objective's.
        from_probabilities: With an objective of their own the libraries give probabilities; this never guesses.

    >>> eval_metric("accuracy")(np.array([0, 1, 1]), np.array([-1.0, 2.0, -3.0]))
    ('accuracy', 0.6666666666666666, True)
    """
    expect(library in get_args(Library), "library", "'lightgbm' or 'xgboost'", library)
    expect(not (from_probabilities and prior is not None), "prior", "None with from_probabilities=True", prior)
    # XGBoost asks for a name, and divides what it prints at colons and spaces.
    name = str(get(metric)) if library == "lightgbm" else re.sub(r"[:\s]+", "_", f"loss of {get(metric)}")
    measure = partial(_measured, get(metric), name, library, _start(prior), from_probabilities)
    vars(measure)["__name__"] = name
    return measure


def _derivatives(
    metric: MetricLike, options: Any, start: Array | None, y_true: Any, y_pred: Any, sample_weight: Any = None
) -> tuple[Array, Array]:
    target, raw, given = _rows(y_true, y_pred, sample_weight)
    scores, weight, codes = _scores(raw, start).requires_grad_(), torch.from_numpy(given), torch.from_numpy(target)
    one = scores.ndim == 1
    loss = MetricLoss(metric, task="binary" if one else "multiclass", sync=False, **options)
    with torch.enable_grad():
        value = loss(scores, codes.double() if one else codes, weight)
        (gradient,) = torch.autograd.grad(value * weight.sum(), scores)
    # Gauss-Newton: the curvature of the softmax. The metric's own is often zero or negative.
    p, classes = _probabilities(scores.detach()), math.inf if one else scores.shape[1]
    curved = (1 + loss.cross_entropy) * p * (1 - p) / (1 - 1 / classes)
    hessian = curved.clamp_min(SMALLEST_HESSIAN) * (weight if one else weight[:, None])
    return gradient.numpy(), hessian.numpy()


def _measured(
    metric: Metric, name: str, library: Library, start: Array | None, from_probabilities: bool,
    y_true: Any, y_pred: Any, sample_weight: Any = None,
) -> Any:  # fmt: skip
    target, raw, weight = _rows(y_true, y_pred, sample_weight)
    proba = _scores(raw, None) if from_probabilities else _probabilities(_scores(raw, start))
    task: Task = "binary" if proba.ndim == 1 else "multiclass"
    labels = (0, 1) if proba.ndim == 1 else tuple(range(proba.shape[1]))
    chosen = resolve(metric, labels, task)[0]
    decided = proba > 0.5 if proba.ndim == 1 else proba.argmax(dim=1)
    score = proba if chosen.judges_scores else decided.long()
    value = float(chosen.score(target, score.numpy(), weight, labels=labels))
    if library == "lightgbm":
        return name, value, chosen.greater_is_better
    less = abs(chosen.range[1 if chosen.greater_is_better else 0] - value)
    return (name, less) if hasattr(y_pred, "get_label") else less


def _start(prior: ArrayLike | None) -> Array | None:
    if prior is None:
        return None
    shares = np.asarray(prior, dtype=np.float64)
    fits = shares.ndim == 1 and len(shares) > 1 and bool((shares > 0).all()) and bool(np.isclose(shares.sum(), 1))
    expect(fits, "prior", "the share of each class, above 0, that sum to 1", prior)
    return np.asarray(np.log(shares))


def _scores(raw: Any, start: Array | None) -> torch.Tensor:
    """Scores in double precision, from the start on: (n, classes), or (n,) of two classes."""
    scores = np.array(raw, dtype=np.float64, order="C")
    if start is not None:
        classes = 2 if scores.ndim == 1 else scores.shape[1]
        expect(len(start) == classes, "prior", f"{classes} shares, one per class", np.exp(start).tolist())
        scores += start if scores.ndim == 2 else start[1] - start[0]
    return torch.from_numpy(scores)


def _probabilities(scores: torch.Tensor) -> torch.Tensor:
    return scores.sigmoid() if scores.ndim == 1 else scores.softmax(dim=1)


def _rows(first: Any, second: Any, weight: Any) -> tuple[NDArray[np.int64], Any, Array]:
    """Codes, scores and weights: from arrays, labels first, or from the libraries' scores and data."""
    if hasattr(second, "get_label"):
        first, second, weight = second.get_label(), first, second.get_weight()
    target, missing = np.asarray(first, dtype=np.int64), weight is None or not len(weight)
    return target, second, np.ones(len(target)) if missing else np.array(weight, dtype=np.float64)
