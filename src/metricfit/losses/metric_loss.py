"""``MetricLoss``: any confusion-matrix metric as a differentiable loss."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast, get_args

import torch
from torch import Tensor, nn

from metricfit.confusion import MATRIX_UP_TO, Absent, ConfusionMatrix, Grid, as_confusion_matrix, count_samples
from metricfit.distributed import Sync, check_sync, group_of, sum_over_processes
from metricfit.inputs import Samples, Task, check_task, expect, flatten_inputs, values_can_be_inspected
from metricfit.losses import companions
from metricfit.losses.companions import Balance, ConfusionMemory
from metricfit.metrics import ClassMetric, Metric, MetricLike, get
from metricfit.metrics.base import MatrixSource
from metricfit.steps import HIGHEST_TEMPERATURE, Amplifier, Annealed, Step, StepLike, check_temperature
from metricfit.steps import get as get_step

if TYPE_CHECKING:
    from metricfit.losses.diagnosis import Diagnosis


def with_average(metric: Metric, average: str | int | None) -> Metric:
    """The metric with an average, where it has none of its own."""
    if average is None:
        return metric
    if not isinstance(metric, ClassMetric):
        raise ValueError(f"average: has no effect on {metric}; give the average inside the expression.")
    if metric.average != "auto" or metric.label is not None:
        raise ValueError(f"average: {metric} has one already; give it once.")
    return replace(metric, average=average)


def _is(given: Any, default: float) -> bool:
    return isinstance(given, int | float) and given == default


def _checked_threshold(threshold: Any, metric: Metric, step: Step, task: Task) -> Tensor:
    only_grids = None not in metric.grids()
    if not _is(threshold, 0.5) and (only_grids or task == "multiclass" or not step.has_threshold):
        fixed = "a multiclass task, whose threshold is dynamic" if task == "multiclass" else f"step={str(step)!r}"
        fixed = f"{metric}, which has a grid of thresholds" if only_grids else fixed
        raise ValueError(f"threshold: has no effect with {fixed}.")
    thresholds = torch.as_tensor(threshold, dtype=torch.float32)
    expect(thresholds.ndim < 2, "threshold", "one number, or one per label", threshold)
    inside = bool(((thresholds > 0) & (thresholds < 1)).all())
    expect(inside, "threshold", "numbers strictly between 0 and 1", threshold)
    return thresholds


def _check_temperature_is_free(step: StepLike | None) -> None:
    if step is not None:
        once = isinstance(used := get_step(step), Annealed)
        problem = "the step has one already; give it once" if once else f"has no effect with step={str(used)!r}"
        raise ValueError(f"temperature: {problem}.")


def _vector(name: str, values: Any) -> Tensor:
    weights = torch.as_tensor(values, dtype=torch.float32 if not isinstance(values, Tensor) else None)
    fits = weights.ndim == 1 and bool((weights >= 0).all()) and bool(weights.isfinite().all())
    expect(fits, name, "a vector of finite numbers >= 0", values)
    return weights if weights.is_floating_point() else weights.float()


def _class_weights(prior: Tensor, task: Task, balance: Balance) -> Tensor:
    """Weights (C,), (1, 2) or (L, 2) of the cross-entropy."""
    shares = task != "multilabel" or bool((prior <= 1).all())
    expect(shares, "prior", "the positive share of each label for a multilabel task", prior)
    both = torch.stack([1 - prior, prior], dim=-1) if task == "multilabel" else prior
    return companions.class_weights(both[None, :] if task == "binary" else both, balance)


def _check_sizes(task: Task, columns: int, threshold: Tensor, class_weights: Tensor | None) -> None:
    fits = not threshold.ndim or len(threshold) == columns
    expect(fits, "threshold", f"one number or {columns}, one per label", threshold.numel())
    if class_weights is not None:
        wanted, got = (2, class_weights.shape[-1]) if task == "binary" else (columns, len(class_weights))
        expect(got == wanted, "prior", f"{wanted} shares or counts", got)


@dataclass(slots=True)
class Batch:
    """One batch with everything its loss depends on, so that the loss is a function of it and of the input alone."""

    options: MetricLoss
    target: Tensor
    sample_weight: Tensor | None
    temperature: Tensor | None  # a scalar or one per member; None for steps without
    weight: Tensor | None
    memories: Sequence[ConfusionMemory] = ()  # one per grid of the metric, used and updated
    group: Any = None  # the processes whose statistics are added up

    @property
    def step(self) -> Step:
        """The step at the current temperature, which broadcasts against (members, n, classes)."""
        if self.options.step is not None:
            return self.options.step
        temperature = cast("Tensor", self.temperature)
        return Annealed(temperature[:, None, None] if temperature.ndim else temperature)

    def loss(self, input: Tensor) -> Tensor:
        """The loss, a scalar or one per member."""
        fused = None
        if values_can_be_inspected():  # not while a compiler traces: it takes the plain formulas
            import metricfit.fast  # only here: importing the losses needs none of it

            fused = metricfit.fast.metric_loss(self, input)
        weight = self.options.cross_entropy
        return fused if fused is not None and not weight else self._plain_loss(input, fused, weight)

    def _plain_loss(self, input: Tensor, fused: Tensor | None, cross_entropy: float) -> Tensor:
        options = self.options
        with torch.autocast(input.device.type if isinstance(input, Tensor) else "cpu", enabled=False):
            samples = self.samples(input)
            statistics = [samples.total]
            if fused is None:
                statistics.extend(self.counts(samples, grid) for grid in options.grids)
            if cross_entropy:
                statistics.append(companions.cross_entropy_sums(samples, options.balance, options.class_weights))
            weight, *statistics = sum_over_processes(statistics, self.group)
            companion = torch.zeros_like(weight)
            if cross_entropy:
                companion = companions.cross_entropy_of_sums(statistics.pop(), options.balance, members=options.members)
                if options.validate and values_can_be_inspected() and not bool(companion.isfinite().all()):
                    raise ValueError(
                        "input: a logit of -inf rules out the true class of a sample, so that its cross_entropy is "
                        "infinite; leave the true class in, or set cross_entropy=0."
                    )
            loss = fused if fused is not None else options.metric.loss(self.source(statistics))
            if loss.shape != weight.shape:
                shape = tuple(loss.shape[weight.ndim :])
                raise ValueError(f"metric: {options.metric} gives shape {shape}, a loss needs one number.")
            return torch.where(weight > 0, loss + cross_entropy * companion, torch.zeros_like(loss))

    def metric_alone(self, remembered: Sequence[Tensor], input: Tensor) -> Tensor:
        """The metric's part along the plain formulas, with the memories as they were then: for second derivatives."""
        memories = [type(memory)(memory.decay) for memory in self.memories]
        for memory, matrix in zip(memories, remembered, strict=True):
            memory.matrix = matrix
        return replace(self, memories=memories)._plain_loss(input, None, 0.0)

    def samples(self, input: Tensor) -> Samples:
        """The checked and flattened samples."""
        options = self.options
        samples = flatten_inputs(
            input, self.target, self.sample_weight, allow_empty=self.group is not None, task=options.task,
            weight=self.weight, ignore_index=options.ignore_index, from_probabilities=options.from_probabilities,
            validate=options.validate, members=options.members,
        )  # fmt: skip
        _check_sizes(options.task, samples.scores.shape[-1], options.threshold, options.class_weights)
        return samples

    def counts(self, samples: Samples, grid: Grid) -> Tensor:
        """The soft counts of the samples at the decision, or over a grid of thresholds."""
        metric, scores = self.options.metric, samples.scores
        one_each = (
            isinstance(metric, ClassMetric) and not metric.whole and samples.task == "multiclass" and scores.ndim == 2
            and scores.shape[-1] >= MATRIX_UP_TO and not samples.target.is_floating_point()
        )  # fmt: skip
        return count_samples(samples, self.step, threshold=self.options.threshold, thresholds=grid, each_class=one_each)

    def matrix(self, counts: Tensor, grid: Grid) -> ConfusionMatrix:
        """Counts as a confusion matrix of the task."""
        options = self.options
        # Without the matrix of many classes: the counts of each class against the rest, as many labels.
        each = options.task == "multiclass" and options.members is None and counts.ndim == 3
        return as_confusion_matrix(counts, "multilabel" if each else options.task, grid, options.labels, options.absent)

    def source(self, counts: Sequence[Tensor]) -> MatrixSource:
        """The matrices of the metric, given the counts for each of its grids; the memories are used and updated."""
        grids = self.options.grids
        made = {grid: self.matrix(part, grid) for grid, part in zip(grids, counts, strict=True)}
        for grid, memory in zip(grids, self.memories, strict=False):
            made[grid] = memory(made[grid])
        return made.__getitem__


