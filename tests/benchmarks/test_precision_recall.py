"""The guide on precision and recall quotes the committed rows."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

from benchmarks.decisions.precision_recall import HERE, page

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "precision-recall.md"
ROWS = {
    "none": "none", "β = 3 for every class": "β = 3 for all", "β = 3 for the ill": "β = 3 for hyperthyroid",
    "β = 1/3 for the ill": "β = 1/3 for hyperthyroid", "cost": "cost: a missed one is worth 20 others",
    "recall of at least 0.9": "recall of at least 0.9",
}  # fmt: skip


def test_the_table_is_that_of_the_rows() -> None:
    assert page(pd.read_csv(HERE / "precision_recall.csv")) == (HERE / "precision_recall.md").read_text()


def test_the_guide_quotes_the_means() -> None:
    means = (
        pd.read_csv(HERE / "precision_recall.csv")
        .groupby(["way", "how"])[["precision", "recall", "macro F1", "cost"]]
        .mean()
    )
    text = GUIDE.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if re.search(r"\| \d\.\d{3}, ", line)]
    assert len(lines) == len(ROWS)
    for line in lines:
        wish, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        of = means.loc[next(way for start, way in ROWS.items() if wish.startswith(start))]
        hows = ["cross-entropy, arg max"] if wish.startswith("none") else ["as a loss", "as a rule"]
        expected = [", ".join(f"{value:.3f}" for value in of.loc[how].iloc[:3]) for how in hows]
        assert [cell for cell in cells if cell] == expected
    cost = means["cost"]
    way = "cost: a missed one is worth 20 others"
    quoted = [cost[way, "as a rule"], cost[way, "as a loss"], cost["none", "cross-entropy, arg max"]]
    found = re.search(
        r"the rule is better: ([\d.]+) for each decision against ([\d.]+) with the\nloss and ([\d.]+)", text
    )
    assert found
    assert list(found.groups()) == [f"{value:.3f}" for value in quoted]
