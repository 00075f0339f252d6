"""The best cut-off of a score for any metric, exactly: all distinct cut-offs in one sort; and rules that doubt."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from metricfit.confusion import ConfusionMatrix
from metricfit.decisions import problem
from metricfit.decisions.calibration import mixed_labels
from metricfit.decisions.problem import Array, Constraints, Goal, InfeasibleError, Key, Samples, goal_of, values_of
from metricfit.decisions.rules import BestRule, ConstraintValue, DecisionRule, argmax_rule, bayes_rule
from metricfit.inputs import expect
from metricfit.labels import Labels, Weights, as_numpy, group_names
from metricfit.metrics import Constraint, ExpectedCost, Metric, MetricLike
from metricfit.metrics.algebra import Coverage
from metricfit.metrics.money import Money, gain_table

CHUNK = 8000
"""Cut-offs whose matrices exist at the same time: 256 kB of counts, whatever the number of samples. So small, they stay
in the cache and below the size from which torch would start threads, which costs more than it brings here."""

Wrap = Callable[[Tensor], ConfusionMatrix]


@dataclass(frozen=True)
class Sweep:
    """The counts at every cut-off; cut-off j calls the j highest distinct scores positive.

    ``seen`` (k + 1, 2, 2) is what the objective sees where that is not the labels: labels mixed with beliefs, or money.
    """

    scores: NDArray[Any]  # the k distinct ones, falling, in the dtype they came in
    tp: Array  # (k + 1,)
    fp: Array
    classes: tuple[Any, ...] | None = None
    seen: Tensor | None = None
    parts: Mapping[str, Mapping[Any, Sweep]] = field(default_factory=dict)  # each group's, by column and group

    @classmethod
    def of(cls, samples: Samples, believed: Array | None = None, worth: Array | None = None) -> Sweep:
        """Sort and add up; the objective sees how positive each sample is (0 to 1) and its worth (n, 2, 2)."""
        order = np.argsort(samples.score)[::-1]
        ranked = samples.score[order]
        last_of_tie = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), len(ranked) - 1)
        distinct = ranked[last_of_tie]
        weight = None if samples.weight is None else samples.weight[order]

        def added(values: NDArray[Any]) -> Array:
            values = values if weight is None else (values.T * weight).T
            return np.asarray(np.cumsum(values, axis=0, dtype=np.float64)[last_of_tie])

        hit = samples.target[order]
        tp = added(hit)
        fp = last_of_tie + 1 - tp if weight is None else added(~hit)
        sweep = cls(distinct, np.append(0.0, tp), np.append(0.0, fp), samples.classes)
        if believed is None and worth is None:
            return sweep
        share = hit if believed is None else believed[order]
        cells = np.stack([1 - share, share], axis=1)[:, :, None] * (np.ones((2, 2)) if worth is None else worth[order])
        seen = np.concatenate([np.zeros((1, 2, 2)), added(cells)])
        seen[..., 0] = seen[-1, :, 0] - seen[..., 0]  # what is not called positive
        return replace(sweep, seen=torch.from_numpy(seen))

    def __len__(self) -> int:
        return len(self.tp)

    def counts(self, start: int = 0, stop: int | None = None) -> Tensor:
        """The 2 x 2 counts of cut-offs ``start`` to ``stop``, shape (cut-offs, 2, 2)."""
        return self.cells(self.tp[start:stop], self.fp[start:stop])

    def views(self, start: int, stop: int) -> Tensor:
        """The counts that constraints see, then those that the objective sees, shape (1 or 2, cut-offs, 2, 2)."""
        seen = self.counts(start, stop)
        return seen[None] if self.seen is None else torch.stack([seen, self.seen[start:stop]])

    def with_groups(self, samples: Samples, goal: Goal, columns: Mapping[str, ArrayLike] | None) -> Sweep:
        """The same with the sweeps of the groups that constraints name; each group must have what they are about."""
        parts: dict[str, dict[Any, Sweep]] = {}
        within = [c for c in goal.constraints if c.within is not None]
        for name in {str(c.within) for c in within}:
            column = group_names(columns, name, len(samples.target))
            parts[name] = {value: Sweep.of(samples.take(column == value)) for value in np.unique(column).tolist()}
        found = replace(self, parts=parts)
        for c in within:
            groups, names = (found.groups(i, i + 1) for i in (0, len(self) - 1)), parts[str(c.within)]
            first, last = (values_of(c.strict, matrices(str(c.within)))[:, 0].isnan() for matrices in groups)
            if undefined := [group for group, it in zip(names, (first & last).tolist(), strict=True) if it]:
                raise problem.UntunableError(
                    f"columns[{c.within!r}]: {c.metric} has no value in the group {undefined[0]!r}, which lacks one of "
                    "the classes; join it with another group."
                )
        return found

    def places_in(self, part: Sweep, start: int = 0, stop: int | None = None) -> Any:
        """The cut-off of a group's sweep that each of these cut-offs makes there."""
        return part.index_of(np.append(np.inf, self.scores)[start:stop])  # the lowest score called positive

    def groups(self, start: int, stop: int) -> problem.Groups:
        """The matrices of the groups of a column at these cut-offs, (groups, cut-offs, 2, 2)."""

        def matrices(name: str) -> ConfusionMatrix:
            parts = [(part, self.places_in(part, start, stop)) for part in self.parts[name].values()]
            return self.matrix(torch.stack([part.cells(part.tp[at], part.fp[at]) for part, at in parts]))

        return matrices

    def cells(self, tp: Array, fp: Array) -> Tensor:
        """True and false positives as 2 x 2 counts, given all positives and negatives of this sweep."""
        true, false = torch.from_numpy(tp), torch.from_numpy(fp)
        cells = torch.stack([float(self.fp[-1]) - false, false, float(self.tp[-1]) - true, true], dim=-1)
        return cells.reshape(*true.shape, 2, 2)

    def matrix(self, counts: Tensor) -> ConfusionMatrix:
        """Counts as binary confusion matrices of this sweep's classes."""
        return ConfusionMatrix(counts, "binary", self.classes)

    def threshold(self, index: int, *, low: bool = False) -> float:
        """The same for one cut-off."""
        return float(self.thresholds(np.array([index]), low=low)[0])

    def thresholds(self, indices: NDArray[np.intp], *, low: bool = False) -> NDArray[Any]:
        """The numbers t for which ``score >= t`` is each cut-off: midway, or (``low``) just above the lower score."""
        last = len(self.scores) - 1
        upper = self.scores[np.maximum(indices - 1, 0)]
        lower = self.scores[np.minimum(indices, last)]
        with np.errstate(over="ignore"):  # infinity is the next number after the last one
            above_lower, above_upper = (np.nextafter(s, np.array(np.inf, s.dtype)) for s in (lower, upper))
        between = above_lower if low else lower / 2 + upper / 2
        # Where no number of the scores' dtype lies between, and for "everybody": on the upper one.
        between = np.where((lower < between) & (between <= upper), between, upper)
        return np.where(indices == 0, above_upper, between)

    def index_of(self, threshold: ArrayLike) -> Any:
        """The cut-off that a threshold makes: how many distinct scores reach it."""
        return np.searchsorted(-self.scores, -np.asarray(threshold, dtype=self.scores.dtype), side="right")


