"""On how many of the authors' 102 data sets does AnyLoss for a metric beat squared error and cross-entropy in it?

``python -m benchmarks.papers.checks.anyloss_counts <folder>`` reads their slp-102-datasets.csv and mlp-102-datasets.csv
and writes anyloss_counts.csv beside itself; ``table`` sets the counts on our tables beside theirs.
"""

from __future__ import annotations

import csv
import math
import sys
from pathlib import Path

import numpy as np
import pandas as pd

FILE = Path(__file__).with_suffix(".csv")
METRICS = {"Acc": ("AccAim", "accuracy"), "F1": ("F1Aim", "f1"), "Gmean": ("GAim", "gmean"),
           "B_Acc": ("BAim", "balanced_accuracy")}  # fmt: skip
RIVALS = {"Delta": "mse", "BCE": "bce"}
NETWORKS = {"slp": "single layer", "mlp": "network"}
NAMES = {"accuracy": "accuracy", "f1": "F1", "gmean": "G-mean", "balanced_accuracy": "balanced accuracy"}


def counts(network: str, file: Path) -> list[dict[str, object]]:
    """Wins, ties and losses of AnyLoss, and the mean difference ± its standard error over data sets."""
    values: dict[tuple[str, str], list[float]] = {}
    head: list[str] = []
    with file.open(encoding="utf-8-sig", newline="") as rows:
        for row in csv.reader(rows):
            if "Delta" in row:
                head = row
            elif row and row[0] in METRICS:
                for column in (METRICS[row[0]][0], *RIVALS):
                    values.setdefault((row[0], column), []).append(float(row[head.index(column)]))
    found = []
    for metric, (aim, name) in METRICS.items():
        for column, rival in RIVALS.items():
            gap = np.round(np.array(values[metric, aim]) - np.array(values[metric, column]), 6)
            found.append({
                "network": network, "metric": name, "rival": rival, "sets": len(gap), "wins": int((gap > 0).sum()),
                "ties": int((gap == 0).sum()), "losses": int((gap < 0).sum()), "mean": round(float(gap.mean()), 4),
                "error": round(float(gap.std(ddof=1) / math.sqrt(len(gap))), 4),
            })  # fmt: skip
    return found


def table(theirs: pd.DataFrame, scores: pd.DataFrame) -> str:
    """Theirs: wins, ties, losses and the mean difference; ours: wins on the four tables, adult with integer codes."""
    head = "| AnyLoss for it, in it | against | theirs: won, tied, lost | mean difference | ours: won of four tables |"
    lines = [head, "|---|---|---|---|---|"]
    at_half = scores[(scores["rule"] == "decision") & (scores["encoding"] != "onehot")]
    for row in theirs.itertuples():
        here = at_half[(at_half["protocol"] == f"anyloss-{row.network}") & (at_half["metric"] == row.metric)]
        means = here.groupby(["method", "dataset"])["value"].mean()
        won = int((means[f"anyloss_{row.metric}"] > means[row.rival]).sum())
        rival = "squared error" if row.rival == "mse" else "cross-entropy"
        gap = f"{row.mean:+.3f} ± {row.error:.3f}".replace("-", "\N{MINUS SIGN}")
        cells = [f"{NAMES[row.metric]}, {NETWORKS[row.network]}", rival, f"{row.wins}, {row.ties}, {row.losses}", gap]
        lines.append(f"| {' | '.join(cells)} | {won} |")
    return "\n".join(lines)


def main(folder: str) -> None:
    found = [row for name in NETWORKS for row in counts(name, Path(folder, f"{name}-102-datasets.csv"))]
    pd.DataFrame(found).to_csv(FILE, index=False)
    print(pd.DataFrame(found).to_string(index=False))


if __name__ == "__main__":
    main(sys.argv[1])
