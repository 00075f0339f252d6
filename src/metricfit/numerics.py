"""The few numerical primitives that every formula shares."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["accumulation_dtype", "safe_divide"]


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which counts are summed: float64 stays, everything else becomes float32.

    >>> accumulation_dtype(torch.float16)
    torch.float32
    """
    return torch.float64 if dtype == torch.float64 else torch.float32


def safe_divide(numerator: Tensor, denominator: Tensor, undefined: float = 0.0) -> Tensor:
    """``numerator / denominator``, and ``undefined`` (with a zero gradient) where the denominator vanishes.

    A single ``torch.where`` would give the right value and a NaN gradient at 0/0; the denominator is
    therefore replaced *before* the division as well.

    >>> safe_divide(torch.tensor([1.0, 0.0]), torch.tensor([4.0, 0.0]), undefined=1.0)
    tensor([0.2500, 1.0000])
    """
    vanishes = denominator.abs() <= torch.finfo(denominator.dtype).tiny
    ratio = numerator / torch.where(vanishes, torch.ones_like(denominator), denominator)
    return torch.where(vanishes, torch.full_like(ratio, undefined), ratio)
