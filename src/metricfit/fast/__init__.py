"""The same loss sooner: value and gradient of ``MetricLoss`` in two passes over the batch, without autograd.

:func:`metric_loss` is the only name that others use. It declines (None) whatever it does not cover, and the plain
formulas then serve: they are the reference, the way of ``torch.compile``, function transforms and second derivatives,
and they raise the errors for invalid input.

A pass counts the soft confusion matrix, takes the metric and its gradient with respect to the counts
(:mod:`metricfit.fast.closed_form`), and pulls that back to the logits: in compiled loops (:mod:`metricfit.fast.loops`)
or in torch (:mod:`metricfit.fast.blocks`), both on the threads of torch itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, distributed
from torch.autograd import forward_ad

from metricfit.confusion import MATRIX_UP_TO
from metricfit.distributed import sum_over_processes
from metricfit.fast.blocks import ROWS_FROM, Array, Derivative, Job, are_within, run, torch_pass
from metricfit.fast.closed_form import ClosedForm, closed_form_of, loss_of_matrices, loss_of_sums
from metricfit.inputs import WEIGHTS_FROM_TO
from metricfit.metrics import FormulaMetric
from metricfit.steps import SMALLEST_WIDTH, THRESHOLD_MARGIN, Annealed, Linear, Step

if TYPE_CHECKING:
    from metricfit.losses.metric_loss import Batch

__all__ = ["metric_loss"]

PART_ELEMENTS, MOST_PARTS = 2**16, 16
"""A batch is counted in parts of at least so many scores, and in so many parts: threads share them."""

LEAST, MOST = WEIGHTS_FROM_TO
ORDINARY = (Tensor, torch.nn.Parameter)


def metric_loss(batch: Batch, input: Tensor) -> Tensor | None:
    """The metric's loss of a batch, (M,) with members, tied to autograd; None where the plain formulas must serve.

    >>> from metricfit import MetricLoss
    >>> MetricLoss("f1")(torch.eye(2).requires_grad_(), torch.arange(2)).grad_fn
    <...FastLoss... object at ...>
    """
    options, sample_weight, weight = batch.options, batch.sample_weight, batch.weight
    task, members, group = options.task, options.members, batch.group
    if task == "multilabel" or options.from_probabilities or not options.decides or len(batch.memories) > 1:
        return None
    if group is not None and options.cross_entropy:
        return None  # all processes have to send the same messages, also one that cannot take this way
    if forward_ad._current_level >= 0 or not (options.validate or input.is_cpu):  # the checks wait for a device
        return None
    for tensor in (input, batch.target, sample_weight, weight):
        if tensor is not None and (type(tensor) not in ORDINARY or tensor.layout is not torch.strided):
            return None
    classes, shape, lead = batch.target, input.shape, 1 if members is None else 2
    positions, number = shape[:lead] + shape[lead + 1 :], shape[lead] if len(shape) > lead else 0
    if task == "binary":
        classes, positions, number = classes.long(), shape, 2
        if batch.target.is_floating_point() and not torch.equal(classes.to(batch.target.dtype), batch.target):
            return None  # shares of the classes
    if classes.dtype is not torch.int64 or classes.shape != positions or len(positions) < lead:
        return None
    if not input.numel() or not input.is_floating_point() or classes.device != input.device:
        return None
    if weight is not None and not _are_weights(weight, (number,), input):
        return None
    if sample_weight is not None:
        if sample_weight.shape == positions[:lead] != positions:
            sample_weight = sample_weight.reshape(positions[:lead] + (1,) * (len(positions) - lead)).expand(positions)
        if not _are_weights(sample_weight, positions, input):
            return None
    if members is not None and members != shape[0]:
        return None
    points = five_points(batch.temperature if options.step is None else options.step, members or 1)  # type: ignore[arg-type]
    if points is None or number < 2 or number * 2 * THRESHOLD_MARGIN >= 1:
        return None
    metric, by_name = options.metric, options.labels is not None and getattr(options.metric, "label", None) is not None
    # A class that is named has to be looked up, which the metric itself does.
    form = closed_form_of(metric, task) if input.is_cpu and isinstance(metric, FormulaMetric) and not by_name else None
    if (options.labels is not None and len(options.labels) != number) or (form is not None and form.label >= number):
        return None
    if number >= MATRIX_UP_TO and (form is None or batch.memories or group is not None):
        return None
    remembered = [memory.matrix for memory in batch.memories]  # before this batch
    wants_gradient = input.requires_grad and torch.is_grad_enabled()
    dtype = torch.float64 if input.dtype is torch.float64 else torch.float32
    job = Job(
        _dense_logits(input, task == "binary", members), classes if classes.ndim == 1 else classes.reshape(-1),
        _as_vector(sample_weight, dtype), _as_vector(weight, dtype), points, options.ignore_index,
        wants_gradient, form is not None and not batch.memories and group is None, form is not None,
    )  # fmt: skip
    found = _losses_and_gradient(job, batch, form, dtype)
    if found is None:
        return None
    losses, gradient = found
    if losses.ndim and members is None:
        losses = losses.squeeze_(0)
    return _tie(input, losses, gradient, batch, remembered) if wants_gradient else losses


def _are_weights(weights: Tensor, shape: tuple[int, ...], like: Tensor) -> bool:
    return weights.device == like.device and weights.shape == shape and not weights.requires_grad


def _as_vector(weights: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    # Side by side: the loop for small batches reads them by address. A column of a table stays one when flattened.
    return None if weights is None else weights.detach().reshape(-1).to(dtype).contiguous()


def _dense_logits(input: Tensor, is_binary: bool, members: int | None) -> Tensor:
    """Logits (M · N, C, …), side by side. A logit z becomes (-z/2, z/2), of which one is inf where z is not finite."""
    logits = input.detach()
    if is_binary:
        half = logits * 0.5
        logits = torch.stack([-half, half], dim=1 if members is None else 2)
    if members is not None:
        logits = logits.flatten(0, 1)
    if logits.is_contiguous() or (logits.ndim > 2 and logits.movedim(1, -1).is_contiguous()):
        return logits
    return logits.contiguous()


def five_points(step: Step | Tensor, members: int = 1) -> Array | None:
    """The step of each member, (M, 5), in units of the threshold; None for other steps than the two linear ones.

    These are the height delta where the middle begins, the slopes below and in the middle, and where that begins and
    ends. If it does not begin over 0, that is where its line would be 0. A tensor is the temperature of the annealed
    step, one number or one per member, of which no gradient may be wanted.

    >>> five_points(Linear(0.1))
    array([[0.1, 0.2, 0.8, 0.5, 1.5]])
    """
    if isinstance(step, Linear):
        return _points((float(step.delta),), None, members)
    temperature = step.temperature if isinstance(step, Annealed) else step
    if isinstance(temperature, float):
        return _points((temperature,), torch.float64, members)
    if not isinstance(temperature, Tensor) or temperature.requires_grad or temperature.numel() not in (1, members):
        return None
    values = tuple(temperature.reshape(-1).tolist()) if temperature.ndim else (temperature.item(),)
    return _points(values, temperature.dtype, members)


@lru_cache(maxsize=256)
def _points(deltas: tuple[float, ...], dtype: torch.dtype | None, members: int) -> Array | None:
    # The middle is five times as wide as the temperature, rounded as the plain formula rounds it.
    factors = [1.0] if dtype is None else (5 * torch.tensor(deltas, dtype=dtype)).tolist()
    if min(factors) * THRESHOLD_MARGIN <= SMALLEST_WIDTH:  # a width at its bound is another step
        return None
    rows = []
    for delta, factor in zip(deltas, factors, strict=True):
        start, middle = 1 - factor / 2, (1 - 2 * delta) / factor
        low, start = (delta / start, start) if start > 0 else (0.0, 1 - 0.5 / middle)
        rows.append((delta, low, middle, start, 1 + factor / 2))
    return np.array(rows * (members if len(rows) == 1 else 1))


def _losses_and_gradient(job: Job, batch: Batch, form: ClosedForm | None, dtype: torch.dtype) -> Any:
    """The losses (M,), or a scalar, and the gradient of the logits; None where labels, weights or scores are wrong."""
    if job.class_weight is not None and not are_within(job.class_weight, float("inf")):
        return None  # also those of classes that this batch has not
    options, group = batch.options, batch.group
    skip_absent = options.absent == "skip"
    is_plain = job.weight is None or job.class_weight is None  # else a product may have vanished
    is_compiled = job.logits.dtype is torch.float32 and job.logits.is_cpu and compiled_loops() is not None

    def derivative(counts: Any) -> tuple[Any, Any] | None:
        totals = counts[:, 1].sum(1) if job.by_class else counts.sum((1, 2))
        is_usual = (totals >= LEAST) & (totals <= MOST) | ((totals == 0) & is_plain)
        if not is_usual.all():
            return None
        if form is not None and job.by_class:
            losses, gradient = loss_of_sums(form, counts, skip_absent, is_compiled, torch.finfo(dtype).tiny)
            if np.isnan(losses).any():
                return None
            return torch.from_numpy(losses).to(dtype), gradient
        matrices = torch.as_tensor(counts)
        if group is not None:
            _, matrices = sum_over_processes([matrices.sum(dim=(1, 2)), matrices], group)
        memory = batch.memories[0] if batch.memories else None
        result = loss_of_matrices(options, form, matrices.to(dtype), memory, is_compiled)
        if result is None:
            return None
        scale = 1 if group is None else distributed.get_world_size(group)  # as in metricfit.distributed
        return result[0].to(dtype), result[1] * scale

    if not is_compiled:
        with torch.autocast(job.logits.device.type, enabled=False):
            return torch_pass(job, derivative)
    return compiled_pass(job, derivative, form if job.by_class else None, skip_absent)


# Whether backward keeps its graph for another one. Not public in torch: a release without it always keeps.
_keeps_graph: Callable[[], bool] = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)


class FastLoss(torch.autograd.Function):
    """Ties losses that were computed with their gradient to the input."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        input, losses, ctx.gradient, ctx.batch, ctx.remembered = arguments
        ctx.save_for_backward(input)
        return losses  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (input,), (scale,), options = ctx.saved_tensors, gradients, ctx.batch.options
        if torch.is_grad_enabled():
            plain = ctx.batch.metric_alone(ctx.remembered, input)  # which can be differentiated again
            (result,) = torch.autograd.grad(plain, input, scale, create_graph=True)
            return result, None, None, None, None
        if _keeps_graph():
            result = ctx.gradient.clone()
        else:  # given away, so that it need not be copied into a leaf
            result, ctx.gradient = ctx.gradient, None
        if options.members is not None:
            result = result.unflatten(0, (options.members, -1))
            result.mul_(scale.reshape(-1, *[1] * (result.ndim - 1)))
        elif not scale.is_cpu or scale.item() != 1:
            result.mul_(scale)
        if options.task == "binary":
            result = result.select(1 if options.members is None else 2, 1)
        return result.to(input.dtype), None, None, None, None