@dataclass(frozen=True)
class Cut:
    """One cut-off of a sweep: largest violation of a constraint, gain, and the weight of correct decisions."""

    index: int
    violation: float
    gain: float
    correct: float

    @property
    def key(self) -> Key:
        """Larger is better."""
        return -self.violation, self.gain


def best_cut(
    sweep: Sweep, goal: Goal, *, wrap: Wrap | None = None, allowed: NDArray[np.bool_] | None = None, chunk: int = CHUNK
) -> Cut:
    """The best of all cut-offs: least violation, then the highest gain, then most decisions correct.

    ``wrap`` makes confusion matrices of the sweep's views, at most ``chunk`` at a time. The violation is infinite if
    no cut-off has a value.
    """
    best = Cut(0, math.inf, -math.inf, 0.0)
    for start in range(0, len(sweep), chunk):
        counts = sweep.views(start, start + chunk)
        violations, gains = goal.keys((wrap or sweep.matrix)(counts), sweep.groups(start, start + chunk))
        gain, correct = gains[-1], counts[-1, :, 0, 0] + counts[-1, :, 1, 1]
        if allowed is not None:
            gain = torch.where(torch.from_numpy(allowed[start : start + len(gain)]), gain, -torch.inf)
        violation = torch.where(gain == -torch.inf, torch.inf, violations[0])
        least = violation.min()
        gain = torch.where(violation == least, gain, -torch.inf)
        place = int(torch.where(gain == gain.max(), correct, -torch.inf).argmax())
        found = Cut(start + place, float(least), float(gain[place]), float(correct[place]))
        if least < torch.inf and (*found.key, found.correct) > (*best.key, best.correct):
            best = found
    return best


