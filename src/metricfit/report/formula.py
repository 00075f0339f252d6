"""Metrics as trees of plain values, so that the page can work them out for a matrix as it changes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import torch

from metricfit import metrics
from metricfit.confusion import ConfusionMatrix
from metricfit.inputs import Task
from metricfit.metrics import ClassMetric, Combination, Constant, Constrained, FormulaMetric, Metric
from metricfit.metrics.catalogue import javascript

__all__ = ["every_metric", "formulas", "in_words", "number", "tree"]

Fixed = Callable[[Metric], float]


def number(value: float | None) -> float | None:
    """A number that JSON can hold, or None."""
    return None if value is None or not math.isfinite(value) else float(value)


def in_words(metric: Metric) -> str:
    """A short name to read; an expression stays as it is.

    >>> from metricfit import metrics
    >>> in_words(metrics.get("fbeta:beta=2[yes]")), in_words(metrics.get("f1:average=macro"))
    ('F2 of yes', 'macro F1')
    """
    if isinstance(metric, Constrained):
        return in_words(metric.objective)
    if isinstance(metric, metrics.ThresholdMean):
        return f"mean {in_words(metrics.get(metric.metric))} over thresholds"
    if not isinstance(metric, ClassMetric) or metric.zero_division != 0:
        return str(metric)
    if isinstance(type(metric).title, str) and metric.parameters != type(metric)().parameters:
        return str(metric)
    name = metric.title
    if metric.label is not None:
        return f"{name} of {metric.label}"
    return {"macro": "macro ", "micro": "micro ", "weighted": "weighted "}.get(str(metric.average), "") + name


def tree(metric: Metric, labels: tuple[Any, ...], task: Task, fixed: Fixed) -> dict[str, Any]:
    """The metric as nested plain values.

    Args:
        metric: The metric.
        labels: The classes.
        task: The task.
        fixed: Gives the value of a metric of scores, which no decision changes.

    >>> from metricfit import metrics
    >>> tree(metrics.get("0.5*recall[b]"), ("a", "b"), "binary", lambda m: 0.0)["right"]["index"]
    1
    """
    if isinstance(metric, Constant):
        return {"kind": "number", "value": metric.value}
    if isinstance(metric, Constrained):
        limits = [
            {"metric": tree(c.metric, labels, task, fixed), "operator": c.operator, "bound": c.bound, "text": str(c)}
            for c in metric.constraints
        ]
        return {"kind": "limited", "objective": tree(metric.objective, labels, task, fixed), "limits": limits}
    if metric.judges_scores:
        return {"kind": "fixed", "value": number(fixed(metric))}
    if isinstance(metric, Combination):
        left, right = (tree(part, labels, task, fixed) for part in (metric.left, metric.right))
        return {"kind": "join", "operator": metric.operator, "left": left, "right": right}
    if not isinstance(metric, FormulaMetric):
        return {"kind": "unknown"}
    none = ConfusionMatrix(torch.zeros(len(labels), len(labels)), "multiclass", labels)
    index = None if metric.label is None else none.class_index(metric.label)
    zero = "nan" if math.isnan(metric.zero_division) else float(metric.zero_division)
    return {"kind": "class", "name": metric.name, "average": metric.average, "index": index, "zero": zero,
            "parameters": metric.parameters}  # fmt: skip


def formulas() -> str:
    """The formulas of all metrics of one decision in JavaScript, generated from their Python functions.

    >>> print(next(line for line in formulas().splitlines() if "recall" in line))
      "recall": { whole: false, value: (c, p) => divide(c.tp, c.tp + c.fn) },
    """
    lines = [
        f"  {json.dumps(name)}: {{ whole: {json.dumps(cls.whole)}, value: {javascript(cls.program)} }},"
        for name in metrics.available()
        if issubclass(cls := metrics.metric_class(name), FormulaMetric)
    ]
    return "\n".join(["const FORMULAS = {", *lines, "};"])


def every_metric(labels: tuple[Any, ...], task: Task, fixed: Fixed, positive: int = 1) -> list[dict[str, Any]]:
    """Every metric of the registry that has a value for this task, with its tree; of two classes the positive one's."""
    found = []
    # A bare name means the second of two classes.
    ordered = labels[::-1] if task == "binary" and not positive else labels
    # A bare F-beta is F1; these two are what people mean by it.
    names = [n for n in metrics.available() if n != "fbeta"] + ["fbeta:beta=0.5", "fbeta:beta=2"]
    for name in sorted(names):
        try:  # the matrix of the costs comes from the page
            metric = metrics.get(name) if name == "cost" else metrics.resolve(name, ordered, task)[0]
        except (ValueError, TypeError):
            continue
        node = {"kind": "cost"} if isinstance(metric, metrics.ExpectedCost) else tree(metric, labels, task, fixed)
        if node["kind"] == "fixed" and node["value"] is None:
            continue
        about = (type(metric).__doc__ or "").strip().splitlines()[0]
        found.append({"spec": str(metric), "name": in_words(metric), "tree": node, "about": about,
                      "greater": metric.greater_is_better})  # fmt: skip
    return found
