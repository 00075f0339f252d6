"""Measure what each part of TablePreprocessor buys: the same network on the same splits, other features.

    METRICFIT_DATA=… python -m benchmarks.preprocessing.run [--splits 3] [--only adult,fars]

Writes results.csv and table.md beside this file; sets that are not run keep their rows.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import f1_score, log_loss
from sklearn.model_selection import StratifiedShuffleSplit
from torch import nn

from benchmarks.data import load
from metricfit.data import TablePreprocessor

HERE = Path(__file__).parent
ROWS = 5000
EPOCHS = 20
CODED = ("connect4", "fars", "krkopt")
CROSSED = {
    "adult": ["workclass", "education", "occupation", "native-country"],
    "nursery": ["Parents", "Has_nurs", "Form", "Children", "Housing"],
}

# Each variant changes one thing against "default".
VARIANTS: dict[str, dict[str, object]] = {
    "default": {},
    "standardised only": {"numeric": "standard"},
    "no indicators of whole numbers": {"integer_levels": 0},
    "whole numbers up to 32 values": {"integer_levels": 32},
    "no target rates": {"target_encoding": False},
    "at most 8 one-hot levels": {"max_one_hot": 8},
    "at most 8, no target rates": {"max_one_hot": 8, "target_encoding": False},
    "at most 1000 one-hot levels": {"max_one_hot": 1000},
    "levels of 10 rows": {"min_frequency": 10},
}
EVERY_COLUMN_A_CATEGORY = "all columns categories"

SETS = (
    "adult",
    "adult crossed",
    "nursery",
    "nursery crossed",
    "kddcup99_10pct",
    "fars",
    "fars as categories",
    "connect4",
    "krkopt",
    "letter",
    "ann_thyroid",
    "abalone",
    "dermatology",
    "keel/flare-F",
    "keel/car-good",
    "keel/kr-vs-k-zero_vs_eight",
)


def load_set(name: str) -> tuple[pd.DataFrame, np.ndarray, list[str] | None]:
    """Features, class codes (classes of at least 20 rows) and the columns to treat as categories."""
    base, _, change = name.partition(" ")
    dataset = load(base)
    X, y = dataset.X, pd.Series(np.asarray(dataset.y))
    keep = (y.map(y.value_counts()) >= 20).to_numpy()
    X, y = X[keep].reset_index(drop=True), pd.factorize(y[keep], sort=True)[0]
    if change == "crossed":
        # One column of very many levels in place of several of few: hard for indicators, easy for rates.
        parts = CROSSED[base]
        X = X.assign(crossed=X[parts].fillna("?").astype(str).agg(" ".join, axis=1)).drop(columns=parts)
    return X, y, list(X.columns) if change == "as categories" else None


def train(X: np.ndarray, y: np.ndarray, classes: int, seed: int) -> nn.Module:
    """A 128-64 network by √-weighted cross-entropy, AdamW with warm-up and cosine."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = nn.Sequential(
            nn.Linear(X.shape[1], 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 64), nn.ReLU(), nn.Dropout(0.1),
            nn.Linear(64, classes),
        )  # fmt: skip
        inputs, target = torch.from_numpy(X), torch.from_numpy(y)
        prior = torch.bincount(target, minlength=classes) / len(target)
        weight = prior.clamp(min=1e-6) ** -0.5
        loss = nn.CrossEntropyLoss(weight=weight / (weight * prior).sum())
        batch = 256
        steps = max(EPOCHS * -(-len(y) // batch), 300)
        optimiser = torch.optim.AdamW(network.parameters(), lr=5e-3, weight_decay=1e-2)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=5e-3, total_steps=steps, pct_start=0.05)
        network.train()
        order = torch.randperm(len(y))
        place = 0
        for _ in range(steps):
            if place + batch > len(y):
                order, place = torch.randperm(len(y)), 0
            rows = order[place : place + batch]
            place += batch
            optimiser.zero_grad()
            loss(network(inputs[rows]), target[rows]).backward()
            optimiser.step()
            schedule.step()
    return network.eval()


def evaluate(name: str, splits: int) -> list[dict[str, object]]:
    X, y, categories = load_set(name)
    classes = int(y.max()) + 1
    train_rows = min(ROWS, int(0.75 * len(y)))
    test_rows = min(ROWS, len(y) - train_rows)
    variants = dict(VARIANTS)
    if name in CODED:
        variants[EVERY_COLUMN_A_CATEGORY] = {"categorical_features": list(X.columns)}
    results = []
    splitter = StratifiedShuffleSplit(splits, train_size=train_rows, test_size=test_rows, random_state=0)
    for split, (a, b) in enumerate(splitter.split(X, y)):
        seen: dict[bytes, tuple[float, float, float]] = {}
        for variant, parameters in variants.items():
            start = time.perf_counter()
            features = TablePreprocessor(**{"categorical_features": categories, **parameters}, random_state=split)
            train_X = features.fit_transform(X.iloc[a], y[a])
            test_X = features.transform(X.iloc[b])
            seconds = time.perf_counter() - start
            key = train_X.tobytes()
            if key not in seen:  # the variant changes nothing here: neither does the training
                network = train(train_X, y[a], classes, seed=split)
                with torch.no_grad():
                    probability = network(torch.from_numpy(test_X)).double().softmax(dim=1).numpy()
                average = "binary" if classes == 2 else "macro"
                f1 = f1_score(y[b], probability.argmax(axis=1), average=average, zero_division=0)
                seen[key] = (100 * f1, log_loss(y[b], probability, labels=range(classes)), seconds)
            f1, loss, _ = seen[key]
            results.append(
                {"set": name, "split": split, "variant": variant, "features": train_X.shape[1], "f1": round(f1, 3),
                 "log_loss": round(loss, 5), "preprocessing_seconds": round(seconds, 4)}
            )  # fmt: skip
    return results


def summarise(results: pd.DataFrame) -> str:
    f1 = results.pivot_table(index=["set", "split"], columns="variant", values="f1")
    difference = f1.sub(f1["default"], axis=0)
    by_set = difference.groupby("set", sort=False)
    mean, error = by_set.mean(), by_set.std() / np.sqrt(by_set.count())
    default = f1.groupby("set", sort=False)["default"].mean()
    names = [v for v in [*VARIANTS, EVERY_COLUMN_A_CATEGORY] if v != "default" and v in f1.columns]
    lines = ["| set | default | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
    for row in [s for s in SETS if s in mean.index]:
        cells = [
            "" if np.isnan(m) else "0" if m == 0 and not e else f"{m:+.1f} ± {e:.1f}"
            for m, e in zip(mean.loc[row, names], error.loc[row, names], strict=True)
        ]
        lines.append(f"| {row} | {default[row]:.1f} | " + " | ".join(cells) + " |")
    total = [f"{mean[n].mean():+.2f} ± {mean[n].std() / np.sqrt(mean[n].count()):.2f}" for n in names]
    lines.append("| **mean over sets** | | " + " | ".join(total) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    chosen = [s for s in SETS if not arguments.only or s in arguments.only.split(",")]
    results = pd.DataFrame(columns=["set"])
    if (HERE / "results.csv").exists():
        results = pd.read_csv(HERE / "results.csv")
    for name in chosen:
        start = time.perf_counter()
        new = pd.DataFrame(evaluate(name, arguments.splits))
        results = pd.concat([results[results["set"] != name], new], ignore_index=True)
        results.to_csv(HERE / "results.csv", index=False)
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
    hardware = f"{os.cpu_count()} cores, {platform.machine()}, torch {torch.__version__}"
    (HERE / "table.md").write_text(f"{summarise(results)}\n\nMeasured on {hardware}.\n")


if __name__ == "__main__":
    main()
