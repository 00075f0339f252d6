"""The same loss sooner: value and gradient of ``MetricLoss`` in two passes over the batch, without autograd.

:func:`metric_loss` is the only name that others use. It declines (None) whatever it does not cover, and the plain
formulas then serve: they are the reference, the way of ``torch.compile``, function transforms and second derivatives,
and they raise the errors for invalid input.

A step is: count the soft confusion matrix (:mod:`metricfit.fast.batch` with compiled loops,
:mod:`metricfit.fast.closed_form` in plain torch), take the metric and its gradient with respect to the counts
(:mod:`metricfit.fast.derivative`), and pull that back to the logits.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, distributed
from torch.autograd import forward_ad

from metricfit.distributed import sum_over_processes
from metricfit.fast.batch import ROWS_FROM, SERIAL_ELEMENTS, CompiledBatch, numba_is_here
from metricfit.fast.closed_form import Points, TorchBatch
from metricfit.fast.derivative import ClosedForm, as_array, closed_form_of, loss_of_matrices, loss_of_sums
from metricfit.inputs import Task, values_can_be_inspected
from metricfit.metrics import Metric
from metricfit.numerics import accumulation_dtype
from metricfit.steps import SMALLEST_WIDTH, THRESHOLD_MARGIN, Annealed, Linear, Step

if TYPE_CHECKING:
    from metricfit.losses.memory import ConfusionMemory

__all__ = ["metric_loss"]

Array = np.ndarray[Any, Any]
MATRIX_UP_TO = 4096
"""From this many classes on no matrix is counted."""

_ORDINARY = (Tensor, torch.nn.Parameter)


def metric_loss(
    input: Tensor,
    target: Tensor,
    sample_weight: Tensor | None,
    *,
    metric: Metric,
    step: Step,
    task: Task,
    members: bool,
    weight: Tensor | None,
    ignore_index: int,
    skip_absent: bool,
    detach_threshold: bool,
    memory: ConfusionMemory | None,
    group: Any,
    validate: bool,
    plain: Callable[[Tensor], Tensor],
    labels: tuple[Hashable, ...] | None = None,
) -> Tensor | None:
    """The metric's loss of a batch, tied to autograd; None where the plain formulas must serve or raise an error.

    Args:
        input: Logits (N, C, …), or (N, …) for a binary task at the threshold 1/2; members in front.
        target: Class indices (N, …); members in front.
        sample_weight: Weights in the shape of the target, or (N,), or None.
        metric: A metric of one decision.
        step: The step; its temperature may be one number per member.
        task: The task; "multilabel" is declined.
        members: Whether all tensors have a leading dimension of M members.
        weight: Class weights (C,), or None.
        ignore_index: Target value of positions that do not count.
        skip_absent: Whether averages leave out classes without support.
        detach_threshold: Stop the gradient through the threshold.
        memory: A memory of the counts, used and updated.
        group: The processes whose counts are added up, from :func:`metricfit.distributed.group_of`. The message is
            that of the plain formulas, which another process may have to take: the weight, and the counts.
        validate: Whether values may be looked at where that means to wait for a device.
        plain: The same loss of another input along the plain formulas, for second derivatives.
        labels: The names of the classes.

    Returns:
        The loss, a scalar; (M,) with members.

    >>> from metricfit import MetricLoss
    >>> MetricLoss("f1")(torch.eye(2).requires_grad_(), torch.arange(2)).grad_fn
    <...FastLoss... object at ...>
    """
    if task == "multilabel" or not is_ordinary(input, target, sample_weight, weight):
        return None
    lead = 2 if members else 1
    if task == "binary":
        classes, positions, number = _two_classes(input, target), input.shape, 2
    else:
        classes, positions = target, input.shape[:lead] + input.shape[lead + 1 :]
        number = input.shape[lead] if input.ndim > lead else 0
    if classes is None or classes.dtype is not torch.int64 or classes.shape != positions or len(positions) < lead:
        return None
    if not input.numel() or not input.is_floating_point() or classes.device != input.device:
        return None
    if weight is not None and not _are_weights(weight, (number,), input):
        return None
    if sample_weight is not None and sample_weight.shape == positions[:lead] != positions:
        sample_weight = sample_weight.reshape(positions[:lead] + (1,) * (len(positions) - lead)).expand(positions)
    if sample_weight is not None and not _are_weights(sample_weight, positions, input):
        return None
    sizes = input.shape[0] if members else 1
    points = five_points(step, sizes)
    if points is None or number < 2 or number * 2 * THRESHOLD_MARGIN >= 1:
        return None
    form = _closed_form(metric, task) if input.is_cpu else None
    if form is not None and form.label >= 0 and labels is not None and getattr(metric, "label", None) is not None:
        form = None  # a class is looked up by its name
    if (labels is not None and len(labels) != number) or (form is not None and form.label >= number):
        return None
    if number >= MATRIX_UP_TO and (form is None or memory is not None or group is not None):
        return None
    call = _Call(
        metric, form, sizes, members, task, labels, points, ignore_index, detach_threshold, skip_absent, memory, group
    )
    wants_gradient = input.requires_grad and torch.is_grad_enabled()
    logits = _dense_logits(input.detach(), task, members)
    losses = call.losses(logits, classes, sample_weight, weight, wants_gradient, validate)
    if losses is None:
        return None
    if losses.ndim and not members:
        losses = losses.reshape(())
    return _tie(input, losses, call, plain) if wants_gradient else losses


def is_ordinary(*tensors: Tensor | None) -> bool:
    """Whether all are ordinary dense tensors, outside of tracing, function transforms and forward derivatives."""
    if not values_can_be_inspected() or forward_ad._current_level >= 0:
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


def five_points(step: Step, members: int = 1) -> Array | None:
    """The knots of the step of each member, (M, 5): :class:`metricfit.fast.closed_form.Points`.

    None for other steps than the two linear ones, and where a gradient of the temperature is wanted.
    """
    if isinstance(step, Linear):
        return _points((float(step.delta),), (1.0,), members)
    if not isinstance(step, Annealed):
        return None
    temperature = step.temperature
    if not isinstance(temperature, Tensor):
        return _points((float(temperature),), (5 * float(temperature),), members)
    if temperature.requires_grad or temperature.numel() not in (1, members) or not temperature.is_cpu:
        return None
    # Five times it, rounded as the plain formula rounds it.
    if not temperature.ndim:
        value = temperature.item()
        is_single = temperature.dtype is torch.float32
        return _points((value,), (float(np.float32(5 * value)) if is_single else 5 * value,), members)
    flat = temperature.detach().reshape(-1)
    return _points(tuple(flat.tolist()), tuple((5 * flat).tolist()), members)


@lru_cache(maxsize=256)
def _points(deltas: tuple[float, ...], factors: tuple[float, ...], members: int) -> Array | None:
    if min(factors) * THRESHOLD_MARGIN <= SMALLEST_WIDTH:  # a width at its bound is another step
        return None
    rows = [Points.of(delta, factor) for delta, factor in zip(deltas, factors, strict=True)]
    return np.array(rows * (members if len(rows) == 1 else 1))


@lru_cache(maxsize=64)
def _cached_form(metric: Metric, task: Task) -> ClosedForm | None:
    return closed_form_of(metric, task)


def _closed_form(metric: Metric, task: Task) -> ClosedForm | None:
    try:
        return _cached_form(metric, task)
    except TypeError:  # a metric of one's own that has no hash
        return closed_form_of(metric, task)


class _Call:
    """One batch: its losses, and their gradient with respect to the logits."""

    __slots__ = (
        "batch", "detach", "form", "gradient", "group", "ignore", "is_compiled", "labels", "members", "memory",
        "metric", "number", "points", "skip_absent", "small", "task",
    )  # fmt: skip

    def __init__(
        self, metric: Metric, form: ClosedForm | None, number: int, members: bool, task: Task,
        labels: tuple[Hashable, ...] | None, points: Array, ignore: int, detach: bool, skip_absent: bool,
        memory: ConfusionMemory | None, group: Any,
    ) -> None:  # fmt: skip
        self.metric, self.form, self.number, self.members, self.task = metric, form, number, members, task
        self.labels, self.points, self.ignore, self.detach = labels, points, ignore, detach
        self.skip_absent, self.memory, self.group = skip_absent, memory, group
        self.small: Any = None
        self.batch: Any = None
        self.gradient: Any = None

    def losses(
        self, logits: Tensor, target: Tensor, sample_weight: Tensor | None, weight: Tensor | None, keeps: bool,
        validate: bool,
    ) -> Tensor | None:  # fmt: skip
        """The losses (M,) of logits (M · N, C, …), or None where labels, weights or scores are wrong."""
        is_float = logits.dtype is torch.float32
        self.is_compiled = is_compiled = is_float and logits.is_cpu and numba_is_here()
        form, by_class = self.form, self.form is not None and self.memory is None and self.group is None
        dtype = accumulation_dtype(logits.dtype)
        target = target if target.ndim == 1 else target.reshape(-1)
        sample_weight, weight = _as_vector(sample_weight, dtype), _as_vector(weight, dtype)
        if (
            by_class and is_compiled and logits.numel() <= SERIAL_ELEMENTS and logits.shape[1] < ROWS_FROM
            and logits.is_contiguous()
        ):  # fmt: skip
            self.small = (target.contiguous(), sample_weight, weight)
            return self._small_losses(logits, keeps)
        shared: Any = {
            "members": self.number, "points": self.points, "ignore": self.ignore, "is_fixed": self.detach,
        }  # fmt: skip
        batch: CompiledBatch | TorchBatch
        if is_compiled:
            batch = CompiledBatch(target.contiguous(), sample_weight, weight, **shared)
        else:
            batch = TorchBatch(target, sample_weight, weight, **shared, may_wait=validate or logits.is_cpu)
        self.batch = batch
        counts: Any = batch.count(logits, by_class, keeps)
        if counts is None:
            return None
        if by_class:
            losses, self.gradient = loss_of_sums(form, counts, self.skip_absent, is_compiled)  # type: ignore[arg-type]
            return torch.from_numpy(losses).to(dtype)
        matrices = torch.as_tensor(counts)
        if self.group is not None:
            _, matrices = sum_over_processes([matrices.sum(dim=(1, 2)), matrices], self.group)
        result = loss_of_matrices(
            self.metric, form, matrices.to(dtype), members=self.members, task=self.task, labels=self.labels,
            skip_absent=self.skip_absent, memory=self.memory, is_compiled=is_compiled,
        )  # fmt: skip
        if result is None:
            return None
        found, self.gradient = result
        if self.group is not None:
            self.gradient = self.gradient * distributed.get_world_size(self.group)  # as in metricfit.distributed
        return found.to(dtype)

    def _small_losses(self, logits: Tensor, keeps: bool) -> Tensor | None:
        target, sample_weight, weight = self.small
        self.gradient = gradient = torch.empty_like(logits) if keeps else None
        form: Any = self.form
        losses = np.empty(self.number)
        shape = logits.shape
        status = _small_kernel()(
            logits.data_ptr(),
            target.data_ptr(),
            0 if sample_weight is None else sample_weight.data_ptr(),
            0 if weight is None else weight.data_ptr(),
            0 if gradient is None else gradient.data_ptr(),
            self.number, shape[0] // self.number, shape[1], logits.numel() // (shape[0] * shape[1]), self.ignore,
            self.points.astype(np.float32), self.detach, as_array(form.numbers), form.label, self.skip_absent, losses,
        )  # fmt: skip
        if status:
            return None
        return torch.from_numpy(losses).float() if self.members else torch.scalar_tensor(losses[0])

    def pull_back(self, input: Tensor, scale: Tensor) -> Tensor:
        """The gradient with respect to the input, given that of the losses."""
        result: Tensor
        if self.small is not None:
            if self.gradient is None:  # an earlier call gave it away
                self._small_losses(_dense_logits(input.detach(), self.task, self.members), True)
            result, self.gradient = self.gradient, None
            if self.members:
                result.view(self.number, -1).mul_(scale[:, None])
            elif scale.item() != 1:
                result.mul_(scale)
            return self._as_input(result)
        logits = _dense_logits(input.detach(), self.task, self.members)
        scale = scale.reshape(-1, 1, 1)
        if self.is_compiled:
            gradient: Any = np.asarray(self.gradient) * scale.numpy()
            result = self.batch.pull_back(logits, gradient, self.form is not None)
        else:
            result = self.batch.pull_back(logits, torch.as_tensor(self.gradient) * scale, self.form is not None)
        return self._as_input(result)

    def _as_input(self, result: Tensor) -> Tensor:
        if self.members:
            result = result.unflatten(0, (self.number, -1))
        return result.select(2 if self.members else 1, 1) if self.task == "binary" else result


def _dense_logits(input: Tensor, task: Task, members: bool) -> Tensor:
    """Logits (M · N, C, …) that lie side by side, if with channels last. A logit z becomes (0, z).

    Two classes with these logits have the dynamic threshold 1/2.
    """
    logits = input
    if task == "binary":
        logits = torch.stack([torch.zeros_like(input), input], dim=2 if members else 1)
    if members:
        logits = logits.flatten(0, 1)
    if logits.is_contiguous() or (logits.ndim > 2 and logits.movedim(1, -1).is_contiguous()):
        return logits
    return logits.contiguous()


def _as_vector(weights: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    # Side by side: the loop for small batches reads them by address. A column of a table stays one when flattened.
    return None if weights is None else weights.detach().reshape(-1).to(dtype).contiguous()


@cache
def _small_kernel() -> Any:
    from metricfit.fast.small import losses_and_gradient  # brings numba

    return losses_and_gradient


class FastLoss(torch.autograd.Function):
    """Ties losses that were computed with their gradient to the input."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        """Arguments: input, losses, call, plain."""
        input, losses, ctx.call, ctx.plain = arguments
        ctx.save_for_backward(input)
        result: Tensor = losses
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of the input alone; one that can be differentiated again goes through the plain formulas."""
        (input,) = ctx.saved_tensors
        if torch.is_grad_enabled():
            (gradient,) = torch.autograd.grad(ctx.plain(input), input, gradients[0], create_graph=True)
        else:
            gradient = ctx.call.pull_back(input, gradients[0])
        return gradient, None, None, None


# Function.apply first looks for function transforms; an ordinary tensor has none, and here it would cost a tenth.
_tie: Callable[..., Tensor] = super(torch.autograd.Function, FastLoss).apply
