"""What the default portfolio costs: fits of 150 rows, 1,000 x 20 and adult (49k x 14), and predicting a million rows.

``python -m benchmarks.portfolio.speed`` writes ``speed.csv`` beside it. Every fit is ``MetricClassifier("f1")`` with
default parameters in a process of its own, imports not counted. Seconds of the clock depend on what else the machine
does (``load`` is the mean number of processes before each run); processor seconds hardly do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_iris, make_classification

from benchmarks.data import load

__all__ = ["GOALS", "measured"]

RESULTS = Path(__file__).parent / "speed.csv"

GOALS = {
    "150 rows": {"fit": ("processor_seconds", 5)},
    "1,000 x 20": {"fit": ("processor_seconds", 15)},
    "adult": {"fit": ("seconds", 180), "predict 1,000,000 rows": ("seconds", 60)},
}
"""What each part may take at most; issue 19 states the goals."""


def table(name: str) -> tuple[Any, Any]:
    """Rows and labels."""
    if name == "150 rows":
        return load_iris(return_X_y=True)
    if name == "1,000 x 20":
        return make_classification(1000, 20, n_informative=8, random_state=0)
    data = load("adult")
    return data.X, np.asarray(data.y)


def measured(name: str) -> list[dict[str, Any]]:
    """One fit, and predictions of a million rows for adult, with the time of each."""
    from metricfit import MetricClassifier

    X, y = table(name)
    found = []

    def timed(part: str, job: Any) -> Any:
        load_before, wall, cpu = os.getloadavg()[0], time.perf_counter(), time.process_time()
        result = job()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        kind, goal = GOALS[name][part]
        row = {"table": name, "part": part, "seconds": round(wall, 1), "processor_seconds": round(cpu, 1)}
        found.append({**row, "load": round(load_before, 1), "goal": goal, "goal_is_for": kind})
        return result

    classifier = timed("fit", lambda: MetricClassifier("f1", verbose=False, random_state=0).fit(X, y))
    if name == "adult":
        many = X.iloc[np.arange(1_000_000) % len(X)].reset_index(drop=True)
        timed("predict 1,000,000 rows", lambda: classifier.predict(many))
    return found


def main() -> int:
    if len(sys.argv) > 1:
        warnings.simplefilter("ignore")
        print(json.dumps(measured(sys.argv[1])))
        return 0
    rows: list[dict[str, Any]] = []
    for name in GOALS:
        run = [sys.executable, "-m", "benchmarks.portfolio.speed", name]
        rows += json.loads(subprocess.run(run, stdout=subprocess.PIPE, text=True, check=True).stdout)
        print(rows[-1], file=sys.stderr, flush=True)
    frame = pd.DataFrame(rows).assign(cores=os.cpu_count())
    frame.to_csv(RESULTS, index=False)
    print(frame.to_string(index=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
