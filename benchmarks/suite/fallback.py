"""Should the classifier fall back to cross-entropy with a tuned rule where validation prefers that?

``python -m benchmarks.suite.fallback`` reads the suite's cached probabilities; nothing is trained. For each data set,
split and metric the held-out (out-of-fold) value of the network trained on the metric is compared with that of the same
network trained by cross-entropy with a rule tuned on the other folds, and the policies' test values are noted.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from benchmarks.suite.cache import CACHE, path, recall
from benchmarks.suite.datasets import DATASETS, part, table
from benchmarks.suite.methods import METRICS
from metricfit import metrics
from metricfit.decisions import best_rule

RESULTS = Path(__file__).parent / "fallback.csv"
CONFIGURATIONS = {"full": None, "train<=10000": 10_000, "train<=60000": 60_000}
Array = NDArray[Any]


def _tuned_decisions(y: Array, proba: Array, metric: str, classes: tuple[int, ...], seed: int) -> Array:
    """Decisions of each fifth of the rows by a rule tuned on the others."""
    decided = np.empty(len(y), dtype=np.intp)
    for others, here in StratifiedKFold(5, shuffle=True, random_state=seed).split(proba, y):
        rule = best_rule(y[others], proba[others], metric, labels=classes).rule
        decided[here] = rule.apply(proba[here])
    return decided


def _difference(y: Array, ours: Array, theirs: Array, metric: str, classes: tuple[int, ...]) -> tuple[float, float]:
    """Held-out advantage of ``theirs`` and its standard error, by leaving out a tenth of the rows at a time."""

    def gap(rows: Array) -> float:
        score = metrics.get(metric).score
        return float(score(y[rows], theirs[rows], labels=classes) - score(y[rows], ours[rows], labels=classes))

    tenth = np.arange(len(y)) % 10
    left_out = np.array([gap(tenth != k) for k in range(10)])
    return gap(tenth >= 0), float(np.sqrt(0.9 * ((left_out - left_out.mean()) ** 2).sum()))


def _rows(dataset: str, configuration: str, cache: Path, splits: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    data = None
    for split in range(splits):
        usual = recall(path(cache, dataset, configuration, split, "ce", ""))
        for metric in METRICS:
            made = recall(path(cache, dataset, configuration, split, "default", metric))
            if usual is None or made is None or made[0].rows is None or usual[0].rows is None:
                continue
            data = data or table(dataset)
            piece = part(data, split, CONFIGURATIONS[configuration])
            ours, theirs = made[0], usual[0]
            order, other = np.argsort(ours.rows), np.argsort(theirs.rows)
            y = piece.y_train[ours.rows[order]]
            held = ours.out_of_fold[order].argmax(axis=1)
            tuned = _tuned_decisions(y, theirs.out_of_fold[other], metric, data.classes, split)
            advantage, error = _difference(y, held, tuned, metric, data.classes)
            rule = best_rule(y, theirs.out_of_fold[other], metric, labels=data.classes).rule
            score = metrics.get(metric).score
            found.append(
                {
                    "dataset": dataset, "configuration": configuration, "split": split, "metric": metric,
                    "advantage": round(advantage, 5), "std_error": round(error, 5),
                    "default": round(float(score(piece.y_test, ours.test.argmax(axis=1), labels=data.classes)), 5),
                    "fallback": round(float(score(piece.y_test, rule.apply(theirs.test), labels=data.classes)), 5),
                }
            )  # fmt: skip
    return found


def summary(rows: pd.DataFrame) -> str:
    """Test value of each policy, less that of never falling back; points, mean ± standard error over data sets."""
    policies = {
        "never": rows["default"],
        "always": rows["fallback"],
        "if better on held-out rows": rows["default"].where(rows["advantage"] <= 0, rows["fallback"]),
        "if better by one standard error": rows["default"].where(
            rows["advantage"] <= rows["std_error"], rows["fallback"]
        ),
        "if better by two standard errors": rows["default"].where(
            rows["advantage"] <= 2 * rows["std_error"], rows["fallback"]
        ),
    }
    lines = [f"| fall back | {' | '.join(METRICS)} | all |", "|---|" + "---|" * (len(METRICS) + 1)]
    for name, value in policies.items():
        gain = ((value - rows["default"]) * 100).groupby([rows["metric"], rows["dataset"]], observed=True).mean()
        cells = [gain[metric] for metric in METRICS] + [gain.groupby("dataset", observed=True).mean()]
        texts = [f"{c.mean():+.2f} ± {c.std() / np.sqrt(len(c)):.2f}" for c in cells]
        lines.append(f"| {name} | {' | '.join(texts)} |")
    splits = rows.groupby("dataset")["split"].nunique()
    lines += ["", f"{len(splits)} data sets, {splits.min()} to {splits.max()} splits each."]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.suite.fallback", description=__doc__)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--table", action="store_true", help="only print the table of the rows that are there")
    options = parser.parse_args()
    if not options.table:
        rows = [
            row
            for dataset in DATASETS
            for configuration in CONFIGURATIONS
            for row in _rows(dataset, configuration, options.cache, options.splits)
        ]
        pd.DataFrame(rows).to_csv(options.results, index=False)
    print(summary(pd.read_csv(options.results)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
