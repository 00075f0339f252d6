"""Approximations of the Heaviside step: from a probability to a soft yes or no.

Each function takes probabilities ``p`` and thresholds ``tau`` that broadcast against them, and returns
values in [0, 1]. Formulas and names follow the papers (btg: Tsoi et al. 2022; east: Li et al.).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

__all__ = [
    "Step",
    "StepTable",
    "amplifier_step",
    "annealed_linear_step",
    "heaviside",
    "identity_step",
    "linear_step",
    "linear_step_slopes",
    "lipschitz_constant",
    "sigmoid_step",
]

Step = Callable[[Tensor, Tensor], Tensor]
"""A step: ``step(p, tau)`` in [0, 1], not decreasing in ``p``."""

THRESHOLD_MARGIN = 1e-6
"""Thresholds are kept inside (margin, 1 - margin): at 0 and 1 the five points of eq. 5 coincide."""

_SMALLEST_WIDTH = 1e-12  # below this the middle slope's square overflows float32 in the backward pass


def heaviside(p: Tensor, tau: Tensor | float) -> Tensor:
    """The exact step: 1 where ``p >= tau``, else 0. Its gradient is zero everywhere.

    >>> heaviside(torch.tensor([0.2, 0.5, 0.7]), 0.5)
    tensor([0., 1., 1.])
    """
    return (p >= tau).to(p.dtype)


def sigmoid_step(p: Tensor, tau: Tensor | float, k: float = 10.0) -> Tensor:
    """The sigmoid approximation 1 / (1 + exp(-k (p - tau))) of btg section 3.1.

    >>> sigmoid_step(torch.tensor([0.5, 1.0]), 0.5, k=10.0)
    tensor([0.5000, 0.9933])
    """
    return torch.sigmoid(k * (p - tau))


def linear_step(p: Tensor, tau: Tensor | float, delta: float = 0.1) -> Tensor:
    """The five-point linear approximation of btg eq. 5, with a middle width of min(tau, 1 - tau).

    The points are (0, 0), (tau - w/2, delta), (tau, 1/2), (tau + w/2, 1 - delta) and (1, 1).

    >>> linear_step(torch.tensor([0.0, 0.25, 0.5, 1.0]), 0.5, delta=0.1)
    tensor([0.0000, 0.1000, 0.5000, 1.0000])
    """
    tau = _inner_threshold(p, tau)
    return _five_points(p, tau, delta, torch.minimum(tau, 1 - tau))


def annealed_linear_step(p: Tensor, tau: Tensor | float, temperature: Tensor | float = 0.2) -> Tensor:
    """EAST's step (east eq. 4): ``linear_step`` with delta = T and a middle width of 5 T min(tau, 1 - tau).

    At T = 0.2 it is ``linear_step`` with delta = 0.2; as T goes to 0 it tends to the exact step.

    >>> annealed_linear_step(torch.tensor([0.0, 0.4, 0.5, 1.0]), 0.5, temperature=0.01)
    tensor([0.0000, 0.0082, 0.5000, 1.0000])
    """
    tau = _inner_threshold(p, tau)
    width = (5 * temperature * torch.minimum(tau, 1 - tau)).clamp_min(_SMALLEST_WIDTH)
    return _five_points(p, tau, temperature, width)


def amplifier_step(p: Tensor, tau: Tensor | float = 0.5, sharpness: float = 73.0) -> Tensor:
    """AnyLoss's amplifier 1 / (1 + exp(-L (p - 1/2))); its threshold is always 1/2.

    >>> amplifier_step(torch.tensor([0.1, 0.5, 0.9]))
    tensor([2.0856e-13, 5.0000e-01, 1.0000e+00])
    """
    return torch.sigmoid(sharpness * (p - 0.5))


def identity_step(p: Tensor, tau: Tensor | float = 0.5) -> Tensor:
    """The probability itself: the "soft" counts of the macro soft F-score (surrogate-fbeta eq. 23-24).

    >>> identity_step(torch.tensor([0.3]))
    tensor([0.3000])
    """
    return p


def linear_step_slopes(tau: float, delta: float, width: float) -> tuple[float, float, float]:
    """The slopes m1, m2, m3 of the three segments of the five-point step.

    >>> linear_step_slopes(0.5, delta=0.1, width=0.5)
    (0.4, 1.6, 0.4)
    """
    low, high = tau - width / 2, 1 - tau - width / 2
    return (
        delta / low if low > 0 else 0.0,
        (1 - 2 * delta) / width,
        delta / high if high > 0 else 0.0,
    )


def lipschitz_constant(
    step: str,
    tau: float = 0.5,
    *,
    temperature: float = 0.2,
    delta: float = 0.1,
    k: float = 10.0,
    sharpness: float = 73.0,
) -> float:
    """The steepest slope of a named step over p in [0, 1].

    >>> lipschitz_constant("annealed_linear", tau=0.5, temperature=0.2)
    1.2
    >>> lipschitz_constant("sigmoid", k=10.0)
    2.5
    """
    narrow = min(tau, 1 - tau)
    if step == "linear":
        return max(linear_step_slopes(tau, delta, narrow))
    if step == "annealed_linear":
        return max(linear_step_slopes(tau, temperature, 5 * temperature * narrow))
    if step == "sigmoid":
        return k / 4
    if step == "amplifier":
        return sharpness / 4
    if step == "identity":
        return 1.0
    if step == "heaviside":
        return math.inf
    raise ValueError(
        f"step: expected 'linear', 'annealed_linear', 'sigmoid', 'amplifier', 'identity' or 'heaviside', got {step!r}."
    )


def _inner_threshold(p: Tensor, tau: Tensor | float) -> Tensor:
    tau = torch.as_tensor(tau, dtype=p.dtype, device=p.device)
    return tau.clamp(THRESHOLD_MARGIN, 1 - THRESHOLD_MARGIN)


def _five_points(p: Tensor, tau: Tensor, delta: Tensor | float, width: Tensor) -> Tensor:
    # Each segment is written so that it neither cancels at small widths nor divides by zero where it
    # is not used (at T = 0.4 the outer segments have no length).
    smallest = torch.finfo(p.dtype).eps
    low, high = tau - width / 2, tau + width / 2
    below = p * (delta / low.clamp_min(smallest))
    between = 0.5 + (p - tau) * ((1 - 2 * delta) / width)
    above = 1 - (1 - p) * (delta / (1 - high).clamp_min(smallest))
    return torch.where(p < low, below, torch.where(p > high, above, between))


class StepTable:
    """The O(1) lookup table of btg section 3: a step precomputed over a grid of tau and p.

    Called like any step; values and slopes are read from the table at the nearest grid point, so a table
    can be trained with. With the paper's grid (tau in tenths, p in hundredths) it holds about 1,000 values.

    Args:
        step: The exact step to tabulate.
        tau_decimals: Decimals kept of tau.
        p_decimals: Decimals kept of p.

    >>> table = StepTable(linear_step)
    >>> table(torch.tensor([0.504]), torch.tensor(0.5))
    tensor([0.5000])
    >>> round(table.max_error(), 3)
    0.08
    """

    def __init__(self, step: Step, *, tau_decimals: int = 1, p_decimals: int = 2) -> None:
        for name, decimals in (("tau_decimals", tau_decimals), ("p_decimals", p_decimals)):
            if not 1 <= decimals <= 4:
                raise ValueError(f"{name}: expected 1, 2, 3 or 4 decimals, got {decimals}.")
        self.step = step
        self.tau_steps = 10**tau_decimals
        self.p_steps = 10**p_decimals
        taus = torch.linspace(0, 1, self.tau_steps + 1, dtype=torch.float64)[:, None]
        p = torch.linspace(0, 1, self.p_steps + 1, dtype=torch.float64)
        p = p.expand(self.tau_steps + 1, -1).clone().requires_grad_()
        with torch.enable_grad():
            values = step(p, taus)
            (slopes,) = torch.autograd.grad(values.sum(), p)
        self.values, self.slopes = values.detach(), slopes

    def __call__(self, p: Tensor, tau: Tensor | float) -> Tensor:
        """The tabulated step at the grid point nearest to (tau, p)."""
        tau = torch.as_tensor(tau, dtype=p.dtype, device=p.device)
        rows, columns = torch.broadcast_tensors(
            (tau.detach() * self.tau_steps).round().long().clamp(0, self.tau_steps),
            (p.detach() * self.p_steps).round().long().clamp(0, self.p_steps),
        )
        value = self.values.to(p)[rows, columns]
        slope = self.slopes.to(p)[rows, columns]
        # Value from the table, derivative from the table: p - p.detach() is zero and carries the gradient.
        return value + slope * (p - p.detach())

    def max_error(self, points: int = 2001) -> float:
        """The largest deviation from the exact step over ``points`` probabilities, at the tabulated taus."""
        taus = torch.linspace(0, 1, self.tau_steps + 1, dtype=torch.float64)[:, None]
        p = torch.linspace(0, 1, points, dtype=torch.float64).expand(self.tau_steps + 1, -1)
        return float((self(p, taus) - self.step(p, taus)).abs().max())
