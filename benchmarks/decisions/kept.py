"""Scores of a forest and of boosting for studies of rules: fitted once per table and split, then kept.

    METRICFIT_DATA=../shared/data METRICFIT_KEPT=cache/rules python -m benchmarks.decisions.kept --splits 10

Each unit is a table of two classes, so many training rows and a split. The package fits both models on five folds. Kept
are their probabilities of the second class for every training row (out of fold) and for test rows: of each fold's
model by itself, and of one model that was fitted on all training rows.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import train_test_split

from benchmarks.data import load
from benchmarks.portfolio.constraints import Models

LARGE: dict[str, Any] = {
    "adult": None, "mammography": None, "ann_thyroid": 2, "diabetes_prediction": None, "krkopt": 3, "letter": 18,
    "connect4": 0, "fars": 6, "cocktail_party": None, "nursery": "priority",
}  # fmt: skip
"""Tables with thousands of rows to test on, and the positive class, else the rarest one."""
SMALL = (
    "abalone9-18", "car-good", "cleveland-0_vs_4", "flare-F", "glass1", "glass2", "glass-0-1-2-3_vs_4-5-6",
    "kr-vs-k-zero_vs_eight", "poker-8-9_vs_5", "vehicle0", "vehicle1", "vehicle3", "vowel0", "winequality-red-4",
    "winequality-red-8_vs_6-7", "wisconsin",
)  # fmt: skip
"""Of KEEL's, with few rows; ``smoothed.py`` takes both."""
MEMBERS = ("forest", "boosting")
FEW, MOST_TEST_ROWS = 300, 5_000

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Unit:
    """One split of a table."""

    table: str
    rows: int
    split: int
    y: NDArray[np.int64]
    fold: NDArray[np.int64]
    y_test: NDArray[np.int64]
    held: dict[str, Array]  # (rows,)
    test: dict[str, Array]  # (folds, test rows)
    whole: dict[str, Array]  # (test rows,): one model of all training rows


def units(rows: int, splits: int) -> Iterator[Unit]:
    """The large tables with so many training rows."""
    for split in range(splits):
        for name in LARGE:
            yield unit(name, rows, split)


def unit(name: str, rows: int, split: int) -> Unit:
    """From the folder, or by fitting."""
    file = Path(os.environ["METRICFIT_KEPT"]) / f"{name.replace('/', '-')}-{rows}-{split}.npz"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part.npz")
        np.savez_compressed(part, **_fitted(name, rows, split))
        part.rename(file)
    with np.load(file) as kept:
        parts = [{m: kept[f"{kind} {m}"].astype(np.float64) for m in MEMBERS} for kind in ("held", "test", "whole")]
        return Unit(name, rows, split, kept["y"], kept["fold"], kept["y_test"], *parts)


_loaded = cache(load)


def rows_of_split(name: str, rows: int, split: int, most: int = MOST_TEST_ROWS) -> tuple[Any, Any, Any, Any]:
    """Training and test rows, then labels of both: 1 for the positive class."""
    data = _loaded(name)
    values, counts = np.unique(np.asarray(data.y).astype(str), return_counts=True)
    positive = LARGE.get(name)
    truth = (np.asarray(data.y).astype(str) == (values[counts.argmin()] if positive is None else str(positive))) * 1
    test_size = max(0.3, 1 - rows / len(truth))
    how: dict[str, Any] = {"random_state": split}
    X, X_test, y, y_test = train_test_split(data.X, truth, test_size=test_size, stratify=truth, **how)
    if len(y_test) > most:
        X_test, _, y_test, _ = train_test_split(X_test, y_test, train_size=most, stratify=y_test, **how)
    return X, X_test, y, y_test


def _fitted(name: str, rows: int, split: int) -> dict[str, Any]:
    X, X_test, y, y_test = rows_of_split(name, rows, split)
    how: dict[str, Any] = {"random_state": split}
    clf = Models("f1", models=list(MEMBERS), baseline=False, verbose=False, device="cpu", n_jobs=1, **how).fit(X, y)
    parts = [part.validation for part in clf.folds_.splits]
    found = {"y": y[np.concatenate(parts)], "y_test": y_test,
             "fold": np.repeat(np.arange(len(parts)), [len(part) for part in parts])}  # fmt: skip
    table = clf._table(X_test)
    for model in clf.fitted_:
        new = model._rows(table)
        found[f"held {model.name}"] = np.concatenate(model.held_out)[:, 1].astype(np.float32)
        found[f"test {model.name}"] = np.stack([model._of_fold(f, new)[:, 1] for f in model.fits]).astype(np.float32)
        one = clone(model.fits[0][0])
        if model.name == "boosting":
            one.set_params(early_stopping=False, max_iter=int(np.mean([f[0].n_iter_ for f in model.fits])))
        one.fit(model._rows(clf.folds_.table), y)
        found[f"whole {model.name}"] = one.predict_proba(new)[:, 1].astype(np.float32)
    return found


def main() -> None:
    """Fit what is not there."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--rows", type=int, nargs="+", default=[2000])
    options = parser.parse_args()
    for split in range(options.splits):
        for rows in options.rows:
            for name in LARGE:
                unit(name, rows, split)
        print("split", split, "done", flush=True)


if __name__ == "__main__":
    main()
