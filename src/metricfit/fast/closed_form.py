"""From counts to a loss and its gradient: by hand for MCC and fractions of counts, else by autograd.

Autograd serves every metric, but on a small batch its dozens of tiny operations cost more than all samples together.
MCC and fractions of counts (F1, recall, Jaccard, …) need three vectors of the matrix: diagonal, sums of rows, sums of
columns. Their gradient is G[t, k] = row[t] + column[k] + (t = k) diagonal[k], in which row[t] moves nothing, since the
memberships of a sample sum to one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from metricfit.confusion import ConfusionMatrix
from metricfit.inputs import Task
from metricfit.metrics import MCC, FormulaMetric
from metricfit.metrics.formula import COUNTS, Formula

if TYPE_CHECKING:
    from metricfit.losses.companions import ConfusionMemory
    from metricfit.losses.metric_loss import MetricLoss

Array = np.ndarray[Any, Any]

TINY = 1.1754943508222875e-38
"""Denominators up to here count as 0: float32's smallest number, unless a call gives another dtype's."""

LEAST_NORM, NO_NORM = 1e-4, 1e-12
"""Where nearly all rows get one class, the covariance is less than the rounding of the sums that it is taken from: MCC,
which divides it by this norm, would be anything. Up to the second MCC itself is nothing."""

_ONE = np.array([0.0, 0.0, 0.0, 0.0, 1.0])  # coefficients of (tp, fp, fn, tn) and, last, a constant
_Form = tuple[Any, Any] | None  # a numerator and a denominator


def coefficients(formula: Formula, parameters: Mapping[str, Any]) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Of (tp, fp, fn, tn) above and below, where the formula is a quotient of linear forms of the counts of a class."""
    form: _Form = formula.replay(_linear, parameters)
    if form is None or any(part[-1] for part in form):
        return None
    above, below = (tuple(part[:-1].tolist()) for part in form)
    return above, below


def _linear(step: str, *parts: Any) -> _Form:
    if step in (*COUNTS, "n"):
        return np.array([float(step in (count, "n")) for count in COUNTS] + [0.0]), _ONE
    if step in ("number", "parameter"):
        return (parts[-1] * _ONE, _ONE) if isinstance(parts[-1], (int, float)) else None
    if len(parts) < 2 or any(part is None for part in parts):
        return None
    a, b = parts
    first, second = (x[0][-1] if x[1] is _ONE and not x[0][:-1].any() else None for x in (a, b))  # if it is a number
    if step in "+-":
        sign = 1 if step == "+" else -1
        if np.array_equal(a[1], b[1]):
            return a[0] + sign * b[0], a[1]
        if second is not None:
            return a[0] + sign * second * a[1], a[1]
        return None if first is None else (first * b[1] + sign * b[0], b[1])
    if step == "**":
        return None if first is None or second is None else (first**second * _ONE, _ONE)
    if second is not None:
        return a[0] * (second if step == "*" else 1 / second), a[1]
    if step == "*":
        return None if first is None else (first * b[0], b[1])
    return (a[0], b[0]) if a[1] is _ONE and b[1] is _ONE else None


@dataclass(frozen=True)
class ClosedForm:
    """A metric whose gradient is known; its loss is 1 - metric."""

    numbers: tuple[float, ...]  # the value of 0/0; of a fraction also what tp, fp, fn, tn count above, and below
    label: int  # the class that a fraction is taken of; -1 for the mean over classes

    @cached_property
    def array(self) -> Array:
        """The numbers as the compiled loops take them."""
        return np.array(self.numbers, np.float64)


@lru_cache(maxsize=64)
def closed_form_of(metric: FormulaMetric, task: Task) -> ClosedForm | None:
    """The closed form of a metric of a matrix, where there is one.

    >>> from metricfit import metrics
    >>> closed_form_of(metrics.get("f1"), "binary")
    ClosedForm(numbers=(0.0, 2.0, 0.0, 0.0, 0.0, 2.0, 1.0, 1.0, 0.0), label=1)
    >>> closed_form_of(metrics.get("kappa"), "binary")
    """
    label, average, undefined = metric.label, metric.average, metric.zero_division
    if isinstance(metric, MCC):
        return ClosedForm((float(undefined),), -1) if average == "auto" and label is None else None
    found = coefficients(metric.program, metric.parameters)
    if found is None or metric.perfect != 1 or not metric.greater_is_better or metric.whole:
        return None
    if undefined != undefined or average not in ("auto", "macro"):
        return None
    if label is None:
        label = 1 if task == "binary" and average == "auto" else -1
    elif not isinstance(label, int) or label < 0:
        return None
    return ClosedForm((float(undefined), *found[0], *found[1]), label)


