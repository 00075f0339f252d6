"""Scores of new rows, in the form in which held-out scores are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metricfit.training.scores import HeldOutScores, codes_of

__all__ = ["class_codes", "scores_of"]


def scores_of(
    classifier: Any,
    X: Any,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    source: str = "rows",
    baseline: Any = None,
) -> HeldOutScores:
    """What a classifier, and one trained with cross-entropy, say about labelled rows.

    Args:
        classifier: The fitted classifier.
        X: The rows.
        y: Their labels, of the classifier's classes, or 0/1 (n, labels).
        sample_weight: Weights, or None.
        source: Which rows these are, in words.
        baseline: A classifier trained with cross-entropy, whose rule is tuned.
    """
    proba = np.asarray(classifier.predict_raw_proba(X))
    raw = None if baseline is None else np.asarray(baseline.predict_raw_proba(X))
    return HeldOutScores(
        truth=class_codes(y, classifier.classes_, several=classifier.task_ == "multilabel"),
        proba=proba.astype(np.float32),
        decided=codes_of(classifier.decision_rule_, proba),
        baseline=None if raw is None else raw.astype(np.float32),
        baseline_tuned=None if raw is None else codes_of(baseline.decision_rule_, raw),
        weight=None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64),
        source=source,
    )


def class_codes(y: ArrayLike, classes: NDArray[Any], *, several: bool = False) -> NDArray[np.int64]:
    """Labels as positions among the classes; indicators stay.

    >>> class_codes(["b", "a"], np.array(["a", "b"]))
    array([1, 0])
    """
    truth = np.asarray(y)
    if several:
        return truth.astype(np.int64)
    place = {label: k for k, label in enumerate(classes.tolist())}
    try:
        return np.array([place[label] for label in truth.tolist()], dtype=np.int64)
    except KeyError as error:
        raise ValueError(f"y: the label {error.args[0]!r} is none of the classifier's classes.") from None
