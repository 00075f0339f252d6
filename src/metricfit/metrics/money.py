"""Money: what the four outcomes of a row are worth, as numbers or from columns of the rows."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from metricfit.confusion import ConfusionMatrix
from metricfit.inputs import Task, expect
from metricfit.labels import codes_of_labels, column_of, score_array
from metricfit.metrics.algebra import Constant
from metricfit.metrics.base import Metric, spell_label
from metricfit.metrics.rates import accuracy

OUTCOMES = ("tp", "fp", "fn", "tn")

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Money(Metric):
    """What decisions about two classes earn in all, where each row has its own price.

    Each outcome is worth a number, or an expression of columns: a cost is negative. The columns come with the rows, as
    ``columns={"amount": values}`` or a frame. ``label`` is the positive class, by default the second one.

    >>> earned = Money(tp="amount - 5", fp=-5, fn="-amount")
    >>> earned.score([1, 0, 1], [1, 1, 0], columns={"amount": [100, 20, 30]})
    60.0
    >>> print(earned)
    money:tp=amount - 5,fp=-5,fn=-amount
    """

    tp: Metric | str | float = 0.0
    fp: Metric | str | float = 0.0
    fn: Metric | str | float = 0.0
    tn: Metric | str | float = 0.0
    label: Hashable | None = field(default=None, kw_only=True)
    range: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    needs_rows: ClassVar[bool] = True
    of_counts: ClassVar[Metric] = accuracy()

    def __post_init__(self) -> None:
        from metricfit.metrics.expression import parse

        for name in OUTCOMES:
            worth = getattr(self, name)
            if not isinstance(worth, Metric):
                worth = parse(worth, of_columns=True) if isinstance(worth, str) else Constant(float(worth))
            object.__setattr__(self, name, worth)
        if all(worth == Constant(0.0) for worth in self._worths):
            raise ValueError("money: say what an outcome is worth, such as money:tp=amount-5,fp=-5,fn=-amount.")

    @property
    def _worths(self) -> tuple[Metric, ...]:
        return tuple(cast("Metric", getattr(self, name)) for name in OUTCOMES)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for worth in self._worths for name in worth.columns))

    def compute(self, cm: ConfusionMatrix) -> Tensor:
        raise ValueError(f"{self}: adds up money row by row, so counts are not enough; give it the rows.")

    def resolve(self, labels: tuple[Any, ...], task: Task) -> Money:
        return replace(self, label=labels[self.positive(labels)]) if task == "binary" else self

    def positive(self, labels: Sequence[Any]) -> int:
        """The place of the positive class of two."""
        if self.label is None:
            return 1
        return ConfusionMatrix(torch.zeros(len(labels), len(labels)), labels=tuple(labels)).class_index(self.label)

    def table(self, columns: Any, labels: Sequence[Any], rows: int) -> Array:
        """What each row is worth (n, 2, 2), by its class and by its decision."""

        def numbers(name: Any) -> Any:
            return torch.tensor(score_array(column_of(columns, name, rows), f"columns[{name!r}]"), dtype=torch.float64)

        gain = [w.value if isinstance(w, Constant) else w.evaluate(numbers).numpy() for w in self._worths]
        made = gain_table(gain, rows)
        return made if self.positive(labels) else made[:, ::-1, ::-1]

    def score(
        self, y_true: ArrayLike, y_pred: ArrayLike, sample_weight: ArrayLike | None = None, *,
        labels: Sequence[Hashable] | None = None, columns: Mapping[str, ArrayLike] | None = None,
    ) -> float:  # fmt: skip
        """The total that the decisions earn."""
        true, decided, weight, names, _ = codes_of_labels(y_true, y_pred, labels, sample_weight)
        worth = self.table(columns, names or (), len(true))[np.arange(len(true)), true, decided]
        return float((worth if weight is None else worth * weight).sum())

    def stakes(self, columns: Any, labels: Sequence[Any], codes: NDArray[Any]) -> tuple[NDArray[np.int64], Array]:
        """The decision that pays for each row (n,), and how much more: accuracy about it, so weighted, is the share."""
        worth = self.table(columns, labels, len(codes))[np.arange(len(codes)), codes]
        return worth.argmax(axis=1), np.asarray(np.abs(worth[:, 1] - worth[:, 0]))

    def staked(self, target: Tensor, weight: Tensor | None, columns: Any, labels: Any) -> tuple[Tensor, Tensor]:
        """The same of a batch: targets (N,), which must be 0 and 1, and weights."""
        codes = target.detach().cpu().numpy()
        if codes.ndim != 1 or not np.isin(codes, (0, 1)).all():
            raise ValueError(f"target: money is about rows of two classes, 0 and 1 of shape (N,), got {codes.shape}.")
        better, stakes = self.stakes(columns, labels or (0, 1), codes.astype(np.int64))
        stake = torch.as_tensor(stakes, dtype=torch.get_default_dtype(), device=target.device)
        return torch.as_tensor(better).to(target), stake if weight is None else stake * weight

    def __str__(self) -> str:
        given = ",".join(f"{n}={w}" for n, w in zip(OUTCOMES, self._worths, strict=True) if w != Constant(0.0))
        return f"money{'' if self.label is None else f'[{spell_label(self.label)}]'}:{given}"


def gain_table(gain: Sequence[ArrayLike], n: int) -> Array:
    """Gains (tp, fp, fn, tn) as an array (n, 2, 2): what row i is worth, by its truth and by its decision."""
    if isinstance(gain, str) or len(gain) != 4:
        raise ValueError(f"gain: expected four numbers or arrays (tp, fp, fn, tn), got {len(gain)} of them.")
    table = np.empty((n, 4))
    for column, (name, worth) in enumerate(zip(OUTCOMES, gain, strict=True)):
        try:
            values = np.asarray(worth, dtype=np.float64)
        except (TypeError, ValueError):
            raise TypeError(f"gain: expected numbers for {name}, got {worth!r}.") from None
        expect(values.shape in ((), (n,)), "gain", f"one number or shape ({n},) for {name}", values.shape)
        if not np.isfinite(values).all():
            raise ValueError(f"gain: expected finite numbers for {name}; fill the gaps first.")
        table[:, column] = values
    tp, fp, fn, tn = table.T
    if (tp <= fn).all() and (fp <= tn).all():
        raise ValueError(
            "gain: a positive decision never pays (tp <= fn, fp <= tn on every row); costs are negative, as fp=-5."
        )
    return np.stack([tn, fp, fn, tp], axis=1).reshape(n, 2, 2)