def fraction(sums: Any, form: Any, label: int, skip_absent: bool, gradient: Any, tiny: Any = TINY) -> Any:
    """1 - the (mean) fraction; its columns and diagonal into ``gradient``. All 0 without any weight.

    Compiled where numba is there; interpreted on lists where it is not, for a few classes quicker than NumPy.
    """
    hits, true, predicted, columns, diagonal = sums[0], sums[1], sums[2], gradient[0], gradient[1]
    averaged, total = 0, 0.0
    for k in range(len(hits)):
        total += true[k]
        averaged += label == k or (label < 0 and not (skip_absent and true[k] <= 0))
    if not total > 0:
        return 0.0
    loss = 1.0
    for k in range(len(hits)):
        if not (label == k or (label < 0 and not (skip_absent and true[k] <= 0))):
            continue
        tp, fp, fn = hits[k], max(predicted[k] - hits[k], 0.0), max(true[k] - hits[k], 0.0)
        tn = max(total - tp - fp - fn, 0.0)
        below = form[5] * tp + form[6] * fp + form[7] * fn + form[8] * tn
        if not below > tiny:
            loss -= form[0] / averaged
            continue
        value = (form[1] * tp + form[2] * fp + form[3] * fn + form[4] * tn) / below
        share = 1.0 / (below * averaged)
        of_fp, of_tn = (form[2] - value * form[6]) * share, (form[4] - value * form[8]) * share
        columns[k] = of_tn - of_fp
        diagonal[k] = of_fp - of_tn - ((form[1] - value * form[5]) - (form[3] - value * form[7])) * share
        loss -= value / averaged
    return loss


def mcc(
    sums: Any, form: Any, label: int, skip_absent: bool, gradient: Any, tiny: Any = TINY, least: Any = LEAST_NORM
) -> Any:  # fmt: skip
    """1 - MCC, as :func:`fraction`; of all classes always. NaN where sums do not tell: see :data:`LEAST_NORM`."""
    hits, true, predicted, columns, diagonal = sums[0], sums[1], sums[2], gradient[0], gradient[1]
    correct = total = 0.0
    for k in range(len(hits)):
        correct += hits[k]
        total += true[k]
    if not total > 0:
        return 0.0
    covariance = correct / total
    # Twice the sums over pairs of different classes: exactly 0 where there is only one.
    spread = true_spread = before = true_before = 0.0
    for k in range(len(hits)):
        p, t = predicted[k] / total, true[k] / total
        covariance -= p * t
        spread += 2.0 * p * before
        true_spread += 2.0 * t * true_before
        before += p
        true_before += t
    norm = spread**0.5 * true_spread**0.5
    if not (spread > tiny and true_spread > tiny and norm > NO_NORM):
        return 1.0 - form[0]
    if norm < least:
        return math.nan
    value = covariance / norm
    for k in range(len(hits)):
        p, t = predicted[k] / total, true[k] / total
        columns[k] = (value * (1.0 - p) / spread + t / norm) / total
        diagonal[k] = -1.0 / (norm * total)
    return 1.0 - value


def loss_of_sums(
    form: ClosedForm, sums: Array, skip_absent: bool, is_compiled: bool, tiny: float = TINY, least: float = LEAST_NORM
) -> tuple[Array, Array]:
    """The losses (M,), and columns and diagonal (M, 2, d) of their gradients, of hits, true and predicted weights."""
    losses, gradient = np.empty(len(sums)), np.zeros((len(sums), 2, sums.shape[2]))
    if is_compiled:
        from metricfit.fast.loops import losses_of_sums  # brings numba

        losses_of_sums(sums, form.array, form.label, skip_absent, losses, gradient, least)
        return losses, gradient
    # One by one, the numbers of a list are read in a fraction of the time that those of an array take.
    for member, lists in enumerate(sums.tolist()):
        vectors: Any = [[0.0] * sums.shape[2], [0.0] * sums.shape[2]]
        known = lists, form.numbers, form.label, skip_absent, vectors, tiny
        losses[member] = fraction(*known) if form.numbers[1:] else mcc(*known, least)
        gradient[member] = vectors
    return losses, gradient


def loss_of_matrices(
    options: MetricLoss, form: ClosedForm | None, counts: Tensor, memory: ConfusionMemory | None, is_compiled: bool
) -> tuple[Tensor, Tensor] | None:
    """The losses of matrices and their gradient; both 0 without weight. None if a metric gives several numbers."""
    with torch.set_grad_enabled(form is None):
        leaf = counts.detach().requires_grad_(form is None)
        cm = ConfusionMatrix(leaf if options.members else leaf[0], options.task, options.labels, options.absent)
        cm = cm if memory is None else memory(cm)
        if form is None:
            losses, totals = options.metric.loss(lambda _: cm).reshape(-1), counts.sum(dim=(1, 2))
            if losses.shape != totals.shape:
                return None
            (gradient,) = torch.autograd.grad(losses.sum(), leaf)
            gradient = gradient - gradient.diagonal(dim1=1, dim2=2)[..., None]  # moves nothing, and is exact for it
            has_weight = totals > 0
            return torch.where(has_weight, losses.detach(), 0.0), torch.where(has_weight[:, None, None], gradient, 0.0)
    array: Array = cm.matrix.double().numpy().reshape(counts.shape)
    weights: Array = counts.double().numpy().sum(axis=(1, 2), keepdims=True)
    scale: Any = 1.0 if memory is None else (weights > 0) / np.where(weights > 0, weights, 1)
    sums = np.stack([array.diagonal(axis1=1, axis2=2), array.sum(axis=2), array.sum(axis=1)], axis=1)
    tiny = torch.finfo(counts.dtype).tiny
    values, vectors = loss_of_sums(form, sums, options.absent == "skip", is_compiled, tiny, least=0.0)  # exact cells
    return torch.from_numpy(values * (weights[:, 0, 0] > 0)), torch.from_numpy(vectors * scale)
