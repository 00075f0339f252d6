"""Rows left to a person, and sets of classes: what is promised and what test rows show.

    METRICFIT_DATA=../shared/data METRICFIT_KEPT=cache/rules python -m benchmarks.decisions.doubt --splits 5

Scores are those of ``kept.py`` with 2,000 training rows, of boosting. Writes doubt.csv and doubt.md beside itself, and
the picture of the guide.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from benchmarks.decisions.kept import Unit, units
from benchmarks.decisions.shipped import means, two
from metricfit import metrics
from metricfit.decisions import cautious_rule, least_probabilities

HERE = Path(__file__).parent
COVERAGES = (1.0, 0.95, 0.9, 0.8)


def rows_of(unit: Unit) -> list[dict[str, Any]]:
    """One row per metric and coverage, and one for the sets."""
    held, test = two(unit.held["boosting"]), two(means(unit.test["boosting"])["log-odds"])
    place: dict[str, Any] = {"table": unit.table, "split": unit.split}
    found: list[dict[str, Any]] = []
    for metric in ("f1", "accuracy"):
        for asked in COVERAGES:
            decided = cautious_rule(unit.y, held, metric, coverage=asked).rule.apply(test)
            sure = np.array([one is not None for one in decided])
            value = metrics.get(metric).score(unit.y_test[sure], decided[sure].astype(int))
            found.append({**place, "metric": metric, "asked": asked, "value": value, "reached": sure.mean()})
    for each_class in (False, True):
        possible = test >= least_probabilities(unit.y, held, 0.1, each_class=each_class)
        inside = possible[np.arange(len(test)), unit.y_test]
        rare = inside[unit.y_test == 1].mean()
        name = "sets, of each class" if each_class else "sets"
        both = possible.all(axis=1).mean()
        found.append({**place, "metric": name, "asked": 0.9, "value": inside.mean(), "reached": rare, "both": both})
    return found


def page(frame: pd.DataFrame) -> str:
    """Means over tables."""
    lines = [
        "# Doubt",
        "",
        f"{frame['table'].nunique()} tables, {frame['split'].nunique()} splits, boosting on 2,000 rows.",
        "In points, mean over tables; *gain*: less deciding all, ± standard error over tables. Made by `doubt.py`.",
        "",
        "| metric | coverage asked | reached | value of the decided rows | gain |",
        "|---|---:|---:|---:|---:|",
    ]
    for metric in ("f1", "accuracy"):
        own = frame[frame["metric"] == metric]
        wide = 100 * own.pivot_table("value", "table", "asked")
        for asked in COVERAGES:
            gain, reached = wide[asked] - wide[1.0], own[own["asked"] == asked]["reached"].mean()
            told = f"{wide[asked].mean():.1f} | {gain.mean():+.1f} ± {gain.sem():.1f} |"
            lines.append(f"| {metric} | {asked:.0%} | {reached:.1%} | {told}")
    lines += ["", "| sets with an error of 10 % | true class inside | of positive rows | both classes possible |"]
    lines += ["|---|---:|---:|---:|"]
    for name in ("sets", "sets, of each class"):
        own = frame[frame["metric"] == name].groupby("table")[["value", "reached", "both"]].mean()
        cells = [f"{own[c].mean():.1%} ({own[c].min():.1%} to {own[c].max():.1%})" for c in own]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    return "\n".join(lines) + "\n"


def draw(unit: Unit, place: Path) -> None:
    """The metric of the decided rows over their share, on held-out rows."""
    fig, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
    for metric in ("f1", "accuracy"):
        found = cautious_rule(unit.y, two(unit.held["boosting"]), metric, coverage=0.5)
        ax.plot(found.curve[:, 0], found.curve[:, 1], label=metric)
    ax.set(xlabel="Share of the rows that are decided", ylabel="Metric of these rows", title=unit.table)
    ax.invert_xaxis()
    ax.legend()
    fig.savefig(place, dpi=110)


def main() -> None:
    """Choose, judge, write, draw."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("--splits", type=int, default=5)
    every = list(units(2000, parser.parse_args().splits))
    frame = pd.DataFrame([row for unit in every for row in rows_of(unit)])
    frame.round(5).to_csv(HERE / "doubt.csv", index=False)
    (HERE / "doubt.md").write_text(page(frame), encoding="utf-8")
    draw(next(unit for unit in every if unit.table == "adult"), HERE.parents[1] / "docs" / "images" / "doubt.png")


if __name__ == "__main__":
    main()
