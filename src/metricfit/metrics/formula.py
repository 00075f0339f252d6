"""The formula of a metric: recorded once from its Python function, then computed, printed, translated.

A function such as ``def recall(c): return c.tp / (c.tp + c.fn)`` is called once, with :class:`Symbols` in place of
counts. What it does to them is kept as a list of steps. Everything else reads that list: tensors in, value out;
the text of the formula; its JavaScript; its coefficients, if it is a quotient of linear forms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from metricfit.confusion import ConfusionMatrix

__all__ = ["Formula", "Fraction", "Symbols", "Term", "trace"]

Fraction = tuple[tuple[float, float, float, float], tuple[float, float, float, float]]
"""Coefficients of (tp, fp, fn, tn) in a numerator and in a denominator."""

COUNTS = ("tp", "fp", "fn", "tn")


class Term:
    """A part of a formula; arithmetic on it gives further parts.

    0/0 makes the whole formula undefined: its value is then the metric's ``zero_division``, with a zero gradient.
    """

    def __init__(self, symbols: Symbols, index: int) -> None:
        self.symbols = symbols
        self.index = index

    def __add__(self, other: Term | float) -> Term:
        return self.symbols.step("+", self, other)

    def __radd__(self, other: float) -> Term:
        return self.symbols.step("+", other, self)

    def __sub__(self, other: Term | float) -> Term:
        return self.symbols.step("-", self, other)

    def __rsub__(self, other: float) -> Term:
        return self.symbols.step("-", other, self)

    def __mul__(self, other: Term | float) -> Term:
        return self.symbols.step("*", self, other)

    def __rmul__(self, other: float) -> Term:
        return self.symbols.step("*", other, self)

    def __truediv__(self, other: Term | float) -> Term:
        return self.symbols.step("/", self, other)

    def __rtruediv__(self, other: float) -> Term:
        return self.symbols.step("/", other, self)

    def __pow__(self, power: float) -> Term:
        return self.symbols.step("**", self, power)

    def __neg__(self) -> Term:
        return self.symbols.step("*", -1, self)

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
        self.steps: list[tuple[Any, ...]] = []
        self.tp, self.fp, self.fn, self.tn, self.n = (self.step(name) for name in (*COUNTS, "n"))

    def step(self, name: str, *arguments: Term | float | str) -> Term:
        """Record a step, or find it if it is recorded already."""
        named = name == "parameter"
        made = (name, *(argument if named else self._place(argument) for argument in arguments))
        if made not in self.steps:
            self.steps.append(made)
        return Term(self, self.steps.index(made))

    def _place(self, value: Term | float | str) -> int:
        if isinstance(value, Term):
            return value.index
        if not isinstance(value, (int, float)):
            raise TypeError(f"a formula holds counts, parameters and numbers, got {type(value).__name__}.")
        if ("number", float(value)) not in self.steps:
            self.steps.append(("number", float(value)))
        return self.steps.index(("number", float(value)))

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

    >>> formula = trace(lambda c: c.tp / (c.tp + c.fn) + c.tn / (c.tn + c.fp) - 1)
    >>> formula.text
    'TP / (TP + FN) + TN / (TN + FP) - 1'
    """
    symbols = Symbols()
    result = function(symbols, **{name: symbols.step("parameter", name) for name in parameters})
    if not isinstance(result, Term):
        raise TypeError(f"{function.__name__}: expected a formula of the counts, got {type(result).__name__}.")
    needed = {result.index}
    for index in range(result.index, -1, -1):
        if index in needed:
            needed.update(place for place in symbols.steps[index][1:] if isinstance(place, int))
    places = {old: new for new, old in enumerate(sorted(needed))}
    steps = [symbols.steps[index] for index in sorted(needed)]
    steps = [(step[0], *(places[a] if isinstance(a, int) else a for a in step[1:])) for step in steps]
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
    """The value of a step, and where it is 0/0."""

    value: Any
    undefined: Tensor | None = None


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
        """The value for each class, elementwise.

        Args:
            counts: The counts that the formula needs, one shape.
            parameters: Its parameters; a tuple of numbers has one per class.
            undefined: The value of 0/0.
        """
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
        result: Tensor = value if where is None else value.masked_fill(where, undefined)
        return result

    def fraction(self, parameters: Mapping[str, Any]) -> Fraction | None:
        """Its coefficients where it is a quotient of linear forms of the counts of a class, else None.

        >>> trace(lambda c: c.tp / (c.tp + c.fn) - 1).fraction({})
        ((0.0, 0.0, -1.0, 0.0), (1.0, 0.0, 1.0, 0.0))
        """
        forms: list[_Linear | None] = []
        for name, *arguments in self.steps:
            if name in (*COUNTS, "n"):
                forms.append(_Linear(tuple(float(name in (count, "n")) for count in COUNTS)))
            elif name in ("number", "parameter"):
                number = arguments[0] if name == "number" else parameters[arguments[0]]
                forms.append(_Linear(constant=number) if isinstance(number, (int, float)) else None)
            else:
                parts = [forms[argument] for argument in arguments]
                linear = name in _ARITHMETIC and None not in parts
                forms.append(_Linear.join(name, *parts) if linear else None)
        last = forms[-1]
        if last is None or last.below is None or last.constant:
            return None
        return last.above, last.below  # type: ignore[return-value]

    @property
    def text(self) -> str:
        """The formula to read."""
        return _printed(self, len(self.steps) - 1, _TEXT)[0]

    @property
    def javascript(self) -> str:
        """The formula as a JavaScript function: of the counts ``c`` of a class, or of a matrix ``m``; and parameters.

        >>> trace(lambda c: c.tp / (c.tp + c.fn)).javascript
        '(c, p) => divide(c.tp, c.tp + c.fn)'
        """
        return f"({'m' if self.whole else 'c'}, p) => {_printed(self, len(self.steps) - 1, _JAVASCRIPT)[0]}"