def best_threshold(
    y_true: ArrayLike, score: ArrayLike, metric: MetricLike | None = None, *, gain: Sequence[ArrayLike] | None = None,
    subject_to: Constraints = (), columns: Mapping[str, ArrayLike] | None = None, confidence: float | None = None,
    sample_weight: Weights = None, labels: Labels = None, belief: float = 0.0, prevalence: Any = None,
) -> BestRule:  # fmt: skip
    """The cut-off with the best value of ``metric``, or the highest ``gain``, among *all* distinct ones, in O(n log n).

    Equal values go to the cut-off with more correct decisions. Where no cut-off meets the constraints, an
    :class:`InfeasibleError` says the best reachable value.

    Args:
        y_true: Labels of two classes, shape (n,).
        score: Any score that rises with the positive class, shape (n,): a probability, a logit, a vote.
        metric: A name, an expression, a spec with ``subject to``, a metric or a function of the confusion matrix.
        gain: In place of a metric, what a true positive, a false positive, a false negative and a true negative are
            worth: four numbers or arrays (n,), where a cost is a negative gain. The value is then the total.
        subject_to: Constraints, such as ``"recall[1] >= 0.9"``; they add to those of ``metric``. ``"recall[1] >= 0.9 in
            region"`` holds in every group of a column, ``"spread(recall[1]) <= 0.05 in sex"`` limits the difference
            between its groups, ``"predicted_count[1] <= 200 per day"`` the alerts of a day.
        columns: The columns that metric and constraints name, each (n,); a frame will do. Dates are days, and gaps are
            a group of their own.
        confidence: If given, the constraints hold on new data from the same source with this probability. It
            speaks of recall, specificity, precision, npv, fpr, fnr and predicted_share of a class.
        sample_weight: Weights, shape (n,).
        labels: The two classes, where the positive one is not the second in sorted order: negative first.
        belief: The share of every label that is replaced by the calibrated probability of the score, from 0 (labels
            alone) to 1. The cut-off is then the best one for the *expected* confusion matrix; 0.5 over-fits less where
            positives are few. Constraints, the value and the matrix of the result are always those of the labels.
        prevalence: The share of the positive class where the rule will be used, see :meth:`BestRule.for_prevalence`.

    >>> y, score = [0, 0, 1, 0, 1, 1], [0.1, 0.2, 0.35, 0.4, 0.6, 0.9]
    >>> best = best_threshold(y, score, "f1")
    >>> best.threshold, best.value
    (0.275, 0.8571428571428571)
    >>> best_threshold(y, score, "recall subject to precision >= 1").threshold
    0.5
    >>> amount = np.array([10, 20, 30, 40, 50, 60])
    >>> best_threshold(y, score, gain=(amount - 5, -5, -amount, 0)).value
    120.0
    >>> best_threshold(y, score, "money:tp=amount-5,fp=-5,fn=-amount", columns={"amount": amount}).value
    120.0
    """
    given = dict(locals())
    if (metric is None) == (gain is None):
        raise TypeError("metric: expected either a metric or gain=(tp, fp, fn, tn), got both or neither.")
    goal = goal_of(problem.TotalGain() if metric is None else metric, subject_to, rows=True)
    samples = problem.binary_samples(y_true, score, sample_weight, labels=labels)
    worth = None if gain is None else gain_table(gain, len(samples.target))
    if isinstance(goal.metric, Money):
        worth = goal.metric.table(columns, samples.classes or (), len(samples.target))
        goal = replace(goal, metric=problem.TotalGain(str(goal.metric)))
    seen = samples if prevalence is None else samples.at_prevalence(prevalence)
    sweep = Sweep.of(seen, mixed_labels(seen, belief), worth).with_groups(seen, goal, columns)
    allowed, promise = None, None
    if confidence is not None:
        from metricfit.decisions.confidence import certify_cuts, check_confidence

        alpha = check_confidence(confidence, goal.constraints, samples.weight is not None, prevalence is not None)
        plain = sweep if prevalence is None else Sweep.of(samples).with_groups(samples, goal, columns)
        allowed, promise = certify_cuts(plain, goal.constraints, alpha)
    cut = feasible_cut(sweep, goal, allowed)
    threshold = sweep.threshold(cut.index, low=promise is not None)
    rule = DecisionRule.at_threshold(threshold, samples.classes, metric=goal.spec)
    again = partial(best_threshold, **given | {"labels": samples.classes})
    at = cut.index, cut.index + 1
    found = BestRule.of(
        rule, goal, sweep.matrix(sweep.counts(*at)[0]), promise(cut.index) if promise else (),
        {column: (list(parts), sweep.groups(*at)(column)) for column, parts in sweep.parts.items()},
        confidence=confidence, cutoffs=len(sweep), again=again,
    )  # fmt: skip
    return found if worth is None else replace(found, value=float(Sweep.of(seen, worth=worth).views(*at)[-1].sum()))


