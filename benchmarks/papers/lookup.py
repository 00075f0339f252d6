"""The O(1) lookup table of btg section 3: a step over a grid of thresholds and probabilities."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from metricfit.steps import Step

__all__ = ["Tabulated"]


@dataclass(frozen=True)
class Tabulated(Step):
    """The O(1) lookup table of btg section 3: a step precomputed over a grid of tau and p.

    Values and slopes are read from the table at the nearest grid point, so a table can be trained with. With the
    paper's grid (tau in tenths, p in hundredths) it holds about 1,000 values.

    Args:
        step: The step to tabulate.
        tau_decimals: Decimals kept of tau.
        p_decimals: Decimals kept of p.

    >>> from metricfit.steps import Linear
    >>> table = Tabulated(Linear())
    >>> table(torch.tensor([0.504]), torch.tensor(0.5))
    tensor([0.5000])
    >>> round(table.max_error(), 3)
    0.04
    """

    name: ClassVar[str] = "tabulated"
    step: Step
    tau_decimals: int = 1
    p_decimals: int = 2
    values: Tensor = field(init=False, repr=False, compare=False)
    slopes: Tensor = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, decimals in (("tau_decimals", self.tau_decimals), ("p_decimals", self.p_decimals)):
            if not 1 <= decimals <= 4:
                raise ValueError(f"{name}: expected 1, 2, 3 or 4 decimals, got {decimals}.")
        taus, p = (torch.linspace(0, 1, size + 1, dtype=torch.float64) for size in self._sizes)
        p = p.expand(len(taus), -1).clone().requires_grad_()
        with torch.enable_grad():
            values = self.step(p, taus[:, None])
            flat = not values.requires_grad  # the exact step: no slope anywhere
            slopes = torch.zeros_like(p) if flat else torch.autograd.grad(values.sum(), p)[0]
        object.__setattr__(self, "values", values.detach())
        object.__setattr__(self, "slopes", slopes.detach())

    @property
    def _sizes(self) -> tuple[int, int]:
        return 10**self.tau_decimals, 10**self.p_decimals

    def __call__(self, p: Tensor, tau: Tensor | float) -> Tensor:
        """The tabulated step at the grid point nearest to (tau, p)."""
        tau = torch.as_tensor(tau, dtype=p.dtype, device=p.device)
        rows, columns = torch.broadcast_tensors(
            *((x.detach() * n).round().long().clamp(0, n) for x, n in zip((tau, p), self._sizes, strict=True))
        )
        value, slope = self.values.to(p)[rows, columns], self.slopes.to(p)[rows, columns]
        # Value from the table, derivative from the table: p - p.detach() is zero and carries the gradient.
        return value + slope * (p - p.detach())

    def max_error(self, points: int = 2001) -> float:
        """The largest deviation from the exact step over ``points`` probabilities, at the tabulated taus.

        tau = 0 and 1 are left out: there the step jumps, and no table is close to a jump.
        """
        taus = torch.linspace(0, 1, self._sizes[0] + 1, dtype=torch.float64)[1:-1, None]
        p = torch.linspace(0, 1, points, dtype=torch.float64).expand(len(taus), -1)
        return float((self(p, taus) - self.step(p, taus)).abs().max())

    def __str__(self) -> str:
        return f"tabulated({self.step})"
