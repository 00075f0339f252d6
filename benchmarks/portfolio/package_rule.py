"""The package's half rule beside the study's: the same ensembles, the same rows.

python -m benchmarks.portfolio.package_rule
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pandas as pd

from benchmarks.portfolio.combining import shrunk
from benchmarks.portfolio.deciding import decide, score
from benchmarks.portfolio.evaluating import BASE, METRICS
from benchmarks.portfolio.fitting import CACHE, load_unit
from metricfit.decisions import best_rule


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+")
    args = parser.parse_args()
    rows = []
    for folder in sorted(CACHE.glob("*/*")):
        unit = load_unit(CACHE, folder.parent.name, int(folder.name))
        if args.tables and folder.parent.name not in args.tables:
            continue
        for metric in METRICS:
            names = [f"network_{metric}" if member == "network" else member for member in BASE]
            if any(name not in unit["members"] for name in names):
                continue
            held_out, test = (np.array([unit["members"][name][part] for name in names]) for part in (0, 1))
            y, y_test, classes = unit["y"], unit["y_test"], held_out.shape[2]
            a, b = shrunk(held_out, y, test, metric)
            start = time.process_time()
            ours = score(metric, y_test, decide("half:0.5", metric, a, y, b), classes)
            middle = time.process_time()
            rule = best_rule(y, a, metric, labels=range(classes), belief=0.5).rule
            theirs = score(metric, y_test, np.asarray(rule.apply(b)), classes)
            end = time.process_time()
            rows.append((folder.parent.name, classes, metric, 100 * ours, 100 * theirs, middle - start, end - middle))
    columns = ["table", "classes", "metric", "study", "package", "study s", "package s"]
    frame = pd.DataFrame(rows, columns=columns)
    frame["package - study"] = frame["package"] - frame["study"]
    print(frame.groupby(["classes", "table"])[["package - study", "study s", "package s"]].mean().round(3).to_string())
    by_table = frame.groupby("table")["package - study"].mean()
    print(f"package - study: {by_table.mean():+.2f} ± {by_table.sem():.2f} points, {len(by_table)} tables")


if __name__ == "__main__":
    main()
