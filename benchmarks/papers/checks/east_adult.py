"""Does the scaling of adult's integer codes explain EAST's numbers on adult?

``python -m benchmarks.papers.checks.east_adult`` writes what a limit on the capital gain alone reaches to
capital_gain.csv beside itself, then trains EAST's network on three splits with features that are left as they are,
share one mean and one spread, are brought to rows of length 1 or to [0, 1] (standardised ones are in the tables) and
prints test scores at the arg max. A learning rate may follow, instead of the protocol's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from benchmarks.papers import data, losses, networks
from benchmarks.papers.checks.adult_networks import to_unit
from benchmarks.papers.config import protocol
from benchmarks.papers.training import Settings, outputs, train

TRIALS = 3
LIMITS_FILE = Path(__file__).with_name("capital_gain.csv")
LIMITS = (5_000, 7_000, 8_000, 10_000, 13_000, 15_000, 20_000)
GAIN = 9
"""The column of the capital gain, without fnlwgt."""


def main(rates: list[str]) -> None:
    torch.set_num_threads(1)
    how = protocol("east-tabular").of_dataset("adult")
    rate = float(rates[0]) if rates else how.learning_rate
    problem = data.load("adult", encoding="integer")
    rules = [{"capital gain": limit} | scores(problem.y, problem.X[:, GAIN] >= limit) for limit in LIMITS]
    pd.DataFrame(rules).round(5).to_csv(LIMITS_FILE, index=False)
    scalings = {
        "as they are": lambda parts: parts, "one mean and spread": to_one_spread, "rows of length 1": to_unit_rows,
        "0 to 1": to_unit,
    }  # fmt: skip
    rows = []
    for scaling, scaled in scalings.items():
        for name in ("ce", "f1", "accuracy", "mcc"):
            built = losses.build(
                name, approximation="annealed", n_classes=2, prior=float(problem.prior[1]), single_output=False,
                temperature=how.temperature, delta=how.delta, k=how.k, weighted=False,
            )  # fmt: skip
            settings = Settings(
                how.optimiser, rate, how.batch_size, how.patience, how.max_epochs,
                factor=0.8 if built.annealed else None, fruitless=how.fruitless,
            )  # fmt: skip
            for trial in range(TRIALS):
                parts = scaled(data.split(problem, how.fractions, seed=trial, scale=False))
                shape = tuple(parts.train[0].shape[1:])
                make = partial(networks.build, how.network, shape, built.n_outputs, dropout=how.dropout)
                fit = train(make, built.loss, parts.train, parts.validation, settings, seed=trial)
                called, y = outputs(fit.network, parts.test[0]).argmax(1).numpy(), parts.test[1].numpy()
                rows.append({"features": scaling, "loss": name} | scores(y, called) | {"epochs": fit.epochs})
                print(rows[-1], flush=True)
    table = pd.DataFrame(rows).groupby(["features", "loss"]).agg(["mean", "std"])
    table.columns = [" ".join(column) for column in table.columns]
    print(table.round(3).to_string())


def to_one_spread(parts: data.Parts) -> data.Parts:
    """All features less one mean, divided by one standard deviation."""
    mean, spread = parts.train[0].mean(), parts.train[0].std()
    return _with_features(parts, lambda X: (X - mean) / spread)


def to_unit_rows(parts: data.Parts) -> data.Parts:
    """Each row divided by its length."""
    return _with_features(parts, torch.nn.functional.normalize)


def _with_features(parts: data.Parts, made: Callable[[torch.Tensor], torch.Tensor]) -> data.Parts:
    names = ("train", "validation", "test")
    return replace(parts, **{name: (made(getattr(parts, name)[0]), getattr(parts, name)[1]) for name in names})


def scores(y: np.ndarray, called: np.ndarray) -> dict[str, float]:
    """F1, accuracy and MCC."""
    return {
        "F1": f1_score(y, called, zero_division=0.0),
        "accuracy": accuracy_score(y, called),
        "MCC": matthews_corrcoef(y, called),
    }


if __name__ == "__main__":
    main(sys.argv[1:])
