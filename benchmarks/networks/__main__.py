"""``python -m benchmarks.networks run`` and ``python -m benchmarks.networks table``."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_union
from sklearn.preprocessing import FunctionTransformer

from benchmarks.data import load
from metricfit import MetricClassifier, Recipe
from metricfit.data import TablePreprocessor

RESULTS = Path(__file__).parent / "results.csv"
DATASETS = (
    "fars", "connect4", "letter", "nursery", "kddcup99_10pct", "glass", "haberman", "keel/abalone9-18",
    "keel/kr-vs-k-three_vs_eleven", "keel/vehicle0",
)  # fmt: skip
TRAIN_ROWS, TEST_ROWS, FEWEST = 4000, 4000, 15


class PiecewiseLinear(FunctionTransformer):  # type: ignore[misc]
    """Piecewise-linear encoding (Gorishniy et al. 2022): for each bin between quantiles, how much of it is passed."""

    def __init__(self, bins: int = 8) -> None:
        super().__init__()
        self.bins = bins

    def fit(self, X: Any, y: Any = None) -> PiecewiseLinear:
        values = np.asarray(X, dtype=np.float64)
        ranks = np.linspace(0, 1, self.bins + 1)
        self.edges_ = [np.unique(np.nanquantile(column, ranks)) for column in values.T]
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        values = np.asarray(X, dtype=np.float64)
        parts = [np.empty((len(values), 0))]
        for column, edges in zip(values.T, self.edges_, strict=True):
            if len(edges) > 2:
                filled = np.where(np.isnan(column), edges[len(edges) // 2], column)[:, None]
                parts.append(np.clip((filled - edges[:-1]) / np.diff(edges), 0, 1))
        return np.hstack(parts).astype(np.float32)


def _features(bins: int) -> Any:
    numbers = make_column_selector(dtype_include="number")
    encoded = make_column_transformer((PiecewiseLinear(bins), numbers), remainder="drop")
    return make_union(TablePreprocessor(random_state=0), encoded)


def _network(seed: int, metric: str, bins: int = 0, **parts: Any) -> Any:
    preprocess = _features(bins) if bins else "auto"
    return MetricClassifier(
        metric, recipe=Recipe(**parts), preprocess=preprocess, baseline=False, random_state=seed, verbose=False
    )


VARIANTS: dict[str, Callable[[int, str], Any]] = {
    "default": lambda seed, metric: _network(seed, metric),
    "piecewise 8": lambda seed, metric: _network(seed, metric, 8),
    "256-128": lambda seed, metric: _network(seed, metric, hidden_sizes=(256, 128)),
    "piecewise 8, 256-128, dropout 0.2": lambda seed, metric: _network(
        seed, metric, 8, hidden_sizes=(256, 128), dropout=0.2
    ),
    "dropout 0.25": lambda seed, metric: _network(seed, metric, dropout=0.25),
}


def _part(name: str, seed: int) -> tuple[Any, Any, Any, Any]:
    data = load(name)
    labels = np.asarray(data.y)
    found, counts = np.unique(labels, return_counts=True)
    kept = np.isin(labels, found[counts >= FEWEST])
    X, y = data.X[kept].reset_index(drop=True), np.unique(labels[kept], return_inverse=True)[1]
    text = [column for column in X if X[column].dtype.kind not in "biuf"]
    X = X.astype(dict.fromkeys(text, "category"))
    rows = np.random.default_rng(seed).permutation(len(y))
    if len(y) > TRAIN_ROWS + TEST_ROWS:
        frequent = [r for k in np.unique(y) for r in rows[y[rows] == k][: max(FEWEST, int((y == k).mean() * 8000))]]
        X, y = X.iloc[frequent].reset_index(drop=True), y[frequent]
    size = TEST_ROWS if len(y) >= TRAIN_ROWS + TEST_ROWS else 0.3
    return tuple(train_test_split(X, y, test_size=size, stratify=y, random_state=seed))  # type: ignore[return-value]


def run(variants: list[str], datasets: list[str], splits: int, metric: str, results: Path) -> None:
    """Fit what is missing and append it."""
    torch.set_num_threads(1)
    there = set()
    if results.exists():
        old = pd.read_csv(results)
        there = set(zip(old.dataset, old.split, old.variant, old.metric, strict=True))
    for split in range(splits):
        for name in datasets:
            X, X_test, y, y_test = _part(name, split)
            for variant in variants:
                if (name, split, variant, metric) in there:
                    continue
                started = time.process_time()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    model = VARIANTS[variant](split, metric).fit(X, y)
                row = {
                    "dataset": name, "split": split, "variant": variant, "metric": metric,
                    "value": round(float(model.score(X_test, y_test)), 5),
                    "cpu_seconds": round(time.process_time() - started, 2), "train_rows": len(y),
                }  # fmt: skip
                pd.DataFrame([row]).to_csv(results, mode="a", header=not results.exists(), index=False)
                print(*row.values(), file=sys.stderr)


def table(results: Path) -> str:
    """Differences from the default in points, paired by split; mean and standard error over data sets."""
    rows = pd.read_csv(results)
    values = rows.pivot_table(index=["metric", "dataset", "split"], columns="variant", values="value")
    seconds = rows.groupby("variant").cpu_seconds.mean()
    gains = values.sub(values["default"], axis=0).drop(columns="default") * 100
    by_set = gains.groupby(["metric", "dataset"]).mean()
    lines = [
        "| metric | variant | mean gain ± s.e. over sets | sets better / worse | CPU time |",
        "|---|---|---|---|---|",
    ]
    for metric, part in by_set.groupby("metric"):
        for variant in part:
            x = part[variant].dropna()
            error = x.std() / max(len(x), 1) ** 0.5
            lines.append(
                f"| {metric} | {variant} | {x.mean():+.2f} ± {error:.2f} | {(x > 0).sum()} / {(x < 0).sum()} | "
                f"{seconds[variant] / seconds['default']:.2f} × |"
            )
    return "\n".join(lines) + "\n\n" + by_set.round(2).to_string()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.networks", description=__doc__)
    parser.add_argument("command", choices=["run", "table"])
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--metric", default="f1")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.command == "run":
        run(options.variants, options.datasets, options.splits, options.metric, options.results)
    print(table(options.results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
