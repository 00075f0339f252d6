"""What a fit costs: beside the same loop with cross-entropy, beside scikit-learn's MLPClassifier, and in memory.

``python benchmarks/speed/fit.py`` writes ``fit.csv`` beside it. All times are processor times of one thread, medians
of interleaved repetitions with their range, so that other work on the machine matters little; only their ratios are
kept. Data: adult (OpenML, or ``METRICFIT_DATA``); a million rows of random numbers for the memory.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.neural_network import MLPClassifier

from metricfit import MetricClassifier
from metricfit.data import TablePreprocessor, load

RESULTS = Path(__file__).parent / "fit.csv"
EPOCHS = 5


def _ratio(one: Callable[[], Any], other: Callable[[], Any], repetitions: int) -> list[float]:
    """Processor times of ``one`` over those of ``other``, in turn."""
    ratios = []
    for _ in range(repetitions):
        times = []
        for job in (one, other):
            started = time.process_time()
            job()
            times.append(time.process_time() - started)
        ratios.append(times[0] / times[1])
    return ratios


def _epochs(X: Any, y: Any, **options: Any) -> Callable[[], Any]:
    model = MetricClassifier(
        preprocess=None, baseline=False, verbose=False, random_state=0, device="cpu", max_epochs=EPOCHS, min_steps=0,
        **options,
    )  # fmt: skip
    return lambda: model.fit(X, y)


def ratios(repetitions: int) -> list[dict[str, Any]]:
    """Of fits of five epochs on adult."""
    torch.set_num_threads(1)
    data = load("adult")
    y = np.asarray(data.y)
    X = TablePreprocessor(random_state=0).fit_transform(data.X, y)
    rows = []

    def note(what: str, found: list[float]) -> None:
        rows.append({"what": what, "median": round(float(np.median(found)), 3), "low": round(min(found), 3),
                     "high": round(max(found), 3), "repetitions": len(found)})  # fmt: skip
        print(rows[-1], file=sys.stderr)

    for members, cv in ((5, 5), (1, None)):
        for metric in ("f1", "mcc"):
            found = _ratio(
                _epochs(X, y, metric=metric, cv=cv), _epochs(X, y, recipe="cross_entropy", cv=cv), repetitions
            )
            note(f"epochs on {metric} / on cross-entropy, networks: {members}", found)
    for kind in (np.float32, np.float64):
        for batch in (512, 200):
            table = X.astype(kind)
            usual = MLPClassifier((128, 64), batch_size=batch, max_iter=EPOCHS, random_state=0)
            five = _epochs(X, y, metric="f1", cv=5, batch_size=batch, dropout=0.0)
            name = f"MLPClassifier ({kind.__name__}) / a network of five trained together, batch {batch}"
            found = [5 * r * 0.8 for r in _ratio(lambda m=usual, t=table: m.fit(t, y), five, repetitions)]
            note(name + ", same rows", found)
    return rows


def memory() -> list[dict[str, Any]]:
    """Peak of a fit on a million rows of 50 float32 columns, in a process of its own."""
    code = """
import resource, numpy as np, torch, warnings
warnings.simplefilter("ignore"); torch.set_num_threads(1)
from metricfit import MetricClassifier
r = np.random.default_rng(0)
X = r.standard_normal((1_000_000, 50), dtype=np.float32); y = (X[:, 0] + r.standard_normal(1_000_000) > 1.5).astype(int)
MetricClassifier("f1", max_epochs=1, max_steps=5, baseline=False, cv=None, device="cpu").fit(X[:5000], y[:5000])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
MetricClassifier("f1", max_epochs=1, min_steps=0, baseline=False, verbose=False, device="cpu").fit(X, y)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / X.nbytes)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    value = round(float(out), 2)
    return [{"what": "peak of fit on 1,000,000 x 50 float32, beyond X itself, in sizes of X", "median": value,
             "low": value, "high": value, "repetitions": 1}]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = ratios(options.repetitions) + memory()
    pd.DataFrame(rows).to_csv(RESULTS, index=False)
    print(pd.DataFrame(rows).to_markdown(index=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
