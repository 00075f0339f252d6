"""The formula of a metric: recorded once from its Python function, then computed, printed, translated.

A function such as ``def recall(c): return c.tp / (c.tp + c.fn)`` is called once, with :class:`Symbols` in place of
counts. What it does to them is kept as a list of steps. Everything else reads that list: tensors in, value out here;
the text of the formula, its JavaScript and its coefficients in :mod:`metricfit.metrics.translation`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from metricfit.confusion import ConfusionMatrix

__all__ = ["Formula", "Operators", "Symbols", "Term", "trace"]

COUNTS = ("tp", "fp", "fn", "tn")
T = TypeVar("T")


class Operators(Generic[T]):
    """Arithmetic with numbers and with its own kind; a subclass defines ``_operate``."""

    def _operate(self, operator: str, left: Any, right: Any) -> T:
        raise NotImplementedError

    def __add__(self, other: T | float) -> T:
        return self._operate("+", self, other)

    def __radd__(self, other: float) -> T:
        return self._operate("+", other, self)

    def __sub__(self, other: T | float) -> T:
        return self._operate("-", self, other)

    def __rsub__(self, other: float) -> T:
        return self._operate("-", other, self)

    def __mul__(self, other: T | float) -> T:
        return self._operate("*", self, other)

    def __rmul__(self, other: float) -> T:
        return self._operate("*", other, self)

    def __truediv__(self, other: T | float) -> T:
        return self._operate("/", self, other)

    def __rtruediv__(self, other: float) -> T:
        return self._operate("/", other, self)

    def __neg__(self) -> T:
        return self._operate("*", -1.0, self)


class Term(Operators["Term"]):
    """A part of a formula; arithmetic on it gives further parts.

    0/0 makes the whole formula undefined: its value is then the metric's ``zero_division``, with a zero gradient.
    """

    def __init__(self, symbols: Symbols, index: int) -> None:
        self.symbols = symbols
        self.index = index

    def _operate(self, operator: str, left: Any, right: Any) -> Term:
        return self.symbols.step(operator, left, right)

    def __pow__(self, power: float) -> Term:
        return self._operate("**", self, power)

    def __bool__(self) -> bool:
        raise TypeError("a formula cannot branch: its counts are symbols. Use arithmetic, c.sum and c.mean only.")


class Symbols:
    """What a metric's function is given: the counts of a class against the rest, and sums over all classes.

    Attributes:
        tp: True positives.
        fp: False positives.
        fn: False negatives.
        tn: True negatives.
        n: All samples.
    """

    def __init__(self) -> None:
        self.steps: dict[tuple[Any, ...], int] = {}
        self.tp, self.fp, self.fn, self.tn, self.n = (self.step(name) for name in (*COUNTS, "n"))

    def step(self, name: str, *arguments: Any) -> Term:
        """Record a step, or find it if it is recorded already."""
        made = (name, *(arguments if name in ("number", "parameter") else map(self._place, arguments)))
        return Term(self, self.steps.setdefault(made, len(self.steps)))

    def _place(self, value: Any) -> int:
        if isinstance(value, (int, float)):
            value = self.step("number", float(value))
        if not isinstance(value, Term):
            raise TypeError(f"a formula holds counts, parameters and numbers, got {type(value).__name__}.")
        return value.index

    def sum(self, term: Term) -> Term:
        """The sum over all classes. Of one class: over the class and the rest."""
        return self.step("sum", term)

    def mean(self, term: Term) -> Term:
        """The mean over the classes for which the term is defined."""
        return self.step("mean", term)

    def geometric_mean(self, term: Term) -> Term:
        """The geometric mean over the classes for which the term is defined."""
        return self.step("geometric_mean", term)

    def observed(self, weights: Term) -> Term:
        """Σᵢⱼ wᵢⱼ cᵢⱼ; w is a matrix, or "none", "linear", "quadratic" for |i - j|⁰, |i - j|¹, |i - j|²."""
        return self.step("observed", weights)

    def expected(self, weights: Term) -> Term:
        """Σᵢⱼ wᵢⱼ tᵢ pⱼ of the true and the predicted counts; weights as in :meth:`observed`."""
        return self.step("expected", weights)


def trace(function: Callable[..., Any], parameters: tuple[str, ...] = ()) -> Formula:
    """Record the formula of a function of :class:`Symbols` and parameters.

    >>> trace(lambda c: c.tp / (c.tp + c.fn)).counts
    ('tp', 'fn')
    """
    symbols = Symbols()
    result = function(symbols, **{name: symbols.step("parameter", name) for name in parameters})
    if not isinstance(result, Term):
        raise TypeError(f"{function.__name__}: expected a formula of the counts, got {type(result).__name__}.")
    recorded, needed = list(symbols.steps), {result.index}
    for index in range(result.index, -1, -1):
        if index in needed:
            needed.update(place for place in recorded[index][1:] if isinstance(place, int))
    places = {old: new for new, old in enumerate(sorted(needed))}
    steps: list[tuple[Any, ...]]
    steps = [tuple(places[a] if isinstance(a, int) else a for a in recorded[index]) for index in places]
    names = {step[0] for step in steps}
    degrees: list[float] = []
    varies: list[bool] = []
    for name, *arguments in steps:
        degrees.append(_degree(name, arguments, degrees, steps))
        varies.append(name in COUNTS or (name in _ARITHMETIC and any(varies[a] for a in arguments)))
    whole = not names.isdisjoint(_OVER_CLASSES)
    if whole is varies[-1]:
        raise ValueError(
            f"{function.__name__}: expected one value, of a class or of the whole matrix; put every count of a "
            "formula of the whole matrix under c.sum or c.mean."
        )
    scaled = max(degrees) > 1
    every = not whole and (scaled or "n" in names)  # to be added up
    return Formula(tuple(steps), tuple(c for c in COUNTS if every or c in names), whole, scaled)


def _degree(name: str, arguments: list[Any], degrees: list[float], steps: list[tuple[Any, ...]]) -> Any:
    """The power of the counts in a step: a product of two counts has 2."""
    if name in ("number", "parameter"):
        return 0.0
    if name in (*COUNTS, "n", "observed", "expected"):
        return 2.0 if name == "expected" else 1.0
    found = [degrees[argument] for argument in arguments]
    if name == "**":
        return found[0] * float(steps[arguments[1]][1])
    return {"*": sum(found), "/": found[0] - found[-1]}.get(name, max(found))


class _Value(NamedTuple):
    """The value of a step, and where it is 0/0: a mask, or False."""

    value: Any
    undefined: Any = False


@dataclass(frozen=True)
class Formula:
    """A formula as steps; each is an operation and the indices of the steps it works on. The last is the result.

    Attributes:
        steps: The steps.
        counts: The names of the counts that are needed.
        whole: Whether it is a formula of the whole matrix, and not of one class against the rest.
        scaled: Whether it multiplies counts. They are then divided by their total, so that nothing overflows.
    """

    steps: tuple[tuple[Any, ...], ...]
    counts: tuple[str, ...]
    whole: bool
    scaled: bool

    def of_counts(self, counts: dict[str, Tensor], parameters: Mapping[str, Any], undefined: float) -> Tensor:
        """The value for each class, elementwise; a tuple among the parameters has one number per class."""
        if self.whole:  # of the class and the rest as two classes
            cells = [counts[name] for name in ("tn", "fp", "fn", "tp")]
            return self.of_matrix(torch.stack(cells, dim=-1).unflatten(-1, (2, 2)), parameters, undefined)
        if self.scaled:
            total = torch.as_tensor(sum(counts.values())).detach()
            counts = {name: count / total.masked_fill(total <= 0, 1.0) for name, count in counts.items()}
        return self._run(counts, None, parameters, undefined)

    def of_matrix(self, matrix: Tensor, parameters: Mapping[str, Any], undefined: float) -> Tensor:
        """The value of whole matrices (…, d, d); arguments as in :meth:`of_counts`."""
        if self.scaled:
            total = matrix.sum(dim=(-1, -2), keepdim=True).detach()
            matrix = matrix / total.masked_fill(total <= 0, 1.0)
        cm = ConfusionMatrix(matrix)
        counts = {name: getattr(cm, name) for name in self.counts}
        return self._run(counts, cm, parameters, undefined).squeeze(-1)

    def _run(self, counts: dict[str, Tensor], cm: Any, parameters: Mapping[str, Any], undefined: float) -> Tensor:
        values: list[_Value] = []
        for name, *arguments in self.steps:
            if name in COUNTS:
                found = _Value(counts[name])
            elif name == "n":
                found = _Value(sum(counts.values()) if cm is None else cm.total[..., None])
            elif name == "number":
                found = _Value(arguments[0])
            elif name == "parameter":
                found = _Value(_parameter(arguments[0], parameters[arguments[0]], counts))
            elif name in ("observed", "expected"):
                found = _Value(_weighted(name == "expected", values[arguments[0]].value, cm))
            elif name in _ARITHMETIC:
                found = _ARITHMETIC[name](*(values[argument] for argument in arguments))
            else:
                found = _OVER_CLASSES[name](values[arguments[0]])
            values.append(found)
        value, where = values[-1]
        result: Tensor = value if where is False else value.masked_fill(where, undefined)
        return result


def one_per_class(value: Any) -> bool:
    """Whether a parameter has one number per class."""
    return isinstance(value, tuple) and not isinstance(value[0], tuple)


def _parameter(name: str, value: Any, counts: dict[str, Tensor]) -> Any:
    if not one_per_class(value):
        return value
    like = next(iter(counts.values()))
    if like.shape[-1:] != (len(value),):
        raise ValueError(f"{name}: expected one number for each of the {like.shape[-1]} classes, got {len(value)}.")
    return torch.tensor(value, dtype=like.dtype, device=like.device)


def _weighted(expected: bool, weights: Any, cm: ConfusionMatrix) -> Tensor:
    cells = cm.support[..., :, None] * cm.predicted[..., None, :] if expected else cm.matrix
    if isinstance(weights, str):
        ranks = torch.arange(cells.shape[-1], dtype=cells.dtype, device=cells.device)
        gaps = (ranks[:, None] - ranks).abs()
        weight = {"none": (gaps > 0).to(cells.dtype), "linear": gaps, "quadratic": gaps**2}[weights]
    else:
        weight = torch.tensor(weights, dtype=cells.dtype, device=cells.device)
        if weight.shape != cells.shape[-2:]:
            size = cells.shape[-1]
            raise ValueError(f"matrix: expected costs for {size} classes, got {len(weights)} x {len(weights[0])}.")
    return (weight * cells).sum(dim=(-1, -2))[..., None]


def _divide(above: _Value, below: _Value) -> _Value:
    where = above.undefined | below.undefined
    if not isinstance(below.value, Tensor):
        return _Value(above.value / below.value, where)
    # The denominator is replaced before the division: a single choice afterwards has a NaN gradient at 0/0.
    vanishes = below.value.abs() <= torch.finfo(below.value.dtype).tiny
    return _Value(above.value / below.value.masked_fill(vanishes, 1.0), where | vanishes)


def _power(base: _Value, exponent: _Value) -> _Value:
    if exponent.value != 0.5 or not isinstance(base.value, Tensor):
        return _Value(base.value**exponent.value, base.undefined)
    # The root has a zero gradient at zero instead of an infinite one.
    vanishes = base.value <= torch.finfo(base.value.dtype).tiny  # false for NaN, which stays NaN
    return _Value(base.value.masked_fill(vanishes, 1.0).sqrt().masked_fill(vanishes, 0.0), base.undefined)


def _sum(each: _Value) -> _Value:
    where = each.undefined is not False and each.undefined.any(dim=-1, keepdim=True)
    return _Value(each.value.sum(dim=-1, keepdim=True), where)


def _mean(each: _Value) -> _Value:
    if each.undefined is False:
        return _Value(each.value.mean(dim=-1, keepdim=True))
    number = (~each.undefined).sum(dim=-1, keepdim=True)
    total = each.value.masked_fill(each.undefined, 0.0).sum(dim=-1, keepdim=True)
    return _Value(total / number.clamp_min(1), number == 0)


def _geometric_mean(each: _Value) -> _Value:
    vanishes = each.value <= torch.finfo(each.value.dtype).tiny
    logs = _mean(_Value(each.value.masked_fill(vanishes, 1.0).log(), each.undefined))
    missed = vanishes & ~torch.as_tensor(each.undefined, device=vanishes.device)
    return _Value(logs.value.exp().masked_fill(missed.any(dim=-1, keepdim=True), 0.0), logs.undefined)


_ARITHMETIC: dict[str, Callable[..., _Value]] = {
    "+": lambda a, b: _Value(a.value + b.value, a.undefined | b.undefined),
    "-": lambda a, b: _Value(a.value - b.value, a.undefined | b.undefined),
    "*": lambda a, b: _Value(a.value * b.value, a.undefined | b.undefined),
    "/": _divide,
    "**": _power,
}
_OVER_CLASSES: dict[str, Any] = {
    "sum": _sum, "mean": _mean, "geometric_mean": _geometric_mean, "observed": None, "expected": None,
}  # fmt: skip
