"""Ways to make one probability of several members': each takes (members, rows, classes) out of fold and of the test."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from benchmarks.portfolio.deciding import FLOOR, calibrated, logs

__all__ = ["COMBINATIONS"]

Array = NDArray[np.float64]
Labels = NDArray[np.intp]
Pair = tuple[Array, Array]
STEPS = 25


def log_loss(proba: Array, y: Labels) -> float:
    return float(-np.log(np.maximum(proba[np.arange(len(y)), y], 1e-6)).mean())


def weighted(weights: Array, held_out: Array, test: Array) -> Pair:
    return np.einsum("m,mnc->nc", weights, held_out), np.einsum("m,mnc->nc", weights, test)


def uniform(held_out: Array, y: Labels, test: Array, metric: str) -> Pair:
    return held_out.mean(0), test.mean(0)


def not_hopeless(held_out: Array, y: Labels, test: Array, metric: str) -> Pair:
    """The mean of members with at least half the skill (log-loss below that of the prior) of the best, calibrated."""
    prior = np.bincount(y, minlength=held_out.shape[2]) / len(y)
    skill = []
    for proba in held_out:
        scale, bias = calibrated(proba, y)
        q = np.exp(log_softmax(scale * logs(proba) + bias, axis=1))
        skill.append(1 - log_loss(q, y) / log_loss(np.broadcast_to(prior, q.shape), y))
    keep = np.array(skill) >= 0.5 * max(skill)
    return (held_out[keep].mean(0), test[keep].mean(0)) if keep.any() else uniform(held_out, y, test, metric)


def greedy_weights(held_out: Array, y: Labels, steps: int = STEPS) -> Array:
    """Caruana et al. 2004: add, with replacement, what lowers the log-loss most; the best prefix."""
    chosen = held_out[:, np.arange(len(y)), y]
    total, counts = np.zeros(len(y)), np.zeros(len(held_out))
    best, best_counts = np.inf, counts
    for step in range(1, steps + 1):
        losses = -np.log(np.maximum((total + chosen) / step, 1e-6)).mean(1)
        pick = int(losses.argmin())
        total, counts = total + chosen[pick], counts.copy()
        counts[pick] += 1
        if losses[pick] < best - 1e-9:
            best, best_counts = losses[pick], counts
    return best_counts / best_counts.sum()


def greedy(held_out: Array, y: Labels, test: Array, metric: str) -> Pair:
    return weighted(greedy_weights(held_out, y), held_out, test)


def shrunk(held_out: Array, y: Labels, test: Array, metric: str) -> Pair:
    """Half-way from the selection to uniform."""
    weights = (greedy_weights(held_out, y) + 1 / len(held_out)) / 2
    return weighted(weights, held_out, test)


def tempered(held_out: Array, y: Labels, test: Array) -> Pair:
    """Each member with a temperature of its own."""
    made: tuple[list[Array], list[Array]] = ([], [])
    for a, b in zip(held_out, test, strict=True):
        scale, _ = calibrated(a, y, biases=False)
        made[0].append(softmax(scale * logs(a), axis=1))
        made[1].append(softmax(scale * logs(b), axis=1))
    return np.array(made[0]), np.array(made[1])


def biased(held_out: Array, y: Labels, test: Array) -> Pair:
    """Each member with a temperature and biases of its own."""
    made: tuple[list[Array], list[Array]] = ([], [])
    for a, b in zip(held_out, test, strict=True):
        scale, bias = calibrated(a, y)
        made[0].append(softmax(scale * logs(a) + bias, axis=1))
        made[1].append(softmax(scale * logs(b) + bias, axis=1))
    return np.array(made[0]), np.array(made[1])


def calibrated_mean(held_out: Array, y: Labels, test: Array, metric: str) -> Pair:
    a, b = tempered(held_out, y, test)
    return a.mean(0), b.mean(0)


def calibrated_greedy(held_out: Array, y: Labels, test: Array, metric: str) -> Pair:
    a, b = tempered(held_out, y, test)
    return greedy(a, y, b, metric)


def calibrated_shrunk(held_out: Array, y: Labels, test: Array, metric: str) -> Pair:
    a, b = tempered(held_out, y, test)
    return shrunk(a, y, b, metric)


def calibrated_not_hopeless(held_out: Array, y: Labels, test: Array, metric: str) -> Pair:
    a, b = tempered(held_out, y, test)
    return not_hopeless(a, y, b, metric)


def biased_mean(held_out: Array, y: Labels, test: Array, metric: str) -> Pair:
    a, b = biased(held_out, y, test)
    return a.mean(0), b.mean(0)


def biased_shrunk(held_out: Array, y: Labels, test: Array, metric: str) -> Pair:
    a, b = biased(held_out, y, test)
    return shrunk(a, y, b, metric)


def geometric(held_out: Array, y: Labels, test: Array, metric: str) -> Pair:
    return softmax(logs(held_out).mean(0), axis=1), softmax(logs(test).mean(0), axis=1)


def ranks(held_out: Array, y: Labels, test: Array, metric: str) -> Pair:
    """The mean over members of each score's place among the out-of-fold scores of its class."""
    columns = [1] if held_out.shape[2] == 2 else range(held_out.shape[2])
    made: Pair = np.zeros(held_out.shape[1:]), np.zeros(test.shape[1:])
    for k in columns:
        for a, b in zip(held_out, test, strict=True):
            ordered = np.sort(a[:, k])
            for into, values in zip(made, (a[:, k], b[:, k]), strict=True):
                middle = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")
                into[:, k] += (middle / 2 + 0.5) / (len(ordered) + 1) / len(held_out)
    if held_out.shape[2] == 2:
        for into in made:
            into[:, 0] = 1 - into[:, 1]
        return made
    return made[0] / made[0].sum(1, keepdims=True), made[1] / made[1].sum(1, keepdims=True)


