"""The surrogate F-beta loss of Lee, Yang and Yoo, a sum over samples that follows F-beta's gradient."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Unpack

import torch
from torch import Tensor
from torch.nn import functional as F

from metricfit.confusion import probabilities
from metricfit.distributed import sum_over_processes
from metricfit.inputs import Samples, Task, safe_divide
from metricfit.losses.comparison import SampleLoss, SampleOptions, sample_loss

__all__ = ["SurrogateFBetaLoss", "surrogate_fbeta_loss"]


@dataclass(frozen=True)
class _Surrogate:
    beta: float
    q: float | None
    positive_share: Tensor | None
    class_balanced: bool

    def __call__(self, samples: Samples, task: Task, from_probabilities: bool, group: Any) -> Tensor:
        """Eq. 20 or 25, averaged over samples (within each class where balanced), then over labels."""
        f = probabilities(samples.scores, task, from_probabilities)
        positive, negative = samples.weight * samples.target, samples.weight * (1 - samples.target)
        masses = [part.sum(dim=-2) for part in (positive, negative, samples.weight)]
        of_positive, of_negative, of_all = sum_over_processes(masses, group)
        share = self.positive_share
        if share is None:
            share = safe_divide(of_positive, of_all)
        elif share.ndim and len(share) not in (1, f.shape[-1]):
            raise ValueError(f"positive_share: expected one number for each of {f.shape[-1]} labels, got {len(share)}.")
        # A batch without negatives has p = 1: eq. 20 is then infinite, but no sample asks for it.
        odds = self.beta**2 * safe_divide(share, 1 - share).to(f)
        odds = odds if odds.ndim < 2 else odds[..., None, :]
        smallest = torch.finfo(f.dtype).tiny
        if self.q is None:
            missed = -f.clamp_min(smallest).log() if from_probabilities else F.softplus(-samples.scores)
            alarm = (odds + f).clamp_min(smallest).log()
        else:
            missed = (1 - f.clamp_min(smallest) ** self.q) / self.q
            alarm = ((odds + f).clamp_min(smallest) ** self.q - 1) / self.q
        sums = [(positive * missed).sum(dim=-2), (negative * alarm).sum(dim=-2)]
        missed, alarm = sum_over_processes(sums, group)
        if not self.class_balanced:
            return safe_divide(missed + alarm, of_all).mean(dim=-1)
        return ((safe_divide(missed, of_positive) + safe_divide(alarm, of_negative)) / 2).mean(dim=-1)


def _formula(
    beta: float, q: float | None, positive_share: float | Tensor | None, class_balanced: bool, options: SampleOptions
) -> _Surrogate:
    if options.setdefault("task", "binary") == "multiclass":
        raise ValueError("task: the surrogate is one of positives against negatives, 'binary' or 'multilabel'.")
    if not 0 < beta < float("inf"):
        raise ValueError(f"beta: expected a number > 0, got {beta}.")
    if q is not None and not 0 < q <= 1:
        raise ValueError(f"q: expected a number in (0, 1], or None for eq. 20, got {q}.")
    share = None if positive_share is None else torch.as_tensor(positive_share, dtype=torch.float32)
    if share is not None and not bool(((share > 0) & (share < 1)).all()):
        raise ValueError(f"positive_share: expected shares strictly between 0 and 1, got {positive_share}.")
    if share is not None and (share.ndim > 1 or (options["task"] == "binary" and share.numel() != 1)):
        raise ValueError(f"positive_share: expected one number, or one per label, got {positive_share}.")
    return _Surrogate(float(beta), q, share, class_balanced)


class SurrogateFBetaLoss(SampleLoss):
    """-y log f + (1 - y) log(β² p / (1 - p) + f), f the probability and p the share of positives (eq. 20).

    With ``q`` the noise-robust form of eq. 25: y (1 - f^q) / q + (1 - y) ((β² p / (1 - p) + f)^q - 1) / q. As in the
    paper samples are weighted by n / n_y (eq. 2), which here makes both classes count one half.

    Args:
        beta: Recall counts beta times as much as precision.
        q: Robustness in (0, 1]; ``None`` is eq. 20, the limit q → 0.
        positive_share: p of the training set, one number, or one per label; by default the batch's.
        class_balanced: Weigh the classes equally.
        options: task ("binary" or "multilabel"), weight, ignore_index, from_probabilities, members, validate.

    >>> loss = SurrogateFBetaLoss(beta=1.0, positive_share=0.5)
    >>> loss(torch.tensor([0.0, 0.0]), torch.tensor([1, 0]))  # (log 2 + log 1.5) / 2
    tensor(0.5493)
    """

    positive_share: Tensor | None

    def __init__(
        self,
        beta: float = 1.0,
        *,
        q: float | None = None,
        positive_share: float | Tensor | None = None,
        class_balanced: bool = True,
        **options: Unpack[SampleOptions],
    ) -> None:
        formula = _formula(beta, q, positive_share, class_balanced, options)
        super().__init__(replace(formula, positive_share=None), **options)
        self.register_buffer("positive_share", formula.positive_share, persistent=False)

    def forward(self, input: Tensor, target: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """The loss of a batch, a scalar, or one per member; 0 where everything is ignored."""
        formula = replace(self.formula, positive_share=self.positive_share)  # type: ignore[type-var]
        options: SampleOptions = {**self.options, "weight": self.weight}
        return sample_loss(formula, input, target, sample_weight, group=self.group, **options)


def surrogate_fbeta_loss(
    input: Tensor,
    target: Tensor,
    sample_weight: Tensor | None = None,
    *,
    beta: float = 1.0,
    q: float | None = None,
    positive_share: float | Tensor | None = None,
    class_balanced: bool = True,
    **options: Unpack[SampleOptions],
) -> Tensor:
    """The functional form of :class:`SurrogateFBetaLoss`."""
    formula = _formula(beta, q, positive_share, class_balanced, options)
    return sample_loss(formula, input, target, sample_weight, **options)
