"""What is fitted: each fit gives probabilities of the held-out rows of five folds and, as their mean, of the test rows.

The folds are those of ``MetricClassifier`` with the split's number as its seed. Its own models are fitted by it, one at
a time, which gives the bits that they have in its portfolio; only the network trained on the metric differs between
metrics.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from benchmarks.suite.tables import CACHE, load_table, splits
from metricfit import MetricClassifier
from metricfit.training.rows import FOLDS, Split, split_rows

__all__ = ["FITS", "METRICS", "Part", "Prediction", "part"]

METRICS = ("f1", "mcc", "balanced_accuracy")
"""``f1`` is the positive class's with two classes and the macro average with more."""

ROUNDS, PATIENCE = 1000, 50
"""Boosting adds trees until so many in a row have not improved the log-loss of the held-out fold."""

AUTOGLUON_SECONDS = 60
"""What AutoGluon is given for each metric, on one core."""

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Part:
    """Training and test rows of one split; the seed is the split's number."""

    X_train: pd.DataFrame
    y_train: NDArray[np.intp]
    X_test: pd.DataFrame
    y_test: NDArray[np.intp]
    seed: int

    @property
    def labels(self) -> tuple[int, ...]:
        return tuple(range(int(self.y_train.max()) + 1))

    @property
    def folds(self) -> list[Split]:
        """The folds that ``MetricClassifier(random_state=seed)`` makes."""
        return split_rows(self.y_train, FOLDS, groups=None, random=np.random.default_rng(self.seed))


def part(name: str, split: int) -> Part:
    """Split number ``split`` of a table."""
    X, y = load_table(name)
    train, test = splits(name)[split]
    frames = (X.iloc[rows].reset_index(drop=True) for rows in (train, test))
    X_train, X_test = frames
    return Part(X_train, y[train], X_test, y[test], split)


@dataclass(frozen=True, eq=False)
class Prediction:
    """What a fit knows.

    Attributes:
        test: Probabilities of the test rows (m, classes).
        held_out: Those of the training rows, fold after fold, by models that were not trained on them (n, classes);
            empty where the fit decides by itself.
        decided: Classes of the test rows, where the fit decides by itself.
        cpu_seconds: Processor time of fit and predictions.
    """

    test: Array
    held_out: Array
    decided: NDArray[np.intp] | None = None
    cpu_seconds: float = 0.0


class _Models(MetricClassifier):
    """A ``MetricClassifier`` that keeps what its models said instead of choosing weights and a rule."""

    def _keep(self, folds: Any, begun: Any, fitted: Any, asked: Any) -> None:
        self.n_network_inputs_, self.fitted_ = folds.table.dense.shape[1], fitted

    def probabilities(self, X: pd.DataFrame) -> tuple[Array, Array]:
        """Held out, and of new rows."""
        return np.concatenate(self.fitted_[0].held_out), self.fitted_[0].predict(self._table(X))


def _own(part: Part, model: Any, metric: str = "f1") -> tuple[Array, Array]:
    """One of ``MetricClassifier``'s models, or a classifier that it is given."""
    fit = _Models(metric, models=[model], baseline=False, verbose=False, device="cpu", n_jobs=1, random_state=part.seed)
    return fit.fit(part.X_train, part.y_train).probabilities(part.X_test)


Fold = tuple[pd.DataFrame, NDArray[np.intp], pd.DataFrame, NDArray[np.intp]]
"""Training rows and their classes, held-out rows and theirs."""


def _folded(part: Part, fit: Callable[[Fold, int], Any]) -> tuple[Array, Array]:
    """Five models; classes that a fold lacks get the probability 0."""
    held_out, test = [], np.zeros((len(part.X_test), len(part.labels)))
    for split in part.folds:
        y, y_held = part.y_train[split.train], part.y_train[split.validation]
        X, X_held = (part.X_train.iloc[rows] for rows in (split.train, split.validation))
        seen = np.unique(y)
        stop = np.isin(y_held, seen)
        codes, held_codes = np.searchsorted(seen, y), np.searchsorted(seen, y_held[stop])
        model = fit((X, codes, X_held[stop], held_codes), part.seed)
        spread = np.zeros((len(X_held), len(part.labels)))
        spread[:, seen] = model.predict_proba(X_held)
        held_out.append(spread)
        test[:, seen] += model.predict_proba(part.X_test) / FOLDS
    return np.concatenate(held_out), test


def _categories(X: pd.DataFrame) -> list[str]:
    return [column for column in X if X[column].dtype.kind not in "biuf"]


class _Words:
    """CatBoost, whose categories are words and whose gaps among them are one more."""

    def __init__(self, model: Any) -> None:
        self.model = model

    @staticmethod
    def frame(X: pd.DataFrame) -> pd.DataFrame:
        words = {column: X[column].astype(object).where(X[column].notna(), "missing") for column in _categories(X)}
        return X.assign(**words)

    def predict_proba(self, X: pd.DataFrame) -> Array:
        return np.asarray(self.model.predict_proba(self.frame(X)))


