"""Rules tuned on few rows: on labels, on labels mixed with beliefs, on bootstrap samples, drawn to a prior rule.

    METRICFIT_DATA=../shared/data python -m benchmarks.decisions.smoothed --splits 10

Scores are the mean of logistic regression and a forest of 50 trees, fitted on five folds of at most 300 rows of the
tables of ``kept.py``. A cut-off is chosen on the out-of-fold scores and decides about up to 3,000 test rows, of which
all folds' models together scored each. What is in smoothed.csv, one row per table, split, metric and way, is not fitted
again; smoothed.md is made of it.

* labels, half, expected: ``best_threshold`` with a belief of 0, 0.5 and 1;
* bagged: the mean of the best cut-offs by labels (in log-odds) of 10 bootstrap samples;
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
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.decisions.kept import FEW, LARGE, SMALL, rows_of_split
from metricfit import metrics
from metricfit.decisions import InfeasibleError, best_threshold
from metricfit.models.portfolio import pooled

HERE = Path(__file__).parent
BOUND = 0.8
METRICS = {"f1": "f1", "mcc": "mcc", "balanced accuracy": "balanced_accuracy",
           "constraint": f"precision subject to recall >= {BOUND}"}  # fmt: skip
SAMPLES, PRIOR = 10, 20

Array = NDArray[np.float64]


def scores_of(name: str, split: int) -> tuple[NDArray[Any], Array, NDArray[Any], Array]:
    """Labels and scores of held-out rows, then of test rows."""
    X, X_test, y, y_test = rows_of_split(name, FEW, split, 3_000)
    both = [pd.get_dummies(pd.concat([X, X_test]), dtype=float).fillna(0).to_numpy(float)]
    X, X_test = both[0][: len(y)], both[0][len(y) :]
    models = (
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)),
        RandomForestClassifier(50, min_samples_leaf=2, random_state=split),
    )
    held, each = np.empty(len(y)), []
    for train, rest in StratifiedKFold(5, shuffle=True, random_state=split).split(X, y):
        fitted = [model.fit(X[train], y[train]) for model in models]
        held[rest] = np.mean([model.predict_proba(X[rest])[:, 1] for model in fitted], axis=0)
        each.append(np.mean([model.predict_proba(X_test) for model in fitted], axis=0))
    return y, held, y_test, pooled(np.stack(each), several=False)[:, 1]


def cuts(y: NDArray[Any], score: Array, spec: str) -> dict[str, float]:
    """The cut-off of every way."""
    rng = np.random.default_rng(0)

    def bagged() -> float:
        found = []
        for _ in range(SAMPLES):
            rows = rng.integers(0, len(y), len(y))
            if 0 < y[rows].sum() < len(y):
                found.append(_log_odds(best_threshold(y[rows], score[rows], spec).threshold))
        return float(expit(np.mean(found)))

    labels = best_threshold(y, score, spec).threshold
    return {
        "labels": labels,
        "half": best_threshold(y, score, spec, belief=0.5).threshold,
        "expected": best_threshold(y, score, spec, belief=1.0).threshold,
        "bagged": bagged(),
        "shrunk": float(expit(_log_odds(labels) * y.sum() / (y.sum() + PRIOR))),
    }


def _log_odds(cut: float) -> float:
    return float(logit(np.clip(cut, 1e-6, 1 - 1e-6)))


def rows_of(table: str, split: int) -> list[dict[str, Any]]:
    """One row per metric and way."""
    y, held, y_test, test = scores_of(table, split)
    found: list[dict[str, Any]] = []
    for name, spec in METRICS.items():
        metric = metrics.get(spec)
        objective = getattr(metric, "objective", metric)
        try:
            ways = cuts(y, held, spec)
        except InfeasibleError:
            continue
        for way, cut in ways.items():
            called, recall = test >= cut, metrics.get("recall")
            found.append({
                "table": table, "split": split, "metric": name, "way": way, "cut": cut,
                "held out": objective.score(y, held >= cut), "test": objective.score(y_test, called),
                "recall": recall.score(y_test, called),
            })  # fmt: skip
    return found


def choice(frame: pd.DataFrame) -> str:
    """The way with the highest mean over metrics and tables of those that keep the constraint as often as labels do."""
    limits = frame[frame["metric"] == "constraint"]
    kept = (limits["recall"] >= BOUND).groupby(limits["way"]).mean()
    fine = [way for way, share in kept.items() if share >= kept["labels"] - 0.1]
    each = frame.groupby(["way", "metric", "table"])["test"].mean()
    return str(each.groupby(["way", "metric"]).mean().groupby("way").mean()[fine].idxmax())


def page(frame: pd.DataFrame) -> str:
    """Means over tables, and differences to the rule on labels, paired by table; one half of the tables chooses."""
    names = list(dict.fromkeys(frame["table"]))
    halves = {"choose": frame[frame["table"].isin(names[::2])], "claim": frame[frame["table"].isin(names[1::2])]}
    chosen = choice(halves["choose"])
    lines = [
        "# Smoothed rules", "",
        f"{len(names)} tables, {frame['split'].nunique()} splits, cut-offs chosen on at most 300 rows. Every second",
        "table chooses the way, the others say what it is worth. In points. *Gain*: test value less that of the",
        "cut-off tuned on labels, mean over tables ± standard error over tables. *Over-tuning*: value on the rows that",
        "chose the cut-off less test value. Made by `smoothed.py`.", "",
        f"The best way on the choosing half, of those that keep the constraint about as often as labels: **{chosen}**.",
    ]  # fmt: skip
    for half, rows in halves.items():
        lines += ["", f"## {half.capitalize()}: {rows['table'].nunique()} tables", ""]
        lines += ["| metric | way | test | gain | tables better | over-tuning |", "|---|---|---:|---:|---:|---:|"]
        for name in METRICS:
            own = rows[rows["metric"] == name]
            wide = 100 * own.pivot_table("test", "table", "way")
            over = 100 * (own.set_index(["table", "way"])["held out"] - own.set_index(["table", "way"])["test"])
            over = over.groupby(level=[0, 1]).mean().unstack()
            for way in dict.fromkeys(rows["way"]):
                gain = wide[way] - wide["labels"]
                cells = [name, way, f"{wide[way].mean():.1f}", f"{gain.mean():+.2f} ± {gain.sem():.2f}"]
                cells += [f"{(gain > 0).sum()} of {len(gain)}", f"{over[way].mean():.1f} ± {over[way].sem():.1f}"]
                lines.append("| " + " | ".join(cells) + " |")
        every = 100 * rows.groupby(["metric", "table", "way"])["test"].mean().unstack()
        for way in every:
            gain = (every[way] - every["labels"]).groupby("table").mean()
            cells = (
                f"{every[way].mean():.1f} | {gain.mean():+.2f} ± {gain.sem():.2f} | {(gain > 0).sum()} of {len(gain)}"
            )
            lines.append(f"| all four | {way} | {cells} |  |")
        lines += ["", f"The constraint (recall of at least {BOUND}) on test rows:", ""]
        lines += ["| way | mean recall | splits at the bound |", "|---|---:|---:|"]
        for way, own in rows[rows["metric"] == "constraint"].groupby("way", sort=False):
            lines.append(f"| {way} | {own['recall'].mean():.3f} | {(own['recall'] >= BOUND).mean():.0%} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Choose, judge, write."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("--splits", type=int, default=10)
    path = HERE / "smoothed.csv"
    frame = pd.read_csv(path) if path.exists() else pd.DataFrame({"table": [], "split": []})
    known = set(zip(frame["table"], frame["split"], strict=True))
    for split in range(parser.parse_args().splits):
        new = [n for n in (*LARGE, *(f"keel/{n}" for n in SMALL)) if (n, split) not in known]
        rows = pd.DataFrame([row for name in new for row in rows_of(name, split)])
        frame = pd.concat([frame, rows], ignore_index=True) if len(frame) else rows
        frame.round(5).to_csv(path, index=False)
    (HERE / "smoothed.md").write_text(page(frame), encoding="utf-8")


if __name__ == "__main__":
    main()
