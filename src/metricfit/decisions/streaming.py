"""The best cut-off of more scores than memory holds: exact, in a few passes over chunks of them.

Scores are read as whole numbers of the same order (their bits), and counted by their first 16 bits. Between two edges
of such bins the counts can only lie between those at the edges, so most bins cannot hold a better cut-off than the
best edge. The others are counted again by their next 16 bits: float32 scores are resolved after two passes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from metricfit.confusion import ConfusionMatrix
from metricfit.decisions.problem import ConstraintLike, Goal, InfeasibleError, UntunableError, goal_of, score_array
from metricfit.decisions.rules import BestRule, CalibratedRule, DecisionRule
from metricfit.decisions.threshold import CHUNK, Sweep, best_place
from metricfit.labels import as_label_array, checked_weights, encode_labels

__all__ = ["BITS", "Chunk", "Stream", "best_threshold_of_chunks", "chunks_of", "confusion_of_chunks"]

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
    """Scores as whole numbers of their order, as often as they are asked for; ``labels``: negative first."""

    def __init__(self, chunks: Callable[[], Iterable[Chunk]], labels: Sequence[Hashable]) -> None:
        if len(labels) != 2:
            raise ValueError(f"labels: expected two classes, negative first, got {list(labels)}.")
        self.chunks, self.labels = chunks, tuple(labels)
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
            score = score_array(chunk[1], "score")
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

    def first_count(self, needs: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The counts of the first pass, and the weights of positives and negatives; there must be both."""
        counts = self.count(np.zeros(1, np.uint64), None)
        total = counts.sum(axis=(0, 1))
        if not total.any():
            raise ValueError("sample_weight: all weights are zero.")
        if not total.all():
            only = self.labels[int(total[0] > 0)]
            raise UntunableError(f"y_true: only the class {only!r} occurs (with a weight); {needs}.")
        return counts, total

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


MOST_BINS = 64
"""Bins that are looked into in one pass, 1 MB each."""


def best_threshold_of_chunks(
    chunks: Callable[[], Iterable[Chunk]],
    metric: Any,
    *,
    subject_to: ConstraintLike | Sequence[ConstraintLike] = (),
    labels: Sequence[Hashable] = (0, 1),
) -> BestRule:
    """The same cut-off as :func:`metricfit.decisions.best_threshold`, in memory that does not grow with the samples.

    It is the best of all for metrics that rise with true positives and fall with false positives, or the reverse, at
    a fixed number of the other: all named ones do where a cut-off does better than chance. For other functions of the
    matrix it is the best of all bins' edges and of those bins whose corners promise more. For several labels and a
    macro average, call it once for each label's column.

    Args:
        chunks: Called once for each pass (3 for float32, up to 5 for float64 scores); gives chunks ``(y_true, score)``
            or ``(y_true, score, sample_weight)``, always the same rows.
        metric: As for ``best_threshold``.
        subject_to: Constraints.
        labels: The two classes, negative first.

    >>> parts = [([0, 0, 1], [0.1, 0.2, 0.35]), ([0, 1, 1], [0.4, 0.6, 0.9])]
    >>> best = best_threshold_of_chunks(lambda: parts, "f1")
    >>> best.threshold, best.value
    (0.275, 0.8571428571428571)
    """
    goal = goal_of(metric, subject_to)
    stream = Stream(chunks, labels)
    search = _Search(goal, stream)
    best = search.run()
    if best is None:
        raise ValueError(f"metric: {goal.metric} is undefined (NaN) at every cut-off.")
    if best.violation > 0:
        raise InfeasibleError(f"subject_to: no cut-off meets {' and '.join(str(c) for c in goal.constraints)}.", {})
    cm = search.matrix(best.counts[None])
    rule = DecisionRule.at_threshold(stream.threshold(best.key), tuple(labels), metric=goal.spec)
    return BestRule.of(rule, goal, cm.with_matrix(cm.matrix[0]), cutoffs=search.cutoffs)


def confusion_of_chunks(chunks: Callable[[], Iterable[Chunk]], rule: DecisionRule | CalibratedRule) -> ConfusionMatrix:
    """The confusion matrix of a rule's decisions over chunks, in one pass: any metric of it is exact, as counts add up.

    Args:
        chunks: Gives chunks ``(y_true, score)`` or ``(y_true, score, sample_weight)``; scores as for
            :meth:`DecisionRule.apply`.
        rule: The rule.

    >>> from metricfit import metrics
    >>> from metricfit.decisions import DecisionRule
    >>> parts = [([0, 0, 1], [0.1, 0.2, 0.35]), ([0, 1, 1], [0.4, 0.6, 0.9])]
    >>> matrix = confusion_of_chunks(lambda: parts, DecisionRule.at_threshold(0.3))
    >>> metrics.get("f1").compute(matrix)
    tensor(0.8571, dtype=torch.float64)
    """
    plain = rule.rule if isinstance(rule, CalibratedRule) else rule
    total: ConfusionMatrix | None = None
    for y_true, score, *weight in chunks_of(chunks):
        if weight and not np.any(weight[0]):
            continue  # adds nothing
        matrix = ConfusionMatrix.from_labels(
            y_true, rule.apply(score), labels=plain.classes, sample_weight=(*weight, None)[0]
        )
        total = matrix if total is None else total + matrix
    if total is None:
        raise ValueError("sample_weight: all weights are zero.")
    return total


