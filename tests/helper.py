"""The definitions again, in plain Python loops over plain numbers: what the tensors must equal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import numpy as np
import torch

PlainStep = Callable[[float, float], float]
Matrix = list[list[float]]


def five_point_step(p: float, tau: float, delta: float, width: float) -> float:
    """btg eq. 5 by interpolation between its five points."""
    points = [(0.0, 0.0), (tau - width / 2, delta), (tau, 0.5), (tau + width / 2, 1 - delta), (1.0, 1.0)]
    for (x0, y0), (x1, y1) in pairwise(points):
        if p <= x1:
            return y0 + (y1 - y0) * (p - x0) / (x1 - x0)
    raise ValueError(p)


def plain_step(name: str, parameter: float | None = None) -> PlainStep:
    """A step by name as a function of two floats."""
    if name == "heaviside":
        return lambda p, tau: 1.0 if p >= tau else 0.0
    if name == "linear":
        return lambda p, tau: five_point_step(p, tau, parameter or 0.1, min(tau, 1 - tau))
    if name == "annealed":
        t = parameter or 0.2
        return lambda p, tau: five_point_step(p, tau, t, 5 * t * min(tau, 1 - tau))
    if name == "sigmoid":
        return lambda p, tau: 1 / (1 + math.exp(-(parameter or 10.0) * (p - tau)))
    if name == "amplifier":
        return lambda p, tau: 1 / (1 + math.exp(-(parameter or 73.0) * (p - 0.5)))
    if name == "identity":
        return lambda p, tau: p
    raise ValueError(name)


def softmax(row: Sequence[float]) -> list[float]:
    highest = max(row)
    powers = [math.exp(v - highest) for v in row]
    return [v / sum(powers) for v in powers]


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value)) if value >= 0 else math.exp(value) / (1 + math.exp(value))


def dynamic_membership(p: Sequence[float], step: PlainStep) -> list[float]:
    """east section 4.1: the step at the mean of the two largest entries, normalised."""
    tau = sum(sorted(p)[-2:]) / 2
    heights = [step(v, tau) for v in p]
    return [h / sum(heights) for h in heights]


def positions(shape: Sequence[int]) -> Any:
    """All index tuples of a shape."""
    return product(*(range(size) for size in shape))


def soft_multiclass(
    logits: Any,
    target: Any,
    step: PlainStep,
    *,
    weight: Sequence[float] | None = None,
    sample_weight: Any = None,
    ignore_index: int = -100,
) -> Matrix:
    """The d×d matrix of logits (N, C, …), indices (N, …) or probabilities (N, C, …), one position after another."""
    logits, target = np.asarray(logits), np.asarray(target)
    classes = logits.shape[1]
    matrix = [[0.0] * classes for _ in range(classes)]
    for place in positions(logits.shape[:1] + logits.shape[2:]):
        row = (place[0], slice(None), *place[1:])
        if target.ndim == logits.ndim:
            share = [float(v) for v in target[row]]
            if all(v == ignore_index for v in share):
                continue
        else:
            if int(target[place]) == ignore_index:
                continue
            share = [float(k == int(target[place])) for k in range(classes)]
        membership = dynamic_membership(softmax([float(v) for v in logits[row]]), step)
        for i, j in product(range(classes), repeat=2):
            factor = 1.0 if weight is None else weight[i]
            matrix[i][j] += factor * position_weight(sample_weight, place) * share[i] * membership[j]
    return matrix


def soft_labels(
    logits: Any,
    target: Any,
    step: PlainStep,
    tau: float | Sequence[float] = 0.5,
    *,
    weight: Sequence[float] | None = None,
    sample_weight: Any = None,
    ignore_index: int = -100,
    binary: bool = False,
) -> Any:
    """The L×2×2 counts of logits (N, L, …), or the 2×2 ones of (N, …); btg eq. 6."""
    logits, target = np.asarray(logits), np.asarray(target)
    if binary:
        logits, target = logits[:, None], target[:, None]
        sample_weight = None if sample_weight is None else np.asarray(sample_weight)
    labels = logits.shape[1]
    counts = [[[0.0, 0.0], [0.0, 0.0]] for _ in range(labels)]
    for place in positions(logits.shape):
        label, position = place[1], (place[0], *place[2:])
        y = float(target[place])
        if y == ignore_index:
            continue
        h = step(sigmoid(float(logits[place])), tau if isinstance(tau, float) else tau[label])
        if sample_weight is not None and np.shape(sample_weight) == logits.shape and not binary:
            w = float(np.asarray(sample_weight)[place])
        else:
            w = position_weight(sample_weight, position)
        negative, positive = w * (1 - y), w * y
        if weight is not None:
            negative *= weight[0] if binary else weight[label]
            positive *= weight[1] if binary else weight[label]
        counts[label][0][0] += negative * (1 - h)
        counts[label][0][1] += negative * h
        counts[label][1][0] += positive * (1 - h)
        counts[label][1][1] += positive * h
    return counts[0] if binary else counts


def position_weight(sample_weight: Any, place: tuple[int, ...]) -> float:
    """The weight of a position: its own or its sample's."""
    if sample_weight is None:
        return 1.0
    weights = np.asarray(sample_weight)
    return float(weights[place[0]] if weights.ndim == 1 else weights[place])