def stacked(held_out: Array, y: Labels, test: Array, metric: str, pull: float = 10.0) -> Pair:
    """Multinomial regression on the members' logarithms, one weight each, pulled to 1 / members."""
    scores, members, n = logs(held_out), len(held_out), len(y)
    hot = np.eye(held_out.shape[2])[y]

    def loss(free: Array) -> tuple[float, Array]:
        weights, bias = free[:members], free[members:]
        logp = log_softmax(np.einsum("m,mnc->nc", weights, scores) + bias, axis=1)
        slope = np.exp(logp) - hot
        away = weights - 1 / members
        gradient = np.concatenate([np.einsum("nc,mnc->m", slope, scores) + pull * away, slope.sum(0) + bias])
        return (-logp[np.arange(n), y].sum() + pull / 2 * (away**2).sum() + (bias**2).sum() / 2) / n, gradient / n

    start = np.concatenate([np.full(members, 1 / members), np.zeros(held_out.shape[2])])
    found = minimize(loss, start, jac=True, method="L-BFGS-B").x
    return tuple(  # type: ignore[return-value]
        softmax(np.einsum("m,mnc->nc", found[:members], logs(part)) + found[members:], axis=1)
        for part in (held_out, test)
    )


def metric_stacked(held_out: Array, y: Labels, test: Array, metric: str, pull: float = 0.05) -> Pair:
    """Weights and offsets that minimise ``MetricLoss`` of the mean, with a pull to uniform."""
    from metricfit import MetricLoss

    members, classes = len(held_out), held_out.shape[2]
    name = "f1[1]" if metric == "f1" and classes == 2 else metric
    loss = MetricLoss(name, temperature=0.2)
    scores, target = torch.from_numpy(held_out).float(), torch.from_numpy(y)
    free = torch.zeros(members + classes, requires_grad=True)
    prior = np.bincount(y, minlength=classes) / len(y)
    with torch.no_grad():
        free[members:] = -0.5 * torch.from_numpy(np.log(prior)).float()
    optimiser = torch.optim.Adam([free], lr=0.05)
    for _ in range(100):
        weights = torch.softmax(free[:members], 0)
        logits = torch.log(torch.einsum("m,mnc->nc", weights, scores).clamp_min(FLOOR)) + free[members:]
        away = torch.log(weights * members)
        value = loss(logits, target) + pull * (away**2).mean()
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
    weights = torch.softmax(free[:members].detach(), 0).double().numpy()
    offsets = free[members:].detach().double().numpy()
    return tuple(  # type: ignore[return-value]
        softmax(logs(part) + offsets, axis=1) for part in weighted(weights, held_out, test)
    )


def metric_searched(held_out: Array, y: Labels, test: Array, metric: str) -> Pair:
    """Weights by Nelder-Mead on the half rule's own value: what selecting on the metric does."""
    from benchmarks.portfolio.deciding import beliefs, offsets_for, values

    members, n = len(held_out), len(y)
    if held_out.shape[2] > 2:
        return greedy(held_out, y, test, metric)
    hot = np.eye(2)[y]

    def loss(free: Array) -> float:
        proba = np.einsum("m,mnc->nc", softmax(np.append(free, 0.0)), held_out)
        soft = (hot + beliefs(proba, y)) / 2
        decided = (logs(proba) + offsets_for(metric, proba, soft)).argmax(1)
        called = np.bincount(decided, minlength=2).astype(float)
        right = np.bincount(decided, weights=soft[np.arange(n), decided], minlength=2)
        return -float(values(metric, right, called, soft.sum(0)))

    found = minimize(loss, np.zeros(members - 1), method="Nelder-Mead", options={"maxfev": 80}).x
    return weighted(softmax(np.append(found, 0.0)), held_out, test)


Combination = Callable[[Array, Labels, Array, str], Pair]

COMBINATIONS: dict[str, Combination] = {
    "uniform": uniform,
    "not_hopeless": not_hopeless,
    "greedy": greedy,
    "shrunk": shrunk,
    "ranks": ranks,
    "calibrated_mean": calibrated_mean,
    "calibrated_greedy": calibrated_greedy,
    "calibrated_shrunk": calibrated_shrunk,
    "calibrated_not_hopeless": calibrated_not_hopeless,
    "biased_mean": biased_mean,
    "biased_shrunk": biased_shrunk,
    "geometric": geometric,
    "stacked": stacked,
    "stacked_strong": partial(stacked, pull=100.0),
    "metric_stacked": metric_stacked,
    "metric_searched": metric_searched,
}
