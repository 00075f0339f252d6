"""Class offsets for several classes: coordinate ascent with an exact sweep for each class."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from metricfit.confusion import ConfusionMatrix
from metricfit.decisions.belief import check_belief, mixed_labels
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
_CELLS = 1 << 16  # numbers in the matrices that exist at the same time: they stay in the cache, and torch in one thread
_FEW_CUTS, _FEW_ROWS = 256, 5000  # of the first, quick ascents
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
    regularisation: float | None = None,
    restarts: int = 3,
    random_state: int | np.random.Generator | None = 0,
    belief: float = 0.0,
) -> BestRule:
    """Offsets on the log-probabilities whose arg max is best for ``metric``; never below plain arg max here.

    One class at a time, all values of its offset that change a decision are compared in one exact sweep of
    O(n · classes²), until nothing improves; quick ascents from several starting points come before, against local
    optima. A small validation set is easily over-tuned. Two remedies: an offset has its price, ``regularisation *
    mean(|offset| / √samples of the class)``, as a share of what arg max leaves to gain, so that classes with few
    samples stay close to arg max; or ``belief``, with which the metric of the *expected* confusion matrix is maximised.

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
        regularisation: 0.25 by default, 0 with ``belief``: the best value on these data, whatever it takes.
        restarts: Starting points beside arg max.
        random_state: Seed of the random starting points and of the split for ``confidence``.
        belief: The share of every label that is replaced by the calibrated probabilities, as for
            :func:`best_threshold`.

    Raises:
        InfeasibleError: If no offsets were found that meet the constraints.

    >>> proba = [[0.8, 0.1, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.2, 0.6, 0.2], [0.5, 0.1, 0.4], [0.4, 0.3, 0.3]]
    >>> best = best_offsets([0, 0, 1, 1, 2, 2], proba, "balanced_accuracy")
    >>> round(best.argmax_value, 3), best.value
    (0.667, 1.0)
    """
    check_belief(belief)
    regularisation = (0.0 if belief else REGULARISATION) if regularisation is None else regularisation
    for name, number in (("regularisation", regularisation), ("restarts", restarts)):
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 <= number < math.inf:
            raise ValueError(f"{name}: expected a number >= 0, got {number!r}.")
    goal = goal_of(metric, subject_to)
    samples = class_samples(y_true, proba, sample_weight, labels=labels)
    rng = np.random.default_rng(random_state)
    problem = _Problem.of(samples, goal, regularisation, belief)
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


class _View(NamedTuple):
    """True classes: codes (n,) and their weights (n,), or the weights (classes, n) of labels mixed with beliefs."""

    codes: Indices | None
    weight: Array

    def take(self, rows: Indices | slice) -> _View:
        return _View(None if self.codes is None else self.codes[rows], self.weight[..., rows])

    def tally(self, places: Indices, number: int, size: int) -> Array:
        """The weight of every true class at each of the places, shape (classes, number)."""
        if self.codes is None:
            tallies = np.stack([np.bincount(places, weight, minlength=number) for weight in self.weight])
        else:
            tallies = np.bincount(self.codes * number + places, self.weight, size * number).reshape(size, number)
        return np.asarray(tallies, dtype=np.float64)


@dataclass(frozen=True)
class _Problem:
    """Samples, goal and what an offset of 1 costs for each class; constraints see the first view, the goal the last."""

    samples: Samples
    goal: Goal
    log_proba: Array
    views: tuple[_View, ...]
    price: Array
    regularisation: float
    belief: float

    @classmethod
    def of(cls, samples: Samples, goal: Goal, regularisation: float, belief: float) -> _Problem:
        with np.errstate(divide="ignore"):
            log_proba = np.log(samples.score)
        n, size = samples.score.shape
        weight = np.ones(n) if samples.weight is None else samples.weight
        views: tuple[_View, ...] = (_View(samples.target, weight),)
        mixed = mixed_labels(samples, belief)
        if mixed is not None:
            believed = _View(None, np.ascontiguousarray(mixed.T) * weight)
            views = (*views, believed) if goal.constraints else (believed,)
        free = cls(samples, goal, log_proba, views, np.zeros(size), regularisation, belief)
        to_gain = abs(float(goal.metric.distance(values_of(goal.metric, free.confusion(np.zeros(size))))))
        support = np.maximum(np.bincount(samples.target, minlength=size), 1)
        to_gain = to_gain if math.isfinite(to_gain) else 1.0
        return replace(free, price=regularisation * to_gain / size / np.sqrt(support))

    def part(self, goal: Goal, rows: NDArray[np.intp]) -> _Problem:
        """The same on some of the samples."""
        return _Problem.of(self.samples.take(rows), goal, self.regularisation, self.belief)

    def thinned(self, most: int) -> _Problem:
        """The same on about so many samples at most: common classes give up rows, the others count for them."""
        target = self.samples.target
        order = np.argsort(target, kind="stable")
        support = np.bincount(target, minlength=self.size)
        every = np.ceil(support * self.size / most).clip(min=1)[target]
        rank = np.empty(len(target))
        rank[order] = np.arange(len(target)) - np.repeat(support.cumsum() - support, support)
        rows = np.flatnonzero(rank % every == 0)
        views = tuple(view.take(rows) for view in self.views)
        views = tuple(view._replace(weight=view.weight * every[rows]) for view in views)
        return replace(self, samples=self.samples.take(rows), log_proba=self.log_proba[rows], views=views)

    @property
    def size(self) -> int:
        return int(self.samples.score.shape[1])

    def matrices(self, counts: Array) -> ConfusionMatrix:
        task: Task = "binary" if self.size == 2 else "multiclass"
        return ConfusionMatrix(torch.from_numpy(counts), task, self.samples.classes)

    def decide(self, offsets: Array) -> Indices:
        """The decisions of the rule itself, so that nothing here depends on how a sweep rounds."""
        return DecisionRule.from_offsets(offsets.tolist(), range(self.size)).decide(self.samples.score)

    def confusion(self, offsets: Array) -> ConfusionMatrix:
        s = self.samples
        return ConfusionMatrix.from_codes(s.target, self.decide(offsets), self.size, s.weight, labels=s.classes)

    def penalty(self, offsets: Array) -> float:
        return float((self.price * np.abs(offsets)).sum())

    def key(self, offsets: Array) -> Key:
        predicted = self.decide(offsets)
        counts = np.stack([view.tally(predicted, self.size, self.size) for view in self.views])
        violations, gains = self.goal.keys(self.matrices(counts))
        return (-float(violations[0]), float(gains[-1]) - self.penalty(offsets))


def _search(problem: _Problem, restarts: int, rng: np.random.Generator) -> Array:
    offsets, key = _best_of_starts(problem, restarts, rng)
    if key[0] < 0:
        raise infeasible(problem.goal, dict(_reachable(problem, restarts, rng)), "class offsets")
    return offsets


def _best_of_starts(problem: _Problem, restarts: int, rng: np.random.Generator) -> tuple[Array, Key]:
    """Quick ascents from several starts over some rows and cut-offs, then an exact one from where the best ended."""
    support = np.bincount(problem.samples.target, weights=problem.samples.weight, minlength=problem.size)
    rarity = -np.log(np.maximum(support, support[support > 0].min()) / support.max())
    starts = [np.zeros(problem.size), rarity / 2, rarity]
    starts += [rarity * rng.random() + rng.normal(size=problem.size) for _ in range(restarts)]
    # A small part of a standard error: what lies below it is a matter of these samples only.
    caution = 0.1 / math.sqrt(len(problem.samples.target))
    thin = problem.thinned(_FEW_ROWS)
    found = [_ascend(thin, start, _FEW_CUTS, caution * REGULARISATION)[0] for start in starts[: restarts + 1]]
    offsets, _ = _ascend(problem, max(found, key=problem.key), _FEW_CUTS, 0.01 * caution * REGULARISATION)
    return _ascend(problem, offsets, None, caution * (REGULARISATION if problem.belief else problem.regularisation))


def _reachable(
    problem: _Problem, restarts: int, rng: np.random.Generator
) -> Iterator[tuple[Constraint, tuple[float, str]]]:
    for constraint in problem.goal.constraints:
        others = tuple(c for c in problem.goal.constraints if c is not constraint)
        for kept, given in ((others, " beside the others" if others else ""), ((), " on its own")):
            aim = Goal(constraint.metric, kept, maximise=constraint.operator == ">=")
            on_labels = replace(problem, goal=aim, price=0 * problem.price, views=problem.views[:1])
            offsets, key = _best_of_starts(on_labels, restarts, rng)
            if key[0] >= 0:
                yield constraint, (float(values_of(constraint.metric, problem.confusion(offsets))), given)
                break


def _ascend(problem: _Problem, offsets: Array, few: int | None, worthwhile: float = 0.0) -> tuple[Array, Key]:
    """Sweep one class after the other, the others held, until a whole pass improves nothing worth the name."""
    key = problem.key(offsets)
    for _ in range(_MOST_PASSES):
        before = key
        for k in range(problem.size):
            moved = offsets.copy()
            moved[k], moved_key = _sweep_class(problem, offsets, k, few)
            if moved_key > key:
                moved_key = problem.key(moved)
            if moved_key > key:
                offsets, key = moved, moved_key
        if key[0] == before[0] and key[1] - before[1] <= worthwhile:
            break
    return offsets, key


def _sweep_class(problem: _Problem, offsets: Array, k: int, few: int | None = None) -> tuple[float, Key]:
    """The best offset of class k, and its key: as it rises, samples change from their best other class to k.

    All values that change a decision are compared; with ``few`` so many, evenly spread and near the present one.
    """
    others = problem.log_proba + offsets
    others[:, k] = -np.inf
    rival = others.argmax(axis=1)
    # The offset from which on the sample is given to k. Never NaN: every row has a probability above 0.
    needed = others[np.arange(len(rival)), rival] - problem.log_proba[:, k]
    order = np.argsort(needed)
    needed = needed[order]
    upper, lower = np.append(needed, np.inf), np.append(-np.inf, needed)
    places = _nearest_to_zero_inside(lower, upper)
    cuts = np.flatnonzero((upper > lower) & (np.abs(places) <= _LIMIT))
    if few is not None and len(cuts) > few:
        near = np.searchsorted(places[cuts], offsets[k]) + np.arange(-few // 4, few // 4)
        evenly = np.linspace(0, len(cuts) - 1, few // 2).astype(np.intp)
        cuts = cuts[np.union1d(evenly, near.clip(0, len(cuts) - 1))]
    best, best_key = float(offsets[k]), (-math.inf, -math.inf)
    for rows, counts in _counts_of(problem, rival, order, k, cuts):
        violations, gains = (v.numpy() for v in problem.goal.keys(problem.matrices(counts)))
        gain = gains[-1] - problem.price[k] * np.abs(places[rows])
        violation = np.where(np.isfinite(gain), violations[0], np.inf)
        least = violation.min()
        if np.isinf(least):
            continue
        gain = np.where(violation == least, gain, -np.inf)
        row = int(gain.argmax())
        key = (-float(least), float(gain[row]))
        if key > best_key:
            best, best_key = float(places[rows[row]]), key
    rest = problem.penalty(offsets) - problem.price[k] * abs(offsets[k])
    return best, (best_key[0], best_key[1] - rest)


def _counts_of(
    problem: _Problem, rival: Indices, order: Indices, k: int, cuts: Indices
) -> Iterator[tuple[Indices, Array]]:
    """The matrices at some cut-offs, (views, cut-offs, classes, classes), in bounded pieces.

    Cut-off j has the first j samples given to k.
    """
    size, views = problem.size, [view.take(order) for view in problem.views]
    counts = np.stack([view.tally(rival, size, size) for view in problem.views])
    # Less is what rounding leaves of nothing; a class that nobody is given to must have exactly none.
    nothing = 1e-11 * counts.max()
    leaving, done = rival[order], 0
    for rows in np.array_split(cuts, math.ceil(len(cuts) * counts.size / _CELLS)):
        moving = slice(done, int(rows[-1]))
        places = np.searchsorted(rows, np.arange(moving.start, moving.stop), side="right") * size + leaving[moving]
        left = [view.take(moving).tally(places, len(rows) * size, size) for view in views]
        changes = 0.0 - np.stack(left).reshape(len(views), size, -1, size).swapaxes(1, 2)
        changes[..., k] -= changes.sum(axis=-1)
        changes[:, 0] += counts
        running = changes.cumsum(axis=1)
        counts, done = running[:, -1], moving.stop
        yield rows, np.where(running > nothing, running, 0.0)


def _nearest_to_zero_inside(lower: Array, upper: Array) -> Array:
    """The middle of each gap between needed offsets; 0 where the gap holds it; half a unit outside at the ends."""
    with np.errstate(invalid="ignore"):
        middle = np.where(np.isinf(lower), upper - 0.5, np.where(np.isinf(upper), lower + 0.5, (lower + upper) / 2))
    middle = np.where(np.isnan(middle), np.inf, middle)
    return np.where((lower < 0) & (upper > 0), 0.0, middle)
