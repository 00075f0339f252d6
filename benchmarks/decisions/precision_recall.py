"""Five ways to balance precision and recall of one class, as a loss and as a rule after cross-entropy.

Thyroid patients (ann_thyroid: 2.3 % hyperthyroid, 5.1 % hypothyroid, the others healthy), a 32-16 network. Of each
split half of the rows train, a quarter chooses epoch and rule, a quarter tests. Writes precision_recall.csv and
precision_recall.md beside itself.

    METRICFIT_DATA=../shared/data python -m benchmarks.decisions.precision_recall --splits 10
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from benchmarks.data import load
from metricfit import MetricLoss, metrics
from metricfit.decisions import best_offsets

HERE = Path(__file__).parent
WAYS = {
    "β = 1 for all": metrics.FBeta(average="macro"),
    "β = 3 for all": metrics.FBeta(beta=3, average="macro"),
    "β = 3 for hyperthyroid": metrics.FBeta(beta=[3, 1, 1], average="macro"),
    "β = 1/3 for hyperthyroid": metrics.FBeta(beta=[1 / 3, 1, 1], average="macro"),
    "cost: a missed one is worth 20 others": metrics.get("cost:matrix=[[0,20,20],[1,0,1],[1,1,0]]"),
    "recall of at least 0.9": metrics.get("f1_macro subject to recall[0] >= 0.9"),
}
EPOCHS, BATCH = 60, 256


Loss = Callable[[Tensor, Tensor], Tensor]


def probabilities(loss: Loss, watched: Loss, X: list[Tensor], y: list[Tensor], seed: int) -> list[np.ndarray]:
    """Of the choosing and the test rows, at the epoch with the lowest ``watched`` loss on the choosing rows."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(X[0].shape[1], 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 3))
    optimiser = torch.optim.AdamW(network.parameters(), lr=5e-3)
    lowest, best = np.inf, []
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(y[0])).split(BATCH):
            optimiser.zero_grad()
            loss(network(X[0][rows]), y[0][rows]).backward()
            optimiser.step()
        with torch.no_grad():
            logits = [network(part) for part in X[1:]]
            value = float(watched(logits[0], y[1]))
        if value < lowest:
            lowest, best = value, [part.double().softmax(1).numpy() for part in logits]
    return best


def run(split: int) -> list[dict[str, object]]:
    data = load("ann_thyroid")
    X, y = data.X.to_numpy(np.float32), data.y.astype(int).to_numpy() - 1
    fit, rest = train_test_split(np.arange(len(y)), test_size=0.5, stratify=y, random_state=split)
    choose, test = train_test_split(rest, test_size=0.5, stratify=y[rest], random_state=split)
    scaler = StandardScaler().fit(X[fit])
    parts = [torch.from_numpy(scaler.transform(X[rows])) for rows in (fit, choose, test)]
    labels = [torch.from_numpy(y[rows]) for rows in (fit, choose, test)]
    on_choose, on_test = probabilities(nn.CrossEntropyLoss(), nn.CrossEntropyLoss(), parts, labels, split)
    decided = {("none", "cross-entropy, arg max"): on_test.argmax(1)}
    for name, metric in WAYS.items():
        loss, watched = MetricLoss(metric, cross_entropy=0.5, memory=0.9), MetricLoss(metric, cross_entropy=0.5)
        trained = probabilities(loss, watched, parts, labels, split)
        rule = best_offsets(y[choose], on_choose, metric, labels=[0, 1, 2]).rule
        decided[name, "as a loss"] = trained[1].argmax(1)
        decided[name, "as a rule"] = rule.apply(on_test)
    return [
        {"split": split, "way": way, "how": how,
         "precision": round(metrics.get("precision[0]").score(y[test], made, labels=[0, 1, 2]), 5),
         "recall": round(metrics.get("recall[0]").score(y[test], made, labels=[0, 1, 2]), 5),
         "macro F1": round(metrics.get("f1_macro").score(y[test], made), 5),
         "cost": round(metrics.get("cost:matrix=[[0,20,20],[1,0,1],[1,1,0]]").score(y[test], made), 5)}
        for (way, how), made in decided.items()
    ]  # fmt: skip


def page(frame: pd.DataFrame) -> str:
    splits = frame["split"].nunique()
    lines = [
        f"# Balance precision and recall: hyperthyroid patients, {splits} splits",
        "",
        "A loss is trained and decides by arg max; a rule is chosen on other rows after cross-entropy. Means over",
        "splits ± standard error. Cost: of a decision, where a missed hyperthyroid patient is worth 20 other",
        "mistakes. Made by `precision_recall.py`.",
        "",
        "| wish | how | precision | recall | macro F1 of all | cost |",
        "|---|---|---|---|---|---|",
    ]
    for (way, how), part in frame.groupby(["way", "how"], sort=False):
        cells = [f"{part[c].mean():.3f} ± {part[c].sem():.3f}" for c in ("precision", "recall", "macro F1", "cost")]
        lines.append(f"| {way} | {how} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--splits", type=int, default=10)
    splits = parser.parse_args().splits
    torch.set_num_threads(1)
    frame = pd.DataFrame([row for split in range(splits) for row in run(split)])
    frame.to_csv(HERE / "precision_recall.csv", index=False)
    (HERE / "precision_recall.md").write_text(page(frame))


if __name__ == "__main__":
    main()
