"""Rules tuned on few rows: on labels, on labels mixed with beliefs, on bootstrap samples, drawn to a prior rule.

    METRICFIT_DATA=../shared/data METRICFIT_KEPT=cache/rules python -m benchmarks.decisions.smoothed --splits 10

Scores are those of ``kept.py`` with 300 training rows: the mean of a forest and of boosting. A cut-off is chosen on the
out-of-fold scores and decides about the test rows, of which all folds' models together scored each. Writes
smoothed.csv, one row per table, split, metric and way, and smoothed.md beside itself.

* labels, half, expected: ``best_threshold`` with a belief of 0, 0.5 and 1;
* bagged, bagged expected: the mean of the best cut-offs (in log-odds) of 25 bootstrap samples, by labels or expected;
* shrunk: the log-odds of the cut-off on labels times p / (p + 20) with p positives: towards one half.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, logit

from benchmarks.decisions.kept import MEMBERS, Unit, units
from metricfit import metrics
from metricfit.decisions import InfeasibleError, best_threshold
from metricfit.models.portfolio import pooled

HERE = Path(__file__).parent
BOUND = 0.8
METRICS = {"f1": "f1", "mcc": "mcc", "balanced accuracy": "balanced_accuracy",
           "constraint": f"precision subject to recall >= {BOUND}"}  # fmt: skip
SAMPLES, PRIOR = 25, 20

Array = NDArray[np.float64]


def scores_of(unit: Unit) -> tuple[Array, Array]:
    """Held-out and test scores of the mean of both models, as the package makes them."""
    test = [pooled(np.stack([1 - unit.test[m], unit.test[m]], axis=2), several=False)[:, 1] for m in MEMBERS]
    return np.mean([unit.held[m] for m in MEMBERS], axis=0), np.mean(test, axis=0)


def cuts(y: NDArray[Any], score: Array, spec: str) -> dict[str, float]:
    """The cut-off of every way."""
    rng = np.random.default_rng(0)

    def bagged(belief: float) -> float:
        found = []
        for _ in range(SAMPLES):
            rows = rng.integers(0, len(y), len(y))
            if 0 < y[rows].sum() < len(y):
                found.append(_log_odds(best_threshold(y[rows], score[rows], spec, belief=belief).threshold))
        return float(expit(np.mean(found)))

    labels = best_threshold(y, score, spec).threshold
    return {
        "labels": labels,
        "half": best_threshold(y, score, spec, belief=0.5).threshold,
        "expected": best_threshold(y, score, spec, belief=1.0).threshold,
        "bagged": bagged(0.0),
        "bagged expected": bagged(1.0),
        "shrunk": float(expit(_log_odds(labels) * y.sum() / (y.sum() + PRIOR))),
    }


def _log_odds(cut: float) -> float:
    return float(logit(np.clip(cut, 1e-6, 1 - 1e-6)))


def rows_of(unit: Unit) -> list[dict[str, Any]]:
    """One row per metric and way."""
    held, test = scores_of(unit)
    found: list[dict[str, Any]] = []
    for name, spec in METRICS.items():
        metric = metrics.get(spec)
        objective = getattr(metric, "objective", metric)
        try:
            ways = cuts(unit.y, held, spec)
        except InfeasibleError:
            continue
        for way, cut in ways.items():
            called, recall = test >= cut, metrics.get("recall")
            found.append({
                "table": unit.table, "split": unit.split, "metric": name, "way": way, "cut": cut,
                "held out": objective.score(unit.y, held >= cut), "test": objective.score(unit.y_test, called),
                "recall": recall.score(unit.y_test, called),
            })  # fmt: skip
    return found


def page(frame: pd.DataFrame) -> str:
    """Means over tables, and differences to the rule on labels, paired by table."""
    ways = list(dict.fromkeys(frame["way"]))
    lines = [
        "# Smoothed rules", "",
        f"{frame['table'].nunique()} tables, {frame['split'].nunique()} splits, cut-offs chosen on at most 300 rows.",
        "In points. *Gain*: test value less that of the cut-off tuned on labels, mean over tables ± standard error",
        "over tables. *Over-tuning*: value on the rows that chose the cut-off less test value. Made by `smoothed.py`.",
        "",
        "| metric | way | test | gain | tables better | over-tuning |", "|---|---|---:|---:|---:|---:|",
    ]  # fmt: skip
    for name in METRICS:
        own = frame[frame["metric"] == name]
        wide = 100 * own.pivot_table("test", "table", "way")
        over = 100 * (own.set_index(["table", "way"])["held out"] - own.set_index(["table", "way"])["test"])
        over = over.groupby(level=[0, 1]).mean().unstack()
        for way in ways:
            gain = wide[way] - wide["labels"]
            cells = [name, way, f"{wide[way].mean():.1f}", f"{gain.mean():+.2f} ± {gain.sem():.2f}"]
            cells += [f"{(gain > 0).sum()} of {len(gain)}", f"{over[way].mean():.1f} ± {over[way].sem():.1f}"]
            lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        f"The constraint (recall of at least {BOUND}) on test rows:",
        "",
        "| way | mean recall | splits at the bound |",
        "|---|---:|---:|",
    ]
    for way in ways:
        own = frame[(frame["metric"] == "constraint") & (frame["way"] == way)]
        lines.append(f"| {way} | {own['recall'].mean():.3f} | {(own['recall'] >= BOUND).mean():.0%} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Choose, judge, write."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("--splits", type=int, default=10)
    frame = pd.DataFrame([row for unit in units(300, parser.parse_args().splits) for row in rows_of(unit)])
    frame.round(5).to_csv(HERE / "smoothed.csv", index=False)
    (HERE / "smoothed.md").write_text(page(frame), encoding="utf-8")


if __name__ == "__main__":
    main()
