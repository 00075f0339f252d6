"""The validation report: what training on the metric bought, on rows that the networks did not see."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.assess.intervals import Decided, Estimate
from metricfit.assess.scores import HeldOutScores, codes_of, plain_decisions
from metricfit.assess.verdicts import PLAIN, TUNED, assess
from metricfit.decisions import DecisionRule, InfeasibleError, best_rule
from metricfit.decisions.problem import UntunableError
from metricfit.metrics import Metric

__all__ = ["HeldOut", "argmax_rule", "held_out", "tuned_rule", "validation_report"]

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
    codes: NDArray[np.int64],
    held: HeldOut,
    proba: Array,
    metric: Metric,
    labels: tuple[Any, ...],
    weight: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Decisions (codes) of a tuned rule for each fold, the rule tuned on the other folds: what new data would see."""
    several = codes.ndim == 2
    y = codes if several else np.array(labels)[codes]
    fold = held.fold if len(np.unique(held.fold)) > 1 else np.arange(len(held.fold)) % 2
    decided = np.empty((len(fold), *codes.shape[1:]), dtype=np.int64)
    for k in np.unique(fold):
        here, others = fold == k, fold != k
        rest = held.rows[others]
        if not several and len(np.unique(codes[rest])) < len(labels):
            rule = argmax_rule(codes, labels)  # a class that the other folds do not have cannot be tuned for
        else:
            rule = tuned_rule(y[rest], proba[others], metric, labels, weight[rest])
        decided[here] = codes_of(rule, proba[here])
    return decided


def validation_report(
    metric: Metric,
    codes: NDArray[np.int64],
    classes: NDArray[Any],
    weight: NDArray[np.float64],
    *,
    trained: HeldOut | None,
    baseline: HeldOut | None,
    trained_on: str,
    tuned: bool,
    ensemble_note: str = "",
) -> tuple[pd.DataFrame, HeldOutScores | None]:
    """What the held-out rows say: a table of values with intervals, and the scores behind it.

    The rows of the table are cross-entropy at arg max, cross-entropy with a tuned rule, the network as trained, and
    the ensemble; its columns model, value, low, high (the 95 % interval), gain (over the first row), rows and note.

    Args:
        metric: The metric.
        codes: Class codes of all rows (n,), or 0/1 (n, labels).
        classes: The classes in order.
        weight: Sample weights of all rows.
        trained: Held-out predictions of the network.
        baseline: Those of the same network trained with cross-entropy.
        trained_on: What to call the network as trained.
        tuned: Whether its decisions come from a tuned rule.
        ensemble_note: Why the ensemble has no value, if it has none.
    """
    labels = tuple(classes.tolist())
    ranks = metric.grids() != {None}
    found: dict[str, Decided] = {}

    def add(model: str, held: HeldOut, proba: Array, tuned: bool) -> None:
        if tuned and not ranks:
            decided = cross_fitted_decisions(codes, held, proba, metric, labels, weight)
        else:
            decided = plain_decisions(proba, labels=codes.ndim == 2)
        here = weight[held.rows]
        found[model] = Decided(
            codes[held.rows], decided, labels, proba.astype(np.float32), None if (here == 1).all() else here
        )

    if baseline is not None:
        add(PLAIN, baseline, baseline.single, False)
        if not ranks:
            add(TUNED, baseline, baseline.single, True)
    if trained is not None:
        add(trained_on, trained, trained.single, tuned)
        if trained.ensemble is not None:
            add("ensemble", trained, trained.ensemble, tuned)
    measurable = len(metric.grids()) == 1 and weight.sum() > 0
    assessed = [assess(name, metric, rows) for name, rows in found.items() if measurable]
    rows = [{"model": a.name, **asdict(a.estimate), "rows": a.rows, "note": a.note} for a in assessed]
    if assessed and trained is not None and trained.ensemble is None and ensemble_note:
        rows.append({"model": "ensemble", **asdict(Estimate(math.nan)), "rows": 0, "note": ensemble_note})
    frame = pd.DataFrame(rows, columns=["model", "value", "low", "high", "rows", "note"])
    sign = 1 if metric.greater_is_better else -1
    frame.insert(4, "gain", sign * (frame["value"] - frame["value"].iloc[0]) if len(frame) else [])
    if trained is None:
        return frame, None
    model, tuned_rival = found[trained_on if trained.ensemble is None else "ensemble"], found.get(TUNED)
    return frame, HeldOutScores(
        truth=model.truth,
        proba=np.asarray(model.proba),
        decided=model.decided,
        baseline=None if baseline is None else np.asarray(found[PLAIN].proba),
        baseline_tuned=None if tuned_rival is None else tuned_rival.decided,
        weight=model.weight,
        source="rows of the training table, each predicted by networks that were not trained on it",
        cross_fitted=tuned and not ranks,
        rows=trained.rows,
    )
