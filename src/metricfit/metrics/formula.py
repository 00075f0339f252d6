"""The formula of a metric: one Python function, run once with symbols and then read in several languages.

A function such as ``def recall(c): return c.tp / (c.tp + c.fn)`` is given :class:`Symbols` in place of counts and
returns a tree of :class:`Term`. In the language of tensors it becomes a value, in others a text to read or JavaScript;
its coefficients are in :mod:`metricfit.fast`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, fields
from operator import add, mul, sub
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn, cast

import torch
from torch import Tensor

from metricfit.confusion import ConfusionMatrix
from metricfit.inputs import expect
from metricfit.metrics.base import COMMON, ClassMetric, Operators

COUNTS = ("tp", "fp", "fn", "tn")

Language = Callable[..., Any]
"""The meaning of a step, given its name and the meanings of its parts.

Steps are counts, ``"n"``, ``"number"``, ``"parameter"`` (name and value), ``+ - * / **`` and the methods of Symbols.
"""


class Term(Operators):
    """A step of a formula with its parts; arithmetic on it gives further terms.

    0/0 makes the whole formula undefined: its value is then the metric's ``zero_division``, with a zero gradient.
    """

    def __init__(self, step: str, *parts: Any) -> None:
        self.step, self.parts = step, parts

    def _operate(self, operator: str, left: Any, right: Any) -> Term:
        return Term(operator, _term(left), _term(right))

    def __pow__(self, power: float) -> Term:
        if not isinstance(power, (int, float)):
            raise TypeError("a formula has numbers as powers.")
        return self._operate("**", self, power)

    def __bool__(self) -> bool:
        raise TypeError("a formula cannot branch: its counts are symbols. Use arithmetic, c.sum and c.mean only.")


def _term(value: Any) -> Term:
    if isinstance(value, (int, float)):
        return Term("number", float(value))
    if not isinstance(value, Term):
        raise TypeError(f"a formula holds counts, parameters and numbers, got {type(value).__name__}.")
    return value


class Symbols:
    """What a metric's function is given: the counts of a class against the rest, and sums over all classes.

    ``tp``, ``fp``, ``fn`` and ``tn`` are true and false positives and negatives, ``n`` all samples.
    """

    tp, fp, fn, tn, n = map(Term, (*COUNTS, "n"))

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"c.{name}: a formula has c.tp, c.fp, c.fn, c.tn and c.n.")

    def sum(self, term: Term) -> Term:
        """The sum over all classes. Of one class: over the class and the rest."""
        return Term("sum", term)

    def mean(self, term: Term) -> Term:
        """The mean over the classes for which the term is defined."""
        return Term("mean", term)

    def geometric_mean(self, term: Term) -> Term:
        """The geometric mean over the classes for which the term is defined."""
        return Term("geometric_mean", term)

    def observed(self, weights: Term) -> Term:
        """Σᵢⱼ wᵢⱼ cᵢⱼ; w is a matrix, or "none", "linear", "quadratic" for |i - j|⁰, |i - j|¹, |i - j|²."""
        return Term("observed", weights)

    def expected(self, weights: Term) -> Term:
        """Σᵢⱼ wᵢⱼ tᵢ pⱼ of the true and the predicted counts; weights as in :meth:`observed`."""
        return Term("expected", weights)


def trace(function: Callable[..., Any], parameters: tuple[str, ...] = ()) -> Formula:
    """The formula of a function of :class:`Symbols` and parameters."""
    term = function(Symbols(), **{name: Term("parameter", name) for name in parameters})
    if not isinstance(term, Term):
        raise TypeError(f"{function.__name__}: expected a formula of the counts, got {type(term).__name__}.")
    steps: set[str] = set()

    def shape_of(step: str, *parts: Any) -> _Shape:
        steps.add(step)
        if step in ("number", "parameter"):
            return _Shape(number=parts[0] if step == "number" else 0.0)
        if step in (*COUNTS, "n", "observed", "expected"):
            return _Shape(True, step in COUNTS, step in ("observed", "expected"))
        if parts[0].counts and ((step == "*" and parts[1].counts) or (step == "**" and parts[1].number > 1)):
            steps.add("product")
        counts, varies, whole, _ = map(any, zip(*parts, strict=True))
        over = step in ("sum", "mean", "geometric_mean")
        return _Shape(counts, varies and not over, whole or over)

    shape: _Shape = Formula(term).replay(shape_of)
    if shape.whole is shape.varies:
        advice = "put every count of a formula of the whole matrix under c.sum or c.mean"
        raise ValueError(f"{function.__name__}: expected one value, of a class or of the whole matrix; {advice}.")
    scaled = not steps.isdisjoint({"product", "expected"})
    total = not shape.whole and (scaled or "n" in steps)
    return Formula(term, shape.whole, scaled, tuple(name for name in COUNTS if total or name in steps))


class _Shape(NamedTuple):
    counts: bool = False  # whether the step holds counts
    varies: bool = False  # whether it has one value per class
    whole: bool = False  # whether it sums over classes
    number: float = 0.0


class _Value(NamedTuple):
    value: Any
    undefined: Any = False  # where it is 0/0: a mask, or False


@dataclass(frozen=True)
class Formula:
    """A term of counts and parameters, and what is known about it."""

    term: Term
    whole: bool = False  # whether it is of the whole matrix, and not of one class against the rest
    scaled: bool = False  # whether it multiplies counts, which are then divided by their total: nothing overflows
    counts: tuple[str, ...] = ()  # the names of those that it needs

    def replay(self, language: Language, parameters: Mapping[str, Any] | None = None) -> Any:
        """What the term means in a language; each part is read once."""
        known: dict[Term, Any] = {}

        def read(term: Term) -> Any:
            if term not in known:
                parts = tuple(read(part) if isinstance(part, Term) else part for part in term.parts)
                value = ((parameters or {}).get(parts[0]),) if term.step == "parameter" else ()
                known[term] = language(term.step, *parts, *value)
            return known[term]

        return read(self.term)

    def of_counts(self, count: Callable[[str], Tensor], parameters: Mapping[str, Any], undefined: float) -> Tensor:
        """The value for each class, given counts by name; ``undefined`` takes the place of 0/0."""
        if self.whole:  # of the class and the rest as two classes
            cells = [count(name) for name in ("tn", "fp", "fn", "tp")]
            return self.of_matrix(torch.stack(cells, dim=-1).unflatten(-1, (2, 2)), parameters, undefined)
        counts = {name: count(name) for name in self.counts}
        if self.scaled:
            total = _total(torch.stack(list(counts.values())), 0)[0]
            counts = {name: value / total for name, value in counts.items()}
        return self._value(counts, None, parameters, undefined)

    def of_matrix(self, matrix: Tensor, parameters: Mapping[str, Any], undefined: float) -> Tensor:
        """The value of whole matrices (…, d, d); arguments as in :meth:`of_counts`."""
        cm = ConfusionMatrix(matrix / _total(matrix, (-1, -2)) if self.scaled else matrix)
        counts = {name: getattr(cm, name) for name in self.counts}
        return self._value(counts, cm, parameters, undefined).squeeze(-1)

    def _value(
        self, counts: dict[str, Tensor], cm: ConfusionMatrix | None, parameters: Mapping[str, Any], undefined: float
    ) -> Tensor:
        def of_tensors(step: str, *parts: Any) -> _Value:
            if step in counts:
                return _Value(counts[step])
            if step == "n":
                return _Value(sum(counts.values()) if cm is None else cm.total[..., None])
            if step == "number":
                return _Value(parts[0])
            if step == "parameter":
                return _Value(_of_classes(parts[0], parts[1], counts) if one_per_class(parts[1]) else parts[1])
            if cm is not None and step in ("observed", "expected"):
                return _Value(_weighted(step == "expected", parts[0].value, cm))
            if step in _ARITHMETIC:
                a, b = parts
                return _Value(_ARITHMETIC[step](a.value, b.value), a.undefined | b.undefined)
            return _STEPS[step](*parts)

        value, where = self.replay(of_tensors, parameters)
        return cast("Tensor", value if where is False else value.masked_fill(where, undefined))


def _total(counts: Tensor, dim: int | tuple[int, int]) -> Tensor:
    total = counts.sum(dim=dim, keepdim=True).detach()
    return total.masked_fill(total <= 0, 1.0)


def one_per_class(value: Any) -> bool:
    """Whether a parameter has one number per class."""
    return isinstance(value, tuple) and not isinstance(value[0], tuple)


def _of_classes(name: str, values: tuple[float, ...], counts: dict[str, Tensor]) -> Tensor:
    like = next(iter(counts.values()))
    fits = like.shape[-1:] == (len(values),)
    expect(fits, name, f"one number for each of the {like.shape[-1]} classes", len(values))
    return torch.tensor(values, dtype=like.dtype, device=like.device)


def _weighted(expected: bool, weights: Any, cm: ConfusionMatrix) -> Tensor:
    cells = cm.support[..., :, None] * cm.predicted[..., None, :] if expected else cm.matrix
    if isinstance(weights, str):
        ranks = torch.arange(cells.shape[-1], dtype=cells.dtype, device=cells.device)
        gaps = (ranks[:, None] - ranks).abs()
        weight = {"none": (gaps > 0).to(cells.dtype), "linear": gaps, "quadratic": gaps**2}[weights]
    else:
        weight = torch.tensor(weights, dtype=cells.dtype, device=cells.device)
        fits = weight.shape == cells.shape[-2:]
        expect(fits, "matrix", f"costs for {cells.shape[-1]} classes", tuple(weight.shape))
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


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {"+": add, "-": sub, "*": mul}
_STEPS: dict[str, Callable[..., _Value]] = {
    "/": _divide, "**": _power, "sum": _sum, "mean": _mean, "geometric_mean": _geometric_mean
}  # fmt: skip


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


def text(formula: Formula) -> str:
    """The formula to read: TP / (TP + FN)."""
    return _printed(formula, _TEXT)


def javascript(formula: Formula) -> str:
    """The formula as a JavaScript function: of the counts ``c`` of a class, or of a matrix ``m``; and parameters."""
    return f"({'m' if formula.whole else 'c'}, p) => {_printed(formula, _JAVASCRIPT)}"


class _Printed(NamedTuple):
    """A step in words, and how firmly it holds together: 1 a sum, 2 a product, 3 what needs no brackets."""

    words: str
    holds: int
    number: float | None = None

    def within(self, level: int) -> str:
        return self.words if self.holds >= level else f"({self.words})"


def _printed(formula: Formula, language: dict[str, str]) -> str:
    text = language is _TEXT

    def in_words(step: str, *parts: Any) -> _Printed:
        if step in COUNTS:
            return _Printed(step.upper() + ("ₖ" if formula.whole else "") if text else f"c.{step}", 3)
        if step == "n":
            return _Printed("n" if text else "m.n" if formula.whole else "(c.tp + c.fp + c.fn + c.tn)", 3)
        if step == "number":
            return _Printed(f"{parts[0]:.17g}", 3 if parts[0] >= 0 else 1, parts[0])
        if step == "parameter":
            return _Printed(_GREEK.get(parts[0], parts[0]) if text else f"p.{parts[0]}", 3)
        if step in "+-":
            return _Printed(f"{parts[0].within(1)} {step} {parts[1].within(1 if step == '+' else 2)}", 1)
        if step == "**" and parts[1].number == 0.5:
            return _Printed(language["root"].format(parts[0].words), 3)
        if text and step == "**" and parts[1].number == 2:
            return _Printed(f"{parts[0].within(3)}²", 3)
        if text and step == "*" and parts[0].number is not None:
            return _Printed(f"{parts[0].within(3)} {parts[1].within(3)}", 2)
        levels = {"*": (2, 3), "**": (3, 3), "/": (2, 3) if text else (0, 0)}.get(step, (3,) if text else (0,))
        inner = [part.within(level) for part, level in zip(parts, levels, strict=True)]
        return _Printed(language[step].format(*inner), 2 if step == "*" or (text and step == "/") else 3)

    return cast("_Printed", formula.replay(in_words)).words


class _FormulaText:  # printed when it is asked for
    def __get__(self, _: Any, owner: type[FormulaMetric]) -> str:
        return text(owner.program)


@dataclass(frozen=True, repr=False)
class FormulaMetric(ClassMetric):
    """A metric made by :func:`metricfit.metrics.metric` from one function; takes the function's parameters too.

    A number among them may be given once, or once per class.
    """

    program: ClassVar[Formula]
    formula = _FormulaText()
    check_parameters: ClassVar[Callable[[Any], None] | None] = None

    if TYPE_CHECKING:

        def __init__(self, average: str | int = "auto", label: Hashable = None, **parameters: Any) -> None: ...

        def __getattr__(self, name: str) -> Any: ...  # the parameters

    def __post_init__(self) -> None:
        super().__post_init__()
        for f in fields(self):
            if f.name not in COMMON:
                object.__setattr__(self, f.name, _checked(f.name, getattr(self, f.name), f.default))
        if self.check_parameters is not None:
            self.check_parameters()

    def compute(self, cm: ConfusionMatrix) -> Tensor:
        if self.average == "micro":
            for name, value in self.parameters.items():
                if one_per_class(value):
                    raise ValueError(f"{name}: one number per class makes no micro average; give one number.")
            return self._of_counts(lambda name: getattr(cm, name).sum(dim=-1))
        if self.whole and self.average == "auto" and self.label is None and cm.task != "multilabel":
            return self.program.of_matrix(cm.matrix, self.parameters, self.zero_division)
        return super().compute(cm)

    def of_classes(self, cm: ConfusionMatrix) -> Tensor:
        return self._of_counts(lambda name: getattr(cm, name))

    def _of_counts(self, count: Callable[[str], Tensor]) -> Tensor:
        return self.program.of_counts(count, self.parameters, self.zero_division)

    def __repr__(self) -> str:
        given = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self))
        return f"{type(self).__name__}({given})"


def _checked(name: str, value: Any, default: Any) -> Any:
    """A parameter in the form of its default: a text, a matrix, or a number that may come once per class."""
    if isinstance(default, str):
        return value
    rows, several = isinstance(default, tuple), hasattr(value, "__len__") and not isinstance(value, str)
    try:
        if rows:
            return tuple(tuple(map(float, row)) for row in value)
        found = tuple(map(float, value if several else (value,)))
    except (TypeError, ValueError):
        form = "rows of numbers" if rows else "a number or one number per class"
        raise TypeError(f"{name}: expected {form}, got {value!r}.") from None
    expect(found and all(map(math.isfinite, found)), name, "finite numbers", value)
    return found if several else found[0]
