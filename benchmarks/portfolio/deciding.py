"""Metrics and decision rules in plain NumPy: arg max, tuned on labels, half rule."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax

__all__ = ["calibrated", "decide", "logs", "offsets_for", "score"]

Array = NDArray[np.float64]
FLOOR = 1e-4
"""Forests say 0 of what they have not seen; a logarithm needs more."""


def logs(proba: Array) -> Array:
    return np.log(np.maximum(proba, FLOOR))


def values(metric: str, right: Array, called: Array, support: Array) -> Array:
    """The metric from true positives (…, classes), predicted (…, classes) and actual counts (classes,).

    F1 is the second class's of two, and the mean over classes that occur of more.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        if metric == "f1":
            each = np.nan_to_num(2 * right / (called + support))
            if support.shape[-1] == 2:
                return each[..., 1]
            occurs = (called + support) > 0
            return (each * occurs).sum(-1) / np.maximum(occurs.sum(-1), 1)
        if metric == "balanced_accuracy":
            present = support > 0
            return (right[..., present] / support[present]).mean(-1)
        n = support.sum()
        top = right.sum(-1) * n - (called * support).sum(-1)
        bottom = np.sqrt((n * n - (called**2).sum(-1)) * (n * n - (support**2).sum()))
        return np.nan_to_num(top / bottom, posinf=0.0, neginf=0.0)


def score(metric: str, y: NDArray[np.intp], decided: NDArray[np.intp], classes: int) -> float:
    """The metric of decisions."""
    right = np.bincount(y[y == decided], minlength=classes).astype(float)
    called = np.bincount(decided, minlength=classes).astype(float)
    return float(values(metric, right, called, np.bincount(y, minlength=classes).astype(float)))


def calibrated(proba: Array, y: NDArray[np.intp], *, biases: bool = True, pull: float = 1.0) -> tuple[float, Array]:
    """One temperature and one bias per class by log-loss, with a weak pull to leave things as they are."""
    scores, n, classes = logs(proba), len(y), proba.shape[1]
    hot = np.eye(classes)[y]

    def loss(free: Array) -> tuple[float, Array]:
        scale = np.exp(free[0])
        logp = log_softmax(scale * scores + (free[1:] if biases else 0.0), axis=1)
        slope = np.exp(logp) - hot
        gradient = np.concatenate([[scale * (slope * scores).sum()], slope.sum(0) if biases else []])
        return (-logp[np.arange(n), y].sum() + pull * (free**2).sum() / 2) / n, (gradient + pull * free) / n

    found = minimize(loss, np.zeros(1 + (classes if biases else 0)), jac=True, method="L-BFGS-B").x
    return float(np.exp(found[0])), found[1:] if biases else np.zeros(classes)


def beliefs(proba: Array, y: NDArray[np.intp]) -> Array:
    """Calibrated probabilities."""
    scale, bias = calibrated(proba, y)
    return np.exp(log_softmax(scale * logs(proba) + bias, axis=1))


def offsets_for(metric: str, proba: Array, soft: Array) -> Array:
    """Class offsets that are best for the metric on soft labels (n, classes): exact for two classes, else by turns."""
    scores, classes = logs(proba), proba.shape[1]
    if classes == 2:
        return _sweep(metric, scores, soft, np.zeros(2), 1)[0]
    best, best_value = np.zeros(classes), -np.inf
    starts = [-np.log(np.maximum(soft.mean(0), 1e-6)), np.zeros(classes)][: 2 if classes <= 8 else 1]
    for start in starts:
        offsets, value = start - start.mean(), -np.inf
        for _ in range(5):
            before = value
            for k in range(classes):
                offsets, value = _sweep(metric, scores, soft, offsets, k)
            if value <= before + 1e-5:
                break
        if value > best_value + 1e-9:
            best, best_value = offsets, value
    return best


