"""From probabilities to soft predictions: how much a sample belongs to each predicted class."""

from __future__ import annotations

import torch
from torch import Tensor

from metricfit.inputs import safe_divide
from metricfit.steps import Step

__all__ = ["dynamic_membership", "dynamic_threshold", "threshold_membership"]


def dynamic_threshold(p: Tensor) -> Tensor:
    """The mean of the two largest of each row, (…, d) to (…, 1): only the arg max exceeds it (east section 4.1).

    >>> dynamic_threshold(torch.tensor([[0.6, 0.3, 0.1]]))
    tensor([[0.4500]])
    """
    return p.topk(2, dim=-1).values.mean(dim=-1, keepdim=True)


def dynamic_membership(p: Tensor, step: Step) -> Tensor:
    """Multiclass membership H(p, tau_avg) / |H(p, tau_avg)|_1 of probabilities (…, n, d) (east eq. 5).

    Rows sum to one. Ties share: two equal largest entries get one half each as the step sharpens.

    >>> from metricfit.steps import Heaviside
    >>> dynamic_membership(torch.tensor([[0.6, 0.3, 0.1]]), Heaviside())
    tensor([[1., 0., 0.]])
    """
    h = step(p, dynamic_threshold(p))
    total = h.sum(dim=-1, keepdim=True)
    return h * safe_divide(torch.ones_like(total), total)


def threshold_membership(p: Tensor, threshold: Tensor | float, step: Step) -> Tensor:
    """Binary and multi-label membership H(p, tau) of probabilities (…, n, labels) at a fixed threshold (btg eq. 6).

    The threshold is one number, one per label, or a grid of shape (grid, 1, …), which then leads the result.

    >>> from metricfit.steps import Identity
    >>> threshold_membership(torch.tensor([[0.2], [0.9]]), 0.5, Identity())
    tensor([[0.2000],
            [0.9000]])
    """
    tau = torch.as_tensor(threshold, dtype=p.dtype, device=p.device)
    return step(p.expand(torch.broadcast_shapes(p.shape, tau.shape)), tau)
