"""New rows, often without labels: their classes, the metric to expect, and whether a model still works on them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import stats

from metricfit.assess.intervals import Array, Estimate, drawn, interval, share
from metricfit.assess.verdicts import HeldOutScores
from metricfit.confusion import ConfusionMatrix
from metricfit.decisions.calibration import calibrate, fitted
from metricfit.decisions.problem import UntunableError, as_columns, check_probabilities, class_samples, computed
from metricfit.inputs import expect
from metricfit.metrics import Constrained, MetricLike, resolve
from metricfit.metrics.algebra import Coverage, named_class

_MOST_PASSES = 1000
_DRAWS, _FEWER_DRAWS = 200, 40
_MANY = 400_000  # probabilities, from which there are fewer draws
_MOST = 50_000  # rows from which shares and metrics without labels are estimated
_FEWEST = 10  # draws on the better side from which their share is the chance


def estimate_prevalence(
    new_proba: ArrayLike, y_true: ArrayLike, proba: ArrayLike, *, labels: Sequence[Hashable] | None = None,
    random_state: int = 0,
) -> dict[Any, Estimate]:  # fmt: skip
    """The share of every class among rows without labels, with its interval (EM of Saerens et al. 2002).

    It is the mixture of the classes, as they look among the labelled rows, that makes the new rows' probabilities most
    likely. It holds where the classes have changed in number only: fraud may be rarer, but looks the same. The
    probabilities are calibrated on the labelled rows first, without which the shares are biased. The interval comes
    from drawing weights for both kinds of rows (the Bayesian bootstrap), with calibration and EM done anew.

    ``new_proba`` are the model's probabilities for the rows without labels, (n,) of the second class or (n, classes);
    ``y_true`` and ``proba`` are of other rows, which the model was not fitted on.

    >>> rng = np.random.default_rng(0)
    >>> def rows(n, share):
    ...     y = rng.random(n) < share
    ...     return y, 1 / (1 + np.exp(-(2 * rng.normal(size=n) + 4 * y - 2)))
    >>> y, p = rows(2000, 0.5)
    >>> _, new = rows(2000, 0.1)
    >>> print(estimate_prevalence(new, y, p)[True])
    0.108 (0.084 to 0.135)
    """
    classes, shares, _ = without_labels(new_proba, None, y_true, proba, labels, random_state)
    return {label: interval(shares[:, k]) for k, label in enumerate(classes)}


def expected_metric(
    metric: MetricLike, new_proba: ArrayLike, decided: ArrayLike, y_true: ArrayLike, proba: ArrayLike, *,
    labels: Sequence[Hashable] | None = None, random_state: int = 0,
) -> Estimate:  # fmt: skip
    """What a metric of decisions about rows without labels is expected to be, with its interval.

    The unknown labels are drawn by the probabilities that calibration and the estimated shares of the classes give,
    under the assumption of :func:`estimate_prevalence`, whose arguments these are. ``decided`` (n,) are the decisions
    about the new rows as positions of the classes: 0 or 1 where there are two.
    """
    _, _, cm = without_labels(new_proba, decided, y_true, proba, labels, random_state)
    return interval(computed(resolve(metric, cm.labels or (), cm.task or "binary")[0], cm).numpy())


def without_labels(
    new_proba: ArrayLike, decided: ArrayLike | None, y_true: ArrayLike, proba: ArrayLike,
    labels: Sequence[Hashable] | None, random_state: int,
) -> tuple[tuple[Any, ...], Array, ConfusionMatrix]:  # fmt: skip
    """The classes, their shares among new rows, and the confusion matrix of decisions: the estimate, then draws."""
    known, new = as_columns(proba, "proba"), as_columns(new_proba, "new_proba")
    check_probabilities(new, "new_proba")
    samples = class_samples(y_true, known, labels=labels)
    expect(new.shape[1:] == known.shape[1:], "new_proba", f"{known.shape[1]} columns, as proba has", new.shape)
    classes, (n, size), rng = samples.classes, known.shape, np.random.default_rng(random_state)
    called = np.zeros(len(new), dtype=np.intp) if decided is None else np.asarray(decided, dtype=np.intp)
    method = calibrate(y_true, known, labels=classes).method
    draws = _DRAWS if new.size + known.size <= _MANY else _FEWER_DRAWS
    found: list[Array] = []
    matrices: list[Array] = []
    for i in range(1 + draws):
        weight, drawn = (rng.standard_gamma(1.0, rows) if i else np.ones(rows) for rows in (n, len(new)))
        usual = np.bincount(samples.target, weight, minlength=size) / weight.sum()
        ratio = fitted(method, replace(samples, weight=weight), False).apply(new) / np.where(usual > 0, usual, np.inf)
        # A start at a share of 0 would stay there.
        start = 0.9 * found[0] + 0.1 / size if found else np.full(size, 1 / size)
        found.append(_expectation_maximisation(ratio, drawn, start))
        belief = found[-1] * ratio / (ratio @ found[-1])[:, None]
        if i and decided is not None:  # labels by these beliefs: a metric of few rows is uncertain itself
            belief = np.eye(size)[(rng.random((len(new), 1)) > belief.cumsum(axis=1)[:, :-1]).sum(axis=1)]
        matrices.append(belief.T @ (called[:, None] == np.arange(size)))
    task: Any = "binary" if size == 2 else "multiclass"
    return classes, np.array(found), ConfusionMatrix(torch.from_numpy(np.array(matrices)), task, classes)


def _expectation_maximisation(ratio: Array, weight: Array, shares: Array) -> Array:
    """The shares under which rows with these likelihoods (n, classes), up to a factor per row, are most likely."""
    for _ in range(_MOST_PASSES):
        belief = shares * ratio
        moved = weight @ (belief / belief.sum(axis=1, keepdims=True)) / weight.sum()
        if np.abs(moved - shares).max() < 1e-7:
            return np.asarray(moved)
        shares = moved
    return shares


@dataclass(frozen=True)
class Watched:
    """Something that was looked at: ``then`` on the rows held out in training, ``now`` on the new ones.

    ``about`` is a class, a metric or a constraint. ``chance`` is how probable such a difference is if nothing has
    changed, NaN where nothing is tested; of the metric and of constraints, how probable it is that they are no worse
    than then (or the bound is kept). ``missed``: now is beyond the bound; ``alarm``: the chance is too small.

    Scores are compared by the largest distance of both distributions of a class's probability. What is expected is
    estimated without labels, see :func:`expected_metric`, and so is the true share where no row is labelled; what is
    measured is of the labelled rows.
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
    has changed. ``labelled`` are those rows whose labels are known, by :func:`scores_of`. A
    :class:`metricfit.decisions.TunedRuleClassifier` is compared with the rows that chose its rule: best with
    ``cv="prefit"``, since by cross-validation these were scored by models of fewer rows.

    ``alarm`` is how probable any alarm is if nothing has changed; it is shared evenly among everything that is looked
    at. Among very many rows the smallest drift is found: ask for less then, such as 1e-6.
    """
    held, scored = _held_out(classifier)
    if held is None:
        raise ValueError("classifier: no rows were held out in training, so there is nothing to compare with.")
    expect(0 < alarm < 1, "alarm", "a probability between 0 and 1, such as 0.05", alarm)
    metric, labels, rule = classifier.metric_, tuple(classifier.classes_.tolist()), classifier.decision_rule_
    proba = np.asarray(scored(X))
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
            for k in columns:
                now = share(int((labelled.truth == k).sum()), len(labelled)) if labelled else interval(true[:, k])
                found.append(Watched("true share", labels[k], share(support[k], len(held)), now))
            add("expected", [computed(each, replace(cm, labels=labels)).numpy() for each in judged])
    if labelled is not None and len(labelled):
        add("measured", [drawn(each, [labelled.judged(labels)], random_state + 1)[0] for each in judged])
    return [replace(each, alarm=each.chance <= alarm / len(found)) for each in found]


def _held_out(classifier: Any) -> tuple[HeldOutScores | None, Any]:
    """The rows held out in training, or those that chose a tuned rule, and what scores new rows as they were."""
    if not hasattr(classifier, "rule_"):
        return classifier.held_out_, classifier.predict_as_held_out
    if not hasattr(classifier.rule_, "decide"):
        raise ValueError("classifier: decides by groups of rows; compare each group's scores by expected_metric.")
    y, proba, weight = classifier._held_out
    truth = np.asarray(y if y.ndim == 2 else np.searchsorted(classifier.classes_, y), dtype=np.int64)
    held = HeldOutScores(truth, proba.astype(np.float32), classifier.rule_.decide(proba), weight=weight)
    return held, partial(classifier.predict_proba, raw=True)


def _chance(gap: Array) -> float:
    """How probable a gap of 0 or more is; from few such draws, of which there may be none, by the normal tail."""
    gap = gap[np.isfinite(gap)]
    better = int((gap >= 0).sum())
    if better >= _FEWEST or not gap.size or gap.std() == 0:
        return better / len(gap) if gap.size else math.nan
    return min(float(stats.norm.cdf(gap.mean() / gap.std())), _FEWEST / len(gap))
