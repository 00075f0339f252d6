"""Constraints that hold on new data with a stated confidence.

A constraint on a share (recall, precision, …) of a *fixed* rule is a binomial test. The rule is chosen on the same
data, so the test must hold for the chosen one (Angelopoulos et al. 2021, "Learn then Test"):

* Recall, specificity, their complements and the predicted share only ever move one way along the cut-offs. Testing
  the cut-offs in that order and stopping at the first failure is fixed-sequence testing: every cut-off that passes
  its own one-sided Clopper-Pearson test is good at once, with no correction for how many there are.
* Precision can move either way. It is tested at ranks fixed in advance (a geometric grid over the number of samples
  called positive), with Bonferroni's correction over the grid. Given the score at rank m + 1, the samples ranked
  above it are an independent draw from those with a higher score, so the test is exact at each rank; the cut-off
  is placed just above that score.
* A rule with several parameters is proposed on one half of the data and tested on the other, from cautious to bold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, binom

from metricfit.confusion import ConfusionMatrix
from metricfit.decisions.problem import Array, Goal, Indices, InfeasibleError, Samples
from metricfit.decisions.rules import BestRule, DecisionRule
from metricfit.inputs import expect
from metricfit.metrics import Constraint
from metricfit.metrics.algebra import Coverage
from metricfit.metrics.base import ClassMetric

if TYPE_CHECKING:
    from metricfit.decisions.threshold import Sweep

_GRID_RATIO = 1.5
_MARGINS = tuple(np.arange(4.0, -0.01, -0.5))  # standard errors of safety, from cautious to bold

# The (hits, misses) of each share that a promise can be about.
_SHARES: dict[str, Callable[[Any, Any, Any, Any], tuple[Any, Any]]] = {
    "recall": lambda tp, fp, fn, tn: (tp, fn),
    "specificity": lambda tp, fp, fn, tn: (tn, fp),
    "fpr": lambda tp, fp, fn, tn: (fp, tn),
    "fnr": lambda tp, fp, fn, tn: (fn, tp),
    "predicted_share": lambda tp, fp, fn, tn: (tp + fp, tn + fn),
    "precision": lambda tp, fp, fn, tn: (tp, fp),
    "npv": lambda tp, fp, fn, tn: (tn, fn),
}

Mask = NDArray[np.bool_]


def lower_bound(successes: float, trials: float, alpha: float) -> float:
    """The one-sided Clopper-Pearson lower bound of a share at confidence ``1 - alpha``."""
    return 0.0 if successes <= 0 or trials <= 0 else float(beta.ppf(alpha, successes, trials - successes + 1))


def check_confidence(
    confidence: float, constraints: Sequence[Constraint], weighted: bool, at_any_prevalence: bool = False
) -> float:
    """The error probability that ``confidence`` allows, after checking that a promise can be made at all."""
    valid = isinstance(confidence, (int, float)) and not isinstance(confidence, bool) and 0 < confidence < 1
    expect(valid, "confidence", "a number between 0 and 1, such as 0.95", confidence)
    if not constraints:
        raise ValueError("confidence: has no effect without a constraint; write '… subject to recall[1] >= 0.9'.")
    if [c for c in constraints if isinstance(c.metric, Coverage)]:
        raise ValueError("confidence: rows that are left to a person allow no promise; leave out coverage or it.")
    if weighted:
        raise ValueError("sample_weight: a promise at a confidence needs unweighted samples; leave the weights out.")
    mixed = [c for c in constraints if getattr(c.metric, "name", "") not in ("recall", "specificity", "fpr", "fnr")]
    if at_any_prevalence and mixed:
        raise ValueError(
            f"confidence: {mixed[0]} depends on the prevalence; leave it out, or constrain recall or specificity."
        )
    return 1 - confidence


def promised(constraint: Constraint, cm: ConfusionMatrix, alpha: float) -> tuple[float, bool]:
    """The value that a fixed rule's confusion matrix lets one promise, and whether that is enough."""
    kind, index = _share(constraint, cm)
    hits, misses = _SHARES[kind](*(float(count[index]) for count in cm.counts))
    if constraint.operator == ">=":
        bound = lower_bound(hits, hits + misses, alpha)
        return bound, bound >= constraint.bound
    bound = 1 - lower_bound(misses, hits + misses, alpha)
    return bound, bound <= constraint.bound


