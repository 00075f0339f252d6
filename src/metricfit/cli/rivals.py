"""The methods that ``metricfit compare`` compares: each fits on some rows and decides on others."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.assess.validation import argmax_rule
from metricfit.classifier import MetricClassifier
from metricfit.data import TablePreprocessor
from metricfit.decisions import InfeasibleError, best_rule
from metricfit.decisions.problem import UntunableError
from metricfit.metrics import Metric
from metricfit.training.recipes import Recipe
from metricfit.training.splits import split_rows

__all__ = ["METHODS", "Decided", "Part", "available_methods"]


@dataclass(frozen=True)
class Part:
    """One split.

    Attributes:
        X: Training rows.
        y: Their classes (rows,), or 0/1 labels (rows, labels).
        weight: Their weights, or None.
        groups: Their groups, or None.
        X_test: Rows to decide on.
        classes: All classes, or the names of the labels.
        metric: The metric.
        seed: Of everything random.
        max_epochs: Bound on the networks' training, or None.
    """

    X: pd.DataFrame
    y: NDArray[Any]
    weight: NDArray[np.float64] | None
    groups: NDArray[Any] | None
    X_test: pd.DataFrame
    classes: NDArray[Any]
    metric: Metric
    seed: int
    max_epochs: int | None


@dataclass(frozen=True)
class Decided:
    """Labels and probabilities of the test rows."""

    labels: NDArray[Any]
    proba: NDArray[np.float64]


Method = Callable[[Part], Decided]


def _network(recipe: Recipe | None = None) -> Method:
    def fit(part: Part) -> Decided:
        shorter: dict[str, Any] = {} if part.max_epochs is None else {"max_epochs": part.max_epochs, "min_updates": 0}
        folds: Any = "auto"
        if part.groups is not None:
            folds = min(5, len(np.unique(part.groups)))
        model = MetricClassifier(
            part.metric,
            recipe=(recipe or Recipe()).with_parts(shorter),
            baseline=False,
            cv=folds,
            verbose=False,
            random_state=part.seed,
        )
        target = pd.DataFrame(part.y, columns=part.classes) if part.y.ndim == 2 else part.y
        model.fit(part.X, target, part.weight, part.groups)
        return Decided(model.predict(part.X_test), _in_order(model.predict_raw_proba(part.X_test), model, part.classes))

    return fit


def _trees(build: Callable[[int], Any], *, tuned: bool) -> Method:
    def fit(part: Part) -> Decided:
        features = TablePreprocessor(numeric="standard", random_state=part.seed)
        X = features.fit_transform(part.X, part.y)
        labels = part.classes.tolist()
        codes = part.y if part.y.ndim == 2 else np.searchsorted(part.classes, part.y)

        def probabilities(train: Any, X_test: Any) -> NDArray[np.float64]:
            weight = None if part.weight is None else part.weight[train]
            if codes.ndim == 1:
                return _probabilities(build(part.seed), X[train], codes[train], weight, X_test, len(labels))
            # Trees know one target: a model for each label.
            each = [_probabilities(build(part.seed), X[train], c[train], weight, X_test, 2) for c in codes.T]
            return np.column_stack([proba[:, 1] for proba in each])

        proba = probabilities(slice(None), features.transform(part.X_test))
        rule = argmax_rule(part.y, tuple(labels))
        if tuned and not part.metric.judges_scores:
            held = np.zeros((len(X), len(part.classes)))
            random = np.random.default_rng(part.seed)
            folds = 5 if part.groups is None else max(2, min(5, len(pd.unique(part.groups))))
            for split in split_rows(codes, folds, members=1, groups=part.groups, random=random):
                held[split.validation] = probabilities(split.train, X[split.validation])
            # Where no rule can be tuned or meets the constraints it stays arg max, as the network's does.
            with suppress(InfeasibleError, UntunableError):
                rule = best_rule(part.y, held, part.metric, labels=labels, sample_weight=part.weight).rule
        return Decided(rule.apply(proba), proba)

    return fit


def _probabilities(
    model: Any, X: Any, codes: NDArray[Any], weight: NDArray[Any] | None, X_test: Any, size: int
) -> NDArray[np.float64]:
    """Probabilities of all classes from a model that may have seen only some of them, coded 0, 1, …."""
    seen, dense = np.unique(codes, return_inverse=True)
    proba = np.zeros((len(X_test), size))
    if len(seen) == 1:
        proba[:, seen[0]] = 1.0
        return proba
    model.fit(X, dense, sample_weight=weight)
    proba[:, seen] = model.predict_proba(X_test)
    return np.asarray(proba / proba.sum(axis=1, keepdims=True))


def _in_order(proba: NDArray[np.float64], model: Any, classes: NDArray[Any]) -> NDArray[np.float64]:
    if len(model.classes_) == len(classes):
        return proba
    everything = np.zeros((len(proba), len(classes)))
    everything[:, np.searchsorted(classes, model.classes_)] = proba
    return everything


def _forest(seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(300, min_samples_leaf=2, random_state=seed, n_jobs=1)


def _boosting(seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(random_state=seed)


def _xgboost(seed: int) -> Any:
    from xgboost import XGBClassifier

    return XGBClassifier(n_estimators=300, learning_rate=0.1, random_state=seed, n_jobs=1, verbosity=0)


def _lightgbm(seed: int) -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(n_estimators=300, learning_rate=0.1, random_state=seed, n_jobs=1, verbose=-1)


METHODS: dict[str, tuple[str, Method]] = {
    "metricfit": ("", _network()),
    "metricfit-tuned": ("", _network(Recipe(rule="tuned"))),
    "east": ("", _network(Recipe("east"))),
    "cross-entropy": ("", _network(Recipe("log_loss"))),
    "cross-entropy-weighted": ("", _network(Recipe("log_loss", balance="full"))),
    "cross-entropy-tuned": ("", _network(Recipe("log_loss", rule="tuned"))),
    "random-forest": ("", _trees(_forest, tuned=False)),
    "random-forest-tuned": ("", _trees(_forest, tuned=True)),
    "boosting": ("", _trees(_boosting, tuned=False)),
    "boosting-tuned": ("", _trees(_boosting, tuned=True)),
    "xgboost": ("xgboost", _trees(_xgboost, tuned=False)),
    "xgboost-tuned": ("xgboost", _trees(_xgboost, tuned=True)),
    "lightgbm": ("lightgbm", _trees(_lightgbm, tuned=False)),
    "lightgbm-tuned": ("lightgbm", _trees(_lightgbm, tuned=True)),
}
"""Each method with the package it needs, if any."""


def available_methods() -> list[str]:
    """The names of the methods whose packages are installed."""
    return [name for name, (package, _) in METHODS.items() if not package or find_spec(package) is not None]
