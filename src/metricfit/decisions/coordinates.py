"""Rules with several numbers, one for each class, label or group. Coordinate ascent, an exact sweep for each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from metricfit.confusion import ConfusionMatrix
from metricfit.decisions import problem
from metricfit.decisions.calibration import mixed_labels
from metricfit.decisions.confidence import certified
from metricfit.decisions.problem import Array, Constraints, Goal, Indices, Key, Samples, goal_of, values_of
from metricfit.decisions.rules import BestRule, DecisionRule, GroupThresholds
from metricfit.decisions.threshold import CHUNK, Sweep, best_cut
from metricfit.inputs import Task, expect
from metricfit.labels import Labels, Weights, group_names
from metricfit.metrics import Metric, MetricLike
from metricfit.metrics.algebra import CallableMetric
from metricfit.metrics.base import ClassMetric

REGULARISATION = 0.25
"""Of class offsets. Chosen by measurement, see benchmarks/decisions/over_tuning.md."""
_LIMIT = 30.0  # beyond it a class's probability is scaled by e^30: a rule "never" or "always" in all but name
_CELLS = 1 << 16  # numbers in the matrices that exist at the same time: they stay in the cache, and torch in one thread
_FEW_CUTS, _FEW_ROWS = 256, 5000  # of the first, quick ascents
_MATRIX_UP_TO = 16  # classes: of more, each is counted against the rest alone, where that is enough for the metrics
_MOST_PASSES = 50
_LEVELS, _FEW_GROUP_CUTS = 12, 200  # of groups: starts of each kind, and cut-offs that they try

Point = NDArray[Any]
Move = Callable[[Point, int], tuple[float, Key]]


def best_offsets(
    y_true: ArrayLike, proba: ArrayLike, metric: MetricLike, *, subject_to: Constraints = (),
    confidence: float | None = None, sample_weight: Weights = None, labels: Labels = None,
    regularisation: float | None = None, restarts: int = 3, random_state: int | np.random.Generator | None = 0,
    belief: float = 0.0, prevalence: Any = None,
) -> BestRule:  # fmt: skip
    """Offsets on the log-probabilities whose arg max is best for ``metric``; never below plain arg max here.

    One class at a time, all values of its offset that change a decision are compared in one exact sweep of
    O(n · classes²), until nothing improves; quick ascents from several starting points come before, against local
    optima. A small validation set is easily over-tuned. Two remedies: an offset has its price, ``regularisation *
    mean(|offset| / √samples of the class)``, as a share of what arg max leaves to gain, so that classes with few
    samples stay close to arg max; or ``belief``, with which the metric of the *expected* confusion matrix is maximised.

    All probabilities are held in memory, in float64. Where there are more, give a random sample with a thousand rows of
    the rarest class or more, and see what the rule reaches on all rows with :func:`confusion_of_chunks`.

    Arguments not named here are those of :func:`best_threshold`.

    * ``y_true``: labels (n,); ``proba``: probabilities (n, classes); ``labels``: the classes in the order of the
      columns, sorted order if not given; ``prevalence``: their shares where the rule will be used.
    * ``confidence``: the constraints hold on new data with this probability. Half of the samples propose rules, from
      cautious to bold, the other half tests them in that order.
    * ``regularisation``: 0.25 by default, 0 with ``belief``: the best value on these data, whatever it takes.
    * ``restarts``: starting points beside arg max; ``random_state`` is their seed, and that of the split.

    >>> proba = [[0.8, 0.1, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.2, 0.6, 0.2], [0.5, 0.1, 0.4], [0.4, 0.3, 0.3]]
    >>> best = best_offsets([0, 0, 1, 1, 2, 2], proba, "balanced_accuracy")
    >>> round(best.argmax_value, 3), best.value
    (0.667, 1.0)
    """
    given = dict(locals())
    strength = (0.0 if belief else REGULARISATION) if regularisation is None else regularisation
    for name, number in (("regularisation", strength), ("restarts", restarts)):
        valid = isinstance(number, (int, float)) and not isinstance(number, bool) and 0 <= number < math.inf
        expect(valid, name, "a number >= 0", number)
    goal = goal_of(metric, subject_to)
    samples = problem.class_samples(y_true, proba, sample_weight, labels=labels)
    if prevalence is not None:
        if confidence is not None:
            raise ValueError("confidence: class offsets have no promises at another prevalence; leave it out.")
        samples = samples.at_prevalence(prevalence)
    rng = np.random.default_rng(random_state)

    def propose(goal_: Goal, some: Samples) -> DecisionRule:
        offsets = _search(_Problem.of(some, goal_, strength, belief), int(restarts), rng)
        return DecisionRule.from_offsets(offsets.tolist(), samples.classes, metric=goal.spec)

    found = certified(goal, samples, confidence, rng, propose)
    plain = samples.confusion(DecisionRule.argmax(samples.classes).decide(samples.score))
    return replace(found, argmax_value=float(values_of(goal.metric, plain)), again=partial(best_offsets, **given))


def best_label_thresholds(
    y_true: ArrayLike, score: ArrayLike, metric: MetricLike, *, subject_to: Constraints = (),
    confidence: float | None = None, sample_weight: Weights = None, labels: Labels = None, default: float = 0.5,
    restarts: int = 2, random_state: int | np.random.Generator | None = 0, belief: float = 0.0,
) -> BestRule:  # fmt: skip
    """The best cut-offs for the labels of a multi-label target, all together.

    Coordinate ascent with an exact sweep for each label: a macro average takes one pass, micro averages and others
    several. For constraints that each label meets on its own, use :func:`best_threshold` label by label.

    Arguments not named here are those of :func:`best_threshold`.

    * ``y_true``: 0/1 indicators (n, labels); ``score``: scores (n, labels); ``labels``: their names.
    * ``default``: cut-off of labels for which the data say nothing.
    * ``restarts``: starting points of the search beside ``default`` and each label's own best; ``random_state``
      is their seed, and that of the split for ``confidence``.

    >>> y = [[1, 0], [1, 1], [0, 0], [0, 1]]
    >>> best_label_thresholds(y, [[0.9, 0.1], [0.3, 0.3], [0.2, 0.2], [0.1, 0.4]], "f1").thresholds
    array([0.25, 0.25])
    """
    goal = goal_of(metric, subject_to)
    samples = problem.label_samples(y_true, score, sample_weight, labels=labels)
    rng = np.random.default_rng(random_state)

    def propose(goal_: Goal, some: Samples) -> DecisionRule:
        mixed = mixed_labels(some, belief)
        beliefs = [None] * some.target.shape[1] if mixed is None else mixed.T
        columns = zip(some.target.T, some.score.T, beliefs, strict=True)
        sweeps = [Sweep.of(Samples(hit, own, some.weight), believed) for hit, own, believed in columns]
        plain = np.array([sweep.index_of(default) for sweep in sweeps])
        cuts, _ = _search_labels(sweeps, goal_, plain, restarts, rng, some.classes)
        chosen = zip(sweeps, cuts.tolist(), plain, strict=True)
        thresholds = [default if cut == usual else sweep.threshold(cut) for sweep, cut, usual in chosen]
        return DecisionRule.at_thresholds(thresholds, samples.classes, metric=goal.spec)

    return certified(goal, samples, confidence, rng, propose)


def best_group_thresholds(
    y_true: ArrayLike, score: ArrayLike, metric: MetricLike, *, by: str | None = None,
    columns: Mapping[str, ArrayLike], **options: Any,
) -> GroupThresholds:  # fmt: skip
    """The best cut-off for each group of the column ``by``, all together; constraints may be about its groups.

    The metric may name the column as well: ``"accuracy subject to recall[1] >= 0.8 in sex with thresholds by sex"``.

    Judging people by another cut-off because of their group is unlawful in places: ask before you use it. The search is
    not exact; the tests compare it with all combinations. ``options`` are subject_to, sample_weight and labels as of
    :func:`best_threshold`.

    >>> y, score, sex = [0, 0, 1, 1, 0, 1], [0.1, 0.5, 0.6, 0.9, 0.2, 0.3], ["m", "m", "m", "m", "f", "f"]
    >>> best_group_thresholds(y, score, "accuracy", by="sex", columns={"sex": sex}).thresholds
    {'f': 0.25, 'm': 0.55}
    """
    goal = goal_of(metric, options.pop("subject_to", ()), rows=True, groups=True)
    by = goal.by if by is None else by
    if by is None:
        raise TypeError("by: expected the column whose groups get a cut-off each, got none.")
    samples = problem.binary_samples(y_true, score, **options)
    if goal.metric.needs_rows or {goal.by, *(c.within for c in goal.constraints)} - {None, by}:
        raise ValueError(f"metric: {goal.spec}: cut-offs by {by!r} see its groups alone; name no other column.")
    names = group_names(columns, by, len(samples.target))
    Sweep.of(samples).with_groups(samples, goal, columns)  # each group has what the constraints are about
    groups = np.unique(names).tolist()
    sweeps = [Sweep.of(samples.take(names == group)) for group in groups]
    cuts, key = _search_groups(goal, sweeps, samples.score)
    if key[0] < 0:
        raise goal.infeasible("set of cut-offs", lambda aim: _search_groups(aim, sweeps, samples.score)[1])
    chosen = {group: s.threshold(int(cut)) for group, s, cut in zip(groups, sweeps, cuts, strict=True)}
    called = int((samples.score >= np.array([chosen[name] for name in names.tolist()])).sum())
    shared = float(np.sort(samples.score)[::-1][np.clip([called - 1, called], 0, len(names) - 1)].mean())
    return GroupThresholds(by, samples.classes, chosen, goal.sign * key[1], shared)


def ascend(point: Point, key_of: Callable[[Point], Key], move: Move, worthwhile: float = 0.0) -> tuple[Point, Key]:
    """Move one coordinate after the other, the others held, until a whole pass improves nothing worth the name."""
    key = key_of(point)
    for _ in range(_MOST_PASSES):
        before = key
        for k in range(len(point)):
            moved = point.copy()
            moved[k], moved_key = move(point, k)
            # A sweep rounds in its own way: what counts is the key of the point itself.
            if moved_key > key and (moved_key := key_of(moved)) > key:
                point, key = moved, moved_key
        if key[0] == before[0] and key[1] - before[1] <= worthwhile:
            break
    return point, key


@dataclass(frozen=True)
class _Problem:
    """Samples, goal and what an offset of 1 costs for each class.

    ``views`` (views, classes, n): the weight of each sample in its true classes; constraints see the first view (the
    labels), the goal the last one (labels mixed with beliefs, where there are any).
    """

    samples: Samples
    goal: Goal
    log_proba: Array
    views: Array
    price: Array
    worthwhile: float  # what an ascent must gain to go on, as a share of a standard error

    @property
    def apart(self) -> bool:
        """Whether each class is counted against the rest, as many labels: forty classes take a fifth of the time."""
        metrics = (self.goal.metric, *(c.metric for c in self.goal.constraints))
        each = all(isinstance(metric, ClassMetric) and not metric.whole for metric in metrics)
        return each and len(self.price) > _MATRIX_UP_TO

    @classmethod
    def of(cls, samples: Samples, goal: Goal, regularisation: float, belief: float) -> _Problem:
        with np.errstate(divide="ignore"):
            log_proba = np.log(samples.score)
        n, size = samples.score.shape
        mixed, known = mixed_labels(samples, belief), np.eye(size)[samples.target]
        seen = [known] if mixed is None else [known, mixed] if goal.constraints else [mixed]
        views = np.stack([shares.T for shares in seen]) * (np.ones(n) if samples.weight is None else samples.weight)
        plain = samples.confusion(_decide(samples, np.zeros(size)))
        to_gain = abs(float(goal.metric.distance(values_of(goal.metric, plain))))
        support = np.maximum(np.bincount(samples.target, minlength=size), 1)
        price = regularisation * (to_gain if math.isfinite(to_gain) else 1.0) / size / np.sqrt(support)
        return cls(samples, goal, log_proba, views, price, REGULARISATION if belief else regularisation)

    def thinned(self, most: int) -> _Problem:
        """The same on about so many samples at most: common classes give up rows, the others count for them."""
        target, size = self.samples.target, len(self.price)
        support = np.bincount(target, minlength=size)
        every = np.ceil(support * size / most).clip(min=1)[target]
        rank = np.empty(len(target))
        rank[np.argsort(target, kind="stable")] = np.arange(len(target)) - np.repeat(
            support.cumsum() - support, support
        )
        rows = np.flatnonzero(rank % every == 0)
        views = self.views[..., rows] * every[rows]
        return replace(self, samples=self.samples.take(rows), log_proba=self.log_proba[rows], views=views)

    def keys(self, counts: Array) -> tuple[Array, Array]:
        """Violations and gains of matrices (views, …, classes, classes); (views, …, classes, 2, 2) if ``apart``."""
        task: Task = "binary" if len(self.price) == 2 else "multilabel" if self.apart else "multiclass"
        matrices = ConfusionMatrix(torch.from_numpy(counts), task, self.samples.classes)
        violations, gains = self.goal.keys(matrices)
        return violations[0].numpy(), gains[-1].numpy()

    def penalty(self, offsets: Array) -> float:
        return float((self.price * np.abs(offsets)).sum())

    def key(self, offsets: Array) -> Key:
        decided = _decide(self.samples, offsets)
        counts = _tally(self.seen_by(self.views, decided), decided, len(offsets))
        violation, gain = self.keys(self.matrices(counts))
        return -float(violation), float(gain) - self.penalty(offsets)

    def seen_by(self, views: Array, places: Any) -> Array:
        """The views (views, classes, n) of the classes they are given to; if ``apart`` as the rest and the class."""
        if not self.apart:
            return views
        own = views[:, places, np.arange(views.shape[-1])]
        return np.stack([views.sum(axis=1) - own, own], axis=1)

    def matrices(self, counts: Array) -> Array:
        """Matrices from counts (views, …, classes, classes), or from (views, …, 2, classes) of who is given to each."""
        if not self.apart:
            return counts
        support = self.views.sum(axis=-1).reshape(len(counts), *(1,) * (counts.ndim - 3), 1, -1)
        there = np.concatenate([support.sum(axis=-1, keepdims=True) - support, support], axis=-2)
        return np.stack([np.maximum(there - counts, 0.0), counts], axis=-1).swapaxes(-3, -2)


def _tally(views: Array, places: Indices, number: int) -> Array:
    """The weight of every true class at each of the places, shape (views, classes, number)."""
    tallies = [[np.bincount(places, weight, minlength=number) for weight in view] for view in views]
    return np.array(tallies, dtype=np.float64)


def _decide(samples: Samples, offsets: Array) -> Indices:
    """The decisions of the rule itself, so that nothing here depends on how a sweep rounds."""
    return DecisionRule.from_offsets(offsets.tolist(), range(len(offsets))).decide(samples.score)


def _search(problem: _Problem, restarts: int, rng: np.random.Generator) -> Array:
    offsets, key = _best_of_starts(problem, restarts, rng)
    if key[0] == 0:
        return offsets

    on_labels = replace(problem, price=0 * problem.price, views=problem.views[:1])
    raise problem.goal.infeasible(
        "set of class offsets", lambda aim: _best_of_starts(replace(on_labels, goal=aim), restarts, rng)[1]
    )


def _best_of_starts(problem: _Problem, restarts: int, rng: np.random.Generator) -> tuple[Array, Key]:
    """Quick ascents from several starts over some rows and cut-offs, then an exact one from where the best ended."""
    size = len(problem.price)
    support = np.bincount(problem.samples.target, weights=problem.samples.weight, minlength=size)
    rarity = -np.log(np.maximum(support, support[support > 0].min()) / support.max())
    starts = [np.zeros(size), rarity / 2, rarity]
    starts += [rarity * rng.random() + rng.normal(size=size) for _ in range(restarts)]
    # A small part of a standard error: what lies below it is a matter of these samples only.
    caution = 0.1 / math.sqrt(len(problem.samples.target))
    thin = problem.thinned(_FEW_ROWS)

    def ascended(problem: _Problem, start: Array, few: int | None, share: float) -> tuple[Array, Key]:
        return ascend(start, problem.key, lambda point, k: _sweep_class(problem, point, k, few), caution * share)

    found = [ascended(thin, start, _FEW_CUTS, REGULARISATION)[0] for start in starts[: restarts + 1]]
    offsets, _ = ascended(problem, max(found, key=problem.key), _FEW_CUTS, 0.01 * REGULARISATION)
    return ascended(problem, offsets, None, problem.worthwhile)


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
    upper, lower = np.append(needed[order], np.inf), np.append(-np.inf, needed[order])
    places = _nearest_to_zero_inside(lower, upper)
    cuts = np.flatnonzero((upper > lower) & (np.abs(places) <= _LIMIT))
    if few is not None and len(cuts) > few:
        near = np.searchsorted(places[cuts], offsets[k]) + np.arange(-few // 4, few // 4)
        evenly = np.linspace(0, len(cuts) - 1, few // 2).astype(np.intp)
        cuts = cuts[np.union1d(evenly, near.clip(0, len(cuts) - 1))]
    keys = [problem.keys(counts) for counts in _counts_of(problem, rival, order, k, cuts)]
    violation, gain = np.concatenate(keys, axis=1)
    gain = gain - problem.price[k] * np.abs(places[cuts])
    violation = np.where(np.isfinite(gain), violation, np.inf)
    least = violation.min()
    if np.isinf(least):
        return float(offsets[k]), (-math.inf, -math.inf)
    best = int(np.where(violation == least, gain, -np.inf).argmax())
    rest = problem.penalty(offsets) - problem.price[k] * abs(offsets[k])
    return float(places[cuts[best]]), (-float(least), float(gain[best]) - rest)


def _counts_of(problem: _Problem, rival: Indices, order: Indices, k: int, cuts: Indices) -> Iterator[Array]:
    """The matrices of ``keys``, all cut-offs in bounded pieces; cut-off j gives the first j samples to k."""
    size, leaving, done = len(problem.price), rival[order], 0
    counts = _tally(problem.seen_by(problem.views, rival), rival, size)
    views, joining = (problem.seen_by(problem.views[..., order], places) for places in (leaving, k))
    # Less is what rounding leaves of nothing; a class that nobody is given to must have exactly none.
    nothing = 1e-11 * counts.max()
    for rows in np.array_split(cuts, math.ceil(len(cuts) * counts.size / _CELLS)):
        moving = slice(done, int(rows[-1]))
        places = np.searchsorted(rows, np.arange(moving.start, moving.stop), side="right") * size + leaving[moving]
        left = _tally(views[..., moving], places, len(rows) * size)
        changes = 0.0 - left.reshape(*left.shape[:2], -1, size).swapaxes(1, 2)
        if problem.apart:
            changes[..., k] += _tally(joining[..., moving], places // size, len(rows)).swapaxes(1, 2)
        else:
            changes[..., k] -= changes.sum(axis=-1)
        changes[:, 0] += counts
        running = changes.cumsum(axis=1)
        counts, done = running[:, -1], moving.stop
        yield problem.matrices(np.where(running > nothing, running, 0.0))


def _nearest_to_zero_inside(lower: Array, upper: Array) -> Array:
    """The middle of each gap between needed offsets; 0 where the gap holds it; half a unit outside at the ends."""
    with np.errstate(invalid="ignore"):
        middle = np.where(np.isinf(lower), upper - 0.5, np.where(np.isinf(upper), lower + 0.5, (lower + upper) / 2))
    return np.where((lower < 0) & (upper > 0), 0.0, np.where(np.isnan(middle), np.inf, middle))


def _each(sweeps: Sequence[Sweep], goal: Goal, plain: Indices) -> Indices:
    """Each label's own best cut-off; the metric sees a multi-label matrix of that one label."""

    def alone(counts: Tensor) -> ConfusionMatrix:
        return ConfusionMatrix(counts[..., None, :, :], "multilabel")

    cuts = plain.copy()
    for label, sweep in enumerate(sweeps):
        cut = best_cut(sweep, goal, wrap=alone)
        if cut.violation < math.inf and sweep.tp[-1] > 0 and sweep.fp[-1] > 0:
            cuts[label] = cut.index
    return cuts


