"""The same loss sooner: value and gradient of ``MetricLoss`` in two passes over the batch, without autograd.

:func:`metric_loss` is the only name that others use. It declines (None) whatever it does not cover, and the plain
formulas then serve: they are the reference, the way of ``torch.compile``, function transforms and second derivatives,
and they raise the errors for invalid input.

A step is: count the soft confusion matrix (:class:`CompiledBatch` with compiled loops, else
:class:`metricfit.fast.closed_form.TorchBatch`), take the metric and its gradient with respect to the counts, and pull
that back to the logits. The loops release the interpreter lock, so plain threads do: no second thread library beside
torch's, no limit fixed at import, and parts are the same, and summed in the same order, whenever the number of threads
is the same.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, distributed
from torch.autograd import forward_ad

from metricfit.distributed import sum_over_processes
from metricfit.fast.closed_form import (
    ClosedForm,
    Points,
    closed_form_of,
    loss_of_matrices,
    loss_of_sums,
    torch_batch,
)  # fmt: skip
from metricfit.inputs import Task
from metricfit.metrics import Metric
from metricfit.steps import SMALLEST_WIDTH, THRESHOLD_MARGIN, Annealed, Linear, Step

if TYPE_CHECKING:
    from metricfit.losses.metric_loss import Batch

__all__ = ["metric_loss"]

Array = np.ndarray[Any, Any]
MATRIX_UP_TO = 4096
"""From this many classes on no matrix is counted."""

ROWS_FROM = 64
"""From this many classes on a row alone fills the vector registers."""

SERIAL_ELEMENTS = 2**16
"""Up to this many scores a hand-over to another thread takes longer than it saves."""

ROWS_OF_PART = 2**16
"""So many samples at most are summed in float32 before they are added in float64."""

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
        status = _kernels()[0].losses_and_gradient(
            logits.data_ptr(),
            target.data_ptr(),
            0 if sample_weight is None else sample_weight.data_ptr(),
            0 if weight is None else weight.data_ptr(),
            0 if gradient is None else gradient.data_ptr(),
            losses.data_ptr(),
            samples // self.number, classes, len(target) // samples, self.options.ignore_index, self.points,
            self.options.detach_threshold, form.array, form.label, self.options.absent == "skip",
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
def _kernels() -> tuple[Any, Any]:
    from metricfit.fast import lanes, rows  # both bring numba

    return lanes, rows


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


@cache
def numba_is_here() -> bool:
    """Whether numba can be imported (the extra ``fast``)."""
    try:
        import numba  # noqa: F401
    except ImportError:
        return False
    return True


class CompiledBatch:
    """Counts a batch and takes its gradient.

    Between the two passes the memory of the gradient holds the batch in units of its thresholds.

    Args:
        target: Class indices int64 of the samples in order.
        weight: Weights of the samples, in the dtype of the scores, or None.
        class_weight: (d,), or None.
        members: How many members the samples are divided into, one after the other.
        points: The step of each member, (M, 5).
        ignore: The label of samples that do not count.
        is_fixed: Whether no gradient flows through the threshold.
    """

    def __init__(
        self, target: Tensor, weight: Tensor | None, class_weight: Tensor | None, *, members: int, points: Array,
        ignore: int, is_fixed: bool,
    ) -> None:  # fmt: skip
        self.target = target.contiguous().numpy()
        self.weight, self.class_weight = weight, class_weight
        self.members, self.points, self.ignore, self.is_fixed = members, points, ignore, is_fixed
        self.gradient: Tensor | None = None

    def count(self, scores: Tensor, by_class: bool, keeps: bool) -> Array | None:
        """The counts of each member, in float64; None where labels, scores or weights are wrong.

        Args:
            scores: Logits (M · N, d, …), contiguous or with channels last.
            by_class: Whether to give hits, true and predicted weights (M, 3, d), else matrices (M, d, d).
            keeps: Whether a gradient will be wanted.
        """
        array = samples_and_classes(scores.detach())
        classes, samples = array.shape[1], len(self.target)
        self.gradient = torch.empty_like(scores, requires_grad=False) if keeps else None
        out = array if self.gradient is None else samples_and_classes(self.gradient)
        self.points = self.points.astype(array.dtype, copy=False)
        self.parts = parts = parts_of(samples // self.members, classes, self.members)
        shape = (3 if by_class else classes, classes)
        counts = np.zeros((len(parts), *shape))  # in float64, also in order that both are compiled once
        self.kept = np.empty((4, samples), array.dtype)
        empty = np.empty(0, array.dtype)
        kernel = _kernels()[1].count_rows if array.ndim == 2 else _kernels()[0].count_lanes
        arguments = (
            array, self.target,
            empty if self.weight is None else self.weight.numpy(),
            empty if self.class_weight is None else self.class_weight.numpy(),
            self.ignore, self.points, parts,
        )  # fmt: skip
        results = (by_class, counts, keeps, out, self.kept)
        if run(lambda begin, end: kernel(*arguments, begin, end, *results), samples * classes, len(parts)):
            return None
        if len(parts) == self.members:
            return counts
        summed: Array = counts.reshape(self.members, -1, *shape).sum(axis=1)
        return summed

    def pull_back(self, scores: Tensor, gradient: Tensor, by_class: bool) -> Tensor:
        """The gradient with respect to the scores, given that of the counts, (M, 2, d) by class or (M, d, d)."""
        if self.gradient is None:  # an earlier call gave it away
            self.count(scores, True, True)
        result: Tensor
        result, self.gradient = self.gradient, None  # type: ignore[assignment]
        out = samples_and_classes(result)
        kernel = _kernels()[1].pull_back_rows if out.ndim == 2 else _kernels()[0].pull_back_lanes
        arguments = (self.target, self.points, self.parts)
        others = (by_class, gradient.to(result.dtype).numpy(), self.is_fixed, self.kept, out)
        run(lambda begin, end: kernel(*arguments, begin, end, *others), out.size, len(self.parts))
        return result


def samples_and_classes(scores: Tensor) -> Array:
    """(samples, d) where classes lie side by side and are many, else (N, d, L); never a copy of dense scores."""
    array: Array = scores.numpy()
    classes = array.shape[1]
    if array.ndim > 2 and not array.flags.c_contiguous:  # channels last
        array = np.moveaxis(array, 1, -1).reshape(-1, classes)
    return array if array.ndim == 2 and classes >= ROWS_FROM else array.reshape(len(array), classes, -1)


def parts_of(samples: int, classes: int, members: int = 1) -> Array:
    """First sample, last sample + 1 and member of each part into which members of so many samples are cut.

    >>> parts_of(10, 3)
    array([[ 0, 10,  0]])
    """
    number = 1
    if samples * classes * members > SERIAL_ELEMENTS or samples > ROWS_OF_PART:
        threads = min(torch.get_num_threads(), samples)
        number = max(1, -(-samples // (threads * ROWS_OF_PART))) * threads
    edges = np.arange(number + 1) * samples // number
    parts = np.empty((members, number, 3), np.int64)
    parts[..., 2] = np.arange(members)[:, None]
    parts[..., 0], parts[..., 1] = edges[:-1], edges[1:]
    parts[..., :2] += parts[..., 2:] * samples
    return parts.reshape(-1, 3)


_pool: tuple[int, int, ThreadPoolExecutor] | None = None


def run(kernel: Callable[[int, int], int], elements: int, number: int) -> int:
    """The largest result of a loop over so many parts; the calling thread takes its share."""
    threads = 1 if elements <= SERIAL_ELEMENTS else min(torch.get_num_threads(), number)
    if threads == 1:
        return kernel(0, number)
    edges = [number * i // threads for i in range(threads + 1)]
    pool = _threads(threads - 1)
    others = [pool.submit(kernel, edges[i], edges[i + 1]) for i in range(1, threads)]
    return max([kernel(edges[0], edges[1]), *(other.result() for other in others)])


def _threads(number: int) -> ThreadPoolExecutor:
    global _pool
    # A forked child inherits the pool but none of its threads.
    if _pool is None or _pool[:2] != (os.getpid(), number):
        _pool = (os.getpid(), number, ThreadPoolExecutor(number, thread_name_prefix="metricfit"))
    return _pool[2]