def one_versus_rest(matrix: Sequence[Sequence[float]]) -> list[tuple[float, float, float, float]]:
    """(tp, fp, fn, tn) of each class of a d×d matrix, each by adding up its own cells."""
    size = range(len(matrix))
    return [
        (
            math.fsum(matrix[k][k] for _ in "1"),
            math.fsum(matrix[i][k] for i in size if i != k),
            math.fsum(matrix[k][j] for j in size if j != k),
            math.fsum(matrix[i][j] for i in size for j in size if i != k and j != k),
        )
        for k in size
    ]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch(
    task: str,
    shape: tuple[int, ...],
    seed: int = 0,
    *,
    soft: bool = False,
    scale: float = 2.0,
    dtype: torch.dtype = torch.float64,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Random logits of a shape and a target of the task: classes, or with ``soft`` their probabilities."""
    g = generator(seed)
    logits = scale * torch.randn(shape, generator=g, dtype=dtype)
    if task == "multiclass" and soft:
        return logits, torch.randn(shape, generator=g, dtype=dtype).softmax(1)
    if task == "multiclass":
        return logits, torch.randint(0, shape[1], shape[:1] + shape[2:], generator=g)
    shares = torch.rand(shape, generator=g, dtype=dtype)
    return logits, shares if soft else (shares > 0.6).long()


def ratio(numerator: Any, denominator: Any, undefined: float) -> Any:
    return numerator / denominator if denominator else undefined


def mean_of_defined(values: list[float], undefined: float) -> float:
    return ratio(math.fsum(values), len(values), undefined)


def _balanced(tp: float, fp: float, fn: float, tn: float, z: float) -> float:
    return mean_of_defined([a / (a + b) for a, b in ((tp, fn), (tn, fp)) if a + b], z)


def _gmean(tp: float, fp: float, fn: float, tn: float, z: float) -> float:
    recalls = [a / (a + b) for a, b in ((tp, fn), (tn, fp)) if a + b]
    return math.prod(recalls) ** (1 / len(recalls)) if recalls else z


CLASS_FORMULAS: dict[str, Callable[[float, float, float, float, float], float]] = {
    "accuracy": lambda tp, fp, fn, tn, z: ratio(tp + tn, tp + fp + fn + tn, z),
    "balanced_accuracy": _balanced,
    "precision": lambda tp, fp, fn, tn, z: ratio(tp, tp + fp, z),
    "recall": lambda tp, fp, fn, tn, z: ratio(tp, tp + fn, z),
    "specificity": lambda tp, fp, fn, tn, z: ratio(tn, tn + fp, z),
    "npv": lambda tp, fp, fn, tn, z: ratio(tn, tn + fn, z),
    "fpr": lambda tp, fp, fn, tn, z: ratio(fp, fp + tn, z),
    "fnr": lambda tp, fp, fn, tn, z: ratio(fn, fn + tp, z),
    "predicted_share": lambda tp, fp, fn, tn, z: ratio(tp + fp, tp + fp + fn + tn, z),
    "predicted_count": lambda tp, fp, fn, tn, z: tp + fp,
    "f1": lambda tp, fp, fn, tn, z: ratio(2 * tp, 2 * tp + fp + fn, z),
    "fbeta": lambda tp, fp, fn, tn, z: ratio(2 * tp, 2 * tp + fp + fn, z),
    "jaccard": lambda tp, fp, fn, tn, z: ratio(tp, tp + fp + fn, z),
    "csi": lambda tp, fp, fn, tn, z: ratio(tp, tp + fp + fn, z),
    "gmean": _gmean,
    "mcc": lambda tp, fp, fn, tn, z: ratio(
        tp * tn - fp * fn, math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)), z
    ),
    "kappa": lambda tp, fp, fn, tn, z: ratio(2 * (tp * tn - fp * fn), (tp + fp) * (fp + tn) + (tp + fn) * (fn + tn), z),
    "hss": lambda tp, fp, fn, tn, z: ratio(2 * (tp * tn - fp * fn), (tp + fp) * (fp + tn) + (tp + fn) * (fn + tn), z),
    "informedness": lambda tp, fp, fn, tn, z: tp / (tp + fn) + tn / (tn + fp) - 1 if (tp + fn) and (tn + fp) else z,
    "tss": lambda tp, fp, fn, tn, z: tp / (tp + fn) + tn / (tn + fp) - 1 if (tp + fn) and (tn + fp) else z,
    "markedness": lambda tp, fp, fn, tn, z: tp / (tp + fp) + tn / (tn + fn) - 1 if (tp + fp) and (tn + fn) else z,
    "fowlkes_mallows": lambda tp, fp, fn, tn, z: (
        math.sqrt(tp / (tp + fp) * tp / (tp + fn)) if (tp + fp) and (tp + fn) else z
    ),
}
"""Textbook formulas of tp, fp, fn, tn, and of what to return for 0/0."""


def weighted_kappa(matrix: Sequence[Sequence[float]], power: float, z: float) -> float:
    """1 - observed / expected disagreement, with weights |i - j|^power (0 for none)."""
    size = range(len(matrix))
    total = math.fsum(map(math.fsum, matrix))
    rows = [math.fsum(matrix[i]) for i in size]
    columns = [math.fsum(matrix[i][j] for i in size) for j in size]
    weight = {(i, j): float(abs(i - j) ** power) if i != j else 0.0 for i in size for j in size}
    observed = math.fsum(weight[i, j] * matrix[i][j] for i in size for j in size)
    expected = math.fsum(weight[i, j] * rows[i] * columns[j] for i in size for j in size)
    return 1 - observed * total / expected if expected else z


def multiclass_formula(name: str, matrix: Sequence[Sequence[float]], z: float) -> float | None:
    """The multiclass form of the metrics that have one, in exact fractions up to the last root."""
    size = range(len(matrix))
    cells = [[Fraction(v) for v in row] for row in matrix]
    true = [sum(row) for row in cells]
    predicted = [sum(row[j] for row in cells) for j in size]
    total, correct = sum(true), sum(cells[k][k] for k in size)
    gain = correct * total - sum(t * p for t, p in zip(true, predicted, strict=True))
    recalls = [cells[k][k] / true[k] for k in size if true[k]]
    spread_true = total**2 - sum(t * t for t in true)
    spread_predicted = total**2 - sum(p * p for p in predicted)
    if name == "accuracy":
        return float(ratio(correct, total, z))
    if name == "balanced_accuracy":
        return float(ratio(sum(recalls), len(recalls), z))
    if name == "gmean":
        return float(math.prod(recalls)) ** (1 / len(recalls)) if recalls else z
    if name in ("kappa", "hss"):
        return float(ratio(gain, gain + total * (total - correct), z))
    if name == "mcc":
        return ratio(float(gain), math.sqrt(spread_true) * math.sqrt(spread_predicted), z)
    if name == "tss":
        return float(ratio(gain, spread_true, z))
    return None


def average_of_classes(name: str, counts: Sequence[tuple[float, float, float, float]], average: str, z: float) -> float:
    """A one-versus-rest metric over classes: macro, micro or weighted; NaN values are left out."""
    formula = CLASS_FORMULAS[name]
    if average == "micro":
        return formula(*(math.fsum(c[i] for c in counts) for i in range(4)), z)
    pairs = [(formula(*c, z), c[0] + c[2] if average == "weighted" else 1.0) for c in counts]
    pairs = [(value, weight) for value, weight in pairs if not math.isnan(value)]
    if not math.fsum(weight for _, weight in pairs):
        pairs = [(value, 1.0) for value, _ in pairs]
    return ratio(math.fsum(v * w for v, w in pairs), math.fsum(w for _, w in pairs), z)


def make_classifier(metric: Any = "f1", **options: Any) -> Any:
    """A MetricClassifier of networks whose options may also be parts of its recipe, which is given by its name."""
    from metricfit import MetricClassifier
    from metricfit.training import Recipe

    parts = {name: options.pop(name) for name in Recipe().parts() if name in options}
    recipe = Recipe(options.pop("recipe", "default"), **parts)
    return MetricClassifier(metric, recipe=recipe, **{"models": "network", **options})
