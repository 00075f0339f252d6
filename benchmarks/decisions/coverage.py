"""How often the 95 % interval of assess/ holds the true value, on scores whose true metric is known.

Scores of two classes are normal, one standard deviation wide, `apart` apart, with 5, 10 or 30 % positives. A cut-off is
chosen for the metric on n rows ("precision": the best one with a recall of 0.8). The metric of that fixed rule on all
rows there could be is known; n new rows are drawn and judged, and the interval is right if it holds the known value.
"cross-fitted" chooses five cut-offs, each on four fifths of the judged rows, as a validation report does. "difference"
is the paired difference of two rules whose scores are correlated (0.8). Writes coverage.csv and coverage.md beside
itself, in about ten minutes.

    python benchmarks/decisions/coverage.py --repetitions 2000
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.stats import multivariate_normal, norm

from metricfit import metrics
from metricfit.assess import Decided, difference, estimate
from metricfit.confusion import ConfusionMatrix
from metricfit.decisions import best_threshold

HERE = Path(__file__).parent
SIZES = (200, 1_000, 5_000)
SHARES = (0.05, 0.1, 0.3)
APART = (1.5, 2.5)
GOALS = {"f1": "f1[1]", "mcc": "mcc", "precision": "precision[1] subject to recall[1] >= 0.8"}
FOLDS = 5

Array = NDArray[np.float64]


def true_cells(share: float, apart: float, cut: float) -> Array:
    """The shares of (tn, fp, fn, tp) when scores from ``cut`` on are called positive."""
    false, true = norm.sf(cut), norm.sf(cut - apart)
    return np.array([(1 - share) * (1 - false), (1 - share) * false, share * (1 - true), share * true])


def true_pairs(share: float, apart: float, cuts: tuple[float, float]) -> Array:
    """The shares of (truth, decision, other decision), flat, for two scores with a correlation of 0.8."""
    found = []
    for is_positive, part in ((0, 1 - share), (1, share)):
        mean = np.full(2, apart * is_positive)
        both = multivariate_normal(mean, [[1, 0.8], [0.8, 1]]).cdf(np.array(cuts))  # both below their cut-offs
        low = norm.cdf(np.array(cuts) - mean)
        found += [part * both, part * (low[0] - both), part * (low[1] - both), part * (1 - low.sum() + both)]
    return np.array(found)


def value_of(metric: metrics.Metric, cells: Array) -> float:
    """The metric of shares (tn, fp, fn, tp)."""
    return float(metric.compute(ConfusionMatrix(torch.from_numpy(cells.reshape(2, 2)), "binary", (0, 1))))


def rows_of(counts: NDArray[np.int64], columns: int) -> list[NDArray[np.int64]]:
    """Rows of 0/1 columns, so many of each combination."""
    kinds = np.stack(np.unravel_index(np.arange(len(counts)), (2,) * columns))
    return [np.repeat(kind, counts).astype(np.int64) for kind in kinds]


def draw(share: float, apart: float, n: int, random: np.random.Generator) -> tuple[NDArray[np.int64], Array]:
    """Truth and scores of n rows that have both classes."""
    while True:
        y = (random.random(n) < share).astype(np.int64)
        if 0 < y.sum() < n:
            return y, random.normal(size=n) + apart * y


def fixed(
    goal: str, share: float, apart: float, n: int, random: np.random.Generator
) -> Iterator[tuple[str, Any, float]]:
    """A rule chosen on other rows: name, estimate and truth of its metric, and of its constraint."""
    metric = metrics.get(GOALS[goal])
    cut = best_threshold(*draw(share, apart, n, random), metric).threshold
    cells = true_cells(share, apart, cut)
    rows = Decided(*rows_of(random.multinomial(n, cells), 2), (0, 1))
    objective = metric.objective if isinstance(metric, metrics.Constrained) else metric
    yield goal, estimate(metric, rows), value_of(objective, cells)
    for constraint in metric.constraints if isinstance(metric, metrics.Constrained) else ():
        yield "its recall", estimate(constraint.metric, rows), value_of(constraint.metric, cells)


def cross_fitted(
    goal: str, share: float, apart: float, n: int, random: np.random.Generator
) -> Iterator[tuple[str, Any, float]]:
    """Five rules, each chosen on the other folds: what a validation report shows."""
    metric = metrics.get(GOALS[goal])
    y, score = draw(share, apart, n, random)
    decided, cells = np.empty_like(y), np.zeros(4)
    for k in range(FOLDS):
        here = np.arange(n) % FOLDS == k
        cut = best_threshold(y[~here], score[~here], metric, labels=[0, 1]).threshold
        decided[here] = score[here] >= cut
        cells += true_cells(share, apart, cut) / FOLDS
    yield f"{goal}, cross-fitted", estimate(metric, Decided(y, decided, (0, 1))), value_of(metric, cells)


def paired(
    goal: str, share: float, apart: float, n: int, random: np.random.Generator
) -> Iterator[tuple[str, Any, float]]:
    """The difference of two rules about the same rows."""
    metric = metrics.get(GOALS[goal])
    first, second = (best_threshold(*draw(share, apart, n, random), metric).threshold for _ in range(2))
    cells = true_pairs(share, apart, (first, second))
    truth, ours, theirs = rows_of(random.multinomial(n, cells), 3)
    known = [value_of(metric, cells.reshape(2, 2, 2).sum(axis=axis).ravel()) for axis in (2, 1)]
    found = difference(metric, Decided(truth, ours, (0, 1)), Decided(truth, theirs, (0, 1)))
    yield f"{goal}, difference", found, known[0] - known[1]


def coverage(kind: Any, goal: str, share: float, apart: float, n: int, repetitions: int, seed: int = 0) -> pd.DataFrame:
    """How often the interval holds the truth, lies below it and lies above it; one row per thing estimated."""
    setting = f"{kind.__name__} {goal} {n} {share} {apart}"
    random = np.random.default_rng([seed, *setting.encode()])  # so that no two settings share their draws
    found = [row for _ in range(repetitions) for row in kind(goal, share, apart, n, random)]
    frame = pd.DataFrame(
        [(name, e.low <= truth <= e.high, e.high < truth, e.low > truth, e.high - e.low) for name, e, truth in found],
        columns=["of", "coverage", "below", "above", "width"],
    )
    table = frame.groupby("of", sort=False).mean().reset_index()
    table.insert(1, "rows", n)
    table.insert(2, "positives", share)
    table.insert(3, "apart", apart)
    return table.assign(repetitions=repetitions)


def report(table: pd.DataFrame) -> str:
    """The coverage, setting by setting: one row per thing estimated and number of rows."""
    wide = table.pivot_table(index=["of", "rows"], columns=["positives", "apart"], values="coverage", sort=False) * 100
    wide = wide.sort_index(axis=1)
    titles = [f"{share:.0%}, {apart}" for share, apart in wide.columns]
    lines = [f"| 95 % interval of | rows | {' | '.join(titles)} | mean |", "|---" * (len(titles) + 3) + "|"]
    for (name, rows), row in wide.iterrows():
        cells = ["" if np.isnan(value) else f"{value:.1f}" for value in (*row, row.mean())]
        lines.append(f"| {name} | {rows:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=2000)
    repetitions = parser.parse_args().repetitions
    started, tables = time.monotonic(), []
    for kind, goals in ((fixed, tuple(GOALS)), (cross_fitted, ("f1",)), (paired, ("f1", "mcc"))):
        for goal in goals:
            for n in SIZES:
                settings = [(s, a) for s in SHARES for a in APART] if kind is fixed else [(0.1, 1.5), (0.3, 2.5)]
                tables += [coverage(kind, goal, share, apart, n, repetitions) for share, apart in settings]
                print(f"[{time.monotonic() - started:.0f} s] {tables[-1].to_string(header=False)}", flush=True)
    table = pd.concat(tables)
    table.round(4).to_csv(HERE / "coverage.csv", index=False)
    noise = 100 * (0.95 * 0.05 / repetitions) ** 0.5
    (HERE / "coverage.md").write_text(
        f"# How often the 95 % interval holds the truth\n\n{report(table)}\n\n"
        "In per cent, for each setting of [coverage.py](coverage.py): the share of positives, and how many standard "
        f"deviations the scores of the two classes lie apart. Each is of {repetitions:,} repetitions with draws of its "
        f"own, so its standard error is {noise:.1f} points. Empty: not simulated. How often the interval lies below or "
        "above the truth, and its mean width, are in [coverage.csv](coverage.csv).\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
