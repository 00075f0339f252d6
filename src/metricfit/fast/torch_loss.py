"""``MetricLoss`` on other devices, in blocks of samples: sums of the counts forward, the closed form backward."""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any

import torch
from torch import Tensor

from metricfit.fast.batch import FivePoints
from metricfit.fast.closed_form import Counted, count_block, pull_back_block
from metricfit.fast.layout import Layout
from metricfit.fast.metric_gradients import ClosedForm
from metricfit.fast.sums import loss_of_sums
from metricfit.numerics import accumulation_dtype

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
        if 0 <= ignore_index < classes or not (may_wait and _are_within(labels, classes)):
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
            from metricfit.fast.triton_rows import TritonRows

            marked = labels if keep is None else torch.where(keep, labels, -1)
            ones = torch.ones_like(labels, dtype=self.dtype) if weights is None else weights
            self.rows = TritonRows(points, marked, ones, is_fixed=is_fixed)

    def loss(self, input: Tensor, metric: ClosedForm, skip_absent: bool, wants_gradient: bool) -> Tensor | None:
        """The loss; None where something is out of order."""
        if not self.is_good:
            return None
        if self.rows is None:
            hits, predicted = self._sums_of_blocks(input, wants_gradient)
        else:
            hit, predicted = self.rows.count(input.detach())
            hits, predicted = _sums(self.labels, hit, self.layout.classes), predicted.double()
        true = _sums(self.labels, self.weights, self.layout.classes)
        value, self.columns, self.diagonal = loss_of_sums(metric, hits, true, predicted, skip_absent)
        value = value + 0 * predicted.sum()
        return None if self.may_wait and value.isnan().item() else value

    def _sums_of_blocks(self, input: Tensor, wants_gradient: bool) -> tuple[Tensor, Tensor]:
        keeps = wants_gradient and input.numel() <= KEPT_ELEMENTS
        blocks = self.layout.scores(input.detach())
        self.kept: list[Counted | None] = [None] * len(blocks)
        hits: Tensor = torch.zeros(self.layout.classes, dtype=torch.float64, device=input.device)
        predicted = torch.zeros_like(hits)
        for i, block in enumerate(blocks):
            h, counted = self._count(i, block, keeps and len(blocks) == 1)
            labels = self.parts["labels"][i]
            hit = h.gather(1, labels).flatten()
            if self.parts["weights"] is not None:
                weights = self.parts["weights"][i]
                hit.mul_(weights.flatten())
                h = h * weights
            hits += _sums(labels.flatten(), hit, self.layout.classes)
            predicted += h.sum(dim=(0, 2)).double()
            self.kept[i] = counted if keeps else None
        return hits, predicted

    def pull_back(self, input: Tensor, scale: Tensor) -> Tensor:
        """The gradient with respect to the logits, given that of the loss."""
        columns, diagonal = ((vector * scale).to(self.dtype) for vector in (self.columns, self.diagonal))
        if self.rows is not None:
            gradient: Tensor = self.rows.pull_back(input.detach(), columns, diagonal)
            return gradient
        result = torch.empty_like(input)
        blocks = zip(self.layout.scores(input.detach()), self.layout.scores(result), strict=True)
        for i, (block, out) in enumerate(blocks):
            counted, self.kept[i] = self.kept[i], None
            if counted is None:  # too many to be kept, or used up by an earlier call
                _, counted = self._count(i, block, False)
            labels = self.parts["labels"][i]
            weights = None if self.parts["weights"] is None else self.parts["weights"][i]
            g = columns.view(1, -1, 1).expand(counted.p.shape).clone(memory_format=torch.contiguous_format)
            g.scatter_add_(1, labels, diagonal[labels])
            out.copy_(pull_back_block(g, weights, counted, self.points, is_softmax=True, is_fixed=self.is_fixed))
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
    """Whether a batch is one for :mod:`metricfit.fast.triton_rows`: rows on a GPU."""
    if not input.is_cuda or input.ndim != 2 or input.dtype == torch.float64 or input.shape[1] > MOST_CLASSES:
        return False
    return input.is_contiguous() and _triton_is_here()


def _are_within(values: Tensor, end: float) -> bool:
    """Whether all are in [0, end)."""
    least, most = values.aminmax()
    return bool(least.item() >= 0 and most.item() < end)


def _sums(labels: Tensor, values: Tensor | None, classes: int) -> Tensor:
    """The sum of the values of each class, in float64."""
    values = torch.ones_like(labels, dtype=torch.float64) if values is None else values.double()
    return values.new_zeros(classes).index_add_(0, labels, values)
