"""The closed form in plain torch, for every device, one block of samples after the other; no autograd.

With softmax the threshold tau, the mean of the two largest probabilities, is at most 1/2, and only the largest lies
over it. Up to the end of its middle the five-point step is two lines through tau. These do not change when all
probabilities grow alike, so that whatever softmax and the moving threshold add to the gradient cancels out but at the
two largest; only a largest one over the middle leaves more.

Blocks are (classes, groups, length), so that a table and images with their classes in front are the same to every
formula; what a sample has of its own is (1, groups, length). Every operation below is one that torch vectorises: a
maximum with its place, or a choice by booleans, would take ten times as long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from metricfit.inputs import accumulation_dtype

__all__ = ["Derivative", "Job", "Points", "torch_pass"]

Array = np.ndarray[Any, Any]
Derivative = Callable[[Any], tuple[Any, Any] | None]
"""Losses (M,) and their gradient with respect to the counts, given these; None where there is no such loss."""

BLOCK_ELEMENTS = 2**17
"""On a CPU: temporaries of this size stay in the caches, and the fixed cost of the operations on a block is small."""

BLOCK_ON_DEVICE = 2**25
"""Elsewhere only memory counts."""

KEPT_ELEMENTS = 2**25
"""Of more scores a block is counted again for its gradient instead of being kept."""

ROWS_FROM = 64
"""From this many classes on a loop over those of one sample is long enough; with fewer, tables are transposed."""


class Points(NamedTuple):
    """The five-point step in units of its threshold.

    Attributes:
        delta: The height where the middle begins.
        low: The slope below the middle.
        middle: The slope in the middle.
        start: Where the middle begins; if that is not over 0, where its line would be 0.
        end: Where the middle ends.
    """

    delta: float
    low: float
    middle: float
    start: float
    end: float

    @staticmethod
    def of(delta: float, factor: float) -> Points:
        """Of the height ``delta`` and a middle as wide as ``factor`` times the threshold.

        >>> Points.of(0.1, 1.0)
        Points(delta=0.1, low=0.2, middle=0.8, start=0.5, end=1.5)
        """
        start, middle = 1 - factor / 2, (1 - 2 * delta) / factor
        low, start = (delta / start, start) if start > 0 else (0.0, 1 - 0.5 / middle)
        return Points(delta, low, middle, start, 1 + factor / 2)


@dataclass(slots=True)
class Job:
    """A batch to be counted and, if ``wants_gradient``, differentiated.

    Attributes:
        logits: (M · N, C, …), contiguous or with channels last.
        target: Class indices int64 of the samples in order.
        weight: Weights of the samples, or None.
        class_weight: (C,), or None.
        points: The step of each of the M members, (M, 5): see :class:`Points`.
        ignore: The label of samples that do not count.
        is_fixed: Whether no gradient flows through the threshold.
        wants_gradient: Whether the gradient of the logits is wanted.
        by_class: Whether counts are hits, true and predicted weights (M, 3, C), else matrices (M, C, C).
        by_vectors: Whether the gradient of the counts is columns and diagonal (M, 2, C) of the form
            G[t, k] = columns[k] + (t = k) diagonal[k], else G (M, C, C).
        may_wait: Whether values may be looked at, for which a device has to finish.
    """

    logits: Tensor
    target: Tensor
    weight: Tensor | None
    class_weight: Tensor | None
    points: Array
    ignore: int
    is_fixed: bool
    wants_gradient: bool
    by_class: bool
    by_vectors: bool
    may_wait: bool = True


class Lines(NamedTuple):
    """:class:`Points` as tensors, which torch takes sooner than numbers: scalars, or one per group, (groups, 1).

    Positions and heights are in units of twice the threshold. ``turn`` is the middle's slope less the one below.
    """

    delta: Tensor
    low: Tensor
    middle: Tensor
    start: Tensor
    end: Tensor
    turn: Tensor

    @staticmethod
    def of(points: Array, groups: int, like: Tensor) -> Lines:
        """Of the steps of the members, each of which has as many groups."""
        delta, low, middle, start, end = points.T
        table = torch.as_tensor(np.stack([delta / 2, low, middle, start / 2, end / 2, middle - low])).to(like)
        if (points == points[0]).all():
            return Lines(*table[:, 0].unbind())
        return Lines(*table.repeat_interleave(groups // len(points), dim=1)[..., None].unbind())

    def at(self, groups: slice) -> Lines:
        """Those of some groups."""
        return self if self.low.ndim == 0 else Lines(*(line[groups] for line in self))


class Sample(NamedTuple):
    """What the samples of a block have of their own, (1, groups, length), p being probabilities.

    Attributes:
        first: The largest p.
        second: The second largest.
        ties: How many classes have the largest.
        start: Where the middle begins, in units of p; as ``end``.
        end: Where it ends.
        over: How far the largest lies over the end.
        above: How far p = 1 lies over the end. The step rises by delta there, and only the largest can be there.
        bend: By how much the slope over the end is more than that of the middle.
    """

    first: Tensor
    second: Tensor
    ties: Tensor
    start: Tensor
    end: Tensor
    over: Tensor
    above: Tensor
    bend: Tensor


def samples_of(p: Tensor, lines: Lines) -> tuple[Sample, Tensor]:
    """The samples of a block, and 1.0 where a p is the largest of its sample."""
    first = p.amax(dim=0, keepdim=True)
    is_first = _where(torch.ge, p, first)
    ties = is_first.sum(dim=0, keepdim=True)
    second = torch.where(ties > 1, first, torch.sub(p, is_first, alpha=2).amax(dim=0, keepdim=True))
    both = first + second
    start, end = both * lines.start, both * lines.end
    above = (1 - end).clamp_min_(torch.finfo(p.dtype).tiny)
    bend = both.mul_(lines.delta).div_(above).sub_(lines.middle)
    return Sample(first, second, ties, start, end, (first - end).clamp_min_(0), above, bend), is_first


def steps_of(p: Tensor, sample: Sample, is_first: Tensor, lines: Lines) -> Tensor:
    """The steps of a block in units of p, not yet divided by their sum."""
    h = torch.sub(p, sample.start).clamp_min_(0).mul_(lines.turn).addcmul_(p, lines.low)
    return h.addcmul_(is_first, sample.bend * sample.over)


def _where(compare: Any, p: Tensor, bound: Any) -> Tensor:
    """1.0 where the comparison holds, else 0.0: multiplied in a fraction of the time of a choice by booleans."""
    result: Tensor = compare(p, bound, out=torch.empty_like(p))
    return result


def pull_back_block(
    p: Tensor, sample: Sample, lines: Lines, h: Tensor, is_first: Tensor, y: Tensor, share: Tensor,
    own: tuple[Tensor, Tensor] | None, is_fixed: bool,
) -> Tensor:  # fmt: skip
    """The gradient of a block's logits, in the place of y.

    Args:
        p: Probabilities.
        sample: Of the samples.
        lines: Their step.
        h: The steps; overwritten.
        is_first: 1.0 at the largest of a sample.
        y: The gradient of the memberships less its mean under them; overwritten.
        share: Weights divided by the sums of steps, (1, groups, length).
        own: Labels and what is added to y there, if anything, (1, groups, length).
        is_fixed: Whether no gradient flows through the threshold.
    """
    first, second, ties, start, end, over, above, bend = sample
    # p times the slope of the step at p: the line of the middle does not begin at 0.
    moved = h.addcmul_(_where(torch.gt, p, start), start * lines.turn)
    moved.addcmul_(is_first, bend.mul_(end).mul_(over.sign()))
    y.mul_(share).mul_(moved)
    if own is not None:
        labels, gradients = own
        y.scatter_add_(0, labels, moved.gather(0, labels).mul_(gradients).mul_(share))
    change = y.sum(dim=0, keepdim=True)
    if is_fixed:
        return y.addcmul_(p, change, value=-1)
    # The slope over the end depends on tau too.
    of_tau = torch.mul(y, is_first, out=moved).sum(dim=0, keepdim=True).mul_(over).div_(above).div_(first)
    change -= of_tau
    part = first / (first + second)
    is_second = torch.eq(p, second, out=moved)
    y.addcmul_(p, of_tau, value=-1).addcmul_(is_first, (change * part).div_(ties), value=-1)
    of_second = (change - change * part).div_(is_second.sum(dim=0, keepdim=True))
    return y.addcmul_(is_second, of_second, value=-1)


def torch_pass(job: Job, derivative: Derivative) -> tuple[Any, Tensor | None] | None:
    """The losses of a batch and, if wanted, the gradient of its logits; None where labels, scores or weights are wrong.

    The gradient is in float32 or better, whatever the logits are. Counts by class are for the CPU only.
    """
    batch = _TwoClasses(job) if job.logits.shape[1] == 2 else _Batch(job)
    counts = batch.count() if batch.is_valid else None
    if counts is None or (job.may_wait and not counts.sum().item() < float("inf")):
        return None
    result = derivative(counts.numpy() if job.by_class else counts)
    if result is None or not job.wants_gradient:
        return None if result is None else (result[0], None)
    return result[0], batch.pull_back(torch.as_tensor(result[1]).to(batch.out))


class _Batch:
    """A batch in blocks: what belongs to its samples, (1, groups, length), and between the passes p of each block.

    The gradient's memory holds p: in its place, or, where a table is transposed, in that of the block as a whole.
    """

    def __init__(self, job: Job) -> None:
        logits, dtype = job.logits, accumulation_dtype(job.logits.dtype)
        self.job, self.classes, self.members = job, logits.shape[1], len(job.points)
        samples = _checked(job, self.classes, dtype)
        self.is_valid = samples is not None
        if samples is None:
            return
        self.out = torch.empty_like(logits, dtype=dtype)
        self.scores, self.targets = _grouped(logits, self.members), _grouped(self.out, self.members)
        groups, length = self.scores.shape[1:]
        parts: Any = (x if x is None else x.reshape(1, groups, length) for x in samples)
        self.labels, self.weights, self.keep = parts
        self.cells = self.labels
        if self.members > 1:
            self.member_of = torch.arange(groups, device=logits.device) // (groups // self.members)
            self.cells = self.labels + self.classes * self.member_of[:, None]
        self.lines = Lines.of(job.points, groups, self.out)
        self.is_transposed = logits.is_cpu and self.classes < ROWS_FROM and self.scores.stride(0) == 1
        most = max(1, (BLOCK_ELEMENTS if logits.is_cpu else BLOCK_ON_DEVICE) // self.classes)
        rows, columns = max(1, most // length), min(most, length)
        self.blocks = [
            (slice(None), slice(i, i + rows), slice(j, j + columns))
            for i in range(0, groups, rows)
            for j in range(0, length, columns)
        ]
        self.kept: list[Any] = []

    def count(self) -> Tensor:
        """The counts of all blocks, in float64."""
        classes, members, by_class = self.classes, self.members, self.job.by_class
        sums = self.out.new_zeros((members, 3, classes) if by_class else (members * classes, classes)).double()
        memory = self.out.movedim(1, -1).reshape(-1) if self.is_transposed else self.out
        used = 0
        for at in self.blocks:
            z = self.scores[at].to(self.out.dtype)
            if self.keep is not None:  # whatever lies there, NaN too, is replaced
                z = z.masked_fill(~self.keep[at], 0.0)
            place = memory[used : (used := used + z.numel())].view(z.shape) if self.is_transposed else self.targets[at]
            z = z.contiguous() if self.is_transposed else z
            p = z.softmax(dim=0) if z.stride(0) > 1 else z.movedim(0, -1).softmax(dim=-1).movedim(-1, 0)
            place.copy_(p)
            lines = self.lines.at(at[1])
            sample, is_first = samples_of(p, lines)
            h = steps_of(p, sample, is_first, lines)
            inverse = h.sum(dim=0, keepdim=True).reciprocal_()
            share = inverse if self.weights is None else inverse * self.weights[at]
            own = h.gather(0, self.labels[at])
            cells = self.cells[at].flatten()
            if not by_class:
                sums.index_add_(0, cells, (h * share).movedim(0, -1).reshape(-1, classes).double())
            else:
                hits = torch.bincount(cells, (own * share).flatten().double(), members * classes)
                sums[:, 0] += hits.reshape(members, classes)
                if members == 1:
                    sums[0, 2] += h.reshape(classes, -1) @ share.flatten()
                else:
                    sums[:, 2].index_add_(0, self.member_of[at[1]], (h * share).sum(dim=-1).T.double())
            steps = (h, is_first) if len(self.blocks) == 1 else (None, None)
            self.kept.append((place, *steps, sample, lines, inverse, share, own))
        if by_class:
            weights = None if self.weights is None else self.weights.flatten().double()
            sums[:, 1] = torch.bincount(self.cells.flatten(), weights, members * classes).reshape(members, classes)
        return sums if by_class else sums.reshape(members, classes, classes)

    def pull_back(self, gradient: Tensor) -> Tensor:
        """The gradient of the logits, given that of the counts."""
        for at, (p, h, is_first, sample, lines, inverse, share, own) in zip(self.blocks, self.kept, strict=True):
            if h is None:
                is_first = _where(torch.ge, p, sample.first)
                h = steps_of(p, sample, is_first, lines)
            labels, cells, added = self.labels[at], self.cells[at], None
            if self.job.by_vectors:
                columns = gradient[:, 0] if self.members == 1 else gradient[self.member_of[at[1]], 0]
                g, added = columns.T[..., None], gradient[:, 1].flatten()[cells]
                if self.members == 1:
                    mean = (columns @ h.reshape(self.classes, -1)).reshape(share.shape)
                else:
                    mean = (h * g).sum(dim=0, keepdim=True)
                mean.addcmul_(own, added)
            else:
                g = gradient.reshape(-1, self.classes)[cells[0]].movedim(-1, 0)
                mean = (h * g).sum(dim=0, keepdim=True)
            y = torch.sub(g, mean.mul_(inverse), out=torch.empty_like(p))
            extra = None if added is None else (labels, added)
            self.targets[at] = pull_back_block(p, sample, lines, h, is_first, y, share, extra, self.job.is_fixed)
        return self.out


class _TwoClasses(_Batch):
    """Of two classes the threshold is 1/2, so that everything is a function of the difference of their logits.

    With q = p - 1/2 the step is 1/2 + c(q) and c is odd: the memberships of the two classes sum to one.
    """

    def count(self) -> Tensor:
        z = self.scores.to(self.out.dtype)
        if self.keep is not None:  # whatever lies there, NaN too, is replaced
            z = z.masked_fill(~self.keep, 0.0)
        q = self.q = (z[1] - z[0]).mul_(0.5).tanh_().mul_(0.5)
        _, low, middle, _, end, _ = self.lines
        self.is_inside = q.abs() <= end - 0.5
        edge = q.sign().mul_(0.5)  # so that it is exact at the ends, where p is 0 or 1
        c = torch.where(self.is_inside, q * (2 * middle), edge - (edge - q).mul_(2 * low)).double()
        true = self.labels[0].double()
        weights = torch.ones_like(true) if self.weights is None else self.weights[0].double()
        if self.weights is not None:
            c *= weights
        sums = torch.stack([weights * true, c, c * true, weights]).reshape(4, self.members, -1).sum(dim=-1)
        true, c, shared, total = sums
        hits, predicted = true / 2 + shared, total / 2 + c
        others = (total - true - predicted + hits).clamp_min_(0)  # the hits of class 0
        if self.job.may_wait and not z.amax().item() < float("inf"):
            others = others * float("nan")
        if self.job.by_class:
            cells = [others, hits, total - true, true, total - predicted, predicted]
        else:
            cells = [others, total - true - others, true - hits, hits]
        return torch.stack(cells, dim=-1).reshape(self.members, -1, 2)

    def pull_back(self, gradient: Tensor) -> Tensor:
        if self.job.by_vectors:
            of_class = gradient[:, 0, 1] - gradient[:, 0, 0]
            zero, one = of_class - gradient[:, 1, 0], of_class + gradient[:, 1, 1]
        else:
            zero, one = (gradient[:, :, 1] - gradient[:, :, 0]).unbind(dim=1)
        zero, one = (x[self.member_of, None] if self.members > 1 else x for x in (zero, one))
        _, low, middle, _, _, _ = self.lines
        g = self.is_inside.to(self.q.dtype).mul_(middle - low).add_(low).mul_(2)
        g.mul_((self.q * self.q).neg_().add_(0.25)).mul_(torch.where(self.labels[0] == 1, one, zero))
        if self.weights is not None:
            g.mul_(self.weights[0])
        self.targets[1] = g
        self.targets[0] = g.neg_()
        return self.out


def _grouped(scores: Tensor, members: int) -> Tensor:
    """(classes, groups, length): groups are images, or the members of a table."""
    if scores.ndim > 2 and scores.is_contiguous():
        return scores.flatten(2).movedim(0, 1)
    rows = scores.movedim(1, -1)  # classes lie side by side
    return rows.reshape(members, -1, rows.shape[-1]).movedim(-1, 0)


def _checked(job: Job, classes: int, dtype: torch.dtype) -> tuple[Tensor, Tensor | None, Tensor | None] | None:
    """Labels, weights and which samples count, None for all; None instead if labels or weights are wrong."""
    labels, keep = job.target, None
    weights = None if job.weight is None else job.weight.to(dtype)
    if 0 <= job.ignore < classes or not (job.may_wait and _are_within(labels, classes)):
        keep = labels != job.ignore
        labels = labels * keep
        weights = keep.to(dtype) if weights is None else torch.where(keep, weights, 0.0)
        if job.may_wait and not _are_within(labels, classes):
            return None
    if job.class_weight is not None:
        of_label = job.class_weight.to(dtype)[labels]
        weights = of_label if weights is None else weights * of_label
    if job.may_wait and weights is not None and not _are_within(weights, float("inf")):
        return None
    return labels, weights, keep


def _are_within(values: Tensor, end: float) -> bool:
    """Whether all are in [0, end)."""
    least, most = values.aminmax()
    return bool(least.item() >= 0 and most.item() < end)
