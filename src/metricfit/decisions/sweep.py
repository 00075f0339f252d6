"""All distinct cut-offs of a score in one sort: the counts at each, and where to place the cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metricfit.confusion import ConfusionMatrix
from metricfit.decisions._samples import BinarySamples
from metricfit.decisions.goal import Goal

__all__ = ["CHUNK", "Cut", "Sweep", "best_cut", "best_place"]

CHUNK = 8000
"""Cut-offs whose matrices exist at the same time: 256 kB of counts, whatever the number of samples. So small, they stay
in the cache and below the size from which torch would start threads, which costs more than it brings here."""

Wrap = Callable[[Tensor], ConfusionMatrix]


@dataclass(frozen=True)
class Sweep:
    """The counts at every cut-off; cut-off j calls the j highest distinct scores positive.

    Attributes:
        scores: The k distinct scores, falling, in the dtype they came in.
        tp: True positives at the k + 1 cut-offs.
        fp: False positives at the k + 1 cut-offs.
        classes: The negative and the positive class.
    """

    scores: NDArray[Any]
    tp: NDArray[np.float64]
    fp: NDArray[np.float64]
    classes: tuple[Any, ...] | None = None

    @classmethod
    def of(cls, samples: BinarySamples) -> Sweep:
        """Sort once, then add up from the highest score down."""
        return cls.sorted(samples.positive, samples.score, samples.weight, samples.classes)

    @classmethod
    def sorted(
        cls,
        positive: NDArray[np.bool_],
        score: NDArray[Any],
        weight: NDArray[np.float64] | None = None,
        classes: tuple[Any, ...] | None = None,
    ) -> Sweep:
        """The same from plain arrays."""
        order = np.argsort(score)[::-1]
        ranked = score[order]
        last_of_tie = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), len(ranked) - 1)
        distinct = ranked[last_of_tie]
        del ranked
        hit = positive[order]
        if weight is None:
            tp = np.cumsum(hit, dtype=np.float64)[last_of_tie]
            fp = (last_of_tie + 1) - tp
        else:
            ordered = weight[order]
            tp = np.cumsum(np.where(hit, ordered, 0.0))[last_of_tie]
            fp = np.cumsum(np.where(hit, 0.0, ordered))[last_of_tie]
        return cls(distinct, np.append(0.0, tp), np.append(0.0, fp), classes)

    def __len__(self) -> int:
        """The number of cut-offs, "nobody" and "everybody" among them."""
        return len(self.tp)

    def counts(self, start: int = 0, stop: int | None = None) -> Tensor:
        """The 2 x 2 counts of cut-offs ``start`` to ``stop``, shape (cut-offs, 2, 2)."""
        tp, fp = torch.from_numpy(self.tp[start:stop]), torch.from_numpy(self.fp[start:stop])
        cells = torch.stack([float(self.fp[-1]) - fp, fp, float(self.tp[-1]) - tp, tp], dim=-1)
        return cells.reshape(-1, 2, 2)

    def matrix(self, counts: Tensor) -> ConfusionMatrix:
        """Counts as binary confusion matrices of this sweep's classes."""
        return ConfusionMatrix(counts, "binary", self.classes)

    def chunks(self, size: int = CHUNK) -> Iterator[tuple[int, Tensor]]:
        """The counts of all cut-offs, a bounded number at a time, each with the index of its first."""
        for start in range(0, len(self), size):
            yield start, self.counts(start, start + size)

    def threshold(self, index: int, *, low: bool = False) -> float:
        """The number t for which ``score >= t`` is exactly cut-off ``index``, see :meth:`thresholds`."""
        return float(self.thresholds(np.array([index]), low=low)[0])

    def thresholds(self, indices: NDArray[np.intp], *, low: bool = False) -> NDArray[Any]:
        """The numbers t for which ``score >= t`` is exactly each of these cut-offs.

        They lie midway between the two scores that they separate, or on the upper one where no number of the
        scores' dtype lies between; for "everybody" on the lowest score, for "nobody" just above the highest.

        Args:
            indices: The cut-offs.
            low: Place them just above the lower score instead.
        """
        last = len(self.scores) - 1
        upper = self.scores[np.maximum(indices - 1, 0)]
        lower = self.scores[np.minimum(indices, last)]
        between = _just_above(lower) if low else lower / 2 + upper / 2
        between = np.where((lower < between) & (between <= upper), between, upper)
        return np.where(indices == 0, _just_above(upper), between)

    def index_of(self, threshold: float) -> int:
        """The cut-off that a threshold makes: how many distinct scores reach it."""
        return int(np.searchsorted(-self.scores, -np.asarray(threshold, dtype=self.scores.dtype), side="right"))


@dataclass(frozen=True)
class Cut:
    """One cut-off of a sweep and its worth.

    Attributes:
        index: The cut-off.
        violation: The largest violation of a constraint.
        gain: The objective, more is better.
        correct: The weight of correct decisions, which decides between equals.
    """

    index: int
    violation: float
    gain: float
    correct: float

    @property
    def key(self) -> tuple[float, float, float]:
        """Larger is better."""
        return (-self.violation, self.gain, self.correct)


def best_cut(
    sweep: Sweep,
    goal: Goal,
    *,
    wrap: Wrap | None = None,
    allowed: NDArray[np.bool_] | None = None,
    chunk: int = CHUNK,
) -> Cut | None:
    """The best of all cut-offs: least violation, then the highest gain, then most decisions correct.

    Args:
        sweep: The cut-offs.
        goal: What is wanted.
        wrap: Makes confusion matrices of the sweep's counts; binary ones if not given.
        allowed: Which cut-offs may be chosen.
        chunk: How many matrices may exist at the same time.

    Returns:
        The best one; ``None`` where none is allowed or the metric is undefined at all of them.
    """
    best: Cut | None = None
    for start, counts in sweep.chunks(chunk):
        violation, gain = goal.keys((wrap or sweep.matrix)(counts))
        if allowed is not None:
            gain = torch.where(torch.from_numpy(allowed[start : start + len(counts)]), gain, -torch.inf)
        violation = torch.where(gain == -torch.inf, torch.inf, violation)
        correct = counts[:, 0, 0] + counts[:, 1, 1]
        place = int(best_place(violation, gain, correct))
        if violation[place] == torch.inf:
            continue
        found = Cut(start + place, float(violation[place]), float(gain[place]), float(correct[place]))
        if best is None or found.key > best.key:
            best = found
    return best


def _just_above(scores: NDArray[Any]) -> NDArray[Any]:
    """The next number of the scores' dtype; infinity after the last one."""
    with np.errstate(over="ignore"):
        above: NDArray[Any] = np.nextafter(scores, np.array(np.inf, dtype=scores.dtype))
    return above


def best_place(violation: Tensor, gain: Tensor, correct: Tensor) -> Tensor:
    """Along the last dimension, the place with the least violation, then the highest gain, then most correct."""
    gain = torch.where(violation == violation.amin(dim=-1, keepdim=True), gain, -torch.inf)
    return torch.where(gain == gain.amax(dim=-1, keepdim=True), correct, -torch.inf).argmax(dim=-1)
