"""Rows left to a person: is the bound chosen on labels, or on the expected metric?

    METRICFIT_DATA=../shared/data python -m benchmarks.decisions.cautious --splits 5

Boosting on 2,000 rows of the ten tables of ``kept.py``, out of fold, and one model of all of them for up to 5,000 test
rows. ``cautious_rule`` gets the out-of-fold probabilities, with ``belief`` 0 (labels alone), 0.5 and 1 (the expected
metric by calibrated probabilities). That 1 is the default of whatever tunes rules for new rows was settled before
(smoothed.md). Writes cautious.csv and cautious.md beside itself.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from benchmarks.decisions.kept import LARGE, rows_of_split
from metricfit import metrics
from metricfit.decisions import cautious_rule

HERE = Path(__file__).parent
COVERAGES, BELIEFS = (0.95, 0.9, 0.8), (0.0, 0.5, 1.0)


def rows_of(name: str, split: int) -> list[dict[str, Any]]:
    """One row per metric, coverage and belief."""
    X, X_test, y, y_test = rows_of_split(name, 2000, split)
    numbers = pd.get_dummies(pd.concat([X, X_test]), dtype=float).to_numpy(float)
    model = HistGradientBoostingClassifier(max_iter=60, random_state=split)
    folds = StratifiedKFold(5, shuffle=True, random_state=split)
    held = cross_val_predict(model, numbers[: len(y)], y, cv=folds, method="predict_proba")
    new = model.fit(numbers[: len(y)], y).predict_proba(numbers[len(y) :])
    found = []
    for metric, coverage, belief in itertools.product(("f1", "mcc", "accuracy"), COVERAGES, BELIEFS):
        decided = cautious_rule(y, held, metric, coverage=coverage, belief=belief).rule.decide(new)
        sure = decided >= 0
        value = metrics.get(metric).score(y_test[sure], decided[sure], labels=[0, 1])
        found.append({"table": name, "split": split, "metric": metric, "coverage": coverage, "belief": belief,
                      "value": value, "reached": sure.mean()})  # fmt: skip
    return found


def page(frame: pd.DataFrame) -> str:
    """Means over tables."""
    lines = [
        "# The bound below which rows are left to a person", "",
        f"{frame['table'].nunique()} tables, {frame['split'].nunique()} splits, boosting on 2,000 rows, new test rows;",
        "the bound is chosen on labels (belief 0) or on the expected metric (1). In points; *gain*: less labels alone,",
        "mean over tables ± standard error, and the worst and the best table. Made by `cautious.py`.", "",
        "| metric | coverage asked | belief | reached | value of the decided rows | gain | worst | best |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]  # fmt: skip
    values = frame.pivot_table("value", ["metric", "coverage", "table"], "belief")
    for (metric, coverage, belief), own in frame.groupby(["metric", "coverage", "belief"]):
        gain = 100 * (values[belief] - values[0.0]).loc[metric, coverage]
        shown = f"{gain.mean():+.2f} ± {gain.sem():.2f} | {gain.min():+.1f} | {gain.max():+.1f}" if belief else " |  | "
        cells = [metric, f"{coverage:.0%}", f"{belief:g}", f"{own['reached'].mean():.1%}"]
        lines.append(
            f"| {' | '.join([*cells, f'{100 * values[belief].loc[metric, coverage].mean():.1f}'])} | {shown} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Fit, choose, judge, write."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("--splits", type=int, default=0)
    options, path = parser.parse_args(), HERE / "cautious.csv"
    if options.splits:
        found = [row for split in range(options.splits) for name in LARGE for row in rows_of(name, split)]
        pd.DataFrame(found).round(5).to_csv(path, index=False)
    (HERE / "cautious.md").write_text(page(pd.read_csv(path)), encoding="utf-8")


if __name__ == "__main__":
    main()