def metric_loss(
    input: Tensor, target: Tensor, metric: MetricLike, sample_weight: Tensor | None = None, *,
    temperature: float | Sequence[float] | Tensor | None = None, weight: Tensor | None = None, **options: Any,
) -> Tensor:  # fmt: skip
    """The functional form of :class:`MetricLoss`; arguments as there, but for the memory, which a function has not.

    >>> logits = torch.tensor([[4.0, 0.0], [0.0, 4.0], [4.0, 0.0]])
    >>> metric_loss(logits, torch.tensor([0, 1, 1]), "accuracy")
    tensor(0.3381)
    """
    if "memory" in options:
        raise TypeError("memory: a function keeps none from one batch to the next; use MetricLoss(…, memory=…).")
    fixed = {name: value.tolist() if isinstance(value, Tensor) else value for name, value in options.items()}
    fixed = {name: tuple(value) if isinstance(value, list) else value for name, value in fixed.items()}
    loss = _settings(metric, tuple(sorted(fixed.items())))
    batch = loss.batch(target, sample_weight)
    if temperature is not None:
        _check_temperature_is_free(options.get("step"))
        batch.temperature = loss._checked_temperature(temperature)
    if weight is not None:
        batch.weight = _vector("weight", weight)
    return batch.loss(input)


