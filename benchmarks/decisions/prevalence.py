"""A rule where the positives are rarer than before: kept, moved to the known share, moved to the estimated share.

Real data. Half of the rows fits the model, a quarter chooses the rule (at the data's own share), the last quarter is
thinned to each new share and tests. The share is estimated from the test rows without their labels. Writes
prevalence.csv and prevalence.md beside itself.

    METRICFIT_DATA=../shared/data python -m benchmarks.decisions.prevalence --splits 20
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import train_test_split

from benchmarks.data import load
from metricfit import metrics
from metricfit.assess import estimate_prevalence
from metricfit.decisions import best_threshold

HERE = Path(__file__).parent
SETS = ("adult", "diabetes_prediction", "mammography")
SHARES = (0.1, 0.03, 0.01)
METRICS = ("f1", "mcc", "cost:matrix=[[0,1],[20,0]]")
MOST_ROWS = 20_000


def rows(name: str) -> tuple[np.ndarray, np.ndarray]:
    data = load(name)
    X = data.X.apply(lambda c: c if pd.api.types.is_numeric_dtype(c) else c.astype("category").cat.codes)
    rarest = data.y.astype(str).value_counts().index[-1]
    return X.to_numpy(float), (data.y.astype(str) == rarest).to_numpy().astype(int)


def run(name: str, split: int) -> list[dict[str, object]]:
    X, y = rows(name)
    rng = np.random.default_rng(split)
    some = rng.permutation(len(y))[:MOST_ROWS]
    fit, rest = train_test_split(some, test_size=0.5, stratify=y[some], random_state=split)
    choose, test = train_test_split(rest, test_size=0.5, stratify=y[rest], random_state=split)
    model = HistGradientBoostingClassifier(max_iter=60, random_state=0).fit(X[fit], y[fit])
    p, p_test = model.predict_proba(X[choose])[:, 1], model.predict_proba(X[test])[:, 1]
    found: list[dict[str, object]] = []
    for share in [s for s in SHARES if s < y.mean()]:
        hits, others = np.flatnonzero(y[test] == 1), np.flatnonzero(y[test] == 0)
        wanted = max(round(share / (1 - share) * len(others)), 5)
        kept = np.concatenate([others, rng.choice(hits, min(wanted, len(hits)), replace=False)])
        y_new, p_new = y[test][kept], p_test[kept]
        guess = estimate_prevalence(p_new, y[choose], p)[1]
        for metric in METRICS:
            best, own = best_threshold(y[choose], p, metric), metrics.get(metric)
            ways = {
                "kept": best, "moved, known": best.for_prevalence(y_new.mean()),
                "moved, estimated": best.for_prevalence(min(max(guess.value, 1e-3), 0.999)),
                "tuned on the test labels": best_threshold(y_new, p_new, metric),
            }  # fmt: skip
            values = {way: own.score(y_new, (p_new >= rule.threshold).astype(int)) for way, rule in ways.items()}
            found.append(
                {"set": name, "split": split, "metric": metric, "old share": round(y[choose].mean(), 4),
                 "share": round(y_new.mean(), 5), "wanted": share, "estimate": round(guess.value, 5),
                 "low": round(guess.low, 5), "high": round(guess.high, 5)} | {k: round(v, 5) for k, v in values.items()}
            )  # fmt: skip
    return found


def page(frame: pd.DataFrame) -> str:
    lines = [
        f"# Rarer in production: {frame['split'].nunique()} splits of each set",
        "",
        "The rule is chosen at the old share and used at the new one. Means over splits; *gained*: moved by the",
        "estimated share less kept, paired, ± its standard error (for the cost, less is better). *Holds*: how often",
        "the 95 % interval of the estimate holds the true share. Made by `prevalence.py`.",
        "",
        "| set | old share | new share | estimate | holds | metric | kept | moved, known | moved, estimated | gained "
        "| tuned on the test labels |",
        "|---|---:|---:|---:|---:|---|---:|---:|---:|---:|---:|",
    ]
    for (name, _, metric), part in frame.groupby(["set", "wanted", "metric"], sort=False):
        gap = part["moved, estimated"] - part["kept"]
        holds = (part["low"] <= part["share"]) & (part["share"] <= part["high"])
        means = [f"{part[way].mean():.3f}" for way in ("kept", "moved, known", "moved, estimated")]
        spread = f"{gap.mean():+.3f} ± {gap.std(ddof=1) / np.sqrt(len(gap)):.3f}"
        best = f"{part['tuned on the test labels'].mean():.3f}"
        shares = [f"{part[which].mean():.3f}" for which in ("old share", "share", "estimate")]
        cells = [name, *shares, f"{holds.mean():.0%}", metric.split(":")[0], *means, spread, best]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--splits", type=int, default=20)
    splits = parser.parse_args().splits
    frame = pd.DataFrame([row for name in SETS for split in range(splits) for row in run(name, split)])
    frame.to_csv(HERE / "prevalence.csv", index=False)
    (HERE / "prevalence.md").write_text(page(frame))


if __name__ == "__main__":
    main()
