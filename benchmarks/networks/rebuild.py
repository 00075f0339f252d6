"""The networks alone, before the package was rebuilt and now: the same splits and seeds on three sets.

    python -m benchmarks.networks.rebuild          # fits again and writes rebuild.csv
    python -m benchmarks.networks.rebuild --table  # prints the differences of the rows that are there

The column ``before`` is what the package reached before its rebuild (commit 5273bfb); it is kept, not computed.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.model_selection import train_test_split

from benchmarks.data import load
from metricfit import MetricClassifier, metrics

RESULTS = Path(__file__).parent / "rebuild.csv"


def fitted_again(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with the values and processor seconds of the present package."""
    torch.set_num_threads(1)
    for i, row in rows.iterrows():
        data = load(row["table"].replace("--", "/"))
        text = [column for column in data.X if data.X[column].dtype.kind not in "biuf"]
        X = data.X.astype(dict.fromkeys(text, "category")).reset_index(drop=True)
        names, y = np.unique(np.asarray(data.y), return_inverse=True)
        train, test = train_test_split(np.arange(len(y)), test_size=0.2, stratify=y, random_state=row["split"])
        options = {"models": "network", "baseline": False, "n_jobs": 1, "verbose": False, "random_state": row["split"]}
        started = time.process_time()
        model = MetricClassifier(row["metric"], **options).fit(X.iloc[train], y[train])
        decided = model.predict(X.iloc[test])
        rows.loc[i, "cpu_now"] = round(time.process_time() - started, 3)
        value = metrics.get(row["metric"]).score(y[test], decided, labels=tuple(range(len(names))))
        rows.loc[i, "now"] = round(float(value), 6)
    return rows


def compared(rows: pd.DataFrame) -> pd.DataFrame:
    """Differences in points: mean and standard error over splits."""
    gap = (100 * (rows["now"] - rows["before"])).groupby([rows["table"], rows["metric"]])
    return gap.agg(["mean", "sem", "size"]).round(2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="only print the differences of the rows that are there")
    if not parser.parse_args().table:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted_again(pd.read_csv(RESULTS)).to_csv(RESULTS, index=False)
    print(compared(pd.read_csv(RESULTS)).to_string())


if __name__ == "__main__":
    main()
