"""Values over repeated random splits: their mean, and the leaderboard of a comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from metricfit.assess.intervals import Estimate, tails

__all__ = ["leaderboard", "over_splits"]


def over_splits(values: Sequence[float], test_share: float) -> Estimate:
    """The mean of values of repeated random splits, with the interval of *another training on other rows*.

    The splits overlap, so their values are not independent: the variance of the mean over k splits is taken as
    (1/k + test share / training share) times that of the values (Nadeau and Bengio, 2003).

    >>> str(over_splits([0.5, 0.52, 0.54], 0.2))
    '0.520 (0.454 to 0.586)'
    """
    k = len(values)
    if k < 2:
        return Estimate(float(np.mean(values)) if k else math.nan)
    spread = math.sqrt(float(np.var(values, ddof=1)) * (1 / k + test_share / (1 - test_share)))
    half, mean = float(stats.t.ppf(tails()[1], k - 1)) * spread, float(np.mean(values))
    return Estimate(mean, mean - half, mean + half)


def leaderboard(
    results: list[dict[str, Any]], methods: list[str], greater_is_better: bool, *, test_share: float = 0.2
) -> list[dict[str, Any]]:
    """Methods from best to worst: mean, interval, paired difference to the first method, mean seconds.

    Args:
        results: One row per split and method: split, method, value, seconds and error (empty if it worked).
        methods: Methods in order; the differences are to the first.
        greater_is_better: The metric's direction.
        test_share: The share of the rows that each split tests on, see :func:`metricfit.assess.over_splits`.

    >>> rows = [
    ...     {"split": s, "method": m, "value": v + s / 100, "seconds": 1.0, "error": ""}
    ...     for s in range(3)
    ...     for m, v in (("a", 0.5), ("b", 0.6))
    ... ]
    >>> [
    ...     (row["method"], round(row["mean"], 2), round(row["difference"], 2))
    ...     for row in leaderboard(rows, ["a", "b"], True)
    ... ]
    [('b', 0.61, 0.1), ('a', 0.51, 0.0)]
    """
    frame = pd.DataFrame(results)
    frame = frame[frame["error"] == ""]
    values = frame.pivot_table(index="split", columns="method", values="value")
    board = []
    for method in [m for m in methods if m in values]:
        own = values[method].dropna()
        mean = over_splits(own.tolist(), test_share)
        paired = (values[method] - values[methods[0]]).dropna() if methods[0] in values else own[:0]
        gap = over_splits(paired.tolist(), test_share)
        seconds = float(frame[frame["method"] == method]["seconds"].mean())
        board.append(
            {"method": method, "mean": mean.value, "low": mean.low, "high": mean.high, "splits": len(own),
             "difference": gap.value if len(paired) else math.nan, "difference_low": gap.low,
             "difference_high": gap.high, "seconds": seconds}
        )  # fmt: skip
    return sorted(board, key=lambda row: -row["mean"] if greater_is_better else row["mean"])
