"""Compare a method's rows in another folder with the committed ones, split by split.

    python -m benchmarks.suite.against benchmarks/suite/rebuild --method default

Use it after a change that must not change quality: the same splits and seeds before and after, paired differences in
points with their standard error over splits, and the ratio of the CPU times (on whatever machines they were run).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

COMMITTED = Path(__file__).parent / "results"
KEYS = ["dataset", "configuration", "split", "metric", "method"]


def compared(folder: Path, method: str) -> pd.DataFrame:
    """One row per data set and metric."""
    rows = []
    for path in sorted(folder.glob("*.csv")):
        now, before = pd.read_csv(path), pd.read_csv(COMMITTED / path.name)
        both = now[now["method"] == method].merge(before, on=KEYS, suffixes=("", "_before"))
        for (name, metric), group in both.groupby(["dataset", "metric"]):
            difference = 100 * (group["value"] - group["value_before"])
            rows.append(
                {
                    "data set": name,
                    "metric": metric,
                    "splits": len(group),
                    "before": 100 * group["value_before"].mean(),
                    "now": 100 * group["value"].mean(),
                    "difference": difference.mean(),
                    "standard error": difference.sem(),
                    "CPU time, ratio": group["cpu_seconds"].mean() / group["cpu_seconds_before"].mean(),
                }
            )
    return pd.DataFrame(rows).round(2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of CSV files, as 'run --results' writes them")
    parser.add_argument("--method", default="default")
    asked = parser.parse_args()
    print(compared(asked.folder, asked.method).to_string(index=False))


if __name__ == "__main__":
    main()
