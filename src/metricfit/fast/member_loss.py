"""The objective of one ensemble member on a batch, with the gradient of its logits, compiled.

What :class:`metricfit.training.gradients.ObjectiveGradient` computes for all members at once, from the same formulas.
Plain loops and few levels of calls: every level compiles again what it calls.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from metricfit.fast.compiled import (
    TINY,
    bend_at,
    bends_of_step,
    compiled,
    exponential,
    segments_of_step,
    slope_at,
    step_at,
)
from metricfit.fast.matrices import loss_of_sums

__all__ = ["Goal", "many_classes", "two_classes"]

Array = np.ndarray[Any, Any]


class Goal(NamedTuple):
    """What a member minimises.

    Attributes:
        class_weight: Of the cross-entropy, (d,) float32.
        cross_entropy: Its factor.
        counts: Whether the metric counts at all.
        delta: Of the step, see ``FivePoints``; float32.
        factor: Of the step; float32.
        ratio: Of the metric, see ``ClosedForm``; empty for MCC.
        label: The class; -1 for the macro average.
        undefined: The value of 0/0.
        decay: Of the memory; 0 for none.
        memory: The matrix so far (d, d) float32, brought up to date.
        is_first: Whether there is none yet.
        limits: See :mod:`metricfit.fast.compiled`.
    """

    class_weight: Array
    cross_entropy: float
    counts: bool
    delta: np.float32
    factor: np.float32
    ratio: Array
    label: int
    undefined: float
    decay: float
    memory: Array
    is_first: bool
    limits: Array


@compiled()
def _metric(counts: Any, goal: Any, is_first: bool) -> float:
    """1 - the metric of the counts, blended into the memory; its gradient takes the place of the counts."""
    classes = len(counts)
    total, scale, past = 0.0, 1.0, 0.0
    for j in range(classes):
        for k in range(classes):
            total += counts[j, k]
    if goal.decay:
        scale = 1.0 / total if total > 0 else 1.0
        if not is_first:
            past = goal.decay if total > 0 else 1.0  # a batch without any weight teaches nothing
    hits, true, predicted = np.zeros(classes), np.zeros(classes), np.zeros(classes)
    for j in range(classes):
        for k in range(classes):
            cell = counts[j, k] * scale
            cell += past * (goal.memory[j, k] - cell)
            goal.memory[j, k] = cell
            true[j] += cell
            predicted[k] += cell
            if j == k:
                hits[k] = cell
    loss, rows, columns, diagonal = loss_of_sums(
        hits, true, predicted, goal.ratio, goal.label, goal.undefined, True
    )  # fmt: skip
    for j in range(classes):
        for k in range(classes):
            counts[j, k] = (rows[j] + columns[k] + (diagonal[k] if j == k else 0.0)) * scale
    weighs = False
    for j in range(classes):
        weighs |= true[j] > 0
    return float(loss) if weighs else 1.0 - goal.undefined


@compiled()
def two_classes(logits: Any, target: Any, mass: Any, weight: Any, goal: Any, is_first: bool, out: Any) -> float:
    """The loss of logits (n, 2) and its gradient: all is a function of the probability that the wrong class gets.

    Args:
        logits: Logits, float32.
        target: Class indices (n,).
        mass: Weights (n,) of the cross-entropies.
        weight: Weights (n,) of the samples.
        goal: The objective.
        is_first: Whether the memory is still empty.
        out: Where the gradient goes; as the logits.
    """
    size = len(target)
    number = logits.dtype.type
    zero, one = number(0), number(1)
    tau, half, low, middle, high = segments_of_step(one / number(2), goal.delta, goal.factor, goal.limits)
    wrong, tails, margins = np.empty(size, logits.dtype), np.empty(size, logits.dtype), np.empty(size, logits.dtype)
    for i in range(size):
        margins[i] = (logits[i, 1] - logits[i, 0]) * number(2 * target[i] - 1)
    for i in range(size):
        margin = margins[i]
        tail = exponential(-margin if margin > zero else margin, goal.limits)
        wrong[i] = (tail if margin > zero else one) / (one + tail)
        tails[i] = tail
    loss, of_missed = 0.0, np.zeros(2, logits.dtype)
    if goal.counts:
        counts = np.zeros((2, 2))
        for i in range(size):
            missed = weight[i] * step_at(wrong[i], tau, half, low, middle, high, one)
            label = target[i]
            counts[label, 1 - label] += missed
            counts[label, label] += weight[i] - missed
        loss = _metric(counts, goal, is_first)
        of_missed[0], of_missed[1] = counts[0, 1] - counts[0, 0], counts[1, 0] - counts[1, 1]
    for i in range(size):
        label, margin, p = target[i], margins[i], wrong[i]
        loss += mass[i] * (np.log(one + tails[i]) - min(margin, zero))
        slope = slope_at(p, tau, half, low, middle, high)
        gradient = p * (mass[i] + of_missed[label] * weight[i] * slope * (one - p))
        out[i, label] = -gradient
        out[i, 1 - label] = gradient
    return loss


@compiled()
def many_classes(logits: Any, target: Any, mass: Any, weight: Any, goal: Any, is_first: bool, out: Any) -> float:
    """The loss of logits (n, d) and its gradient, at the dynamic threshold; arguments as above."""
    size, classes = logits.shape
    number = logits.dtype.type
    zero, one, two = number(0), number(1), number(2)
    loss, counts = 0.0, np.zeros((classes, classes))
    means, inverses = np.empty(size, logits.dtype), np.empty(size, logits.dtype)
    places = np.empty((size, 2), np.int64)
    # Probabilities go to ``out``, until the gradient takes their place.
    for i in range(size):
        label = target[i]
        first, second = 0, 1
        if logits[i, 1] > logits[i, 0]:
            first, second = 1, 0
        for k in range(2, classes):
            if logits[i, k] > logits[i, first]:
                first, second = k, first
            elif logits[i, k] > logits[i, second]:
                second = k
        whole, largest = zero, logits[i, first]
        for k in range(classes):
            out[i, k] = exponential(logits[i, k] - largest, goal.limits)
            whole += out[i, k]
        loss += mass[i] * (np.log(whole) + largest - logits[i, label])
        scale = one / whole
        for k in range(classes):
            out[i, k] *= scale
        if goal.counts:
            places[i, 0], places[i, 1] = first, second
            means[i] = (out[i, first] + out[i, second]) / two
            tau, half, low, middle, high = segments_of_step(means[i], goal.delta, goal.factor, goal.limits)
            total = zero
            for k in range(classes):
                total += step_at(out[i, k], tau, half, low, middle, high, one)
            inverses[i] = one / total if total > goal.limits[TINY] else zero
            for k in range(classes):
                h = step_at(out[i, k], tau, half, low, middle, high, one)
                counts[label, k] += weight[i] * inverses[i] * h
    if goal.counts:
        loss += _metric(counts, goal, is_first)
    g = np.zeros(classes, logits.dtype)
    for i in range(size):
        label, dot = target[i], zero
        if goal.counts:
            tau, half, low, middle, high = segments_of_step(means[i], goal.delta, goal.factor, goal.limits)
            bend_low, between, bend, bend_high = bends_of_step(means[i], goal.delta, goal.factor, goal.limits)
            of_mean, of_threshold = zero, zero
            for k in range(classes):
                h = step_at(out[i, k], tau, half, low, middle, high, one)
                of_mean += number(counts[label, k]) * h * inverses[i]
            for k in range(classes):
                p = out[i, k]
                of_step = (number(counts[label, k]) - of_mean) * weight[i] * inverses[i]
                of_threshold += of_step * bend_at(p, tau, half, bend_low, between, bend, bend_high, one)
                g[k] = of_step * slope_at(p, tau, half, low, middle, high)
            for j in range(2):
                g[places[i, j]] += of_threshold / two
            for k in range(classes):
                dot += g[k] * out[i, k]
        for k in range(classes):
            out[i, k] *= g[k] - dot + mass[i]
        out[i, label] -= mass[i]
    return loss
