"""Numbers as features: standardised, as normal scores, with indicators of gaps and of a few whole values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

__all__ = ["NumberEncoder", "NumericMode", "normal_score_curve", "row_chunks"]

NumericMode = Literal["both", "standard", "quantile"]

STANDARD_LIMIT = 10.0
SCORE_LIMIT = 3.0
_ROWS = 2**15
_KNOTS = 1000
_ROWS_PER_LEVEL = 10


def row_chunks(rows: int) -> Iterator[slice]:
    """Slices of some ten thousand rows, so that temporary arrays stay small whatever the size of the table.

    >>> list(row_chunks(3))
    [slice(0, 3, None)]
    """
    return (slice(start, min(start + _ROWS, rows)) for start in range(0, rows, _ROWS))


def normal_score_curve(sample: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Knots (x, normal score) of the piecewise-linear map from values to normal scores, clipped at ±3.

    Score of a value = Φ⁻¹(its rank in [0, 1]); tied values share the mean of their ranks, so that a value that most
    rows have lies near the middle of its ranks and not at an end.

    Args:
        sample: Finite values, at least one.

    Example:
        >>> x, score = normal_score_curve(np.array([1.0, 2.0, 3.0]))
        >>> x, score
        (array([1., 2., 3.]), array([-3., 0., 3.]))
    """
    ranks = np.linspace(0.0, 1.0, min(_KNOTS, len(sample)))
    quantiles = np.quantile(sample, ranks)
    # Rounding in the interpolation must not break the order.
    quantiles = np.maximum.accumulate(quantiles)
    x, group = np.unique(quantiles, return_inverse=True)
    mean_rank = np.bincount(group, weights=ranks) / np.bincount(group)
    return x, np.clip(ndtri(mean_rank), -SCORE_LIMIT, SCORE_LIMIT)


@dataclass
class NumberEncoder:
    """Features of one column of numbers.

    Attributes:
        mode: Which of the two continuous features to give.
        centre: Mean of the values.
        scale: Standard deviation of the values; 0 for a constant column, which has no continuous feature.
        fill: Median, in place of gaps.
        knots: Where the map to normal scores bends; empty where it would only repeat the standardised values.
        scores: Normal scores at the knots.
        levels: Whole numbers with an indicator each; empty unless the column has few.
        indicator: Whether there is an indicator of gaps.
    """

    mode: NumericMode = "both"
    centre: float = 0.0
    scale: float = 0.0
    fill: float = 0.0
    knots: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    scores: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    levels: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    indicator: bool = False

    @classmethod
    def fit(
        cls,
        values: NDArray[Any],
        sample_rows: NDArray[np.intp] | None,
        *,
        name: str,
        mode: NumericMode,
        integer_levels: int,
    ) -> Self:
        """Learn the features of a column.

        Args:
            values: Finite numbers and NaN.
            sample_rows: Rows to take the quantiles of; None for all.
            name: Name of the column, for errors.
            mode: See the class.
            integer_levels: Columns of at most so many distinct whole numbers, in at least ten times as many rows,
                get indicators of them.
        """
        encoder = cls(mode=mode)
        low, high, encoder.centre, encoder.scale, gaps = _moments(values)
        check_finite(np.array([low, high]), name)
        encoder.indicator = gaps > 0
        if not low < high:
            encoder.scale = 0.0
            encoder.fill = low
            return encoder
        sample = _present_sample(values, sample_rows)
        encoder.fill = float(np.median(sample))
        few = _few_distinct(values, max(2, integer_levels))
        if few is None or len(few) > 2:
            if mode != "standard":
                encoder.knots, encoder.scores = normal_score_curve(sample)
            if few is not None and len(few) * _ROWS_PER_LEVEL <= len(values) and bool((few == np.round(few)).all()):
                encoder.levels = few
        return encoder

    @property
    def suffixes(self) -> list[str]:
        """What is added to the name of the column, one entry a feature."""
        names = [] if self.scale == 0.0 else ["", "__quantile"]
        if not len(self.knots):
            names = names[:1]
        elif self.mode == "quantile":
            names = names[1:]
        names += [f"={level:g}" for level in self.levels]
        return names + ["__missing"] * self.indicator

    def write(self, values: NDArray[Any], out: NDArray[np.float32], name: str) -> None:
        """Write the features of ``values`` into the columns of ``out``."""
        for rows in row_chunks(len(values)):
            self._write_rows(np.array(values[rows], dtype=np.float64), out[rows], name)

    def _write_rows(self, x: NDArray[np.float64], out: NDArray[np.float32], name: str) -> None:
        gap = np.isnan(x)
        has_gaps = bool(gap.any())
        if has_gaps:
            x[gap] = self.fill
        check_finite(x, name)
        place = 0
        if self.scale > 0.0 and not (self.mode == "quantile" and len(self.knots)):
            # Divided first: a difference of two huge values may be infinite.
            out[:, place] = np.clip(x / self.scale - self.centre / self.scale, -STANDARD_LIMIT, STANDARD_LIMIT)
            place += 1
        if len(self.knots):
            out[:, place] = np.interp(x, self.knots, self.scores)
            place += 1
        if len(self.levels):
            out[:, place : place + len(self.levels)] = x[:, None] == self.levels
            if has_gaps:
                out[gap, place : place + len(self.levels)] = 0.0
            place += len(self.levels)
        if self.indicator:
            out[:, place] = gap


