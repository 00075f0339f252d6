"""Loss and gradient of a metric, given the confusion matrices of all members.

The dozens of tiny operations of a metric and of its backward pass took longer than the matrix products of a network on
a batch of 512. The commonest metrics are therefore differentiated by hand, for all members at once; every other metric
goes through autograd, and the tests compare the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from metricfit.confusion import ConfusionMatrix
from metricfit.fast.metric_gradients import ClosedForm, closed_form_of
from metricfit.inputs import Task
from metricfit.metrics import BalancedAccuracy, Metric, Recall

__all__ = ["LossOfMatrix", "closed_form", "loss_of_matrix"]

Array = NDArray[np.float64]
LossOfMatrix = Callable[[Array], tuple[Array, Array]]
"""Losses (members,) and their gradients (members, d, d) of matrices (members, d, d)."""

TINY = float(np.finfo(np.float32).tiny)
"""Denominators up to here count as 0, as in float32."""


def loss_of_matrix(metric: Metric, task: Task, labels: tuple[Hashable, ...]) -> LossOfMatrix:
    """The function of the matrices that training minimises; averages leave out classes without support.

    Args:
        metric: A metric of one decision.
        task: ``"binary"`` or ``"multiclass"``.
        labels: Class names.

    >>> from metricfit import metrics
    >>> loss, gradient = loss_of_matrix(metrics.get("f1"), "binary", (0, 1))(np.array([[[5.0, 1.0], [2.0, 4.0]]]))
    >>> loss.round(3), gradient.round(3).tolist()
    (array([0.273]), [[[0.0, 0.066], [0.066, -0.05]]])
    """
    form = closed_form(metric, task, labels)
    if form is None:
        return partial(_by_autograd, metric, task, labels)
    if task == "binary":
        return partial(_one_by_one, partial(_two_class_mcc if form.ratio is None else _two_class_ratio, form))
    return partial(_loss_of_mcc if form.ratio is None else _loss_of_mean_ratio, form)


def closed_form(metric: Metric, task: Task, labels: tuple[Hashable, ...]) -> ClosedForm | None:
    """The closed form of a metric for a task, where there is one."""
    if isinstance(metric, BalancedAccuracy) and metric.average == "auto" and metric.label is None:
        metric = Recall("macro", zero_division=metric.zero_division)
    named = getattr(metric, "label", None)
    any_class: Any = metric if named is None else replace(metric, label=None)  # type: ignore[type-var]
    form = closed_form_of(any_class)
    if form is None or (named is not None and form.ratio is None):
        return None
    if named is not None:
        return replace(form, label=ConfusionMatrix(torch.eye(len(labels)), task, labels).class_index(named))
    positive = task == "binary" and form.ratio is not None and any_class.average == "auto"
    return replace(form, label=1) if positive else form


def _by_autograd(metric: Metric, task: Task, labels: tuple[Hashable, ...], matrix: Array) -> tuple[Array, Array]:
    leaf = torch.from_numpy(matrix).float().requires_grad_()
    with torch.enable_grad():
        losses = metric.loss(lambda _: ConfusionMatrix(leaf, task, labels, "skip"))
        if losses.shape != leaf.shape[:1]:
            raise ValueError(f"metric: {metric} gives shape {tuple(losses.shape[1:])}, a loss needs one number.")
        (gradient,) = torch.autograd.grad(losses.sum(), leaf)
    return losses.detach().numpy().astype(np.float64), gradient.numpy().astype(np.float64)


Cells = list[list[float]]


def _one_by_one(loss: Callable[[Cells], tuple[float, Cells]], matrix: Array) -> tuple[Array, Array]:
    """Two classes are few enough for plain numbers, which are quicker than arrays."""
    losses, gradients = zip(*map(loss, matrix.tolist()), strict=True)
    return np.array(losses), np.array(gradients)


def _two_class_ratio(form: ClosedForm, cells: Cells) -> tuple[float, Cells]:
    """As :func:`_loss_of_mean_ratio`."""
    a, b, c, d = form.ratio  # type: ignore[misc]
    loss, gradient = 1.0, [[0.0, 0.0], [0.0, 0.0]]
    averaged = [k for k in (0, 1) if (k == form.label if form.label >= 0 else sum(cells[k]) > 0)]
    for k in averaged:
        hits, misses, false_alarms = cells[k][k], cells[k][1 - k], cells[1 - k][k]
        below = b * hits + c * misses + d * false_alarms
        if not below > TINY:
            loss -= form.undefined / len(averaged)
            continue
        value, share = a * hits / below, 1 / (below * len(averaged))
        loss -= value / len(averaged)
        gradient[k][k] += (value * b - a) * share
        gradient[k][1 - k] += value * c * share
        gradient[1 - k][k] += value * d * share
    return loss if averaged else 1.0 - form.undefined, gradient


def _two_class_mcc(form: ClosedForm, cells: Cells) -> tuple[float, Cells]:
    """1 - (TP·TN - FP·FN) / √((TP+FP)(TP+FN)(TN+FP)(TN+FN))."""
    (tn, fp), (fn, tp) = cells
    yes, no, positive, negative = tp + fp, tn + fn, tp + fn, tn + fp
    total = positive + negative
    if not min(yes * no, positive * negative) > TINY * total * total:
        return 1.0 - form.undefined, [[0.0, 0.0], [0.0, 0.0]]
    norm = math.sqrt(yes * no) * math.sqrt(positive * negative)
    value = (tp * tn - fp * fn) / norm
    # Each count is in two of the four sums under the root.
    half = value / 2
    return 1.0 - value, [
        [half * (1 / no + 1 / negative) - tp / norm, half * (1 / yes + 1 / negative) + fn / norm],
        [half * (1 / no + 1 / positive) + fp / norm, half * (1 / yes + 1 / positive) - tn / norm],
    ]


def _loss_of_mean_ratio(form: ClosedForm, matrix: Array) -> tuple[Array, Array]:
    """1 - the mean of ratio[0]·tp / (ratio[1]·tp + ratio[2]·fn + ratio[3]·fp) over classes, or that of one class."""
    hits = np.einsum("mkk->mk", matrix)
    support, predicted = matrix.sum(axis=2), matrix.sum(axis=1)
    a, b, c, d = form.ratio  # type: ignore[misc]
    below = b * hits + c * (support - hits) + d * (predicted - hits)
    if form.label < 0:
        averaged = (support > 0).astype(np.float64)
    else:
        averaged = np.zeros_like(hits)
        averaged[:, form.label] = 1.0
    number = averaged.sum(axis=1, keepdims=True)
    share = averaged / np.maximum(number, 1.0)
    defined = below > TINY
    value = np.where(defined, a * hits / np.where(defined, below, 1.0), form.undefined)
    loss = 1.0 - np.where(number[:, 0] > 0, (value * share).sum(axis=1), form.undefined)
    scale = np.where(defined, share / np.where(defined, below, 1.0), 0.0)
    # Of value = a·tp / (b·tp + c·fn + d·fp): -a/below + value·b/below on the diagonal, value·c/below along the row …
    row, column = value * c * scale, value * d * scale
    gradient = row[:, :, None] + column[:, None, :]
    np.einsum("mkk->mk", gradient)[...] = (value * b - a) * scale
    return loss, gradient


def _loss_of_mcc(form: ClosedForm, matrix: Array) -> tuple[Array, Array]:
    """1 - MCC, from shares of all samples: (correct - Σ pₖ tₖ) / √((1 - Σ pₖ²)(1 - Σ tₖ²))."""
    total = matrix.sum(axis=(1, 2), keepdims=True)
    shares = matrix / np.where(total > 0, total, 1.0)
    true, predicted = shares.sum(axis=2), shares.sum(axis=1)
    correct = np.einsum("mkk->m", shares)[:, None]
    # 1 - Σ pₖ² as Σ pₖ (1 - pₖ), each 1 - pₖ a sum of the others: exactly 0 where there is only one class.
    others = 1.0 - np.eye(matrix.shape[1])
    spread = (predicted * (predicted @ others)).sum(axis=1, keepdims=True)
    true_spread = (true * (true @ others)).sum(axis=1, keepdims=True)
    defined = (spread > TINY) & (true_spread > TINY)
    norm = np.sqrt(np.where(defined, spread * true_spread, 1.0))
    spread, true_spread = np.where(defined, spread, 1.0), np.where(defined, true_spread, 1.0)
    value = (correct - (predicted * true).sum(axis=1, keepdims=True)) / norm
    row = value * (1.0 - true) / true_spread - (correct - predicted) / norm
    column = value * (1.0 - predicted) / spread + true / norm
    gradient = row[:, :, None] + column[:, None, :]
    np.einsum("mkk->mk", gradient)[...] -= 1.0 / norm
    gradient *= np.where(defined & (total[:, 0] > 0), 1.0 / np.where(total > 0, total, 1.0)[:, 0], 0.0)[:, :, None]
    return np.where(defined, 1.0 - value, 1.0 - form.undefined)[:, 0], gradient
