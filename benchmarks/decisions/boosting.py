"""LightGBM trained on the metric against LightGBM trained on log-loss with a tuned rule.

Tables and splits are the suite's; a fifth of the training rows stops the rounds and tunes the rules, so every way sees
the same rows. Settings of the objective were chosen on the half "choose". Rows go to boosting.csv as they come; a run
that is started again goes on. Writes boosting.md beside itself.

    METRICFIT_DATA=../shared/data python -m benchmarks.decisions.boosting --half claim --splits 1
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier, early_stopping
from sklearn.model_selection import train_test_split

from benchmarks.suite.tables import load_table, names, splits
from metricfit import metrics
from metricfit.decisions import best_rule
from metricfit.integrations.boosting import eval_metric, objective, probabilities

HERE = Path(__file__).parent
METRICS = ("f1", "mcc")
USUAL = "log-loss, tuned rule"
COMMON = {"n_estimators": 1000, "learning_rate": 0.05, "n_jobs": 1, "verbose": -1, "min_data_per_group": 20}
BALANCE = "sqrt"


def scores(name: str, split: int) -> Iterator[dict[str, object]]:
    X, y = load_table(name)
    train, test = splits(name)[split]
    classes = int(y.max()) + 1
    fit, held = train_test_split(train, test_size=0.2, stratify=y[train], random_state=split)
    prior = np.bincount(y[fit], minlength=classes) / len(fit)
    common = COMMON | {"min_child_samples": max(2, min(20, len(fit) // 50))}
    stop = early_stopping(50, verbose=False)
    usual = LGBMClassifier(**common).fit(X.iloc[fit], y[fit], eval_X=X.iloc[held], eval_y=y[held], callbacks=[stop])
    for metric in METRICS:
        judged = metrics.resolve(metric, tuple(range(classes)), "binary" if classes == 2 else "multiclass")[0]
        goal = objective(metric, cross_entropy=0.5, balance=BALANCE, prior=prior)
        measure = eval_metric(metric, prior=prior)
        given = {"eval_X": X.iloc[held], "eval_y": y[held], "eval_metric": measure}
        model = LGBMClassifier(**common, objective=goal, metric="none")
        model.fit(X.iloc[fit], y[fit], **given, callbacks=[early_stopping(50, verbose=False)])

        def ours(rows: Any, model: LGBMClassifier = model) -> np.ndarray:
            return probabilities(model.predict(X.iloc[rows], raw_score=True), prior)

        def theirs(rows: Any) -> np.ndarray:
            return np.asarray(usual.predict_proba(X.iloc[rows]))

        ways = {"log-loss, arg max": (theirs, False), USUAL: (theirs, True),
                "objective, arg max": (ours, False), "objective, tuned rule": (ours, True)}  # fmt: skip
        for way, (proba, tuned) in ways.items():
            p, decided = proba(test), None
            if tuned:
                rule = best_rule(y[held], proba(held), judged).rule
                decided = rule.decide(p)
            value = judged.score(
                y[test], p.argmax(axis=1) if decided is None else decided, labels=tuple(range(classes))
            )
            trees = model.n_estimators_ if "objective" in way else usual.n_estimators_
            yield {"table": name, "split": split, "metric": metric, "way": way, "value": round(float(value), 5),
                   "trees": trees}  # fmt: skip


def page(frame: pd.DataFrame) -> str:
    lines = [
        "# LightGBM trained on the metric, or on log-loss with a tuned rule",
        "",
        f"Points of 100 beyond *{USUAL}*: mean over tables ± its standard error, and the tables where it is better. "
        "Made by `boosting.py`.",
        "",
        "| half | tables | way | F1 | MCC |",
        "|---|---:|---|---:|---:|",
    ]
    for half in ("choose", "claim"):
        part = frame[frame["table"].isin(names(half))]
        if not len(part):
            continue
        wide = part.pivot_table(index=["table", "metric"], columns="way", values="value")
        for way in [w for w in frame["way"].unique() if w != USUAL]:
            gap = 100 * (wide[way] - wide[USUAL]).unstack()
            cells = [
                f"{gap[m].mean():+.1f} ± {gap[m].sem():.1f}, {int((gap[m] > 0).sum())} of {gap[m].notna().sum()}"
                for m in METRICS
            ]
            lines.append(f"| {half} | {part['table'].nunique()} | {way} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--half", choices=("choose", "claim"), default="claim")
    parser.add_argument("--splits", type=int, default=1)
    asked, kept = parser.parse_args(), HERE / "boosting.csv"
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    done = set()
    if kept.exists():
        done = set(pd.read_csv(kept)[["table", "split"]].itertuples(index=False, name=None))
    for name in names(asked.half):
        for split in range(asked.splits):
            if (name, split) not in done:
                pd.DataFrame(scores(name, split)).to_csv(kept, mode="a", header=not kept.exists(), index=False)
    (HERE / "boosting.md").write_text(page(pd.read_csv(kept)))


if __name__ == "__main__":
    main()