def check_finite(x: NDArray[np.float64], name: str) -> None:
    """Raise, naming the column, if there is an infinity."""
    if not np.isfinite(x).all():
        raise ValueError(
            f"X: column {name!r} contains infinity; replace it by a number, or by NaN if the value is unknown."
        )


def _moments(values: NDArray[Any]) -> tuple[float, float, float, float, int]:
    """Smallest, largest, mean and standard deviation of the values that are there, and the number of gaps."""
    low, high, gaps = np.inf, -np.inf, 0
    for rows in row_chunks(len(values)):
        x = values[rows].astype(np.float64)
        x = x[~np.isnan(x)]
        gaps += rows.stop - rows.start - len(x)
        if len(x):
            low, high = min(low, float(x.min())), max(high, float(x.max()))
    count = len(values) - gaps
    if not count:
        return 0.0, 0.0, 0.0, 0.0, gaps
    if not low < high or np.isinf(low) or np.isinf(high):
        return low, high, low, 0.0, gaps
    # Sums relative to the largest magnitude cannot overflow, and two passes keep the digits of a far-off mean.
    unit = max(abs(low), abs(high))
    centre = sum(float(np.nansum(values[rows].astype(np.float64) / unit)) for rows in row_chunks(len(values))) / count
    square = sum(
        float(np.nansum((values[rows].astype(np.float64) / unit - centre) ** 2)) for rows in row_chunks(len(values))
    )
    return low, high, centre * unit, float(np.sqrt(square / count)) * unit, gaps


def _present_sample(values: NDArray[Any], rows: NDArray[np.intp] | None) -> NDArray[np.float64]:
    sample = (values if rows is None else values[rows]).astype(np.float64)
    sample = sample[~np.isnan(sample)]
    if rows is not None and len(sample) < _KNOTS:
        # Nearly all gaps: the few values there are must all count.
        sample = values[~np.isnan(values)][: len(rows)].astype(np.float64)
    return np.asarray(sample)


def _few_distinct(values: NDArray[Any], most: int) -> NDArray[np.float64] | None:
    """The distinct values in order, or None if there are more than ``most``."""
    distinct = np.empty(0)
    for rows in (slice(0, 1000), *row_chunks(len(values))):
        x = values[rows].astype(np.float64)
        distinct = np.union1d(distinct, x[~np.isnan(x)])
        if len(distinct) > most:
            return None
    return distinct
