"""``MetricLoss`` on a CPU without numba, in blocks of samples: sums of the counts forward, the closed form backward."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metricfit.fast.array_steps import Counted, Lines, count_logits, covers, places_of, pull_back_logits, steps_of
from metricfit.fast.batch import FivePoints
from metricfit.fast.layout import Layout
from metricfit.fast.loops import mcc, mean_ratio
from metricfit.fast.metric_gradients import ClosedForm
from metricfit.fast.threads import run
from metricfit.numerics import accumulation_dtype

__all__ = ["ArrayBatch", "takes_arrays"]

Array = np.ndarray[Any, Any]

KEPT_ELEMENTS = 2**25
"""Of more scores a block is counted again in the backward pass instead of being kept."""


@dataclass(slots=True)
class _Block:
    """A block and its samples.

    Attributes:
        counted: Its steps.
        labels: (n,).
        weights: (b, 1, l) or None.
        places: Flat places of the labels, (b, 1, l).
        hit: The memberships of the labels, (b, 1, l).
    """

    counted: Counted
    labels: Array
    weights: Array | None
    places: Array
    hit: Array


def takes_arrays(input: Tensor) -> bool:
    """Whether a batch is one for :class:`ArrayBatch`."""
    return input.is_cpu


class ArrayBatch:
    """A batch of logits (N, C, …) with class indices, counted and pulled back without autograd.

    Args:
        points: The step.
        input: Logits; dense.
        target: Class indices.
        weight: Class weights or None.
        sample_weight: Weights of the samples or None.
        ignore_index: The label of samples that do not count.
        is_fixed: Whether no gradient flows through the threshold.
    """

    def __init__(
        self, points: FivePoints, input: Tensor, target: Tensor, weight: Tensor | None, sample_weight: Tensor | None, *,
        ignore_index: int, is_fixed: bool,
    ) -> None:  # fmt: skip
        self.lines = Lines.of(points)
        self.is_fixed = is_fixed
        self.layout = layout = Layout(input)
        self.dtype = accumulation_dtype(input.dtype)
        self.classes = classes = input.shape[1]
        labels: Array = target.numpy().reshape(-1)
        weights = None if sample_weight is None else self._array(sample_weight).reshape(-1)
        keep = None
        if 0 <= ignore_index < classes or not _are_classes(labels, classes):
            keep = labels != ignore_index
            labels = labels * keep
            weights = self._array(torch.from_numpy(keep)) if weights is None else weights * keep
        self.is_good = covers(points, classes) and (keep is None or _are_classes(labels, classes))
        if weight is not None and self.is_good:
            of_label = self._array(weight)[labels]
            weights = of_label if weights is None else weights * of_label
        if weights is not None and self.is_good:
            self.is_good = bool(weights.min() >= 0 and weights.max() < math.inf)
        self.labels, self.weights = labels, weights
        self.label_parts = layout.samples(labels)
        self.weight_parts = None if weights is None else layout.samples(weights)
        self.keep_parts = None if keep is None else layout.samples(keep)

    def loss(self, input: Tensor, metric: ClosedForm, skip_absent: bool, wants_gradient: bool) -> float | None:
        """The loss; None where something is out of order."""
        if not self.is_good:
            return None
        keeps = wants_gradient and input.numel() <= KEPT_ELEMENTS
        blocks = self.layout.scores(self._array(input))
        self.kept: list[_Block | None] = [None] * len(blocks)
        sums: list[Any] = [None] * len(blocks)

        def count(i: int) -> int:
            with np.errstate(all="ignore"):  # what is out of order shows in the sums
                block = self._count(i, blocks[i])
                counted, hit, scale = block.counted, block.hit, block.counted.inverse
                if block.weights is not None:
                    hit, scale = hit * block.weights, scale * block.weights
                h = steps_of(counted, self.lines)
                sums[i] = (
                    np.bincount(block.labels, hit.reshape(-1), self.classes),
                    (h * scale).sum(axis=(0, 2)).astype(np.float64),
                )
            if keeps:
                counted.h = h if len(blocks) == 1 else None
                self.kept[i] = block
            return 0

        run(count, len(blocks))
        # One by one, the numbers of a list are read in a fraction of the time that those of an array take.
        hits, predicted = (sum(vectors[1:], start=vectors[0]).tolist() for vectors in zip(*sums, strict=True))
        if math.isnan(sum(predicted)):
            return None
        true: Any = np.bincount(self.labels, self.weights, self.classes).tolist()
        value: float
        if metric.ratio is None:
            value, _, self.columns, self.diagonal = mcc(hits, true, predicted, metric.undefined)
        else:
            ratio: Any = metric.ratio
            value, _, self.columns, self.diagonal = mean_ratio(
                hits, true, predicted, ratio, metric.label, metric.undefined, skip_absent
            )
        return value

    def pull_back(self, input: Tensor, scale: Tensor) -> Tensor:
        """The gradient with respect to the logits, given that of the loss."""
        factor = scale.item()
        columns, diagonal = self.columns * factor, self.diagonal * factor
        result = torch.empty_like(input, dtype=self.dtype)
        outs = self.layout.scores(result.numpy())
        blocks = self.layout.scores(self._array(input)) if None in self.kept else []

        def pull_back(i: int) -> int:
            block, self.kept[i] = self.kept[i], None
            with np.errstate(all="ignore"):
                if block is None:  # too many to be kept, or used up by an earlier call
                    block = self._count(i, blocks[i])
                h = steps_of(block.counted, self.lines)
                g = _gradient_of_steps(h, block, columns, diagonal)
                outs[i][...] = pull_back_logits(g, h, block.counted, self.lines, is_fixed=self.is_fixed)
            return 0

        run(pull_back, len(outs))
        return result.to(input.dtype)

    def _count(self, i: int, scores: Array) -> _Block:
        labels, weights = self.label_parts[i], None if self.weight_parts is None else self.weight_parts[i]
        logits: Array = scores.copy()
        if self.keep_parts is not None:  # whatever lies there, NaN too, is replaced
            logits = np.where(
                self.keep_parts[i], logits, -np.arange(self.classes, dtype=logits.dtype).reshape(1, -1, 1)
            )
        origin = places_of(logits)
        places = labels * logits.shape[2]
        places += origin
        counted = count_logits(logits, origin, self.lines)
        hit = steps_of(counted, self.lines).reshape(-1)[places]
        hit *= counted.inverse
        return _Block(counted, labels.reshape(-1), weights, places, hit)

    def _array(self, tensor: Tensor) -> Array:
        array: Array = tensor.detach().to(self.dtype).numpy()
        return array


def _gradient_of_steps(h: Array, block: _Block, columns: Array, diagonal: Array) -> Array:
    """From the gradient of the counts, columns[k] + (label = k) diagonal[k], back through the division by the sum."""
    inverse = block.counted.inverse
    scale = inverse if block.weights is None else inverse * block.weights
    columns = columns.astype(h.dtype).reshape(1, -1, 1)
    of_label = diagonal.astype(h.dtype)[block.labels].reshape(inverse.shape)
    g: Array = h * columns
    mean = np.add.reduce(g, axis=1, keepdims=True)
    mean *= inverse
    mean += of_label * block.hit
    mean *= scale
    np.multiply(columns, scale, out=g)
    g -= mean
    of_label *= scale
    g.reshape(-1)[block.places] += of_label
    return g


def _are_classes(labels: Array, classes: int) -> bool:
    """Whether all are in [0, classes): as numbers without a sign, those below 0 are the largest."""
    return bool(labels.view(np.uint64).max() < classes)
