"""One cut-off for each group of a column: coordinate ascent from many starts, an exact sweep for each group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from metricfit.confusion import ConfusionMatrix
from metricfit.decisions.coordinates import Point, ascend
from metricfit.decisions.problem import Goal, Key, binary_samples, goal_of
from metricfit.decisions.rules import DecisionRule, move_to_half
from metricfit.decisions.threshold import Sweep
from metricfit.labels import group_names
from metricfit.metrics import MetricLike

__all__ = ["GroupThresholds", "best_group_thresholds"]

_LEVELS, _FEW_CUTS = 12, 200  # starts of each kind, and cut-offs that they try


@dataclass(frozen=True)
class GroupThresholds:
    """Cut-offs by group: positive if ``score >= thresholds[group]``; ``value`` is the metric's where they come from."""

    column: str
    classes: tuple[Any, ...]
    thresholds: dict[Any, float]
    value: float

    def apply(self, score: ArrayLike, columns: Mapping[str, ArrayLike]) -> NDArray[Any]:
        """Decide (n,); a group without a cut-off is an error."""
        scores = np.asarray(score)
        reached = scores >= self._limits(columns, len(scores)).astype(scores.dtype)
        return DecisionRule.at_threshold(0.5, self.classes).apply(reached.astype(np.float64))

    def fold(self, proba: ArrayLike, columns: Mapping[str, ArrayLike]) -> NDArray[np.float64]:
        """Probabilities (n, 2) whose arg max is the decision, from those of the second class (n,)."""
        p = np.asarray(proba)
        positive = move_to_half(p, self._limits(columns, len(p)))
        return np.stack([1 - positive, positive], axis=1)

    def _limits(self, columns: Mapping[str, ArrayLike], rows: int) -> NDArray[np.float64]:
        names = group_names(columns, self.column, rows).tolist()
        if unknown := [name for name in names if name not in self.thresholds]:
            known = f"the groups are {[*self.thresholds]}"
            raise ValueError(f"columns[{self.column!r}]: no cut-off for {unknown[0]!r}; {known}.")
        return np.array([self.thresholds[name] for name in names])


def best_group_thresholds(
    y_true: ArrayLike, score: ArrayLike, metric: MetricLike, *, by: str, columns: Mapping[str, ArrayLike],
    **options: Any,
) -> GroupThresholds:  # fmt: skip
    """The best cut-off for each group of the column ``by``, all together; constraints may be about its groups.

    Judging people by another cut-off because of their group is unlawful in places: ask before you use it. The search is
    not exact; the tests compare it with all combinations. ``options`` are subject_to, sample_weight and labels as of
    :func:`best_threshold`.

    >>> y, score, sex = [0, 0, 1, 1, 0, 1], [0.1, 0.5, 0.6, 0.9, 0.2, 0.3], ["m", "m", "m", "m", "f", "f"]
    >>> best_group_thresholds(y, score, "accuracy", by="sex", columns={"sex": sex}).thresholds
    {'f': 0.25, 'm': 0.55}
    """
    goal = goal_of(metric, options.pop("subject_to", ()), rows=True)
    samples = binary_samples(y_true, score, **options)
    if goal.metric.needs_rows or any(c.within not in (None, by) for c in goal.constraints):
        raise ValueError(f"metric: {goal.spec}: cut-offs by {by!r} see its groups alone; name no other column.")
    names = group_names(columns, by, len(samples.target))
    Sweep.of(samples).with_groups(samples, goal, columns)  # each group has what the constraints are about
    groups = np.unique(names).tolist()
    sweeps = [Sweep.of(samples.take(names == group)) for group in groups]
    cuts, key = _search(goal, sweeps, samples.score)
    if key[0] < 0:
        raise goal.infeasible("set of cut-offs", lambda aim: _search(aim, sweeps, samples.score)[1])
    chosen = {group: s.threshold(int(cut)) for group, s, cut in zip(groups, sweeps, cuts, strict=True)}
    return GroupThresholds(by, samples.classes, chosen, goal.sign * key[1])


def _search(goal: Goal, sweeps: Sequence[Sweep], score: NDArray[Any]) -> tuple[Point, Key]:
    """The best cut-offs, one of each sweep, and their key."""

    def keys(cuts: Point, k: int = 0, tried: Any = None) -> tuple[Tensor, Tensor]:
        """Violations and gains of these cut-offs, or of those tried for sweep k."""
        at = [cuts[[j]] if tried is None or j != k else tried for j in range(len(sweeps))]
        each = [sweep.cells(sweep.tp[place], sweep.fp[place]) for sweep, place in zip(sweeps, at, strict=True)]
        every = torch.stack(torch.broadcast_tensors(*each))  # (groups, cut-offs, 2, 2)
        cm, parts = (ConfusionMatrix(counts, "binary", sweeps[0].classes) for counts in (every.sum(dim=0), every))
        return goal.keys(cm, lambda _: parts)

    def key_of(cuts: Point) -> Key:
        violation, gain = keys(cuts)
        return -float(violation[0]), float(gain[0])

    def ascended(start: Point, few: int) -> tuple[Point, Key]:
        def move(cuts: Point, k: int) -> tuple[int, Key]:
            tried = np.unique(np.linspace(0, len(sweeps[k]) - 1, few or len(sweeps[k])).astype(np.intp))
            violation, gain = keys(cuts, k, tried)
            best = int(torch.where(violation == violation.min(), gain, -torch.inf).argmax())
            return int(tried[best]), (-float(violation[best]), float(gain[best]))

        return ascend(start, key_of, move)

    starts = list[Any]()  # one cut-off, one recall and one share of false alarms for all
    for level in np.linspace(0, 1, _LEVELS):
        starts.append([sweep.index_of(float(np.quantile(score, 1 - level))) for sweep in sweeps])
        starts += [[np.searchsorted(s.tp, level * s.tp[-1]) for s in sweeps]]
        starts += [[np.searchsorted(s.fp, level * s.fp[-1]) for s in sweeps]]
    found = [ascended(start, _FEW_CUTS) for start in np.unique(np.array(starts), axis=0)]
    return ascended(max(found, key=lambda one: one[1])[0], 0)
