"""The candidates: each is fitted on the same folds and gives out-of-fold and test probabilities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import OrdinalEncoder

from metricfit import MetricClassifier, Recipe
from metricfit.data import TablePreprocessor

__all__ = ["FITS", "Problem", "Scores"]

Array = NDArray[np.float64]
Fold = tuple[NDArray[np.intp], NDArray[np.intp]]


@dataclass(frozen=True, eq=False)
class Problem:
    """One training part with its folds, and the test rows.

    Attributes:
        X: Training rows.
        y: Their class codes 0, 1, …
        X_test: Test rows.
        classes: How many classes there are.
        folds: Pairs of training and held-out rows.
        seed: Of everything random.
    """

    X: pd.DataFrame
    y: NDArray[np.intp]
    X_test: pd.DataFrame
    classes: int
    folds: list[Fold]
    seed: int


Scores = dict[str, tuple[Array, Array]]
"""Out-of-fold (n, classes) and test probabilities (m, classes) by the name of the member."""


def _aligned(proba: Array, seen: NDArray[Any], classes: int) -> Array:
    """Columns for all classes, also those that a fold lacked."""
    wide = np.zeros((len(proba), classes))
    wide[:, np.asarray(seen, dtype=int)] = proba
    return wide


class _Collector:
    """Adds up what the models of the folds say."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.scores = problem, {}

    def add(self, name: str, fold: Fold, held_out: Array, test: Array, seen: NDArray[Any]) -> None:
        problem = self.problem
        if name not in self.scores:
            shapes = (len(problem.y), problem.classes), (len(problem.X_test), problem.classes)
            self.scores[name] = np.zeros(shapes[0]), np.zeros(shapes[1])
        self.scores[name][0][fold[1]] += _aligned(held_out, seen, problem.classes)
        self.scores[name][1][:] += _aligned(test, seen, problem.classes) / len(problem.folds)


def coded(problem: Problem) -> tuple[Array, Array, list[int]]:
    """Categories as integer codes, gaps and unseen ones as NaN; the positions of the categories."""
    X = problem.X
    words = [column for column in X if X[column].dtype.kind not in "biuf"]
    train, test = X.copy(), problem.X_test.copy()
    if words:
        encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan, encoded_missing_value=np.nan)
        train[words] = encoder.fit_transform(X[words].astype(object))
        test[words] = encoder.transform(problem.X_test[words].astype(object))
    positions = [X.columns.get_loc(column) for column in words]
    return train.to_numpy(np.float64), test.to_numpy(np.float64), positions


def dense(problem: Problem, **options: Any) -> tuple[Array, Array]:
    """What the networks get."""
    preprocessor = TablePreprocessor(random_state=problem.seed, **options)
    return preprocessor.fit_transform(problem.X, problem.y), preprocessor.transform(problem.X_test)


