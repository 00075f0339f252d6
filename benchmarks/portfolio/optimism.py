"""Are out-of-fold scores of boosting that was stopped on its fold too good, and what does each member cost?

python -m benchmarks.portfolio.optimism
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from benchmarks.portfolio.combining import log_loss
from benchmarks.portfolio.fitting import CACHE, load_unit

MEMBERS = ("boosting", "boosting_last", "boosting_inner", "forest_1_100", "network_ce", "network_f1")


def main() -> None:
    losses, costs = [], []
    for folder in sorted(CACHE.glob("*/*")):
        table, split = folder.parent.name, int(folder.name)
        unit = load_unit(CACHE, table, split)
        for member, (held_out, test, cpu) in unit["members"].items():
            costs.append((len(unit["y"]), member, cpu))
            if member in MEMBERS:
                inside, outside = log_loss(held_out, unit["y"]), log_loss(test, unit["y_test"])
                losses.append((table, split, len(unit["y"]) < 1000, member, inside, outside))
    frame = pd.DataFrame(losses, columns=["table", "split", "small", "member", "out of fold", "test"])
    frame["optimism"] = frame["test"] - frame["out of fold"]
    by_table = frame.groupby(["small", "member", "table"])[["out of fold", "test", "optimism"]].mean()
    summary = by_table.groupby(["small", "member"]).agg(["mean", "sem"])
    print("Log-loss by member; small: under 1,000 training rows\n", summary.round(4).to_string(), "\n")
    cost = pd.DataFrame(costs, columns=["rows", "member", "cpu"])
    cost["rows"] = pd.cut(cost["rows"], [0, 500, 2000, 10_000])
    print("CPU seconds, median\n", cost.pivot_table("cpu", "member", "rows", aggfunc="median", observed=True).round(1))
    print(np.unique(frame["table"]).size, "tables")


if __name__ == "__main__":
    main()
