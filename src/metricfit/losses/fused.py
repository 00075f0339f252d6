"""The quick way of ``MetricLoss``: what :func:`metricfit.fast.metric_loss` covers, and cross-entropy beside it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from metricfit import fast
from metricfit.distributed import group_of
from metricfit.losses.cross_entropy import classes_of_batch, cross_entropy_of_batch
from metricfit.losses.memory import ConfusionMemory

if TYPE_CHECKING:
    from metricfit.losses.metric_loss import MetricLoss

__all__ = ["loss_in_one_step"]

Known = Any


def loss_in_one_step(loss: MetricLoss, input: Tensor, target: Tensor, sample_weight: Tensor | None) -> Tensor | None:
    """The loss of a batch, or None where an option or the input asks for the plain way.

    Args:
        loss: With its options and memory.
        input: Logits.
        target: Classes.
        sample_weight: Weights of the samples.
    """
    if loss.task == "multilabel" or loss.from_probabilities or loss._grids != [None]:
        return None
    if loss.task == "binary" and bool((loss.threshold != 0.5).any()):
        return None
    if not isinstance(input, Tensor) or not input.ndim or loss._averages_classes(input):
        return None
    prior = loss._buffers["class_prior"]
    if prior is not None and len(prior) != (2 if loss.task == "binary" else sum(input.shape[1:2])):
        return None
    group = group_of(loss.sync, loss.training)
    if loss.cross_entropy and group is not None:
        return None
    memory = cast("ConfusionMemory", loss.memories[0]) if loss.memories is not None and loss.training else None
    classes = target
    if loss.cross_entropy:
        found = None
        if sample_weight is None and fast.is_ordinary(input, target):
            found = classes_of_batch(input, target, loss.ignore_index)
        if found is None:
            return None
        classes = found
    past = None if memory is None else memory.matrix
    plain = partial(_metric_again, loss, target=target, sample_weight=sample_weight, past=past)
    metric = fast.metric_loss(
        input, target, sample_weight, metric=loss.metric, step=loss._step, task=loss.task, members=False,
        weight=loss._buffers["weight"], ignore_index=loss.ignore_index, skip_absent=loss.absent == "skip",
        detach_threshold=loss.detach_threshold, memory=memory, group=group, validate=loss.validate, plain=plain,
        labels=loss.labels,
    )  # fmt: skip
    if metric is None or not loss.cross_entropy:
        return metric
    return metric + loss.cross_entropy * cross_entropy_of_batch(
        input,
        classes,
        weighting=loss.class_weighting,
        prior=loss.class_prior,
        weight=loss.weight,
        ignore_index=loss.ignore_index,
    )


def _metric_again(
    loss: MetricLoss, input: Tensor, *, target: Tensor, sample_weight: Tensor | None, past: Tensor | None
) -> Tensor:
    """The metric's part along the plain formulas, with the memory as it was: for second derivatives."""
    with torch.autocast(input.device.type, enabled=False):
        samples = loss._flatten(input, target, sample_weight)
        counts = [loss._count(samples, grid) for grid in loss._grids]
        if past is None:
            value = loss.metric.loss(loss._source(counts, remember=False))
        else:
            memory = loss.memories[0]  # type: ignore[index]
            now, memory.matrix = memory.matrix, past
            try:
                value = loss.metric.loss(loss._source(counts, remember=True))
            finally:
                memory.matrix = now
        return torch.where(samples.weight.sum() > 0, value, torch.zeros_like(value))
