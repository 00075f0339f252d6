"""``MetricLoss`` in plain torch, in blocks of samples: counts of three vectors forward, the closed form backward."""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metricfit._kernels.batch import FivePoints
from metricfit._kernels.closed_form import Counted, count_block, pull_back_block
from metricfit._kernels.layout import Layout
from metricfit._kernels.loops import mcc, mean_ratio
from metricfit._kernels.metric_gradients import ClosedForm, as_array
from metricfit._kernels.sums import loss_of_sums
from metricfit._kernels.threads import run
from metricfit._numerics import accumulation_dtype

__all__ = ["TorchBatch"]

MOST_CLASSES = 4096
"""A row has to fit into the registers of one Triton program."""

KEPT_ELEMENTS = 2**25
"""Of more scores the probabilities are computed again in the backward pass instead of being kept."""


class TorchBatch:
    """A batch of logits (N, C, …) with class indices, counted and pulled back without autograd.

    Args:
        points: The step.
        input: Logits; dense.
        target: Class indices.
        weight: Class weights or None.
        sample_weight: Weights of the samples or None.
        ignore_index: The label of samples that do not count.
        is_fixed: Whether no gradient flows through the threshold.
        may_wait: Whether values may be looked at, for which a device has to finish.
    """

    def __init__(
        self, points: FivePoints, input: Tensor, target: Tensor, weight: Tensor | None, sample_weight: Tensor | None, *,
        ignore_index: int, is_fixed: bool, may_wait: bool,
    ) -> None:  # fmt: skip
        self.points = points
        self.is_fixed = is_fixed
        self.may_wait = may_wait
        self.layout = Layout(input)
        self.dtype = accumulation_dtype(input.dtype)
        classes = input.shape[1]
        labels = target.reshape(-1)
        weights = None if sample_weight is None else sample_weight.reshape(-1).to(self.dtype)
        keep = None
        if not (may_wait and _are_within(labels, classes)):
            keep = labels != ignore_index
            labels = labels * keep
            weights = keep.to(self.dtype) if weights is None else weights * keep
        self.is_good = keep is None or not may_wait or _are_within(labels, classes)
        if weight is not None and self.is_good:
            of_label = weight.to(self.dtype)[labels]
            weights = of_label if weights is None else weights * of_label
        if may_wait and weights is not None and self.is_good:
            self.is_good = _are_within(weights, float("inf"))
        self.labels, self.weights = labels, weights
        self.parts: dict[str, Any] = {
            "labels": self.layout.samples(labels),
            "weights": None if weights is None else self.layout.samples(weights),
            "keep": None if keep is None else self.layout.samples(keep),
        }
        self.rows: Any = None
        if takes_triton(input):
            from metricfit._kernels.triton_rows import TritonRows

            marked = labels if keep is None else torch.where(keep, labels, -1)
            ones = torch.ones_like(labels, dtype=self.dtype) if weights is None else weights
            self.rows = TritonRows(points, marked, ones, is_fixed=is_fixed)

    def loss(self, input: Tensor, metric: ClosedForm, skip_absent: bool, wants_gradient: bool) -> Any:
        """The loss, a number or a tensor of a device; None where something is out of order."""
        if not self.is_good:
            return None
        if self.rows is None:
            hits, predicted = self._sums_of_blocks(input, wants_gradient)
        else:
            hit, predicted = self.rows.count(input.detach())
            hits, predicted = _sums(self.labels, hit, self.layout.classes), _as_vector(predicted)
        true = _sums(self.labels, self.weights, self.layout.classes)
        value: Any
        self.columns: Any
        self.diagonal: Any
        if not input.is_cpu:
            value, self.columns, self.diagonal = loss_of_sums(metric, hits, true, predicted, skip_absent)
            value = value + 0 * predicted.sum()
            return None if self.may_wait and value.isnan().item() else value
        if np.isnan(predicted).any():
            return None
        if metric.ratio is None:
            value, _, self.columns, self.diagonal = mcc(hits, true, predicted, metric.undefined)
        else:
            value, _, self.columns, self.diagonal = mean_ratio(
                hits, true, predicted, as_array(metric.ratio), metric.label, metric.undefined, skip_absent
            )
        return value

    def _sums_of_blocks(self, input: Tensor, wants_gradient: bool) -> tuple[Any, Any]:
        keeps = wants_gradient and input.numel() <= KEPT_ELEMENTS
        blocks = self.layout.scores(input.detach())
        self.kept: list[Counted | None] = [None] * len(blocks)
        sums: list[Any] = [None] * len(blocks)

        def count(i: int) -> int:
            h, counted = self._count(i, blocks[i], keeps and len(blocks) == 1)
            labels = self.parts["labels"][i]
            hit = h.gather(1, labels).flatten()
            if self.parts["weights"] is not None:
                weights = self.parts["weights"][i]
                hit.mul_(weights.flatten())
                h = h * weights
            sums[i] = _sums(labels.flatten(), hit, self.layout.classes), _as_vector(h.sum(dim=(0, 2)))
            self.kept[i] = counted if keeps else None
            return 0

        run(count, len(blocks))
        hits, predicted = (sum(vectors[1:], start=vectors[0]) for vectors in zip(*sums, strict=True))
        return hits, predicted

    def pull_back(self, input: Tensor, scale: Tensor) -> Tensor:
        """The gradient with respect to the logits, given that of the loss."""
        columns, diagonal = self.columns, self.diagonal
        if input.is_cpu:
            columns, diagonal = (
                torch.from_numpy(vector * scale.item()).to(self.dtype) for vector in (columns, diagonal)
            )
        else:
            columns, diagonal = ((vector * scale).to(self.dtype) for vector in (columns, diagonal))
        if self.rows is not None:
            gradient: Tensor = self.rows.pull_back(input.detach(), columns, diagonal)
            return gradient
        matrix = columns[:, None] + diagonal.diag() if self.layout.is_transposed else None
        result = torch.empty_like(input)
        blocks, outs = self.layout.scores(input.detach()), self.layout.scores(result)

        def pull_back(i: int) -> int:
            counted, self.kept[i] = self.kept[i], None
            if counted is None:  # too many to be kept, or used up by an earlier call
                _, counted = self._count(i, blocks[i], False)
            labels = self.parts["labels"][i]
            weights = None if self.parts["weights"] is None else self.parts["weights"][i]
            if matrix is not None:
                g = matrix.index_select(1, labels.flatten())[None]
            else:
                g = columns.view(1, -1, 1).expand(counted.p.shape).clone(memory_format=torch.contiguous_format)
                g.scatter_add_(1, labels, diagonal[labels])
            outs[i].copy_(pull_back_block(g, weights, counted, self.points, is_softmax=True, is_fixed=self.is_fixed))
            return 0

        run(pull_back, len(blocks))
        return result

    def _count(self, i: int, scores: Tensor, keeps_steps: bool) -> tuple[Tensor, Counted]:
        scores = scores.to(self.dtype)
        if self.parts["keep"] is not None:  # whatever lies there, NaN too, is replaced
            scores = scores.masked_fill(~self.parts["keep"][i], 0.0)
        return count_block(scores.contiguous(), self.points, is_softmax=True, keeps=keeps_steps)


@cache
def _triton_is_here() -> bool:
    return importlib.util.find_spec("triton") is not None


def takes_triton(input: Tensor) -> bool:
    """Whether a batch is one for :mod:`metricfit._kernels.triton_rows`: rows on a GPU."""
    if not input.is_cuda or input.ndim != 2 or input.dtype == torch.float64 or input.shape[1] > MOST_CLASSES:
        return False
    return input.is_contiguous() and _triton_is_here()


def _are_within(values: Tensor, end: float) -> bool:
    """Whether all are in [0, end)."""
    least, most = values.aminmax()
    return bool(least.item() >= 0 and most.item() < end)


def _as_vector(sums: Tensor) -> Any:
    """In float64; as an array where that takes no waiting: a few numbers are NumPy's business."""
    return sums.double().numpy() if sums.is_cpu else sums.double()


def _sums(labels: Tensor, values: Tensor | None, classes: int) -> Any:
    """The sum of the values of each class, in float64."""
    if labels.is_cpu:
        return np.bincount(labels.numpy(), None if values is None else values.numpy(), classes).astype(np.float64)
    values = torch.ones_like(labels, dtype=torch.float64) if values is None else values
    return values.new_zeros(classes, dtype=torch.float64).index_add_(0, labels, values.double())