def _parameter(name: str, value: Any, counts: dict[str, Tensor]) -> Any:
    if not isinstance(value, tuple) or isinstance(value[0], tuple):
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


def _either(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    if first is None or second is None:
        return second if first is None else first
    return first | second


def _divide(above: _Value, below: _Value) -> _Value:
    where = _either(above.undefined, below.undefined)
    if not isinstance(below.value, Tensor):
        return _Value(above.value / below.value, where)
    # The denominator is replaced before the division: a single choice afterwards has a NaN gradient at 0/0.
    vanishes = below.value.abs() <= torch.finfo(below.value.dtype).tiny
    return _Value(above.value / below.value.masked_fill(vanishes, 1.0), _either(where, vanishes))


def _power(base: _Value, exponent: _Value) -> _Value:
    if exponent.value != 0.5 or not isinstance(base.value, Tensor):
        return _Value(base.value**exponent.value, base.undefined)
    # The root has a zero gradient at zero instead of an infinite one.
    vanishes = base.value <= torch.finfo(base.value.dtype).tiny  # false for NaN, which stays NaN
    return _Value(base.value.masked_fill(vanishes, 1.0).sqrt().masked_fill(vanishes, 0.0), base.undefined)


def _sum(each: _Value) -> _Value:
    where = None if each.undefined is None else each.undefined.any(dim=-1, keepdim=True)
    return _Value(each.value.sum(dim=-1, keepdim=True), where)


def _mean(each: _Value) -> _Value:
    if each.undefined is None:
        return _Value(each.value.mean(dim=-1, keepdim=True))
    number = (~each.undefined).sum(dim=-1, keepdim=True)
    total = each.value.masked_fill(each.undefined, 0.0).sum(dim=-1, keepdim=True)
    return _Value(total / number.clamp_min(1), number == 0)


def _geometric_mean(each: _Value) -> _Value:
    vanishes = each.value <= torch.finfo(each.value.dtype).tiny
    logs = _mean(_Value(each.value.masked_fill(vanishes, 1.0).log(), each.undefined))
    missed = vanishes if each.undefined is None else vanishes & ~each.undefined
    return _Value(logs.value.exp().masked_fill(missed.any(dim=-1, keepdim=True), 0.0), logs.undefined)


_ARITHMETIC: dict[str, Callable[..., _Value]] = {
    "+": lambda a, b: _Value(a.value + b.value, _either(a.undefined, b.undefined)),
    "-": lambda a, b: _Value(a.value - b.value, _either(a.undefined, b.undefined)),
    "*": lambda a, b: _Value(a.value * b.value, _either(a.undefined, b.undefined)),
    "/": _divide,
    "**": _power,
}
_OVER_CLASSES: dict[str, Any] = {
    "sum": _sum, "mean": _mean, "geometric_mean": _geometric_mean, "observed": None, "expected": None,
}  # fmt: skip


class _Linear(NamedTuple):
    """(Σ above · counts + constant) / (Σ below · counts); without ``below`` only the numerator."""

    above: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)
    below: tuple[float, ...] | None = None
    constant: float = 0.0

    @property
    def number(self) -> float | None:
        return None if self.below or any(self.above) else self.constant

    def times(self, factor: float) -> _Linear:
        return _Linear(tuple(factor * v for v in self.above), self.below, factor * self.constant)

    def over(self, below: tuple[float, ...] | None) -> _Linear | None:
        """The same with that denominator, where it is a number or has that denominator."""
        if self.below == below:
            return self
        if self.number is None or below is None:
            return None
        return _Linear(tuple(self.number * v for v in below), below)

    @staticmethod
    def join(name: str, a: _Linear, b: _Linear) -> _Linear | None:
        if name in "+-":
            below = a.below or b.below
            first, second = a.over(below), b.times(1 if name == "+" else -1).over(below)
            if first is None or second is None:
                return None
            sums = tuple(x + y for x, y in zip(first.above, second.above, strict=True))
            return _Linear(sums, below, first.constant + second.constant)
        if b.number is not None:
            if name == "**":
                return None if a.number is None else _Linear(constant=a.number**b.number)
            return a.times(b.number if name == "*" else 1 / b.number)
        if name == "*" and a.number is not None:
            return b.times(a.number)
        if name == "/" and a.below is None and b.below is None and not a.constant and not b.constant:
            return _Linear(a.above, b.above)
        return None


