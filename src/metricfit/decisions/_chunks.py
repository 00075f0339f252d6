"""Scores that come in chunks, read as whole numbers of the same order, and counted by their bits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metricfit.labels import as_label_array, checked_weights, encode_labels
from metricfit.decisions._samples import UntunableError, _scores
from metricfit.decisions.sweep import Sweep

__all__ = ["BITS", "Chunk", "Stream", "chunks_of"]

Chunk = tuple[ArrayLike, ArrayLike] | tuple[ArrayLike, ArrayLike, ArrayLike]
"""Labels, scores and, if there are any, weights."""

BITS = 16
"""By which scores are told apart in one pass."""


def chunks_of(chunks: Callable[[], Iterable[Chunk]]) -> Iterator[Any]:
    """The chunks of one pass that have rows."""
    if not callable(chunks):
        raise TypeError(
            f"chunks: expected a function that gives the chunks anew for each pass, got {type(chunks).__name__}; "
            "wrap it: lambda: chunks."
        )
    found = False
    for chunk in chunks():
        if len(chunk[1]):  # type: ignore[arg-type]
            found = True
            yield chunk
    if not found:
        raise ValueError("chunks: no chunk came with rows; the function must give the chunks anew at each call.")


class Stream:
    """Scores as whole numbers of their order, as often as they are asked for.

    Args:
        chunks: Gives the chunks.
        labels: The two classes, negative first.
    """

    def __init__(self, chunks: Callable[[], Iterable[Chunk]], labels: tuple[Any, ...]) -> None:
        self.chunks, self.labels = chunks, labels
        self.given: np.dtype[Any] | None = None
        self.is_weighted = False

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type whose bits are counted; it holds the scores as they were given exactly."""
        return np.dtype(np.float32) if self.given in (np.float16, np.float32) else np.dtype(np.float64)

    @property
    def width(self) -> int:
        """Bits of a score."""
        return 8 * self.dtype.itemsize

    def __iter__(self) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.bool_], NDArray[np.float64] | None]]:
        for chunk in chunks_of(self.chunks):
            score = _scores(chunk[1], "score")
            target = as_label_array(chunk[0], "y_true")
            if score.ndim != 1 or target.shape != score.shape:
                raise ValueError(f"score: expected y_true and score of shape (n,), got {target.shape}, {score.shape}.")
            self.given = self.given or score.dtype
            if self.width == 32 and score.dtype != self.given:
                raise TypeError(f"score: the first chunk was {self.given}, a later one is {score.dtype}; use one type.")
            weight = checked_weights(chunk[2], len(target), all_zero=True) if len(chunk) == 3 else None
            self.is_weighted |= weight is not None
            positive = encode_labels(target, self.labels, "y_true") == 1
            yield _ordered(score.astype(self.dtype)), positive, weight

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
        nobody = key >> self.width  # beyond every number, and with 64 bits none of NumPy's
        ends: set[int] = set()
        for keys, _, _ in self:
            seen = {int(keys.min()), int(keys.max()), *ends}
            ends = {min(seen), max(seen)}
            reaches = np.zeros(len(keys), dtype=bool) if nobody else keys >= np.uint64(key)
            reach, below = keys[reaches], keys[~reaches]
            if len(reach):
                upper = int(reach.min()) if upper is None else min(upper, int(reach.min()))
            if len(below):
                lower = int(below.max()) if lower is None else max(lower, int(below.max()))
        if len(ends) == 1:
            only = _score_of(ends.pop(), self.dtype)
            raise UntunableError(
                f"score: all scores are {only:g}; no cut-off can separate the classes. Is the model fitted?"
            )
        around = [_score_of(end, self.dtype) for end in (upper, lower) if end is not None]
        sweep = Sweep(np.array(around, self.given), np.zeros(3), np.zeros(3))
        return sweep.threshold(0 if upper is None else 1)


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
