"""The closed form in plain torch, for every device, one block of samples after the other; no autograd.

With softmax the threshold tau, the mean of the two largest probabilities, is at most 1/2, and only the largest lies
over it. Up to the end of its middle the five-point step is two lines through tau. These do not change when all
probabilities grow alike, so that whatever softmax and the moving threshold add to the gradient cancels out but at the
two largest; only a largest one over the middle leaves more.

Blocks are (classes, groups, length), so that a table and images are the same to every formula; what a sample has of its
own is (1, groups, length). Every operation below is one that torch vectorises: a maximum with its place, or a choice by
booleans, would take ten times as long. Results go into memory that is used again, since fresh pages take longer still.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metricfit.inputs import LEAST_WEIGHT, accumulation_dtype

Array = np.ndarray[Any, Any]
Derivative = Callable[[Any], tuple[Any, Any] | None]
"""Losses (M,) and their gradient with respect to the counts, given these; None where there is no such loss."""

BLOCK_ELEMENTS, BLOCK_ON_DEVICE = 2**19, 2**25
"""On a CPU blocks fit the caches and are large beside the fixed cost of operations; elsewhere only memory counts."""

SERIAL_ELEMENTS = 2**16
"""Up to this many scores a hand-over to another thread takes longer than it saves."""

ROWS_FROM = 64
"""From this many classes on a loop over those of one sample is long enough; with fewer, tables are transposed."""

LOG2_E = 1.4426950408889634
"""exp2 is several times as quick as exp, which torch leaves to another library."""

_PROCESS = os.getpid()


@cache
def _openmp() -> Any:
    """Run a function in all threads of torch's OpenMP, which wait busily: other threads would share their cores."""
    try:
        return ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")).GOMP_parallel
    except (OSError, AttributeError):  # not on this platform
        return None


def run(work: Callable[[int, int], Any], number: int, elements: int) -> list[Any]:
    """The results of work(begin, end) for ranges that make up range(number), in order; one range per thread."""
    threads = 1 if elements <= SERIAL_ELEMENTS else min(torch.get_num_threads(), number)
    if threads == 1:
        return [work(0, number)]
    edges, results, errors = [number * i // threads for i in range(threads + 1)], [None] * threads, list[Any]()
    turns, is_inference = iter(range(threads)), torch.is_inference_mode_enabled()

    def take(_: Any) -> None:
        try:
            with torch.inference_mode(is_inference):
                for i in turns:
                    results[i] = work(edges[i], edges[i + 1])
        except BaseException as error:  # it cannot pass through OpenMP
            errors.append(error)

    if _openmp() is None or os.getpid() != _PROCESS:  # a forked process has none of its parent's threads
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(take, range(threads)))
    else:
        _openmp()(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(take), None, threads, 0)
    if errors:
        raise errors[0]
    return results


@dataclass(slots=True)
class Job:
    """A batch of M members, N samples each, to be counted and differentiated."""

    logits: Tensor  # (M · N, C, …), contiguous or with channels last
    target: Tensor  # class indices int64 of the samples in order
    weight: Tensor | None  # of the samples
    class_weight: Tensor | None  # (C,)
    points: Array  # the step of each member, (M, 5): see metricfit.fast.five_points
    ignore: int  # the label of samples that do not count
    wants_gradient: bool  # of the logits
    by_class: bool  # whether counts are hits, true and predicted weights (M, 3, C), else matrices (M, C, C)
    by_vectors: bool  # whether their gradient G is columns and diagonal: G[t, k] = columns[k] + (t = k) diagonal[k]


def torch_pass(job: Job, derivative: Derivative) -> tuple[Any, Tensor | None] | None:
    """The losses of a batch and, if wanted, the gradient of its logits; None where labels, scores or weights are wrong.

    The gradient is in float32 or better, whatever the logits are. Counts by class are for the CPU only.
    """
    batch = _TwoClasses(job) if job.logits.shape[1] == 2 else _Batch(job)
    counts = batch.count() if batch.is_valid else None
    if counts is None or not counts.sum().item() < float("inf"):
        return None
    result = derivative(counts.numpy() if job.by_class else counts)
    if result is None or not job.wants_gradient:
        return None if result is None else (result[0], None)
    batch.pull_back(torch.as_tensor(result[1]).to(batch.out))
    return result[0], batch.out


