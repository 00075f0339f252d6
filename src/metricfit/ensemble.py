"""Models' held-out probabilities → weights and a decision rule, chosen together for the metric."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.assess import Decided, Estimate, HeldOutScores
from metricfit.assess.verdicts import PLAIN, TUNED, Assessment, assess, validation_report
from metricfit.decisions.coordinates import best_group_thresholds
from metricfit.decisions.problem import InfeasibleError, Rows, UntunableError
from metricfit.decisions.rules import DecisionRule, GroupThresholds, argmax_rule
from metricfit.decisions.threshold import argmax_instead, best_rule, tuned_rule
from metricfit.metrics import Constrained, Metric
from metricfit.models import Folds, Model
from metricfit.models.portfolio import LEAST

__all__ = ["BELIEF", "Ensemble", "HeldOut", "choose_ensemble", "decided_by_others", "log_loss_weights", "mean_of"]

Array = NDArray[np.float64]

# On 20 tables, with greedy weights: +0.4 ± 0.15 points against 0.5, better on 13 (benchmarks/portfolio/results.csv).
BELIEF = 1.0
"""The share of the labels that calibrated probabilities take over when a rule is tuned."""

STEPS = 25  # models that the greedy selection takes at most, counted as often as they are taken
TIMED_ROWS = 1_000  # rows whose prediction is timed for the leaderboard
PORTFOLIO = "portfolio"
LEADERBOARD_COLUMNS = ("model", "value", "low", "high", "weight", "fit_seconds", "predict_seconds")


@dataclass(frozen=True)
class HeldOut(Rows):
    """What models say about rows that they were not fitted on."""

    rows: NDArray[np.intp]
    fold: NDArray[np.intp]  # which one held each row out
    codes: NDArray[np.int64]  # their classes (n,), or 0/1 (n, labels)
    weight: Array
    labels: tuple[Hashable, ...]
    proba: Mapping[str, Array]  # each model's probabilities (n, classes) or (n, labels)
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # those that the metric names
    total: int = 0  # rows of the whole table, where counts of decisions are to be kept

    @property
    def truth(self) -> NDArray[Any]:
        """Their labels; indicators as they are."""
        return self.codes if self.codes.ndim == 2 else np.array(self.labels)[self.codes]

    def of(self, *names: str) -> HeldOut:
        """Some of the models."""
        return replace(self, proba={name: self.proba[name] for name in names})


class Ensemble(NamedTuple):
    """Weights of models, which sum to 1, and the decision rule for their mean, whose groups may have cut-offs."""

    weights: Mapping[str, float]
    rule: DecisionRule
    groups: GroupThresholds | None = None

    def mean(self, held: HeldOut) -> Array:
        """What the rule sees of held-out rows."""
        proba = mean_of(held.proba, self.weights)
        return proba if self.groups is None else self.groups.moved(proba, held.columns)


def mean_of(proba: Mapping[str, Array], weights: Mapping[str, float]) -> Array:
    """The weighted mean of models' probabilities; a model without weight is not looked at."""
    return np.asarray(sum(weight * proba[name] for name, weight in weights.items() if weight))


