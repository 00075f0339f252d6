"""The methods: what is fitted, and which decisions are taken from it.

A fit gives probabilities; several methods may share it (arg max and tuned rule), and unless it is trained on the
metric, all metrics share it too. Every library's model has its default parameters, as ``MetricClassifier`` has.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from benchmarks.suite.datasets import Part
from metricfit.data import TablePreprocessor

__all__ = ["METHODS", "METRICS", "Fit", "Method", "Prediction"]

METRICS = ("f1", "mcc", "balanced_accuracy")
"""``f1`` is the positive class's with two classes and the macro average with more."""

FOLDS = 5

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Prediction:
    """What a fit knows.

    Attributes:
        test: Probabilities of the test rows.
        rows: Training rows that have out-of-fold probabilities.
        out_of_fold: Those probabilities, by models that were not trained on the row.
    """

    test: Array
    rows: NDArray[np.intp] | None = None
    out_of_fold: Array | None = None


@dataclass(frozen=True)
class Fit:
    """One training on one split.

    Attributes:
        name: Its name.
        run: ``(part, seed, threads, metric) -> Prediction``.
        per_metric: Whether it is trained on the metric, and so once for each.
    """

    name: str
    run: Callable[[Part, int, int, str], Prediction]
    per_metric: bool = False


@dataclass(frozen=True)
class Method:
    """A fit and a way to decide.

    Attributes:
        title: What tables call it.
        fit: The fit it needs.
        tuned: Whether the rule is tuned on the out-of-fold probabilities; else it is arg max.
        family: For the order and the colours of tables and plots.
    """

    title: str
    fit: Fit
    tuned: bool
    family: str


def _metric_classifier(
    part: Part, seed: int, threads: int, metric: str, recipe: str = "default", **parts: Any
) -> Prediction:
    from metricfit import MetricClassifier, Recipe

    # The validation report's cross-entropy baseline is no part of the model, and would double the time.
    model = MetricClassifier(
        metric, recipe=Recipe(recipe, **parts), baseline=False, verbose=False, random_state=seed, device="cpu"
    )
    model.fit(part.X_train, part.y_train)
    held = model.held_out_
    if model.recipe_.rule != "argmax" or held is None:
        # Should a recipe tune its own rule one day, it is part of the model.
        return Prediction(model.predict_proba(part.X_test))
    return Prediction(model.predict_raw_proba(part.X_test), held.rows, held.proba.astype(np.float64))


def _mlp(seed: int, threads: int) -> BaseEstimator:
    return make_pipeline(TablePreprocessor(random_state=seed), MLPClassifier(random_state=seed))


def _random_forest(seed: int, threads: int) -> BaseEstimator:
    indicators = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    columns = make_column_transformer(
        (indicators, make_column_selector(dtype_include="category")), remainder="passthrough"
    )
    return make_pipeline(columns, RandomForestClassifier(random_state=seed, n_jobs=threads))


def _hist_gradient_boosting(seed: int, threads: int) -> BaseEstimator:
    return HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=seed)


def _xgboost(seed: int, threads: int) -> BaseEstimator:
    from xgboost import XGBClassifier

    return XGBClassifier(enable_categorical=True, random_state=seed, n_jobs=threads)


Build = Callable[[int, int], Any]


def _plain(build: Build, part: Part, seed: int, threads: int, metric: str) -> Prediction:
    return Prediction(_fitted(build(seed, threads), part.X_train, part.y_train).predict_proba(part.X_test))


def _cross_fitted(build: Build, part: Part, seed: int, threads: int, metric: str) -> Prediction:
    """An ensemble of one model per fold: test probabilities averaged, each training row predicted by the other four."""
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    test, rows, held = [], [], []
    for train, validation in folds.split(part.X_train, part.y_train):
        model = _fitted(build(seed, threads), part.X_train.iloc[train], part.y_train[train])
        test.append(model.predict_proba(part.X_test))
        rows.append(validation)
        held.append(model.predict_proba(part.X_train.iloc[validation]))
    return Prediction(np.mean(test, axis=0, dtype=np.float64), np.concatenate(rows), np.concatenate(held))


def _fitted(model: Any, X: Any, y: Any) -> Any:
    with warnings.catch_warnings():
        # MLPClassifier stops at its 200 epochs, as anyone's default does.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y)


def _networks() -> dict[str, Method]:
    def fit(name: str, *, per_metric: bool = False, **options: Any) -> Fit:
        return Fit(name, partial(_metric_classifier, **options), per_metric)

    default = fit("default", per_metric=True)
    east = fit("east", per_metric=True, recipe="east")
    found = {
        "default": Method("MetricClassifier", default, False, "metricfit"),
        "east": Method('MetricClassifier, "east"', east, False, "metricfit"),
    }
    for name, title, balance in (
        ("ce", "Cross-entropy", "none"),
        ("ce_sqrt", "√-weighted cross-entropy", "sqrt"),
        ("ce_balanced", "Weighted cross-entropy", "full"),
    ):
        shared = fit(name, recipe="log_loss", balance=balance)
        found[name] = Method(title, shared, False, "same network, cross-entropy")
        found[f"{name}_tuned"] = Method(f"{title}, tuned rule", shared, True, "same network, cross-entropy")
    return found


def _rivals() -> dict[str, Method]:
    found = {}
    for name, title, build in (
        ("mlp", "MLPClassifier", _mlp),
        ("forest", "Random forest", _random_forest),
        ("hist", "HistGradientBoosting", _hist_gradient_boosting),
        ("xgboost", "XGBoost", _xgboost),
    ):
        family = "other libraries"
        found[name] = Method(title, Fit(name, partial(_plain, build)), False, family)
        folds = Fit(f"{name}_folds", partial(_cross_fitted, build))
        found[f"{name}_tuned"] = Method(f"{title} × 5, tuned rule", folds, True, family)
    return found


METHODS: dict[str, Method] = _networks() | _rivals()
"""All methods by name."""
