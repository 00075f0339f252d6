"""What a fit costs: beside the same loop with cross-entropy, beside scikit-learn's MLPClassifier, and in memory.

``python -m benchmarks.speed.fit`` writes ``fit.csv`` beside it. All times are processor times of one thread, medians
of interleaved repetitions with their quartiles, so that other work on the machine matters little; only their ratios are
kept. Data: adult (OpenML, or ``METRICFIT_DATA``); a million rows of random numbers for the memory.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

from benchmarks.data import load
from metricfit import MetricClassifier, metrics
from metricfit.data import TablePreprocessor
from metricfit.training import Folds, Recipe, Table, Trainer
from metricfit.training.rows import split_rows

RESULTS = Path(__file__).parent / "fit.csv"
EPOCHS = 20
"""Usual for such a table, and enough that what a fit does once is seen for what it is."""


def _times(jobs: Sequence[Callable[[], Any]], repetitions: int) -> NDArray[np.float64]:
    """Processor times (repetitions, jobs), in turn."""
    times = np.empty((repetitions, len(jobs)))
    for r in range(repetitions):
        for j, job in enumerate(jobs):
            started = time.process_time()
            job()
            times[r, j] = time.process_time() - started
    return times


def _row(what: str, ratios: NDArray[np.float64]) -> dict[str, Any]:
    low, median, high = np.quantile(ratios, [0.25, 0.5, 0.75]).round(3)
    row = {"what": what, "median": median, "lower_quartile": low, "upper_quartile": high, "repetitions": len(ratios)}
    print(row, file=sys.stderr, flush=True)
    return row


def epochs(X: NDArray[np.float32], y: NDArray[np.int64], repetitions: int) -> list[dict[str, Any]]:
    """Epochs on a metric over those on cross-entropy, validation included."""
    weight = np.ones(len(y), dtype=np.float32)
    rows = []
    for members in (5, 1):
        number = members if members > 1 else None
        splits = split_rows(y, number, groups=None, random=np.random.default_rng(0))
        trainers = []
        for recipe, metric in (("log_loss", "f1"), ("default", "f1"), ("default", "mcc")):
            known = (splits, metrics.get(metric), "binary", (0, 1), 0)
            folds = Folds(Table.of_numbers(X), y, weight, weight, *known)
            trainers.append(Trainer(folds, Recipe(recipe).complete()))
        _times([trainer.epoch for trainer in trainers], 1)
        times = _times([trainer.epoch for trainer in trainers], repetitions)
        for j, metric in ((1, "f1"), (2, "mcc")):
            rows.append(
                _row(f"an epoch on {metric} / on cross-entropy, networks: {members}", times[:, j] / times[:, 0])
            )
    return rows


def fits(X: NDArray[np.float32], y: NDArray[np.int64], repetitions: int) -> list[dict[str, Any]]:
    """Fits of scikit-learn's MLPClassifier over ours, for as many rows and epochs.

    Each of our networks trains on four fifths of the rows and is validated every epoch on the others. So does
    MLPClassifier with ``early_stopping=True``, here without ever stopping; plain, it trains on all rows and validates
    nothing, and four fifths of its time are compared.
    """
    rows = []
    tables = {"float32": X, "float64": X.astype(np.float64)}
    for hidden in ((128, 64), (32, 16)):
        for batch in (512, 200):
            recipe = Recipe(hidden_sizes=hidden, batch_size=batch, dropout=0.0, max_epochs=EPOCHS, min_updates=0)
            common = {
                "recipe": recipe,
                "models": "network",
                "preprocess": None,
                "baseline": False,
                "verbose": False,
                "random_state": 0,
                "device": "cpu",
            }
            five, one = (MetricClassifier("f1", cv=cv, **common) for cv in (5, None))
            usual = {"batch_size": batch, "max_iter": EPOCHS, "n_iter_no_change": EPOCHS, "random_state": 0}
            plain = MLPClassifier(hidden, **usual)
            validated = MLPClassifier(hidden, early_stopping=True, validation_fraction=0.2, **usual)
            theirs = [(f"{kind}, plain", 0.8, partial(plain.fit, table, y)) for kind, table in tables.items()]
            theirs += [(f"{kind}, validated", 1.0, partial(validated.fit, table, y)) for kind, table in tables.items()]
            times = _times([partial(five.fit, X, y), partial(one.fit, X, y), *(job for *_, job in theirs)], repetitions)
            for j, (kind, share, _) in enumerate(theirs, start=2):
                name = f"MLPClassifier {hidden} ({kind}), batch {batch} / "
                rows.append(_row(name + "a network of five trained together", 5 * share * times[:, j] / times[:, 0]))
                rows.append(_row(name + "one network", share * times[:, j] / times[:, 1]))
    return rows


def memory() -> list[dict[str, Any]]:
    """Peak of a fit on a million rows of 50 float32 columns, in a process of its own.

    Once with numba and the compiled loops loaded before, by a small fit of many steps, and once not.
    """
    code = """
import resource, sys, numpy as np, torch, warnings
warnings.simplefilter("ignore"); torch.set_num_threads(1)
from metricfit import MetricClassifier, Recipe
r = np.random.default_rng(0)
X = r.standard_normal((1_000_000, 50), dtype=np.float32); y = (X[:, 0] + r.standard_normal(1_000_000) > 1.5).astype(int)
usual = dict(models="network", baseline=False, verbose=False, device="cpu")
many = Recipe(max_epochs=100, min_updates=1200, batch_size=16)
few = Recipe(max_epochs=1, max_updates=5)
MetricClassifier("f1", recipe=many if sys.argv[1] == "loaded" else few, cv=None, **usual).fit(X[:5000], y[:5000])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
MetricClassifier("f1", recipe=Recipe(max_epochs=1, min_updates=0), **usual).fit(X, y)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / X.nbytes)
"""
    rows = []
    for state, what in (("loaded", " and numba"), ("fresh", ", numba included")):
        run = [sys.executable, "-c", code, state]
        value = round(float(subprocess.run(run, capture_output=True, text=True, check=True).stdout), 2)
        rows.append({
            "what": f"peak of fit on 1,000,000 x 50 float32, beyond X itself{what}, in sizes of X", "median": value,
            "lower_quartile": value, "upper_quartile": value, "repetitions": 1,
        })  # fmt: skip
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        threadpool_limits(1, user_api="blas")
        data = load("adult")
        _, y = np.unique(np.asarray(data.y), return_inverse=True)
        X = np.ascontiguousarray(TablePreprocessor(random_state=0).fit_transform(data.X, y))
        rows = epochs(X, y, 2 * options.repetitions) + fits(X, y, options.repetitions) + memory()
    pd.DataFrame(rows).to_csv(RESULTS, index=False)
    print(pd.DataFrame(rows).to_string(index=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
