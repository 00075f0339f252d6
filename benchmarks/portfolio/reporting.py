"""Step three: paired differences in points, mean over tables ± standard error over tables.

python -m benchmarks.portfolio.reporting                          # everything against both references
python -m benchmarks.portfolio.reporting base/greedy/half:0.5     # against one setting, same members and splits
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.portfolio.evaluating import COMBINATIONS, FEW_RULES, METRICS, RESULTS, RULES, SETS, SINGLES, SOME

__all__ = ["contrast", "differences", "results", "sections"]

CAREFUL = ("network", "network_ce", "forest_1_100", "extra_trees_1_100", "boosting", "logistic")
"""Whom a careful user chooses from, by the metric out of fold with a tuned rule."""
UNIT = ["table", "split", "metric"]


def results(file: Path = RESULTS) -> pd.DataFrame:
    """One row per unit, one column per setting ``members/combination/rule``; the careful user's picks among them."""
    rows = pd.read_csv(file)
    rows["setting"] = rows["members"] + "/" + rows["combination"] + "/" + rows["rule"]
    wide = rows.pivot_table(index=UNIT, columns="setting", values="test")
    for rule in ("tuned", "half:0.5"):
        singles = rows[rows["members"].isin([f"single:{m}" for m in CAREFUL]) & (rows["rule"] == rule)]
        complete = singles.groupby(UNIT)["members"].transform("nunique") == len(CAREFUL)
        singles = singles[complete]
        picked = singles.loc[singles.groupby(UNIT)["held_out"].idxmax()].set_index(UNIT)["test"]
        wide[f"careful user//{rule}"] = picked
    return wide


def differences(wide: pd.DataFrame, setting: str, reference: str) -> dict[str, tuple[float, float, int]]:
    """Mean and standard error over tables, and their number, for each metric and all three."""
    both = (wide[setting] - wide[reference]).dropna()
    found = {}
    for metric in (*METRICS, "all"):
        part = both if metric == "all" else both[both.index.get_level_values("metric") == metric]
        means = part.groupby(level="table").mean()
        error = means.std(ddof=1) / np.sqrt(len(means)) if len(means) > 1 else np.nan
        found[metric] = (float(means.mean()), float(error), len(means))
    return found


def contrast(wide: pd.DataFrame, pairs: list[tuple[str, str]]) -> dict[str, tuple[float, float, int]]:
    """The mean of several paired differences, such as one set of members against another over combinations."""
    known = [(a, b) for a, b in pairs if a in wide and b in wide]
    if not known:
        return {}
    mean = sum(wide[a] - wide[b] for a, b in known) / len(known)
    return differences(pd.DataFrame({"mean": mean, "none": 0.0 * mean}), "mean", "none")


def line(title: str, found: dict[str, tuple[float, float, int]]) -> str:
    if not found:
        return f"| {title} | | | | | 0 |"
    cells = [f"{found[m][0]:+.2f} ± {found[m][1]:.2f}" for m in (*METRICS, "all")]
    return f"| {title} | {' | '.join(cells)} | {found['all'][2]} |"


HEAD = "| | F1 | MCC | balanced accuracy | all three | tables |\n|---|---|---|---|---|---|"


def sections(wide: pd.DataFrame) -> str:
    """One table for each question."""
    text = []

    def section(title: str, lines: list[tuple[str, list[tuple[str, str]]]]) -> None:
        found = [(name, contrast(wide, pairs)) for name, pairs in lines]
        found.sort(key=lambda pair: -pair[1]["all"][0] if pair[1] else 99)
        text.append("\n".join([f"### {title}", "", HEAD, *(line(*pair) for pair in found)]))

    def other_set(label: str, instead: str = "base") -> list[tuple[str, str]]:
        return [(f"{label}/{c}/{r}", f"{instead}/{c}/{r}") for c in SOME for r in ("half:0.5",)]

    rules = [rule for rule in RULES if rule != "tuned"]
    section(
        "Rules against tuned on labels (mean over five combinations)",
        [(rule, [(f"base/{c}/{rule}", f"base/{c}/tuned") for c in SOME]) for rule in rules],
    )
    section(
        "Combinations against uniform (mean over tuned, half 0.5 and half 1)",
        [(c, [(f"base/{c}/{r}", f"base/uniform/{r}") for r in (*FEW_RULES, "half:1.0")]) for c in COMBINATIONS],
    )
    section(
        "Members against the base set (mean over five combinations, half 0.5)",
        [(label, other_set(label)) for label in SETS if label != "base"],
    )
    section(
        "Single members, half rule 0.5, against the forest's",
        [(m, [(f"single:{m}/uniform/half:0.5", "single:forest_1_100/uniform/half:0.5")]) for m in SINGLES],
    )
    candidates = [f"base/{c}/{r}" for c in COMBINATIONS for r in (*FEW_RULES, "half:1.0")]
    for reference in ("base/uniform/tuned", "careful user//tuned", "careful user//half:0.5"):
        section(f"Against {reference}", [(c, [(c, reference)]) for c in candidates])
    return "\n\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+")
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    wide = results(args.results)
    if args.tables:
        wide = wide[wide.index.get_level_values("table").isin(args.tables)]
    units = wide.index.droplevel("metric").unique()
    print(f"{len(units)} splits of {len(units.get_level_values('table').unique())} tables.\n")
    print(sections(wide))


if __name__ == "__main__":
    main()
