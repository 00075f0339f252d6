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

SMALLEST_WIDTH = 1e-12
"""Middle segments are kept at least this wide: below it the square of their slope nears float32's range."""


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
    smallest = max(SMALLEST_WIDTH, torch.finfo(p.dtype).tiny)
    width = (5 * temperature * torch.minimum(tau, 1 - tau)).clamp_min(smallest)
    return _five_points(p, tau, temperature, width)


def amplifier_step(p: Tensor, tau: Tensor | float = 0.5, sharpness: float = 73.0) -> Tensor:
    """AnyLoss's amplifier 1 / (1 + exp(-L (p - 1/2))); its threshold is always 1/2.

    >>> amplifier_step(torch.tensor([0.4, 0.5, 0.9]))
    tensor([6.7508e-04, 5.0000e-01, 1.0000e+00])
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
    """The steepest slope of a named step over p in [0, 1], as implemented: thresholds 0 and 1 are moved inside.

    >>> lipschitz_constant("annealed_linear", tau=0.5, temperature=0.2)
    1.2
    >>> lipschitz_constant("sigmoid", k=10.0)
    2.5
    """
    if not 0 <= tau <= 1:
        raise ValueError(f"tau: expected a threshold in [0, 1], got {tau}.")
    tau = min(max(tau, THRESHOLD_MARGIN), 1 - THRESHOLD_MARGIN)
    narrow = min(tau, 1 - tau)
    if step == "linear":
        return max(linear_step_slopes(tau, delta, narrow))
    if step == "annealed_linear":
        if not temperature > 0:
            raise ValueError(f"temperature: expected a number > 0, got {temperature}.")
        return max(linear_step_slopes(tau, temperature, max(5 * temperature * narrow, SMALLEST_WIDTH)))
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
    margin = max(THRESHOLD_MARGIN, torch.finfo(p.dtype).eps)  # in half precision 1 - 1e-6 is 1
    return tau.clamp(margin, 1 - margin)


def _five_points(p: Tensor, tau: Tensor, delta: Tensor | float, width: Tensor) -> Tensor:
    # Each segment is written so that it neither cancels at small widths nor divides by zero where it
    # is not used (at T = 0.4 the outer segments have no length). Segments are told apart by p - tau, which
    # is exact near tau: compared with tau + width / 2, rounded, a narrow middle would overshoot 0 and 1.
    smallest = max(SMALLEST_WIDTH, torch.finfo(p.dtype).tiny)
    offset, half = p - tau, width / 2
    below = p * (delta / (tau - half).clamp_min(smallest))
    between = 0.5 + offset * ((1 - 2 * delta) / width)
    above = 1 - (1 - p) * (delta / (1 - tau - half).clamp_min(smallest))
    return torch.where(offset < -half, below, torch.where(offset > half, above, between))


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
    0.04
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
            flat = not values.requires_grad  # the exact step: no slope anywhere
            slopes = torch.zeros_like(p) if flat else torch.autograd.grad(values.sum(), p)[0]
        self.values, self.slopes = values.detach(), slopes.detach()

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
        """The largest deviation from the exact step over ``points`` probabilities, at the tabulated taus.

        tau = 0 and 1 are left out: there the step jumps, and no table is close to a jump.
        """
        taus = torch.linspace(0, 1, self.tau_steps + 1, dtype=torch.float64)[1:-1, None]
        p = torch.linspace(0, 1, points, dtype=torch.float64).expand(self.tau_steps - 1, -1)
        return float((self(p, taus) - self.step(p, taus)).abs().max())