# Function.apply first looks for function transforms; an ordinary tensor has none, and here it would cost a tenth.
_tie: Callable[..., Tensor] = super(torch.autograd.Function, FastLoss).apply


@cache
def compiled_loops() -> Any:
    """:mod:`metricfit.fast.loops`, or None without numba (the extra ``fast``)."""
    try:
        from metricfit.fast import loops
    except ImportError:
        return None
    return loops


def compiled_pass(
    job: Job, derivative: Derivative, form: ClosedForm | None = None, skip_absent: bool = True
) -> tuple[Any, Tensor | None] | None:
    """:func:`torch_pass` in compiled loops. A small batch takes one call for everything if ``form`` is known."""
    loops, array, members = compiled_loops(), samples_and_classes(job.logits), len(job.points)
    classes, samples = array.shape[1], len(job.target)
    gradient = torch.empty_like(job.logits) if job.wants_gradient else None
    out = array if gradient is None else samples_and_classes(gradient)
    target, points = job.target.contiguous().numpy(), job.points
    weights = [np.empty(0, array.dtype) if w is None else w.numpy() for w in (job.weight, job.class_weight)]
    cells = 3 if job.by_class else classes
    parts = parts_of(samples // members, classes, members, cells)
    data = (array, target, *weights, job.ignore, points, parts)
    if form is not None and len(parts) == members and array.ndim > 2:
        losses = np.empty(members, array.dtype)
        rest = form.array, form.label, skip_absent, losses, job.wants_gradient, out
        return None if loops.losses_and_gradient(data, *rest) else (torch.from_numpy(losses), gradient)
    counts, kept = np.zeros((len(parts), cells, classes)), np.empty((4, samples), array.dtype)
    count_some, pull_back_some = loops.count_lanes, loops.pull_back_lanes
    if array.ndim == 2:
        count_some, pull_back_some = loops.count_rows, loops.pull_back_rows

    def count(begin: int, end: int) -> Any:
        return count_some(data, begin, end, job.by_class, counts, job.wants_gradient, out, kept)

    if any(run(count, len(parts), array.size)):
        return None
    result = derivative(counts.reshape(members, -1, cells, classes).sum(axis=1))
    if result is None or gradient is None:
        return None if result is None else (result[0], None)
    slopes = np.asarray(result[1], array.dtype)

    def pull_back(begin: int, end: int) -> Any:
        return pull_back_some(target, points, parts, begin, end, job.by_vectors, slopes, kept, out)

    run(pull_back, len(parts), array.size)
    return result[0], gradient


def samples_and_classes(scores: Tensor) -> Array:
    """(samples, d) where classes lie side by side and are many, else (N, d, L); never a copy of dense scores."""
    array: Array = scores.numpy()
    classes = array.shape[1]
    if array.ndim > 2 and not array.flags.c_contiguous:  # channels last
        array = np.moveaxis(array, 1, -1).reshape(-1, classes)
    return array if array.ndim == 2 and classes >= ROWS_FROM else array.reshape(len(array), classes, -1)


@lru_cache(maxsize=64)
def parts_of(samples: int, classes: int, members: int, cells: int = 3) -> Array:
    """First sample, last sample + 1 and member of each part, which has at least ``cells`` samples."""
    number = max(1, min(MOST_PARTS, samples * classes // PART_ELEMENTS, samples // cells))
    edges = np.arange(number + 1) * samples // number
    parts = np.empty((members, number, 3), np.int64)
    parts[..., 2] = np.arange(members)[:, None]
    parts[..., 0], parts[..., 1] = edges[:-1], edges[1:]
    parts[..., :2] += parts[..., 2:] * samples
    return parts.reshape(-1, 3)
