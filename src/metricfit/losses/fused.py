"""The quick way of ``MetricLoss``: value and gradient in one step of their own, for the commonest options.

Metrics with a closed form on ordinary logits and classes, with cross-entropy and memory too; the tests compare it with
the plain way, the formulas of the papers through autograd.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from metricfit.distributed import group_of
from metricfit.fast import five_points, is_ordinary
from metricfit.fast.batch import FivePoints
from metricfit.fast.loss import fused_binary_loss, fused_loss
from metricfit.fast.metric_gradients import ClosedForm, closed_form_of
from metricfit.losses.cross_entropy import classes_of_batch, cross_entropy_of_batch
from metricfit.losses.memory import ConfusionMemory
from metricfit.metrics import Metric
from metricfit.steps import Step, annealed_linear_step

if TYPE_CHECKING:
    from metricfit.losses.metric_loss import MetricLoss

__all__ = ["Known", "loss_in_one_step"]

Known = tuple[Metric, Step | None, Tensor | None, float | None, tuple[ClosedForm | None, FivePoints | None]]
"""Metric, step, temperature and its value, and what follows from them."""


def loss_in_one_step(loss: MetricLoss, input: Tensor, target: Tensor, sample_weight: Tensor | None) -> Tensor | None:
    """The loss of a batch, or None where an option or the input asks for the plain way.

    Args:
        loss: With its options and memory.
        input: Logits.
        target: Classes.
        sample_weight: Weights of the samples.
    """
    if loss.task == "multilabel" or loss.from_probabilities or not is_ordinary(input, target):
        return None
    closed_form, points = _closed_form_and_points(loss)
    if closed_form is None or points is None or (closed_form.label >= 0 and loss.labels is not None):
        return None
    known_classes = (loss.labels, loss._buffers["class_prior"])
    if any(of_classes is not None and len(of_classes) != _classes_of(loss, input) for of_classes in known_classes):
        return None
    group = group_of(loss.sync, loss.training)
    memory = cast("ConfusionMemory", loss.memories[0]) if loss.memories is not None and loss.training else None
    is_mixed = memory is not None or bool(loss.cross_entropy)
    if is_mixed and (group is not None or not input.is_cpu):
        return None
    classes = target
    if loss.cross_entropy:
        found = None if sample_weight is not None else classes_of_batch(input, target, loss.ignore_index)
        if found is None:
            return None
        classes = found
    plain = partial(loss._plain, target=target, sample_weight=sample_weight)
    if is_mixed:
        past = None if memory is None else memory.matrix
        plain = partial(_metric_again, loss, target=target, sample_weight=sample_weight, past=past)
    batch = (input, target, loss._buffers["weight"], sample_weight, plain)
    shared: Any = {"ignore_index": loss.ignore_index, "blend": None if memory is None else memory.blend}
    if loss.task == "binary":
        bare = getattr(loss.metric, "average", "auto") == "auto" and getattr(loss.metric, "label", None) is None
        # Other processes expect counts of another shape.
        if not bare or float(loss.threshold) != 0.5 or group is not None:
            return None
        metric = fused_binary_loss(replace(closed_form, label=1), points, *batch, **shared)
    elif input.ndim < 2 or loss._averages_classes(input):
        return None
    else:
        metric = fused_loss(
            closed_form,
            points,
            *batch,
            skip_absent=loss.absent == "skip",
            detach_threshold=loss.detach_threshold,
            validate=loss.validate,
            group=group,
            **shared,
        )
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


def _classes_of(loss: MetricLoss, input: Tensor) -> int:
    return 2 if loss.task == "binary" else sum(input.shape[1:2])


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


def _closed_form_and_points(loss: MetricLoss) -> tuple[ClosedForm | None, FivePoints | None]:
    """What does not change from batch to batch, found anew when metric, step or temperature are others."""
    temperature = loss._buffers["temperature"]  # a module's attribute takes four times as long
    value = None
    if temperature is not None and not temperature.requires_grad and not temperature.ndim:
        # A device is asked for the value only after a change.
        value = temperature.item() if temperature.is_cpu else temperature._version
    known = loss._known
    if (
        known is None
        or known[0] is not loss.metric
        or known[1] is not loss._fixed_step
        or known[2] is not temperature
        or known[3] != value
    ):
        step = loss._step
        if value is not None and temperature is not None and not temperature.is_cpu:
            step = partial(annealed_linear_step, temperature=temperature.cpu())
        found = (closed_form_of(loss.metric), five_points(step))
        loss._known = known = (loss.metric, loss._fixed_step, temperature, value, found)
    return known[4]
