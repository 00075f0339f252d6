"""What a metric is: a function of the confusion matrix that knows its range, direction and best value."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partialmethod
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch import Tensor

from metricfit.confusion import ConfusionMatrix, Grid
from metricfit.inputs import Task, expect, safe_divide

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from metricfit.metrics.algebra import Constrained, Constraint


MatrixSource = Callable[[Grid], ConfusionMatrix]
"""Gives the confusion matrix at the decision (``None``) or over a grid of thresholds."""

EVERY_CUT_OFF: tuple[float, ...] = ()
"""Stands for the grid of all distinct scores, known only when there are scores."""

AVERAGES = ("auto", "macro", "micro", "weighted", "none")
"""What ``average=`` takes, beside the index of a class."""


class Operators:
    """Arithmetic with numbers and with its own kind; a subclass defines ``_operate(operator, left, right)``."""

    _operate: Callable[[str, Any, Any], Any]

    def _before(self, operator: str, other: Any) -> Any:
        return self._operate(operator, self, other)

    def _behind(self, operator: str, other: Any) -> Any:
        return self._operate(operator, other, self)

    __add__, __radd__ = partialmethod(_before, "+"), partialmethod(_behind, "+")
    __sub__, __rsub__ = partialmethod(_before, "-"), partialmethod(_behind, "-")
    __mul__, __rmul__ = partialmethod(_before, "*"), partialmethod(_behind, "*")
    __truediv__, __rtruediv__ = partialmethod(_before, "/"), partialmethod(_behind, "/")
    __neg__ = partialmethod(_behind, "*", -1.0)


class Metric(Operators, ABC):
    """A score of a confusion matrix; at once an exact score, a differentiable loss and a search objective.

    Subclasses state ``range``, ``greater_is_better`` and ``compute``. Metrics combine by arithmetic
    (``0.7 * Recall(1) + 0.3 * Precision(1)``), compare into constraints (``Recall(1) >= 0.9``) and print as the
    spec that :func:`metricfit.metrics.get` reads back.

    Attributes:
        range: Smallest and largest value.
        greater_is_better: The direction; ``None`` for a constant.
        formula: The definition in one line.
        reference: Where it comes from.
        thresholds: The grid of thresholds that a ranking metric is taken over; ``None`` for metrics of one decision.
    """

    range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    greater_is_better: ClassVar[bool | None] = True
    formula: ClassVar[str] = ""
    reference: ClassVar[str] = ""
    thresholds: ClassVar[Grid] = None

    @property
    def perfect(self) -> float:
        """The value of a perfect prediction: where the loss is 0."""
        return self.range[1] if self.greater_is_better else self.range[0]

    @abstractmethod
    def compute(self, cm: ConfusionMatrix) -> Tensor:
        """The metric of a matrix; batch dimensions of the matrix stay in front."""

    def __call__(self, cm: ConfusionMatrix) -> Tensor:
        return self.compute(cm)

    def evaluate(self, source: MatrixSource) -> Tensor:
        """The metric of the matrix (or the sweep of matrices) that ``source`` gives for its thresholds."""
        return self.compute(source(self.thresholds))

    def distance(self, value: Tensor) -> Tensor:
        """How far a value is from the perfect one: 0 is perfect."""
        return self.perfect - value if self.greater_is_better else value - self.perfect

    def loss(self, source: MatrixSource) -> Tensor:
        """The distance from perfect of what ``source`` gives: the quantity a network minimises."""
        return self.distance(self.evaluate(source))

    def score(
        self, y_true: ArrayLike, y_pred: ArrayLike, sample_weight: ArrayLike | None = None, *,
        labels: Sequence[Hashable] | None = None,
    ) -> Any:  # fmt: skip
        """The exact metric of predicted labels, equal to scikit-learn's.

        Args:
            y_true: True labels (n,), or a 0/1 matrix (n, labels) for a multi-label target.
            y_pred: Predicted labels in the same form; for ranking metrics the scores, (n,) or (n, classes).
            sample_weight: Weights (n,).
            labels: The classes, where they are more than those that occur; their order is the matrix's.

        Returns:
            A float; an array for ``average="none"``.

        >>> from metricfit import metrics
        >>> metrics.get("f1").score([0, 1, 1, 0], [0, 1, 0, 0])
        0.6666666666666666
        """
        grids = self.grids(exact=True)
        if len(grids) > 1:
            mixed = "combines metrics of scores with metrics of predicted labels (or two threshold grids)"
            raise ValueError(f"{self}: {mixed}; score its parts one by one.")
        (grid,) = grids or {None}
        how: dict[str, Any] = {"labels": labels, "sample_weight": sample_weight}
        if grid is None:
            cm = ConfusionMatrix.from_labels(y_true, y_pred, **how)
        else:
            cm = ConfusionMatrix.from_scores(y_true, y_pred, thresholds=grid or None, **how)
        value = self.evaluate(lambda _: cm)
        return value.item() if value.ndim == 0 else value.numpy()

    def _parts(self) -> tuple[Metric, ...]:
        return ()

    def grids(self, *, exact: bool = False) -> set[Grid]:
        """All threshold grids that the metric asks its source for, or :meth:`score` does (``exact``)."""
        parts = self._parts()
        return {grid for part in parts for grid in part.grids(exact=exact)} if parts else {self.thresholds}

    def resolve(self, labels: tuple[Any, ...], task: Task) -> Metric:
        """The metric with its class or average written out: a bare ``f1`` is one class's or a macro average."""
        return self

    def check(self, labels: tuple[Any, ...], task: Task) -> None:
        """Compute it once, so that a class that does not exist is reported before training."""
        if len(self.grids()) > 1 and None in self.grids():
            mixed = "combines metrics of scores with metrics of decisions, and no prediction is judged by both"
            raise ValueError(f"metric: {self} {mixed}; choose one of them.")
        if self.needs_rows and task != "binary":
            advice = "cost:matrix=[[0,1,2],[5,0,1],[9,3,0]] has prices for several classes"
            raise ValueError(f"metric: {self} is for two classes, got {len(labels)}; {advice}.")
        size = len(labels)
        cm = ConfusionMatrix(torch.ones((3, size, 2, 2) if task == "multilabel" else (3, size, size)), task, labels)
        values = self.of_counts.evaluate(lambda grid: cm)
        # A sweep takes the place of its first dimension.
        if tuple(values.shape) != ((3,) if self.grids() <= {None} else ()):
            raise ValueError(f"metric: {self} gives one value per class; training needs one number, choose an average.")
        if self.greater_is_better is None:
            raise ValueError(f"metric: {self} is a constant; there is nothing to train for.")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the rows that it names: for money, and for constraints in groups."""
        return tuple(dict.fromkeys(name for part in self._parts() for name in part.columns))

    @property
    def needs_rows(self) -> bool:
        """Whether the counts of a confusion matrix are not enough for it: it speaks of money or of groups of rows."""
        return bool(self.columns) or any(part.needs_rows for part in self._parts())

    @property
    def of_counts(self) -> Metric:
        """What a network is trained for in its place: the same without money and groups."""
        return self

    @property
    def judges_scores(self) -> bool:
        """Whether it judges scores, as the area under a curve does, instead of decisions."""
        return self.grids() != {None}

    @property
    def spec(self) -> str:
        """The metric as a string that :func:`metricfit.metrics.get` turns back into it."""
        return str(self)

    def subject_to(self, *constraints: Constraint) -> Constrained:
        """This metric under constraints: ``Precision(1).subject_to(Recall(1) >= 0.9)``."""
        from metricfit.metrics.algebra import Constrained

        return Constrained(self, constraints)

    def __ge__(self, bound: float) -> Constraint:
        return cast("Constraint", self._operate(">=", self, bound))

    def __le__(self, bound: float) -> Constraint:
        return cast("Constraint", self._operate("<=", self, bound))

    def _operate(self, operator: str, left: Any, right: Any) -> Any:
        from metricfit.metrics import algebra

        return algebra.Constraint(left, operator, right) if "=" in operator else algebra.combine(operator, left, right)


MetricLike = Metric | str | Callable[[ConfusionMatrix], Tensor]
"""What :func:`metricfit.metrics.get` takes: a metric, its name, spec or expression, or a function of the matrix."""


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
        advice = f"for a class by name write label={self.average!r} or '{self.name}[{self.average}]'"
        wanted = f"one of {', '.join(AVERAGES)} or a class index"
        expect(self.average in AVERAGES, "average", wanted, self.average, advice)
        if self.label is not None and self.average != "auto":
            raise ValueError(f"label={self.label!r} picks one class, average={self.average!r} has no effect; give one.")
        finite = isinstance(self.zero_division, (int, float)) and not math.isinf(self.zero_division)
        expect(finite, "zero_division", "a number or nan", self.zero_division)

    def compute(self, cm: ConfusionMatrix) -> Tensor:
        values = self.of_classes(cm)
        if self.label is not None:
            return values[..., cm.class_index(self.label)]
        if self.average == "auto" and cm.task == "binary":
            return values[..., 1]
        return values if self.average == "none" else self._mean(values, cm)

    @abstractmethod
    def of_classes(self, cm: ConfusionMatrix) -> Tensor:
        """The values of all classes, shape (…, classes)."""

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
        if self.average != "auto" or self.label is not None or (self.whole and task != "multilabel"):
            return self
        return replace(self, label=labels[1]) if task == "binary" else replace(self, average="macro")

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the metric itself, beside average, label and zero_division."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in COMMON}

    def __str__(self) -> str:
        defaults = {f.name: f.default for f in fields(self)}
        given = self.parameters | {"average": self.average, "zero_division": self.zero_division}
        text = ",".join(f"{key}={spell(value)}" for key, value in given.items() if value != defaults[key])
        label = "" if self.label is None else f"[{spell_label(self.label)}]"
        return self.name + (f":{text}" if text else "") + label


COMMON = tuple(f.name for f in fields(ClassMetric))
"""The parameters that every metric of classes has."""


def spell(value: Any) -> str:
    """A parameter as the spec grammar writes it: ``[[0,1],[5,0]]``."""
    if isinstance(value, tuple):
        return "[" + ",".join(spell(v) for v in value) + "]"
    if isinstance(value, float):
        return f"{value:g}" if math.isnan(value) or float(f"{value:g}") == value else repr(value)
    return str(value)


def spell_label(label: Hashable) -> str:
    """A label as the spec grammar writes it."""
    text = str(label)
    number = isinstance(label, str) and re.fullmatch(r"-?\d+", text)
    plain = text and text == text.strip() and not number and not set(text) & set("[]\"'")
    return text if plain else quote(text)


def quote(text: str) -> str:
    """Text in the quotes of the spec grammar."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
