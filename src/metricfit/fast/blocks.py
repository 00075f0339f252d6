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
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metricfit.inputs import accumulation_dtype

__all__ = ["Derivative", "Job", "five_points", "torch_pass"]

Array = np.ndarray[Any, Any]
Derivative = Callable[[Any], tuple[Any, Any] | None]
"""Losses (M,) and their gradient with respect to the counts, given these; None where there is no such loss."""

BLOCK_ELEMENTS = 2**18
"""On a CPU: temporaries of this size stay in the caches, and the fixed cost of the operations on a block is small."""

BLOCK_ON_DEVICE = 2**25
"""Elsewhere only memory counts."""

ROWS_FROM = 64
"""From this many classes on a loop over those of one sample is long enough; with fewer, tables are transposed."""


def five_points(delta: float, factor: float) -> tuple[float, ...]:
    """The step of height ``delta`` where its middle begins, which is as wide as ``factor`` times the threshold.

    In units of the threshold: delta, the slopes below and in the middle, and where that begins and ends. If it does not
    begin over 0, that is where its line would be 0.

    >>> five_points(0.1, 1.0)
    (0.1, 0.2, 0.8, 0.5, 1.5)
    """
    start, middle = 1 - factor / 2, (1 - 2 * delta) / factor
    low, start = (delta / start, start) if start > 0 else (0.0, 1 - 0.5 / middle)
    return delta, low, middle, start, 1 + factor / 2


@dataclass(slots=True)
class Job:
    """A batch of M members, N samples each, to be counted and differentiated."""

    logits: Tensor  # (M · N, C, …), contiguous or with channels last
    target: Tensor  # class indices int64 of the samples in order
    weight: Tensor | None  # of the samples
    class_weight: Tensor | None  # (C,)
    points: Array  # the step of each member, (M, 5): see five_points
    ignore: int  # the label of samples that do not count
    is_fixed: bool  # whether no gradient flows through the threshold
    wants_gradient: bool  # of the logits
    by_class: bool  # whether counts are hits, true and predicted weights (M, 3, C), else matrices (M, C, C)
    by_vectors: bool  # whether their gradient G is columns and diagonal: G[t, k] = columns[k] + (t = k) diagonal[k]
    may_wait: bool = True  # whether values may be looked at, for which a device has to finish


