"""More scores than memory holds: the best cut-off and confusion matrices, in passes over chunks.

Scores are read as whole numbers of the same order (their bits) and counted by their first 16 bits. A cut-off inside a
bin has counts between those at the bin's edges, so most bins cannot hold a better cut-off than the best edge. Only the
others are counted again, by their next bits: float32 scores are resolved after two passes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metricfit.confusion import ConfusionMatrix
from metricfit.decisions.problem import Array, Constraints, Goal, InfeasibleError, Key, Rows, UntunableError, goal_of
from metricfit.decisions.rules import BestRule, DecisionRule
from metricfit.decisions.threshold import CHUNK, Sweep, best_cut
from metricfit.inputs import expect
from metricfit.labels import as_label_array, checked_weights, encode_labels, score_array

BITS, LEAST_BITS = 16, 4  # by which scores are told apart in one pass: at most, and where there are very many bins
CELLS = 2**22  # bins that are counted in one pass, 16 bytes each

Chunk = tuple[ArrayLike, ArrayLike] | tuple[ArrayLike, ArrayLike, ArrayLike]  # labels, scores and perhaps weights
Chunks = Callable[[], Iterable[Chunk]]


def best_threshold_of_chunks(
    chunks: Chunks, metric: Any, *, subject_to: Constraints = (), labels: Sequence[Hashable] = (0, 1)
) -> BestRule:
    """The same cut-off as :func:`metricfit.decisions.best_threshold`, in memory that does not grow with the samples.

    It is the best of all for metrics that rise with true positives and fall with false positives, or the reverse, at
    a fixed number of the other: all named ones do where a cut-off does better than chance. For other functions of the
    matrix it is the best of all bins' edges and of those bins whose corners promise more. For several labels and a
    macro average, call it once for each label's column.

    ``chunks`` is called once for each pass (3 for float32, up to 5 for float64 scores). It gives chunks ``(y_true,
    score)`` or ``(y_true, score, sample_weight)``, always the same rows. ``labels`` are the two classes, the negative
    one first; metric and constraints are as for ``best_threshold``.

    >>> parts = [([0, 0, 1], [0.1, 0.2, 0.35]), ([0, 1, 1], [0.4, 0.6, 0.9])]
    >>> best = best_threshold_of_chunks(lambda: parts, "f1")
    >>> best.threshold, best.value
    (0.275, 0.8571428571428571)
    """
    goal = goal_of(metric, subject_to)
    stream = _Stream(chunks, labels)
    bins, total = stream.first()
    found: list[tuple[Key, float, ConfusionMatrix]] = []  # the best edge of each pass
    cutoffs = 1
    while len(bins):
        cutoffs += len(bins)
        # The bins' lower edges as cut-offs, between "nobody" and "everybody".
        edges = stream.scores_of(bins.prefixes[::-1] << np.uint64(stream.width - bins.depth))
        tp, fp = np.concatenate([np.zeros((1, 2)), (bins.above + bins.inside)[::-1], total[None]]).T
        sweep = Sweep(np.concatenate([[np.inf], edges, [-np.inf]]), tp, fp, stream.labels)
        cut = best_cut(sweep, goal)
        found.append((cut.key, sweep.scores[cut.index], sweep.matrix(sweep.counts(cut.index, cut.index + 1)[0])))
        key, edge, matrix = max(found, key=lambda one: one[:2])
        if bins.depth == stream.width:
            break
        bins = stream.cut(bins.take(_hopeful(bins, sweep, goal, key)))
    if key[0] == -np.inf:
        raise ValueError(f"metric: {goal.metric} is undefined (NaN) at every cut-off.")
    if key[0] < 0:
        raise InfeasibleError(f"subject_to: no cut-off meets {' and '.join(str(c) for c in goal.constraints)}.", {})
    rule = DecisionRule.at_threshold(stream.threshold(edge), tuple(labels), metric=goal.spec)
    return BestRule.of(rule, goal, matrix, cutoffs=cutoffs)


def confusion_of_chunks(chunks: Chunks, rule: DecisionRule) -> ConfusionMatrix:
    """The confusion matrix of a rule's decisions over chunks, in one pass: any metric of it is exact, as counts add up.

    The scores of the chunks are those that :meth:`DecisionRule.apply` takes.

    >>> parts = [([0, 0, 1], [0.1, 0.2, 0.35]), ([0, 1, 1], [0.4, 0.6, 0.9])]
    >>> matrix = confusion_of_chunks(lambda: parts, DecisionRule.at_threshold(0.3))
    >>> from metricfit import metrics
    >>> metrics.get("f1").compute(matrix)
    tensor(0.8571, dtype=torch.float64)
    """
    total: ConfusionMatrix | None = None
    for y_true, score, *more in _with_rows(chunks):
        weight = more[0] if more else None
        if weight is None or np.any(weight):
            decided = rule.apply(score)
            matrix = ConfusionMatrix.from_labels(y_true, decided, labels=rule.classes, sample_weight=weight)
            total = matrix if total is None else total + matrix
    if total is None:
        raise ValueError("sample_weight: all weights are zero.")
    return total


def _with_rows(chunks: Chunks) -> Iterator[Any]:
    """The chunks of one pass that have rows."""
    if not callable(chunks):
        raise TypeError(f"chunks: expected a function that gives the chunks anew, got {type(chunks).__name__}.")
    found = False
    for chunk in chunks():
        if len(chunk[1]):  # type: ignore[arg-type]
            found = True
            yield chunk
    if not found:
        raise ValueError("chunks: no chunk came with rows; the function must give the chunks anew at each call.")


@dataclass(frozen=True)
class _Bins(Rows):
    """Scores that begin with the same bits, lowest first; weight of (positives, negatives) above and inside."""

    prefixes: NDArray[np.uint64]
    above: Array
    inside: Array
    depth: int

    def __len__(self) -> int:
        return len(self.prefixes)


def _hopeful(bins: _Bins, sweep: Sweep, goal: Goal, best: Key) -> NDArray[np.bool_]:
    """Bins whose corners, taken at their best, are worth at least as much as the best edge."""
    hopeful = []
    for start in range(0, len(bins), CHUNK):
        part = bins.take(slice(start, start + CHUNK))
        ends = (part.above, part.above + part.inside)
        tp, fp = (np.stack(counts) for counts in zip(*((t[:, 0], f[:, 1]) for t in ends for f in ends), strict=True))
        violation, gain = goal.keys(sweep.matrix(sweep.cells(tp, fp)))
        kept, most = -violation.amin(dim=0), gain.amax(dim=0)
        hopeful.append(((kept > best[0]) | ((kept == best[0]) & (most >= best[1]))).numpy())
    return np.concatenate(hopeful)


class _Stream:
    """Scores in bins, as finely as asked for; ``labels``: negative first."""

    def __init__(self, chunks: Chunks, labels: Sequence[Hashable]) -> None:
        expect(len(labels) == 2, "labels", "two classes, negative first", list(labels))
        self.chunks, self.labels = chunks, tuple(labels)
        self.given: np.dtype[Any] | None = None

    @property
    def width(self) -> int:
        """Bits of a score, in a type that holds the given scores exactly."""
        return 32 if self.given in (np.float16, np.float32) else 64

    def __iter__(self) -> Iterator[tuple[NDArray[Any], NDArray[np.bool_], Array | None]]:
        for chunk in _with_rows(self.chunks):
            score = score_array(chunk[1], "score")
            target = as_label_array(chunk[0], "y_true")
            if score.ndim != 1 or target.shape != score.shape:
                raise ValueError(f"score: expected y_true and score of shape (n,), got {target.shape}, {score.shape}.")
            self.given = self.given or score.dtype
            if self.width == 32 and score.dtype != self.given:
                raise TypeError(f"score: the first chunk was {self.given}, a later one is {score.dtype}; use one type.")
            weight = checked_weights(chunk[2], len(target), all_zero=True) if len(chunk) == 3 else None
            yield score.astype(f"f{self.width // 8}"), encode_labels(target, self.labels, "y_true") == 1, weight

    def first(self) -> tuple[_Bins, Array]:
        """The bins of the first pass, and all positives and negatives; there must be both."""
        bins = self.cut(_Bins(np.zeros(1, np.uint64), np.zeros((1, 2)), np.zeros((1, 2)), 0))
        total = bins.inside.sum(axis=0)
        if not total.any():
            raise ValueError("sample_weight: all weights are zero.")
        if not total.all():
            only = self.labels[int(total[0] > 0)]
            raise UntunableError(
                f"y_true: only the class {only!r} occurs (with a weight); a cut-off needs both classes."
            )
        return bins, total

    def cut(self, bins: _Bins) -> _Bins:
        """The bins cut by as many bits more as there is room for; in one pass, or several if there are very many."""
        if not len(bins):
            return bins
        room = max(int(np.log2(CELLS / len(bins))), LEAST_BITS) if bins.depth else BITS
        bits = min(room, BITS, self.width - bins.depth)
        size, at_once = 1 << bits, max(CELLS >> bits, 1)
        found = []
        for start in range(0, len(bins), at_once):
            part = bins.take(slice(start, start + at_once))
            counts = np.zeros((2, len(part) * size))
            for scores, positive, weight in self:
                keys = self._numbers_of(scores)
                prefix = keys >> np.uint64(self.width - bins.depth)  # 0 where all bits are shifted out
                place = np.searchsorted(part.prefixes, prefix).clip(max=len(part) - 1)
                kept = part.prefixes[place] == prefix
                low = np.uint64(self.width - bins.depth - bits)
                inner = ((keys >> low).astype(np.int64) & (size - 1)) + place * size
                for column, mask in ((0, positive & kept), (1, ~positive & kept)):
                    added = np.bincount(inner[mask], None if weight is None else weight[mask])
                    counts[column, : len(added)] += added
            cells = counts.reshape(2, -1, size).transpose(1, 2, 0)
            which, inner = np.nonzero(cells.any(axis=-1))
            inside = cells[which, inner]
            above = part.above[which] + np.cumsum(cells[:, ::-1], axis=1)[:, ::-1][which, inner] - inside
            found.append((part.prefixes[which] * np.uint64(size) + inner.astype(np.uint64), above, inside))
        prefixes, above, inside = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return _Bins(prefixes, above, inside, bins.depth + bits)

    def threshold(self, edge: float) -> float:
        """Midway between the lowest score from ``edge`` on and the highest below it, in one more pass."""
        upper, lower, lowest, highest = np.inf, -np.inf, np.inf, -np.inf
        for scores, _, _ in self:
            reaches = scores >= edge
            upper = min(upper, scores[reaches].min(initial=np.inf))
            lower = max(lower, scores[~reaches].max(initial=-np.inf))
            lowest, highest = min(lowest, scores.min()), max(highest, scores.max())
        if lowest == highest:
            raise UntunableError(
                f"score: all scores are {lowest:g}; no cut-off can separate them. Is the model fitted?"
            )
        around = [end for end in (upper, lower) if np.isfinite(end)]
        return Sweep(np.array(around, self.given), np.zeros(3), np.zeros(3)).threshold(0 if upper == np.inf else 1)

    def _numbers_of(self, scores: NDArray[Any]) -> NDArray[np.uint64]:
        """Whole numbers >= 0 in the order of the scores, from their bits."""
        bits = (scores + scores.dtype.type(0)).view(f"u{scores.itemsize}")  # -0 and 0 are one score
        top = bits.dtype.type(1 << (self.width - 1))
        numbers: NDArray[np.uint64] = np.where(bits & top, ~bits, bits | top).astype(np.uint64)
        return numbers

    def scores_of(self, numbers: NDArray[np.uint64]) -> NDArray[Any]:
        """The scores of such numbers."""
        bits = numbers.astype(f"u{self.width // 8}")
        top = bits.dtype.type(1 << (self.width - 1))
        return np.where(bits & top, bits ^ top, ~bits).view(f"f{self.width // 8}")