@dataclass(frozen=True)
class _Edge:
    """A cut-off: scores whose whole number is at least ``key`` are positive."""

    key: int
    counts: NDArray[np.float64]
    violation: float
    gain: float
    correct: float

    @property
    def worth(self) -> tuple[float, float, float, int]:
        """Larger is better; the higher cut-off among equals, as a sweep from above finds it first."""
        return (-self.violation, self.gain, self.correct, self.key)


@dataclass(frozen=True)
class _Bins:
    """Bins to be looked into: numbers that begin with a prefix, and the (tp, fp) above them."""

    prefixes: NDArray[np.uint64]
    above: NDArray[np.float64]


class _Search:
    def __init__(self, goal: Goal, stream: Stream) -> None:
        self.goal, self.stream = goal, stream
        self.total = np.zeros(2)
        self.best: _Edge | None = None
        self.cutoffs = 0

    def run(self) -> _Edge | None:
        counts, self.total = self.stream.first_count("a cut-off needs both classes")
        shift = self.stream.width - BITS
        self._note_edges(np.zeros((1, 2)), np.array([1 << BITS], np.uint64), shift)  # nobody
        found = [self._look(_Bins(np.zeros(1, np.uint64), np.zeros((1, 2))), counts, shift)]
        while shift > 0 and (waiting := _batches(found)):
            shift -= BITS
            found = [self._look(bins, self.stream.count(bins.prefixes, shift), shift) for bins in waiting]
        return self.best

    def _look(self, bins: _Bins, counts: NDArray[np.float64], shift: int) -> _Bins:
        """Note the best edge of these bins, and return those inside which a better one may lie."""
        # From the highest bin down, so that the first of equal edges is the highest, as in a sweep.
        which, inner = (places[::-1] for places in np.nonzero(counts.any(axis=-1)))
        # Counts from the highest bin down: before (above the bin) and after it.
        falling = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1]
        after = bins.above[which] + falling[which, inner]
        before = after - counts[which, inner]
        prefixes = (bins.prefixes[which] << np.uint64(BITS)) + inner.astype(np.uint64)
        self._note_edges(after, prefixes, shift)
        if shift == 0:
            return _Bins(prefixes[:0], before[:0])
        hopeful = self._hopeful(before, after)
        rising = np.argsort(prefixes[hopeful])
        return _Bins(prefixes[hopeful][rising], before[hopeful][rising])

    def _note_edges(self, counts: NDArray[np.float64], prefixes: NDArray[np.uint64], shift: int) -> None:
        self.cutoffs += len(prefixes)
        for start in range(0, len(counts), CHUNK):
            part = counts[start : start + CHUNK]
            violation, gain, correct = self._worth(part)
            place = int(best_place(torch.where(gain == -torch.inf, torch.inf, violation), gain, correct))
            if gain[place] == -torch.inf:
                continue
            key = int(prefixes[start + place]) << shift
            edge = _Edge(key, part[place], float(violation[place]), float(gain[place]), float(correct[place]))
            if self.best is None or edge.worth > self.best.worth:
                self.best = edge

    def _hopeful(self, before: NDArray[np.float64], after: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Bins whose corners, taken at their best, are worth at least as much as the best edge."""
        hopeful = np.ones(len(before), dtype=bool)
        if self.best is None:
            return hopeful
        for start in range(0, len(before), CHUNK):
            low, high = before[start : start + CHUNK], after[start : start + CHUNK]
            corners = [np.stack([tp[:, 0], fp[:, 1]], axis=1) for tp in (low, high) for fp in (low, high)]
            worths = [self._worth(corner) for corner in corners]
            violation = torch.stack([worth[0] for worth in worths]).amin(dim=0)
            gain = torch.stack([worth[1] for worth in worths]).amax(dim=0)
            better = (violation < self.best.violation) | ((violation <= self.best.violation) & (gain >= self.best.gain))
            hopeful[start : start + CHUNK] = better.numpy()
        return hopeful

    def _worth(self, counts: NDArray[np.float64]) -> tuple[Tensor, Tensor, Tensor]:
        cm = self.matrix(counts)
        violation, gain = self.goal.keys(cm)
        return violation, gain, cm.matrix[:, 0, 0] + cm.matrix[:, 1, 1]

    def matrix(self, counts: NDArray[np.float64]) -> ConfusionMatrix:
        """(tp, fp) pairs as binary confusion matrices."""
        tp, fp = counts[:, 0], counts[:, 1]
        sweep = Sweep(np.zeros(1), self.total[:1], self.total[1:], self.stream.labels)
        return sweep.matrix(sweep.cells(tp, fp))


def _batches(found: list[_Bins]) -> list[_Bins]:
    """At most MOST_BINS bins each, so that a pass over them stays small."""
    prefixes, above = np.concatenate([b.prefixes for b in found]), np.concatenate([b.above for b in found])
    starts = range(0, len(prefixes), MOST_BINS)
    return [_Bins(prefixes[s : s + MOST_BINS], above[s : s + MOST_BINS]) for s in starts]
