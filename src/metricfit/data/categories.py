"""Categories as features: indicators of the frequent ones, and for many levels also frequency and target rates."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = ["CategoryEncoder", "Folds", "target_scores"]

_PRIOR_ROWS = 10.0
_LEAST_REPEATED = 0.25
_SCORE_LIMIT = 10.0


@dataclass(frozen=True)
class Folds:
    """The target of the training rows and a partition of them, for cross-fitted target rates.

    Attributes:
        indicator: Whether a row belongs to a class, shape (n, classes).
        names: Names of the classes.
        fold: Part of each row, shape (n,).
        parts: Number of parts.
    """

    indicator: NDArray[np.bool_]
    names: list[str]
    fold: NDArray[np.int8]
    parts: int


def target_scores(hits: NDArray[Any], counts: NDArray[Any], prior: NDArray[Any]) -> NDArray[np.float64]:
    """How much more often a class occurs in a level than overall, as a difference of log-odds.

    The rate of a level is shrunk to the prior as if ten more rows had been seen: (hits + 10·prior) / (count + 10).

    Args:
        hits: Rows of each class in each level, shape (levels, classes).
        counts: Rows in each level, shape (levels,).
        prior: Overall rate of each class, shape (classes,), each strictly between 0 and 1.

    Example:
        >>> target_scores(np.array([[0.0]]), np.array([0.0]), np.array([0.3]))
        array([[0.]])
    """
    rate = (hits + _PRIOR_ROWS * prior) / (counts[:, None] + _PRIOR_ROWS)
    return np.asarray(np.log(rate / (1 - rate)) - np.log(prior / (1 - prior)))


@dataclass
class CategoryEncoder:
    """Features of one column of categories.

    Attributes:
        levels: Known levels as text keys, the most frequent first.
        shown: How many of them, from the first, have an indicator each.
        rare: Whether one indicator stands for all other levels, those never seen included.
        indicator: Whether there is an indicator of gaps.
        log_count: Standardised log-frequency of each level, the last entry for unknown ones; empty if not a feature.
        target: Target scores of each level and class, the last row (zeros) for unknown ones; no columns if unused.
        target_scale: What the target scores were divided by, shape (classes,).
        target_names: Classes of the target scores.
    """

    levels: NDArray[Any] = field(default_factory=lambda: np.empty(0, dtype=object))
    shown: int = 0
    rare: bool = False
    indicator: bool = False
    log_count: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, dtype=np.float32))
    target: NDArray[np.float32] = field(default_factory=lambda: np.empty((1, 0), dtype=np.float32))
    target_scale: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    target_names: list[str] = field(default_factory=list)

    @classmethod
    def fit(
        cls,
        codes: NDArray[np.intp],
        keys: NDArray[Any],
        *,
        max_one_hot: int,
        min_frequency: int,
        frequency: bool,
        folds: Folds | None,
    ) -> Self:
        """Learn the features of a column.

        Args:
            codes: Position of each row's key, -1 for a gap.
            keys: Distinct keys.
            max_one_hot: At most so many indicators of levels.
            min_frequency: Levels with fewer rows have no indicator of their own.
            frequency: Whether to give the log-frequency of the level.
            folds: The target, for target rates; None for none.
        """
        encoder = cls(indicator=bool((codes < 0).any()))
        counts = np.bincount(codes[codes >= 0], minlength=len(keys))
        # A level of a declared category type need not occur.
        order = np.lexsort((keys.astype(str), -counts))[: int((counts > 0).sum())]
        if len(order) < 2:
            return encoder
        encoder.levels, counts = keys[order], counts[order]
        encoder.shown = int((counts[:max_one_hot] >= min_frequency).sum())
        encoder.rare = encoder.shown < len(order)
        if encoder.shown == 0 or counts[counts > 1].sum() < _LEAST_REPEATED * counts.sum():
            # Identifiers or free text: what is seen once says nothing about new rows.
            return cls(indicator=encoder.indicator)
        if frequency:
            encoder._fit_frequency(counts)
        if folds is not None:
            encoder._fit_target(encoder.find(codes, keys), counts, folds)
        if not frequency and folds is None:
            encoder.levels = encoder.levels[: encoder.shown]
        elif encoder.rare:
            # A level seen once says no more than an unknown one.
            encoder._keep(max(encoder.shown, int((counts > 1).sum())))
        return encoder

    def _keep(self, levels: int) -> None:
        self.levels = self.levels[:levels]
        if len(self.log_count):
            self.log_count = np.append(self.log_count[:levels], self.log_count[-1])
        self.target = np.concatenate([self.target[:levels], self.target[-1:]])

    def _fit_frequency(self, counts: NDArray[np.intp]) -> None:
        logs = np.append(np.log(counts), 0.0)
        mean = np.average(logs[:-1], weights=counts)
        deviation = float(np.sqrt(np.average((logs[:-1] - mean) ** 2, weights=counts)))
        if deviation > 1e-6:
            self.log_count = ((logs - mean) / deviation).astype(np.float32)

    def _fit_target(self, level: NDArray[np.intp], counts: NDArray[np.intp], folds: Folds) -> None:
        hits = _hits(level, len(counts), folds.indicator)
        scores = target_scores(hits, counts, _prior(folds.indicator))
        deviation = np.sqrt(np.average(scores**2, axis=0, weights=counts))
        self.target_scale = np.where(deviation > 1e-6, deviation, 1.0)
        self.target = self._scaled(np.vstack([scores, np.zeros(scores.shape[1])]))
        self.target_names = folds.names

    def _scaled(self, scores: NDArray[np.float64]) -> NDArray[np.float32]:
        return np.clip(scores / self.target_scale, -_SCORE_LIMIT, _SCORE_LIMIT).astype(np.float32)

    @property
    def suffixes(self) -> list[str]:
        """What is added to the name of the column, one entry a feature."""
        names = [f"={level}" for level in self._indicated]
        names += ["__rare"] * self.rare + ["__frequency"] * bool(len(self.log_count))
        names += [f"__target={name}" for name in self.target_names]
        return names + ["__missing"] * self.indicator

    @property
    def _indicated(self) -> NDArray[Any]:
        # Of two levels one indicator says all; the more frequent is the one left out.
        return self.levels[1:2] if self.shown == 2 and not self.rare else self.levels[: self.shown]

    def find(self, codes: NDArray[np.intp], keys: NDArray[Any]) -> NDArray[np.intp]:
        """The level of each row; -1 for an unknown one, -2 for a gap."""
        known = pd.Index(self.levels, dtype=object).get_indexer(pd.Index(keys, dtype=object))
        return np.append(known, -2)[codes]

    def write(
        self, codes: NDArray[np.intp], keys: NDArray[Any], out: NDArray[np.float32], folds: Folds | None = None
    ) -> None:
        """Write the features into the columns of ``out``.

        Args:
            codes: Position of each row's key, -1 for a gap.
            keys: Distinct keys.
            out: Shape (n, features).
            folds: Given for the training rows: their target rates are then taken from the other parts only.
        """
        level = self.find(codes, keys)
        first = 1 if len(self._indicated) < self.shown else 0
        place = len(self._indicated)
        out[:, :place] = 0.0
        rows = np.flatnonzero((level >= first) & (level < self.shown))
        out[rows, level[rows] - first] = 1.0
        if self.rare:
            out[:, place] = (level >= self.shown) | (level == -1)
            place += 1
        if len(self.log_count):
            out[:, place] = np.where(level == -2, np.float32(0.0), self.log_count[np.maximum(level, -1)])
            place += 1
        if self.target_names:
            stop = place + len(self.target_names)
            if folds is None:
                out[:, place:stop] = self.target[np.maximum(level, -1)]
            else:
                self._write_cross_fitted(level, out[:, place:stop], folds)
            place = stop
        if self.indicator:
            out[:, place] = level == -2

    def _write_cross_fitted(self, level: NDArray[np.intp], out: NDArray[np.float32], folds: Folds) -> None:
        size = len(self.levels)
        prior = _prior(folds.indicator)
        for part in range(folds.parts):
            here = folds.fold == part
            others = level[~here]
            counts = np.bincount(others[others >= 0], minlength=size)
            scores = target_scores(_hits(others, size, folds.indicator[~here]), counts, prior)
            table = self._scaled(np.vstack([scores, np.zeros(scores.shape[1])]))
            out[here] = table[np.maximum(level[here], -1)]

    def __getstate__(self) -> dict[str, Any]:
        """The levels as one piece of JSON: savers that write every string apart take long over many levels."""
        return {**self.__dict__, "levels": json.dumps(self.levels.tolist())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.levels = np.array(json.loads(state["levels"]), dtype=object)


def _prior(indicator: NDArray[np.bool_]) -> NDArray[np.float64]:
    # Half a row more of each kind keeps the log-odds finite for a label that all rows have.
    return np.asarray((indicator.sum(axis=0) + 0.5) / (len(indicator) + 1.0))


def _hits(level: NDArray[np.intp], size: int, indicator: NDArray[np.bool_]) -> NDArray[np.float64]:
    hits = [np.bincount(level[column & (level >= 0)], minlength=size) for column in indicator.T]
    return np.stack(hits, axis=1).astype(np.float64)
