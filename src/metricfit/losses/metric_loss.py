"""``MetricLoss``: any confusion-matrix metric as a differentiable loss."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast, get_args

import torch
from torch import Tensor, nn

from metricfit._counting import count_each_class, count_samples
from metricfit._inputs import Samples, Task, check_task, flatten_inputs
from metricfit._kernels import five_points, is_ordinary
from metricfit._kernels.batch import FivePoints
from metricfit._kernels.loss import fused_binary_loss, fused_loss
from metricfit._kernels.metric_gradients import ClosedForm, closed_form_of
from metricfit.confusion import Absent, ConfusionMatrix, as_confusion_matrix
from metricfit.distributed import Sync, check_sync, group_of, sum_over_processes
from metricfit.losses.cross_entropy import (
    ClassWeighting,
    classes_of_batch,
    cross_entropy_of_batch,
    cross_entropy_of_sums,
    cross_entropy_sums,
)
from metricfit.losses.diagnosis import Diagnosis, diagnose
from metricfit.losses.memory import ConfusionMemory
from metricfit.losses.stepping import check_temperature, choose_step
from metricfit.metrics import ClassMetric, Metric, MetricLike, get
from metricfit.metrics.base import MatrixSource
from metricfit.steps import Step, annealed_linear_step

__all__ = ["MetricLoss", "metric_loss"]

MATRIX_UP_TO = 4096
"""From this many classes on the counts of each class take the place of the matrix, where they are enough."""


_Known = tuple[Metric, Step | None, Tensor | None, float | None, tuple[ClosedForm | None, FivePoints | None]]
"""Metric, step, temperature and its value, and what follows from them."""


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
        loss.temperature = temperature
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
        self.metric = _with_average(get(metric), average)
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
        self._check_options(step, threshold, class_prior)
        self._fixed_step: Step | None = None
        chosen = choose_step(step, temperature=temperature, delta=delta, k=k, sharpness=sharpness)
        annealed = step == "annealed_linear"
        if not annealed:
            self._fixed_step = chosen
        self.step = step if isinstance(step, str) else getattr(step, "__name__", type(step).__name__)
        self.register_buffer("temperature", torch.tensor(float(temperature)) if annealed else None)
        self.register_buffer("threshold", _checked_threshold(threshold), persistent=False)
        self.register_buffer("weight", None if weight is None else _as_weights(weight, "weight"), persistent=False)
        prior = None if class_prior is None else _as_weights(class_prior, "class_prior")
        self.register_buffer("class_prior", prior, persistent=False)
        self._grids = sorted(self.metric._grids(), key=lambda grid: grid or ())
        self._known: _Known | None = None
        self.memories = nn.ModuleList(ConfusionMemory(memory) for _ in self._grids) if memory else None

    def _check_options(self, step: str | Step, threshold: object, class_prior: object) -> None:
        if isinstance(self.metric, ClassMetric) and self.metric.average == "none":
            raise ValueError("average: 'none' gives one value a class; a loss needs one number, choose another.")
        if self.absent not in get_args(Absent):
            raise ValueError(f"absent: expected 'skip' or 'count', got {self.absent!r}.")
        if self.class_weighting not in get_args(ClassWeighting):
            raise ValueError(f"class_weighting: expected 'none', 'sqrt' or 'balanced', got {self.class_weighting!r}.")
        if not 0 <= self.cross_entropy < float("inf"):
            raise ValueError(f"cross_entropy: expected a weight >= 0, got {self.cross_entropy}.")
        if not self.cross_entropy and self.class_weighting != "none":
            raise ValueError("class_weighting: has no effect without cross_entropy; give cross_entropy a weight.")
        if class_prior is not None and self.class_weighting == "none":
            raise ValueError("class_prior: has no effect without class_weighting='sqrt' or 'balanced'.")
        plain = isinstance(threshold, (int, float)) and threshold == 0.5
        if not plain and (self.task == "multiclass" or step in ("amplifier", "identity")):
            fixed = "a multiclass task, whose threshold is dynamic" if self.task == "multiclass" else f"step={step!r}"
            raise ValueError(f"threshold: has no effect with {fixed}.")
        if self.task == "multiclass" and step == "amplifier":
            raise ValueError(
                "step: the amplifier's threshold is fixed at 1/2, which no class of many need reach; use "
                "step='sigmoid' with k=73, or task='binary'."
            )
        if self.detach_threshold and (self.task != "multiclass" or step in ("amplifier", "identity")):
            raise ValueError("detach_threshold: has no effect, only the dynamic threshold of a multiclass task moves.")

    def forward(self, input: Tensor, target: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """The loss of a batch, a scalar.

        Args:
            input: Logits, or probabilities with ``from_probabilities``.
            target: Classes; see the class.
            sample_weight: Weights (N,) or one a position.
        """
        fused = self._fused(input, target, sample_weight)
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

    def _fused(self, input: Tensor, target: Tensor, sample_weight: Tensor | None) -> Tensor | None:
        """The loss in one step of its own, or None where an option or the input asks for the plain way."""
        if self.task == "multilabel" or self.from_probabilities or not is_ordinary(input, target):
            return None
        closed_form, points = self._closed_form_and_points()
        if closed_form is None or points is None or (closed_form.label >= 0 and self.labels is not None):
            return None
        group = group_of(self.sync, self.training)
        memory = cast("ConfusionMemory", self.memories[0]) if self.memories is not None and self.training else None
        is_mixed = memory is not None or bool(self.cross_entropy)
        if is_mixed and (group is not None or not input.is_cpu):
            return None
        classes = target
        if self.cross_entropy:
            found = None if sample_weight is not None else classes_of_batch(input, target, self.ignore_index)
            if found is None:
                return None
            classes = found
        plain = partial(self._plain, target=target, sample_weight=sample_weight)
        if is_mixed:
            past = None if memory is None else memory.matrix
            plain = partial(self._metric_again, target=target, sample_weight=sample_weight, past=past)
        batch = (input, target, self._buffers["weight"], sample_weight, plain)
        shared: Any = {"ignore_index": self.ignore_index, "blend": None if memory is None else memory.blend}
        if self.task == "binary":
            bare = getattr(self.metric, "average", "auto") == "auto" and getattr(self.metric, "label", None) is None
            # Other processes expect counts of another shape.
            if not bare or float(self.threshold) != 0.5 or group is not None:
                return None
            metric = fused_binary_loss(replace(closed_form, label=1), points, *batch, **shared)
        elif input.ndim < 2 or self._averages_classes(input):
            return None
        else:
            metric = fused_loss(
                closed_form,
                points,
                *batch,
                skip_absent=self.absent == "skip",
                detach_threshold=self.detach_threshold,
                validate=self.validate,
                group=group,
                **shared,
            )
        if metric is None or not self.cross_entropy:
            return metric
        return metric + self.cross_entropy * cross_entropy_of_batch(
            input,
            classes,
            weighting=self.class_weighting,
            prior=self.class_prior,
            weight=self.weight,
            ignore_index=self.ignore_index,
        )

    def _metric_again(
        self, input: Tensor, *, target: Tensor, sample_weight: Tensor | None, past: Tensor | None
    ) -> Tensor:
        """The metric's part along the plain formulas, with the memory as it was: for second derivatives."""
        with torch.autocast(input.device.type, enabled=False):
            samples = self._flatten(input, target, sample_weight)
            counts = [self._count(samples, grid) for grid in self._grids]
            if past is None:
                loss = self.metric.loss(self._source(counts, remember=False))
            else:
                memory = self.memories[0]  # type: ignore[index]
                now, memory.matrix = memory.matrix, past
                try:
                    loss = self.metric.loss(self._source(counts, remember=True))
                finally:
                    memory.matrix = now
            return torch.where(samples.weight.sum() > 0, loss, torch.zeros_like(loss))

    def _closed_form_and_points(self) -> tuple[ClosedForm | None, FivePoints | None]:
        """What does not change from batch to batch, found anew when metric, step or temperature are others."""
        temperature = self._buffers["temperature"]  # a module's attribute takes four times as long
        value = None
        if temperature is not None and not temperature.requires_grad and not temperature.ndim:
            # A device is asked for the value only after a change.
            value = temperature.item() if temperature.is_cpu else temperature._version
        known = self._known
        if (
            known is None
            or known[0] is not self.metric
            or known[1] is not self._fixed_step
            or known[2] is not temperature
            or known[3] != value
        ):
            step = self._step
            if value is not None and temperature is not None and not temperature.is_cpu:
                step = partial(annealed_linear_step, temperature=temperature.cpu())
            found = (closed_form_of(self.metric), five_points(step))
            self._known = known = (self.metric, self._fixed_step, temperature, value, found)
        return known[4]

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
        return flatten_inputs(
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
        return isinstance(self.metric, ClassMetric) and type(self.metric).of_matrix is ClassMetric.of_matrix

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


def _with_average(metric: Metric, average: str | int | None) -> Metric:
    if average is None:
        return metric
    if not isinstance(metric, ClassMetric):
        raise ValueError(f"average: has no effect on {metric}; give the average inside the expression.")
    if metric.average != "auto" or metric.label is not None:
        raise ValueError(f"average: {metric} has one already; give it once.")
    return replace(metric, average=average)


def _checked_threshold(threshold: float | Sequence[float] | Tensor) -> Tensor:
    values = torch.as_tensor(threshold, dtype=torch.float32)
    if values.ndim > 1:
        raise ValueError(f"threshold: expected a number or one a label, got shape {tuple(values.shape)}.")
    if not bool(((values > 0) & (values < 1)).all()):
        raise ValueError(f"threshold: expected numbers strictly between 0 and 1, got {threshold}.")
    return values


def _as_weights(values: Tensor, name: str) -> Tensor:
    weights = torch.as_tensor(values, dtype=torch.float32 if not isinstance(values, Tensor) else None)
    if weights.ndim != 1 or not bool((weights >= 0).all()) or not bool(weights.isfinite().all()):
        raise ValueError(f"{name}: expected a vector of finite numbers >= 0, got {values}.")
    return weights if weights.is_floating_point() else weights.float()
