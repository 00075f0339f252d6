"""Which boosting? Settings of HistGradientBoosting, alone and averaged with the forests, on the half "choose".

    python -m benchmarks.portfolio.boosting                 # adds what is missing, then prints the table
    python -m benchmarks.portfolio.boosting --half claim    # the slow setting on the other half
    python -m benchmarks.portfolio.boosting --table         # only prints the table

One split of each table, at most 2,000 training rows, five folds; log-loss and decisions are those of the test rows.
Folds are averaged; weights and rule are the package's.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

from benchmarks.suite.fits import METRICS, Part
from benchmarks.suite.tables import load_table, names, splits
from metricfit import metrics
from metricfit.data import TablePreprocessor
from metricfit.ensemble import LEAST, HeldOut, choose_ensemble, mean_of
from metricfit.models import EstimatorModel, Folds, Table

RESULTS = {half: Path(__file__).with_name(f"boosting_{half}.csv") for half in ("choose", "claim")}
MOST_ROWS, MOST_TEST_ROWS = 2_000, 5_000
SLOW = {"learning_rate": 0.05, "max_features": 0.5, "l2_regularization": 1.0, "n_iter_no_change": 40}
# "before" keeps the rounds after the best one, the others do not.
SETTINGS: dict[str, dict[str, Any]] = {
    "before": {"n_iter_no_change": 20},
    "penalty": {"n_iter_no_change": 20, "l2_regularization": 1.0},
    "slow": SLOW | {"max_leaf_nodes": 15},
    "31 leaves": SLOW,
    "depth 4": SLOW | {"max_depth": 4, "l2_regularization": 3.0},
}
TRIED = {"choose": tuple(SETTINGS), "claim": ("before", "slow")}
FORESTS = ("forest", "extra_trees")
Scores = tuple[np.ndarray, np.ndarray]  # held-out and test probabilities


def part_of(name: str) -> Part:
    """The first split, smaller."""
    X, y = load_table(name)
    train, test = splits(name, MOST_ROWS)[0]
    test = test[:MOST_TEST_ROWS]
    X_train, X_test = (X.iloc[rows].reset_index(drop=True) for rows in (train, test))
    return Part(X_train, y[train], X_test, y[test], 0)


def boosted(folds: Folds, table: Table, options: dict[str, Any], *, last: bool) -> Scores:
    """Five models, each stopped on its fold; ``last`` keeps the rounds after the best one."""
    held, test = [], []
    categories = folds.table.categories
    for k, (train, rows) in enumerate(folds.splits):
        model = HistGradientBoostingClassifier(
            max_iter=500, early_stopping=True, min_samples_leaf=max(2, min(20, len(train) // 50)),
            categorical_features=categories if categories.any() else None,
            random_state=int(np.random.SeedSequence([folds.seed, k]).generate_state(1)[0] >> 1), **options,
        )  # fmt: skip
        X, y, classes = folds.table.trees, folds.codes, len(folds.labels)
        known = rows[np.isin(y[rows], y[train])]
        model.fit(X[train], y[train], X_val=X[known], y_val=y[known])
        if not last:
            del model._predictors[max(1, int(np.argmax(model.validation_score_))) :]
        for found, X in ((held, folds.table.trees[rows]), (test, table.trees)):
            wide = np.zeros((len(X), classes))
            wide[:, model.classes_] = model.predict_proba(X)
            found.append(wide)
    return np.concatenate(held), np.mean(test, axis=0)


def fitted(part: Part, settings: Sequence[str]) -> tuple[Folds, dict[str, Scores]]:
    """Everything that is compared."""
    preprocessor = TablePreprocessor(random_state=part.seed)
    dense = preprocessor.fit_transform(part.X_train, part.y_train)
    tables = [
        Table(numbers, preprocessor.tree_features(X), preprocessor.tree_categories_, X)
        for numbers, X in ((dense, part.X_train), (preprocessor.transform(part.X_test), part.X_test))
    ]
    ones = np.ones(len(part.y_train), dtype=np.float32)
    known = (part.folds, metrics.get("f1"), "binary" if len(part.labels) == 2 else "multiclass", part.labels, part.seed)
    folds = Folds(tables[0], part.y_train.astype(np.int64), ones, ones, *known)  # type: ignore[arg-type]
    made = {name: boosted(folds, tables[1], SETTINGS[name], last=name == "before") for name in settings}
    for name in FORESTS:
        model = EstimatorModel(name, n_jobs=1)
        held = model.fit(folds, math.inf, lambda *_: None)
        made[name] = np.concatenate(held), model.each_fold(tables[1]).mean(axis=0)
    return folds, made


def rows_of(name: str, settings: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """One row per metric and set of models."""
    part = part_of(name)
    folds, made = fitted(part, settings)
    rows = np.concatenate([split.validation for split in folds.splits])
    fold = np.repeat(np.arange(len(folds.splits)), [len(split.validation) for split in folds.splits])
    sets = {which: (which,) for which in made} | {f"{which}, forests": (which, *FORESTS) for which in settings}
    for which, models in sets.items():
        held = {model: made[model][0] for model in models}
        known = HeldOut(rows, fold, folds.codes[rows], np.ones(len(rows)), folds.labels, held)
        for metric in METRICS:
            judge = metrics.resolve(metric, folds.labels, folds.task)[0]
            chosen = choose_ensemble(known, judge)
            test = mean_of({model: made[model][1] for model in models}, chosen.weights)
            value = 100 * float(judge.score(part.y_test, chosen.rule.apply(test), labels=folds.labels))
            loss = -np.log(np.maximum(test[np.arange(len(test)), part.y_test], LEAST)).mean()
            yield name, which, metric, round(value, 4), round(float(loss), 6)


def compared(rows: pd.DataFrame) -> str:
    """Each set of models less the one with the boosting of before, mean ± standard error over tables."""
    index = ["table", "metric"]
    value, loss = (rows.pivot_table(column, index, "models") for column in ("value", "log_loss"))
    lines = [f"| models | {' | '.join(METRICS)} | all three | log-loss, % | lower on |", "|---" * 7 + "|"]
    for which in value:
        base = "before, forests" if "," in which else "before"
        both = value[[which, base]].dropna().index if which != base else []
        if not len(both):
            continue
        gap = value.loc[both, which] - value.loc[both, base]
        parts = [gap.xs(metric, level="metric") for metric in METRICS] + [gap.groupby("table").mean()]
        change = 100 * np.log(loss.loc[both, which] / loss.loc[both, base]).groupby("table").first()
        cells = [f"{part.mean():+.1f} ± {part.sem():.1f}" for part in (*parts, change)]
        lines.append(f"| {which} | {' | '.join(cells)} | {(change < 0).sum()} of {len(change)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=RESULTS, default="choose")
    parser.add_argument("--table", action="store_true", help="only print the table of the rows that are there")
    options = parser.parse_args()
    results = RESULTS[options.half]
    there = set(pd.read_csv(results)["table"]) if results.exists() else set()
    for name in () if options.table else names(options.half):
        if name not in there:
            with threadpool_limits(1):
                rows = rows_of(name, TRIED[options.half])
                new = pd.DataFrame(rows, columns=["table", "models", "metric", "value", "log_loss"])
            new.to_csv(results, mode="a", header=not results.exists(), index=False)
    print(compared(pd.read_csv(results)))


if __name__ == "__main__":
    main()
