"""Metrics joined by arithmetic: ``0.7 * Recall(1) + 0.3 * Precision(1)``."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real
from operator import add, mul, sub, truediv
from typing import Any, ClassVar

import torch
from torch import Tensor

from metricfit.confusion import ConfusionMatrix
from metricfit.inputs import Task, safe_divide
from metricfit.metrics.base import MatrixSource, Metric, spell

__all__ = ["Combination", "Constant", "combine"]

_NUMBERS: dict[str, Callable[[Any, Any], Any]] = {"+": add, "-": sub, "*": mul, "/": truediv}
_LEVEL = {"+": 1, "-": 1, "*": 2, "/": 2}


def combine(operator: str, left: Metric | float, right: Metric | float) -> Metric:
    """Join metrics and numbers; two numbers are computed at once."""
    first, second = _operand(left), _operand(right)
    if isinstance(first, Constant) and isinstance(second, Constant):
        if operator == "/" and second.value == 0:
            raise ValueError(f"metric: {first} / {second} divides by zero.")
        return Constant(_NUMBERS[operator](first.value, second.value))
    return Combination(operator, first, second)


def _operand(value: Any) -> Metric:
    if isinstance(value, Metric):
        return value
    if isinstance(value, Real) and not isinstance(value, bool):
        return Constant(float(value))
    raise TypeError(f"a metric combines with metrics and numbers, got {type(value).__name__}.")


@dataclass(frozen=True)
class Constant(Metric):
    """A number among metrics."""

    value: float
    greater_is_better: ClassVar[bool | None] = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise ValueError(f"a metric combines with finite numbers, got {self.value}.")

    @property
    def range(self) -> tuple[float, float]:  # type: ignore[override]
        """The number itself, twice."""
        return (self.value, self.value)

    @property
    def perfect(self) -> float:
        """The number itself."""
        return self.value

    def compute(self, cm: ConfusionMatrix) -> Tensor:
        """The number, in the matrix's dtype and batch shape."""
        return cm.matrix.new_full(cm.batch_shape, self.value)

    def grids(self) -> set[tuple[float, ...] | None]:
        """None: a number needs no matrix."""
        return set()

    def __str__(self) -> str:
        return spell(self.value)


@dataclass(frozen=True)
class Combination(Metric):
    """Two metrics joined by ``+``, ``-``, ``*`` or ``/``.

    The best value is the combination of the best values and the range follows by interval arithmetic. Sums and
    products of metrics that pull in opposite directions are refused, and so are quotients without a best value. A
    quotient of two metrics takes its direction from the numerator: ``2 * p * r / (p + r)`` is to be maximised.
    """

    operator: str
    left: Metric
    right: Metric

    def __post_init__(self) -> None:
        from metricfit.metrics.constraints import Constrained

        if isinstance(self.left, Constrained) or isinstance(self.right, Constrained):
            raise ValueError("metric: combine metrics first, then put the result under constraints with subject_to.")
        _ = self.greater_is_better
        if self.operator == "/" and self.right.perfect == 0:
            raise ValueError(
                f"metric: {self}: the best value of the denominator is 0, so the quotient has none; divide by "
                "something that stays away from 0."
            )

    @property
    def greater_is_better(self) -> bool | None:  # type: ignore[override]
        """The common direction of the parts, each seen with its sign."""
        left, right = self.left.greater_is_better, self.right.greater_is_better
        if self.operator in "*/":
            if isinstance(self.right, Constant):
                return left if left is None or self.right.value >= 0 else not left
            if isinstance(self.left, Constant) and right is not None:
                return right is ((self.left.value >= 0) is (self.operator == "*"))
            if self.operator == "/":
                return left
        if self.operator == "-" and right is not None:
            right = not right
        if left is not None and right is not None and left != right:
            verb = "multiplies" if self.operator == "*" else "adds up"
            raise ValueError(
                f"metric: {self}: {verb} a metric to be maximised and one to be minimised; turn the sign of one of "
                "them, or take 1 minus it."
            )
        return left if left is not None else right

    @property
    def perfect(self) -> float:
        """The combination of the parts' best values."""
        best: float = _NUMBERS[self.operator](self.left.perfect, self.right.perfect)
        return best

    @property
    def range(self) -> tuple[float, float]:  # type: ignore[override]
        """Smallest and largest value by interval arithmetic."""
        left, right = self.left.range, self.right.range
        if self.operator != "/" or not right[0] <= 0 <= right[1]:
            ends = [_NUMBERS[self.operator](a, b) for a in left for b in right]
            if not any(map(math.isnan, ends)):  # of two infinities, or zero times infinity
                return (min(ends), max(ends))
        return (-math.inf, math.inf)

    def compute(self, cm: ConfusionMatrix) -> Tensor:
        """The combination of the parts' values on the same matrix."""
        return self._join(lambda part: part.compute(cm))

    def evaluate(self, source: MatrixSource) -> Tensor:
        """The combination of the parts, each on the matrix or the grid it needs."""
        return self._join(lambda part: part.evaluate(source))

    def _join(self, value_of: Callable[[Metric], Tensor]) -> Tensor:
        # A number takes the dtype of what it meets: in float32, 0.7 would be off in the eighth digit.
        if isinstance(self.left, Constant):
            right = value_of(self.right)
            left = torch.full_like(right, self.left.value)
        elif isinstance(self.right, Constant):
            left = value_of(self.left)
            right = torch.full_like(left, self.right.value)
        else:
            left, right = value_of(self.left), value_of(self.right)
        if left.ndim != right.ndim:  # one has a value per class; the other's is the same for all
            left, right = (v[..., None] if v.ndim < max(left.ndim, right.ndim) else v for v in (left, right))
        if self.operator == "/":
            left, right = torch.broadcast_tensors(left, right)
            return safe_divide(left, right)
        joined: Tensor = _NUMBERS[self.operator](left, right)
        return joined

    def _parts(self) -> tuple[Metric, ...]:
        return self.left, self.right

    def resolve(self, labels: tuple[Any, ...], task: Task) -> Combination:
        """The combination of the resolved parts."""
        return replace(self, left=self.left.resolve(labels, task), right=self.right.resolve(labels, task))

    def __str__(self) -> str:
        level = _LEVEL[self.operator]
        left, right = _bracketed(self.left, level), _bracketed(self.right, level + 1)
        return f"{left}*{right}" if self.operator == "*" else f"{left} {self.operator} {right}"


def _bracketed(part: Metric, level: int) -> str:
    loose = isinstance(part, Combination) and _LEVEL[part.operator] < level
    return f"({part})" if loose else str(part)
