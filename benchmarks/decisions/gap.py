"""Searches that are not exact, beside all combinations: few rows of real tables, so that every one can be tried.

    METRICFIT_DATA=../shared/data python -m benchmarks.decisions.gap --draws 40

Logistic regression is fitted on other rows. Class offsets: 28 rows of three classes, every arrangement of decisions
that two free offsets can make. Cut-offs of labels: 25 rows, three classes as labels. Cut-offs of groups: 40 rows of
adult, women and men. Rows left to a person: 150 rows, every pair of cut-offs between which rows are left. All searches
have their defaults, but for the price of offsets, which is no matter of search. Writes gap.csv and gap.md beside
itself.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.data import load
from metricfit import metrics
from metricfit.confusion import ConfusionMatrix
from metricfit.decisions import (
    InfeasibleError,
    best_group_thresholds,
    best_label_thresholds,
    best_offsets,
    cautious_rule,
)

HERE = Path(__file__).parent
OFFSETS, LABELS = ("f1_macro", "mcc", "balanced_accuracy"), ("f1_micro", "jaccard_micro", "f1_weighted")
GROUPS = (
    "accuracy",
    "f1",
    "f1 subject to recall[1] >= 0.8 in sex",
    "accuracy subject to spread(recall[1]) <= 0.1 in sex",
)
COVERAGE = 0.9

Array = NDArray[Any]


@cache
def fitted(name: str, classes: int) -> tuple[Array, Array, Array]:
    """Classes, probabilities and sexes of rows that the model was not fitted on, the most frequent classes only."""
    data = load(name)
    y = np.asarray(data.y).astype(str)
    names = pd.Series(y).value_counts().index[:classes]
    rng = np.random.default_rng(0)
    rows = rng.permutation(np.flatnonzero(np.isin(y, names)))[:4000]
    X = pd.get_dummies(data.X.iloc[rows], dtype=float).fillna(0).to_numpy(float)
    codes = np.unique(y[rows], return_inverse=True)[1]
    half = len(rows) // 4
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200)).fit(X[:half], codes[:half])
    sex = data.X["sex"].astype(str).to_numpy()[rows[half:]] if name == "adult" else np.empty(0)
    return codes[half:], model.predict_proba(X[half:]), sex


def values(spec: str, cells: Array, task: Any) -> Array:
    """A metric of many confusion matrices."""
    return metrics.get(spec).compute(ConfusionMatrix(torch.from_numpy(cells.astype(float)), task)).numpy()


def between(points: Array) -> Array:
    """A number between each pair of neighbours, and one beyond each end."""
    p = np.unique(points)
    return np.concatenate([[p[0] - 1], (p[1:] + p[:-1]) / 2, [p[-1] + 1]])


def all_offsets(y: Array, p: Array, spec: str) -> float:
    """The best of all offsets of three classes."""
    logs = np.log(p)
    first, second, both = logs[:, 0] - logs[:, 1], logs[:, 0] - logs[:, 2], logs[:, 1] - logs[:, 2]
    best = -np.inf
    for a in between(np.concatenate([first, (second[:, None] - both).ravel()])):
        b = between(np.concatenate([second, a + both]))
        decided = (logs[None] + np.stack([0 * b, 0 * b + a, b], axis=1)[:, None]).argmax(axis=2)
        cells = np.zeros((len(b), 9))
        np.add.at(cells, (np.arange(len(b))[:, None], y * 3 + decided), 1)
        best = max(best, float(np.nanmax(values(spec, np.unique(cells, axis=0).reshape(-1, 3, 3), "multiclass"))))
    return best


def cells_of(y: Array, score: Array) -> Array:
    """The 2 x 2 counts at every cut-off."""
    called = score >= np.append(np.unique(score), np.inf)[:, None]
    return np.stack([(hit & seen).sum(axis=1) for hit in (y == 0, y == 1) for seen in (~called, called)], axis=1)


def drawn(rng: np.random.Generator, name: str, classes: int, n: int) -> tuple[Array, Array, Array]:
    """Some rows in which every class is there twice, and in every group."""
    y, p, sex = fitted(name, classes)
    while True:
        rows = rng.choice(len(y), n, replace=False)
        parts = [y[rows][sex[rows] == s] for s in np.unique(sex)] if len(sex) else [y[rows]]
        if all(np.bincount(part, minlength=classes).min() > 1 for part in parts):
            return y[rows], p[rows], sex[rows] if len(sex) else sex


def rows_of(draw: int) -> Iterator[dict[str, Any]]:
    """One row per search."""
    rng = np.random.default_rng(draw)
    y, p, _ = drawn(rng, ("winequality_red", "connect4", "new_thyroid", "fars")[draw % 4], 3, 28)
    for spec in OFFSETS:
        found = best_offsets(y, p, spec, regularisation=0.0, labels=range(3)).value
        yield {"search": "offsets", "spec": spec, "found": found, "best": all_offsets(y, p, spec)}
    y, p, _ = drawn(rng, ("letter", "krkopt", "shuttle", "winequality_red")[draw % 4], 3, 25)
    truth = np.eye(3, dtype=int)[y]
    each = [cells_of(truth[:, k], p[:, k]) for k in range(3)]
    every = np.stack([np.stack(some) for some in itertools.product(*each)]).reshape(-1, 3, 2, 2)
    for spec in LABELS:
        found = best_label_thresholds(truth, p, spec).value
        yield {"search": "labels", "spec": spec, "found": found, "best": np.nanmax(values(spec, every, "multilabel"))}
    y, p, sex = drawn(rng, "adult", 2, 40)
    parts = [cells_of(y[sex == s], p[sex == s, 1]) for s in np.unique(sex)]
    pairs = np.stack([np.stack(some) for some in itertools.product(*parts)]).reshape(-1, 2, 2, 2)
    recalls = pairs[:, :, 1, 1] / pairs[:, :, 1].sum(axis=2)
    for spec in GROUPS:
        metric = metrics.get(spec)
        limits = getattr(metric, "constraints", ())
        reached = recalls.min(axis=1) >= 0.8 if "recall[1] >=" in spec else np.ptp(recalls, axis=1) <= 0.1 + 1e-12
        fine = values(str(getattr(metric, "objective", metric)), pairs.sum(axis=1), "binary")[reached | (not limits)]
        found = best_group_thresholds(y, p[:, 1], spec, by="sex", columns={"sex": sex}).value
        yield {"search": "groups", "spec": spec, "found": found, "best": np.nanmax(fine)}
    y, p, _ = drawn(rng, ("adult", "connect4", "letter", "ann_thyroid")[draw % 4], 2, 150)
    at = cells_of(y, p[:, 1])  # from calling all positive to calling none
    low, high = (part.ravel() for part in np.meshgrid(np.arange(len(at)), np.arange(len(at)), indexing="ij"))
    pairs = np.stack([at[low, 0], at[high, 1], at[low, 2], at[high, 3]], axis=1)[low <= high]
    pairs = pairs[pairs.sum(axis=1) >= COVERAGE * len(y) - 1e-9].reshape(-1, 2, 2)
    for spec in ("f1", "accuracy", "mcc"):
        found = cautious_rule(y, p, spec, coverage=COVERAGE).value
        yield {
            "search": "left to a person",
            "spec": spec,
            "found": found,
            "best": np.nanmax(values(spec, pairs, "binary")),
        }


def page(frame: pd.DataFrame) -> str:
    """How often the best of all is found, and by how much it is missed."""
    lines = [
        "# Searches that are not exact, beside all combinations", "",
        f"{frame['draw'].nunique()} samples of real tables, with so few rows that every combination can be tried; in",
        "points on these very rows. Made by `gap.py`.", "",
        "| search | metric | best of all found | mean gap | largest gap |", "|---|---|---:|---:|---:|",
    ]  # fmt: skip
    for (search, spec), own in frame.groupby(["search", "spec"], sort=False):
        gap = 100 * (own["best"] - own["found"])
        assert gap.min() > -1e-6, f"{search}, {spec}: better than all"
        lines.append(f"| {search} | {spec} | {(gap < 1e-6).mean():.0%} | {gap.mean():.2f} | {gap.max():.1f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Search, compare, write."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=40)
    rows: list[dict[str, Any]] = []
    for draw in range(parser.parse_args().draws):
        try:
            rows += [{"draw": draw, **row} for row in rows_of(draw)]
        except InfeasibleError as error:
            print(draw, error)
    frame = pd.DataFrame(rows)
    frame.round(6).to_csv(HERE / "gap.csv", index=False)
    (HERE / "gap.md").write_text(page(frame), encoding="utf-8")


if __name__ == "__main__":
    main()
