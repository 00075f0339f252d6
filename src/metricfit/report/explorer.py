"""What the operating-point explorer works on: exact counts at cut-offs, or rows to decide about anew."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit.assess.scores import HeldOutScores
from metricfit.decisions import DecisionRule
from metricfit.inputs import Task
from metricfit.metrics import AUPRC, AUROC, Combination, Constrained, Metric
from metricfit.report.curves import one_class
from metricfit.report.formula import every_metric, in_words, tree

__all__ = ["explorer", "named_class"]

_CUT_OFFS = 2000
_CUT_OFFS_OF_A_CLASS = 60
_BYTES_OF_ROWS = 1_300_000
"""Of probabilities that are embedded at most; a third more in the page, which stays below 3 MB."""
_WHOLE_ROWS = 32
"""Up to so many classes whole rows of probabilities are embedded; of more the highest of each row, where all are too
many."""
_LEAST_HIGHEST = 10


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
    content: dict[str, Any] = {
        "task": task,
        "labels": [str(label) for label in labels],
        "classes": list(labels),
        "rule": json.loads(rule.to_json()),
        "rows": len(scores),
    }
    named = named_class(metric, labels)
    # Where the explorer begins; without a named class the page takes the first one that occurs.
    content["axis"] = None if task == "binary" else named
    content["positive"] = positive = 1 if named is None else named
    if task == "binary":
        p = scores.proba[:, 1].astype(np.float64)
        threshold = _threshold_of(rule, p)
        # A rule's threshold is the second class's: that the first is more than 1 - t probable is the same decision.
        content["start"] = [threshold if positive else 1 - threshold]
        content["axes"] = [
            one_class(p if positive else 1 - p, scores.truth == positive, scores.weight, points=_CUT_OFFS,
                      marks=content["start"], strict=not positive)
        ]  # fmt: skip
    elif task == "multilabel":
        starts = list(rule.parameter) if rule.kind == "thresholds" else [0.5] * len(labels)
        each = max(100, _CUT_OFFS // len(labels))
        content["start"] = starts
        content["axes"] = [
            one_class(scores.proba[:, k], scores.truth[:, k] == 1, scores.weight, points=each, marks=[starts[k]])
            for k in range(len(labels))
        ]
    else:
        content["start"] = list(rule.parameter) if rule.kind == "offsets" else [0.0] * len(labels)
        content["axes"] = [
            one_class(scores.proba[:, k], scores.truth == k, scores.weight, points=_CUT_OFFS_OF_A_CLASS, marks=[])
            for k in range(len(labels))
        ]
        content["sample"] = _rows(scores)
    fixed = _FixedValues(scores, labels, task, content["axes"], positive)
    node = tree(metric, labels, task, fixed)
    content["metric"] = {"spec": _name(metric), "name": in_words(metric), "tree": node,
                         "greater": metric.greater_is_better}  # fmt: skip
    return {**content, "metrics": every_metric(labels, task, fixed, positive)}


def named_class(metric: Metric, labels: tuple[Any, ...]) -> int | None:
    """The position of the class that the metric names; of several the first, None if it names none.

    >>> from metricfit import metrics
    >>> named_class(metrics.get("precision[ill] subject to recall[ill] >= 0.9"), ("ill", "well"))
    0
    """
    if isinstance(metric, Constrained):
        parts = [metric.objective, *(c.metric for c in metric.constraints)]
    elif isinstance(metric, Combination):
        parts = [metric.left, metric.right]
    else:
        label = getattr(metric, "label", None)
        names = [str(one) for one in labels]
        return names.index(str(label)) if label is not None and str(label) in names else None
    return next((found for part in parts if (found := named_class(part, labels)) is not None), None)


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
    rest = 2 + (0 if scores.weight is None else 8)
    whole = width <= _WHOLE_ROWS or len(scores) * (4 * width + rest) <= _BYTES_OF_ROWS
    kept = width if whole else min(width, max(_LEAST_HIGHEST, (_BYTES_OF_ROWS // len(scores) - rest) // 6))
    of_a_row = 4 * width if whole else 6 * kept
    most = _BYTES_OF_ROWS // (of_a_row + rest)
    sampled = len(scores) > most
    if sampled:
        scores = scores.sample(_BYTES_OF_ROWS // (of_a_row + 10))
    found: dict[str, Any] = {
        "rows": len(scores),
        "of": scores.total or len(scores),
        "width": kept,
        "truth": _base64(scores.truth.astype("<u2")),
        "weight": None if scores.weight is None else _base64(scores.weight.astype("<f8")),
        "index": None,
    }
    p = scores.proba.astype("<f4")
    if not whole:
        highest = np.argsort(-p, axis=1, kind="stable")[:, :kept]
        highest.sort(axis=1)  # ties go to the first class, as in NumPy's arg max
        p = np.take_along_axis(p, highest, axis=1)
        found["index"] = _base64(highest.astype("<u2"))
    return {**found, "p": _base64(p)}


def _base64(values: NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()


class _FixedValues:
    """Metrics of scores on these rows; no decision rule changes them."""

    def __init__(
        self, scores: HeldOutScores, labels: tuple[Any, ...], task: Task, axes: list[dict[str, Any]], positive: int
    ) -> None:
        self.scores, self.labels, self.task, self.axes, self.positive = scores, labels, task, axes, positive

    def __call__(self, metric: Metric) -> float:
        if isinstance(metric, AUROC | AUPRC) and metric.average != "none":
            return self._area(metric)
        truth = self.scores.truth
        known = truth if self.task == "multilabel" else np.array(self.labels, dtype=object)[truth]
        score = self.scores.proba[:, 1] if self.task == "binary" else self.scores.proba
        try:
            value = metric.score(known, score, self.scores.weight, labels=self.labels)
        except ValueError:
            return float("nan")
        return float("nan") if np.ndim(value) else float(value)

    def _area(self, metric: AUROC | AUPRC) -> float:
        """From the areas of the classes, which are known already: with many classes that saves seconds."""
        if self.task == "binary" and (
            metric.average != "auto" or metric.label not in (None, self.labels[self.positive])
        ):
            return float("nan")
        found = [axis[metric.name] for axis in self.axes]
        areas = np.array([metric.zero_division if area is None else area for area in found])
        if self.task == "binary":
            return float(areas[0])
        if metric.label is not None:
            names = [str(label) for label in self.labels]
            return float(areas[names.index(str(metric.label))]) if str(metric.label) in names else float("nan")
        weights = np.array([axis["positives"] for axis in self.axes]) if metric.average == "weighted" else None
        return float(np.average(areas, weights=weights))