def _sweep(metric: str, scores: Array, soft: Array, offsets: Array, k: int) -> tuple[Array, float]:
    """The best offset of one class, the others as they are: all cut-offs in one sort."""
    n = len(scores)
    moved = scores + offsets
    moved[:, k] = -np.inf
    rival = moved.argmax(1)
    margin = moved[np.arange(n), rival] - scores[:, k]  # above this offset the row is called k
    order = np.argsort(margin, kind="stable")
    ranked = margin[order]
    value = _curve(metric, rival[order], soft[order], k)
    distinct = np.concatenate([[True], ranked[1:] > ranked[:-1] + 1e-12, [True]])
    value[~distinct] = -np.inf
    best = int(value.argmax())
    # In the middle of a run of equal values: the place is the less certain the wider it is.
    end = best
    while end + 1 <= n and (value[end + 1] == value[best] or not distinct[end + 1]):
        end += 1
    while not distinct[end]:
        end -= 1
    low = ranked[best - 1] if best else ranked[0] - 1.0
    high = ranked[end] if end < n else ranked[-1] + 1.0
    if best == 0 and end == n:
        low = high = offsets[k]
    changed = offsets.copy()
    changed[k] = (low + high) / 2
    return changed, float(value[best])


def _curve(metric: str, rival: NDArray[np.intp], soft: Array, k: int) -> Array:
    """The metric after the first 0, 1, …, n rows have moved from their rival class to class k, in O(n)."""
    n, classes = soft.shape
    rows = np.arange(n)
    support = soft.sum(0)
    lost, won = soft[rows, rival], soft[:, k]

    def path(start: float, steps: Array) -> Array:
        return np.concatenate([[start], start + np.cumsum(steps)])

    if metric == "balanced_accuracy":
        share = np.divide(1.0, support, out=np.zeros(classes), where=support > 0)
        return path(float((lost * share[rival]).sum()), won * share[k] - lost * share[rival]) / (support > 0).sum()
    called = np.bincount(rival, minlength=classes).astype(float)
    right = np.bincount(rival, weights=lost, minlength=classes)
    grouped = np.argsort(rival, kind="stable")
    starts = np.concatenate([[0], np.cumsum(called)[:-1]]).astype(np.intp)
    gone = np.empty(n)
    gone[grouped] = rows - starts[rival[grouped]] + 1.0  # rows of the same rival that have moved, this one included
    now = called[rival] - gone  # what the rival is still called
    if metric == "mcc":
        total = float(n)
        top = path(lost.sum() * total - (called * support).sum(), (won - lost) * total - support[k] + support[rival])
        squares = path((called**2).sum(), now**2 - (now + 1) ** 2 + 2 * rows + 1)
        bottom = np.sqrt(np.maximum(total**2 - squares, 0) * (total**2 - (support**2).sum()))
        return np.divide(top, bottom, out=np.zeros(n + 1), where=bottom > 1e-9)
    summed = np.concatenate([[0.0], np.cumsum(lost[grouped])])
    taken = np.empty(n)
    taken[grouped] = summed[1:] - summed[starts[rival[grouped]]]
    own = path(0.0, won) * 2 / np.maximum(np.arange(n + 1) + support[k], 1e-12)
    if classes == 2 and k == 1:
        return own
    base = np.maximum(support, 1e-12)
    left = right[rival] - taken
    change = 2 * left / (now + base[rival]) - 2 * (left + lost) / (now + 1 + base[rival])
    others = path((2 * right / (called + base)).sum(), change)
    return (others + own) / classes


def decide(
    rule: str, metric: str, held_out: Array, y: NDArray[np.intp], test: Array, believed: Array | None = None
) -> NDArray[np.intp]:
    """Decisions for the test rows by ``argmax``, ``tuned`` or ``half:<w>``."""
    if rule == "argmax":
        return test.argmax(1)
    soft = np.eye(held_out.shape[1])[y]
    if rule.startswith("half:"):
        w = float(rule.removeprefix("half:"))
        soft = (1 - w) * soft + w * (beliefs(held_out, y) if believed is None else believed)
    elif rule != "tuned":
        raise ValueError(f"rule: expected argmax, tuned or half:<w>, got {rule!r}.")
    return (logs(test) + offsets_for(metric, held_out, soft)).argmax(1)