@lru_cache(maxsize=64)
def _lines(table: bytes, groups: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
    """Points as tensors, which torch takes sooner than numbers: scalars, or one per group, (groups, 1).

    Positions and heights are in units of twice the threshold. The last is the middle's slope less that below.
    """
    delta, low, middle, start, end = points = np.frombuffer(table).reshape(-1, 5).T
    lines = torch.tensor(
        np.stack([delta / 2, low, middle, start / 2, end / 2, middle - low]), dtype=dtype, device=device
    )
    if (points == points[:, :1]).all():
        return lines[:, 0].unbind()
    return lines.repeat_interleave(groups // len(delta), 1)[..., None].unbind()


class _Block:
    """Of each sample of a block what depends on its two largest scores; ``e`` are exponentials, of which one is 1.

    ``over`` is how far the largest lies over the middle's end, ``above`` how far their sum does: the step rises by
    delta there, and only the largest can be there. ``bend`` is by how much steeper it is there than in the middle.
    """

    def __init__(self, e: Tensor, lines: tuple[Tensor, ...], is_first: Tensor, h: Tensor) -> None:
        """Steps in units of e, not yet divided by their sum, go to ``h``."""
        self.e, self.lines, (delta, low, middle, start, end, turn) = e, lines, lines
        self.total, self.ties = e.sum(dim=0, keepdim=True), torch.floor(e, out=is_first).sum(dim=0, keepdim=True)
        others = torch.frac(e, out=h).amax(dim=0, keepdim=True)
        self.second = torch.maximum(others, self.ties - 1).clamp_max_(1)
        both = self.second + 1
        self.start, self.end = both * start, both * end
        self.over = (1 - self.end).clamp_min_(0)
        self.above = (self.total - self.end).clamp_min_(torch.finfo(e.dtype).tiny)
        self.bend = both.mul_(delta).div_(self.above).sub_(middle)
        torch.sub(e, self.start, out=h).clamp_min_(0).mul_(turn).addcmul_(e, low)
        self.inverse = h.addcmul_(is_first, self.bend * self.over).sum(dim=0, keepdim=True).reciprocal_()
        self.share = self.own = self.inverse  # weights / sum of steps; the steps of the labels

    def pull_back(self, g: Tensor, labels: Tensor, diagonal: Any, memory: list[Tensor]) -> Tensor:
        """The gradient of the logits, given that of the memberships: g, and what the diagonal adds at the labels."""
        e, over, (_, low, middle, _, _, turn), (is_first, moved, y) = self.e, self.over, self.lines, memory

        def dot(x: Tensor) -> Tensor:
            if g.numel() == len(e):
                return (g.reshape(1, -1) @ x.reshape(len(e), -1)).view(over.shape)
            return torch.mul(x, g, out=y).sum(dim=0, keepdim=True)

        torch.floor(e, out=is_first)
        torch.gt(e, self.start, out=moved)
        jump = self.bend * over.sign()
        of_largest = dot(is_first)
        mean = dot(moved).mul_(self.start).mul_(turn).addcmul_(of_largest, jump * self.end)
        # e times the slope of the step at e: the lines of the middle and over its end do not begin at 0.
        moved.mul_(turn).add_(low).mul_(e).addcmul_(is_first, jump)
        mean = dot(moved).sub_(mean)
        if diagonal is not None:
            mean.addcmul_(self.own, diagonal)
        torch.sub(g, mean.mul_(self.inverse), out=y).mul_(self.share).mul_(moved)
        # The slope over the end depends on the threshold too; a largest score that lies there has no equal.
        of_bend = of_largest.sub_(mean)
        if diagonal is not None:
            y.scatter_add_(0, labels, moved.gather(0, labels).mul_(diagonal).mul_(self.share))
            of_bend.addcmul_(is_first.gather(0, labels), diagonal)
        of_bend.mul_(self.bend + middle).mul_(self.share).mul_(over).div_(self.above)
        change = y.sum(dim=0, keepdim=True).addcmul_(of_bend, self.total, value=-1)
        of_first = change / (self.second + 1)
        is_second = torch.eq(e, self.second, out=moved)
        of_second = (change - of_first).div_(is_second.sum(dim=0, keepdim=True))
        y.addcmul_(e, of_bend, value=-1).addcmul_(is_first, of_first.div_(self.ties), value=-1)
        return y.addcmul_(is_second, of_second, value=-1)


class _Batch:
    """A batch in blocks: what belongs to its samples, (1, groups, length), and between the passes e of each block.

    The gradient's memory holds e: in its place, or, where a table is transposed, in that of the block as a whole.
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
        self.cells: Tensor = self.labels
        self.member_of: Any = None
        if self.members > 1:
            self.member_of = torch.arange(groups, device=logits.device) // (groups // self.members)
            self.cells = self.labels + self.classes * self.member_of[:, None]
        self.lines = _lines(job.points.tobytes(), groups, dtype, logits.device)
        self.is_table = self.scores.stride(0) == 1  # classes lie side by side
        most = max(1, (BLOCK_ELEMENTS if logits.is_cpu else BLOCK_ON_DEVICE) // self.classes)
        rows, columns = min(groups, max(1, most // length)), min(most, length)
        self.most = self.classes * rows * columns
        self.blocks = [
            (slice(None), slice(i, i + rows), slice(j, j + columns))
            for i in range(0, groups, rows)
            for j in range(0, length, columns)
        ]
        self.kept: list[Any] = [None] * len(self.blocks)

    def _run(self, work: Callable[[int, int], Any]) -> list[Any]:
        return run(work, len(self.blocks), self.out.numel() if self.out.is_cpu else 0)

    def _shaped(self, memory: Tensor, like: Tensor) -> Tensor:
        """Memory as a block whose classes lie side by side if there are many, else apart."""
        classes, groups, length = like.shape
        if self.is_table and classes >= ROWS_FROM:
            return memory.view(groups, length, classes).movedim(-1, 0)
        return memory.view(classes, groups, length)

    def _work(self, begin: int, end: int) -> Iterator[tuple[int, Any, Tensor, list[Tensor]]]:
        """Number, place and scores of blocks, with memory for what is as large as they are."""
        memory, shape, views = self.out.new_empty((3, self.most)).unbind(), None, list[Tensor]()
        for i in range(begin, end):
            scores = self.scores[self.blocks[i]]
            if scores.shape != shape:
                shape, views = scores.shape, [self._shaped(x[: scores.numel()], scores) for x in memory]
            yield i, self.blocks[i], scores, views

    def count(self) -> Tensor:
        """The counts of all blocks, in float64."""
        classes, members, by_class = self.classes, self.members, self.job.by_class
        sums: Tensor = torch.stack(self._run(self._count)).sum(dim=0)
        if not by_class:
            return sums.reshape(members, classes, classes)
        weights = None if self.weights is None else self.weights.flatten().double()
        sums[:, 1] = torch.bincount(self.cells.flatten(), weights, members * classes).reshape(members, classes)
        return sums

    def _count(self, begin: int, end: int) -> Tensor:
        classes, members, by_class = self.classes, self.members, self.job.by_class
        sums = self.out.new_zeros((members, 3, classes) if by_class else (members * classes, classes)).double()
        for i, at, scores, (e, is_first, h) in self._work(begin, end):
            if self.is_table:  # torch transposes matrices in small squares
                h.flatten(1).copy_(scores.flatten(1))
            else:
                h.copy_(scores)
            if self.keep is not None:  # whatever lies there, NaN too, is replaced
                h.masked_fill_(~self.keep[at], 0.0)
            torch.sub(h, h.amax(dim=0, keepdim=True), out=e).mul_(LOG2_E).exp2_()
            block = self.kept[i] = _Block(e, tuple(x if x.ndim == 0 else x[at[1]] for x in self.lines), is_first, h)
            cells = self.cells[at].flatten()
            if self.weights is not None:
                block.share = block.inverse * self.weights[at]
            share, block.own = block.share, h.gather(0, self.labels[at])
            if not by_class:
                sums.index_add_(0, cells, h.mul_(share).movedim(0, -1).reshape(-1, classes).double())
            else:
                hits = torch.bincount(cells, (block.own * share).flatten().double(), members * classes)
                sums[:, 0] += hits.reshape(members, classes)
                if members == 1:
                    sums[0, 2] += h.reshape(classes, -1) @ share.flatten()
                else:
                    sums[:, 2].index_add_(0, self.member_of[at[1]], h.mul_(share).sum(dim=-1).T.double())
            if len(self.blocks) > 1:
                place = self.targets[at]
                block.e = self._shaped(place.movedim(0, -1).reshape(-1), e) if self.is_table else place
                block.e.copy_(e)
        return sums

    def pull_back(self, gradient: Tensor) -> None:
        """The gradient of the logits into ``out``, given that of the counts."""

        def work(begin: int, end: int) -> None:
            for i, at, _, memory in self._work(begin, end):
                diagonal = None
                if self.job.by_vectors:
                    g = gradient[slice(1) if self.members == 1 else self.member_of[at[1]], 0].T[..., None]
                    diagonal = gradient[:, 1].flatten()[self.cells[at]]
                else:
                    g = gradient.reshape(-1, self.classes)[self.cells[at][0]].movedim(-1, 0)
                found = self.kept[i].pull_back(g, self.labels[at], diagonal, memory)
                # The slope of a class that others hardly get may overflow, and 0 times it is NaN.
                self.targets[at] = found if self.weights is None else found.masked_fill_(self.weights[at] == 0, 0.0)

        self._run(work)


class _TwoClasses(_Batch):
    """Of two classes the threshold is 1/2, so that everything is a function of the difference of their logits.

    The step is odd about 1/2, so that the memberships of the two classes sum to one. Both follow from that of the less
    likely class, which is exact however small: no class is lost in the rounding of the other.
    """

    def count(self) -> Tensor:
        z = self.scores.to(self.out.dtype)
        if self.keep is not None:  # whatever lies there, NaN too, is replaced
            z = z.masked_fill(~self.keep, 0.0)
        difference = z[1] - z[0]
        self.less = less = difference.abs().neg_().sigmoid_()  # the smaller probability
        _, low, middle, _, end, _ = self.lines
        self.inside = torch.ge(less, 1 - end, out=torch.empty_like(less))
        member = torch.lerp(less * (2 * low), 0.5 - (0.5 - less).mul_(2 * middle), self.inside)
        is_first = torch.gt(difference, 0.0, out=difference)
        members = torch.stack([1 - is_first - member, is_first - member]).abs_().double()
        true = self.labels[0].double()
        others = 1 - true
        if self.weights is not None:
            true, others = true * self.weights[0], others * self.weights[0]
        shape = 2, self.members, -1
        counts = torch.einsum("pmn,tmn->mtp", members.reshape(shape), torch.stack([others, true]).reshape(shape))
        if not z.amax().item() < float("inf"):
            counts = counts * float("nan")
        if not self.job.by_class:
            return counts
        return torch.stack([counts.diagonal(dim1=1, dim2=2), counts.sum(2), counts.sum(1)], dim=1)

    def pull_back(self, gradient: Tensor) -> None:
        if self.job.by_vectors:
            of_class = gradient[:, 0, 1] - gradient[:, 0, 0]
            zero, one = of_class - gradient[:, 1, 0], of_class + gradient[:, 1, 1]
        else:
            zero, one = (gradient[:, :, 1] - gradient[:, :, 0]).unbind(dim=1)
        zero, one = (x[self.member_of, None] if self.members > 1 else x for x in (zero, one))
        _, low, middle, _, _, _ = self.lines
        g = self.inside.mul_(middle - low).add_(low).mul_(2)
        g.mul_((1 - self.less).mul_(self.less)).mul_(torch.lerp(zero, one, self.labels[0].to(g)))
        if self.weights is not None:
            g.mul_(self.weights[0]).masked_fill_(self.weights[0] == 0, 0.0)
        self.targets[1] = g
        self.targets[0] = g.neg_()


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
    if 0 <= job.ignore < classes or not are_within(labels, classes):
        keep = labels != job.ignore
        labels = labels * keep
        weights = keep.to(dtype) if weights is None else torch.where(keep, weights, 0.0)
        if not are_within(labels, classes):
            return None
    if job.class_weight is not None:
        of_label = job.class_weight.to(dtype)[labels]
        weights = of_label if weights is None else weights * of_label
    if weights is None:
        return labels, None, keep
    counted = weights.masked_fill(weights == 0, 1.0)
    return (labels, weights, keep) if are_within(counted, float("inf"), LEAST_WEIGHT) else None


def are_within(values: Tensor, end: float, begin: float = 0) -> bool:
    """Whether all are in [begin, end)."""
    least, most = values.aminmax()
    return bool(least.item() >= begin and most.item() < end)
