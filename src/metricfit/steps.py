"""Approximations of the Heaviside step, as small objects: from a probability to a soft yes or no.

A step is called with probabilities ``p`` and thresholds ``tau`` that broadcast against them and returns values in
[0, 1]. Its text is its spec: ``steps.get("linear:delta=0.1")`` is ``Linear(delta=0.1)``. Formulas and names follow the
papers (btg: Tsoi et al. 2022; east: Li et al.).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, ClassVar

import torch
from torch import Tensor

from metricfit.inputs import expect

__all__ = [
    "Amplifier", "Annealed", "Cosine", "Custom", "FivePoints", "Heaviside", "Identity", "Linear", "Sigmoid", "Step",
    "StepLike", "check_temperature", "get",
]  # fmt: skip

THRESHOLD_MARGIN = 1e-6
"""Thresholds are kept inside (margin, 1 - margin): at 0 and 1 the five points of eq. 5 coincide."""

SMALLEST_WIDTH = 1e-12
"""Middle segments are kept at least this wide: below it the square of their slope nears float32's range."""

HIGHEST_TEMPERATURE = 0.4
"""Above it the five points of east eq. 4 are out of order."""


class Step(ABC):
    """A step: ``step(p, tau)`` in [0, 1], not decreasing in ``p``."""

    has_threshold: ClassVar[bool] = True
    """Whether the step depends on ``tau``."""
    below: ClassVar[float] = math.inf
    """Its parameter, if it has one, is a number between 0 and this."""

    def __post_init__(self) -> None:
        wanted = "a number > 0" if math.isinf(self.below) else f"a number in (0, {self.below:g})"
        for part in fields(self):  # type: ignore[arg-type]
            value = _number(part.name, getattr(self, part.name))
            expect(0 < value < self.below, part.name, wanted, value)
            object.__setattr__(self, part.name, value)

    @property
    def name(self) -> str:
        """The name in specs."""
        return type(self).__name__.lower()

    @abstractmethod
    def __call__(self, p: Tensor, tau: Tensor | float) -> Tensor:
        """The soft yes or no of each probability."""

    def lipschitz(self, tau: float = 0.5) -> float:
        """The steepest slope over p in [0, 1], found on a grid with tau and 1/2; infinite for a step that jumps.

        >>> Annealed(temperature=0.2).lipschitz(0.5)
        1.2
        """
        expect(0 <= tau <= 1, "tau", "a threshold in [0, 1]", tau)
        inside = min(max(tau, THRESHOLD_MARGIN), 1 - THRESHOLD_MARGIN)  # as thresholds 0 and 1 are
        p = torch.cat([torch.linspace(0, 1, 10_001, dtype=torch.float64), torch.tensor([inside, 0.5]).double()])
        value = self(p.requires_grad_(), torch.tensor(tau, dtype=torch.float64))
        return torch.autograd.grad(value.sum(), p)[0].max().item() if value.requires_grad else math.inf

    def __str__(self) -> str:
        parts = ",".join(f"{part.name}={getattr(self, part.name):g}" for part in fields(self))  # type: ignore[arg-type]
        return f"{self.name}:{parts}" if parts else self.name


class FivePoints(Step):
    """Linear between (0, 0), (tau - w/2, delta), (tau, 1/2), (tau + w/2, 1 - delta) and (1, 1) (btg eq. 5)."""

    _knots: Any  # the height delta, and the middle width w in units of min(tau, 1 - tau)

    def __call__(self, p: Tensor, tau: Tensor | float) -> Tensor:
        tau = torch.as_tensor(tau, dtype=p.dtype, device=p.device)
        margin = max(THRESHOLD_MARGIN, torch.finfo(p.dtype).eps)  # in half precision 1 - 1e-6 is 1
        tau = tau.clamp(margin, 1 - margin)
        smallest = max(SMALLEST_WIDTH, torch.finfo(p.dtype).tiny)
        delta, factor = (x.to(p.dtype) if isinstance(x, Tensor) and x.ndim else x for x in self._knots)
        width = (factor * torch.minimum(tau, 1 - tau)).clamp_min(smallest)
        # Each segment is written so that it neither cancels at small widths nor divides by zero where it is not used
        # (at T = 0.4 the outer segments have no length). Segments are distinguished by p - tau, which is exact near
        # tau: compared with tau + width / 2, rounded, a narrow middle would overshoot 0 and 1.
        offset, half = p - tau, width / 2
        below = p * (delta / (tau - half).clamp_min(smallest))
        between = 0.5 + offset * ((1 - 2 * delta) / width)
        above = 1 - (1 - p) * (delta / (1 - tau - half).clamp_min(smallest))
        return torch.where(offset < -half, below, torch.where(offset > half, above, between))


@dataclass(frozen=True)
class Annealed(FivePoints):
    """EAST's step (east eq. 4): ``Linear`` with delta = T and a middle width of 5 T min(tau, 1 - tau).

    The temperature T is in (0, 0.4]; a tensor that broadcasts against the probabilities is taken as it is. At T = 0.2
    it is ``Linear(delta=0.2)``; as T goes to 0 it tends to the exact step.

    >>> Annealed(temperature=0.01)(torch.tensor([0.0, 0.4, 0.5, 1.0]), 0.5)
    tensor([0.0000, 0.0082, 0.5000, 1.0000])
    """

    temperature: float | Tensor = 0.2

    def __post_init__(self) -> None:
        if not isinstance(self.temperature, Tensor):  # to look at a tensor's value would wait for its device
            object.__setattr__(self, "temperature", check_temperature(self.temperature))

    _knots = property(lambda self: (self.temperature, 5 * self.temperature))