def _catboost(fold: Fold, seed: int) -> _Words:
    from catboost import CatBoostClassifier

    X, y, X_held, y_held = fold
    model = CatBoostClassifier(
        iterations=ROUNDS, random_seed=seed, thread_count=1, allow_writing_files=False, verbose=False,
        cat_features=_categories(X) or None, early_stopping_rounds=PATIENCE,
    )  # fmt: skip
    words = _Words(model)
    model.fit(words.frame(X), y, eval_set=(words.frame(X_held), y_held))
    return words


def _lightgbm(fold: Fold, seed: int) -> Any:
    from lightgbm import LGBMClassifier, early_stopping

    X, y, X_held, y_held = fold
    # On ten tables of the half "choose", two splits each: +0.5 ± 0.5 points against leaves of 2 to 20 rows by size and
    # no sampling, +0.4 against the default leaves of 20.
    model = LGBMClassifier(
        n_estimators=ROUNDS, learning_rate=0.05, min_child_samples=5, subsample=0.8, subsample_freq=1,
        colsample_bytree=0.8, random_state=seed, n_jobs=1, verbose=-1,
    )  # fmt: skip
    return model.fit(X, y, eval_set=[(X_held, y_held)], callbacks=[early_stopping(PATIENCE, verbose=False)])


def _xgboost(fold: Fold, seed: int) -> Any:
    from xgboost import XGBClassifier

    X, y, X_held, y_held = fold
    model = XGBClassifier(
        n_estimators=ROUNDS, learning_rate=0.1, early_stopping_rounds=PATIENCE, enable_categorical=True,
        random_state=seed, n_jobs=1,
    )  # fmt: skip
    return model.fit(X, y, eval_set=[(X_held, y_held)], verbose=False)


class _Filled:
    """pytabkit's models, which take no gaps among numbers: medians fill them."""

    def __init__(self, model: Any, medians: pd.Series) -> None:
        self.model, self.medians = model, medians.to_dict()

    def frame(self, X: pd.DataFrame) -> pd.DataFrame:
        return X.fillna(self.medians) if self.medians else X

    def predict_proba(self, X: pd.DataFrame) -> Array:
        return np.asarray(self.model.predict_proba(self.frame(X)))


def _pytabkit(fold: Fold, seed: int, *, kind: str, **options: Any) -> _Filled:
    import pytabkit

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    X, y, X_held, y_held = fold
    # Stopped by log-loss, as all others: pytabkit's own default is the error rate, which suits no rule but arg max.
    options |= {"val_metric_name": "cross_entropy", "device": "cpu", "n_threads": 1, "verbosity": 0}
    model = getattr(pytabkit, f"{kind}_Classifier")(random_state=seed, **options)
    filled = _Filled(model, X.median(numeric_only=True))
    model.fit(filled.frame(X), y, filled.frame(X_held), y_held, cat_col_names=_categories(X))
    return filled


def _autogluon(part: Part, metric: str) -> Prediction:
    """AutoGluon for the metric, in the environment that ``METRICFIT_AUTOGLUON`` names; it decides by itself."""
    python = os.environ.get("METRICFIT_AUTOGLUON")
    if not python:
        raise RuntimeError("METRICFIT_AUTOGLUON: name the Python of an environment with autogluon.tabular.")
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        part.X_train.assign(target=part.y_train).to_parquet(f"{folder}/train.parquet")
        part.X_test.to_parquet(f"{folder}/test.parquet")
        request = {"metric": metric, "seconds": AUTOGLUON_SECONDS, "classes": len(part.labels)}
        Path(folder, "request.json").write_text(json.dumps(request))
        script = Path(__file__).with_name("autogluon_fit.py")
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        subprocess.run([python, str(script), folder], check=True, env=clean, cwd=folder, stdout=subprocess.DEVNULL)
        with np.load(f"{folder}/found.npz") as found:
            return Prediction(found["test"], np.empty((0, 0)), found["decided"], float(found["cpu_seconds"]))


def _timed(run: Callable[[Part], tuple[Array, Array]], part: Part) -> Prediction:
    start = time.process_time()
    held_out, test = run(part)
    return Prediction(test, held_out, None, time.process_time() - start)


def _fits() -> dict[str, Callable[[Part], Prediction]]:
    found: dict[str, Callable[[Part], tuple[Array, Array]]] = {
        name: partial(_own, model=name) for name in ("boosting", "extra_trees", "forest", "network_ce")
    }
    found |= {f"network_{metric}": partial(_own, model="network", metric=metric) for metric in METRICS}
    found["logistic"] = partial(_own, model=LogisticRegression(max_iter=300))
    found["own_catboost"] = partial(_own, model="catboost")  # as a member of the portfolio has it
    folded = {"catboost": _catboost, "lightgbm": _lightgbm, "xgboost": _xgboost}
    kinds = ("LGBM_TD", "XGB_TD", "CatBoost_TD", "TabM_D")
    folded |= {kind.lower(): partial(_pytabkit, kind=kind) for kind in kinds}
    folded["realmlp_td"] = partial(_pytabkit, kind="RealMLP_TD", use_ls=False)  # as its authors advise for log-loss
    found |= {name: partial(_folded, fit=fit) for name, fit in folded.items()}
    fits: dict[str, Callable[[Part], Prediction]] = {name: partial(_timed, run) for name, run in found.items()}
    return fits | {f"autogluon_{metric}": partial(_autogluon, metric=metric) for metric in METRICS}


FITS = _fits()
"""All fits by name; those with a metric in their name are for it alone."""
