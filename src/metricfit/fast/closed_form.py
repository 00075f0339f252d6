"""The closed form in plain torch, for every device; the compiled loops follow the same formulas.

With softmax the threshold tau, the mean of the two largest probabilities, is at most 1/2, and only the largest lies
over it. In units of the threshold, u = p / tau = 2 exp(z - z1) / (1 + exp(z2 - z1)), the five-point step up to its
middle's end is therefore the same for all samples: two lines. These do not change when all probabilities grow alike, so
that whatever softmax and the moving threshold add to the gradient cancels out but at the two largest; only a largest
one over the middle leaves more.

Tensors are (b, classes, l), so that a table (l = 1), its transpose (b = 1) and images with their classes in front are
the same to every formula; what a sample has of its own is (b, 1, l).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from metricfit.numerics import accumulation_dtype

__all__ = ["Points", "TorchBatch", "TwoClasses", "torch_batch"]

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

    Attributes:
        u: Probabilities in units of the threshold, (b, classes, l).
        h: Their steps, not yet divided by their sum.
        inverse: 1 / sum of steps, (b, 1, l); so are the others.
        total: The sum of u.
        largest: The largest u.
        second: The second largest.
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
    is_first = (x >= 1).to(x.dtype)
    ties = is_first.sum(dim=1, keepdim=True)
    second = torch.sub(x, is_first, alpha=2).amax(dim=1, keepdim=True)
    second = torch.maximum(second, ties.sub_(1).clamp_max_(1))  # the largest itself where it is there twice
    largest = (second + 1).reciprocal_().mul_(2)
    u = x.mul_(largest)
    total = u.sum(dim=1, keepdim=True)
    h = torch.where(u < points.start, u * points.low, _inside(u, points))
    _, above = _over(largest, total, points)
    h += (u - points.end).clamp_min_(0).mul_(points.delta / above)
    return Counted(u, h, h.sum(dim=1, keepdim=True).reciprocal_(), total, largest, second.mul_(largest))


def _inside(u: Tensor, points: Points) -> Tensor:
    # u - 1 first: it is exact where the step is steepest. Held at the end of the middle, beyond which it is another.
    inside = u.sub(1).mul_(points.middle).add_(0.5)
    top = 1 - points.delta
    return torch.minimum(inside, top) if isinstance(top, Tensor) else inside.clamp_max_(top)


def _over(largest: Tensor, total: Tensor, points: Points) -> tuple[Tensor, Tensor]:
    """How far the largest lies over the middle, as a part of the distance from there to p = 1; and that distance."""
    above = (total - points.end).clamp_min_(torch.finfo(total.dtype).tiny)
    return (largest - points.end).clamp_min_(0).div_(above), above


def pull_back_block(g: Tensor, share: Tensor, block: Counted, points: Points, *, is_fixed: bool) -> Tensor:
    """The gradient of the logits, given that of the memberships; it and the steps of the block are overwritten.

    ``share`` holds weights divided by the sums of steps, (b, 1, l).
    """
    u, largest, total = block.u, block.largest, block.total
    over, above = _over(largest, total, points)
    g.sub_(block.h.mul_(g).sum(dim=1, keepdim=True).mul_(block.inverse)).mul_(share)
    slope = torch.where(u > points.end, points.delta / above, _number(points.middle, u))
    g.mul_(torch.where(u < points.start, _number(points.low, u), slope)).mul_(u)
    change = g.sum(dim=1, keepdim=True)
    if is_fixed:
        return g.addcmul_(u, change / total, value=-1)
    is_first = (u >= largest).to(u.dtype)
    # At a largest over the middle g is largest · delta / above times what of_over needs.
    of_over = (g * is_first).sum(dim=1, keepdim=True).mul_(over / largest)
    change -= of_over * total
    is_second = (u == block.second).to(u.dtype)
    ties, seconds = is_first.sum(dim=1, keepdim=True), is_second.sum(dim=1, keepdim=True)
    part = largest / 2
    g.addcmul_(u, of_over, value=-1)
    g.addcmul_(is_first, change * part / ties, value=-1)
    return g.addcmul_(is_second, change * (1 - part) / seconds, value=-1)


def _number(value: Any, like: Tensor) -> Tensor:
    return value if isinstance(value, Tensor) else torch.full((), value, dtype=like.dtype, device=like.device)


class TorchBatch:
    """:class:`metricfit.fast.batch.CompiledBatch` in torch, without autograd; arguments as there.

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
        sums = torch.zeros(
            (classes, self.members) if by_class else (rows, classes), dtype=self.dtype, device=scores.device
        )
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
        true = torch.zeros_like(hits)
        weights = (
            torch.ones_like(self.all_cells, dtype=torch.float64)
            if self.all_weights is None
            else self.all_weights.double()
        )
        true.index_add_(0, self.all_cells, weights)
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
        return g.scatter_add_(1, labels, gradient[:, 1].reshape(-1)[cells])


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
