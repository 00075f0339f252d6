"""Does the scaling of adult's integer codes explain the papers' SVM-perf and CCS?

``python -m benchmarks.papers.checks.adult_scaling`` writes accuracy and F1 on one test part to adult_scaling.csv beside
itself, for features that are standardised, left as they are, or brought to [0, 1]. SVM-perf sees 4,000 training rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import f1_score
from sklearn.preprocessing import MinMaxScaler

from benchmarks.papers import data
from metricfit.models import ConvexCalibratedSurrogates, SVMPerf
from metricfit.models.linear import CUTS

Array = NDArray[np.float64]
FILE = Path(__file__).with_suffix(".csv")
ROWS = 4000
WEIGHTS = (0.01, 1.0, 100.0)


def main() -> None:
    problem = data.load("adult", encoding="integer")
    rows = []
    for scaling in ("standardised", "as they are", "0 to 1"):
        parts = data.split(problem, (0.64, 0.16, 0.20), seed=0, scale=scaling == "standardised")
        (X, y), (X_test, y_test) = (
            (part[0].numpy().astype(float), part[1].numpy()) for part in (parts.train, parts.test)
        )
        if scaling == "0 to 1":
            scaler = MinMaxScaler().fit(X)
            X, X_test = scaler.transform(X), scaler.transform(X_test)
        for method, C, decided in decisions(X, y, X_test):
            rows.append({
                "features": scaling, "method": method, "C": C, "accuracy": np.mean(decided == y_test),
                "f1": f1_score(y_test, decided, zero_division=0),
                "macro_f1": f1_score(y_test, decided, average="macro"),
            })  # fmt: skip
    pd.DataFrame(rows).round(5).to_csv(FILE, index=False)
    print(pd.DataFrame(rows).round(3).to_string(index=False))


def decisions(X: Array, y: NDArray[np.int64], X_test: Array) -> Iterator[tuple[str, float, NDArray[np.int64]]]:
    """Methods, their C, and the classes they give."""
    few = np.random.default_rng(0).permutation(len(y))[:ROWS]
    for loss in CUTS:
        for C in WEIGHTS:
            machine = SVMPerf(loss, C=C, max_iter=200).fit(X[few], y[few])
            yield f"SVM-perf, {loss}", C, machine.predict(X_test)
    for C in WEIGHTS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # of raw features; their numbers are the question
            model = ConvexCalibratedSurrogates(C).fit(X, np.eye(2)[y])
        yield "CCS", C, model.predict_proba(X_test).argmax(axis=1)


if __name__ == "__main__":
    main()
