"""One-versus-rest metrics: the value of a class, and the ways of averaging it over classes."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from metricfit.confusion import ConfusionMatrix
from metricfit.inputs import Task
from metricfit.metrics.base import Metric
from metricfit.metrics.formula import COUNTS, Formula, one_per_class
from metricfit.numerics import safe_divide

if TYPE_CHECKING:
    from metricfit.metrics.translation import Fraction

__all__ = ["AVERAGES", "ClassMetric", "FormulaMetric"]

AVERAGES = ("auto", "macro", "micro", "weighted", "none")
"""What ``average=`` takes, beside the index of a class."""


@dataclass(frozen=True)
class ClassMetric(Metric):
    """A metric with a value for each class against the rest.

    Args:
        average: ``"macro"`` (mean over classes), ``"micro"`` (of the summed counts), ``"weighted"`` (by support),
            ``"none"`` (one value per class), or a class index, short for ``label=index``. ``"auto"`` is the
            metric's own multiclass form where it has one (accuracy, MCC, kappa, …); otherwise the positive class
            for a binary target and the macro average for the others.
        label: The class whose value is wanted, by label (or by index where labels are not known).
        zero_division: Value where the formula is 0/0; ``nan`` leaves such classes out of averages.
    """

    average: str | int = "auto"
    label: Hashable | None = None
    zero_division: float = field(default=0.0, kw_only=True)

    name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    whole: ClassVar[bool] = False
    """Whether it has a multiclass form of its own, which is no average over classes."""

    def __post_init__(self) -> None:
        if isinstance(self.average, Integral) and not isinstance(self.average, bool):
            if self.label is not None:
                raise ValueError(f"average={self.average} and label={self.label!r} both name a class; give one.")
            object.__setattr__(self, "label", int(self.average))
            object.__setattr__(self, "average", "auto")
        if self.average not in AVERAGES:
            raise ValueError(
                f"average: expected one of {', '.join(AVERAGES)} or a class index, got {self.average!r}; for a "
                f"class by name write label={self.average!r} or '{self.name}[{self.average}]'."
            )
        if self.label is not None and self.average != "auto":
            raise ValueError(f"label={self.label!r} picks one class, average={self.average!r} has no effect; give one.")
        if not isinstance(self.zero_division, (int, float)) or math.isinf(self.zero_division):
            raise ValueError(f"zero_division: expected a number or nan, got {self.zero_division!r}.")

    def compute(self, cm: ConfusionMatrix) -> Tensor:
        """The metric of a matrix, averaged as ``average`` says."""
        average = self.average
        if self.label is not None:
            return self._of_class(cm, cm.class_index(self.label))
        if average == "auto" and self.whole and cm.task != "multilabel":
            return self._of_matrix(cm)
        if average == "auto" and cm.task == "binary":
            return self._of_class(cm, 1)
        if average == "micro":
            return self._of_sums(cm)
        values = self.of_classes(cm)
        return values if average == "none" else self._mean(values, cm)

    @abstractmethod
    def of_classes(self, cm: ConfusionMatrix) -> Tensor:
        """The values of all classes, shape (…, classes)."""

    def _of_class(self, cm: ConfusionMatrix, index: int) -> Tensor:
        return self.of_classes(cm)[..., index]

    def _of_sums(self, cm: ConfusionMatrix) -> Tensor:
        raise NotImplementedError

    def _of_matrix(self, cm: ConfusionMatrix) -> Tensor:
        raise NotImplementedError

    def _mean(self, values: Tensor, cm: ConfusionMatrix) -> Tensor:
        included = cm.averaged
        if math.isnan(self.zero_division):  # otherwise NaN comes from the input and must not be hidden
            included = included & ~values.isnan()
        equal = included.to(values.dtype)
        weights = torch.where(included, cm.support, 0.0) if self.average == "weighted" else equal
        weights = torch.where(weights.sum(dim=-1, keepdim=True) > 0, weights, equal)  # as scikit-learn does
        total = (torch.where(included, values, 0.0) * weights).sum(dim=-1)
        return safe_divide(total, weights.sum(dim=-1), self.zero_division)

    def resolve(self, labels: tuple[Any, ...], task: Task) -> ClassMetric:
        """The metric with its class or average written out."""
        if self.average != "auto" or self.label is not None or (self.whole and task != "multilabel"):
            return self
        return replace(self, label=labels[1]) if task == "binary" else replace(self, average="macro")

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the metric itself, beside average, label and zero_division."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _COMMON}

    def __str__(self) -> str:
        defaults = {f.name: f.default for f in fields(self)}
        given = self.parameters | {"average": self.average, "zero_division": self.zero_division}
        text = ",".join(f"{key}={spell(value)}" for key, value in given.items() if value != defaults[key])
        label = "" if self.label is None else f"[{_spell_label(self.label)}]"
        return self.name + (f":{text}" if text else "") + label


_COMMON = tuple(f.name for f in fields(ClassMetric))


class _FormulaText:  # printed when it is asked for
    def __get__(self, _: Any, owner: type[FormulaMetric]) -> str:
        from metricfit.metrics.translation import text

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

        def __init__(
            self, average: str | int = "auto", label: Hashable | None = None, *, zero_division: float = 0.0,
            **parameters: Any,
        ) -> None: ...  # fmt: skip

        def __getattr__(self, name: str) -> Any: ...  # the parameters

    def __post_init__(self) -> None:
        super().__post_init__()
        for f in fields(self):
            if f.name not in _COMMON:
                object.__setattr__(self, f.name, _checked(f.name, getattr(self, f.name), f.default))
        if self.check_parameters is not None:
            self.check_parameters()

    def of_classes(self, cm: ConfusionMatrix) -> Tensor:
        """The formula, elementwise over classes."""
        return self._value(cm, lambda count: count, self.parameters)

    def _of_class(self, cm: ConfusionMatrix, index: int) -> Tensor:
        parameters = {name: _for_class(name, value, index) for name, value in self.parameters.items()}
        return self._value(cm, lambda count: count[..., index], parameters)

    def _of_sums(self, cm: ConfusionMatrix) -> Tensor:
        for name, value in self.parameters.items():
            if one_per_class(value):
                raise ValueError(f"{name}: one number per class has no meaning for a micro average; give one number.")
        return self._value(cm, lambda count: count.sum(dim=-1), self.parameters)

    def _of_matrix(self, cm: ConfusionMatrix) -> Tensor:
        return self.program.of_matrix(cm.matrix, self.parameters, self.zero_division)

    def _value(self, cm: ConfusionMatrix, take: Callable[[Tensor], Tensor], parameters: dict[str, Any]) -> Tensor:
        counts = {name: take(getattr(cm, name)) for name in (COUNTS if self.whole else self.program.counts)}
        return self.program.of_counts(counts, parameters, self.zero_division)

    def fraction(self) -> Fraction | None:
        """The coefficients of (tp, fp, fn, tn) above and below, if a class's value is a quotient of linear forms.

        >>> from metricfit import metrics
        >>> metrics.F1().fraction()
        ((2.0, 0.0, 0.0, 0.0), (2.0, 1.0, 1.0, 0.0))
        >>> metrics.MCC().fraction()
        """
        from metricfit.metrics.translation import fraction

        return fraction(self.program, self.parameters)

    def __repr__(self) -> str:
        given = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self))
        return f"{type(self).__name__}({given})"


def _for_class(name: str, value: Any, index: int) -> Any:
    if not one_per_class(value):
        return value
    if index >= len(value):
        raise ValueError(f"{name}: no number for class {index}, got {len(value)} numbers.")
    return value[index]


def _checked(name: str, value: Any, default: Any) -> Any:
    """A parameter in the form of its default: a text, a matrix, or a number that may come once per class."""
    if isinstance(default, str):
        return value
    rows = isinstance(default, tuple)
    try:
        if rows:
            return tuple(tuple(float(cell) for cell in row) for row in value)
        several = not isinstance(value, str) and hasattr(value, "__len__")
        found = tuple(float(v) for v in (value if several else (value,)))
    except (TypeError, ValueError):
        form = "rows of numbers" if rows else "a number or one number per class"
        raise TypeError(f"{name}: expected {form}, got {value!r}.") from None
    if not found or not all(map(math.isfinite, found)):
        raise ValueError(f"{name}: expected finite numbers, got {value!r}.")
    return found if several else found[0]


def spell(value: Any) -> str:
    """A parameter as the spec grammar writes it: ``[[0,1],[5,0]]``."""
    if isinstance(value, tuple):
        return "[" + ",".join(spell(v) for v in value) + "]"
    if isinstance(value, float):
        return f"{value:g}" if math.isnan(value) or float(f"{value:g}") == value else repr(value)
    return str(value)


def _spell_label(label: Hashable) -> str:
    text = str(label)
    number = isinstance(label, str) and re.fullmatch(r"-?\d+", text)
    plain = text and text == text.strip() and not number and not set(text) & set("[]\"'")
    return text if plain else quote(text)


def quote(text: str) -> str:
    """Text in the quotes of the spec grammar."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
