"""Precision at a recall of 0.9 on tables with few positives: the portfolio beside single models.

``python -m benchmarks.portfolio.constraints`` writes ``constraints.csv`` beside it: three stratified splits (70 % to
fit) of each table. Every model is fitted on five folds and tuned out of fold for the metric below.
``precision_at_equal_recall`` is the precision that a model's test scores allow at the recall that the portfolio's
decisions reach on the same test rows: it compares models at the same point, whatever their own cut-offs.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import precision_recall_curve, precision_score, recall_score
from sklearn.model_selection import train_test_split

from benchmarks.data import load
from metricfit import MetricClassifier

RESULTS = Path(__file__).parent / "constraints.csv"
METRIC = "precision[1] subject to recall[1] >= 0.9"
TABLES = (
    "mammography", "ann_thyroid", "keel/car-good", "keel/abalone9-18", "keel/abalone-17_vs_7-8-9-10",
    "keel/winequality-red-4",
)  # fmt: skip
"""2 to 6 % positives: the rarest class against the rest."""
MODELS: dict[str, Any] = {
    "portfolio": "auto",
    "boosting": ["boosting"],
    "forest": ["forest"],
    "extra_trees": ["extra_trees"],
    "network_ce": ["network_ce"],
}


def precision_at(truth: NDArray[Any], score: NDArray[Any], recall: float) -> float:
    """The best precision of any cut-off that reaches the recall."""
    precision, reached, _ = precision_recall_curve(truth, score)
    return float(precision[reached >= recall - 1e-9].max())


def rows_of(name: str, split: int) -> list[dict[str, Any]]:
    """One row per model."""
    data = load(name)
    y = np.asarray(data.y)
    values, counts = np.unique(y, return_counts=True)
    truth = (y == values[counts.argmin()]).astype(int)
    X, X_test, y, y_test = train_test_split(data.X, truth, test_size=0.3, stratify=truth, random_state=split)
    found: list[dict[str, Any]] = []
    for model, models in MODELS.items():
        clf = MetricClassifier(METRIC, models=models, baseline=False, verbose=False, random_state=split).fit(X, y)
        decided, score = clf.predict(X_test), clf.predict_raw_proba(X_test)[:, 1]
        recall = float(recall_score(y_test, decided))
        equal = precision_at(y_test, score, found[0]["recall"] if found else recall)
        found.append({
            "table": name, "split": split, "model": model, "recall": recall,
            "precision": float(precision_score(y_test, decided, zero_division=0)),
            "precision_at_equal_recall": equal, "precision_at_recall_0.9": precision_at(y_test, score, 0.9),
        })  # fmt: skip
        print(found[-1], flush=True)
    return found


def main() -> None:
    """Fit all, and write the table."""
    warnings.simplefilter("ignore")
    rows = [row for split in range(3) for name in TABLES for row in rows_of(name, split)]
    frame = pd.DataFrame(rows).round(4)
    frame.to_csv(RESULTS, index=False)
    print(frame.groupby(["table", "model"], sort=False).mean(numeric_only=True).drop(columns="split").round(3))


if __name__ == "__main__":
    main()