class PiecewiseLinear(TransformerMixin, BaseEstimator):
    """What the networks get, and numbers once more by a piecewise-linear encoding (Gorishniy et al. 2022).

    With bins between quantiles, feature k is 0 below bin k, 1 above it, and rises linearly inside.
    """

    def __init__(self, bins: int = 12, random_state: int = 0) -> None:
        self.bins, self.random_state = bins, random_state

    def fit(self, X: pd.DataFrame, y: Any = None) -> PiecewiseLinear:
        self.fit_transform(X, y)
        return self

    def fit_transform(self, X: pd.DataFrame, y: Any = None) -> NDArray[np.float32]:
        self.plain_ = TablePreprocessor(random_state=self.random_state)
        plain = self.plain_.fit_transform(X, y)
        self.edges_ = {}
        for column in X:
            if X[column].dtype.kind in "biuf":
                edges = np.unique(np.nanquantile(X[column].to_numpy(np.float64), np.linspace(0, 1, self.bins + 1)))
                if len(edges) > 3:
                    self.edges_[column] = edges
        self.n_features_in_ = X.shape[1]
        return self._with_pieces(plain, X)

    def transform(self, X: pd.DataFrame) -> NDArray[np.float32]:
        return self._with_pieces(self.plain_.transform(X), X)

    def _with_pieces(self, plain: NDArray[np.float32], X: pd.DataFrame) -> NDArray[np.float32]:
        parts = [plain]
        for column, edges in self.edges_.items():
            values = X[column].to_numpy(np.float64)
            values = np.where(np.isnan(values), edges[len(edges) // 2], values)[:, None]
            parts.append(((values - edges[:-1]) / np.diff(edges)).clip(0, 1).astype(np.float32) - 0.5)
        return np.ascontiguousarray(np.concatenate(parts, axis=1), dtype=np.float32)


def network(problem: Problem, *, name: str, metric: str, recipe: Recipe, pieces: int = 0, members: int = 1) -> Scores:
    model = MetricClassifier(
        metric, recipe=recipe.with_parts({"members": members}), cv=problem.folds, baseline=False, verbose=False,
        random_state=problem.seed, device="cpu",
        preprocess=PiecewiseLinear(pieces, problem.seed) if pieces else "auto",
    )  # fmt: skip
    model.fit(problem.X, problem.y)
    held = model.held_out_
    order = np.argsort(held.rows)
    if not np.array_equal(held.rows[order], np.arange(len(problem.y))):
        raise ValueError("folds: every row must be held out once.")
    return {name: (held.proba[order].astype(np.float64), model.predict_proba(problem.X_test, raw=True))}


TREES = {"forest": RandomForestClassifier, "extra_trees": ExtraTreesClassifier}


def trees(
    problem: Problem, *, kind: str, leaf: int = 1, counts: tuple[int, ...] = (100,), made: str = "codes", **options: Any
) -> Scores:
    """So many trees, and the first ones of them."""
    X, X_test = coded(problem)[:2] if made == "codes" else dense(problem, numeric="standard")
    collector = _Collector(problem)
    suffix = "" if made == "codes" else "_onehot"
    suffix += "".join(f"_{key}{value}" for key, value in options.items())
    for number, fold in enumerate(problem.folds):
        seed = problem.seed * 100 + number
        model = TREES[kind](max(counts), min_samples_leaf=leaf, random_state=seed, n_jobs=1, **options)
        model.fit(X[fold[0]], problem.y[fold[0]])
        rows = np.asarray(np.vstack([X[fold[1]], X_test]), dtype=np.float32)
        for count in counts:
            proba = np.mean([tree.predict_proba(rows) for tree in model.estimators_[:count]], axis=0)
            held = len(fold[1])
            collector.add(f"{kind}_{leaf}_{count}{suffix}", fold, proba[:held], proba[held:], model.classes_)
    return collector.scores


def boosting(problem: Problem, *, name: str, inner: bool = False, **options: Any) -> Scores:
    """HistGradientBoosting, stopped by log-loss on its fold, or on an inner part of its training rows.

    ``<name>`` goes back to the best iteration, ``<name>_last`` keeps the ten after it, as scikit-learn does.
    """
    X, X_test, categories = coded(problem)
    many = [place for place in categories if np.nanmax(X[:, place], initial=0) >= 255]
    categories = [place for place in categories if place not in many]
    options = {"learning_rate": 0.1, "max_iter": 500, "n_iter_no_change": 10} | options
    collector = _Collector(problem)
    for number, (train, held) in enumerate(problem.folds):
        seed = problem.seed * 100 + number
        stop = held
        if inner:
            counts = np.bincount(problem.y[train])
            stratify = problem.y[train] if counts[counts > 0].min() >= 2 else None
            train, stop = train_test_split(train, test_size=0.15, stratify=stratify, random_state=seed)
        model = HistGradientBoostingClassifier(
            categorical_features=categories or None, early_stopping=True, tol=0.0, random_state=seed, **options
        )
        known = np.isin(problem.y[stop], problem.y[train])
        model.fit(X[train], problem.y[train], X_val=X[stop][known], y_val=problem.y[stop][known])
        best = int(np.argmax(model.validation_score_))  # the place 0 is the model before its first tree
        rows = np.vstack([X[held], X_test])
        stages = model.staged_predict_proba(rows)
        kept = last = None
        for stage, last in enumerate(stages, start=1):
            if stage == max(best, 1):
                kept = last.copy()
        for label, proba in ((name, kept), (f"{name}_last", last)):
            collector.add(label, (train, held), proba[: len(held)], proba[len(held) :], model.classes_)
    return collector.scores


def linear(problem: Problem, *, name: str, C: float) -> Scores:
    X, X_test = dense(problem)
    collector = _Collector(problem)
    for fold in problem.folds:
        model = LogisticRegression(C=C, max_iter=300).fit(X[fold[0]], problem.y[fold[0]])
        collector.add(name, fold, model.predict_proba(X[fold[1]]), model.predict_proba(X_test), model.classes_)
    return collector.scores


METRICS = ("f1", "mcc", "balanced_accuracy")


def _network(
    name: str, metric: str = "f1", recipe: str = "default", pieces: int = 0, members: int = 1, **parts: Any
) -> Callable[[Problem], Scores]:
    return partial(network, name=name, metric=metric, recipe=Recipe(recipe, **parts), pieces=pieces, members=members)


FITS: dict[str, Callable[[Problem], Scores]] = {
    "forest_1": partial(trees, kind="forest"),
    "extra_trees_1": partial(trees, kind="extra_trees"),
    "boosting": partial(boosting, name="boosting"),
    "logistic": partial(linear, name="logistic", C=1.0),
    "network_ce": _network("network_ce", recipe="log_loss"),
    **{f"network_{metric}": _network(f"network_{metric}", metric) for metric in METRICS},
    "forest_2": partial(trees, kind="forest", leaf=2),
    "extra_trees_2": partial(trees, kind="extra_trees", leaf=2),
    "forest_3": partial(trees, kind="forest", leaf=3),
    "extra_trees_3": partial(trees, kind="extra_trees", leaf=3),
    "forest_300": partial(trees, kind="forest", counts=(300,)),
    "extra_trees_300": partial(trees, kind="extra_trees", counts=(300,)),
    "forest_onehot": partial(trees, kind="forest", made="onehot"),
    "extra_trees_onehot": partial(trees, kind="extra_trees", made="onehot"),
    "forest_half": partial(trees, kind="forest", max_features=0.5),
    "extra_trees_half": partial(trees, kind="extra_trees", max_features=0.5),
    "boosting_inner": partial(boosting, name="boosting_inner", inner=True),
    "boosting_leaf5": partial(boosting, name="boosting_leaf5", min_samples_leaf=5),
    "boosting_slow": partial(
        boosting, name="boosting_slow", min_samples_leaf=5, max_leaf_nodes=15, learning_rate=0.05, max_features=0.5,
        n_iter_no_change=20,
    ),
    "network_ce_200": _network("network_ce_200", recipe="log_loss", min_updates=200, max_epochs=20, checkpoints=20),
    "network_ce_100": _network("network_ce_100", recipe="log_loss", min_updates=100, max_epochs=10, checkpoints=10),
    "network_ce_ple": _network("network_ce_ple", recipe="log_loss", pieces=12),
    "network_ce_ple_200": _network(
        "network_ce_ple_200", recipe="log_loss", pieces=12, min_updates=200, max_epochs=20, checkpoints=20
    ),
    **{f"network_ple_{metric}": _network(f"network_ple_{metric}", metric, pieces=12) for metric in METRICS},
    **{
        f"network_200_{metric}": _network(
            f"network_200_{metric}", metric, min_updates=200, max_epochs=20, checkpoints=20
        )
        for metric in METRICS
    },
    "network_ce_wide": _network("network_ce_wide", recipe="log_loss", hidden_sizes=(256, 256), dropout=0.25),
    "network_ce_200x3": _network(
        "network_ce_200x3", recipe="log_loss", members=3, min_updates=200, max_epochs=20, checkpoints=20
    ),
    **{
        f"network_200x3_{metric}": _network(
            f"network_200x3_{metric}", metric, members=3, min_updates=200, max_epochs=20, checkpoints=20
        )
        for metric in METRICS
    },
    "logistic_weak": partial(linear, name="logistic_weak", C=0.1),
}  # fmt: skip
"""What can be fitted, the most wanted first."""

CORE = tuple(FITS)[:8]
