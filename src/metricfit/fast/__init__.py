"""The same loss sooner: value and gradient of ``MetricLoss`` in two passes over the batch, without autograd.

:func:`metric_loss` is the only name that others use. It declines (None) whatever it does not cover, and the plain
formulas then serve: they are the reference, the way of ``torch.compile``, function transforms and second derivatives,
and they raise the errors for invalid input.

A step is: count the soft confusion matrix (:mod:`metricfit.fast.batch` with compiled loops,
:mod:`metricfit.fast.closed_form` in plain torch), take the metric and its gradient with respect to the counts
(:mod:`metricfit.fast.derivative`), and pull that back to the logits.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, distributed
from torch.autograd import forward_ad

from metricfit.distributed import sum_over_processes
from metricfit.fast.batch import ROWS_FROM, SERIAL_ELEMENTS, CompiledBatch, numba_is_here
from metricfit.fast.closed_form import Points, torch_batch
from metricfit.fast.derivative import ClosedForm, as_array, closed_form_of, loss_of_matrices, loss_of_sums
from metricfit.inputs import Task
from metricfit.metrics import Metric
from metricfit.steps import SMALLEST_WIDTH, THRESHOLD_MARGIN, Annealed, Linear, Step

if TYPE_CHECKING:
    from metricfit.losses.metric_loss import Batch

__all__ = ["metric_loss"]

Array = np.ndarray[Any, Any]
MATRIX_UP_TO = 4096
"""From this many classes on no matrix is counted."""

_ORDINARY = (Tensor, torch.nn.Parameter)


def metric_loss(batch: Batch, input: Tensor) -> Tensor | None:
    """The metric's loss of a batch, tied to autograd; None where the plain formulas must serve or raise an error.

    Args:
        batch: The batch. Its processes get the message of the plain formulas, which another may have to take.
        input: Logits (N, C, …), or (N, …) for a binary task at the threshold 1/2; members in front.

    Returns:
        The loss, a scalar; (M,) with members.

    >>> from metricfit import MetricLoss
    >>> MetricLoss("f1")(torch.eye(2).requires_grad_(), torch.arange(2)).grad_fn
    <...FastLoss... object at ...>
    """
    options, sample_weight, weight = batch.options, batch.sample_weight, batch.weight
    task, members, labels, group = options.task, options.members, options.labels, batch.group
    if task == "multilabel" or options.from_probabilities or not options.decides or len(batch.memories) > 1:
        return None
    if group is not None and options.cross_entropy:
        return None  # all processes have to send the same messages, also one that cannot take this way
    if not is_ordinary(input, batch.target, sample_weight, weight):
        return None
    classes: Tensor | None = batch.target
    shape, lead = input.shape, 1 if members is None else 2
    if task == "binary":
        classes, positions, number = _two_classes(input, batch.target), shape, 2
    else:
        positions, number = shape[:lead] + shape[lead + 1 :], shape[lead] if len(shape) > lead else 0
    if classes is None or classes.dtype is not torch.int64 or classes.shape != positions or len(positions) < lead:
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
    form = _closed_form(options.metric, task) if input.is_cpu else None
    if (
        form is not None
        and form.label >= 0
        and labels is not None
        and getattr(options.metric, "label", None) is not None
    ):
        form = None  # a class is looked up by its name
    if (labels is not None and len(labels) != number) or (form is not None and form.label >= number):
        return None
    if number >= MATRIX_UP_TO and (form is None or batch.memories or group is not None):
        return None
    call = _Call(batch, form, points)
    wants_gradient = input.requires_grad and torch.is_grad_enabled()
    losses = call.losses(input, classes, sample_weight, wants_gradient)
    if losses is None:
        return None
    if losses.ndim and members is None:
        losses = losses.reshape(())
    return _tie(input, losses, call) if wants_gradient else losses


def is_ordinary(*tensors: Tensor | None) -> bool:
    """Whether all are ordinary dense tensors, outside of forward derivatives."""
    if forward_ad._current_level >= 0:
        return False
    for tensor in tensors:
        if tensor is not None and (type(tensor) not in _ORDINARY or tensor.layout is not torch.strided):
            return False
    return True


def _two_classes(input: Tensor, target: Tensor) -> Tensor | None:
    """The classes of a binary task; None for shares of them."""
    if target.shape != input.shape:
        return None
    classes = target.long()
    if target.is_floating_point() and not torch.equal(classes.to(target.dtype), target):
        return None
    return classes


def _are_weights(weights: Tensor, shape: tuple[int, ...], like: Tensor) -> bool:
    return weights.device == like.device and weights.shape == shape and not weights.requires_grad


def five_points(step: Step | Tensor, members: int = 1) -> Array | None:
    """The knots of the step of each member, (M, 5): :class:`metricfit.fast.closed_form.Points`.

    A tensor is the temperature of the annealed step, one number or one per member. None for other steps than the two
    linear ones, and where a gradient of the temperature is wanted.
    """
    if isinstance(step, Linear):
        return _points((float(step.delta),), None, members)
    temperature = step.temperature if isinstance(step, Annealed) else step
    if isinstance(temperature, float):
        return _points((temperature,), torch.float64, members)
    if not isinstance(temperature, Tensor) or temperature.requires_grad or temperature.numel() not in (1, members):
        return None
    return _points(_values_of(temperature), temperature.dtype, members)


_read: dict[int, tuple[Any, int, tuple[float, ...]]] = {}


def _values_of(tensor: Tensor) -> tuple[float, ...]:
    """Those on another device are read again only after they changed, since that waits for the device."""
    if is_on_host(tensor):
        return tuple(tensor.reshape(-1).tolist()) if tensor.ndim else (tensor.item(),)
    key, version = id(tensor), -1 if tensor.is_inference() else tensor._version
    known = _read.get(key)
    if known is None or known[0]() is not tensor or known[1] != version or version < 0:
        here = weakref.ref(tensor, lambda _: _read.pop(key, None))
        known = _read[key] = (here, version, tuple(tensor.reshape(-1).tolist()))
    return known[2]


def is_on_host(tensor: Tensor) -> bool:
    """Whether values can be read without waiting for a device."""
    return tensor.is_cpu


@lru_cache(maxsize=256)
def _points(deltas: tuple[float, ...], dtype: torch.dtype | None, members: int) -> Array | None:
    # Five times the temperature, rounded as the plain formula rounds it.
    factors = [1.0] if dtype is None else (5 * torch.tensor(deltas, dtype=dtype)).tolist()
    if min(factors) * THRESHOLD_MARGIN <= SMALLEST_WIDTH:  # a width at its bound is another step
        return None
    rows = [Points.of(delta, factor) for delta, factor in zip(deltas, factors, strict=True)]
    return np.array(rows * (members if len(rows) == 1 else 1))


_cached_form = lru_cache(maxsize=64)(closed_form_of)


def _closed_form(metric: Metric, task: Task) -> ClosedForm | None:
    try:
        return _cached_form(metric, task)
    except TypeError:  # a metric of one's own that has no hash
        return closed_form_of(metric, task)


class _Call:
    """One batch: its losses, and their gradient with respect to the logits."""

    __slots__ = (
        "batch",
        "counted",
        "form",
        "gradient",
        "members",
        "number",
        "options",
        "points",
        "remembered",
        "small",
    )

    def __init__(self, batch: Batch, form: ClosedForm | None, points: Array) -> None:
        self.batch, self.options, self.form, self.points = batch, batch.options, form, points
        self.members, self.number = batch.options.members is not None, len(points)
        self.remembered = [memory.matrix for memory in batch.memories]  # before this batch
        self.small = self.counted = self.gradient = None  # type: Any

    def losses(self, input: Tensor, target: Tensor, sample_weight: Tensor | None, keeps: bool) -> Tensor | None:
        """The losses (M,), or a scalar; None where labels, weights or scores are wrong."""
        batch, options, form = self.batch, self.options, self.form
        logits, dtype = self._dense_logits(input), torch.float64 if input.dtype is torch.float64 else torch.float32
        is_compiled = input.dtype is torch.float32 and input.is_cpu and numba_is_here()
        by_class = form is not None and not batch.memories and batch.group is None
        target = target if target.ndim == 1 else target.reshape(-1)
        weights = _as_vector(sample_weight, dtype), _as_vector(batch.weight, dtype)
        if (
            by_class and is_compiled and logits.numel() <= SERIAL_ELEMENTS and logits.shape[1] < ROWS_FROM
            and logits.is_contiguous()
        ):  # fmt: skip
            self.small = (target.contiguous(), *weights)
            return self._small_losses(logits, keeps)
        make: Any = CompiledBatch
        if not is_compiled:
            make = torch_batch(logits.shape[1], may_wait=options.validate or input.is_cpu)
        self.counted = make(
            target, *weights, members=self.number, points=self.points, ignore=options.ignore_index,
            is_fixed=options.detach_threshold,
        )  # fmt: skip
        counts: Any = self.counted.count(logits, by_class, keeps)
        if counts is None:
            return None
        skip_absent = options.absent == "skip"
        if form is not None and by_class:
            losses, self.gradient = loss_of_sums(form, counts, skip_absent, is_compiled)
            return torch.from_numpy(losses).to(dtype)
        matrices = torch.as_tensor(counts)
        if batch.group is not None:
            _, matrices = sum_over_processes([matrices.sum(dim=(1, 2)), matrices], batch.group)
        result = loss_of_matrices(
            options, form, matrices.to(dtype), batch.memories[0] if batch.memories else None, is_compiled
        )
        if result is None:
            return None
        found, self.gradient = result
        if batch.group is not None:
            self.gradient = self.gradient * distributed.get_world_size(batch.group)  # as in metricfit.distributed
        return found.to(dtype)

    def _small_losses(self, logits: Tensor, keeps: bool) -> Tensor | None:
        target, sample_weight, weight = self.small
        self.gradient = gradient = torch.empty_like(logits) if keeps else None
        form: Any = self.form
        losses = torch.empty(self.number) if self.members else torch.empty(())
        samples, classes = logits.shape[:2]
        status = _small_kernel()(
            logits.data_ptr(),
            target.data_ptr(),
            0 if sample_weight is None else sample_weight.data_ptr(),
            0 if weight is None else weight.data_ptr(),
            0 if gradient is None else gradient.data_ptr(),
            losses.data_ptr(),
            samples // self.number, classes, len(target) // samples, self.options.ignore_index, self.points,
            self.options.detach_threshold, as_array(form.numbers), form.label, self.options.absent == "skip",
        )  # fmt: skip
        return None if status else losses

    def pull_back(self, input: Tensor, scale: Tensor) -> Tensor:
        """The gradient with respect to the input, given that of the losses."""
        result: Tensor
        if self.small is not None:
            if self.gradient is None:  # an earlier call gave it away
                self._small_losses(self._dense_logits(input), True)
            result, self.gradient = self.gradient, None
            if self.members:
                result.view(self.number, -1).mul_(scale[:, None])
            elif scale.item() != 1:
                result.mul_(scale)
        else:
            scaled: Any = torch.as_tensor(self.gradient) * scale.reshape(-1, 1, 1)
            result = self.counted.pull_back(self._dense_logits(input), scaled, self.form is not None)
        if self.members:
            result = result.unflatten(0, (self.number, -1))
        return result.select(2 if self.members else 1, 1) if self.options.task == "binary" else result

    def _dense_logits(self, input: Tensor) -> Tensor:
        """Logits (M · N, C, …) that lie side by side, if with channels last. A logit z becomes (0, z).

        Two classes with these logits have the dynamic threshold 1/2.
        """
        logits = input.detach()
        if self.options.task == "binary":
            logits = torch.stack([torch.zeros_like(logits), logits], dim=2 if self.members else 1)
        if self.members:
            logits = logits.flatten(0, 1)
        if logits.is_contiguous() or (logits.ndim > 2 and logits.movedim(1, -1).is_contiguous()):
            return logits
        return logits.contiguous()


def _as_vector(weights: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    # Side by side: the loop for small batches reads them by address. A column of a table stays one when flattened.
    return None if weights is None else weights.detach().reshape(-1).to(dtype).contiguous()


@cache
def _small_kernel() -> Any:
    from metricfit.fast.lanes import losses_and_gradient  # brings numba

    return losses_and_gradient


class FastLoss(torch.autograd.Function):
    """Ties losses that were computed with their gradient to the input."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        """Arguments: input, losses, call."""
        input, losses, ctx.call = arguments
        ctx.save_for_backward(input)
        result: Tensor = losses
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of the input alone; one that can be differentiated again goes through the plain formulas."""
        (input,) = ctx.saved_tensors
        if torch.is_grad_enabled():
            plain = ctx.call.batch.metric_alone(ctx.call.remembered, input)
            (gradient,) = torch.autograd.grad(plain, input, gradients[0], create_graph=True)
        else:
            gradient = ctx.call.pull_back(input, gradients[0])
        return gradient, None, None


# Function.apply first looks for function transforms; an ordinary tensor has none, and here it would cost a tenth.
_tie: Callable[..., Tensor] = super(torch.autograd.Function, FastLoss).apply
