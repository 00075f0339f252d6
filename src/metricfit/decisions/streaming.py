"""The best cut-off of more scores than memory holds: exact, in a few passes over chunks of them.

Scores are read as whole numbers of the same order (their bits), and counted by their first 16 bits. Between two edges
of such bins the counts can only lie between those at the edges, so most bins cannot hold a better cut-off than the
best edge. The others are counted again by their next 16 bits: float32 scores are resolved after two passes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metricfit.confusion import ConfusionMatrix
from metricfit.decisions._chunks import BITS, Chunk, Stream, chunks_of
from metricfit.decisions._samples import UntunableError
from metricfit.decisions.goal import ConstraintLike, Goal, InfeasibleError, goal_of, values_of
from metricfit.decisions.rules import CalibratedRule, DecisionRule
from metricfit.decisions.search import BestThreshold, ConstraintValue
from metricfit.decisions.sweep import CHUNK, Sweep, best_place

__all__ = ["best_threshold_of_chunks", "confusion_of_chunks"]

MOST_BINS = 64
"""Bins that are looked into in one pass, 1 MB each."""


def best_threshold_of_chunks(
    chunks: Callable[[], Iterable[Chunk]],
    metric: Any,
    *,
    subject_to: ConstraintLike | Sequence[ConstraintLike] = (),
    labels: Sequence[Hashable] = (0, 1),
) -> BestThreshold:
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
    if len(labels) != 2:
        raise ValueError(f"labels: expected two classes, negative first, got {list(labels)}.")
    stream = Stream(chunks, tuple(labels))
    search = _Search(goal, stream)
    best = search.run()
    if best is None:
        raise ValueError(f"metric: {goal.metric} is undefined (NaN) at every cut-off.")
    if best.violation > 0:
        raise InfeasibleError(f"subject_to: no cut-off meets {' and '.join(str(c) for c in goal.constraints)}.", {})
    cm = search.matrix(best.counts[None])
    cm = cm.with_matrix(cm.matrix[0])
    return BestThreshold(
        threshold=stream.threshold(best.key),
        value=float(values_of(goal.metric, cm)),
        metric=goal.spec,
        confusion=cm,
        constraints=tuple(ConstraintValue(c, float(values_of(c.metric, cm))) for c in goal.constraints),
        cutoffs=search.cutoffs,
    )


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
        shift = None
        waiting = [_Bins(np.zeros(1, np.uint64), np.zeros((1, 2)))]
        while waiting:
            found = []
            for bins in waiting:
                counts = self.stream.count(bins.prefixes, shift)
                width = self.stream.width
                if shift is None:
                    self.total = counts.sum(axis=(0, 1))
                    self._check_classes()
                    self._note_edges(np.zeros((1, 2)), np.array([1 << BITS], np.uint64), width - BITS)  # nobody
                here = width - BITS if shift is None else shift
                found.append(self._look(bins, counts, here))
            shift = (self.stream.width - BITS if shift is None else shift) - BITS
            waiting = _batches(found) if shift >= 0 else []
        return self.best

    def _check_classes(self) -> None:
        if not self.total.any():
            raise ValueError("sample_weight: all weights are zero.")
        if not self.total.all():
            only = self.stream.labels[int(self.total[0] > 0)]
            raise UntunableError(
                f"y_true: only the class {only!r} occurs (with a weight); a cut-off needs both classes."
            )

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

    def matrix(self, counts: NDArray[np.float64]) -> Any:
        """(tp, fp) pairs as binary confusion matrices."""
        tp, fp = counts[:, 0], counts[:, 1]
        cells = np.stack([self.total[1] - fp, fp, self.total[0] - tp, tp], axis=-1).reshape(-1, 2, 2)
        sweep = Sweep(np.zeros(1), np.zeros(1), np.zeros(1), self.stream.labels)
        return sweep.matrix(torch.from_numpy(cells))


def _batches(found: list[_Bins]) -> list[_Bins]:
    """At most MOST_BINS bins each, so that a pass over them stays small."""
    prefixes, above = np.concatenate([b.prefixes for b in found]), np.concatenate([b.above for b in found])
    starts = range(0, len(prefixes), MOST_BINS)
    return [_Bins(prefixes[s : s + MOST_BINS], above[s : s + MOST_BINS]) for s in starts]