def log_loss_weights(held: HeldOut, steps: int = STEPS) -> dict[str, float]:
    """Weights by greedy selection on log-loss (Caruana et al. 2004): take the model that lowers it most, again.

    Models may be taken several times; the best of the means along the way is kept. Selecting on the metric itself
    over-fits: it lost 0.5 points to this on 17 tables.

    >>> truth = np.array([0, 0, 1, 1])
    >>> sure = np.array([[0.9, 0.1], [0.8, 0.2], [0.2, 0.8], [0.1, 0.9]])
    >>> held = HeldOut(truth, truth, truth, np.ones(4), (0, 1), {"good": sure, "bad": sure[::-1]})
    >>> log_loss_weights(held)
    {'good': 1.0, 'bad': 0.0}
    """
    names = list(held.proba)
    given = np.stack([_of_truth(held.codes, held.proba[name]) for name in names])
    weight = np.repeat(held.weight, given.shape[1] // len(held.rows))
    taken = np.zeros(len(names))
    best, best_loss, total = taken, np.inf, np.zeros(given.shape[1])
    for step in range(1, steps + 1):
        means = (total + given) / step
        losses = -np.log(np.maximum(means, LEAST)) @ weight
        choice = int(losses.argmin())
        taken = taken + (np.arange(len(names)) == choice)
        total = total + given[choice]
        if losses[choice] < best_loss:
            best, best_loss = taken, losses[choice]
    return dict(zip(names, (best / best.sum()).tolist(), strict=True))


def _of_truth(codes: NDArray[np.int64], proba: Array) -> Array:
    """The probability of what came true: of the class, or of each label's presence or absence."""
    if codes.ndim == 2:
        return np.where(codes > 0, proba, 1 - proba).ravel()
    return np.asarray(proba[np.arange(len(codes)), codes])


def choose_ensemble(held: HeldOut, metric: Metric, *, tuned: bool = True, confidence: float | None = None) -> Ensemble:
    """Weights and rule from held-out probabilities alone; without ``tuned`` the rule is arg max."""
    weights = log_loss_weights(held) if len(held.proba) > 1 else dict.fromkeys(held.proba, 1.0)
    plain = argmax_rule(held.truth, held.labels)
    # A class that no row shows cannot be tuned for.
    whole = held.codes.ndim == 2 or len(np.unique(held.codes)) == len(held.labels)
    if not tuned or metric.judges_scores or not whole:
        return Ensemble(weights, plain)
    mean, weight = mean_of(held.proba, weights), held.weight * _stand_for(held, metric)
    own: dict[str, Any] = {"belief": BELIEF, "confidence": confidence}
    own |= {"columns": held.columns} if held.columns else {}
    weights_of_rows = None if (weight == 1).all() else weight
    if getattr(metric, "by", None) is not None:
        return Ensemble(weights, *_by_groups(held, mean, metric, weights_of_rows))
    return Ensemble(weights, tuned_rule(held.truth, mean, metric, held.labels, weights_of_rows, **own))


def _by_groups(
    held: HeldOut, mean: Array, metric: Metric, weight: Array | None
) -> tuple[DecisionRule, GroupThresholds | None]:
    """A cut-off for all rows, once those of groups are moved there; arg max where there are none."""
    how: dict[str, Any] = {"columns": held.columns, "sample_weight": weight, "labels": held.labels}
    try:
        groups = best_group_thresholds(held.truth, mean[:, 1], metric, **how)
    except (InfeasibleError, UntunableError) as error:
        return argmax_instead(error, held.truth, held.labels), None
    return DecisionRule.at_threshold(groups.shared, held.labels, metric=str(metric)), groups


def _stand_for(held: HeldOut, metric: Metric) -> float:
    """How many rows of the whole table each row stands for, where a constraint counts decisions; else 1."""
    counts = isinstance(metric, Constrained) and any(c.metric.range[1] == math.inf for c in metric.constraints)
    return held.total / len(held.rows) if counts and held.total else 1.0


def decided_by_others(held: HeldOut, choose: Callable[[HeldOut], Ensemble]) -> tuple[Array, NDArray[np.int64]]:
    """What new data would see: each fold decided by weights and a rule that were chosen on the other folds.

    A single fold is dealt into two. Returns the mean probabilities and the decisions as codes (n,), or 0/1 (n, labels).
    """
    fold = held.fold if len(np.unique(held.fold)) > 1 else np.arange(len(held.rows)) % 2
    proba = np.empty_like(next(iter(held.proba.values())))
    decided = np.empty(held.codes.shape, dtype=np.int64)
    for k in np.unique(fold):
        here = held.take(fold == k)
        with warnings.catch_warnings():  # the choice on all rows says so, once
            warnings.filterwarnings("ignore", message="no decision rule meets")
            chosen = choose(held.take(fold != k))
        proba[fold == k] = mean = chosen.mean(here)
        decided[fold == k] = chosen.rule.decide(mean)
    return proba, decided


class Judged(NamedTuple):
    """Weights and rule of fitted models, and what they reach on held-out rows."""

    ensemble: Ensemble
    report: pd.DataFrame  # validation_report_ of the classifier
    leaderboard: pd.DataFrame  # leaderboard_ of the classifier
    scores: HeldOutScores | None  # held_out_ of the classifier


def _held_out(folds: Folds, proba: Mapping[str, Array]) -> HeldOut:
    """What the models say about held-out rows; a row of several folds counts once, with its mean probabilities."""
    rows = np.concatenate([split.validation for split in folds.splits])
    fold = np.repeat(np.arange(len(folds.splits)), [len(split.validation) for split in folds.splits])
    _, first, place, times = np.unique(rows, return_index=True, return_inverse=True, return_counts=True)
    if len(first) < len(rows):
        order = np.argsort(first)
        rows, fold = rows[first[order]], fold[first[order]]
        sums = {n: np.stack([np.bincount(place, column) for column in found.T], axis=1) for n, found in proba.items()}
        proba = {name: (total / times[:, None])[order] for name, total in sums.items()}
    weight, columns = folds.plain_weight[rows].astype(np.float64), {n: c[rows] for n, c in folds.columns.items()}
    return HeldOut(rows, fold, folds.codes[rows], weight, folds.labels, proba, columns, len(folds.codes))


def check_columns(folds: Folds) -> None:
    """Raise, before anything is trained, where not even perfect scores have a rule, on all rows or without a fold."""

    def sure(held: HeldOut) -> Ensemble:
        how: Any = {"labels": held.labels, "columns": held.columns}
        if getattr(folds.metric, "by", None) is not None:
            groups = best_group_thresholds(held.truth, held.proba[""][:, 1], folds.metric, **how)
            return Ensemble({"": 1.0}, DecisionRule.at_threshold(groups.shared, held.labels), groups)
        return Ensemble({"": 1.0}, best_rule(held.truth, held.proba[""], folds.metric, **how).rule)

    if folds.metric.needs_rows and folds.held_out:
        held = _held_out(folds, {})
        decided_by_others(replace(held, proba={"": np.eye(len(folds.labels))[held.codes] * 0.98 + 0.01}), sure)


def judge(
    folds: Folds, models: Sequence[Model], shipped: Sequence[str], *, tuned: bool, name: str,
    confidence: float | None = None,
) -> Judged:  # fmt: skip
    """Choose weights and a rule, which may be ``tuned``, for the models that are ``shipped``, and measure them.

    The other models are there to compare with; ``name`` is what the shipped ones are called together.
    """
    metric = folds.metric
    if not folds.held_out:
        truth = np.eye(len(folds.labels), dtype=np.int64) if folds.codes.ndim == 2 else np.array(folds.labels)
        ensemble = Ensemble(dict.fromkeys(shipped, 1 / len(shipped)), argmax_rule(truth, folds.labels))
        return Judged(ensemble, validation_report(metric, {}), _leaderboard(folds, models, ensemble, {}, name), None)
    held = _held_out(folds, {model.name: np.concatenate(model.held_out) for model in models})
    ensemble = choose_ensemble(held.of(*shipped), metric, tuned=tuned, confidence=confidence)
    decided = _decided(held, metric, shipped, name, tuned, confidence)
    measured = len(metric.grids()) == 1 and held.weight.sum() > 0
    found = {way: assess(way, metric, rows) for way, rows in decided.items()} if measured else {}
    single, sign = "", 1 if metric.greater_is_better else -1
    if len(shipped) > 1 and found:
        single = max(shipped, key=lambda model: sign * found[model].estimate.value)
    report = validation_report(metric, {way: found[way] for way in (PLAIN, TUNED, single, name) if way in found})
    scores = HeldOutScores(
        truth=held.codes,
        proba=ensemble.mean(held).astype(np.float32),
        decided=decided[name].decided,
        baseline=np.asarray(decided[PLAIN].proba) if PLAIN in decided else None,
        baseline_tuned=decided[TUNED].decided if TUNED in decided else None,
        weight=decided[name].weight,
        source="rows of the training table, each predicted by models that were not trained on it",
        cross_fitted=tuned and not metric.judges_scores,
        rows=held.rows,
        single=np.asarray(decided[single].proba) if single else None,
        single_decided=decided[single].decided if single else None,
        single_name=single,
        fold=held.fold.astype(np.int64),
        columns=held.columns,
    )
    return Judged(ensemble, report, _leaderboard(folds, models, ensemble, found, name), scores)


def _decided(
    held: HeldOut, metric: Metric, shipped: Sequence[str], name: str, tuned: bool, confidence: float | None
) -> dict[str, Decided]:
    """The decisions of each model by itself and of all together, each fold's by the other folds' choice."""
    ways: dict[str, tuple[Sequence[str], bool]] = {}
    if "network_ce" in held.proba:
        ways[PLAIN] = ["network_ce"], False
        if not metric.judges_scores:
            ways[TUNED] = ["network_ce"], True
    if len(shipped) > 1:
        ways |= {model: ([model], True) for model in shipped}
    ways[name] = shipped, tuned
    weight, found = held.weight * _stand_for(held, metric), dict[str, Decided]()
    for way, (models, tunes) in ways.items():
        choose = partial(choose_ensemble, metric=metric, tuned=tunes, confidence=confidence if tunes else None)
        proba, decided = decided_by_others(held.of(*models), choose)
        parts = held.codes, decided, held.labels, proba.astype(np.float32)
        found[way] = Decided(*parts, None if (weight == 1).all() else weight, held.columns)
    return found


def _leaderboard(
    folds: Folds, models: Sequence[Model], ensemble: Ensemble, found: Mapping[str, Assessment], name: str
) -> pd.DataFrame:
    """Every model that may decide, and all together where there are several."""
    few, rows = folds.table.head(TIMED_ROWS), []
    for model in models:
        if model.name in ensemble.weights:
            started = time.perf_counter()
            model.predict(few)
            rows.append((model.name, ensemble.weights[model.name], model.seconds, time.perf_counter() - started))
    if len(rows) > 1:
        rows.append((PORTFOLIO, 1.0, sum(row[2] for row in rows), sum(row[3] for row in rows if row[1])))
    ways = [found.get(row[0] if len(rows) > 1 else name) for row in rows]
    values = [way.estimate if way else Estimate(math.nan) for way in ways]
    records = [(row[0], v.value, v.low, v.high, *row[1:]) for row, v in zip(rows, values, strict=True)]
    frame, ascending = pd.DataFrame(records, columns=list(LEADERBOARD_COLUMNS)), not folds.metric.greater_is_better
    return frame.sort_values("value", ascending=ascending, kind="stable", ignore_index=True)