@dataclass(frozen=True)
class _CutTest:
    """One constraint's test at every cut-off, or at those ``tested``; the share is turned so that it must be large."""

    constraint: Constraint
    name: str
    bound: float  # what the share must reach
    successes: Array
    trials: Array
    tested: Indices | None
    alpha: float

    def passes(self) -> Mask:
        if self.bound <= 0:
            return np.ones(len(self.successes), dtype=bool)
        if self.tested is None:
            # The number of trials is the same at every cut-off, so one quantile decides all of them.
            return np.asarray(self.successes >= binom.isf(self.alpha, self.trials[0], self.bound) + 1)
        mask = np.zeros(len(self.successes), dtype=bool)
        s, n = self.successes[self.tested], self.trials[self.tested]
        mask[self.tested] = (n > 0) & (binom.sf(s - 1, n, self.bound) <= self.alpha)
        return mask

    def promise(self, index: int) -> float:
        bound = lower_bound(self.successes[index], self.trials[index], self.alpha)
        return bound if self.constraint.operator == ">=" else 1 - bound

    def best_promise(self, cuts: Indices) -> float:
        """The best value that can be promised at one of these cut-offs."""
        if self.tested is None:
            return self.promise(int(cuts[np.argmax(self.successes[cuts])]))
        promises = [self.promise(int(i)) for i in cuts]
        return max(promises) if self.constraint.operator == ">=" else min(promises)


def certify_cuts(
    sweep: Sweep, constraints: Sequence[Constraint], alpha: float
) -> tuple[Mask, Callable[[int], list[float]]]:
    """The cut-offs at which all constraints hold on new data, each at its part of ``alpha``; and the promises there."""
    about = [(c, group) for c in constraints for group in (sweep.parts[c.within] if c.within else [None])]
    tests = [_cut_test(sweep, c, alpha / len(about), group) for c, group in about]
    masks = [test.passes() for test in tests]
    allowed = np.logical_and.reduce(masks)
    if not allowed.any():
        raise _infeasible(tests, masks, 1 - alpha)

    def promises(index: int) -> list[float]:
        each = [[t.promise(index) for t in tests if t.constraint is c] for c in constraints]
        return [min(e) if c.operator == ">=" else max(e) for c, e in zip(constraints, each, strict=True)]

    return allowed, promises


def _cut_test(sweep: Sweep, constraint: Constraint, alpha: float, group: Any = None) -> _CutTest:
    kind, index = _share(constraint, sweep.matrix(sweep.counts(0, 1)))
    if constraint.within is not None:
        if kind in ("precision", "npv") or constraint.spread:
            raise ValueError(
                f"confidence: {constraint} cannot be promised in groups; leave it out, or constrain recall."
            )
        part = sweep.parts[constraint.within][group]
        places = sweep.places_in(part)
        sweep = replace(part, tp=part.tp[places], fp=part.fp[places])
    fn, tn = sweep.tp[-1] - sweep.tp, sweep.fp[-1] - sweep.fp
    successes, misses = _SHARES[kind](*((sweep.tp, sweep.fp, fn, tn) if index == 1 else (tn, fn, sweep.fp, sweep.tp)))
    trials, tested = successes + misses, None
    bound = constraint.bound if constraint.operator == ">=" else 1 - constraint.bound
    if kind in ("precision", "npv"):
        about_positives = (index == 1) == (kind == "precision")
        if not about_positives:
            # The cut-off sits just above one sample's score. That sample was picked by its rank, not drawn, so
            # it counts as a failure on the side of those called negative.
            successes = np.append(successes[1:], 0.0)
        tested = _grid(sweep.tp + sweep.fp, bound, alpha, about_positives)
        alpha /= max(len(tested), 1)
    if constraint.operator == "<=":
        successes = trials - successes
    name = str(constraint) if group is None else f"{constraint} ({group})"
    return _CutTest(constraint, name, bound, successes, trials, tested, alpha)


def _grid(called: Array, bound: float, alpha: float, from_top: bool) -> Indices:
    """Cut-offs at a geometric grid of ranks; smaller groups than could ever pass are left out."""
    n = called[-1]
    smallest = 1.0 if bound <= 0 else math.log(alpha) / math.log(bound) if bound < 1 else n
    ranks, rank = [], n - 1
    while rank >= max(smallest, 1):
        ranks.append(math.floor(rank))
        rank /= _GRID_RATIO
    sizes = np.array(ranks, dtype=np.float64)
    cuts = np.searchsorted(called, sizes if from_top else n - 1 - sizes, side="right") - 1
    return np.unique(cuts[(cuts >= 0) & (cuts < len(called) - 1)])


def _share(constraint: Constraint, cm: ConfusionMatrix) -> tuple[str, int]:
    metric = constraint.metric
    if not isinstance(metric, ClassMetric) or metric.name not in _SHARES:
        raise ValueError(f"confidence: a promise is about one of {', '.join(_SHARES)}, got {constraint}; leave it out.")
    if metric.label is not None:
        return metric.name, cm.class_index(metric.label)
    if metric.average == "auto" and cm.task == "binary":
        return metric.name, 1
    raise ValueError(f"confidence: a promise is about one class, got {constraint}; write {metric.name}[class].")


