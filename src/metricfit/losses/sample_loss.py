"""What the losses that are sums over samples share: options, flattening, the empty batch."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, TypedDict

import torch
from torch import Tensor, nn

from metricfit._counting import probabilities
from metricfit.distributed import sum_over_processes
from metricfit.inputs import Samples, Task, check_task, flatten_inputs

__all__ = ["SampleLoss", "SampleOptions", "share_of_truth"]


class SampleOptions(TypedDict, total=False):
    """Options of every such loss, with the meaning they have in :class:`metricfit.MetricLoss`."""

    task: Task
    weight: Tensor | None
    ignore_index: int
    from_probabilities: bool
    validate: bool


class SampleLoss(nn.Module):
    """Options shared by the losses below; subclasses give the loss of flattened samples."""

    weight: Tensor | None
    group: Any = None
    """Processes whose sums are added up, for losses that do so; see :mod:`metricfit.distributed`."""

    def __init__(
        self,
        *,
        task: Task = "multiclass",
        weight: Tensor | None = None,
        ignore_index: int = -100,
        from_probabilities: bool = False,
        validate: bool = True,
    ) -> None:
        super().__init__()
        check_task(task)
        self.task: Task = task
        self.ignore_index = ignore_index
        self.from_probabilities = from_probabilities
        self.validate = validate
        self.register_buffer("weight", weight, persistent=False)

    def forward(self, input: Tensor, target: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """The loss of a batch, a scalar; 0 where everything is ignored."""
        with torch.autocast(input.device.type if isinstance(input, Tensor) else "cpu", enabled=False):
            samples = flatten_inputs(
                input,
                target,
                task=self.task,
                weight=self.weight,
                sample_weight=sample_weight,
                ignore_index=self.ignore_index,
                from_probabilities=self.from_probabilities,
                validate=self.validate,
                allow_empty=self.group is not None,
            )
            loss = self.of_samples(samples)
            (weight,) = sum_over_processes([samples.weight.sum()], self.group)
            return torch.where(weight > 0, loss, torch.zeros_like(loss))

    @abstractmethod
    def of_samples(self, samples: Samples) -> Tensor:
        """The formula."""

    def probabilities(self, samples: Samples) -> Tensor:
        """The samples' probabilities, (n, d)."""
        return probabilities(samples.scores, self.task, self.from_probabilities)


def share_of_truth(samples: Samples, p: Tensor) -> Tensor:
    """The probability given to the true class: (n,) for class indices, otherwise one a class share."""
    if samples.target.ndim == 1:
        return p.gather(1, samples.target[:, None]).squeeze(1)
    if samples.weight.ndim == 1:
        return (p * samples.target).sum(dim=-1)
    return p * samples.target + (1 - p) * (1 - samples.target)