def feasible_cut(sweep: Sweep, goal: Goal, allowed: NDArray[np.bool_] | None = None) -> Cut:
    """The best cut-off that meets the constraints; an error where there is none."""
    cut = best_cut(sweep, goal, allowed=allowed)
    if cut.violation == math.inf:
        raise ValueError(f"metric: {goal.metric} is undefined (NaN) at every cut-off.")
    if cut.violation > 0:
        raise goal.infeasible("cut-off", lambda aim: best_cut(replace(sweep, seen=None), aim).key)
    return cut


def best_rule(y_true: ArrayLike, proba: ArrayLike, metric: MetricLike | None = None, **options: Any) -> BestRule:
    """A threshold for two classes, offsets (or the Bayes rule of a cost matrix) for more, thresholds for labels.

    ``y_true`` are labels (n,) or 0/1 (n, labels), ``proba`` probabilities (n,) of the second class, (n, classes) or (n,
    labels). With a constraint such as ``coverage >= 0.9`` unsure rows are left to a person, see :func:`cautious_rule`.
    Options are those of :func:`best_threshold`, :func:`best_offsets` or :func:`best_label_thresholds`.

    >>> best_rule([0, 0, 1, 1], [[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.4, 0.6]], "f1").rule
    DecisionRule(kind='threshold', classes=(0, 1), parameter=0.25, metric='f1', least=0.0)
    """
    p = np.asarray(as_numpy(proba))
    several = np.ndim(y_true) == 2 and (np.shape(y_true)[1] > 1 or p.shape[1:] == (1,))
    goal = goal_of(
        problem.TotalGain() if metric is None else metric, options.get("subject_to", ()), rows=True, doubt=True
    )
    if goal.coverage is not None:
        others = [c for c in goal.constraints if c is not goal.coverage]
        aim = goal.metric.subject_to(*others) if others else goal.metric
        extra = [name for name in ("confidence", "gain", "prevalence") if options.get(name) is not None]
        if extra := extra + ["several labels"] * several + ["columns"] * aim.needs_rows:
            raise ValueError(f"coverage: cannot be kept together with {extra[0]}; leave one of them out.")
        how: Any = {name: options[name] for name in ("labels", "sample_weight", "belief") if name in options}
        return cautious_rule(y_true, p, aim, coverage=goal.coverage.bound, **how)
    if not several and (p.ndim == 1 or p.shape[1] == 2):
        return best_threshold(y_true, p if p.ndim == 1 else p[:, 1], metric, **options)
    if metric is None or [options.pop(name, None) for name in ("gain", "columns")] != [None, None]:
        raise TypeError(
            "gain, columns: are for two classes; give a metric, such as 'cost:matrix=[[0,1,2],[5,0,1],[9,3,0]]'."
        )
    from metricfit.decisions.coordinates import best_label_thresholds, best_offsets

    if several:
        return best_label_thresholds(y_true, p, metric, **options)
    found = best_offsets(y_true, p, metric, **options)
    if isinstance(goal.metric, ExpectedCost) and not goal.constraints:
        rule, weight = bayes_rule(goal.metric.matrix, found.rule.classes), options.get("sample_weight")
        cm = ConfusionMatrix.from_labels(y_true, rule.apply(p), labels=rule.classes, sample_weight=weight)
        by_costs = BestRule.of(rule, goal, cm, argmax_value=found.argmax_value, again=found.again)
        # Tuned offsets must beat what follows from the costs alone; on a tie, nothing was tuned.
        if by_costs.value <= found.value:
            return by_costs
    return found


def tuned_rule(
    y: NDArray[Any], proba: NDArray[Any], metric: Metric, labels: Sequence[Hashable], weight: Any, **options: Any
) -> DecisionRule:
    """The best rule for the metric; arg max, with a warning, where none can be tuned or meets its constraints."""
    try:
        return best_rule(y, proba, metric, labels=labels, sample_weight=weight, **options).rule
    except (InfeasibleError, problem.UntunableError) as error:
        return argmax_instead(error, y, labels)


