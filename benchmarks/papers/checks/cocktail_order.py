"""Why is every method better on cocktail party here than in EAST's tables?

``python -m benchmarks.papers.checks.cocktail_order`` trains a random forest, logistic regression and EAST's network by
cross-entropy on five splits, as in the tables and with one thing changed at a time: the four other people in a random
order, the pairs of one moment all in one part, both, blocks of ten moments, a quarter of the training rows, half of the
features. It appends to cocktail_order.csv beside itself; what is there is not computed again. ``--models`` says which.
"""

from __future__ import annotations

import argparse
import csv
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.papers import data, networks
from benchmarks.papers.config import protocol
from benchmarks.papers.training import Settings, outputs, train

FILE = Path(__file__).with_suffix(".csv")
COLUMNS = ["data", "model", "trial", "macro_f1", "f1", "accuracy"]
TRIALS = 5
OTHERS = slice(6, 22)
"""Columns of the four other people, four of each."""

PAIRS = 15
"""Pairs of six people: rows of one moment, which follow each other."""


KINDS = (
    "as in the tables", "random order", "by moment", "random order, by moment", "ten moments", "a quarter of the rows",
    "half of the features",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    models = parser.parse_args().models
    torch.set_num_threads(1)
    done = pd.read_csv(FILE) if FILE.exists() else pd.DataFrame(columns=COLUMNS)
    there = set(zip(done["data"], done["model"], done["trial"], strict=True))
    problem = data.load("cocktail_party")
    X, y = np.asarray(problem.X, dtype=np.float32), np.asarray(problem.y)
    for kind, trial in product(KINDS, range(TRIALS)):
        random = np.random.default_rng(trial)
        features = shuffled_others(X, random) if "random order" in kind else X
        features = features[:, : X.shape[1] // 2] if kind == "half of the features" else features
        together = 10 * PAIRS if "ten moments" in kind else PAIRS if "by moment" in kind else 1
        parts = split(len(y), together, random)
        if kind == "a quarter of the rows":
            parts[0] = random.permutation(parts[0])[: len(parts[0]) // 4]
        for model in models:
            if (kind, model, trial) in there:
                continue
            called, truth = MODELS[model](features, y, parts, trial), y[parts[2]]
            scores = (f1_score(truth, called, average="macro"), f1_score(truth, called), accuracy_score(truth, called))
            with FILE.open("a", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                if file.tell() == 0:
                    writer.writerow(COLUMNS)
                writer.writerow([kind, model, trial, *(round(float(score), 5) for score in scores)])
    table = pd.read_csv(FILE).groupby(["data", "model"], sort=False)[COLUMNS[3:]].agg(["mean", "std"])
    print(table.round(3).to_string())


def shuffled_others(X: NDArray[np.float32], random: np.random.Generator) -> NDArray[np.float32]:
    """The four other people of each row in an order of its own."""
    people, made = X[:, OTHERS].reshape(len(X), 4, 4), X.copy()
    order = random.permuted(np.arange(4)[None].repeat(len(X), axis=0), axis=1)
    made[:, OTHERS] = np.take_along_axis(people, order[:, :, None], axis=1).reshape(len(X), 16)
    return made


def split(rows: int, together: int, random: np.random.Generator) -> list[NDArray[np.intp]]:
    """Rows of the training, validation and test parts; so many neighbours stay together."""
    blocks = random.permutation(rows // together)
    ends = (np.cumsum(protocol("east-tabular").fractions) * len(blocks)).round().astype(int)
    parts = np.split(blocks, ends[:-1])
    return [np.flatnonzero(np.isin(np.arange(rows) // together, part)) for part in parts]


def forest(X: NDArray[np.float32], y: NDArray[np.intp], parts: list[NDArray[np.intp]], seed: int) -> NDArray[np.intp]:
    train, _, test = parts
    return RandomForestClassifier(random_state=seed).fit(X[train], y[train]).predict(X[test])


def logistic(X: NDArray[np.float32], y: NDArray[np.intp], parts: list[NDArray[np.intp]], seed: int) -> NDArray[np.intp]:
    train, _, test = parts
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    return model.fit(X[train], y[train]).predict(X[test])


def network(X: NDArray[np.float32], y: NDArray[np.intp], parts: list[NDArray[np.intp]], seed: int) -> NDArray[np.intp]:
    how = protocol("east-tabular")
    mean, deviation = X[parts[0]].mean(axis=0), X[parts[0]].std(axis=0)
    tensors = [(torch.from_numpy((X[p] - mean) / deviation), torch.from_numpy(y[p]).long()) for p in parts]
    make = partial(networks.build, how.network, (X.shape[1],), 2, dropout=how.dropout)
    settings = Settings(how.optimiser, how.learning_rate, how.batch_size, how.patience, how.max_epochs)
    fit = train(make, torch.nn.CrossEntropyLoss(), tensors[0], tensors[1], settings, seed=seed)
    return outputs(fit.network, tensors[2][0]).argmax(1).numpy()


MODELS = {"random forest": forest, "logistic regression": logistic, "cross-entropy": network}

if __name__ == "__main__":
    main()
