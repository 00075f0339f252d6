"""Scores that come in chunks, read as whole numbers of the same order, and counted by their bits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metricfit._labels import checked_weights, encode_labels
from metricfit.decisions._samples import _scores
from metricfit.decisions.sweep import Sweep

__all__ = ["BITS", "Chunk", "Stream", "chunks_of"]

Chunk = tuple[ArrayLike, ArrayLike] | tuple[ArrayLike, ArrayLike, ArrayLike]
"""Labels, scores and, if there are any, weights."""

BITS = 16
"""By which scores are told apart in one pass."""


def chunks_of(chunks: Callable[[], Iterable[Chunk]]) -> Iterable[Any]:
    """The chunks of one pass."""
    if not callable(chunks):
        raise TypeError(
            f"chunks: expected a function that gives the chunks anew for each pass, got {type(chunks).__name__}; "
            "wrap it: lambda: chunks."
        )
    return chunks()


class Stream:
    """Scores as whole numbers of their order, as often as they are asked for.

    Args:
        chunks: Gives the chunks.
        labels: The two classes, negative first.
    """

    def __init__(self, chunks: Callable[[], Iterable[Chunk]], labels: tuple[Any, ...]) -> None:
        self.chunks, self.labels = chunks, labels
        self.dtype: np.dtype[Any] | None = None
        self.is_weighted = False

    @property
    def width(self) -> int:
        """Bits of a score."""
        return 32 if self.dtype == np.float32 else 64

    def __iter__(self) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.bool_], NDArray[np.float64] | None]]:
        found = False
        for chunk in chunks_of(self.chunks):
            found = True
            score = _scores(chunk[1], "score")
            target = np.asarray(chunk[0])
            if score.ndim != 1 or target.shape != score.shape:
                raise ValueError(f"score: expected y_true and score of shape (n,), got {target.shape}, {score.shape}.")
            self.dtype = self.dtype or (np.dtype(np.float32) if score.dtype == np.float32 else np.dtype(np.float64))
            if self.width == 32 and score.dtype != np.float32:
                raise TypeError(f"score: the first chunk was float32, a later one is {score.dtype}; use one type.")
            weight = checked_weights(chunk[2], len(target)) if len(chunk) == 3 else None
            self.is_weighted |= weight is not None
            positive = encode_labels(target, self.labels, "y_true") == 1
            yield _ordered(score.astype(self.dtype)), positive, weight
        if not found:
            raise ValueError("chunks: no chunk came; the function must give the chunks anew at each call.")

    def count(self, prefixes: NDArray[np.uint64], shift: int | None, bits: int = BITS) -> NDArray[np.float64]:
        """Weights of positives and negatives, (prefixes, 2^bits, 2), in one pass.

        Args:
            prefixes: First bits of the numbers to be counted, rising.
            shift: How many bits the numbers go on after those that are counted; None for the first pass, which counts
                all numbers by their first bits.
            bits: How many bits after the prefix tell the counts apart.
        """
        size = 1 << bits
        counts = np.zeros((2, len(prefixes) * size))
        for keys, positive, weight in self:
            low = np.uint64(self.width - bits if shift is None else shift)
            inner = (keys >> low).astype(np.int64) & (size - 1)
            if shift is not None:
                prefix = keys >> (low + np.uint64(bits))
                place = np.searchsorted(prefixes, prefix).clip(max=len(prefixes) - 1)
                kept = prefixes[place] == prefix
                inner, positive = (inner + place * size)[kept], positive[kept]
                weight = None if weight is None else weight[kept]
            for column, mask in ((0, positive), (1, ~positive)):
                added = np.bincount(inner[mask], None if weight is None else weight[mask])
                counts[column, : len(added)] += added
        return counts.reshape(2, -1, size).transpose(1, 2, 0)

    def threshold(self, key: int) -> float:
        """Midway between the lowest score from ``key`` on and the highest below it, in one more pass."""
        upper: int | None = None
        lower: int | None = None
        for keys, _, _ in self:
            reach, below = keys[keys >= np.uint64(key)], keys[keys < np.uint64(key)] if key else keys[:0]
            if len(reach):
                upper = int(reach.min()) if upper is None else min(upper, int(reach.min()))
            if len(below):
                lower = int(below.max()) if lower is None else max(lower, int(below.max()))
        dtype = self.dtype or np.dtype(np.float64)
        if upper is None:
            return float(np.nextafter(_score_of(lower or 0, dtype), np.array(np.inf, dtype)))
        if lower is None:
            return float(_score_of(upper, dtype))
        scores = np.array([_score_of(upper, dtype), _score_of(lower, dtype)], dtype)
        return Sweep(scores, np.zeros(3), np.zeros(3)).threshold(1)


def _ordered(score: NDArray[Any]) -> NDArray[np.uint64]:
    """Whole numbers >= 0 in the order of the scores, from their bits."""
    wide = score.dtype == np.float64
    bits = (score + score.dtype.type(0)).view(np.uint64 if wide else np.uint32)  # -0 and 0 are one score
    top = bits.dtype.type(1 << (63 if wide else 31))
    flipped: NDArray[np.uint64] = np.where(bits & top, ~bits, bits | top).astype(np.uint64)
    return flipped


def _score_of(key: int, dtype: np.dtype[Any]) -> Any:
    """The score of such a number."""
    wide = dtype == np.float64
    top, every = (1 << 63, (1 << 64) - 1) if wide else (1 << 31, (1 << 32) - 1)
    bits = key ^ top if key & top else key ^ every
    return np.array(bits, np.uint64 if wide else np.uint32).view(dtype)[()]