def argmax_instead(error: Exception, y: NDArray[Any], labels: Sequence[Hashable]) -> DecisionRule:
    """Arg max, with a warning that says why."""
    why = "meets the constraints" if isinstance(error, InfeasibleError) else "can be tuned"
    warnings.warn(f"no decision rule {why}, arg max is used: {error}", UserWarning, stacklevel=3)
    return argmax_rule(y, labels)


def cautious_rule(
    y_true: ArrayLike, proba: ArrayLike, metric: MetricLike, *, coverage: float = 0.9, labels: Labels = None,
    sample_weight: Weights = None, belief: float = 0.0,
) -> BestRule:  # fmt: skip
    """The best rule that decides at least a share ``coverage`` of the rows and leaves unsure ones to a person.

    The rule is tuned for the expected metric of all rows, by probabilities (n, classes); then every bound is compared,
    exactly, by the metric (and its constraints) on the rows that are decided; with ``belief`` by the *expected* metric,
    as of :func:`best_threshold`. Labels alone over-fit where positives are few.
    """
    expect(0 < coverage <= 1, "coverage", "a share above 0 and at most 1", coverage)
    goal = goal_of(metric)
    samples = problem.class_samples(y_true, problem.as_columns(proba, "proba"), sample_weight, labels=labels)
    p, (n, size) = samples.score, samples.score.shape
    given: Any = {"labels": samples.classes, "sample_weight": samples.weight, "belief": 1.0}
    try:
        rule = best_rule(y_true, p, metric, **given).rule
    except InfeasibleError:  # of all rows; those that are decided may keep what all do not
        rule = best_rule(y_true, p, goal.metric, **given).rule
    sure, weight = rule.fold(p).max(axis=1), np.ones(n) if samples.weight is None else samples.weight
    order = np.argsort(-sure, kind="stable")
    shares = weight[order].cumsum() / weight.sum()
    enough = np.append(sure[order][1:] != sure[order][:-1], True) & (shares >= coverage - 1e-12)
    mixed, decided = mixed_labels(samples, belief), np.eye(size)[rule.decide(p)] * weight[:, None]

    def matrices(shares: Array) -> ConfusionMatrix:
        counts = (shares[:, :, None] * decided[:, None])[order].cumsum(axis=0)[enough]
        return ConfusionMatrix(torch.from_numpy(counts), "binary" if size == 2 else "multiclass", samples.classes)

    found = matrices(np.eye(size)[samples.target])

    def best_of(aim: Goal, seen: ConfusionMatrix = found) -> tuple[int, Key]:
        violation, gain = aim.keys(found)[0].numpy(), aim.keys(seen)[1].numpy()
        place = int(np.lexsort((shares[enough], gain, -violation))[-1])
        return place, (-float(violation[place]), float(gain[place]))

    best, key = best_of(goal, found if mixed is None else matrices(mixed))
    if key[0] < 0:
        raise goal.infeasible(f"rule that decides a share of {coverage:g} of the rows", lambda aim: best_of(aim)[1])
    curve = np.stack([shares[enough], goal.sign * goal.keys(found)[1].numpy()], axis=1)
    asked = Constraint(Coverage(), ">=", coverage)
    spec = replace(goal, constraints=(*goal.constraints, asked)).spec
    rule = replace(rule, least=float(sure[order][enough][best]) if best < len(curve) - 1 else 0.0, metric=spec)
    result = BestRule.of(rule, goal, found.with_matrix(found.matrix[best]), curve=curve)
    return replace(result, constraints=(*result.constraints, ConstraintValue(asked, float(curve[best, 0]))))


def least_probabilities(
    y_true: ArrayLike, proba: ArrayLike, error: float = 0.1, *, each_class: bool = False, labels: Labels = None
) -> NDArray[np.float64]:
    """The probability from which on each class is possible, so that the true one is for all but ``error`` of new rows.

    This is conformal prediction (Sadinle et al. 2019): the promise holds for any model and on average over rows from
    the same source as these, which the model was not fitted on; with ``each_class`` for every class by itself.
    """
    expect(0 < error < 1, "error", "a share between 0 and 1", error)
    samples = problem.class_samples(y_true, proba, labels=labels)
    own, size = samples.score[np.arange(len(samples.target)), samples.target], samples.score.shape[1]
    groups = [np.sort(own[samples.target == k] if each_class else own) for k in range(size)]
    places = [int(error * (len(values) + 1)) for values in groups]
    return np.array([values[k - 1] if k else 0.0 for k, values in zip(places, groups, strict=True)])
