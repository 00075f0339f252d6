"""Equal recall in both sexes on adult: one cut-off, one per group, and fairlearn's ThresholdOptimizer (pip: fairlearn).

Half of the rows fits a logistic regression, a quarter chooses cut-offs, a quarter tests. fairlearn's rule has one
cut-off per group as well, and draws lots between two of them. Writes group_thresholds.csv and group_thresholds.md.

    METRICFIT_DATA=../shared/data python -m benchmarks.decisions.group_thresholds --splits 10
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from fairlearn.postprocessing import ThresholdOptimizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.data import load
from metricfit.decisions import best_group_thresholds, best_threshold

HERE = Path(__file__).parent
SPEC = "accuracy subject to spread(recall[1]) <= 0.02 in sex"
ROWS = 12_000


def run(split: int) -> list[dict[str, object]]:
    data = load("adult")
    some = np.random.default_rng(split).permutation(len(data.y))[:ROWS]
    frame, y = data.X.iloc[some], data.y.iloc[some].astype(int).to_numpy()
    sex = frame["sex"].astype(str).str.strip().to_numpy()
    X = pd.get_dummies(frame, dtype=float).to_numpy()
    fit, rest = train_test_split(np.arange(len(y)), test_size=0.5, stratify=y, random_state=split)
    choose, test = train_test_split(rest, test_size=0.5, stratify=y[rest], random_state=split)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200)).fit(X[fit], y[fit])
    p, p_test = model.predict_proba(X[choose])[:, 1], model.predict_proba(X[test])[:, 1]
    columns, found = {"sex": sex[choose]}, []

    def note(rule: str, started: float, called: np.ndarray) -> None:
        right, positive = called == y[test], y[test] == 1
        recalls = [called[positive & (sex[test] == group)].mean() for group in np.unique(sex)]
        found.append({"split": split, "rule": rule, "accuracy": right.mean(), "spread": max(recalls) - min(recalls),
                      "recall": called[positive].mean(), "seconds": time.process_time() - started})  # fmt: skip

    note("best accuracy", time.process_time(), p_test >= best_threshold(y[choose], p, "accuracy").threshold)
    started = time.process_time()
    note("one cut-off", started, p_test >= best_threshold(y[choose], p, SPEC, columns=columns).threshold)
    started = time.process_time()
    each = best_group_thresholds(y[choose], p, SPEC, by="sex", columns=columns)
    note("one cut-off per group", started, each.apply(p_test, {"sex": sex[test]}) == 1)
    started = time.process_time()
    how = {"constraints": "true_positive_rate_parity", "objective": "accuracy_score", "prefit": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rival = ThresholdOptimizer(estimator=model, predict_method="predict_proba", **how)
        rival.fit(X[choose], y[choose], sensitive_features=sex[choose])
        called = rival.predict(X[test], sensitive_features=sex[test], random_state=split)
    note("fairlearn's ThresholdOptimizer", started, np.asarray(called) == 1)
    return found


def page(frame: pd.DataFrame) -> str:
    lines = [
        f"# Equal recall in both sexes: adult, {frame['split'].nunique()} splits of {ROWS:,} rows",
        "",
        "Accuracy with at most 2 points between the recalls of women and men, logistic regression; on test rows, mean",
        "over splits ± its standard error. fairlearn asks for no difference at all, and draws lots. Made by",
        "`group_thresholds.py`.",
        "",
        "| rule | accuracy | difference of recalls | recall | CPU s |",
        "|---|---:|---:|---:|---:|",
    ]
    for rule, part in frame.groupby("rule", sort=False):
        cells = [
            f"{part[name].mean():.4f} ± {part[name].std(ddof=1) / len(part) ** 0.5:.4f}"
            for name in ("accuracy", "spread", "recall")
        ]
        lines.append(f"| {rule} | {' | '.join(cells)} | {part['seconds'].mean():.2f} |")
    wide = frame.pivot_table(index="split", columns="rule", values="accuracy")
    gap = wide["one cut-off per group"] - wide["fairlearn's ThresholdOptimizer"]
    paired = f"{gap.mean():+.4f} ± {gap.std(ddof=1) / len(gap) ** 0.5:.4f}"
    return "\n".join([*lines, "", f"Accuracy, one cut-off per group less fairlearn's: {paired} (paired).", ""])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--splits", type=int, default=10)
    found: list[dict[str, object]] = []
    for split in range(parser.parse_args().splits):
        found += run(split)
        frame = pd.DataFrame(found)
        frame.round(5).to_csv(HERE / "group_thresholds.csv", index=False)
        if split:
            (HERE / "group_thresholds.md").write_text(page(frame))


if __name__ == "__main__":
    main()
