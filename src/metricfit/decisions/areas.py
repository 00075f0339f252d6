"""Areas under curves of more scores than memory holds, with bounds, in a few passes over chunks of them.

Scores are counted by their first bits, as in :mod:`metricfit.decisions.streaming`. What a bin adds to the area depends
on the order inside it, but only between two bounds. Bins whose bounds are far apart are counted again by more bits,
until the sum of all that is left is small; a bin that holds one score only is a tie, and exact.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit import metrics
from metricfit.decisions.streaming import BITS, Chunk, Stream

__all__ = ["AreaBounds", "area_of_chunks"]

CELLS = 2**20
"""Bins that are counted in one pass, 16 bytes each."""

LEAST_BITS = 4
"""By which bins are cut further, where there are too many for more."""

Array = NDArray[np.float64]
Bounds = Callable[[Array, Array, float], tuple[Array, Array, Array]]


@dataclass(frozen=True)
class AreaBounds:
    """An area and how exact it is.

    Attributes:
        value: The middle between the bounds.
        low: The area is at least this.
        high: The area is at most this.
        passes: How often the chunks were read.
    """

    value: float
    low: float
    high: float
    passes: int

    def __float__(self) -> float:
        """The value."""
        return self.value


def area_of_chunks(
    chunks: Callable[[], Iterable[Chunk]],
    metric: Any = "auroc",
    *,
    tolerance: float = 1e-6,
    labels: Sequence[Hashable] = (0, 1),
) -> AreaBounds:
    """The area under the ROC or the precision-recall curve, in memory that does not grow with the samples.

    The value is within ``tolerance`` of scikit-learn's ``roc_auc_score`` or ``average_precision_score``, and the bounds
    say how far it can be off. Two to four passes are usual, more for smaller tolerances; 0 resolves every score, for
    which memory may grow with the number of different scores.

    Args:
        chunks: Called once for each pass; gives chunks ``(y_true, score)`` or ``(y_true, score, sample_weight)``,
            always the same rows.
        metric: ``"auroc"`` or ``"auprc"``.
        tolerance: How far the value may be from the exact one.
        labels: The two classes, negative first.

    >>> parts = [([0, 0, 1], [0.1, 0.2, 0.35]), ([0, 1, 1], [0.4, 0.6, 0.9])]
    >>> area_of_chunks(lambda: parts).value
    0.8888888888888888
    """
    measure = metrics.get(metric)
    if measure not in (metrics.AUROC(), metrics.AUPRC()):
        raise ValueError(f"metric: expected 'auroc' or 'auprc', got {measure}; other metrics have no area.")
    if not tolerance >= 0:
        raise ValueError(f"tolerance: expected a number >= 0, got {tolerance}.")
    stream = Stream(chunks, labels)
    counts, total = stream.first_count("an area needs both classes")
    bounds = _of_roc if measure == metrics.AUROC() else _of_precision
    scale = total[0] * total[1] if bounds is _of_roc else total[0]
    search = _Search(stream, bounds, tolerance * scale)
    low, high = (float(value / scale) for value in search.run(counts))
    return AreaBounds((low + high) / 2, low, high, search.passes)


@dataclass(frozen=True)
class _Cells:
    """Bins, the (positives, negatives) above each, and the bounds of what each adds to the area."""

    prefixes: NDArray[np.uint64]
    above: Array
    low: Array
    high: Array

    def at(self, places: Any) -> _Cells:
        return _Cells(self.prefixes[places], self.above[places], self.low[places], self.high[places])


class _Search:
    def __init__(self, stream: Stream, bounds: Bounds, tolerance: float) -> None:
        self.stream, self.bounds, self.tolerance = stream, bounds, tolerance
        self.low = self.high = 0.0
        self.passes = 1

    def run(self, counts: Array) -> tuple[float, float]:
        """The bounds of the area, not yet divided by all pairs or positives; given the counts of the first pass."""
        depth = BITS
        cells = self._settle(self._cells(np.zeros(1, np.uint64), np.zeros((1, 2)), counts, depth), is_all=True)
        while len(cells.prefixes):
            room = max(int(np.log2(CELLS / len(cells.prefixes))), LEAST_BITS)
            bits = min(room, BITS, self.stream.width - depth)
            depth += bits
            found = []
            is_all = len(cells.prefixes) <= CELLS >> bits
            for start in range(0, len(cells.prefixes), CELLS >> bits):
                part = cells.at(slice(start, start + (CELLS >> bits)))
                counts = self.stream.count(part.prefixes, self.stream.width - depth, bits)
                found.append(self._settle(self._cells(part.prefixes, part.above, counts, depth), is_all))
                self.passes += 1
            cells = _Cells(*(np.concatenate([getattr(f, name) for f in found]) for name in _Cells.__annotations__))
        return self.low, self.high

    def _cells(self, prefixes: NDArray[np.uint64], above: Array, counts: Array, depth: int) -> _Cells:
        """The bins that counts (prefixes, parts of each, 2) find, lowest first."""
        which, inner = np.nonzero(counts.any(axis=-1))
        inside = counts[which, inner]
        before = above[which] + np.cumsum(counts[:, ::-1], axis=1)[:, ::-1][which, inner] - inside
        low, high, tie = self.bounds(before, inside, 0.0 if self.stream.is_weighted else 0.5)
        if depth == self.stream.width:
            low = high = tie
        return _Cells(prefixes[which] * np.uint64(counts.shape[1]) + inner.astype(np.uint64), before, low, high)

    def _settle(self, cells: _Cells, is_all: bool) -> _Cells:
        """Add what need not be resolved further; return the rest. ``is_all``: there are no other bins."""
        gaps = cells.high - cells.low
        order = np.argsort(gaps)
        left = max(2 * self.tolerance - (self.high - self.low), 0.0)
        if gaps.sum() <= (left if is_all else left / 2):
            number = len(order)
        else:  # bins of the passes to come are to have some of it
            number = int(np.searchsorted(np.cumsum(gaps[order]), left / 4, side="right"))
        self.low += float(cells.low[order[:number]].sum())
        self.high += float(cells.high[order[:number]].sum())
        return cells.at(np.sort(order[number:]))


def _of_roc(above: Array, inside: Array, shift: float) -> tuple[Array, Array, Array]:
    """Pairs in the right order, those that end in a bin: at least, at most, and if all its scores are equal."""
    pairs = inside[:, 1] * above[:, 0]
    mixed = inside[:, 0] * inside[:, 1]
    return pairs, pairs + mixed, pairs + mixed / 2


def _of_precision(above: Array, inside: Array, shift: float) -> tuple[Array, Array, Array]:
    """The sum of precisions over a bin's positives: at least, at most, and if all its scores are equal.

    At most: all positives come first and together. At least: last and one by one, the sum of t / (t + negatives) at the
    end of each; it is an increasing, concave function, and the integral is less, for positives of weight 1 even from
    the middle of one to the middle of the next.
    """
    positives = inside[:, 0]
    negatives = above[:, 1] + inside[:, 1]
    through = above[:, 0] + positives
    with np.errstate(divide="ignore", invalid="ignore"):
        low = positives - negatives * np.log1p(positives / (above[:, 0] + shift + negatives))
        high, tie = positives * through / (through + above[:, 1]), positives * through / (through + negatives)
    low = np.where(negatives > 0, low, positives)
    low, high, tie = (np.where(positives > 0, values, 0.0) for values in (low, high, tie))
    return np.minimum(low, high), high, tie
