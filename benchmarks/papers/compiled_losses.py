"""The papers' losses for two classes as compiled loops, with the gradient of the output.

They are those of :mod:`benchmarks.papers.losses`, read off the modules. Of two outputs they need the difference alone:
a softmax over two is the sigmoid of that, and the dynamic threshold between two classes is always one half.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from benchmarks.papers.losses import BinaryCrossEntropy, DicePerSample, OfDifference, SquaredError
from metricfit import MetricLoss
from metricfit.fast.compiled import compiled
from metricfit.losses import DiceLoss, WMWLoss
from metricfit.metrics import AUROC, F1, MCC, Accuracy, BalancedAccuracy, FBeta, GMean, Metric, ThresholdMean

__all__ = ["Goal", "goal_of", "is_of_two_outputs", "loss_and_gradient"]

Array = np.ndarray[Any, Any]

CROSS_ENTROPY, SQUARED_ERROR, DICE, DICE_PER_SAMPLE, PAIRS = range(5)
ACCURACY, F_BETA, BALANCED_ACCURACY, G_MEAN, AREA, CORRELATION = range(5, 11)
"""Kinds of losses; those of the second line are made of soft counts."""

TINY = float(np.finfo(np.float32).tiny)


class Goal(NamedTuple):
    """A loss of outputs z (n,), p = sigmoid(z).

    Attributes:
        kind: Which.
        is_raw: Whether p is z itself.
        weights: Of negatives and positives, (2,).
        thresholds: Of the soft counts, (m,).
        is_linear: Whether their step is the linear one, otherwise a sigmoid.
        sharpness: δ or k of the step.
        narrowing: Of the linear step's middle part, 1 without annealing.
        beta: Of F-beta.
        margin: Of pairs.
        power: Of pairs.
    """

    kind: int
    is_raw: bool
    weights: Array
    thresholds: Array
    is_linear: bool = True
    sharpness: float = 0.1
    narrowing: float = 1.0
    beta: float = 1.0
    margin: float = 0.0
    power: int = 1


def goal_of(loss: nn.Module) -> Goal | None:
    """What a loss computes of one output, or of the difference of two; None if it is none of those above."""
    if isinstance(loss, OfDifference):
        return goal_of(loss.loss)
    weights = getattr(loss, "weight", None)
    plain: dict[str, Any] = {
        "is_raw": False,
        "weights": np.ones(2) if weights is None else weights.double().numpy(),
        "thresholds": np.array([0.5]),
    }
    if isinstance(loss, BinaryCrossEntropy):
        positive = 1.0 if loss.pos_weight is None else float(loss.pos_weight)
        return Goal(CROSS_ENTROPY, **plain | {"weights": np.array([1.0, positive])})
    if isinstance(loss, nn.CrossEntropyLoss):
        return Goal(CROSS_ENTROPY, **plain) if weights is None else None
    if isinstance(loss, SquaredError):
        return Goal(SQUARED_ERROR, **plain)
    if isinstance(loss, DicePerSample):
        return Goal(DICE_PER_SAMPLE, **plain | {"is_raw": loss.raw})
    if isinstance(loss, DiceLoss):
        known = loss.task == "binary" and loss.squared and not loss.smooth
        return Goal(DICE, **plain | {"is_raw": loss.from_probabilities}) if known else None
    if isinstance(loss, WMWLoss):
        return Goal(PAIRS, **plain, margin=loss.margin, power=loss.power)
    return _of_counts(loss, plain) if isinstance(loss, MetricLoss) else None


def is_of_two_outputs(loss: nn.Module) -> bool:
    """Whether a loss takes an output for each class, otherwise one for both."""
    return isinstance(loss, OfDifference | nn.CrossEntropyLoss) or getattr(loss, "task", None) == "multiclass"


def _of_counts(loss: MetricLoss, plain: dict[str, Any]) -> Goal | None:
    metric: Metric = loss.metric
    thresholds = (float(loss.threshold),)
    if isinstance(metric, ThresholdMean):
        metric, thresholds = metric._inner, metric.thresholds
    elif isinstance(metric, AUROC):
        thresholds = tuple(sorted(metric.thresholds, reverse=True))  # from (0, 0) to (1, 1)
    kinds = {
        Accuracy: ACCURACY, F1: F_BETA, FBeta: F_BETA, BalancedAccuracy: BALANCED_ACCURACY, GMean: G_MEAN, AUROC: AREA,
        MCC: CORRELATION,
    }  # fmt: skip
    step = _parts_of_step(loss)
    of_positives = loss.task == "binary" or type(metric) in (Accuracy, MCC) or getattr(metric, "label", None) == 1
    if type(metric) not in kinds or not step or not of_positives or metric.zero_division:
        return None
    beta = float(metric.beta) if isinstance(metric, FBeta) else 1.0
    return Goal(kinds[type(metric)], **plain | {"thresholds": np.array(thresholds)} | step, beta=beta)


def _parts_of_step(loss: MetricLoss) -> dict[str, Any]:
    """The step of a loss as the goal has it, empty if it is another."""
    if loss.step == "annealed_linear" and loss.temperature is not None:
        temperature = float(loss.temperature)
        return {"is_linear": True, "sharpness": temperature, "narrowing": 5 * temperature}
    options = getattr(loss._fixed_step, "keywords", {})
    named = {"linear": "delta", "sigmoid": "k", "amplifier": "sharpness"}.get(loss.step)
    return {"is_linear": loss.step == "linear", "sharpness": float(options[named])} if named in options else {}


@compiled()
def _step(p: Any, tau: float, goal: Any) -> Any:
    """The step and its slope."""
    if not goal.is_linear:
        s = 1 / (1 + math.exp(-goal.sharpness * (p - tau)))
        return s, goal.sharpness * s * (1 - s)
    width = goal.narrowing * min(tau, 1 - tau)
    low, middle = goal.sharpness / (tau - width / 2), (1 - 2 * goal.sharpness) / width
    high = goal.sharpness / (1 - tau - width / 2)
    if p < tau - width / 2:
        return p * low, low
    if p > tau + width / 2:
        return 1 - (1 - p) * high, high
    return 0.5 + (p - tau) * middle, middle


@compiled()
def _metric(goal: Any, tp: Any, fp: Any, positives: float, negatives: float) -> float:
    """1 - the metric, or its mean over the thresholds; its slopes take the place of the counts."""
    thresholds = len(tp)
    value = 0.0
    if goal.kind == AREA:
        if positives <= 0 or negatives <= 0:
            tp[:], fp[:] = 0, 0
            return 1.0
        tpr, fpr = np.zeros(thresholds + 2), np.zeros(thresholds + 2)
        tpr[1:-1], fpr[1:-1] = tp / positives, fp / negatives
        tpr[-1], fpr[-1] = 1, 1
        for j in range(thresholds + 1):
            value += (fpr[j + 1] - fpr[j]) * (tpr[j + 1] + tpr[j]) / 2
        for j in range(thresholds):
            tp[j] = (fpr[j] - fpr[j + 2]) / (2 * positives)
            fp[j] = (tpr[j + 2] - tpr[j]) / (2 * negatives)
        return 1 - value
    for j in range(thresholds):
        hits, alarms = tp[j], fp[j]
        tp[j] = fp[j] = 0.0
        recall = hits / positives if positives > 0 else 0.0
        specificity = 1 - alarms / negatives if negatives > 0 else 0.0
        if goal.kind == ACCURACY:
            value += (hits + negatives - alarms) / (positives + negatives)
            tp[j], fp[j] = -1 / (positives + negatives), 1 / (positives + negatives)
        elif goal.kind == F_BETA:
            square = goal.beta * goal.beta
            bottom = square * positives + hits + alarms
            if bottom > 0:
                value += (1 + square) * hits / bottom
                tp[j] = -(1 + square) * (bottom - hits) / (bottom * bottom)
                fp[j] = (1 + square) * hits / (bottom * bottom)
        elif goal.kind == BALANCED_ACCURACY:
            classes = (positives > 0) + (negatives > 0)
            value += (recall + specificity) / classes
            tp[j] = -1 / (positives * classes) if positives > 0 else 0.0
            fp[j] = 1 / (negatives * classes) if negatives > 0 else 0.0
        elif goal.kind == CORRELATION:  # MCC
            called, total = hits + alarms, positives + negatives
            square = called * (total - called) * positives * negatives
            if square > TINY:
                root, top = math.sqrt(square), hits * negatives - alarms * positives
                value += top / root
                bend = top * positives * negatives * (total - 2 * called) / (2 * root * square)
                tp[j], fp[j] = bend - negatives / root, bend + positives / root
        elif positives > 0 and negatives > 0:  # G-mean of two classes
            if recall > TINY and specificity > TINY:
                mean = math.sqrt(recall * specificity)
                value += mean
                tp[j], fp[j] = -mean / (2 * recall * positives), mean / (2 * specificity * negatives)
        else:
            value += recall + specificity
            tp[j] = -1 / positives if positives > 0 else 0.0
            fp[j] = 1 / negatives if negatives > 0 else 0.0
    tp /= thresholds
    fp /= thresholds
    return 1 - value / thresholds


@compiled()
def _counted(goal: Any, p: Any, y: Any, gradient: Any) -> float:
    thresholds = len(goal.thresholds)
    tp, fp = np.zeros(thresholds), np.zeros(thresholds)
    positives, negatives = 0.0, 0.0
    for i in range(len(p)):
        positives += goal.weights[1] * y[i]
        negatives += goal.weights[0] * (1 - y[i])
    for j in range(thresholds):
        for i in range(len(p)):
            s = _step(p[i], goal.thresholds[j], goal)[0]
            if y[i]:
                tp[j] += goal.weights[1] * s
            else:
                fp[j] += goal.weights[0] * s
    loss = _metric(goal, tp, fp, positives, negatives)
    for i in range(len(p)):
        gradient[i] = 0
    for j in range(thresholds):
        for i in range(len(p)):
            slope = _step(p[i], goal.thresholds[j], goal)[1]
            gradient[i] += slope * (goal.weights[1] * tp[j] if y[i] else goal.weights[0] * fp[j])
    return loss


@compiled(fastmath=True)
def _against_all(p: Any, others: Any, margin: Any, power: int, slopes: Any) -> Any:
    """The terms of one positive with all negatives, and its slope; those of the negatives are added up."""
    zero = margin - margin
    loss, own = zero, zero
    for j in range(len(others)):
        short = max(zero, margin - p + others[j])
        slope = short
        for _ in range(power - 2):
            slope *= short
        loss += slope * short
        own += slope
        slopes[j] += slope
    return loss, own


@compiled()
def _paired(goal: Any, p: Any, y: Any, gradient: Any) -> float:
    """The mean of max(0, margin - (p of a positive - p of a negative))^power."""
    others = p[y == 0]
    slopes, loss = np.zeros_like(others), 0.0
    pairs = len(others) * (len(p) - len(others))
    factor = goal.power / pairs if pairs else 0.0
    for i in range(len(p)):
        if y[i]:
            terms, own = _against_all(p[i], others, p.dtype.type(goal.margin), goal.power, slopes)
            loss += terms
            gradient[i] = -factor * own
    at = 0
    for i in range(len(p)):
        if not y[i]:
            gradient[i] = factor * slopes[at]
            at += 1
    return loss / pairs if pairs else 0.0


@compiled()
def _overlap(goal: Any, p: Any, y: Any, gradient: Any) -> float:
    """1 - the squared Dice coefficient."""
    overlap, sizes, positives = 0.0, 0.0, 0.0
    for i in range(len(p)):
        weight = goal.weights[y[i]]
        overlap += weight * p[i] * y[i]
        sizes += weight * (p[i] * p[i] + y[i])
        positives += weight * y[i]
        gradient[i] = 0
    if positives <= 0:
        return 1.0
    for i in range(len(p)):
        weight = goal.weights[y[i]]
        gradient[i] = -2 * weight * (y[i] / sizes - 2 * p[i] * overlap / (sizes * sizes))
    return 1 - 2 * overlap / sizes


@compiled()
def loss_and_gradient(goal: Goal, z: Array, y: Array, gradient: Array) -> float:
    """The loss of a batch; the gradient of its outputs goes to the last argument.

    Args:
        goal: Which loss.
        z: Outputs (n,), float32.
        y: Classes (n,), 0 and 1.
        gradient: As the outputs.
    """
    n = len(z)
    loss = 0.0
    if goal.kind == CROSS_ENTROPY:
        for i in range(n):
            margin = z[i] if y[i] else -z[i]
            tail = math.exp(-abs(margin))
            weight = goal.weights[y[i]] / n
            loss += weight * (math.log1p(tail) + max(-margin, 0.0))
            wrong = tail / (1 + tail) if margin > 0 else 1 / (1 + tail)
            gradient[i] = -weight * wrong if y[i] else weight * wrong
        return loss
    p = z if goal.is_raw else 1 / (1 + np.exp(-z))
    if goal.kind == SQUARED_ERROR:
        for i in range(n):
            loss += (p[i] - y[i]) ** 2 / n
            gradient[i] = 2 * (p[i] - y[i]) / n
    elif goal.kind == DICE_PER_SAMPLE:
        for i in range(n):
            bottom = p[i] * p[i] + y[i] + 1e-7
            loss += (1 - p[i] * y[i] / bottom) / n
            gradient[i] = -y[i] * (bottom - 2 * p[i] * p[i]) / (bottom * bottom * n)
    elif goal.kind == DICE:
        loss = _overlap(goal, p, y, gradient)
    elif goal.kind == PAIRS:
        loss = _paired(goal, p, y, gradient)
    else:
        loss = _counted(goal, p, y, gradient)
    if not goal.is_raw:
        for i in range(n):
            gradient[i] *= p[i] * (1 - p[i])
    return loss
