"""Rows of logits on a GPU: one kernel counts, one pulls back, and no temporary is as large as the logits.

The formulas of :mod:`metricfit.fast.rows`. Sums are written per program and added up by torch, so that the same
batch gives the same bits; atomic additions would not. Importing this module imports Triton.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from metricfit.fast.batch import FivePoints
from metricfit.steps import SMALLEST_WIDTH, THRESHOLD_MARGIN

__all__ = ["TritonRows"]

PROGRAMS = 1024
"""At most so many partial sums; each program takes every so many-th row."""


@triton.jit
def _segments(mean, delta, factor, margin, smallest):  # type: ignore[no-untyped-def]
    tau = tl.minimum(tl.maximum(mean, margin), 1 - margin)
    half = tl.maximum(factor * tl.minimum(tau, 1 - tau), smallest) / 2
    low = delta / tl.maximum(tau - half, smallest)
    high = delta / tl.maximum(1 - tau - half, smallest)
    return tau, half, low, (0.5 - delta) / half, high


@triton.jit  # type: ignore[untyped-decorator]
def _count(  # type: ignore[no-untyped-def]
    scores, labels, weights, hits, predicted, kept, places, n, classes, delta, factor, margin, smallest,
    WIDTH: tl.constexpr,
):  # fmt: skip
    program, programs = tl.program_id(0), tl.num_programs(0)
    k = tl.arange(0, WIDTH)
    inside = k < classes
    sums = tl.zeros([WIDTH], tl.float32)
    for row in range(program, n, programs):
        label = tl.load(labels + row)
        x = tl.load(scores + tl.cast(row, tl.int64) * classes + k, mask=inside, other=0.0).to(tl.float32)
        x = tl.where(label < 0, 0.0, x)  # ignored, whatever lies there
        x = tl.where(inside, x, float("-inf"))
        first, at_first = tl.max(x, 0), tl.argmax(x, 0)
        others = tl.where(k == at_first, float("-inf"), x)
        second, at_second = tl.max(others, 0), tl.argmax(others, 0)
        e = tl.where(inside, tl.exp(x - first), 0.0)
        scale = 1.0 / tl.sum(e, 0)
        mean = (1.0 + tl.exp(second - first)) * scale / 2
        tau, half, low, middle, high = _segments(mean, delta, factor, margin, smallest)
        p = e * scale
        offset = p - tau
        h = tl.where(offset < -half, p * low, tl.where(offset > half, 1 - (1 - p) * high, 0.5 + offset * middle))
        h = tl.where(inside, h, 0.0)
        inverse = 1.0 / tl.sum(h, 0)
        h = h * (inverse * tl.load(weights + row))
        sums += h
        tl.store(hits + row, tl.sum(tl.where(k == label, h, 0.0), 0))
        tl.store(kept + 4 * row, first)
        tl.store(kept + 4 * row + 1, scale)
        tl.store(kept + 4 * row + 2, mean)
        tl.store(kept + 4 * row + 3, inverse)
        tl.store(places + 2 * row, at_first)
        tl.store(places + 2 * row + 1, at_second)
    tl.store(predicted + program * classes + k, sums, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _pull_back(  # type: ignore[no-untyped-def]
    scores, labels, weights, kept, places, columns, diagonal, out, classes, delta, factor, margin, smallest,
    IS_FIXED: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row = tl.cast(tl.program_id(0), tl.int64)
    k = tl.arange(0, WIDTH)
    inside = k < classes
    label = tl.load(labels + row)
    x = tl.load(scores + row * classes + k, mask=inside, other=0.0).to(tl.float32)
    x = tl.where(label < 0, 0.0, x)
    first, scale = tl.load(kept + 4 * row), tl.load(kept + 4 * row + 1)
    mean, inverse = tl.load(kept + 4 * row + 2), tl.load(kept + 4 * row + 3)
    p = tl.where(inside, tl.exp(x - first) * scale, 0.0)
    tau, half, low, middle, high = _segments(mean, delta, factor, margin, smallest)
    offset = p - tau
    below, above = offset < -half, offset > half
    h = tl.where(below, p * low, tl.where(above, 1 - (1 - p) * high, 0.5 + offset * middle))
    h = tl.where(inside, h, 0.0)
    g = tl.load(columns + k, mask=inside, other=0.0)
    g += tl.where(k == label, tl.load(diagonal + k, mask=inside, other=0.0), 0.0)
    g = (g - tl.sum(g * h, 0) * inverse) * (inverse * tl.load(weights + row))
    g = tl.where(inside, g, 0.0)
    of_p = g * tl.where(below, low, tl.where(above, high, middle))
    if not IS_FIXED:
        moves = (mean >= margin) & (mean <= 1 - margin)
        growth = tl.where(tau < 0.5, factor, tl.where(tau > 0.5, -factor, 0.0)) / 2  # of half the width
        growth = tl.where(half > smallest / 2, growth, 0.0)
        of_under = (1 - growth) / tl.maximum(tau - half, smallest)
        of_over = (1 + growth) / tl.maximum(1 - tau - half, smallest)
        velocity = tl.where(below, p * of_under, tl.where(above, (1 - p) * of_over, 1 + offset * growth / half))
        of_threshold = tl.where(moves, -tl.sum(of_p * velocity, 0), 0.0)
        is_top = (k == tl.load(places + 2 * row)) | (k == tl.load(places + 2 * row + 1))
        of_p += tl.where(is_top, of_threshold / 2, 0.0)
    tl.store(out + row * classes + k, p * (of_p - tl.sum(of_p * p, 0)), mask=inside)


class TritonRows:
    """Counts rows and pulls gradients back to them; keeps six numbers a row in between.

    Args:
        points: The step.
        labels: Class indices (n,), negative where a row does not count.
        weights: Weights (n,), float32.
        is_fixed: Whether no gradient flows through the threshold.
    """

    def __init__(self, points: FivePoints, labels: Tensor, weights: Tensor, *, is_fixed: bool) -> None:
        margin = max(THRESHOLD_MARGIN, torch.finfo(torch.float32).eps)
        self.numbers = (points.delta, points.factor, margin, max(SMALLEST_WIDTH, torch.finfo(torch.float32).tiny))
        self.labels, self.weights = labels.contiguous(), weights.contiguous()
        self.is_fixed = is_fixed

    def count(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The weighted membership of each row (n, classes) in its true class, and the sums over rows, (classes,)."""
        n, classes = scores.shape
        programs = min(n, PROGRAMS)
        hits, partial = (
            scores.new_empty(n, dtype=torch.float32),
            scores.new_empty(programs, classes, dtype=torch.float32),
        )
        self.kept = scores.new_empty(n, 4, dtype=torch.float32)
        self.places = scores.new_empty(n, 2, dtype=torch.int32)
        _count[(programs,)](
            scores, self.labels, self.weights, hits, partial, self.kept, self.places, n, classes, *self.numbers,
            WIDTH=_width(classes),
        )  # fmt: skip
        return hits, partial.sum(dim=0, dtype=torch.float64)

    def pull_back(self, scores: Tensor, columns: Tensor, diagonal: Tensor) -> Tensor:
        """The gradient of the logits, given the two parts of the matrix's that matter."""
        n, classes = scores.shape
        out = torch.empty_like(scores)
        vectors: list[Any] = [vector.float().contiguous() for vector in (columns, diagonal)]
        _pull_back[(n,)](
            scores, self.labels, self.weights, self.kept, self.places, *vectors, out, classes, *self.numbers,
            IS_FIXED=self.is_fixed, WIDTH=_width(classes),
        )  # fmt: skip
        return out


def _width(classes: int) -> int:
    return 1 << (classes - 1).bit_length()
