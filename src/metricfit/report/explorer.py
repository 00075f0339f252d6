"""What the operating-point explorer works on: exact counts at cut-offs, or rows to decide about anew."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit._inputs import Task
from metricfit.decisions import DecisionRule
from metricfit.metrics import Constrained, Metric
from metricfit.report.curves import one_class
from metricfit.report.formula import every_metric, tree
from metricfit.store.scores import stratified_sample
from metricfit.training.scores import HeldOutScores

__all__ = ["explorer"]

_CUT_OFFS = 2000
_CUT_OFFS_OF_A_CLASS = 60
_BYTES_OF_ROWS = 1_300_000
"""Of probabilities that are embedded at most; a third more in the page, which stays below 3 MB."""
_WHOLE_ROWS = 32
"""Up to so many classes whole rows of probabilities are embedded, else the highest of each row."""
_HIGHEST = 10


def explorer(
    scores: HeldOutScores, labels: tuple[Any, ...], task: Task, metric: Metric, rule: DecisionRule
) -> dict[str, Any]:
    """The data of the explorer, ready for JSON.

    Args:
        scores: Held-out scores without gaps.
        labels: The classes.
        task: The task.
        metric: What the model was trained for.
        rule: The model's decision rule: where the explorer starts.
    """
    fixed = _FixedValues(scores, labels, task)
    greater = metric.greater_is_better
    content: dict[str, Any] = {
        "task": task,
        "labels": [str(label) for label in labels],
        "classes": list(labels),
        "metric": {"spec": _name(metric), "tree": tree(metric, labels, task, fixed), "greater": greater},
        "metrics": every_metric(labels, task, fixed),
        "rule": json.loads(rule.to_json()),
        "rows": len(scores),
    }
    if task == "binary":
        p, positive = scores.proba[:, 1], scores.truth == 1
        start = _threshold_of(rule, p)
        curve = one_class(p, positive, scores.weight, points=_CUT_OFFS, marks=[start])
        return {**content, "start": [start], "axes": [curve]}
    if task == "multilabel":
        starts = list(rule.parameter) if rule.kind == "thresholds" else [0.5] * len(labels)
        each = max(100, _CUT_OFFS // len(labels))
        axes = [
            one_class(scores.proba[:, k], scores.truth[:, k] == 1, scores.weight, points=each, marks=[starts[k]])
            for k in range(len(labels))
        ]
        return {**content, "start": starts, "axes": axes}
    axes = [
        one_class(scores.proba[:, k], scores.truth == k, scores.weight, points=_CUT_OFFS_OF_A_CLASS, marks=[])
        for k in range(len(labels))
    ]
    offsets = list(rule.parameter) if rule.kind == "offsets" else [0.0] * len(labels)
    return {**content, "start": offsets, "axes": axes, "sample": _rows(scores)}


def _name(metric: Metric) -> str:
    return str(metric.objective if isinstance(metric, Constrained) else metric)


def _threshold_of(rule: DecisionRule, score: NDArray[Any]) -> float:
    if rule.kind == "threshold":
        return float(rule.parameter)
    if rule.kind == "offsets":
        gap = rule.parameter[0] - rule.parameter[1]
        return float(1 / (1 + np.exp(-gap)))
    if rule.kind == "costs":
        (right, alarm), (miss, hit) = rule.parameter
        total = (alarm - right) + (miss - hit)
        return float((alarm - right) / total) if total > 0 else 0.5
    # Arg max gives a tie to the first class: the second must be above one half.
    return float(np.nextafter(0.5, 1)) if (score == 0.5).any() else 0.5


def _rows(scores: HeldOutScores) -> dict[str, Any]:
    """Probabilities row by row, all of them or a stratified sample; of very many classes the highest of each row."""
    width = scores.proba.shape[1]
    whole = width <= _WHOLE_ROWS
    of_a_row = (4 * width if whole else 6 * _HIGHEST) + 2
    most = _BYTES_OF_ROWS // (of_a_row + (0 if scores.weight is None else 8))
    sampled = len(scores) > most
    if sampled:
        scores = stratified_sample(scores, _BYTES_OF_ROWS // (of_a_row + 8))
    found: dict[str, Any] = {
        "rows": len(scores),
        "of": scores.total or len(scores),
        "width": width if whole else _HIGHEST,
        "truth": _base64(scores.truth.astype("<u2")),
        "weight": None if scores.weight is None else _base64(scores.weight.astype("<f8")),
        "index": None,
    }
    p = scores.proba.astype("<f4")
    if not whole:
        highest = np.argsort(-p, axis=1, kind="stable")[:, :_HIGHEST]
        highest.sort(axis=1)  # ties go to the first class, as in NumPy's arg max
        p = np.take_along_axis(p, highest, axis=1)
        found["index"] = _base64(highest.astype("<u2"))
    return {**found, "p": _base64(p)}


def _base64(values: NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()


class _FixedValues:
    """Metrics of scores on these rows; no decision rule changes them."""

    def __init__(self, scores: HeldOutScores, labels: tuple[Any, ...], task: Task) -> None:
        self.labels = labels
        self.weight = scores.weight
        self.truth = scores.truth if task == "multilabel" else np.array(labels, dtype=object)[scores.truth]
        self.score = scores.proba[:, 1] if task == "binary" else scores.proba

    def __call__(self, metric: Metric) -> float:
        try:
            value = metric.score(self.truth, self.score, self.weight, labels=self.labels)
        except ValueError:
            return float("nan")
        return float("nan") if np.ndim(value) else float(value)
