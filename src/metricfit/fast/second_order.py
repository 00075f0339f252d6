"""Second derivatives of what has a closed-form first one."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["second_order"]


def second_order(plain: Callable[[Tensor], Tensor], scores: Tensor, gradient: Tensor) -> tuple[Tensor, ...]:
    """A gradient that can be differentiated again, through the plain formulas."""
    return torch.autograd.grad(plain(scores), scores, gradient, create_graph=True)
