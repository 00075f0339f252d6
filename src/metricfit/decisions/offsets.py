"""Class offsets for several classes: coordinate ascent with an exact sweep for each class."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from metricfit.confusion import ConfusionMatrix
from metricfit.decisions.confidence import certified_rule, check_confidence, halves
from metricfit.decisions.problem import (
    REGULARISATION,
    ConstraintLike,
    Goal,
    Samples,
    class_samples,
    goal_of,
    values_of,
)
from metricfit.decisions.rules import BestRule, DecisionRule
from metricfit.decisions.threshold import infeasible
from metricfit.inputs import Task
from metricfit.metrics import Constraint, MetricLike

__all__ = ["best_offsets"]

_LIMIT = 30.0  # beyond it a class's probability is scaled by e^30: a rule "never" or "always" in all but name
_CELLS = 1 << 15  # numbers in the matrices that exist at the same time: they stay in the cache, and torch in one thread
_FEW_CUTS = 129  # cut-offs of the first, quick ascents
_MOST_PASSES = 50

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
Key = tuple[float, float]


def best_offsets(
    y_true: ArrayLike,
    proba: ArrayLike,
    metric: MetricLike,
    *,
    subject_to: ConstraintLike | Sequence[ConstraintLike] = (),
    confidence: float | None = None,
    sample_weight: ArrayLike | None = None,
    labels: Sequence[Hashable] | None = None,
    regularisation: float = REGULARISATION,
    restarts: int = 3,
    random_state: int | np.random.Generator | None = 0,
) -> BestRule:
    """Offsets on the log-probabilities whose arg max is best for ``metric``; never below plain arg max here.

    One class at a time, all values of its offset that change a decision are compared in one exact sweep of
    O(n · classes²), until nothing improves; quick ascents from several starting points come before, against local
    optima. A small validation set is easily
    over-tuned, so an offset has its price: ``regularisation * mean(|offset| / √samples of the class)``, as a share of
    what arg max leaves to gain. Classes with few samples stay close to arg max.

    All probabilities are held in memory, in float64. Where there are more, give a random sample with a thousand rows of
    the rarest class or more, and see what the rule reaches on all rows with
    :func:`metricfit.decisions.confusion_of_chunks`.

    Args:
        y_true: Labels, shape (n,).
        proba: Probabilities, shape (n, classes).
        metric: A name, an expression, a spec with ``subject to``, a metric or a function of the confusion matrix.
        subject_to: Constraints, such as ``"recall[ill] >= 0.9"``.
        confidence: If given, the constraints hold on new data with this probability: half of the samples propose
            rules, from cautious to bold, the other half tests them in that order.
        sample_weight: Weights, shape (n,).
        labels: The classes in the order of the columns, sorted order if not given.
        regularisation: 0 for the best value on these data, whatever it takes.
        restarts: Starting points beside arg max.
        random_state: Seed of the random starting points and of the split for ``confidence``.

    Raises:
        InfeasibleError: If no offsets were found that meet the constraints.

    >>> proba = [[0.8, 0.1, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.2, 0.6, 0.2], [0.5, 0.1, 0.4], [0.4, 0.3, 0.3]]
    >>> best = best_offsets([0, 0, 1, 1, 2, 2], proba, "balanced_accuracy")
    >>> round(best.argmax_value, 3), best.value
    (0.667, 1.0)
    """
    for name, number in (("regularisation", regularisation), ("restarts", restarts)):
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 <= number < math.inf:
            raise ValueError(f"{name}: expected a number >= 0, got {number!r}.")
    goal = goal_of(metric, subject_to)
    samples = class_samples(y_true, proba, sample_weight, labels=labels)
    rng = np.random.default_rng(random_state)
    problem = _Problem.of(samples, goal, regularisation)
    promises: tuple[float | None, ...] = (None,) * len(goal.constraints)
    if confidence is None:
        offsets = _search(problem, int(restarts), rng)
    else:
        alpha = check_confidence(confidence, goal.constraints, sample_weight is not None)
        offsets, promises = certified_rule(
            goal,
            halves(samples.target, rng),
            alpha,
            propose=lambda g, rows: _search(problem.part(g, rows), int(restarts), rng),
            confusion=lambda found, rows: problem.part(goal, rows).confusion(found),
        )
    return BestRule.of(
        DecisionRule.from_offsets(offsets.tolist(), samples.classes, metric=goal.spec),
        goal,
        problem.confusion(offsets),
        promises,
        confidence=confidence,
        argmax_value=float(values_of(goal.metric, problem.confusion(np.zeros_like(offsets)))),
    )


@dataclass(frozen=True)
class _Problem:
    """Samples, goal and what an offset of 1 costs for each class."""

    samples: Samples
    goal: Goal
    log_proba: Array
    price: Array
    regularisation: float

    @classmethod
    def of(cls, samples: Samples, goal: Goal, regularisation: float) -> _Problem:
        with np.errstate(divide="ignore"):
            log_proba = np.log(samples.score)
        size = samples.score.shape[1]
        free = cls(samples, goal, log_proba, np.zeros(size), regularisation)
        to_gain = abs(float(goal.metric.distance(values_of(goal.metric, free.confusion(np.zeros(size))))))
        support = np.maximum(np.bincount(samples.target, minlength=size), 1)
        to_gain = to_gain if math.isfinite(to_gain) else 1.0
        return replace(free, price=regularisation * to_gain / size / np.sqrt(support))

    def part(self, goal: Goal, rows: NDArray[np.intp]) -> _Problem:
        """The same on some of the samples."""
        return _Problem.of(self.samples.take(rows), goal, self.regularisation)

    @property
    def size(self) -> int:
        return int(self.samples.score.shape[1])

    def matrices(self, counts: Array) -> ConfusionMatrix:
        task: Task = "binary" if self.size == 2 else "multiclass"
        return ConfusionMatrix(torch.from_numpy(counts), task, self.samples.classes)

    def confusion(self, offsets: Array) -> ConfusionMatrix:
        """The matrix of the rule itself, so that nothing here depends on how a sweep rounds."""
        rule = DecisionRule.from_offsets(offsets.tolist(), range(self.size))
        return self.count(rule.decide(self.samples.score))

    def count(self, predicted: Indices) -> ConfusionMatrix:
        s = self.samples
        return ConfusionMatrix.from_codes(s.target, predicted, self.size, s.weight, labels=s.classes)

    def penalty(self, offsets: Array) -> float:
        return float((self.price * np.abs(offsets)).sum())

    def key(self, offsets: Array) -> Key:
        violation, gain = self.goal.keys(self.confusion(offsets))
        return (-float(violation), float(gain) - self.penalty(offsets))


def _search(problem: _Problem, restarts: int, rng: np.random.Generator) -> Array:
    offsets, key = _best_of_starts(problem, restarts, rng)
    if key[0] < 0:
        raise infeasible(problem.goal, dict(_reachable(problem, restarts, rng)), "class offsets")
    return offsets


def _best_of_starts(problem: _Problem, restarts: int, rng: np.random.Generator) -> tuple[Array, Key]:
    """Quick ascents from several starts over some of the cut-offs, then an exact one from where the best ended."""
    support = np.bincount(problem.samples.target, weights=problem.samples.weight, minlength=problem.size)
    rarity = -np.log(np.maximum(support, support[support > 0].min()) / support.max())
    starts = [np.zeros(problem.size), rarity / 2, rarity]
    starts += [rarity * rng.random() + rng.normal(size=problem.size) for _ in range(restarts)]
    found = [_ascend(problem, start, _FEW_CUTS) for start in starts[: restarts + 1]]
    offsets, _ = max(found, key=lambda result: result[1])
    return _ascend(problem, offsets, None)


def _reachable(
    problem: _Problem, restarts: int, rng: np.random.Generator
) -> Iterator[tuple[Constraint, tuple[float, str]]]:
    for constraint in problem.goal.constraints:
        others = tuple(c for c in problem.goal.constraints if c is not constraint)
        for kept, given in ((others, " beside the others" if others else ""), ((), " on its own")):
            aim = Goal(constraint.metric, kept, maximise=constraint.operator == ">=")
            offsets, key = _best_of_starts(replace(problem, goal=aim, price=0 * problem.price), restarts, rng)
            if key[0] >= 0:
                yield constraint, (float(values_of(constraint.metric, problem.confusion(offsets))), given)
                break


def _ascend(problem: _Problem, offsets: Array, most_cuts: int | None) -> tuple[Array, Key]:
    """Sweep one class after the other, the others held, until a whole pass improves nothing worth the name."""
    key = problem.key(offsets)
    # A small part of a standard error: what lies below it is a matter of these samples only.
    worthwhile = 0.1 * problem.regularisation / math.sqrt(len(problem.samples.target))
    for _ in range(_MOST_PASSES):
        before = key
        for k in range(problem.size):
            moved = offsets.copy()
            moved[k] = _sweep_class(problem, offsets, k, most_cuts)
            moved_key = problem.key(moved)
            if moved_key > key:
                offsets, key = moved, moved_key
        if key[0] == before[0] and key[1] - before[1] <= worthwhile:
            break
    return offsets, key


def _sweep_class(problem: _Problem, offsets: Array, k: int, most_cuts: int | None = None) -> float:
    """The best offset of class k: as it rises, samples change one by one from their best other class to k."""
    others = problem.log_proba + offsets
    others[:, k] = -np.inf
    rival = others.argmax(axis=1)
    with np.errstate(invalid="ignore"):
        needed = others.max(axis=1) - problem.log_proba[:, k]  # the offset from which on the sample is given to k
    order = np.argsort(np.where(np.isnan(needed), np.inf, needed))
    needed = np.where(np.isnan(needed), np.inf, needed)[order]
    upper, lower = np.append(needed, np.inf), np.append(-np.inf, needed)
    places = _nearest_to_zero_inside(lower, upper)
    possible = (upper > lower) & (np.abs(places) <= _LIMIT)
    cuts = np.arange(len(places))
    if most_cuts is not None and len(cuts) > most_cuts:
        cuts = np.unique(np.linspace(0, len(places) - 1, most_cuts).astype(np.intp))
    best, best_key = float(offsets[k]), (-math.inf, -math.inf)
    for rows, counts in _matrices_of(problem, rival, order, k, cuts):
        violation, gain = (v.numpy() for v in problem.goal.keys(problem.matrices(counts)))
        gain = gain - problem.price[k] * np.abs(places[rows]).clip(max=_LIMIT)
        violation = np.where(possible[rows] & np.isfinite(gain), violation, np.inf)
        least = violation.min()
        if np.isinf(least):
            continue
        gain = np.where(violation == least, gain, -np.inf)
        row = int(gain.argmax())
        key = (-float(least), float(gain[row]))
        if key > best_key:
            best, best_key = float(places[rows[row]]), key
    return best


def _matrices_of(
    problem: _Problem, rival: Indices, order: Indices, k: int, cuts: Indices
) -> Iterator[tuple[Indices, Array]]:
    """The confusion matrices at some cut-offs, in bounded pieces; cut-off j has the first j samples given to k."""
    cells = problem.size**2
    row = problem.samples.target[order] * problem.size
    leaves, enters = row + rival[order], row + k
    weight = np.ones(len(order)) if problem.samples.weight is None else problem.samples.weight[order]
    counts, done = problem.count(rival).matrix.numpy().ravel(), 0
    for rows in np.array_split(cuts, math.ceil(len(cuts) * cells / _CELLS)):
        moving = slice(done, int(rows[-1]))
        piece = np.searchsorted(rows, np.arange(moving.start, moving.stop), side="right") * cells
        size = len(rows) * cells
        changes = np.bincount(piece + enters[moving], weights=weight[moving], minlength=size)
        changes -= np.bincount(piece + leaves[moving], weights=weight[moving], minlength=size)
        running = counts + changes.reshape(-1, cells).cumsum(axis=0)
        counts, done = running[-1], moving.stop
        yield rows, running.clip(min=0).reshape(-1, problem.size, problem.size)


def _nearest_to_zero_inside(lower: Array, upper: Array) -> Array:
    """The middle of each gap between needed offsets; 0 where the gap holds it; half a unit outside at the ends."""
    with np.errstate(invalid="ignore"):
        middle = np.where(np.isinf(lower), upper - 0.5, np.where(np.isinf(upper), lower + 0.5, (lower + upper) / 2))
    middle = np.where(np.isnan(middle), np.inf, middle)
    return np.where((lower < 0) & (upper > 0), 0.0, middle)
