"""What may stand beside a metric in a loss: cross-entropy, and a memory of the confusion matrix across batches."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metricfit.confusion import ConfusionMatrix
from metricfit.inputs import Samples, accumulation_dtype, expect, safe_divide

Balance = Literal["none", "sqrt", "full"]


def class_weights(prior: Tensor, balance: Balance) -> Tensor:
    """Weights ∝ prior^-1/2 (``"sqrt"``) or ∝ 1/prior (``"full"``), 1 on average over samples; 0 for absent classes."""
    power, occurs = {"none": 0.0, "sqrt": 0.5, "full": 1.0}[balance], prior > 0
    weights = torch.where(occurs, torch.where(occurs, prior, 1.0) ** -power, 0.0)
    return weights * safe_divide(prior.sum(dim=-1, keepdim=True), (weights * prior).sum(dim=-1, keepdim=True))


def cross_entropy_sums(samples: Samples, balance: Balance = "none", weights: Tensor | None = None) -> Tensor:
    """Sums of weighted losses and of weights, (2, …); of each class where the batch's own shares balance them."""
    losses, mass = losses_and_mass(samples)
    lead = samples.scores.ndim - 2
    if weights is not None:
        weights = weights.to(mass)
        mass = mass * (weights[samples.target] if losses.ndim == lead + 1 else weights)
    both = torch.stack([mass * losses, mass])
    if balance == "none" or weights is not None:
        return both.flatten(lead + 1).sum(dim=-1)
    if losses.ndim > lead + 1:
        return both.sum(dim=lead + 1)
    # One after the other thousands of float32 numbers would lose digits that a plain sum keeps.
    exact = both if both.device.type == "mps" else both.double()
    sums = exact.new_zeros(*exact.shape[:-1], samples.scores.shape[-1])
    return sums.scatter_add(-1, samples.target.expand(exact.shape), exact).to(mass.dtype)


def cross_entropy_of_sums(sums: Tensor, balance: Balance, *, members: int | None = None) -> Tensor:
    """The weighted mean cross-entropy, a scalar or (members,), given :func:`cross_entropy_sums`."""
    losses, mass = sums
    lead = 0 if members is None else 1
    if mass.ndim > lead:  # sums of each class, which the batch's own shares balance
        weights = class_weights(mass, balance)
        losses, mass = ((weights * part).flatten(lead).sum(dim=-1) for part in (losses, mass))
    return safe_divide(losses, mass)


def losses_and_mass(samples: Samples) -> tuple[Tensor, Tensor]:
    """Losses and their weights: (…, n) for class indices, else one for each class a sample has a share in."""
    scores, target, weight = samples.scores, samples.target, samples.weight
    from_probabilities, smallest = samples.from_probabilities, torch.finfo(scores.dtype).tiny
    if samples.task == "multiclass":
        if not from_probabilities and scores.shape[-1] == 2 and not target.is_floating_point():
            # softplus of what the other class leads by: log_softmax over two columns takes several times as long.
            lead = scores[..., 0] - scores[..., 1]
            return F.softplus(torch.where(target == 1, lead, -lead)), weight
        logs = scores.clamp_min(smallest).log() if from_probabilities else scores.log_softmax(dim=-1)
        if target.is_floating_point():
            return -logs, target * weight[..., None]
        return -logs.gather(-1, target[..., None]).squeeze(-1), weight
    if from_probabilities:
        positive, negative = -scores.clamp_min(smallest).log(), -(1 - scores).clamp_min(smallest).log()
    else:
        positive, negative = F.softplus(-scores), F.softplus(scores)
    shares = torch.stack([1 - target, target], dim=-1)
    return torch.stack([negative, positive], dim=-1), shares * weight[..., None]


class ConfusionMemory(nn.Module):
    """An exponential moving average of normalised confusion matrices.

    ``M = decay · M_previous + (1 - decay) · C``, with C divided by its total weight. The metric is taken of M, so a
    batch without positives still has a sensible F1. The gradient flows through the batch's C alone and keeps the
    size it would have without a memory: dM/dC is taken as 1, not ``1 - decay``.

    The decay is in [0, 1). The state is a buffer, in float32 or better: it moves with ``.to()``, is saved in the
    ``state_dict`` and synchronises with the module.

    >>> memory = ConfusionMemory(decay=0.9)
    >>> _ = memory(ConfusionMatrix(torch.tensor([[2.0, 0.0], [0.0, 2.0]])))
    >>> memory(ConfusionMatrix(torch.tensor([[0.0, 4.0], [0.0, 0.0]]))).matrix
    tensor([[0.4500, 0.1000],
            [0.0000, 0.4500]])
    """

    matrix: Tensor

    def __init__(self, decay: float) -> None:
        super().__init__()
        expect(0 <= decay < 1, "memory", "a decay in [0, 1)", decay)
        self.decay = decay
        self.register_buffer("matrix", torch.zeros(0))

    def reset(self) -> None:
        """Forget everything, for instance before training on other data."""
        self.matrix = self.matrix.new_zeros(0)

    def forward(self, cm: ConfusionMatrix) -> ConfusionMatrix:
        """The remembered matrix with this batch added, and remember it."""
        shape = tuple(cm.matrix.shape)
        total = cm.total.detach()
        total = total.reshape(total.shape + (1,) * (cm.matrix.ndim - total.ndim))
        current = cm.matrix / torch.where(total > 0, total, 1.0)
        blended = current.detach()
        if self.matrix.numel():
            if self.matrix.shape != shape:
                kept = f"remembers a matrix of shape {tuple(self.matrix.shape)}, got a batch of shape {shape}"
                raise ValueError(f"memory: {kept}; call reset() before training on other classes.")
            past = self.matrix.to(current.dtype)
            blended = self.decay * past + (1 - self.decay) * blended
            blended = torch.where(total > 0, blended, past)  # a batch where all is ignored teaches nothing
        self.matrix = blended.to(accumulation_dtype(self.matrix.dtype)) if self.matrix.numel() else blended
        return cm.with_matrix(blended + (current - current.detach()))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        saved = state_dict.get(prefix + "matrix")
        if saved is not None:
            self.matrix = torch.zeros_like(saved, device=self.matrix.device)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
