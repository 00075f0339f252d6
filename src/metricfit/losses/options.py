"""The options of ``MetricLoss``, validated."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Any, get_args

import torch
from torch import Tensor

from metricfit.confusion import Absent, Grid
from metricfit.inputs import Task, check_ignore_index, check_task
from metricfit.losses.cross_entropy import Balance
from metricfit.metrics import ClassMetric, Metric, get
from metricfit.steps import HIGHEST_TEMPERATURE, Amplifier, Annealed, Step, StepLike, check_temperature
from metricfit.steps import get as get_step

__all__ = [
    "LossOptions",
    "as_weights",
    "check_sizes",
    "checked_prior",
    "checked_temperature",
    "checked_threshold",
]


@dataclass(frozen=True)
class LossOptions:
    """What does not change from batch to batch, validated; see :class:`metricfit.MetricLoss` for the options.

    After construction ``metric`` has its average and ``step`` is None for the annealed step, whose temperature changes.

    Attributes:
        grids: The threshold grids of the metric, sorted.
        decides: Whether the metric is one of a single decision, without a grid, at the usual threshold.
    """

    metric: Metric
    average: str | int | None = None
    task: Task = "multiclass"
    step: Step | None = None
    ignore_index: int = -100
    absent: Absent = "skip"
    labels: tuple[Hashable, ...] | None = None
    detach_threshold: bool = False
    from_probabilities: bool = False
    cross_entropy: float = 0.0
    balance: Balance = "none"
    members: int | None = None
    validate: bool = True
    temperature: InitVar[Any] = 0.2
    threshold: InitVar[Any] = 0.5
    prior: InitVar[Any] = None
    grids: tuple[Grid, ...] = field(init=False)
    decides: bool = field(init=False)

    def __post_init__(self, temperature: Any, threshold: Any, prior: Any) -> None:
        """Raise an error for options out of range, and for those that would have no effect."""
        check_task(self.task)
        metric = with_average(get(self.metric), self.average)
        step = Annealed() if self.step is None else get_step(self.step)
        annealed = isinstance(step, Annealed)
        if self.step is not None and not _is(temperature, 0.2):
            raise ValueError(
                "temperature: the step has one already; give it once."
                if annealed
                else f"temperature: has no effect with step={str(step)!r}."
            )
        if isinstance(metric, ClassMetric) and metric.average == "none":
            raise ValueError("average: 'none' gives one value per class; a loss needs one number, choose another.")
        if self.absent not in get_args(Absent):
            raise ValueError(f"absent: expected 'skip' or 'count', got {self.absent!r}.")
        if self.balance not in get_args(Balance):
            raise ValueError(f"balance: expected 'none', 'sqrt' or 'full', got {self.balance!r}.")
        if not 0 <= self.cross_entropy < float("inf"):
            raise ValueError(f"cross_entropy: expected a weight >= 0, got {self.cross_entropy}.")
        if not self.cross_entropy and self.balance != "none":
            raise ValueError("balance: has no effect without cross_entropy; give cross_entropy a weight.")
        if prior is not None and self.balance == "none":
            raise ValueError("prior: has no effect without balance='sqrt' or 'full'.")
        members = self.members
        if members is not None and (isinstance(members, bool) or not isinstance(members, int) or members < 1):
            raise ValueError(f"members: expected a whole number >= 1, or None for no such dimension, got {members!r}.")
        check_ignore_index(self.ignore_index)
        _check_threshold_matters(metric, step, self.task, threshold, self.detach_threshold)
        grids = tuple(sorted(metric.grids(), key=lambda grid: grid or ()))
        found: dict[str, Any] = {
            "metric": metric,
            "step": None if annealed else step,
            "labels": None if self.labels is None else tuple(self.labels),
            "cross_entropy": float(self.cross_entropy),
            "grids": grids,
            "decides": grids == (None,) and (self.task == "multiclass" or _is(threshold, 0.5)),
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)


def _is(given: Any, default: float) -> bool:
    return isinstance(given, int | float) and given == default


def _check_threshold_matters(metric: Metric, step: Step, task: Task, threshold: object, detach_threshold: bool) -> None:
    only_grids = None not in metric.grids()
    if not _is(threshold, 0.5) and (only_grids or task == "multiclass" or not step.has_threshold):
        fixed = "a multiclass task, whose threshold is dynamic" if task == "multiclass" else f"step={str(step)!r}"
        fixed = f"{metric}, which has a grid of thresholds" if only_grids else fixed
        raise ValueError(f"threshold: has no effect with {fixed}.")
    if task == "multiclass" and isinstance(step, Amplifier):
        raise ValueError(
            "step: the amplifier's threshold is fixed at 1/2, which no class of many need reach; use "
            "step='sigmoid:k=73', or task='binary'."
        )
    if detach_threshold and (only_grids or task != "multiclass" or not step.has_threshold):
        raise ValueError("detach_threshold: has no effect, only the dynamic threshold of a multiclass task moves.")


def with_average(metric: Metric, average: str | int | None) -> Metric:
    """The metric with an average, where it has none of its own."""
    if average is None:
        return metric
    if not isinstance(metric, ClassMetric):
        raise ValueError(f"average: has no effect on {metric}; give the average inside the expression.")
    if metric.average != "auto" or metric.label is not None:
        raise ValueError(f"average: {metric} has one already; give it once.")
    return replace(metric, average=average)


def check_sizes(options: LossOptions, columns: int, threshold: Tensor, prior: Tensor | None) -> None:
    """Raise a ``ValueError`` where a threshold or a prior does not fit the number of classes or labels."""
    if threshold.ndim and len(threshold) != columns:
        raise ValueError(f"threshold: expected one number or {columns}, one per label, got {len(threshold)}.")
    size = 2 if options.task == "binary" else columns
    if prior is not None and len(prior) != size:
        raise ValueError(f"prior: expected {size} shares or counts, got {len(prior)}.")


def checked_temperature(
    temperature: float | Tensor | Sequence[float], step: StepLike | None, members: int | None, *, look: bool
) -> Tensor | None:
    """The temperature of the annealed step as a tensor, a scalar or one per member; None for other steps.

    Args:
        temperature: As given.
        step: As given; its own temperature counts.
        members: The members.
        look: Whether the value of a tensor may be looked at, for which a device has to finish.
    """
    chosen = Annealed() if step is None else get_step(step)
    if not isinstance(chosen, Annealed):
        return None
    if step is not None:
        temperature = chosen.temperature
    if not isinstance(temperature, Tensor):
        if isinstance(temperature, Sequence):
            temperature = torch.tensor([check_temperature(value) for value in temperature])
        else:
            temperature = torch.tensor(check_temperature(temperature))
    elif not temperature.is_floating_point():
        raise ValueError(f"temperature: expected floating-point numbers, got {temperature.dtype}.")
    # Compared in its own dtype: 0.4 in float32 is above 0.4.
    elif look and not bool(((temperature > 0) & (temperature <= HIGHEST_TEMPERATURE)).all()):
        raise ValueError(f"temperature: expected 0 < T <= {HIGHEST_TEMPERATURE}, got {temperature.tolist()}.")
    if (members is None and temperature.ndim) or temperature.shape not in ((), (members,)):
        wanted = "one number" if members is None else f"one number, or one per member, {members} in all"
        raise ValueError(f"temperature: expected {wanted}, got shape {tuple(temperature.shape)}.")
    return temperature if members is None else temperature.expand(members)


def checked_threshold(threshold: float | Sequence[float] | Tensor) -> Tensor:
    """The threshold, or one per label, as a tensor."""
    values = torch.as_tensor(threshold, dtype=torch.float32)
    if values.ndim > 1:
        raise ValueError(f"threshold: expected one number, or one per label, got shape {tuple(values.shape)}.")
    if not bool(((values > 0) & (values < 1)).all()):
        raise ValueError(f"threshold: expected numbers strictly between 0 and 1, got {threshold}.")
    return values


def checked_prior(prior: Tensor | None, task: Task) -> Tensor | None:
    """Class shares or counts as a tensor."""
    if prior is None:
        return None
    shares = as_weights(prior, "prior")
    if task == "multilabel" and bool((shares > 1).any()):
        raise ValueError(f"prior: a multilabel task expects the positive share of each label, got {prior}.")
    return shares


def as_weights(values: Tensor, name: str) -> Tensor:
    """A vector of weights or shares; ``name`` is the argument's, for the message."""
    weights = torch.as_tensor(values, dtype=torch.float32 if not isinstance(values, Tensor) else None)
    if weights.ndim != 1 or not bool((weights >= 0).all()) or not bool(weights.isfinite().all()):
        raise ValueError(f"{name}: expected a vector of finite numbers >= 0, got {values}.")
    return weights if weights.is_floating_point() else weights.float()
