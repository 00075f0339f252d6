"""One score against one class: exact counts at chosen cut-offs, calibration, histograms."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit.assess.intervals import share
from metricfit.decisions.problem import Samples
from metricfit.decisions.threshold import Sweep
from metricfit.report.formula import number

__all__ = ["calibration", "histogram", "one_class"]

Array = NDArray[np.float64]


def one_class(
    score: NDArray[Any],
    positive: NDArray[np.bool_],
    weight: Array | None,
    *,
    points: int,
    marks: list[float],
    strict: bool = False,
) -> dict[str, Any]:
    """Everything the page draws of one score.

    Args:
        score: Probabilities of the class (n,).
        positive: Whether each row is of the class.
        weight: Weights, or None.
        points: Cut-offs at most, or about so.
        marks: Thresholds that must be among them.
        strict: Whether a row of the class must score above the threshold, not at least it.

    Returns:
        ``cuts`` (rising thresholds) with the exact ``tp`` and ``fp`` of each, the distinct ``scores`` if these are all
        the cut-offs there are, the totals, both areas, calibration and histogram.
    """
    sweep = Sweep.of(Samples(positive, score.astype(np.float64), weight))
    cuts, complete = _cuts(sweep, points, marks)
    at = np.searchsorted(-sweep.scores, -np.asarray(cuts), side="left" if strict else "right")
    tp, fp = sweep.tp, sweep.fp
    return {
        "cuts": cuts,
        "tp": _numbers(tp[at]),
        "fp": _numbers(fp[at]),
        "strict": strict,
        "positives": _number(tp[-1]),
        "negatives": _number(fp[-1]),
        # With every score at hand the page finds the counts of any threshold that is typed; else the nearest cut-off's.
        "scores": sweep.scores[::-1].tolist() if complete else None,
        **_areas(tp, fp),
        "calibration": calibration(score, positive, weight),
        "histogram": histogram(score, positive, weight),
    }


def _areas(tp: Array, fp: Array) -> dict[str, float | None]:
    positives, negatives = tp[-1], fp[-1]
    if not positives > 0:
        return {"auroc": None, "auprc": None}
    recall = tp / positives
    precision = tp[1:] / np.maximum(tp[1:] + fp[1:], np.finfo(float).tiny)
    auprc = float((np.diff(recall) * precision).sum())
    if not negatives > 0:
        return {"auroc": None, "auprc": auprc}
    area = np.diff(fp / negatives) * (recall[1:] + recall[:-1]) / 2
    return {"auroc": float(area.sum()), "auprc": auprc}


def _cuts(sweep: Sweep, points: int, marks: list[float]) -> tuple[list[float], bool]:
    """Rising thresholds, each the shortest decimal that makes its cut-off."""
    last = len(sweep) - 1
    complete = last + 1 <= points
    if complete:
        chosen = np.arange(last + 1)
        cuts = _short(sweep, chosen)
    else:
        # Half of them are spread over the values people type, the others over the ranks of each class, so that the
        # curves have no gaps where scores crowd together.
        grid = np.linspace(0, 1, min(1000, points // 2) + 1)
        quarter = np.linspace(0, 1, points // 4)
        ranks = [np.searchsorted(counts, quarter * counts[-1]) for counts in (sweep.tp, sweep.fp)]
        chosen = np.unique(np.clip(np.concatenate([*ranks, [0, last]]), 0, last))
        cuts = np.concatenate([_short(sweep, chosen), np.round(grid, 6)])
    return sorted({float(c) for c in (*cuts, *marks)}), complete


def _short(sweep: Sweep, chosen: NDArray[np.intp]) -> Array:
    """Thresholds of cut-offs with as few digits as separate their two scores."""
    exact = np.asarray(sweep.thresholds(chosen), dtype=np.float64)
    scores = np.asarray(sweep.scores, dtype=np.float64)
    upper = np.append(scores, -np.inf)[np.maximum(chosen - 1, 0)]
    lower = np.append(scores, -np.inf)[chosen]
    upper = np.where(chosen == 0, np.inf, upper)
    found, open_ = exact.copy(), np.ones(len(exact), dtype=bool)
    for digits in range(2, 13):
        rounded = np.round(exact, digits)
        fits = open_ & (lower < rounded) & (rounded < upper) & (rounded >= 0)
        found[fits], open_[fits] = rounded[fits], False
    return found


def calibration(
    score: NDArray[Any], positive: NDArray[np.bool_], weight: Array | None, *, bins: int = 12
) -> dict[str, Any]:
    """Mean score and share of positives in groups of equal size, with intervals; and the mean gap."""
    w = np.ones(len(score)) if weight is None else weight
    order = np.argsort(score, kind="stable")
    groups = np.array_split(order, min(bins, max(1, len(score) // 10)))
    points = []
    gap = total = 0.0
    for group in groups:
        mass = float(w[group].sum())
        if not mass > 0:
            continue
        predicted = float(w[group] @ score[group]) / mass
        happened = float(w[group] @ positive[group]) / mass
        effective = mass**2 / float((w[group] ** 2).sum())
        found = share(happened * effective, effective)
        points.append([predicted, happened, found.low, found.high, len(group)])
        gap, total = gap + mass * abs(predicted - happened), total + mass
    return {"points": [[number(v) for v in p] for p in points], "error": number(gap / total if total else np.nan)}


def histogram(
    score: NDArray[Any], positive: NDArray[np.bool_] | None, weight: Array | None, *, bins: int = 40
) -> dict[str, Any]:
    """Weight of rows in bins of [0, 1], of the class and of the others; all as others where the truth is not known."""
    w = np.ones(len(score)) if weight is None else weight
    inside = np.clip(score, 0, 1)
    of_class = np.zeros(len(score), dtype=bool) if positive is None else positive
    parts = [np.histogram(inside[m], bins, (0, 1), weights=w[m])[0] for m in (of_class, ~of_class)]
    return {"positive": _numbers(parts[0]), "negative": _numbers(parts[1])}


def _numbers(values: Array) -> list[float]:
    return [_number(v) for v in values]


def _number(value: float) -> float:
    """Whole where it is whole, else to twelve digits: pages stay small."""
    return int(value) if float(value).is_integer() else float(f"{value:.12g}")
