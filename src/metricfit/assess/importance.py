"""Which columns the decisions depend on: how much worse the metric gets when one of them is shuffled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from metricfit.assess.intervals import Decided, difference
from metricfit.assess.scores import scores_of
from metricfit.metrics import MetricLike, resolve

__all__ = ["permutation_importance"]


def permutation_importance(
    classifier: Any, X: pd.DataFrame, y: ArrayLike, *, metric: MetricLike | None = None,
    sample_weight: ArrayLike | None = None, repeats: int = 5, random_state: int = 0,
) -> pd.DataFrame:  # fmt: skip
    """How much each column of a table is worth to a fitted classifier, in the metric itself.

    The values of a column are shuffled among the rows, everything else stays, and the drop of the metric is measured.
    Columns that tell the same can stand in for each other: each of them then looks less important than both are.

    Args:
        classifier: A fitted :class:`metricfit.MetricClassifier`.
        X: Rows that it was not trained on, with its columns.
        y: Their labels.
        metric: What is measured; the classifier's own metric if it is not given.
        sample_weight: Weights of the rows.
        repeats: How often each column is shuffled; drops and ends of intervals are means over them.
        random_state: Seed of the shuffling.

    Returns:
        One row per column, the most important first: column, drop, low and high (95 % interval, paired row by row).

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from metricfit import MetricClassifier
        >>> X, y = load_iris(return_X_y=True, as_frame=True)
        >>> clf = MetricClassifier("f1", models="boosting", cv=2, random_state=0).fit(X[::2], y[::2])
        >>> found = permutation_importance(clf, X[1::2], y[1::2], repeats=2)
        >>> found["column"].iloc[0].startswith("petal")
        True
    """
    if repeats < 1:
        raise ValueError(f"repeats: expected at least 1, got {repeats}.")
    scores, labels = scores_of(classifier, X, y, sample_weight), tuple(classifier.classes_.tolist())
    judged = classifier.metric_ if metric is None else resolve(metric, labels, classifier.task_)[0]
    ours = Decided(scores.truth, scores.decided, labels, scores.proba, scores.weight)
    random = np.random.default_rng(random_state)
    orders = [random.permutation(len(X)) for _ in range(repeats)]
    rows = []
    for column in X.columns:
        drops = []
        for order in orders:
            shuffled = X.copy()
            shuffled[column] = X[column].iloc[order].set_axis(X.index)
            other = scores_of(classifier, shuffled, y, sample_weight)
            theirs = Decided(other.truth, other.decided, labels, other.proba, other.weight)
            drops.append(difference(judged, ours, theirs))
        rows.append((str(column), *np.mean([(d.value, d.low, d.high) for d in drops], axis=0).tolist()))
    frame = pd.DataFrame(rows, columns=["column", "drop", "low", "high"])
    return frame.sort_values("drop", ascending=False, kind="stable", ignore_index=True)
