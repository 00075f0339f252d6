"""``MetricLoss``: any confusion-matrix metric as a differentiable loss."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from metricfit._counting import count_each_class, count_samples
from metricfit.confusion import Absent, ConfusionMatrix, as_confusion_matrix
from metricfit.distributed import Sync, check_sync, group_of, sum_over_processes
from metricfit.inputs import Samples, Task, check_task, flatten_inputs, values_can_be_inspected
from metricfit.losses.cross_entropy import ClassWeighting, cross_entropy_of_sums, cross_entropy_sums
from metricfit.losses.diagnosis import Diagnosis, diagnose
from metricfit.losses.fused import Known, loss_in_one_step
from metricfit.losses.memory import ConfusionMemory
from metricfit.losses.options import (
    as_weights,
    check_options,
    check_sizes,
    checked_prior,
    checked_threshold,
    with_average,
)
from metricfit.losses.stepping import check_temperature, check_tensor, choose_step
from metricfit.metrics import ClassMetric, MetricLike, get
from metricfit.metrics.base import MatrixSource
from metricfit.steps import Step, annealed_linear_step

__all__ = ["MetricLoss", "metric_loss"]

MATRIX_UP_TO = 4096
"""From this many classes on the counts of each class take the place of the matrix, where they are enough."""


def metric_loss(
    input: Tensor,
    target: Tensor,
    metric: MetricLike,
    *,
    average: str | int | None = None,
    task: Task = "multiclass",
    step: str | Step = "annealed_linear",
    temperature: float | Tensor = 0.2,
    delta: float | None = None,
    k: float | None = None,
    sharpness: float | None = None,
    threshold: float | Sequence[float] | Tensor = 0.5,
    weight: Tensor | None = None,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    absent: Absent = "skip",
    labels: Sequence[Hashable] | None = None,
    detach_threshold: bool = False,
    from_probabilities: bool = False,
    cross_entropy: float = 0.0,
    class_weighting: ClassWeighting = "none",
    class_prior: Tensor | None = None,
    sync: Sync = "auto",
    validate: bool = True,
) -> Tensor:
    """The functional form of :class:`MetricLoss`, without memory; arguments as there.

    >>> logits = torch.tensor([[4.0, 0.0], [0.0, 4.0], [4.0, 0.0]])
    >>> metric_loss(logits, torch.tensor([0, 1, 1]), "accuracy")
    tensor(0.3381)
    """
    loss = MetricLoss(
        metric,
        average=average,
        task=task,
        step=step,
        temperature=temperature if not isinstance(temperature, Tensor) else 0.2,
        delta=delta,
        k=k,
        sharpness=sharpness,
        threshold=threshold,
        weight=weight,
        ignore_index=ignore_index,
        absent=absent,
        labels=labels,
        detach_threshold=detach_threshold,
        from_probabilities=from_probabilities,
        cross_entropy=cross_entropy,
        class_weighting=class_weighting,
        class_prior=class_prior,
        sync=sync,
        validate=validate,
    )
    if isinstance(temperature, Tensor):
        if loss.temperature is None:
            raise ValueError(f"temperature: has no effect with step={step!r}.")
        loss.temperature = check_tensor(temperature, look=validate and values_can_be_inspected())
    value: Tensor = loss(input, target, sample_weight)
    return value


class MetricLoss(nn.Module):
    """One minus the metric (its distance from perfect) of the batch's soft confusion matrix.

    Called like ``F.cross_entropy``. 0 is a perfect score; for metrics with maximum 1, ``1 - loss`` is the metric.
    Put ``MetricLoss("f1", cross_entropy=0.5, class_weighting="sqrt", memory=0.9)`` to train well from scratch:
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
        step: ``"annealed_linear"`` (EAST), ``"linear"`` (``delta``), ``"sigmoid"`` (``k``), ``"amplifier"``
            (``sharpness``), ``"identity"``, or a function ``(p, tau)``.
        temperature: T of the annealed step, in (0, 0.4]; a buffer, so that changing it recompiles nothing. Use
            :meth:`set_temperature` or a :class:`metricfit.TemperatureAnnealer`.
        delta: Height of the linear step's first knot.
        k: Steepness of the sigmoid step.
        sharpness: L of the amplifier step.
        threshold: The fixed threshold of binary and multi-label tasks: a number, or one a label.
        weight: Class weights: (C,); (2,) for a binary task; (L,) label weights for a multi-label one.
        ignore_index: Target value of positions that do not count (probability targets: a row filled with it).
        absent: Whether averages over classes ``"skip"`` or ``"count"`` the classes that do not occur in the batch.
        labels: Class names, so that ``"recall[fraud]"`` finds its class.
        detach_threshold: Stop the gradient through the dynamic threshold.
        from_probabilities: The input holds probabilities, not logits; never guessed.
        cross_entropy: Weight of cross-entropy added to the metric's loss; then ``1 - loss`` is no longer the metric.
        class_weighting: Class weights in that cross-entropy: ``"none"``, ``"sqrt"`` (∝ prior^-1/2), ``"balanced"``.
        class_prior: Class shares or counts for them, (C,), (2,) or (L,) positive shares; by default the batch's.
        memory: Decay of a cross-batch memory of the confusion matrix (0.9 remembers some ten batches); 0 is none.
            Used and updated in training mode only.
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
    class_prior: Tensor | None
    threshold: Tensor

    def __init__(
        self,
        metric: MetricLike,
        *,
        average: str | int | None = None,
        task: Task = "multiclass",
        step: str | Step = "annealed_linear",
        temperature: float = 0.2,
        delta: float | None = None,
        k: float | None = None,
        sharpness: float | None = None,
        threshold: float | Sequence[float] | Tensor = 0.5,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        absent: Absent = "skip",
        labels: Sequence[Hashable] | None = None,
        detach_threshold: bool = False,
        from_probabilities: bool = False,
        cross_entropy: float = 0.0,
        class_weighting: ClassWeighting = "none",
        class_prior: Tensor | None = None,
        memory: float = 0.0,
        sync: Sync = "auto",
        validate: bool = True,
    ) -> None:
        super().__init__()
        check_task(task)
        self.metric = with_average(get(metric), average)
        self.task: Task = task
        self.ignore_index = ignore_index
        self.labels = None if labels is None else tuple(labels)
        self.detach_threshold = detach_threshold
        self.from_probabilities = from_probabilities
        self.cross_entropy = float(cross_entropy)
        self.class_weighting: ClassWeighting = class_weighting
        self.absent: Absent = absent
        self.validate = validate
        self.sync = check_sync(sync)
        check_options(self, step, threshold, class_prior)
        self._fixed_step: Step | None = None
        chosen = choose_step(step, temperature=check_temperature(temperature), delta=delta, k=k, sharpness=sharpness)
        annealed = step == "annealed_linear"
        if not annealed:
            self._fixed_step = chosen
        self.step = step if isinstance(step, str) else getattr(step, "__name__", type(step).__name__)
        self.register_buffer("temperature", torch.tensor(float(temperature)) if annealed else None)
        self.register_buffer("threshold", checked_threshold(threshold), persistent=False)
        self.register_buffer("weight", None if weight is None else as_weights(weight, "weight"), persistent=False)
        self.register_buffer("class_prior", checked_prior(class_prior, task), persistent=False)
        if task == "binary":
            check_sizes(self, 1)
        self._grids = sorted(self.metric.grids(), key=lambda grid: grid or ())
        self._known: Known | None = None
        self.memories = nn.ModuleList(ConfusionMemory(memory) for _ in self._grids) if memory else None

    def forward(self, input: Tensor, target: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """The loss of a batch, a scalar.

        Args:
            input: Logits, or probabilities with ``from_probabilities``.
            target: Classes; see the class.
            sample_weight: Weights (N,) or one a position.
        """
        fused = loss_in_one_step(self, input, target, sample_weight)
        return self._plain(input, target, sample_weight) if fused is None else fused

    def _plain(self, input: Tensor, target: Tensor, sample_weight: Tensor | None) -> Tensor:
        with torch.autocast(input.device.type if isinstance(input, Tensor) else "cpu", enabled=False):
            group = group_of(self.sync, self.training)
            samples = self._flatten(input, target, sample_weight, allow_empty=group is not None)
            statistics = [samples.weight.sum(), *(self._count(samples, grid) for grid in self._grids)]
            if self.cross_entropy:
                statistics.append(self._cross_entropy_sums(samples))
            weight, *statistics = sum_over_processes(statistics, group)
            loss = self.metric.loss(self._source(statistics, remember=self.training))
            if loss.ndim:
                raise ValueError(f"metric: {self.metric} gives shape {tuple(loss.shape)}, a loss needs one number.")
            if self.cross_entropy:
                loss = loss + self.cross_entropy * self._cross_entropy(statistics[-1])
            return torch.where(weight > 0, loss, torch.zeros_like(loss))

    def set_temperature(self, temperature: float) -> None:
        """Change T in place: nothing is recompiled.

        >>> loss = MetricLoss("mcc")
        >>> loss.set_temperature(0.1)
        >>> loss.temperature
        tensor(0.1000)
        """
        if self.temperature is None:
            raise ValueError(f"temperature: step={self.step!r} has none; use step='annealed_linear'.")
        self.temperature.fill_(check_temperature(temperature))

    def confusion(self, input: Tensor, target: Tensor, sample_weight: Tensor | None = None) -> ConfusionMatrix:
        """The soft confusion matrix of a batch as this loss sees it, without its memory; of this process alone.

        From 4,096 classes on, for a metric that is an average over them, it is one of each class against the rest.
        """
        return self._as_matrix(self._count(self._flatten(input, target, sample_weight), None), None)

    def diagnose(
        self, input: Tensor, target: Tensor, sample_weight: Tensor | None = None, *, confidence: float = 0.95
    ) -> Diagnosis:
        """What this loss can learn from a batch: see :class:`metricfit.losses.Diagnosis`.

        >>> logits = torch.tensor([[2.0, 0.0], [0.0, 2.0], [1.0, 0.9]])
        >>> report = MetricLoss("f1").diagnose(logits, torch.tensor([0, 1, 1]))
        >>> round(report.hard_value, 3), report.classes_without_support
        (0.667, ())
        """
        return diagnose(self, input, target, sample_weight, confidence=confidence)

    def _flatten(
        self, input: Tensor, target: Tensor, sample_weight: Tensor | None, *, allow_empty: bool = False
    ) -> Samples:
        samples = flatten_inputs(
            input,
            target,
            task=self.task,
            weight=self.weight,
            sample_weight=sample_weight,
            ignore_index=self.ignore_index,
            from_probabilities=self.from_probabilities,
            validate=self.validate,
            allow_empty=allow_empty,
        )
        check_sizes(self, samples.scores.shape[-1])
        return samples

    def _count(self, samples: Samples, thresholds: tuple[float, ...] | None) -> Tensor:
        if self._averages_classes(samples.scores) and samples.target.ndim == 1:
            return count_each_class(
                samples, self._step, detach_threshold=self.detach_threshold, from_probabilities=self.from_probabilities
            )
        return count_samples(
            samples,
            self.task,
            self._step,
            threshold=self.threshold,
            thresholds=thresholds,
            detach_threshold=self.detach_threshold,
            from_probabilities=self.from_probabilities,
        )

    def _averages_classes(self, input: Tensor) -> bool:
        """Whether there are so many classes that the matrix is left out, since the metric is an average over them."""
        if self.task != "multiclass" or input.shape[1] < MATRIX_UP_TO:
            return False
        return isinstance(self.metric, ClassMetric) and not self.metric.whole

    def _as_matrix(self, counts: Tensor, thresholds: tuple[float, ...] | None) -> ConfusionMatrix:
        if self.task == "multiclass" and counts.ndim == 3:  # of each class against the rest, as many labels
            return ConfusionMatrix(counts, "multilabel", self.labels, self.absent)
        return as_confusion_matrix(counts, self.task, thresholds, self.labels, self.absent)

    def _source(self, counts: Sequence[Tensor], *, remember: bool) -> MatrixSource:
        """The matrices of the metric, given the counts for each of its grids."""
        made = {grid: self._as_matrix(matrix, grid) for grid, matrix in zip(self._grids, counts, strict=False)}
        if remember and self.memories is not None:
            made = {grid: memory(cm) for (grid, cm), memory in zip(made.items(), self.memories, strict=True)}
        return made.__getitem__

    @property
    def _step(self) -> Step:
        if self._fixed_step is not None:
            return self._fixed_step
        return partial(annealed_linear_step, temperature=self.temperature)  # type: ignore[arg-type]

    def _cross_entropy_sums(self, samples: Samples) -> Tensor:
        return cross_entropy_sums(
            samples, task=self.task, weighting=self.class_weighting, from_probabilities=self.from_probabilities
        )

    def _cross_entropy(self, sums: Tensor) -> Tensor:
        prior = self.class_prior
        if prior is not None and self.task == "multilabel":
            prior = torch.stack([1 - prior, prior], dim=-1)
        elif prior is not None and self.task == "binary":
            prior = prior[None, :]
        return cross_entropy_of_sums(sums, self.class_weighting, prior)

    def extra_repr(self) -> str:
        """The metric and the options that differ from the defaults."""
        parts = [f"metric={self.metric}", f"task={self.task!r}", f"step={self.step!r}"]
        if self.temperature is not None:
            parts.append(f"temperature={self.temperature.item():.4g}")
        if self.cross_entropy:
            parts.append(f"cross_entropy={self.cross_entropy:g}, class_weighting={self.class_weighting!r}")
        return ", ".join(parts)
