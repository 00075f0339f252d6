"""Promises for rules with several parameters: half of the data proposes, the other half tests in a fixed order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from metricfit.confusion import ConfusionMatrix
from metricfit.decisions.confidence import promised
from metricfit.decisions.goal import Goal, InfeasibleError
from metricfit.metrics import Constraint

__all__ = ["certified_rule", "stratified_halves"]

Rule = TypeVar("Rule")
Indices = NDArray[np.intp]

_MARGINS = tuple(np.arange(4.0, -0.01, -0.5))  # standard errors of safety, from cautious to bold


def certified_rule(
    goal: Goal,
    halves: tuple[Indices, Indices],
    alpha: float,
    propose: Callable[[Goal, Indices], Rule],
    confusion: Callable[[Rule, Indices], ConfusionMatrix],
) -> tuple[Rule, tuple[float, ...]]:
    """Learn then Test: rules proposed on one half, tested in order on the other until the first failure.

    The rules do not depend on the testing half and are tested from cautious to bold, so the last one that passes
    keeps *all* constraints with probability ``1 - alpha``, with no correction for the number of tests.

    Args:
        goal: Objective and constraints.
        halves: Samples that propose, samples that test.
        alpha: The error probability.
        propose: The best rule for a goal on some samples.
        confusion: The confusion matrix of a rule on some samples.

    Returns:
        The rule and, for each constraint, what can be promised.
    """
    proposing, testing = halves
    certified: tuple[Rule, tuple[float, ...]] | None = None
    first: tuple[float, ...] | None = None
    for margin in _MARGINS:
        try:
            rule = propose(_tightened(goal, margin, len(proposing)), proposing)
        except InfeasibleError:
            if margin == 0 and first is None:
                raise
            continue
        cm = confusion(rule, testing)
        results = [promised(c, cm, alpha) for c in goal.constraints]
        promises = tuple(value for value, _ in results)
        first = first or promises
        if not all(passed for _, passed in results):
            break
        certified = (rule, promises)
    if certified is None:
        raise _infeasible(goal, first or (), 1 - alpha)
    return certified


def stratified_halves(strata: Indices, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Two random halves in which every stratum is split evenly."""
    shuffled = rng.permutation(len(strata))
    in_strata = shuffled[np.argsort(strata[shuffled], kind="stable")]
    return np.sort(in_strata[0::2]), np.sort(in_strata[1::2])


def _tightened(goal: Goal, margin: float, n: int) -> Goal:
    def tighter(constraint: Constraint) -> Constraint:
        lowest, highest = constraint.metric.range
        share = min(max(constraint.bound, 0.05), 0.95)
        # A tenth of the samples as the size of the class concerned: only the order of the rules depends on it.
        step = margin * float(np.sqrt(share * (1 - share) / max(n / 10, 1)))
        bound = constraint.bound + step if constraint.operator == ">=" else constraint.bound - step
        return replace(constraint, bound=min(max(bound, lowest), highest))

    return replace(goal, constraints=tuple(tighter(c) for c in goal.constraints))


def _infeasible(goal: Goal, promises: tuple[float, ...], confidence: float) -> InfeasibleError:
    reachable = {str(c): p for c, p in zip(goal.constraints, promises, strict=False)}
    parts = [
        f"{c}: the best that can be promised is {'at least' if c.operator == '>=' else 'at most'} {p:.4g}"
        for c, p in zip(goal.constraints, promises, strict=False)
    ]
    return InfeasibleError(
        f"subject_to: no rule keeps the constraints on new data at {confidence:.4g} confidence. "
        + "; ".join(parts)
        + ". Relax a bound, lower the confidence or bring more data.",
        reachable,
    )
