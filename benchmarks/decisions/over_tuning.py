"""How much class offsets tuned on a small validation set gain on new data, by strength of regularisation.

Real data (folder named by METRICFIT_DATA), two models, three metrics, validation sets of 60 to 600 samples. Each
split: a third of the rows fits the model, the validation set is drawn from the second third, the last third tests.
Writes over_tuning.csv (every run) and over_tuning.md (means) beside itself.

    METRICFIT_DATA=../shared/data python benchmarks/decisions/over_tuning.py --splits 8
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from metricfit import metrics
from metricfit.decisions import DecisionRule, best_offsets
from metricfit.decisions.offsets import REGULARISATION

HERE = Path(__file__).parent
SETS = ("winequality_red", "ann_thyroid", "glass", "new_thyroid", "fars")
METRICS = ("f1_macro", "mcc", "balanced_accuracy")
SIZES = (60, 200, 600)
STRENGTHS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0)
MOST_ROWS = 6000


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    folder = Path(os.environ.get("METRICFIT_DATA", "../shared/data"))
    frame = pd.read_csv(folder / name / f"{name}.csv.gz", keep_default_na=False)
    features = frame.drop(columns="target").apply(pd.to_numeric, errors="coerce").fillna(0)
    return features.to_numpy(float), np.unique(frame["target"], return_inverse=True)[1]


def runs(name: str, split: int) -> list[dict[str, object]]:
    X, y = load(name)
    rng = np.random.default_rng(split)
    rows = rng.permutation(len(y))[:MOST_ROWS]
    train, pool, test = np.array_split(rows, 3)
    known = np.unique(y[train])
    pool, test = (part[np.isin(y[part], known)] for part in (pool, test))
    models = {
        "logistic": make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)),
        "forest": RandomForestClassifier(100, min_samples_leaf=2, random_state=split),
    }
    found: list[dict[str, object]] = []
    for kind, model in models.items():
        model.fit(X[train], y[train])
        proba_test = model.predict_proba(X[test])
        for size in SIZES:
            if size > len(pool) and size > SIZES[0]:
                continue
            chosen = pool[:size]
            proba = model.predict_proba(X[chosen])
            for spec in METRICS:
                metric = metrics.get(spec)

                labels = known.tolist()
                argmax = metric.score(y[test], DecisionRule.argmax(labels).apply(proba_test), labels=labels)
                for strength in STRENGTHS:
                    began = time.perf_counter()
                    best = best_offsets(
                        y[chosen], proba, metric, labels=labels, regularisation=strength, random_state=split
                    )
                    found.append(
                        {
                            "data": name, "split": split, "model": kind, "validation": len(chosen), "metric": spec,
                            "regularisation": strength, "argmax": round(argmax, 5),
                            "tuned": round(metric.score(y[test], best.rule.apply(proba_test), labels=labels), 5),
                            "validation_argmax": round(best.argmax_value, 5), "validation_tuned": round(best.value, 5),
                            "seconds": round(time.perf_counter() - began, 3),
                        }
                    )  # fmt: skip
    return found


def table(frame: pd.DataFrame, column: str) -> str:
    pivot = frame.pivot_table(index="regularisation", columns=column, values="gain")
    pivot["all"] = frame.groupby("regularisation")["gain"].mean()
    lines = [
        "| regularisation | " + " | ".join(str(c) for c in pivot.columns) + " |",
        "|---" * (pivot.shape[1] + 1) + "|",
    ]
    lines += [
        f"| {index:g} | " + " | ".join(f"{v:+.2f}" for v in row) + " |"
        for index, row in zip(pivot.index, pivot.to_numpy(), strict=True)
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=8)
    splits = parser.parse_args().splits
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")  # models on small data warn about convergence and rare classes
    results = []
    for name in SETS:
        for split in range(splits):
            results += runs(name, split)
        print(name, "done", flush=True)
    frame = pd.DataFrame(results)
    frame.to_csv(HERE / "over_tuning.csv", index=False)
    frame["gain"] = 100 * (frame["tuned"] - frame["argmax"])
    frame["promise"] = 100 * (frame["validation_tuned"] - frame["validation_argmax"])
    frame["harmed"] = 100.0 * (frame["gain"] < -1)
    means = frame.groupby("regularisation")[["promise", "gain", "harmed"]].mean()
    promise = "\n".join(
        f"| {row.Index:g} | {row.promise:+.2f} | {row.gain:+.2f} | {row.harmed:.0f} % |" for row in means.itertuples()
    )
    (HERE / "over_tuning.md").write_text(
        f"""# Over-tuning of class offsets on small validation sets

Written by `over_tuning.py --splits {splits}`: {len(frame)} searches. Numbers are points (× 100) of the metric on
*test* data, tuned offsets less plain arg max, averaged over data sets ({", ".join(SETS)}), splits, and two models
(logistic regression, random forest).

By metric:

{table(frame, "metric")}

By size of the validation set:

{table(frame, "validation")}

By data set:

{table(frame, "data")}

What the validation set promised, what the test set kept, and how often tuning cost more than one point:

| regularisation | gain on validation | gain on test | harmed |
|---|---|---|---|
{promise}

`best_offsets` uses {REGULARISATION} by default.
"""
    )


if __name__ == "__main__":
    main()
