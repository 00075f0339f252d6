"""The same recall for everyone, and no more alerts than can be looked at: what constraints in groups hold on new rows.

* adult: "precision subject to recall >= 0.7", for all together, in both sexes, and in both sexes with 95 % confidence.
* creditcard: "recall subject to predicted_count <= 10 per hour".

Half of the rows fits the model, a quarter chooses the cut-off, a quarter tests. Writes groups.csv and groups.md.

    METRICFIT_DATA=../shared/data python -m benchmarks.decisions.groups --splits 40
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.data import load
from metricfit.decisions import best_threshold

HERE = Path(__file__).parent
ADULT = {
    "all together": ("recall[1] >= 0.7", None),
    "in both sexes": ("recall[1] >= 0.7 in sex", None),
    "in both sexes, spread at most 0.05": (("recall[1] >= 0.7", "spread(recall[1]) <= 0.05 in sex"), None),
    "all together, 95 % confidence": ("recall[1] >= 0.7", 0.95),
    "in both sexes, 95 % confidence": ("recall[1] >= 0.7 in sex", 0.95),
}


def adult(split: int) -> list[dict[str, object]]:
    data = load("adult")
    some = np.random.default_rng(split).permutation(len(data.y))[:20_000]
    frame, y = data.X.iloc[some], data.y.iloc[some].astype(int).to_numpy()
    sex = frame["sex"].astype(str).str.strip().to_numpy()
    X = frame.apply(lambda c: c if pd.api.types.is_numeric_dtype(c) else c.astype("category").cat.codes).to_numpy(float)
    fit, rest = train_test_split(np.arange(len(y)), test_size=0.5, stratify=y, random_state=split)
    choose, test = train_test_split(rest, test_size=0.5, stratify=y[rest], random_state=split)
    model = HistGradientBoostingClassifier(max_iter=60, random_state=0).fit(X[fit], y[fit])
    p, p_test = model.predict_proba(X[choose])[:, 1], model.predict_proba(X[test])[:, 1]
    found: list[dict[str, object]] = []
    for way, (limit, confidence) in ADULT.items():
        options = {"subject_to": limit, "groups": {"sex": sex[choose]}, "confidence": confidence}
        called = p_test >= best_threshold(y[choose], p, "precision[1]", **options).threshold
        recall = {g: called[(sex[test] == g) & (y[test] == 1)].mean() for g in np.unique(sex)}
        found.append(
            {"set": "adult", "split": split, "rule": way, "precision": y[test][called].mean(),
             "recall": called[y[test] == 1].mean(), "worst": min(recall.values()),
             "spread": max(recall.values()) - min(recall.values()), "called": called.mean()}
        )  # fmt: skip
    return found


def cards(split: int) -> list[dict[str, object]]:
    data = load("creditcard")
    X, y = data.X, data.y.to_numpy().astype(int)
    hour = (X["Time"].to_numpy() // 3600).astype(int)
    fit, rest = train_test_split(np.arange(len(y)), test_size=0.5, stratify=y, random_state=split)
    choose, test = train_test_split(rest, test_size=0.5, stratify=y[rest], random_state=split)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)).fit(X.iloc[fit], y[fit])
    p, p_test = model.predict_proba(X.iloc[choose])[:, 1], model.predict_proba(X.iloc[test])[:, 1]
    limit = "predicted_count[1] <= 10 per hour"
    best = best_threshold(y[choose], p, "recall", subject_to=limit, columns={"hour": hour[choose]})
    called = p_test >= best.threshold
    per_hour = np.bincount(hour[test], called)
    return [
        {"set": "creditcard", "split": split, "rule": "10 per hour", "precision": y[test][called].mean(),
         "recall": called[y[test] == 1].mean(), "worst": per_hour.max(), "spread": (per_hour > 10).sum(),
         "called": int(called.sum())}
    ]  # fmt: skip


def page(frame: pd.DataFrame) -> str:
    one, two = frame[frame["set"] == "adult"], frame[frame["set"] == "creditcard"]
    lines = [
        "# Constraints in groups, on new rows",
        "",
        f"{one['split'].nunique()} splits of adult, {two['split'].nunique()} of creditcard. Made by `groups.py`.",
        "",
        "adult, precision subject to recall >= 0.7. *Held*: in how many splits the worse sex has a test recall of 0.7",
        "(300 rich women in the test part: the test recall alone is uncertain by 0.03).",
        "",
        "| recall >= 0.7 | precision | recall | recall of the worse sex | difference | held | called |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for way, part in one.groupby("rule", sort=False):
        spread = part["worst"].std(ddof=1) / np.sqrt(len(part))
        lines.append(
            f"| {way} | {part['precision'].mean():.3f} | {part['recall'].mean():.3f} | {part['worst'].mean():.3f} ± "
            f"{spread:.3f} | {part['spread'].mean():.3f} | {(part['worst'] >= 0.7).mean():.0%} | "
            f"{part['called'].mean():.1%} |"
        )
    lines += [
        "",
        "creditcard, recall with at most 10 alerts per hour (48 hours, 71,000 purchases), chosen on other rows of the",
        "same hours.",
        "",
        "| rule | recall | alerts in all | most alerts in an hour | hours with more than 10 |",
        "|---|---:|---:|---:|---:|",
    ]
    for way, part in two.groupby("rule", sort=False):
        lines.append(
            f"| {way} | {part['recall'].mean():.3f} | {part['called'].mean():.0f} | {part['worst'].mean():.1f} | "
            f"{part['spread'].mean():.1f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--splits", type=int, default=40)
    splits = parser.parse_args().splits
    frame = pd.DataFrame(
        [r for s in range(splits) for r in adult(s)] + [r for s in range(splits // 4) for r in cards(s)]
    )
    frame.round(5).to_csv(HERE / "groups.csv", index=False)
    (HERE / "groups.md").write_text(page(frame))


if __name__ == "__main__":
    main()
