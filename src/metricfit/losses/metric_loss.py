"""``MetricLoss``: any confusion-matrix metric as a differentiable loss."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from metricfit.confusion import (
    Absent,
    ConfusionMatrix,
    Grid,
    as_confusion_matrix,
    count_each_class,
    count_samples,
)
from metricfit.distributed import Sync, check_sync, group_of, sum_over_processes
from metricfit.inputs import Samples, Task, flatten_inputs, values_can_be_inspected
from metricfit.losses.cross_entropy import Balance, class_weights, cross_entropy_of_sums, cross_entropy_sums
from metricfit.losses.memory import ConfusionMemory
from metricfit.losses.options import (
    LossOptions,
    as_weights,
    check_sizes,
    checked_prior,
    checked_temperature,
    checked_threshold,
)
from metricfit.metrics import ClassMetric, Metric, MetricLike
from metricfit.metrics.base import MatrixSource
from metricfit.steps import Annealed, Step, StepLike

if TYPE_CHECKING:
    from metricfit.losses.diagnosis import Diagnosis

__all__ = ["MetricLoss", "metric_loss"]

MATRIX_UP_TO = 4096
"""From this many classes on the counts of each class take the place of the matrix, where they are enough."""


@dataclass(slots=True)
class Batch:
    """One batch with everything its loss depends on, so that the loss is a function of it and of the input alone.

    Attributes:
        options: What does not change from batch to batch.
        target: Classes.
        sample_weight: Weights of the samples.
        temperature: T of the annealed step, a scalar or one per member; None for other steps.
        threshold: The fixed threshold of binary and multi-label tasks.
        weight: Class weights.
        prior: Class shares for the balance of the cross-entropy.
        class_weights: The weights of the classes that follow from them.
        memories: One memory per grid of the metric, used and updated; empty for none.
        group: The processes whose statistics are added up.
    """

    options: LossOptions
    target: Tensor
    sample_weight: Tensor | None
    temperature: Tensor | None
    threshold: Tensor
    weight: Tensor | None
    prior: Tensor | None
    class_weights: Tensor | None
    memories: Sequence[ConfusionMemory] = ()
    group: Any = None

    @property
    def step(self) -> Step:
        """The step at the current temperature, which broadcasts against (members, n, classes)."""
        if self.options.step is not None:
            return self.options.step
        temperature = cast("Tensor", self.temperature)
        return Annealed(temperature[:, None, None] if temperature.ndim else temperature)

    def loss(self, input: Tensor) -> Tensor:
        """The loss, a scalar or one per member."""
        import metricfit.fast  # only here: importing the losses needs none of it

        options = self.options
        fused = metricfit.fast.metric_loss(self, input)
        if fused is not None and not options.cross_entropy:
            return fused
        with torch.autocast(input.device.type if isinstance(input, Tensor) else "cpu", enabled=False):
            samples = self.samples(input)
            statistics = [samples.total]
            if options.cross_entropy:
                statistics.append(self._cross_entropy_sums(samples))
            if fused is None:
                statistics.extend(self.counts(samples, grid) for grid in options.grids)
            weight, *statistics = sum_over_processes(statistics, self.group)
            cross_entropy = None
            if options.cross_entropy:
                sums, *statistics = statistics
                cross_entropy = cross_entropy_of_sums(sums, options.balance, members=options.members)
            loss = fused if fused is not None else options.metric.loss(self.source(statistics))
            if loss.shape != weight.shape:
                raise ValueError(
                    f"metric: {options.metric} gives shape {tuple(loss.shape[weight.ndim :])}, a loss needs one number."
                )
            if cross_entropy is not None:
                loss = loss + options.cross_entropy * cross_entropy
            return torch.where(weight > 0, loss, torch.zeros_like(loss))

    def samples(self, input: Tensor) -> Samples:
        """The checked and flattened samples."""
        options = self.options
        samples = flatten_inputs(
            input,
            self.target,
            task=options.task,
            weight=self.weight,
            sample_weight=self.sample_weight,
            ignore_index=options.ignore_index,
            from_probabilities=options.from_probabilities,
            validate=options.validate,
            allow_empty=self.group is not None,
            members=options.members,
        )
        check_sizes(options, samples.scores.shape[-1], self.threshold, self.prior)
        return samples

    def counts(self, samples: Samples, grid: Grid) -> Tensor:
        """The soft counts of the samples at the decision, or over a grid of thresholds."""
        options = self.options
        shared: Any = {
            "detach_threshold": options.detach_threshold, "from_probabilities": options.from_probabilities
        }  # fmt: skip
        if self._averages_classes(samples):
            return count_each_class(samples, self.step, **shared)
        return count_samples(samples, options.task, self.step, threshold=self.threshold, thresholds=grid, **shared)

    def _averages_classes(self, samples: Samples) -> bool:
        """Whether there are so many classes that the matrix is left out, since the metric is an average over them."""
        options = self.options
        if options.task != "multiclass" or samples.scores.shape[-1] < MATRIX_UP_TO:
            return False
        if samples.scores.ndim > 2 or samples.target.is_floating_point():
            return False
        metric = options.metric
        return isinstance(metric, ClassMetric) and not metric.whole

    def matrix(self, counts: Tensor, grid: Grid) -> ConfusionMatrix:
        """Counts as a confusion matrix of the task."""
        options = self.options
        if options.task == "multiclass" and options.members is None and counts.ndim == 3 and grid is None:
            # The counts of each class against the rest, as many labels.
            return ConfusionMatrix(counts, "multilabel", options.labels, options.absent)
        return as_confusion_matrix(counts, options.task, grid, options.labels, options.absent)

    def source(self, counts: Sequence[Tensor]) -> MatrixSource:
        """The matrices of the metric, given the counts for each of its grids; the memories are used and updated."""
        grids = self.options.grids
        made = {grid: self.matrix(part, grid) for grid, part in zip(grids, counts, strict=True)}
        for grid, memory in zip(grids, self.memories, strict=False):
            made[grid] = memory(made[grid])
        return made.__getitem__

    def metric_alone(self, remembered: Sequence[Tensor], input: Tensor) -> Tensor:
        """The metric's part along the plain formulas, with the memories as they were then: for second derivatives."""
        past = [memory.matrix for memory in self.memories]
        try:
            for memory, matrix in zip(self.memories, remembered, strict=True):
                memory.matrix = matrix
            with torch.autocast(input.device.type, enabled=False):
                samples = self.samples(input)
                counts = [self.counts(samples, grid) for grid in self.options.grids]
                weight, *counts = sum_over_processes([samples.total, *counts], self.group)
                value = self.options.metric.loss(self.source(counts))
                return torch.where(weight > 0, value, torch.zeros_like(value))
        finally:
            for memory, matrix in zip(self.memories, past, strict=True):
                memory.matrix = matrix

    def _cross_entropy_sums(self, samples: Samples) -> Tensor:
        options = self.options
        return cross_entropy_sums(
            samples,
            task=options.task,
            balance=options.balance,
            weights=self.class_weights,
            from_probabilities=options.from_probabilities,
        )


