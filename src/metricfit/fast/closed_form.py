"""The closed form in plain torch, for every device; the compiled loops follow the same formulas.

With softmax the threshold tau, the mean of the two largest probabilities, is at most 1/2, and only the largest lies
over it. In units of the threshold, u = p / tau = 2 exp(z - z1) / (1 + exp(z2 - z1)), the five-point step up to its
middle's end is therefore the same for all samples: two lines. These do not change when all probabilities grow alike, so
that whatever softmax and the moving threshold add to the gradient cancels out but at the two largest; only a largest
one over the middle leaves more.

Tensors are (b, classes, l), so that a table (l = 1), its transpose (b = 1) and images with their classes in front are
the same to every formula; what a sample has of its own is (b, 1, l).

Between the two passes counts become a loss and its gradient. Autograd serves every metric, but on a small batch the
dozens of tiny tensor operations of a metric and of its backward pass cost more than all samples together. MCC and
fractions of counts (F1, recall, Jaccard, …) are therefore differentiated by hand as well. They need three vectors of
the matrix: diagonal, sums of rows, sums of columns. Their gradient is G[t, k] = row[t] + column[k] + (t = k)
diagonal[k], in which row[t] moves nothing, since the memberships of a sample sum to one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from metricfit.confusion import ConfusionMatrix
from metricfit.inputs import Task, accumulation_dtype
from metricfit.metrics import MCC, FormulaMetric, Metric
from metricfit.metrics.formula import COUNTS, Formula

if TYPE_CHECKING:
    from metricfit.losses.companions import ConfusionMemory
    from metricfit.losses.metric_loss import LossOptions

__all__ = [
    "ClosedForm", "Points", "TorchBatch", "TwoClasses", "closed_form_of", "fraction", "loss_of_matrices",
    "loss_of_sums", "mcc", "torch_batch",
]  # fmt: skip

Array = np.ndarray[Any, Any]

BLOCK_ELEMENTS = 2**18
"""On a CPU: temporaries of this size stay in the caches, and the fixed cost of the operations on a block is small."""

BLOCK_ON_DEVICE = 2**25
"""Elsewhere only memory counts."""

KEPT_ELEMENTS = 2**25
"""Of more scores a block is counted again in the backward pass instead of being kept."""

ROWS_FROM = 64
"""From this many classes on a loop over those of one sample is long enough; with fewer, tables are transposed."""


class Points(NamedTuple):
    """The five-point step in units of its threshold: numbers, or one for each sample, (b, 1, l).

    Attributes:
        delta: The height where the middle begins.
        low: The slope below the middle.
        middle: The slope in the middle.
        start: Where the middle begins; -1 if that is at 0.
        end: Where the middle ends.
    """

    delta: Any
    low: Any
    middle: Any
    start: Any
    end: Any

    @staticmethod
    def of(delta: float, factor: float) -> Points:
        """Of the height ``delta`` and a middle as wide as ``factor`` times the threshold.

        >>> Points.of(0.1, 1.0)
        Points(delta=0.1, low=0.2, middle=0.8, start=0.5, end=1.5)
        """
        start = 1 - factor / 2
        low = delta / start if start > 0 else 0.0
        return Points(delta, low, (1 - 2 * delta) / factor, start if start > 0 else -1.0, 1 + factor / 2)


@dataclass(slots=True)
class Counted:
    """A block and what its gradient needs.

    u are probabilities in units of the threshold and h their steps, (b, classes, l), not yet divided by their sum; per
    sample, (b, 1, l), 1 / sum of h, the sum of u, the largest u and the second largest.
    """

    u: Tensor
    h: Tensor
    inverse: Tensor
    total: Tensor
    largest: Tensor
    second: Tensor


def count_block(x: Tensor, points: Points) -> Counted:
    """The steps of a block of logits, which is overwritten."""
    x = x.sub_(x.amax(dim=1, keepdim=True)).exp_()
    is_first = _where(torch.ge, x, 1)
    ties = is_first.sum(dim=1, keepdim=True)
    second = torch.sub(x, is_first, alpha=2).amax(dim=1, keepdim=True)
    second = torch.maximum(second, ties.sub_(1).clamp_max_(1))  # the largest itself where it is there twice
    largest = (second + 1).reciprocal_().mul_(2)
    u = x.mul_(largest)
    total = u.sum(dim=1, keepdim=True)
    # u - 1 first: it is exact where the step is steepest. Held at the end of the middle, beyond which it is another.
    inside = torch.sub(u, 1, out=is_first).mul_(points.middle).add_(0.5)
    top = 1 - points.delta
    inside = torch.minimum(inside, top) if isinstance(top, Tensor) else inside.clamp_max_(top)
    h = inside.lerp_(u * points.low, _where(torch.lt, u, points.start))
    h += (u - points.end).clamp_min_(0).mul_(points.delta / _above(total, points))
    return Counted(u, h, h.sum(dim=1, keepdim=True).reciprocal_(), total, largest, second.mul_(largest))


def _where(compare: Any, u: Tensor, bound: Any) -> Tensor:
    """1.0 where the comparison holds, else 0.0: multiplied in a fraction of the time of a choice by booleans."""
    result: Tensor = compare(u, bound, out=torch.empty_like(u))
    return result


def _above(total: Tensor, points: Points) -> Tensor:
    """How far p = 1 lies over the middle. The step rises by delta there, and only the largest can be there."""
    distance: Tensor = total - points.end
    return distance.clamp_min_(torch.finfo(total.dtype).tiny)


def pull_back_block(g: Tensor, share: Tensor, block: Counted, points: Points, *, is_fixed: bool) -> Tensor:
    """The gradient of the logits, given that of the memberships; it and the steps of the block are overwritten.

    ``share`` holds weights divided by the sums of steps, (b, 1, l).
    """
    u, largest, total = block.u, block.largest, block.total
    above, is_first = _above(total, points), _where(torch.ge, u, largest)
    over = (largest - points.end).clamp_min_(0).div_(above)
    g.sub_(block.h.mul_(g).sum(dim=1, keepdim=True).mul_(block.inverse)).mul_(share)
    slope = _where(torch.lt, u, points.start).mul_(points.low - points.middle).add_(points.middle)
    slope.addcmul_(is_first, (points.delta / above).sub_(points.middle).mul_(_where(torch.gt, largest, points.end)))
    g.mul_(slope).mul_(u)
    change = g.sum(dim=1, keepdim=True)
    if is_fixed:
        return g.addcmul_(u, change / total, value=-1)
    # At a largest over the middle g is largest · delta / above times what of_over needs.
    of_over = torch.mul(g, is_first, out=slope).sum(dim=1, keepdim=True).mul_(over / largest)
    change -= of_over * total
    is_second = torch.eq(u, block.second, out=slope)
    ties, seconds = is_first.sum(dim=1, keepdim=True), is_second.sum(dim=1, keepdim=True)
    part = largest / 2
    g.addcmul_(u, of_over, value=-1)
    g.addcmul_(is_first, change * part / ties, value=-1)
    return g.addcmul_(is_second, change * (1 - part) / seconds, value=-1)


class TorchBatch:
    """:class:`metricfit.fast.CompiledBatch` in torch, without autograd; arguments as there.

    ``may_wait`` says whether values may be looked at, for which a device has to finish.
    """

    def __init__(
        self, target: Tensor, weight: Tensor | None, class_weight: Tensor | None, *, members: int, points: Any,
        ignore: int, is_fixed: bool, may_wait: bool,
    ) -> None:  # fmt: skip
        self.target, self.weight, self.class_weight = target, weight, class_weight
        self.members, self.points = members, points
        self.ignore, self.is_fixed, self.may_wait = ignore, is_fixed, may_wait
        self.kept: list[Counted | None] = []
        rows = points.tolist()
        self.same = Points(*rows[0]) if all(row == rows[0] for row in rows) else None

    def count(self, scores: Tensor, by_class: bool, keeps: bool) -> Any:
        """The counts, as of a compiled batch; by_class on a CPU only."""
        scores = scores.detach()
        self.dtype = accumulation_dtype(scores.dtype)
        classes = self.classes = scores.shape[1]
        if not self._prepare(scores):
            return None
        blocks = self._split_scores(scores)
        self.kept = [None] * len(blocks)
        keeps = keeps and scores.numel() <= KEPT_ELEMENTS
        rows = self.members * classes
        hits = torch.zeros(rows, dtype=torch.float64, device=scores.device) if by_class else None
        shape = (classes, self.members) if by_class else (rows, classes)
        sums = torch.zeros(shape, dtype=self.dtype, device=scores.device)
        for i, block in enumerate(blocks):
            counted = self._count(i, block)
            share, cells = self._share(i, counted), self.cells[i].flatten()
            h = counted.h * share
            if hits is not None:
                hits.index_add_(0, cells, h.gather(1, self.labels[i]).flatten().double())
                h = h.movedim(1, 0).reshape(classes, -1)
                if self.members == 1:
                    sums[:, 0] += h.sum(dim=1)
                else:
                    sums.index_add_(1, self.of_member[i].flatten(), h)
            else:
                sums.index_add_(0, cells, h.movedim(1, -1).reshape(-1, classes))
            if keeps:
                self.kept[i] = counted
        if hits is None:
            counts = sums.reshape(self.members, classes, classes).double()
            return None if self.may_wait and counts.sum().isnan().item() else counts
        weights = None if self.all_weights is None else self.all_weights.double()
        true = torch.bincount(self.all_cells, weights, minlength=rows).double()
        shape = (self.members, classes)
        sums_of_classes = torch.stack([hits.reshape(shape), true.reshape(shape), sums.T.double()], dim=1).numpy()
        total = sums_of_classes.sum()
        return sums_of_classes if total == total else None

    def pull_back(self, scores: Tensor, gradient: Tensor, by_class: bool) -> Tensor:
        """The gradient with respect to the scores, as of a compiled batch."""
        scores = scores.detach()
        result = torch.empty_like(scores)
        gradient = gradient.to(device=scores.device, dtype=self.dtype)
        blocks, outs = self._split_scores(scores), self._split_scores(result)
        for i, (block, out) in enumerate(zip(blocks, outs, strict=True)):
            counted, self.kept[i] = self.kept[i], None
            if counted is None:  # too many to be kept, or used up by an earlier call
                counted = self._count(i, block)
            g = self._gradient_of_counts(i, gradient, by_class, counted.u)
            points = self._points_of(i)
            out.copy_(pull_back_block(g, self._share(i, counted), counted, points, is_fixed=self.is_fixed))
        return result

    def _prepare(self, scores: Tensor) -> bool:
        """Cut what belongs to the samples into blocks; whether labels and weights are right, as far as one may look."""
        found = self._checked()
        if found is None:
            return False
        labels, weights, keep = found
        self._lay_out(scores, len(labels))
        of_member = cells = None
        if self.members > 1:
            of_member = torch.arange(len(labels), device=labels.device) // (len(labels) // self.members)
            cells = labels + of_member * self.classes
        self.all_cells, self.all_weights = labels if cells is None else cells, weights
        self.labels, self.cells = self._split(labels), self._split(self.all_cells)
        self.weights = None if weights is None else self._split(weights)
        self.keep = None if keep is None else self._split(keep)
        self.of_member = [] if of_member is None else self._split(of_member)
        return True

    def _checked(self) -> tuple[Tensor, Tensor | None, Tensor | None] | None:
        """Labels, weights and which samples count, None for all; None instead if labels or weights are wrong."""
        labels, keep = self.target, None
        weights = None if self.weight is None else self.weight.to(self.dtype)
        if 0 <= self.ignore < self.classes or not (self.may_wait and _are_within(labels, self.classes)):
            keep = labels != self.ignore
            labels = labels * keep
            weights = keep.to(self.dtype) if weights is None else torch.where(keep, weights, 0.0)
            if self.may_wait and not _are_within(labels, self.classes):
                return None
        if self.class_weight is not None:
            of_label = self.class_weight.to(self.dtype)[labels]
            weights = of_label if weights is None else weights * of_label
        if self.may_wait and weights is not None and not _are_within(weights, float("inf")):
            return None
        return labels, weights, keep

    def _lay_out(self, scores: Tensor, samples: int) -> None:
        """Choose blocks (b, classes, l) that suit torch's loops."""
        self.is_image = scores.ndim > 2 and scores.is_contiguous()
        self.is_transposed = not self.is_image and scores.is_cpu and self.classes < ROWS_FROM
        size = len(scores) if self.is_image else 1 if self.is_transposed else samples
        self.shape = (size, 1, samples // size)
        most = max(1, (BLOCK_ELEMENTS if scores.is_cpu else BLOCK_ON_DEVICE) // self.classes)
        self.columns = min(most, samples // size)
        self.rows = min(max(1, most // self.shape[2]), size)

    def _split(self, values: Tensor) -> list[Tensor]:
        """Blocks of what is (size, …, length), or has one number for each sample in order."""
        values = values.reshape(self.shape) if values.ndim == 1 else values
        if self.columns == self.shape[2] and self.rows == self.shape[0]:
            return [values]
        return [
            values[i : i + self.rows, :, j : j + self.columns]
            for i in range(0, self.shape[0], self.rows)
            for j in range(0, self.shape[2], self.columns)
        ]

    def _split_scores(self, values: Tensor) -> list[Tensor]:
        if self.is_image:
            return self._split(values.reshape(len(values), self.classes, -1))
        if values.ndim > 2:  # channels last
            values = values.movedim(1, -1).reshape(-1, self.classes)
        return self._split(values.T[None] if self.is_transposed else values[:, :, None])

    def _count(self, i: int, block: Tensor) -> Counted:
        x = block.to(self.dtype, copy=True, memory_format=torch.contiguous_format)
        if self.keep is not None:  # whatever lies there, NaN too, is replaced
            x = x.masked_fill_(~self.keep[i], 0.0)
        return count_block(x, self._points_of(i))

    def _share(self, i: int, counted: Counted) -> Tensor:
        return counted.inverse if self.weights is None else counted.inverse * self.weights[i]

    def _points_of(self, i: int) -> Points:
        if self.same is not None:
            return self.same
        table = torch.as_tensor(self.points, dtype=self.dtype, device=self.labels[i].device)
        return Points(*table[self.of_member[i]].unbind(-1))

    def _gradient_of_counts(self, i: int, gradient: Tensor, by_class: bool, like: Tensor) -> Tensor:
        labels, cells = self.labels[i], self.cells[i]
        if not by_class:
            rows = gradient.reshape(-1, self.classes)[cells.flatten()]
            return rows.reshape(labels.shape[0], labels.shape[2], -1).movedim(-1, 1).contiguous()
        if self.members == 1:
            g = gradient[0, 0].view(1, -1, 1).expand(like.shape).clone(memory_format=torch.contiguous_format)
        else:
            rows = gradient[:, 0][self.of_member[i].flatten()]
            g = rows.reshape(labels.shape[0], labels.shape[2], -1).movedim(-1, 1).contiguous()
        return g.scatter_(1, labels, gradient.sum(dim=1).reshape(-1)[cells])


class TwoClasses(TorchBatch):
    """Of two classes the threshold is 1/2, so that everything is a function of the difference of their logits.

    With q = p - 1/2 the step is 1/2 + c(q) and c is odd: the memberships of the two classes sum to one.
    """

    def count(self, scores: Tensor, by_class: bool, keeps: bool) -> Any:
        """The counts, as of a compiled batch."""
        self.dtype, self.classes = accumulation_dtype(scores.dtype), 2
        found = self._checked()
        if found is None:
            return None
        labels, weights, keep = found
        scores = scores.detach().to(self.dtype)
        if keep is not None:  # whatever lies there, NaN too, is replaced
            scores = scores.masked_fill(~keep.reshape(scores[:, :1].shape), 0.0)
        if self.may_wait and not scores.amax().item() < float("inf"):
            return None
        q = (scores[:, 1] - scores[:, 0]).reshape(self.members, -1).mul_(0.5).tanh_().mul_(0.5)
        low, middle, end = self._slopes(q)
        self.is_inside = q.abs() <= end
        edge = q.sign().mul_(0.5)  # so that it is exact at the ends, where p is 0 or 1
        c = torch.where(self.is_inside, q * middle, edge - (edge - q).mul_(low)).double()
        self.q, self.true = q, labels.reshape(self.members, -1).to(self.dtype)
        self.of_samples = None if weights is None else weights.reshape(self.members, -1)
        true = self.true.double()
        shared = c * true
        if self.of_samples is None:
            total = true.new_full((self.members,), true.shape[1])
        else:
            share = self.of_samples.double()
            true, c, shared, total = true * share, c * share, shared * share, share.sum(dim=1)
        sums: Any = torch.stack([true.sum(dim=1), c.sum(dim=1), shared.sum(dim=1), total])
        if self.may_wait and sums[1].sum().isnan().item():
            return None
        true, c, shared, total = sums.numpy() if by_class else sums
        hits, predicted = true / 2 + shared, total / 2 + c
        others = (total - true - predicted + hits).clip(min=0)  # the hits of class 0
        if by_class:
            pairs = [[others, hits], [total - true, true], [total - predicted, predicted]]
            return np.array(pairs).transpose(2, 0, 1)
        cells = [others, total - true - others, true - hits, hits]
        return torch.stack(cells, dim=-1).reshape(-1, 2, 2)

    def pull_back(self, scores: Tensor, gradient: Tensor, by_class: bool) -> Tensor:
        """The gradient with respect to the scores, as of a compiled batch."""
        gradient = gradient.to(device=scores.device, dtype=self.dtype)
        if by_class:
            of_class = gradient[:, 0, 1:] - gradient[:, 0, :1]
            zero, one = of_class - gradient[:, 1, :1], of_class + gradient[:, 1, 1:]
        else:
            zero, one = (gradient[:, :, 1] - gradient[:, :, 0]).split(1, dim=1)
        low, middle, _ = self._slopes(self.q)
        g = self.is_inside.to(self.dtype).mul_(middle - low).add_(low)
        g.mul_((self.q * self.q).neg_().add_(0.25)).mul_(torch.addcmul(zero, self.true, one - zero))
        if self.of_samples is not None:
            g.mul_(self.of_samples)
        result = torch.empty_like(scores)
        g = g.reshape(result[:, 1].shape)
        result[:, 1] = g
        result[:, 0] = g.neg_()
        return result

    def _slopes(self, like: Tensor) -> tuple[Any, Any, Any]:
        """Over p instead of u = 2 p: the slopes below and in the middle, and where that ends; one per member."""
        points = self.same or Points(*torch.as_tensor(self.points, dtype=like.dtype, device=like.device).T[..., None])
        return 2 * points.low, 2 * points.middle, (points.end - 1) / 2


def torch_batch(classes: int, *, may_wait: bool) -> Callable[..., TorchBatch]:
    """How a batch of so many classes is made."""
    return partial(TwoClasses if classes == 2 else TorchBatch, may_wait=may_wait)


def _are_within(values: Tensor, end: float) -> bool:
    """Whether all are in [0, end)."""
    least, most = values.aminmax()
    return bool(least.item() >= 0 and most.item() < end)


TINY = 1.1754943508222875e-38
"""Denominators up to here count as 0, as in float32."""


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
    """A metric whose gradient is known; its loss is 1 - metric.

    Attributes:
        numbers: The value of 0/0. A fraction has eight more: what tp, fp, fn and tn count in its numerator, and in
            its denominator; MCC has none.
        label: The class that a fraction is taken of; -1 for the mean over classes.
    """

    numbers: tuple[float, ...]
    label: int

    @cached_property
    def array(self) -> Array:
        """The numbers as the compiled loops take them."""
        return np.array(self.numbers, np.float64)


def closed_form_of(metric: Metric, task: Task) -> ClosedForm | None:
    """The closed form of a metric of a matrix, where there is one.

    >>> from metricfit import metrics
    >>> closed_form_of(metrics.get("f1"), "binary")
    ClosedForm(numbers=(0.0, 2.0, 0.0, 0.0, 0.0, 2.0, 1.0, 1.0, 0.0), label=1)
    >>> closed_form_of(metrics.get("kappa"), "binary")
    """
    label: Any = getattr(metric, "label", None)
    average, undefined = getattr(metric, "average", None), getattr(metric, "zero_division", 0.0)
    if isinstance(metric, MCC):
        return ClosedForm((float(undefined),), -1) if average == "auto" and label is None else None
    found = coefficients(metric.program, metric.parameters) if isinstance(metric, FormulaMetric) else None
    if found is None or metric.perfect != 1 or not metric.greater_is_better or getattr(metric, "whole", False):
        return None
    if undefined != undefined or average not in ("auto", "macro"):
        return None
    if label is None:
        label = 1 if task == "binary" and average == "auto" else -1
    elif not isinstance(label, int) or label < 0:
        return None
    return ClosedForm((float(undefined), *found[0], *found[1]), label)


def fraction(sums: Any, form: Any, label: int, skip_absent: bool, gradient: Any) -> Any:
    """1 - the (mean) fraction; its columns and diagonal into ``gradient``. All 0 without any weight.

    Compiled where numba is there, since loops take a fraction of the time that whole arrays take to compile;
    interpreted on lists where it is not, which for a few classes is quicker than NumPy.
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
        if not below > TINY:
            loss -= form[0] / averaged
            continue
        value = (form[1] * tp + form[2] * fp + form[3] * fn + form[4] * tn) / below
        share = 1.0 / (below * averaged)
        of_fp, of_tn = (form[2] - value * form[6]) * share, (form[4] - value * form[8]) * share
        columns[k] = of_tn - of_fp
        diagonal[k] = of_fp - of_tn - ((form[1] - value * form[5]) - (form[3] - value * form[7])) * share
        loss -= value / averaged
    return loss


def mcc(sums: Any, form: Any, label: int, skip_absent: bool, gradient: Any) -> Any:
    """1 - MCC, as :func:`fraction`; of all classes always."""
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
    if not (spread > TINY and true_spread > TINY):
        return 1.0 - form[0]
    norm = spread**0.5 * true_spread**0.5
    value = covariance / norm
    for k in range(len(hits)):
        p, t = predicted[k] / total, true[k] / total
        columns[k] = (value * (1.0 - p) / spread + t / norm) / total
        diagonal[k] = -1.0 / (norm * total)
    return 1.0 - value


def loss_of_sums(form: ClosedForm, sums: Array, skip_absent: bool, is_compiled: bool) -> tuple[Array, Array]:
    """The losses (M,), and columns and diagonal of their gradients, (M, 2, d).

    Sums are hits, true and predicted weights of each class, (M, 3, d) in float64.
    """
    losses, gradient = np.empty(len(sums)), np.zeros((len(sums), 2, sums.shape[2]))
    if is_compiled:
        from metricfit.fast.lanes import losses_of_sums  # brings numba

        losses_of_sums(sums, form.array, form.label, skip_absent, losses, gradient)
        return losses, gradient
    # One by one, the numbers of a list are read in a fraction of the time that those of an array take.
    for member, lists in enumerate(sums.tolist()):
        vectors: Any = [[0.0] * sums.shape[2], [0.0] * sums.shape[2]]
        rule = fraction if form.numbers[1:] else mcc
        losses[member] = rule(lists, form.numbers, form.label, skip_absent, vectors)
        gradient[member] = vectors
    return losses, gradient


def loss_of_matrices(
    options: LossOptions, form: ClosedForm | None, counts: Tensor, memory: ConfusionMemory | None, is_compiled: bool
) -> tuple[Tensor, Tensor] | None:
    """The loss of each member and its gradient; both 0 without any weight. None if a metric gives several numbers.

    Counts are (M, d, d). Gradients are (M, 2, d) as in :func:`loss_of_sums` for a closed form; else autograd serves,
    and they are (M, d, d).
    """
    members = options.members is not None
    if form is None:
        totals = counts.sum(dim=(1, 2))
        with torch.enable_grad():
            leaf = counts.detach().requires_grad_()
            cm = ConfusionMatrix(leaf if members else leaf[0], options.task, options.labels, options.absent)
            cm = cm if memory is None else memory(cm)
            losses = options.metric.loss(lambda _: cm).reshape(-1)
            if losses.shape != totals.shape:
                return None
            (gradient,) = torch.autograd.grad(losses.sum(), leaf)
        has_weight = totals > 0
        return torch.where(has_weight, losses.detach(), 0.0), torch.where(has_weight[:, None, None], gradient, 0.0)
    array: Array = counts.double().numpy()
    weights = array.sum(axis=(1, 2), keepdims=True)
    scale: Any = 1.0
    if memory is not None:
        with torch.no_grad():
            blended = memory(ConfusionMatrix(counts if members else counts[0])).matrix
        array, scale = blended.double().numpy().reshape(array.shape), (weights > 0) / np.where(weights > 0, weights, 1)
    sums = np.stack([array.diagonal(axis1=1, axis2=2), array.sum(axis=2), array.sum(axis=1)], axis=1)
    values, vectors = loss_of_sums(form, sums, options.absent == "skip", is_compiled)
    return torch.from_numpy(values * (weights[:, 0, 0] > 0)), torch.from_numpy(vectors * scale)
