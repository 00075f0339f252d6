"""One-versus-rest metrics: a formula of four counts, and the ways of averaging it over classes."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, ClassVar

import torch
from torch import Tensor

from metricfit.confusion import ConfusionMatrix, Counts
from metricfit.metrics.base import Metric
from metricfit.numerics import safe_divide

__all__ = ["AVERAGES", "ClassMetric"]

AVERAGES = ("auto", "macro", "micro", "weighted", "none")
"""What ``average=`` takes, beside the index or name of a class."""


@dataclass(frozen=True)
class ClassMetric(Metric):
    """A metric with one formula for the four one-versus-rest counts of a class.

    Args:
        average: ``"macro"`` (mean over classes), ``"micro"`` (of the summed counts), ``"weighted"`` (by support),
            ``"none"`` (one value a class), or a class index, short for ``label=index``. ``"auto"`` is the
            metric's own multiclass form where it has one (accuracy, MCC, kappa, …); otherwise the positive class
            for a binary target and the macro average for the others.
        label: The class whose value is wanted, by label (or by index where labels are not known).
        zero_division: Value where the formula is 0/0; ``nan`` leaves such classes out of averages.
    """

    average: str | int = "auto"
    label: Hashable | None = None
    zero_division: float = field(default=0.0, kw_only=True)

    name: ClassVar[str] = ""

    def __post_init__(self) -> None:
        """Check the average; a class index in its place becomes the label."""
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

    @abstractmethod
    def per_class(self, counts: Counts) -> Tensor:
        """The formula, elementwise over classes."""

    def of_matrix(self, cm: ConfusionMatrix) -> Tensor | None:
        """The multiclass form that is not an average of one-versus-rest values, where there is one."""
        return None

    def compute(self, cm: ConfusionMatrix) -> Tensor:
        """The metric of a matrix, averaged as the metric says."""
        if self.label is not None:
            index = cm.class_index(self.label)
            return self.for_class(index).per_class(cm.counts.of_class(index))
        average = self.average
        if average == "auto":
            if cm.task != "multilabel" and (value := self.of_matrix(cm)) is not None:
                return value
            if cm.task == "binary":
                return self.for_class(1).per_class(cm.counts.of_class(1))
            average = "macro"
        if average == "micro":
            return self.for_class(None).per_class(cm.counts.summed())
        values = self.per_class(cm.counts)
        if average == "none":
            return values
        return self._mean(values, cm, cm.support if average == "weighted" else None)

    def for_class(self, index: int | None) -> ClassMetric:
        """The metric with parameters of one class; of all together for ``None``."""
        return self

    def _mean(self, values: Tensor, cm: ConfusionMatrix, weights: Tensor | None) -> Tensor:
        included = cm.averaged
        if math.isnan(self.zero_division):  # otherwise NaN comes from the input and must not be hidden
            included = included & ~values.isnan()
        equal = included.to(values.dtype)
        weights = equal if weights is None else torch.where(included, weights, 0.0)
        weights = torch.where(weights.sum(dim=-1, keepdim=True) > 0, weights, equal)  # as scikit-learn does
        total = (torch.where(included, values, 0.0) * weights).sum(dim=-1)
        return safe_divide(total, weights.sum(dim=-1), self.zero_division)

    def _parameters(self) -> dict[str, Any]:
        """Parameters of the formula that belong in the spec."""
        return {}

    def __str__(self) -> str:
        """The spec: name, parameters, class."""
        parameters = self._parameters()
        if self.average != "auto":
            parameters["average"] = self.average
        if self.zero_division != 0:
            parameters["zero_division"] = self.zero_division
        text = ",".join(f"{key}={spell(value)}" for key, value in parameters.items())
        return (
            self.name + (f":{text}" if text else "") + ("" if self.label is None else f"[{_spell_label(self.label)}]")
        )


def spell(value: Any) -> str:
    """A parameter as the spec grammar writes it.

    >>> spell(((0.0, 1.0), (5.0, 0.0)))
    '[[0,1],[5,0]]'
    """
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
    r"""Text in the quotes of the spec grammar.

    >>> print(quote("it's"))
    'it\'s'
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