def _infeasible(tests: Sequence[_CutTest], masks: Sequence[Mask], confidence: float) -> InfeasibleError:
    reachable, parts = {}, []
    for place, test in enumerate(tests):
        others = np.logical_and.reduce([*masks[:place], *masks[place + 1 :], np.ones_like(masks[0])])
        tested = np.arange(len(others)) if test.tested is None else test.tested
        if not len(tested):
            parts.append(f"{test.name}: too few samples ({test.trials.max():g}) to promise it at all")
            continue
        both = tested[others[tested]]
        reachable[test.name] = best = test.best_promise(both if len(both) else tested)
        beside = "" if len(tests) == 1 else " beside the others" if len(both) else " on its own"
        text = _best_promise(test.constraint, best, beside, test.name)
        if test.tested is None and 0 < test.bound < 1 and test.alpha ** (1 / test.trials[0]) < test.bound:
            needed = math.ceil(math.log(test.alpha) / math.log(test.bound))
            text += f" (with {test.trials[0]:g} samples to judge by; {needed} are the fewest that could do)"
        parts.append(text)
    return _not_promised("cut-off", confidence, parts, reachable)


def _best_promise(constraint: Constraint, best: float, given: str = "", name: str = "") -> str:
    word = "at least" if constraint.operator == ">=" else "at most"
    return f"{name or constraint}: the best that can be promised{given} is {word} {best:.4g}"


def _not_promised(what: str, confidence: float, parts: list[str], reachable: dict[str, float]) -> InfeasibleError:
    return InfeasibleError(
        f"subject_to: no {what} keeps the constraints on new data at {confidence:.4g} confidence. {'; '.join(parts)}. "
        "Relax a bound, lower the confidence or bring more data.",
        reachable,
    )


def certified(
    goal: Goal, samples: Samples, confidence: float | None, rng: np.random.Generator,
    propose: Callable[[Goal, Samples], DecisionRule],
) -> BestRule:  # fmt: skip
    """The best rule of several numbers, with what it promises of each constraint where a confidence is asked for.

    Rules that ``propose`` finds on one half are tested on the other, from cautious to bold, until the first failure.
    The last that passes keeps *all* constraints with that probability, with no correction for the number of tests.
    """
    if confidence is None:
        rule, promises = propose(goal, samples), list[float]()
    else:
        rule, promises = _tested(goal, samples, confidence, rng, propose)
    return BestRule.of(rule, goal, samples.confusion(rule.decide(samples.score)), promises, confidence=confidence)


def _tested(
    goal: Goal, samples: Samples, confidence: float, rng: Any, propose: Any
) -> tuple[DecisionRule, list[float]]:
    alpha = check_confidence(confidence, goal.constraints, samples.weight is not None)
    # Two random halves in which every class is split evenly.
    strata = samples.target if samples.target.ndim == 1 else np.zeros(len(samples.target))
    shuffled = rng.permutation(len(strata))
    in_strata = shuffled[np.argsort(strata[shuffled], kind="stable")]
    proposing, testing = (samples.take(np.sort(in_strata[half::2])) for half in (0, 1))
    first: list[float] = []
    found = None
    for margin in _MARGINS:
        try:
            rule = propose(_tightened(goal, margin, len(proposing.target)), proposing)
        except InfeasibleError:
            if margin == 0 and not first:
                raise
            continue
        cm = testing.confusion(rule.decide(testing.score))
        promises, passed = zip(*(promised(c, cm, alpha) for c in goal.constraints), strict=True)
        first = first or list(promises)
        if not all(passed):
            break
        found = rule, list(promises)
    if found is None:
        best = dict(zip(goal.constraints, first, strict=False))
        parts = [_best_promise(c, value) for c, value in best.items()]
        raise _not_promised("rule", confidence, parts, {str(c): value for c, value in best.items()})
    return found


def _tightened(goal: Goal, margin: float, n: int) -> Goal:
    """The goal with bounds that are so many standard errors safer."""
    tighter = []
    for c in goal.constraints:
        share, (lowest, highest) = min(max(c.bound, 0.05), 0.95), c.metric.range
        # A tenth of the samples as the size of the class concerned: only the order of the rules depends on it.
        step = margin * float(np.sqrt(share * (1 - share) / max(n / 10, 1)))
        bound = c.bound + step if c.operator == ">=" else c.bound - step
        tighter.append(replace(c, bound=min(max(bound, lowest), highest)))
    return replace(goal, constraints=tuple(tighter))