def _weights_of(prior: Tensor | None, options: LossOptions) -> Tensor | None:
    """Class weights of the added cross-entropy where the class shares are given; else each batch has its own."""
    if prior is None or options.balance == "none":
        return None
    if options.task == "multilabel":
        prior = torch.stack([1 - prior, prior], dim=-1)
    return class_weights(prior[None, :] if options.task == "binary" else prior, options.balance)


def metric_loss(
    input: Tensor,
    target: Tensor,
    metric: MetricLike,
    sample_weight: Tensor | None = None,
    *,
    temperature: float | Tensor = 0.2,
    threshold: float | Sequence[float] | Tensor = 0.5,
    weight: Tensor | None = None,
    prior: Tensor | None = None,
    sync: Sync = "auto",
    **options: Any,
) -> Tensor:
    """The functional form of :class:`MetricLoss`, without memory; arguments as there.

    >>> logits = torch.tensor([[4.0, 0.0], [0.0, 4.0], [4.0, 0.0]])
    >>> metric_loss(logits, torch.tensor([0, 1, 1]), "accuracy")
    tensor(0.3381)
    """
    checked = LossOptions(cast("Any", metric), temperature=temperature, threshold=threshold, prior=prior, **options)
    batch = Batch(
        checked,
        target,
        sample_weight,
        checked_temperature(
            temperature, options.get("step"), checked.members, look=checked.validate and values_can_be_inspected()
        ),
        checked_threshold(threshold),
        None if weight is None else as_weights(weight, "weight"),
        shares := checked_prior(prior, checked.task),
        _weights_of(shares, checked),
        group=group_of(check_sync(sync), training=True),
    )
    return batch.loss(input)


