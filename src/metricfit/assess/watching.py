"""Whether a model still works: new rows beside those that were held out in training."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from scipy import stats

from metricfit.assess.intervals import Array, Estimate, drawn, interval, share
from metricfit.assess.prevalence import without_labels
from metricfit.assess.scores import HeldOutScores
from metricfit.decisions.problem import UntunableError, computed
from metricfit.metrics import Constrained
from metricfit.metrics.algebra import Coverage, named_class

__all__ = ["Watched", "monitor"]

_MOST = 50_000  # rows from which shares and metrics without labels are estimated
_FEWEST = 10  # draws on the better side from which their share is the chance


@dataclass(frozen=True)
class Watched:
    """Something that was looked at: ``then`` on the rows held out in training, ``now`` on the new ones.

    ``about`` is a class, a metric or a constraint. ``chance`` is how probable such a difference is if nothing has
    changed, NaN where nothing is tested; of the metric and of constraints, how probable it is that they are no worse
    than then (or the bound is kept). ``missed``: now is beyond the bound; ``alarm``: the chance is too small.

    Scores are compared by the largest distance of both distributions of a class's probability. The true share and what
    is expected are estimated without labels, see :func:`expected_metric`; what is measured is of the labelled rows.
    """

    kind: Literal["scores", "predicted share", "true share", "expected", "measured"]
    about: Any
    then: Estimate
    now: Estimate
    chance: float = math.nan
    missed: bool = False
    alarm: bool = False


def monitor(
    classifier: Any, X: Any, labelled: HeldOutScores | None = None, *, alarm: float = 0.05, random_state: int = 0
) -> list[Watched]:
    """Compare new rows with those that were held out when a :class:`metricfit.MetricClassifier` was trained.

    Held-out rows were scored by one fold's models each, and so are the new ones here: their scores are alike if nothing
    has changed. ``labelled`` are those rows whose labels are known, by :func:`scores_of`.

    ``alarm`` is how probable any alarm is if nothing has changed; it is shared evenly among everything that is looked
    at. Among very many rows the smallest drift is found: ask for less then, such as 1e-6.
    """
    held: HeldOutScores | None = classifier.held_out_
    if held is None:
        raise ValueError("classifier: no rows were held out in training, so there is nothing to compare with.")
    if not 0 < alarm < 1:
        raise ValueError(f"alarm: expected a probability between 0 and 1, such as 0.05, got {alarm!r}.")
    metric, labels, rule = classifier.metric_, tuple(classifier.classes_.tolist()), classifier.decision_rule_
    proba = np.asarray(classifier.predict_as_held_out(X))
    decided, before = rule.decide(proba), rule.decide(held.proba)
    several = held.truth.ndim == 2
    called = [each if several else each[:, None] == np.arange(len(labels)) for each in (before, decided)]
    binary, found = len(labels) == 2 and not several, list[Watched]()
    columns = [0 if named_class(metric, labels) == 0 else 1] if binary else range(len(labels))
    for k in columns:
        distance, chance = stats.ks_2samp(held.proba[:, k], proba[:, k].astype(np.float32), method="asymp")
        found.append(Watched("scores", labels[k], Estimate(0.0), Estimate(float(distance)), float(chance)))
        counts = np.array([[each[:, k].sum(), len(each)] for each in called], dtype=np.float64)
        usual, now = (share(*pair) for pair in counts.tolist())
        counts[:, 1] -= counts[:, 0]
        found.append(Watched("predicted share", labels[k], usual, now, float(stats.fisher_exact(counts)[1])))
    objective = metric.objective if isinstance(metric, Constrained) else metric
    limits = [c for c in getattr(metric, "constraints", ()) if c.within is None and not isinstance(c.metric, Coverage)]
    topics = [] if objective.needs_rows else [metric, *limits]  # money and groups need columns: see report and evaluate
    judged = [objective if about is metric else about.metric for about in topics]
    then: list[Array] = [drawn(each, [held.judged(labels)], random_state)[0] for each in judged]

    def add(kind: Any, values_now: list[Array]) -> None:
        for about, usual, values in zip(topics, then, values_now, strict=True):
            # By how much it is no worse than then, nor than its bound; the draws of both are independent.
            sign = 1.0 if (metric.greater_is_better if about is metric else about.operator == ">=") else -1.0
            few, bound = min(len(usual), len(values)), math.inf if about is metric else sign * about.bound
            gap = sign * values[1:few] - np.minimum(sign * usual[1:few], bound)
            missed = about is not metric and float(about.violation(torch.tensor(values[0]))) > 0
            chance = _chance(gap) if kind == "measured" or about is not metric else math.nan
            name = str(objective if about is metric else about)
            found.append(Watched(kind, name, interval(usual), interval(values), chance, missed))

    if not several and not metric.judges_scores and len(np.unique(held.truth)) == len(labels):
        some, known = np.random.default_rng(random_state).permutation(len(proba))[:_MOST], held.sample(_MOST)
        given = known.truth, known.proba, range(len(labels)), random_state
        with contextlib.suppress(UntunableError):  # a model that says the same of all rows
            _, true, cm = without_labels(proba[some], decided[some], *given)
            support = np.bincount(held.truth).tolist()
            found += [
                Watched("true share", labels[k], share(support[k], len(held)), interval(true[:, k])) for k in columns
            ]
            add("expected", [computed(each, replace(cm, labels=labels)).numpy() for each in judged])
    if labelled is not None and len(labelled):
        add("measured", [drawn(each, [labelled.judged(labels)], random_state + 1)[0] for each in judged])
    return [replace(each, alarm=each.chance <= alarm / len(found)) for each in found]


def _chance(gap: Array) -> float:
    """How probable a gap of 0 or more is; from few such draws, of which there may be none, by the normal tail."""
    gap = gap[np.isfinite(gap)]
    better = int((gap >= 0).sum())
    if better >= _FEWEST or not gap.size or gap.std() == 0:
        return better / len(gap) if gap.size else math.nan
    return min(float(stats.norm.cdf(gap.mean() / gap.std())), _FEWEST / len(gap))