@lru_cache(maxsize=64)
def _settings(metric: MetricLike, options: tuple[tuple[str, Any], ...]) -> MetricLoss:
    """The checked options of :func:`metric_loss`: made once, since nothing in them changes from call to call."""
    return MetricLoss(metric, **dict(options))


class MetricLoss(nn.Module):
    """One minus the metric (its distance from perfect) of the batch's soft confusion matrix.

    Called like ``F.cross_entropy``. 0 is a perfect score; for metrics with maximum 1, ``1 - loss`` is the metric.
    Use ``MetricLoss("f1", cross_entropy=0.5, balance="sqrt", memory=0.9)`` to train well from scratch:
    cross-entropy learns the representation, the metric fixes the decision.

    Args:
        metric: A name (``"mcc"``), a spec (``"fbeta:beta=2,average=macro"``), an expression
            (``"0.7*recall[1] + 0.3*precision[1]"``), ``"money:tp=amount-5,fn=-amount"``, a
            :class:`metricfit.metrics.Metric`, or any function of a :class:`metricfit.confusion.ConfusionMatrix` that
            returns a scalar tensor (taken to lie in [0, 1], more is better).
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
        from_probabilities: The input holds probabilities, not logits; never guessed.
        cross_entropy: Weight of cross-entropy added to the metric's loss; then ``1 - loss`` is no longer the metric.
        balance: Class weights in that cross-entropy: ``"none"``, ``"sqrt"`` (∝ prior^-1/2), ``"full"`` (∝ 1/prior).
        prior: Class shares or counts for them, (C,), (2,) or (L,) positive shares; by default the batch's.
        memory: Decay of a cross-batch memory of the confusion matrix (0.9 remembers some ten batches); 0 is none.
            Used and updated in training mode only.
        members: How many ensemble members lead every shape: logits (M, N, C, …), target (M, N, …), weights (M, N).
            The result is one loss per member, (M,), each with a memory and a temperature of its own.
        sync: ``"auto"`` adds up the counts of all processes of ``torch.distributed`` in training mode: value and
            gradient are those of one process with all samples, if gradients are averaged, as DistributedDataParallel
            does. Every process has to call the loss; its batch may be empty. A process group names other processes,
            in evaluation mode too; ``False`` is this one alone.
        validate: Look at the values (NaN, labels out of range), which waits for the device; shapes are always checked.
            Of infinite logits only -inf beside a finite one, in a multiclass task, is legal: it rules a class out.
            The weights of a batch must sum to 0 or to between 1e-18 and 1e18; one below 1e-30 counts as 0.

    >>> loss = MetricLoss("f1", average="macro")
    >>> logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 2.0]], requires_grad=True)
    >>> value = loss(logits, torch.tensor([0, 1, 1]))
    >>> value.backward()
    >>> value
    tensor(0.2864, grad_fn=<...>)
    """

    temperature: Tensor | None
    weight: Tensor | None
    threshold: Tensor
    class_weights: Tensor | None

    def __init__(
        self, metric: MetricLike, *, average: str | int | None = None, task: Task = "multiclass",
        step: StepLike | None = None, temperature: float | Sequence[float] = 0.2,
        threshold: float | Sequence[float] | Tensor = 0.5, weight: Tensor | None = None, ignore_index: int = -100,
        absent: Absent = "skip", labels: Sequence[Hashable] | None = None, from_probabilities: bool = False,
        cross_entropy: float = 0.0, balance: Balance = "none", prior: Tensor | None = None, memory: float = 0.0,
        members: int | None = None, sync: Sync = "auto", validate: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        check_task(task, ignore_index)
        self.metric, self.task, self.members = with_average(get(metric), average), task, members
        self.labels = None if labels is None else tuple(labels)
        self.money: Any = None
        if self.metric.needs_rows:  # accuracy about what pays, weighted by what it pays, is the share of the money
            if not hasattr(self.metric, "staked") or task == "multilabel":
                advice = "train on the metric alone, then choose the rule with the columns"
                why = "money is for two classes" if hasattr(self.metric, "staked") else "a batch shows no groups"
                raise ValueError(f"metric: {metric}: {why}; {advice}.")
            self.money, self.metric = self.metric, self.metric.of_counts
        self.sync, self.validate = check_sync(sync), validate
        self.ignore_index, self.absent, self.from_probabilities = ignore_index, absent, from_probabilities
        self.cross_entropy, self.balance = float(cross_entropy), balance
        used = Annealed() if step is None else get_step(step)
        self.step = None if isinstance(used, Annealed) else used  # the annealed step's temperature changes
        if not _is(temperature, 0.2):
            _check_temperature_is_free(step)
        if task == "multiclass" and isinstance(used, Amplifier):
            fixed = "step: the amplifier's threshold is fixed at 1/2, which no class of many need reach"
            raise ValueError(f"{fixed}; use step='sigmoid:k=73', or task='binary'.")
        if isinstance(self.metric, ClassMetric) and self.metric.average == "none":
            raise ValueError("average: 'none' gives one value per class; a loss needs one number, choose another.")
        expect(absent in get_args(Absent), "absent", "'count' or 'skip'", absent)
        expect(balance in get_args(Balance), "balance", "'none', 'sqrt' or 'full'", balance)
        expect(0 <= cross_entropy < float("inf"), "cross_entropy", "a weight >= 0", cross_entropy)
        whole = members is None or (isinstance(members, int) and not isinstance(members, bool) and members > 0)
        expect(whole, "members", "a whole number >= 1, or None for no such dimension", members)
        if not cross_entropy and balance != "none":
            raise ValueError("balance: has no effect without cross_entropy; give cross_entropy a weight.")
        if prior is not None and balance == "none":
            raise ValueError("prior: has no effect without balance='sqrt' or 'full'.")
        self.grids: tuple[Grid, ...] = tuple(sorted(self.metric.grids(), key=lambda grid: grid or ()))
        # Whether the metric is of a single decision at the usual threshold.
        self.decides = self.grids == (None,) and (task == "multiclass" or _is(threshold, 0.5))
        start = None
        if isinstance(used, Annealed):
            start = self._checked_temperature(temperature if step is None else used.temperature).clone()
        self.register_buffer("temperature", start)
        balanced = None if prior is None else _class_weights(_vector("prior", prior), task, balance)
        limits = _checked_threshold(threshold, self.metric, used, task)
        self.register_buffer("threshold", limits, persistent=False)
        self.register_buffer("weight", None if weight is None else _vector("weight", weight), persistent=False)
        self.register_buffer("class_weights", balanced, persistent=False)
        if task == "binary":
            _check_sizes(task, 1, limits, balanced)
        self.memories: nn.ModuleList | None = None
        if memory:
            self.memories = nn.ModuleList(ConfusionMemory(memory) for _ in self.grids)

    def _checked_temperature(self, given: Any) -> Tensor:
        if isinstance(given, Tensor):
            expect(given.is_floating_point(), "temperature", "floating-point numbers", given.dtype)
            # Compared in its own dtype: 0.4 in float32 is above 0.4.
            look = self.validate and values_can_be_inspected()  # for which a device has to finish
            if look and not bool(((given > 0) & (given <= HIGHEST_TEMPERATURE)).all()):
                raise ValueError(f"temperature: expected 0 < T <= {HIGHEST_TEMPERATURE}, got {given.tolist()}.")
        else:
            several = isinstance(given, Sequence)
            given = torch.tensor([check_temperature(x) for x in given] if several else check_temperature(given))
        if (self.members is None and given.ndim) or given.shape not in ((), (self.members,)):
            wanted = "one number" if self.members is None else f"one number, or one per member, {self.members} in all"
            raise ValueError(f"temperature: expected {wanted}, got shape {tuple(given.shape)}.")
        return cast("Tensor", given if self.members is None else given.expand(self.members))

    def forward(
        self, input: Tensor, target: Tensor, sample_weight: Tensor | None = None, columns: Any = None
    ) -> Tensor:
        """The loss of a batch, a scalar; with members one per member. Weights are (N,), or one per position.

        ``columns``: those that money is made of, each (N,). Its loss is the share of the money at stake that is lost.
        """
        if self.money is not None:
            target, sample_weight = self.money.staked(target, sample_weight, columns, self.labels)
        return self.batch(target, sample_weight).loss(input)

    def batch(self, target: Tensor, sample_weight: Tensor | None = None, *, remember: bool = True) -> Batch:
        """A batch at the present state; the memories take part in training mode, unless told otherwise."""
        buffers = self._buffers  # a module's attribute takes four times as long
        memories: Any = self.memories if remember and self.training and self.memories is not None else ()
        group = group_of(self.sync, self.training)
        return Batch(self, target, sample_weight, buffers["temperature"], buffers["weight"], memories, group)

    def set_temperature(self, temperature: float | Sequence[float]) -> None:
        """Change T in place, of all members or of each: nothing is recompiled."""
        if self.temperature is None:
            raise ValueError(f"temperature: step={str(self.step)!r} has none; use step='annealed'.")
        self.temperature.copy_(self._checked_temperature(temperature))

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
        shown = None if self.temperature is None else self.temperature.tolist()
        how = f"step={str(self.step)!r}" if shown is None else f"temperature={shown}"
        how = f"temperature={shown:.4g}" if isinstance(shown, float) else how
        if self.cross_entropy:
            how += f", cross_entropy={self.cross_entropy:g}, balance={self.balance!r}"
        return f"metric={self.metric}, task={self.task!r}, {how}"
