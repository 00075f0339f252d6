"""Btg's Tables 8 and 10: class weights, positives, and the size of the oversampled training part, beside ours.

``python -m benchmarks.papers.checks.btg_facts`` draws the ten splits of the tables and writes btg_facts.csv beside
itself.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.papers import data
from benchmarks.papers.config import protocol

FILE = Path(__file__).with_suffix(".csv")
PRINTED = Path(__file__).parents[1] / "dataset_facts.csv"
SETS = {"cocktail_party": "cocktail party", "adult": "adult", "mammography": "mammography", "creditcard": "credit card"}
SPLITS = 10


def facts(dataset: str) -> list[dict[str, object]]:
    """Of every split: n / (2 n_c) of its training part, and the rows of that after oversampling."""
    problem, (share, *_) = data.load(dataset), protocol("btg-tabular").fractions
    rows = []
    for split in range(SPLITS):
        # The rows that data.split draws, without the features.
        order = np.random.default_rng(split).permutation(len(problem.y))[: round(share * len(problem.y))]
        counts = np.bincount(problem.y[order], minlength=2)
        rows.append({
            "dataset": dataset, "split": split, "entire_total": len(problem.y), "entire_positive": int(problem.y.sum()),
            "weight_negative": round(counts.sum() / (2 * counts[0]), 4),
            "weight_positive": round(counts.sum() / (2 * counts[1]), 4),
            "oversampled_train_total": int(2 * counts.max()),
        })  # fmt: skip
    return rows


def table(rows: pd.DataFrame) -> str:
    """Printed and, in brackets, ours: the same for all splits, or lowest to highest."""
    printed = pd.read_csv(PRINTED).set_index(["dataset", "quantity"])["value"]
    names = {
        "entire_total": "rows", "entire_positive": "positives", "weight_negative": "weight of negatives",
        "weight_positive": "of positives", "oversampled_train_total": "oversampled training part",
    }  # fmt: skip
    lines = [f"| printed (ours) | {' | '.join(names.values())} |", "|" + "---|" * (len(names) + 1)]
    for dataset, called in SETS.items():
        here, cells = rows[rows["dataset"] == dataset], []
        for quantity in names:
            form = "{:.2f}" if quantity.startswith("weight") else "{:,.0f}"
            low, high = (form.format(end) for end in (here[quantity].min(), here[quantity].max()))
            cells.append(f"{form.format(printed[dataset, quantity])} ({low if low == high else f'{low} to {high}'})")
        lines.append(f"| {called} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    frame = pd.DataFrame([row for dataset in SETS for row in facts(dataset)])
    frame.to_csv(FILE, index=False)
    print(table(frame))


if __name__ == "__main__":
    main()
