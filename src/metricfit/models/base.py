"""What may sit in a portfolio: anything that is fitted once per fold and gives probabilities."""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing

from metricfit.inputs import Task
from metricfit.metrics import Metric
from metricfit.training.loop import Progress, progress_bar
from metricfit.training.recipes import Recipe
from metricfit.training.rows import Split

__all__ = ["Array", "Deadline", "FittedModel", "Folds", "Model", "Table", "fit_models"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """Rows in the forms that models like.

    Attributes:
        dense: Scaled numbers without gaps, categories as indicators (n, features): networks, linear models.
        trees: Numbers as they are, gaps as NaN, categories as codes (n, columns).
        categories: Which columns of ``trees`` are codes.
        given: The table as it was given: pipelines that prepare it themselves.
    """

    dense: NDArray[np.float32]
    trees: NDArray[np.float32]
    categories: NDArray[np.bool_]
    given: Any

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.dense)

    def head(self, rows: int) -> Table:
        """The first rows."""
        return Table(self.dense[:rows], self.trees[:rows], self.categories, _safe_indexing(self.given, slice(0, rows)))


@dataclass(frozen=True)
class Folds:
    """What every model of a portfolio is fitted on: the same rows, held out in the same folds.

    Attributes:
        table: The rows.
        codes: Class codes (n,), or 0/1 (n, labels).
        weight: Weights for training (n,): sample weights times class weights.
        plain_weight: Sample weights alone (n,).
        splits: Training and validation rows of each fold; without validation rows nothing is held out.
        metric: The metric.
        task: ``"binary"``, ``"multiclass"`` or ``"multilabel"``.
        labels: Class (or label) names.
        seed: Seed of everything random.
    """

    table: Table
    codes: NDArray[np.int64]
    weight: NDArray[np.float32]
    plain_weight: NDArray[np.float32]
    splits: Sequence[Split]
    metric: Metric
    task: Task
    labels: tuple[Hashable, ...]
    seed: int

    @property
    def held_out(self) -> bool:
        """Whether any row is held out."""
        return any(len(split.validation) for split in self.splits)


class OutOfTimeError(Exception):
    """The time limit was reached before a model was complete."""


class Deadline:
    """The end of a time limit.

    Args:
        seconds: From now on; None for no limit.

    >>> Deadline(None).left
    inf
    """

    def __init__(self, seconds: float | None) -> None:
        self._end = float("inf") if seconds is None else time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds left, at least 0."""
        return max(0.0, self._end - time.monotonic())

    def check(self) -> None:
        """Raise :class:`OutOfTimeError` if the time is over."""
        if not self.left:
            raise OutOfTimeError


class Model(ABC):
    """A model of the portfolio. Its probabilities are the mean of its fits, one per fold.

    Attributes:
        name: What it is called in the leaderboard.
        seconds: How long it was fitted.
        complete: Whether every fold was fitted to its end.
        stops_early: Whether it ends at a deadline with what it has; others raise :class:`OutOfTimeError`.
    """

    name: str
    stops_early: bool = False
    seconds: float = 0.0
    complete: bool = True

    @abstractmethod
    def fit(self, folds: Folds, deadline: Deadline, progress: Progress) -> list[Array]:
        """Fit every fold, or go on from a checkpoint; the probabilities of each fold's validation rows.

        Args:
            folds: Rows and folds.
            deadline: When to stop.
            progress: Called with how much is done, of how much, and the value so far as text.
        """

    @abstractmethod
    def predict(self, table: Table) -> Array:
        """Probabilities (n, classes) or (n, labels)."""

    @abstractmethod
    def described(self) -> dict[str, Any]:
        """What a model folder notes of it, as plain values; a ValueError if it cannot be saved."""

    @abstractmethod
    def to_bytes(self) -> bytes:
        """Its fits as a file that holds no code."""

    @classmethod
    @abstractmethod
    def restored(cls, name: str, described: dict[str, Any], content: bytes, task: Task, recipe: Recipe) -> Model:
        """The model again, from :meth:`described` and :meth:`to_bytes`; whatever is not allowed is a ValueError."""


@dataclass(frozen=True)
class FittedModel:
    """A model and what it says of the rows that were held out.

    Attributes:
        model: The model.
        held_out: Probabilities of each fold's validation rows.
    """

    model: Model
    held_out: list[Array]


def fit_models(models: Sequence[Model], folds: Folds, time_limit: float | None, *, show: bool) -> list[FittedModel]:
    """Fit one model after another; what is complete is kept when the time is over, or at Ctrl-C.

    The first model is fitted whatever the limit, so that there is one.

    Args:
        models: In the order they are fitted.
        folds: Rows and folds.
        time_limit: Seconds; None for no limit.
        show: Whether to show progress.
    """
    fitted: list[FittedModel] = []
    deadline = Deadline(time_limit)
    for place, model in enumerate(models):
        if fitted and not deadline.left:
            break
        # What is left is shared among the networks that are still to come; trees are quick and take what they need.
        if model.stops_early:
            own = Deadline(deadline.left / sum(other.stops_early for other in models[place:]))
        else:
            own = deadline if fitted else Deadline(None)
        try:
            with progress_bar(show, model.name) as progress:
                held_out = model.fit(folds, own, progress)
        except OutOfTimeError:
            break
        except KeyboardInterrupt:
            if not fitted:
                raise
            warnings.warn(
                f"training was interrupted while {model.name} was fitted; the {len(fitted)} models before it are kept.",
                RuntimeWarning,
                stacklevel=3,
            )
            break
        fitted.append(FittedModel(model, held_out))
        if not model.complete:
            break
    return fitted
