"""Btg's search over its steps: k of the sigmoid in {1, 10, 20, 50}, δ of the linear one from 0.1 to 0.2.

``python -m benchmarks.papers.checks.btg_search [--trials 3]`` trains btg's network on F1 with each of them and appends
to btg_search.csv beside itself; what is there is not computed again.
"""

from __future__ import annotations

import argparse
import csv
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import f1_score

from benchmarks.papers import data, losses, networks
from benchmarks.papers.config import protocol
from benchmarks.papers.evaluation import THRESHOLDS
from benchmarks.papers.training import Settings, outputs, train
from metricfit.decisions import best_threshold

FILE = Path(__file__).with_suffix(".csv")
COLUMNS = ["dataset", "step", "value", "trial", "mean_tau", "decision", "tuned", "epochs"]
SETS = {"cocktail_party": "cocktail party", "mammography": "mammography"}
STEPS = [("linear", "delta", delta) for delta in (0.1, 0.15, 0.2)]
STEPS += [("sigmoid", "k", float(k)) for k in (1, 10, 20, 50)]


def fit(dataset: str, step: str, part: str, value: float, trial: int) -> dict[str, object]:
    """F1 on test rows: the mean over nine thresholds, at one half, and at a threshold tuned on validation rows."""
    how = protocol("btg-tabular")
    problem = data.load(dataset)
    parts = data.split(problem, how.fractions, seed=trial)
    built = losses.build(
        "f1", approximation=step, n_classes=2, prior=float(problem.prior[1]), single_output=True, **{part: value}
    )
    make = partial(networks.build, how.network, tuple(parts.train[0].shape[1:]), 1, dropout=how.dropout)
    settings = Settings(how.optimiser, how.learning_rate, how.batch_size, how.patience, how.max_epochs)
    made = train(make, built.loss, parts.train, parts.validation, settings, seed=trial)
    held, test = (outputs(made.network, X).sigmoid().numpy() for X, _ in (parts.validation, parts.test))
    y = parts.test[1].numpy()
    cut = best_threshold(parts.validation[1].numpy(), held, "f1").threshold
    return {
        "dataset": dataset, "step": step, "value": value, "trial": trial,
        "mean_tau": round(float(np.mean([f1_score(y, test >= tau, zero_division=0) for tau in THRESHOLDS])), 5),
        "decision": round(f1_score(y, test >= 0.5, zero_division=0), 5),
        "tuned": round(f1_score(y, test >= cut, zero_division=0), 5), "epochs": made.epochs,
    }  # fmt: skip


def table(rows: pd.DataFrame) -> str:
    """F1 in the mean over thresholds, mean ± standard deviation over trials, as Markdown."""
    columns = [f"δ = {v:g}" if part == "delta" else f"k = {v:g}" for _, part, v in STEPS]
    lines = [f"| F1 | {' | '.join(columns)} |", "|" + "---|" * (len(STEPS) + 1)]
    for dataset, name in SETS.items():
        for metric, how in (("mean_tau", "mean over thresholds"), ("tuned", "tuned threshold")):
            cells = []
            for step, _, value in STEPS:
                one = rows[(rows["dataset"] == dataset) & (rows["step"] == step) & np.isclose(rows["value"], value)]
                cells.append(f"{one[metric].mean():.3f} ± {one[metric].std():.3f}")
            lines.append(f"| {name}, {how} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=3)
    trials = parser.parse_args().trials
    torch.set_num_threads(1)
    there = set()
    if FILE.exists():
        done = pd.read_csv(FILE)
        there = set(zip(done["dataset"], done["step"], done["value"], done["trial"], strict=True))
    for trial in range(trials):
        for dataset in SETS:
            for step, part, value in STEPS:
                if (dataset, step, value, trial) in there:
                    continue
                row = fit(dataset, step, part, value, trial)
                with FILE.open("a", newline="") as file:
                    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                    if file.tell() == 0:
                        writer.writeheader()
                    writer.writerow(row)
                print(row, flush=True)
    print(table(pd.read_csv(FILE)))


if __name__ == "__main__":
    main()
