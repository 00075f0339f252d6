"""The methods: which fits they need, and how they decide.

A method that is fitted on folds decides by the package's rule, tuned for the metric on its held-out probabilities. The
careful user's pick is no method of its own: it is computed from the rows of the others (see ``summary``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.suite.fits import Part, Prediction
from metricfit import metrics
from metricfit.ensemble import HeldOut, choose_ensemble, decided_by_others, mean_of

__all__ = [
    "CANDIDATES", "METHODS", "PICK", "PORTFOLIO", "Method", "Scored", "held_out_scores", "needs", "scored", "task",
    "title",
]  # fmt: skip

PORTFOLIO, PICK = "portfolio", "pick"

MEMBERS = ("boosting", "extra_trees", "forest", "network_ce", "network")
"""Of ``MetricClassifier(models="auto")``, in its order."""


@dataclass(frozen=True)
class Method:
    """Fits and a way to decide.

    Attributes:
        title: What tables call it.
        fits: The fits that it needs; ``network`` and ``autogluon`` are one per metric.
        family: For the colours of pictures.
        tuned: Whether its rule is tuned; otherwise it is arg max, or its own.
    """

    title: str
    fits: tuple[str, ...]
    family: str = "other libraries"
    tuned: bool = True


METHODS: dict[str, Method] = {
    PORTFOLIO: Method("MetricClassifier", MEMBERS, "metricfit"),
    "with_catboost": Method('MetricClassifier, models=["auto", "catboost"]', (*MEMBERS, "own_catboost"), "metricfit"),
    "network": Method('MetricClassifier, models="network"', ("network",), "metricfit", tuned=False),
    "catboost": Method("CatBoost", ("catboost",)),
    "lightgbm": Method("LightGBM", ("lightgbm",)),
    "forest": Method("random forest", ("forest",)),
    "extra_trees": Method("extra trees", ("extra_trees",)),
    "boosting": Method("HistGradientBoosting", ("boosting",)),
    "network_ce": Method("network, cross-entropy", ("network_ce",)),
    "logistic": Method("logistic regression", ("logistic",)),
    "xgboost": Method("XGBoost", ("xgboost",)),
    "lgbm_td": Method("LGBM-TD", ("lgbm_td",)),
    "xgb_td": Method("XGB-TD", ("xgb_td",)),
    "catboost_td": Method("CatBoost-TD", ("catboost_td",)),
    "realmlp_td": Method("RealMLP-TD", ("realmlp_td",)),
    "tabm_d": Method("TabM-D", ("tabm_d",)),
    "autogluon": Method("AutoGluon, good quality", ("autogluon",), tuned=False),
}
"""All methods by name, those that are run first at the front."""

CANDIDATES = ("catboost", "lightgbm", "xgboost", "forest", "extra_trees", "boosting", "network_ce", "logistic")
"""Whom a careful user chooses from: the best by the metric out of fold, each with its tuned rule."""

_BY_METRIC = ("network", "autogluon")


def title(name: str) -> str:
    """What tables call a method, or the careful user's pick."""
    return "the careful user's pick" if name == PICK else METHODS[name].title


def needs(method: str, metric: str) -> dict[str, str]:
    """The fits of a method for a metric, by the name of the model."""
    return {fit: f"{fit}_{metric}" if fit in _BY_METRIC else fit for fit in METHODS[method].fits}


@dataclass(frozen=True)
class Scored:
    """What a method reaches.

    Attributes:
        value: The metric of its decisions of the test rows.
        held_out: The same of the training rows, each fold decided by weights and a rule chosen on the others.
        arg_max: The metric on the test rows if arg max decided.
    """

    value: float
    held_out: float
    arg_max: float


def scored(method: str, metric: str, part: Part, made: dict[str, Prediction]) -> Scored:
    """Decide, and score the decisions.

    Args:
        method: The method.
        metric: The metric.
        part: The split.
        made: Its fits, by the name of the model.
    """
    judge = metrics.get(metric)
    labels = part.labels

    def value(truth: NDArray[Any], decided: NDArray[Any]) -> float:
        return float(judge.score(truth, decided, labels=labels))

    first = next(iter(made.values()))
    if first.decided is not None:
        return Scored(value(part.y_test, first.decided), float("nan"), value(part.y_test, first.test.argmax(axis=1)))
    held = held_out_scores(part, made)
    choose: Callable[[HeldOut], Any] = partial(
        choose_ensemble, metric=metrics.resolve(metric, labels, task(labels))[0], tuned=METHODS[method].tuned
    )
    chosen = choose(held)
    test = mean_of({name: one.test for name, one in made.items()}, chosen.weights)
    nested = decided_by_others(held, choose)[1]
    return Scored(
        value(part.y_test, chosen.rule.apply(test)),
        value(held.codes, nested),
        value(part.y_test, test.argmax(axis=1)),
    )


def task(labels: tuple[int, ...]) -> Any:
    """What the package calls the kind of target."""
    return "binary" if len(labels) == 2 else "multiclass"


def held_out_scores(part: Part, made: dict[str, Prediction]) -> HeldOut:
    """Held-out probabilities of fits in the form that the package chooses weights and a rule from."""
    validation = [split.validation for split in part.folds]
    rows = np.concatenate(validation)
    fold = np.repeat(np.arange(len(validation)), [len(held) for held in validation])
    proba = {name: one.held_out for name, one in made.items()}
    return HeldOut(rows, fold, part.y_train[rows].astype(np.int64), np.ones(len(rows)), part.labels, proba)