_GREEK = {"alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "theta": "θ", "lambda_": "λ", "tau": "τ"}
_TEXT = {
    "/": "{} / {}", "*": "{}·{}", "**": "{}^{}", "root": "√({})", "sum": "Σₖ {}", "mean": "meanₖ {}",
    "geometric_mean": "geometric meanₖ {}", "observed": "Σᵢⱼ wᵢⱼ cᵢⱼ", "expected": "Σᵢⱼ wᵢⱼ tᵢ pⱼ",
}  # fmt: skip
_JAVASCRIPT = {
    "/": "divide({}, {})", "*": "{} * {}", "**": "({} ** {})", "root": "root({})",
    "sum": "total(m, (c) => {})", "mean": "mean(m, (c) => {})", "geometric_mean": "geometricMean(m, (c) => {})",
    "observed": "observed(m, {})", "expected": "expected(m, {})",
}  # fmt: skip


def _printed(formula: Formula, index: int, language: dict[str, str]) -> tuple[str, int]:
    """A step in a language, and how firmly it holds together: 1 a sum, 2 a product, 3 what needs no brackets."""
    name, *arguments = formula.steps[index]
    text = language is _TEXT

    def part(place: int, level: int) -> str:
        inner, holds = _printed(formula, arguments[place], language)
        return inner if holds >= level else f"({inner})"

    if name in COUNTS:
        return (name.upper() + ("ₖ" if formula.whole else "") if text else f"c.{name}"), 3
    if name == "n":
        return ("n" if text else "m.n" if formula.whole else "(c.tp + c.fp + c.fn + c.tn)"), 3
    if name == "number":
        return f"{arguments[0]:.17g}", 3 if arguments[0] >= 0 else 1
    if name == "parameter":
        return (_GREEK.get(arguments[0], arguments[0]) if text else f"p.{arguments[0]}"), 3
    if name in "+-":
        return f"{part(0, 1)} {name} {part(1, 1 if name == '+' else 2)}", 1
    if name == "**" and formula.steps[arguments[1]] == ("number", 0.5):
        return language["root"].format(part(0, 0)), 3
    if text and name == "**" and formula.steps[arguments[1]] == ("number", 2.0):
        return f"{part(0, 3)}²", 3
    if text and name == "*" and formula.steps[arguments[0]][0] == "number":
        return f"{part(0, 3)} {part(1, 3)}", 2
    levels = {"*": (2, 3), "**": (3, 3), "/": (2, 3) if text else (0, 0)}.get(name, (3,) if text else (0,))
    parts = [part(place, levels[place]) for place in range(len(arguments))]
    return language[name].format(*parts), 2 if name == "*" or (text and name == "/") else 3
