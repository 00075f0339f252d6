"""What the operating-point explorer works on: exact counts at cut-offs, rows to decide about anew, metrics as trees."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from metricfit import metrics
from metricfit.assess import HeldOutScores, share
from metricfit.confusion import ConfusionMatrix
from metricfit.decisions import DecisionRule
from metricfit.decisions.problem import Samples
from metricfit.decisions.threshold import Sweep
from metricfit.inputs import Task
from metricfit.metrics import AUPRC, AUROC, ClassMetric, Combination, Constant, Constrained, FormulaMetric, Metric
from metricfit.metrics.algebra import named_class
from metricfit.metrics.formula import javascript

_CUT_OFFS, _CUT_OFFS_OF_A_CLASS = 2000, 60
_BYTES_OF_ROWS = 1_300_000
"""Of probabilities that are embedded at most; a third more in the page, which stays below 3 MB."""
_WHOLE_ROWS, _LEAST_HIGHEST = 32, 10
"""Classes up to which whole rows are embedded; of more at least so many of the highest of each row."""
_AREAS = (AUROC(zero_division=math.nan), AUPRC(zero_division=math.nan))

Array = NDArray[np.float64]
Fixed = Callable[[Metric], float]


def explorer(
    scores: HeldOutScores, labels: tuple[Any, ...], task: Task, metric: Metric, rule: DecisionRule
) -> dict[str, Any]:
    """The data of the explorer, ready for JSON; it starts at the model's decision rule."""
    named = named_class(metric, labels)
    positive = 1 if named is None else named
    content: dict[str, Any] = {
        "task": task,
        "labels": [str(label) for label in labels],
        "classes": list(labels),
        "rule": json.loads(rule.to_json()),
        "rows": len(scores),
        # Where the explorer begins; without a named class the page takes the first one that occurs.
        "axis": None if task == "binary" else named,
        "positive": positive,
    }
    weight, several = scores.weight, task == "multilabel"
    if task == "binary":
        p = scores.proba[:, 1].astype(np.float64)
        threshold = _threshold_of(rule, scores.proba.astype(np.float64))
        # A rule's threshold is the second class's: that the first is more than 1 - t probable is the same decision.
        content["start"] = start = [threshold if positive else 1 - threshold]
        content["axes"] = [
            one_class(p if positive else 1 - p, scores.truth == positive, weight, _CUT_OFFS, start, not positive)
        ]
    else:
        chosen = rule.kind == ("thresholds" if several else "offsets")
        content["start"] = start = list(rule.parameter) if chosen else [0.5 if several else 0.0] * len(labels)
        truth = scores.truth.T == 1 if several else [scores.truth == k for k in range(len(labels))]
        points = max(100, _CUT_OFFS // len(labels)) if several else _CUT_OFFS_OF_A_CLASS
        content["axes"] = [
            one_class(p, truth[k], weight, points, start[k : k + 1] if several else [])
            for k, p in enumerate(scores.proba.T)
        ]
        content |= {} if several else {"sample": _rows(scores)}
    fixed = partial(_fixed_value, scores, labels, positive)
    spec = str(metric.objective if isinstance(metric, Constrained) else metric)
    content["metric"] = {"spec": spec, "name": in_words(metric), "tree": tree(metric, labels, fixed),
                         "greater": metric.greater_is_better}  # fmt: skip
    return {**content, "metrics": every_metric(labels, task, fixed, positive)}


def _threshold_of(rule: DecisionRule, proba: NDArray[Any]) -> float:
    """A rule's threshold; of another kind one half, or the least score that is called if one half decides otherwise."""
    if rule.kind == "threshold":
        return float(rule.parameter)
    called, p = rule.decide(proba) == 1, proba[:, 1]
    return 0.5 if np.array_equal(p >= 0.5, called) else float(p[called].min(initial=np.nextafter(1, 2)))


def _rows(scores: HeldOutScores) -> dict[str, Any]:
    """Probabilities row by row, all of them or a stratified sample; of very many classes the highest of each row."""
    width, rest = scores.proba.shape[1], 10  # bytes of a row's truth and weight
    whole = width <= _WHOLE_ROWS or len(scores) * (4 * width + rest) <= _BYTES_OF_ROWS
    kept = width if whole else min(width, max(_LEAST_HIGHEST, (_BYTES_OF_ROWS // len(scores) - rest) // 6))
    most = _BYTES_OF_ROWS // ((4 if whole else 6) * kept + rest)
    if len(scores) > most:
        scores = scores.sample(most)
    p, index = scores.proba.astype("<f4"), None
    if not whole:
        highest = np.argsort(-p, axis=1, kind="stable")[:, :kept]
        highest.sort(axis=1)  # ties go to the first class, as in NumPy's arg max
        p, index = np.take_along_axis(p, highest, axis=1), _base64(highest.astype("<u2"))
    return {
        "rows": len(scores),
        "of": scores.total or len(scores),
        "width": kept,
        "truth": _base64(scores.truth.astype("<u2")),
        "weight": None if scores.weight is None else _base64(scores.weight.astype("<f8")),
        "index": index,
        "p": _base64(p),
    }


def _base64(values: NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()


def _fixed_value(scores: HeldOutScores, labels: tuple[Any, ...], positive: int, metric: Metric) -> float:
    """A metric of scores on these rows, which no decision rule changes; NaN where it is not defined."""
    several, score = scores.truth.ndim == 2, scores.proba
    known = scores.truth if several else np.array(labels, dtype=object)[scores.truth]
    if not several and len(labels) == 2:  # the score is the second label's
        labels, score = (labels, score[:, 1]) if positive else (labels[::-1], score[:, 0])
    try:
        value = metric.score(known, score, scores.weight, labels=labels)
    except ValueError:
        return math.nan
    return math.nan if np.ndim(value) else float(value)


def one_class(
    score: NDArray[Any], positive: NDArray[np.bool_], weight: Array | None, points: int, marks: list[float],
    strict: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Everything the page draws of one score: the exact counts at about ``points`` cut-offs and at ``marks``.

    ``strict``: a row of the class must score above the threshold, not at least it.
    """
    sweep = Sweep.of(Samples(positive, score.astype(np.float64), weight))
    cuts = sorted({*_cuts(sweep, points).tolist(), *map(float, marks)})
    at = np.searchsorted(-sweep.scores, -np.asarray(cuts), side="left" if strict else "right")
    positives, negatives = _numbers(sweep.tp[-1:]) + _numbers(sweep.fp[-1:])
    counts = sweep.matrix(sweep.cells(sweep.tp, sweep.fp))
    return {
        "cuts": cuts,
        "tp": _numbers(sweep.tp[at]),
        "fp": _numbers(sweep.fp[at]),
        "strict": strict,
        "positives": positives,
        "negatives": negatives,
        # With every score at hand the page finds the counts of any threshold that is typed; else the nearest cut-off's.
        "scores": sweep.scores[::-1].tolist() if len(sweep) <= points else None,
        **{area.name: float(area.of_classes(counts)[1]) for area in _AREAS},
        "calibration": calibration(score, positive, weight),
        "histogram": histogram(score, positive, weight),
    }


def _cuts(sweep: Sweep, points: int) -> Array:
    """Thresholds, each the shortest decimal that makes its cut-off; all there are, or about ``points``."""
    last = len(sweep) - 1
    if last < points:
        return _short(sweep, np.arange(last + 1))
    # Half of them are spread over the values people type, the others over the ranks of each class, so that the
    # curves have no gaps where scores crowd together.
    grid = np.linspace(0, 1, min(1000, points // 2) + 1)
    quarter = np.linspace(0, 1, points // 4)
    ranks = [np.searchsorted(counts, quarter * counts[-1]) for counts in (sweep.tp, sweep.fp)]
    chosen = np.unique(np.clip(np.concatenate([*ranks, [0, last]]), 0, last))
    return np.concatenate([_short(sweep, chosen), np.round(grid, 6)])


def _short(sweep: Sweep, chosen: NDArray[np.intp]) -> Array:
    """Thresholds of cut-offs with as few digits as separate their two scores."""
    exact = np.asarray(sweep.thresholds(chosen), dtype=np.float64)
    bounds = np.concatenate([[np.inf], sweep.scores, [-np.inf]])
    upper, lower = bounds[chosen], bounds[chosen + 1]
    found, waiting = exact.copy(), np.ones(len(exact), dtype=bool)
    for digits in range(2, 13):
        rounded = np.round(exact, digits)
        fits = waiting & (lower < rounded) & (rounded < upper) & (rounded >= 0)
        found[fits], waiting[fits] = rounded[fits], False
    return found


def calibration(score: NDArray[Any], positive: NDArray[np.bool_], weight: Array | None) -> dict[str, Any]:
    """Mean score and share of positives in groups of equal size, with intervals; and the mean gap."""
    w = np.ones(len(score)) if weight is None else weight
    points: list[list[float]] = []
    gap = total = 0.0
    for group in np.array_split(np.argsort(score, kind="stable"), min(12, max(1, len(score) // 10))):
        mass = float(w[group].sum())
        if not mass > 0:
            continue
        predicted, happened = (float(w[group] @ values[group]) / mass for values in (score, positive))
        effective = mass**2 / float((w[group] ** 2).sum())
        found = share(happened * effective, effective)
        points.append([predicted, happened, found.low, found.high, len(group)])
        gap, total = gap + mass * abs(predicted - happened), total + mass
    return {"points": points, "error": gap / total if total else math.nan}


def histogram(score: NDArray[Any], positive: NDArray[np.bool_] | None, weight: Array | None) -> dict[str, Any]:
    """Weight of rows in 40 bins of [0, 1], of the class and of the others; all as others without a truth."""
    w = np.ones(len(score)) if weight is None else weight
    of_class = np.zeros(len(score), dtype=bool) if positive is None else positive
    inside = np.clip(score, 0, 1)
    mine, rest = (np.histogram(inside[m], 40, (0, 1), weights=w[m])[0] for m in (of_class, ~of_class))
    return {"positive": _numbers(mine), "negative": _numbers(rest)}


def _numbers(values: Array) -> list[float]:
    """Whole where they are whole, else to twelve digits: pages stay small."""
    return [int(v) if float(v).is_integer() else float(f"{v:.12g}") for v in values]


def in_words(metric: Metric) -> str:
    """A short name to read; an expression stays as it is."""
    if isinstance(metric, Constrained):
        return in_words(metric.objective)
    if isinstance(metric, metrics.Money):
        return "money"
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


def tree(metric: Metric, labels: tuple[Any, ...], fixed: Fixed) -> dict[str, Any]:
    """The metric as nested plain values; ``fixed`` gives the value of a metric of scores, which no decision changes."""
    if isinstance(metric, Constant):
        return {"kind": "number", "value": metric.value}
    if isinstance(metric, Constrained):
        limits = [
            {"metric": tree(c.metric, labels, fixed), "operator": c.operator, "bound": c.bound, "text": str(c)}
            for c in metric.constraints
            if c.within is None  # counts do not tell groups apart
        ]
        return {"kind": "limited", "objective": tree(metric.objective, labels, fixed), "limits": limits}
    if metric.judges_scores:
        return {"kind": "fixed", "value": fixed(metric)}
    if isinstance(metric, Combination):
        left, right = (tree(part, labels, fixed) for part in (metric.left, metric.right))
        return {"kind": "join", "operator": metric.operator, "left": left, "right": right}
    if not isinstance(metric, FormulaMetric):
        return {"kind": "unknown"}
    none = ConfusionMatrix(torch.zeros(len(labels), len(labels)), "multiclass", labels)
    index = None if metric.label is None else none.class_index(metric.label)
    zero = "nan" if math.isnan(metric.zero_division) else float(metric.zero_division)
    return {"kind": "class", "name": metric.name, "average": metric.average, "index": index, "zero": zero,
            "parameters": metric.parameters}  # fmt: skip


def formulas() -> str:
    """The formulas of all metrics of one decision in JavaScript, generated from their Python functions."""
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
        node = {"kind": "cost"} if isinstance(metric, metrics.ExpectedCost) else tree(metric, labels, fixed)
        if node["kind"] == "fixed" and node["value"] != node["value"]:
            continue
        about = (type(metric).__doc__ or "").strip().splitlines()[0]
        found.append({"spec": str(metric), "name": in_words(metric), "tree": node, "about": about,
                      "greater": metric.greater_is_better})  # fmt: skip
    return found