class MetricLoss(nn.Module):
    """One minus the metric (its distance from perfect) of the batch's soft confusion matrix.

    Called like ``F.cross_entropy``. 0 is a perfect score; for metrics with maximum 1, ``1 - loss`` is the metric.
    Use ``MetricLoss("f1", cross_entropy=0.5, balance="sqrt", memory=0.9)`` to train well from scratch:
    cross-entropy learns the representation, the metric fixes the decision.

    Args:
        metric: A name (``"mcc"``), a spec (``"fbeta:beta=2,average=macro"``), an expression
            (``"0.7*recall[1] + 0.3*precision[1]"``), a :class:`metricfit.metrics.Metric`, or any function of a
            :class:`metricfit.confusion.ConfusionMatrix` that returns a scalar tensor (taken to lie in [0, 1], more
            is better).
        average: Average over classes, for metrics given by a bare name: "macro", "micro", "weighted" or a class
            index. A bare ``f1``, ``precision``, … is macro for a multiclass task, the positive class's for a binary.
        task: ``"multiclass"``: logits (N, C, …), target (N, …) indices or (N, C, …) probabilities. ``"binary"``:
            logits (N, …), target of the same shape, 0 and 1 (or between). ``"multilabel"``: logits (N, L, …), the same.
        step: A step of :mod:`metricfit.steps`, its spec (``"linear:delta=0.1"``) or a function ``(p, tau)``; by
            default EAST's ``Annealed`` at ``temperature``.
        temperature: T of the annealed step, in (0, 0.4]; a buffer, so that changing it recompiles nothing. Use
            :meth:`set_temperature` or a :class:`metricfit.TemperatureAnnealer`.
        threshold: The fixed threshold of binary and multi-label tasks: one number, or one per label.
        weight: Class weights: (C,); (2,) for a binary task; (L,) label weights for a multi-label one.
        ignore_index: Target value of positions that do not count (probability targets: a row filled with it).
        absent: Whether averages over classes ``"skip"`` or ``"count"`` the classes that do not occur in the batch.
        labels: Class names, so that ``"recall[fraud]"`` finds its class.
        detach_threshold: Stop the gradient through the dynamic threshold.
        from_probabilities: The input holds probabilities, not logits; never guessed.
        cross_entropy: Weight of cross-entropy added to the metric's loss; then ``1 - loss`` is no longer the metric.
        balance: Class weights in that cross-entropy: ``"none"``, ``"sqrt"`` (∝ prior^-1/2), ``"full"`` (∝ 1/prior).
        prior: Class shares or counts for them, (C,), (2,) or (L,) positive shares; by default the batch's.
        memory: Decay of a cross-batch memory of the confusion matrix (0.9 remembers some ten batches); 0 is none.
            Used and updated in training mode only.
        members: How many ensemble members lead every shape: logits (M, N, C, …), target (M, N, …), weights (M, N).
            The result is one loss per member, (M,), each with a memory and a temperature of its own.
        sync: Where ``torch.distributed`` is initialised, ``"auto"`` adds up the counts of all processes in training
            mode: value and gradient are those of one process with all their samples, provided that gradients are
            averaged over processes, as DistributedDataParallel does. Every process has to call the loss; its batch
            may be empty. A process group names other processes, in evaluation mode too; ``False`` is this one alone.
        validate: Look at the values (NaN, labels out of range), which waits for the device; shapes are always checked.

    >>> loss = MetricLoss("f1", average="macro")
    >>> logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 2.0]], requires_grad=True)
    >>> value = loss(logits, torch.tensor([0, 1, 1]))
    >>> value.backward()
    >>> value
    tensor(0.2864, grad_fn=<...>)
    """

    temperature: Tensor | None
    weight: Tensor | None
    prior: Tensor | None
    threshold: Tensor

    def __init__(
        self,
        metric: MetricLike,
        *,
        average: str | int | None = None,
        task: Task = "multiclass",
        step: StepLike | None = None,
        temperature: float | Sequence[float] = 0.2,
        threshold: float | Sequence[float] | Tensor = 0.5,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        absent: Absent = "skip",
        labels: Sequence[Hashable] | None = None,
        detach_threshold: bool = False,
        from_probabilities: bool = False,
        cross_entropy: float = 0.0,
        balance: Balance = "none",
        prior: Tensor | None = None,
        memory: float = 0.0,
        members: int | None = None,
        sync: Sync = "auto",
        validate: bool = True,
    ) -> None:
        super().__init__()
        given: Any = {
            "average": average, "task": task, "step": step, "ignore_index": ignore_index, "absent": absent,
            "labels": labels, "detach_threshold": detach_threshold, "from_probabilities": from_probabilities,
            "cross_entropy": cross_entropy, "balance": balance, "members": members, "validate": validate,
        }  # fmt: skip
        self.options = LossOptions(
            cast("Any", metric), temperature=temperature, threshold=threshold, prior=prior, **given
        )
        self.sync = check_sync(sync)
        start = checked_temperature(temperature, step, members, look=True)
        self.register_buffer("temperature", None if start is None else start.clone())
        self.register_buffer("threshold", checked_threshold(threshold), persistent=False)
        self.register_buffer("weight", None if weight is None else as_weights(weight, "weight"), persistent=False)
        self.register_buffer("prior", checked_prior(prior, task), persistent=False)
        if task == "binary":
            check_sizes(self.options, 1, self.threshold, self.prior)
        self.memories = nn.ModuleList(ConfusionMemory(memory) for _ in self.options.grids) if memory else None
        self.register_buffer("class_weights", _weights_of(self.prior, self.options), persistent=False)

    @property
    def metric(self) -> Metric:
        """The metric, with its average."""
        return self.options.metric

    @property
    def task(self) -> Task:
        """The task."""
        return self.options.task

    @property
    def labels(self) -> tuple[Hashable, ...] | None:
        """The class names."""
        return self.options.labels

    def forward(self, input: Tensor, target: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """The loss of a batch, a scalar; with members one per member.

        Args:
            input: Logits, or probabilities with ``from_probabilities``.
            target: Classes; see the class.
            sample_weight: Weights (N,), or one per position.
        """
        return self.batch(target, sample_weight).loss(input)

    def batch(self, target: Tensor, sample_weight: Tensor | None = None, *, remember: bool | None = None) -> Batch:
        """A batch at the present state; the memories take part in training mode, or as ``remember`` says."""
        buffers = self._buffers  # a module's attribute takes four times as long
        remember = self.training if remember is None else remember
        return Batch(
            self.options,
            target,
            sample_weight,
            buffers["temperature"],
            buffers["threshold"],  # type: ignore[arg-type]
            buffers["weight"],
            buffers["prior"],
            buffers["class_weights"],
            self.memories if remember and self.memories is not None else (),  # type: ignore[arg-type]
            group_of(self.sync, self.training),
        )

    def set_temperature(self, temperature: float | Sequence[float]) -> None:
        """Change T in place, of all members or of each: nothing is recompiled.

        >>> loss = MetricLoss("mcc")
        >>> loss.set_temperature(0.1)
        >>> loss.temperature
        tensor(0.1000)
        """
        if self.temperature is None:
            raise ValueError(f"temperature: step={str(self.options.step)!r} has none; use step='annealed'.")
        found = cast("Tensor", checked_temperature(temperature, None, self.options.members, look=True))
        self.temperature.copy_(found)

    def confusion(self, input: Tensor, target: Tensor, sample_weight: Tensor | None = None) -> ConfusionMatrix:
        """The soft confusion matrix of a batch as this loss sees it, without its memory; of this process alone.

        From 4,096 classes on, for a metric that is an average over them, it is one of each class against the rest.
        """
        batch = self.batch(target, sample_weight, remember=False)
        batch.group = None
        return batch.matrix(batch.counts(batch.samples(input), None), None)

    def diagnose(
        self, input: Tensor, target: Tensor, sample_weight: Tensor | None = None, *, confidence: float = 0.95
    ) -> Diagnosis:
        """What this loss can learn from a batch: see :class:`metricfit.losses.Diagnosis`.

        >>> logits = torch.tensor([[2.0, 0.0], [0.0, 2.0], [1.0, 0.9]])
        >>> report = MetricLoss("f1").diagnose(logits, torch.tensor([0, 1, 1]))
        >>> round(report.hard_value, 3), report.classes_without_support
        (0.667, ())
        """
        from metricfit.losses.diagnosis import diagnose

        return diagnose(self, input, target, sample_weight, confidence=confidence)

    def extra_repr(self) -> str:
        """The metric and the options that differ from the defaults."""
        options = self.options
        parts = [f"metric={options.metric}", f"task={options.task!r}"]
        if self.temperature is None:
            parts.append(f"step={str(options.step)!r}")
        else:
            shown = self.temperature.tolist()
            parts.append("temperature=" + (f"{shown:.4g}" if isinstance(shown, float) else str(shown)))
        if options.cross_entropy:
            parts.append(f"cross_entropy={options.cross_entropy:g}, balance={options.balance!r}")
        return ", ".join(parts)
