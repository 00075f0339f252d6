"""What training on the metric bought, measured on rows that the networks did not see."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.assess.scores import HeldOutScores, plain_decisions
from metricfit.decisions import DecisionRule, InfeasibleError, best_rule
from metricfit.decisions._samples import UntunableError
from metricfit.metrics import Constrained, Metric

__all__ = ["HeldOut", "held_out", "held_out_scores", "report_row", "tuned_rule", "validation_report"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class HeldOut:
    """Out-of-fold predictions: probabilities of rows by networks that were not trained on them.

    Attributes:
        rows: The rows.
        fold: The split that held each of them out.
        single: Probabilities of one network.
        ensemble: Mean probabilities of the networks that share a split; ``None`` if none do.
    """

    rows: NDArray[np.intp]
    fold: NDArray[np.intp]
    single: Array
    ensemble: Array | None


def held_out(
    validation: Sequence[NDArray[np.intp]], probabilities: Sequence[Array], members: int = 1
) -> HeldOut | None:
    """Gather the members' held-out probabilities; ``None`` if no row was held out.

    Args:
        validation: The rows that each member did not see.
        probabilities: Each member's probabilities of its rows, (rows, classes).
        members: How many members share each split.
    """
    first = range(0, len(validation), members)
    rows = [validation[k] for k in first]
    if not sum(len(r) for r in rows):
        return None
    fold = np.concatenate([np.full(len(r), i) for i, r in enumerate(rows)])
    single = np.concatenate([probabilities[k] for k in first])
    together = [np.mean(probabilities[k : k + members], axis=0) for k in first] if members > 1 else None
    return HeldOut(np.concatenate(rows), fold, single, None if together is None else np.concatenate(together))


def tuned_rule(
    y: NDArray[Any], proba: Array, metric: Metric, labels: tuple[Any, ...], weight: NDArray[Any] | None
) -> DecisionRule:
    """The best rule for the metric; arg max, with a warning, where none can be tuned or meets its constraints."""
    try:
        return best_rule(y, proba, metric, labels=labels, sample_weight=weight).rule
    except InfeasibleError as error:
        warnings.warn(f"no decision rule meets the constraints, arg max is used: {error}", UserWarning, stacklevel=2)
    except UntunableError as error:
        warnings.warn(f"no decision rule can be tuned, arg max is used: {error}", UserWarning, stacklevel=2)
    return argmax_rule(y, labels)


def argmax_rule(y: NDArray[Any], labels: tuple[Any, ...]) -> DecisionRule:
    """Arg max; one half for every label of a multi-label target."""
    return DecisionRule.at_thresholds([0.5] * len(labels), labels) if y.ndim == 2 else DecisionRule.argmax(labels)


def cross_fitted_decisions(
    y: NDArray[Any], held: HeldOut, proba: Array, metric: Metric, labels: tuple[Any, ...], weight: NDArray[Any]
) -> NDArray[Any]:
    """Decisions of a tuned rule for each fold, the rule tuned on the other folds: what new data would see."""
    fold = held.fold if len(np.unique(held.fold)) > 1 else np.arange(len(held.fold)) % 2
    decided = np.empty((len(fold), *y.shape[1:]), dtype=y.dtype)
    for k in np.unique(fold):
        here, others = fold == k, fold != k
        known = np.unique(y[held.rows[others]]) if y.ndim == 1 else labels
        if len(known) < len(labels):
            rule = argmax_rule(y, labels)  # a class that the other folds do not have cannot be tuned for
        else:
            rule = tuned_rule(y[held.rows[others]], proba[others], metric, labels, weight[held.rows[others]])
        decided[here] = rule.apply(proba[here])
    return decided


def report_row(
    model: str,
    metric: Metric,
    y: NDArray[Any],
    decisions: NDArray[Any],
    held: HeldOut,
    labels: tuple[Any, ...],
    weight: NDArray[Any],
) -> dict[str, Any]:
    """The metric (the objective, under constraints) of decisions on held-out rows.

    The standard error comes from leaving out one fold at a time.
    """

    def score(mask: NDArray[np.bool_], wanted: Metric) -> float:
        rows = held.rows[mask]
        if not weight[rows].sum() > 0:
            return math.nan
        return float(wanted.score(y[rows], decisions[mask], weight[rows], labels=labels))

    everything = np.ones(len(held.rows), dtype=bool)
    folds = np.unique(held.fold) if len(np.unique(held.fold)) > 1 else np.arange(10)
    part = held.fold if len(folds) != 10 or held.fold.max() else np.arange(len(held.rows)) % 10
    objective = metric.objective if isinstance(metric, Constrained) else metric
    left_out = np.array([score(part != k, objective) for k in folds if (part != k).any()])
    spread = left_out - left_out.mean()
    error = math.sqrt((len(left_out) - 1) / len(left_out) * float(spread @ spread)) if len(left_out) > 1 else math.nan
    note = ""
    if isinstance(metric, Constrained):
        reached = [f"{c.metric} {score(everything, c.metric):.4f}" for c in metric.constraints]
        note = "with " + ", ".join(reached)
    return {"model": model, "value": score(everything, objective), "std_error": error, "rows": len(held.rows),
            "note": note}  # fmt: skip


def validation_report(
    metric: Metric,
    y: NDArray[Any],
    labels: tuple[Any, ...],
    weight: NDArray[Any],
    *,
    trained: HeldOut | None,
    baseline: HeldOut | None,
    trained_on: str,
    tuned: bool,
    ensemble_note: str,
    decisions: dict[str, NDArray[Any]] | None = None,
) -> pd.DataFrame:
    """The metric of cross-entropy at arg max, cross-entropy with a tuned rule, the network as trained, the ensemble.

    Args:
        metric: The metric.
        y: Labels of all rows.
        labels: Classes in order.
        weight: Sample weights of all rows.
        trained: Held-out predictions of the network.
        baseline: Those of the same network trained with cross-entropy.
        trained_on: What to call the network as trained.
        tuned: Whether its decisions come from a tuned rule.
        ensemble_note: Why the ensemble has no value, if it has none.
        decisions: Filled with the decisions behind each row, by its name; nothing for metrics of scores.
    """
    ranks = metric.grids() != {None}
    rows: list[dict[str, Any]] = []

    def add(model: str, held: HeldOut, proba: Array, tuned: bool) -> None:
        decided: NDArray[Any]
        if ranks:
            decided = proba[:, 1] if len(labels) == 2 and y.ndim == 1 else proba
        elif tuned:
            decided = cross_fitted_decisions(y, held, proba, metric, labels, weight)
        else:
            decided = argmax_rule(y, labels).apply(proba)
        if decisions is not None and not ranks:
            decisions[model] = decided
        rows.append(report_row(model, metric, y, decided, held, labels, weight))

    measurable = len(metric.grids()) == 1
    if baseline is not None and measurable:
        add("cross-entropy, arg max", baseline, baseline.single, False)
        if not ranks:
            add("cross-entropy, tuned rule", baseline, baseline.single, True)
    if trained is not None and measurable:
        add(trained_on, trained, trained.single, tuned)
        if trained.ensemble is not None:
            add("ensemble", trained, trained.ensemble, tuned)
        elif ensemble_note:
            rows.append(
                {"model": "ensemble", "value": math.nan, "std_error": math.nan, "rows": 0, "note": ensemble_note}
            )
    frame = pd.DataFrame(rows, columns=["model", "value", "std_error", "rows", "note"])
    sign = 1 if metric.greater_is_better else -1
    frame.insert(3, "gain", sign * (frame["value"] - frame["value"].iloc[0]) if len(frame) else [])
    return frame


def held_out_scores(
    codes: NDArray[np.int64],
    classes: NDArray[Any],
    weight: NDArray[np.float64],
    *,
    trained: HeldOut | None,
    baseline: HeldOut | None,
    decisions: dict[str, NDArray[Any]],
    trained_on: str,
    tuned: bool,
) -> HeldOutScores | None:
    """The predictions behind a validation report, to be kept with the model.

    Args:
        codes: Class codes of all rows (n,), or 0/1 (n, labels).
        classes: The classes in order.
        weight: Sample weights of all rows.
        trained: Held-out predictions of the network.
        baseline: Those of the same network trained with cross-entropy.
        decisions: As :func:`validation_report` filled it.
        trained_on: What the report calls the network as trained.
        tuned: Whether its decisions come from a tuned rule.
    """
    if trained is None:
        return None
    several = codes.ndim == 2
    proba = trained.single if trained.ensemble is None else trained.ensemble

    def decided_by(name: str) -> NDArray[np.int64] | None:
        found = decisions.get(name)
        if found is None or several:
            return None if found is None else found.astype(np.int64)
        return np.searchsorted(classes, found).astype(np.int64)

    decided = decided_by("ensemble" if trained.ensemble is not None else trained_on)
    rows = trained.rows
    return HeldOutScores(
        truth=codes[rows],
        proba=proba.astype(np.float32),
        decided=plain_decisions(proba, labels=several) if decided is None else decided,
        baseline=None if baseline is None else baseline.single.astype(np.float32),
        baseline_tuned=None if baseline is None else decided_by("cross-entropy, tuned rule"),
        weight=None if (weight[rows] == 1).all() else weight[rows],
        source="rows of the training table, each predicted by networks that were not trained on it",
        cross_fitted=tuned and decided is not None,
        rows=rows,
    )