def _search_labels(
    sweeps: Sequence[Sweep], goal: Goal, plain: Indices, restarts: int, rng: np.random.Generator,
    labels: tuple[object, ...] | None,
) -> tuple[Indices, Key]:  # fmt: skip
    """The best cut-offs for all labels together, and their key."""

    def counts_at(cuts: Indices) -> Tensor:  # (1 or 2 views, labels, 2, 2)
        return torch.cat([sweep.views(cut, cut + 1) for sweep, cut in zip(sweeps, cuts.tolist(), strict=True)], dim=1)

    def key_of(cuts: Indices) -> Key:
        violations, gains = goal.keys(ConfusionMatrix(counts_at(cuts), "multilabel", labels))
        return -float(violations[0]), float(gains[-1])

    def move(cuts: Indices, k: int) -> tuple[int, Key]:
        base = counts_at(cuts)

        def among_others(counts: Tensor) -> ConfusionMatrix:
            matrices = base[:, None].repeat(1, counts.shape[1], 1, 1, 1)
            matrices[:, :, k] = counts
            return ConfusionMatrix(matrices, "multilabel", labels)

        cut = best_cut(sweeps[k], goal, wrap=among_others, chunk=max(CHUNK // len(sweeps), 1))
        return cut.index, cut.key

    starts = [plain]
    if not any(_names_a_class(part) for part in (goal.metric, *(c.metric for c in goal.constraints))):
        starts.append(_each(sweeps, goal, plain))
    starts += [np.array([rng.integers(len(sweep)) for sweep in sweeps]) for _ in range(restarts)]
    cuts, key = max((ascend(start, key_of, move) for start in starts), key=lambda result: result[1])
    if key[0] == 0 or goal.sought is not None:
        return cuts, key
    on_labels = [replace(sweep, seen=None) for sweep in sweeps]
    raise goal.infeasible(
        "set of cut-offs", lambda aim: _search_labels(on_labels, aim, plain, restarts, rng, labels)[1]
    )


def _names_a_class(metric: Metric) -> bool:
    """Whether it speaks of labels by name; a function of the matrix may."""
    named = isinstance(metric, CallableMetric) or getattr(metric, "label", None) is not None
    return named or any(_names_a_class(part) for part in metric._parts())


def _search_groups(goal: Goal, sweeps: Sequence[Sweep], score: NDArray[Any]) -> tuple[Point, Key]:
    """The best cut-offs, one of each sweep, and their key."""

    def best_of(cuts: Point, k: int, tried: Point) -> tuple[int, Key]:
        """The best of some cut-offs of sweep k, beside the present ones of the others, and its key."""
        at = [tried if j == k else cuts[[j]] for j in range(len(sweeps))]
        each = [sweep.cells(sweep.tp[place], sweep.fp[place]) for sweep, place in zip(sweeps, at, strict=True)]
        every = torch.stack(torch.broadcast_tensors(*each))  # (groups, cut-offs, 2, 2)
        cm, parts = (ConfusionMatrix(counts, "binary", sweeps[0].classes) for counts in (every.sum(dim=0), every))
        violation, gain = goal.keys(cm, lambda _: parts)
        best = int(torch.where(violation == violation.min(), gain, -torch.inf).argmax())
        return int(tried[best]), (-float(violation[best]), float(gain[best]))

    def ascended(start: Point, few: int) -> tuple[Point, Key]:
        def move(cuts: Point, k: int) -> tuple[int, Key]:
            size = len(sweeps[k])
            return best_of(cuts, k, np.unique(np.linspace(0, size - 1, few or size).astype(np.intp)))

        return ascend(start, lambda cuts: best_of(cuts, 0, cuts[[0]])[1], move)

    starts = list[Any]()  # one cut-off, one recall and one share of false alarms for all
    for level in np.linspace(0, 1, _LEVELS):
        starts.append([sweep.index_of(float(np.quantile(score, 1 - level))) for sweep in sweeps])
        starts += [[np.searchsorted(s.tp, level * s.tp[-1]) for s in sweeps]]
        starts += [[np.searchsorted(s.fp, level * s.fp[-1]) for s in sweeps]]
    found = [ascended(start, _FEW_GROUP_CUTS) for start in np.unique(np.array(starts), axis=0)]
    return ascended(max(found, key=lambda one: one[1])[0], 0)