@lru_cache(maxsize=64)
def _lines(table: bytes, groups: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
    """Points as tensors, which torch takes sooner than numbers: scalars, or one per group, (groups, 1).

    Positions and heights are in units of twice the threshold. The last is the middle's slope less that below.
    """
    delta, low, middle, start, end = points = np.frombuffer(table).reshape(-1, 5).T
    lines = np.stack([delta / 2, low, middle, start / 2, end / 2, middle - low])
    if (points == points[:, :1]).all():
        return torch.tensor(lines[:, 0], dtype=dtype, device=device).unbind()
    return (
        torch.tensor(lines, dtype=dtype, device=device).repeat_interleave(groups // len(delta), 1)[..., None].unbind()
    )


def _where(compare: Any, p: Tensor, bound: Any) -> Tensor:
    """1.0 where the comparison holds, else 0.0: multiplied in a fraction of the time of a choice by booleans."""
    result: Tensor = compare(p, bound, out=torch.empty_like(p))
    return result


class _Block:
    """Probabilities p and, of each sample, the two largest, the middle's start and end, and what is over the end.

    ``over`` is how far the largest lies over the end, ``above`` how far 1 does: the step rises by delta there, and only
    the largest can be there. ``bend`` is by how much steeper the step is there than in the middle.
    """

    def __init__(self, p: Tensor, lines: tuple[Tensor, ...]) -> None:
        delta, _, middle, start, end, _ = self.lines = lines
        first = self.first = p.amax(dim=0, keepdim=True)
        is_first = _where(torch.ge, p, first)
        self.ties = is_first.sum(dim=0, keepdim=True)
        others = torch.sub(p, is_first, alpha=2).amax(dim=0, keepdim=True)
        self.second = torch.where(self.ties > 1, first, others)
        both = first + self.second
        self.start, self.end = both * start, both * end
        self.over = (first - self.end).clamp_min_(0)
        self.above = (1 - self.end).clamp_min_(torch.finfo(p.dtype).tiny)
        self.bend = both.mul_(delta).div_(self.above).sub_(middle)
        self.p, self.is_first = p, is_first
        self.h = self.steps()
        self.inverse = self.h.sum(dim=0, keepdim=True).reciprocal_()

    def steps(self) -> Tensor:
        """The steps in units of p, not yet divided by their sum."""
        _, low, _, _, _, turn = self.lines
        h = torch.sub(self.p, self.start).clamp_min_(0).mul_(turn).addcmul_(self.p, low)
        return h.addcmul_(self.is_first, self.bend * self.over)

    def shelve(self, place: Tensor) -> None:
        """Keep p in its place; what is as large is made again."""
        self.p = place
        del self.h, self.is_first

    def recall(self) -> None:
        """Make again what was not kept."""
        self.is_first = _where(torch.ge, self.p, self.first)
        self.h = self.steps()

    def pull_back(self, y: Tensor, share: Tensor, own: tuple[Tensor, Tensor] | None, is_fixed: bool) -> Tensor:
        """The gradient of the logits in the place of y, the memberships' gradient less its mean under them.

        ``share`` holds weights divided by the sums of steps; ``own`` labels and what is added to y there.
        """
        p, is_first, first, over = self.p, self.is_first, self.first, self.over
        # p times the slope of the step at p: the line of the middle does not begin at 0.
        moved = self.h.addcmul_(_where(torch.gt, p, self.start), self.start * self.lines[-1])
        moved.addcmul_(is_first, self.bend.mul_(self.end).mul_(over.sign()))
        y.mul_(share).mul_(moved)
        if own is not None:
            labels, gradients = own
            y.scatter_add_(0, labels, moved.gather(0, labels).mul_(gradients).mul_(share))
        change = y.sum(dim=0, keepdim=True)
        if is_fixed:
            return y.addcmul_(p, change, value=-1)
        # The slope over the end depends on the threshold too.
        of_bend = torch.mul(y, is_first, out=moved).sum(dim=0, keepdim=True).mul_(over).div_(self.above).div_(first)
        change -= of_bend
        of_first = change * (first / (first + self.second))
        is_second = torch.eq(p, self.second, out=moved)
        of_second = (change - of_first).div_(is_second.sum(dim=0, keepdim=True))
        y.addcmul_(p, of_bend, value=-1).addcmul_(is_first, of_first.div_(self.ties), value=-1)
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
        self.lines = _lines(job.points.tobytes(), groups, dtype, logits.device)
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
            block = _Block(p, tuple(x if x.ndim == 0 else x[at[1]] for x in self.lines))
            h, cells = block.h, self.cells[at].flatten()
            share = block.inverse if self.weights is None else block.inverse * self.weights[at]
            own = h.gather(0, self.labels[at])
            if not by_class:
                sums.index_add_(0, cells, (h * share).movedim(0, -1).reshape(-1, classes).double())
            else:
                hits = torch.bincount(cells, (own * share).flatten().double(), members * classes)
                sums[:, 0] += hits.reshape(members, classes)
                if members == 1:
                    sums[0, 2] += h.reshape(classes, -1) @ share.flatten()
                else:
                    sums[:, 2].index_add_(0, self.member_of[at[1]], (h * share).sum(dim=-1).T.double())
            if len(self.blocks) > 1:
                block.shelve(place.copy_(p))
            self.kept.append((block, share, own))
        if by_class:
            weights = None if self.weights is None else self.weights.flatten().double()
            sums[:, 1] = torch.bincount(self.cells.flatten(), weights, members * classes).reshape(members, classes)
        return sums if by_class else sums.reshape(members, classes, classes)

    def pull_back(self, gradient: Tensor) -> Tensor:
        """The gradient of the logits, given that of the counts."""
        for at, (block, share, own) in zip(self.blocks, self.kept, strict=True):
            if len(self.blocks) > 1:
                block.recall()
            h, cells, added = block.h, self.cells[at], None
            if self.job.by_vectors:
                columns = gradient[:, 0] if self.members == 1 else gradient[self.member_of[at[1]], 0]
                g = columns.T[..., None]
                if self.members == 1:
                    mean = (columns @ h.reshape(self.classes, -1)).reshape(share.shape)
                else:
                    mean = (h * g).sum(dim=0, keepdim=True)
                added = self.labels[at], gradient[:, 1].flatten()[cells]
                mean.addcmul_(own, added[1])
            else:
                g = gradient.reshape(-1, self.classes)[cells[0]].movedim(-1, 0)
                mean = (h * g).sum(dim=0, keepdim=True)
            y = torch.sub(g, mean.mul_(block.inverse), out=torch.empty_like(h))
            self.targets[at] = block.pull_back(y, share, added, self.job.is_fixed)
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