@dataclass(frozen=True)
class Linear(FivePoints):
    """The five-point linear approximation of btg eq. 5, with a middle width of min(tau, 1 - tau).

    ``delta`` is the height of the first knot, in (0, 0.5).

    >>> Linear(delta=0.1)(torch.tensor([0.0, 0.25, 0.5, 1.0]), 0.5)
    tensor([0.0000, 0.1000, 0.5000, 1.0000])
    """

    below: ClassVar[float] = 0.5
    delta: float = 0.1

    _knots = property(lambda self: (self.delta, 1.0))


@dataclass(frozen=True)
class Sigmoid(Step):
    """The sigmoid approximation 1 / (1 + exp(-k (p - tau))) of btg section 3.1, of steepness ``k``.

    >>> Sigmoid(k=10.0)(torch.tensor([0.5, 1.0]), 0.5)
    tensor([0.5000, 0.9933])
    """

    k: float = 10.0

    def __call__(self, p: Tensor, tau: Tensor | float) -> Tensor:
        return torch.sigmoid(self.k * (p - tau))


@dataclass(frozen=True)
class Amplifier(Step):
    """AnyLoss's amplifier 1 / (1 + exp(-L (p - 1/2))) of ``sharpness`` L; its threshold is always 1/2.

    >>> Amplifier()(torch.tensor([0.4, 0.5, 0.9]))
    tensor([6.7508e-04, 5.0000e-01, 1.0000e+00])
    """

    has_threshold: ClassVar[bool] = False
    sharpness: float = 73.0

    def __call__(self, p: Tensor, tau: Tensor | float = 0.5) -> Tensor:
        return torch.sigmoid(self.sharpness * (p - 0.5))


@dataclass(frozen=True)
class Cosine(Step):
    """The chance that a random threshold is below p: one with a raised cosine density on (tau - delta, tau + delta).

    This makes a metric loss a score-oriented loss (SOL, Marchetti et al. 2022).

    >>> Cosine(delta=0.1)(torch.tensor([0.4, 0.45, 0.5, 0.7]), 0.5)
    tensor([0.0000, 0.0908, 0.5000, 1.0000])
    """

    delta: float = 0.1

    def __call__(self, p: Tensor, tau: Tensor | float) -> Tensor:
        u = ((p - tau) / self.delta).clamp(-1, 1)
        return (1 + u + torch.sin(torch.pi * u) / torch.pi) / 2


@dataclass(frozen=True)
class Identity(Step):
    """The probability itself: the "soft" counts of the macro soft F-score (surrogate-fbeta eq. 23-24).

    >>> Identity()(torch.tensor([0.3]))
    tensor([0.3000])
    """

    has_threshold: ClassVar[bool] = False

    def __call__(self, p: Tensor, tau: Tensor | float = 0.5) -> Tensor:
        return p


@dataclass(frozen=True)
class Heaviside(Step):
    """The exact step: 1 where ``p >= tau``, else 0. Its gradient is zero everywhere.

    >>> Heaviside()(torch.tensor([0.2, 0.5, 0.7]), 0.5)
    tensor([0., 1., 1.])
    """

    def __call__(self, p: Tensor, tau: Tensor | float) -> Tensor:
        return (p >= tau).to(p.dtype)


@dataclass(frozen=True)
class Custom(Step):
    """Any function ``(p, tau)`` as a step.

    >>> str(Custom(torch.maximum))
    'maximum'
    """

    function: Callable[[Tensor, Any], Tensor]

    def __post_init__(self) -> None:
        """A function has no bounds."""

    def __call__(self, p: Tensor, tau: Tensor | float) -> Tensor:
        return self.function(p, tau)

    def __str__(self) -> str:  # a function has no spec to read back
        return getattr(self.function, "__name__", type(self.function).__name__)


StepLike = Step | str | Callable[[Tensor, Any], Tensor]
"""What :func:`get` takes: a step, its spec, or a function ``(p, tau)``."""

_KNOWN: tuple[type[Step], ...] = (Annealed, Linear, Sigmoid, Amplifier, Cosine, Identity, Heaviside)


def get(step: StepLike) -> Step:
    """A step from its name, spec or function; a step is returned as it is.

    >>> get("sigmoid:k=20")
    Sigmoid(k=20.0)
    >>> str(get("linear"))
    'linear:delta=0.1'
    """
    if isinstance(step, Step):
        return step
    if isinstance(step, type):
        raise TypeError(f"step: expected a step, got the class {step.__name__}; write {step.__name__}().")
    if callable(step):
        return Custom(step)
    if not isinstance(step, str):
        raise TypeError(f"step: expected a step, its spec or a function (p, tau), got {type(step).__name__}.")
    from metricfit.choices import close_to, parts_of

    name, given = parts_of(step)
    steps = {cls.__name__.lower(): cls for cls in _KNOWN}
    if name not in steps:
        raise ValueError(f"step: unknown name {name!r}; {close_to(name, steps)}")
    known = [part.name for part in fields(steps[name])]  # type: ignore[arg-type]
    for key, value in given.items():
        if key not in known:
            raise ValueError(f"step: {name!r} has no parameter {key!r}; it takes {', '.join(known) or 'none'}.")
        expect(isinstance(value, int | float), "step", f"a number for {key} in {step!r}", value)
    return steps[name](**given)


def check_temperature(temperature: float | Tensor) -> float:
    """The temperature, if it is in (0, 0.4]."""
    value = _number("temperature", temperature)
    expect(0 < value <= HIGHEST_TEMPERATURE, "temperature", f"0 < T <= {HIGHEST_TEMPERATURE}", value)
    return value


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__}.")
    return float(value)
