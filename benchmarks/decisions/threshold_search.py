"""The exact sweep beside scikit-learn's TunedThresholdClassifierCV: value found and time, one run each.

Both get the same scores of a fitted model (two normal distributions, 2 % positives) and choose a cut-off on them;
scikit-learn tries 100 cut-offs by default, or as many as told. Writes threshold_search.csv and threshold_search.md.

    python benchmarks/decisions/threshold_search.py
"""

from __future__ import annotations

import platform
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sklearn
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import make_scorer, matthews_corrcoef
from sklearn.model_selection import TunedThresholdClassifierCV

from metricfit import metrics
from metricfit.decisions import best_threshold

HERE = Path(__file__).parent
SCORERS = {"f1": "f1", "balanced_accuracy": "balanced_accuracy", "mcc": make_scorer(matthews_corrcoef)}


class Scores(ClassifierMixin, BaseEstimator):
    """A fitted classifier whose probability is its only feature."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> Scores:
        self.classes_ = np.array([0, 1])
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return np.column_stack([1 - X[:, 0], X[:, 0]])

    def predict(self, X: np.ndarray) -> np.ndarray:
        return (X[:, 0] >= 0.5).astype(int)


def sample(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = (rng.random(n) < 0.02).astype(int)
    margin = 2.0 * (rng.normal(size=n) + 2.0 * y) - 2.0 + np.log(0.02 / 0.98)
    return y, 1 / (1 + np.exp(-margin))


def exact(y: np.ndarray, score: np.ndarray, name: str) -> dict[str, object]:
    best, *times = timed(lambda: best_threshold(y, score, name))
    return row("metricfit, exact", best.cutoffs, best.value, *times)


def sklearns(y: np.ndarray, score: np.ndarray, name: str, cutoffs: int) -> dict[str, object]:
    model = Scores().fit(score[:, None], y)
    tuner = TunedThresholdClassifierCV(model, scoring=SCORERS[name], thresholds=cutoffs, cv="prefit", refit=False)
    _, *times = timed(lambda: tuner.fit(score[:, None], y))
    value = metrics.get(name).score(y, (score >= tuner.best_threshold_).astype(int))
    return row("TunedThresholdClassifierCV", cutoffs, value, *times)


def timed(run: Callable[[], Any]) -> tuple[Any, float, float]:
    """What ``run`` returns, its seconds by the clock and its seconds of processor time."""
    clock, processor = time.perf_counter(), time.process_time()
    result = run()
    return result, time.perf_counter() - clock, time.process_time() - processor


def row(search: str, cutoffs: int, value: float, seconds: float, cpu_seconds: float) -> dict[str, object]:
    return {"search": search, "cutoffs": cutoffs, "value": value, "seconds": seconds, "cpu_seconds": cpu_seconds}


def main() -> None:
    rows = []
    for n in (10_000, 1_000_000):
        y, score = sample(n)
        for name in SCORERS:
            found = [exact(y, score, name), sklearns(y, score, name, 100)]
            if n == 10_000:
                found.append(sklearns(y, score, name, 1000))
            rows += [{"samples": n, "metric": name, **one} for one in found]
    y, score = sample(10_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name in SCORERS:
        rows.append({"samples": 10_000_000, "metric": name, **exact(y, score, name)})
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e6
    frame = pd.DataFrame(rows)
    frame["threads"] = torch.get_num_threads()
    frame["versions"] = (
        f"Python {platform.python_version()}, scikit-learn {sklearn.__version__}, torch {torch.__version__}"
    )
    frame.round({"value": 6, "seconds": 3, "cpu_seconds": 3}).to_csv(HERE / "threshold_search.csv", index=False)
    lines = [
        "| samples | metric | search | cut-offs | value found | seconds | of processor time |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.samples:,} | {r.metric} | {r.search} | {r.cutoffs:,} | {r.value:.5f} | {r.seconds:.2f} "
        f"| {r.cpu_seconds:.2f} |"
        for r in frame.itertuples()
    ]
    (HERE / "threshold_search.md").write_text(
        f"""# The exact sweep beside scikit-learn's tuner

Written by `threshold_search.py`: one run each, {torch.get_num_threads()} threads, {frame["versions"][0]}. Same scores
for both, 2 % positives; the value is that of the cut-off on these scores. The machine was shared with other work: the
processor time is the fairer number.

{chr(10).join(lines)}

At ten million samples the searches added {memory:.1f} GB to the process's peak memory.
"""
    )


if __name__ == "__main__":
    main()
