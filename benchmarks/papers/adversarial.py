"""Adversarial prediction for F1 (Wang et al. 2015; Fathony and Kolter 2020, ``ap_perf``).

A predictor chooses labels ŷ of the batch, an adversary labels y̌; both may mix. With the network's logits ψ

    loss = -(v + ψ·y),    v = min over the adversary, max over the predictor of E[F1(ŷ, y̌)] - ψ·E[y̌]

so that the gradient is E[y̌] - y. ``ap_perf`` solves the game approximately by ADMM over marginal probabilities, 0.1 s
a step of 20 samples after a minute of compiling. (The value it reports is too low, since it adds up one label too few:
12/13 where six labels are certain and F1 is 1. Its gradient does not depend on that.) This module finds the same
equilibrium in about a millisecond:

* An adversary never loses by taking a label with ψ >= 1 and leaving one with ψ <= -1, since F1 changes by no more than
  1; with c labels taken for certain the limits are 2 / (2c + 1) and -1 / (2c + 1). What is left is a small game.
* That is solved by double oracle: find the equilibrium of the strategies so far by the simplex method, add each side's
  best response to it, and stop when neither gains by it. Best responses take the best labels for each number of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor, nn

__all__ = ["AdversarialF1Loss", "equilibrium"]

Array = NDArray[np.float64]
MOST_STRATEGIES = 200
TOLERANCE = 1e-2
"""What either side may gain by another strategy when the training takes the equilibrium as found; where all logits are
nearly the same, the exact one is a mixture of very many."""


class AdversarialF1Loss(nn.Module):
    """The loss of logits (n,) and labels (n,), a mean over batches of at most ``batch_size`` samples.

    Args:
        batch_size: Its authors advise 20. Larger inputs, such as a whole validation part, are cut into such pieces.

    >>> AdversarialF1Loss()(torch.tensor([5.0, -5.0]), torch.tensor([1, 0]))  # F1 = 1
    tensor(-1.)
    """

    def __init__(self, batch_size: int = 20) -> None:
        super().__init__()
        self.batch_size = batch_size

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        value: Tensor = _Game.apply(input, target.to(input.dtype), self.batch_size)
        return value


class _Game(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, target: Tensor, batch_size: int) -> Tensor:
        logits = input.detach().cpu().numpy().astype(np.float64)
        values, marginals = _of_batches(logits, batch_size)
        adversary = torch.from_numpy(marginals).to(input)
        ctx.save_for_backward((adversary - target) / len(values))
        return -(values.mean() + (input * target).sum() / len(values))

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return grad_output * gradient, None, None


def equilibrium(logits: NDArray[Any], tolerance: float = 1e-7) -> tuple[float, Array]:
    """The game's value v and the adversary's probability of each label, (n,).

    >>> value, marginals = equilibrium(np.array([3.0, 0.0]))
    >>> round(value, 4), marginals.tolist()
    (-2.1667, [1.0, 0.5])
    """
    marginals = np.empty(len(logits))
    value = _equilibrium(np.ascontiguousarray(logits, dtype=np.float64), tolerance, marginals)
    return float(value), marginals


@njit(cache=True)  # type: ignore[misc]
def _of_batches(logits: Array, batch_size: int) -> tuple[Array, Array]:
    count = (len(logits) + batch_size - 1) // batch_size
    values, marginals = np.empty(count), np.empty(len(logits))
    for i in range(count):
        first, last = i * batch_size, min((i + 1) * batch_size, len(logits))
        values[i] = _equilibrium(logits[first:last], TOLERANCE, marginals[first:last])
    return values, marginals


# Loops instead of expressions of whole arrays from here on: numba compiles those for half a minute.


@njit(cache=True)  # type: ignore[misc]
def _equilibrium(logits: Array, tolerance: float, marginals: Array) -> float:
    """The value; the adversary's probabilities are written to ``marginals``."""
    certain, upper = 0, 1.0
    while True:
        count = 0
        for logit in logits:
            count += logit >= upper
        if count == certain:
            break
        certain, upper = count, 2 / (2 * count + 1)
    lower = -1.0 if certain == 0 else -1 / (2 * certain + 1)
    undecided, m, taken = np.empty(len(logits)), 0, 0.0
    for logit in logits:
        if logit >= upper:
            taken += logit
        elif logit > lower:
            undecided[m] = logit
            m += 1
    shares = np.zeros(m)
    value = _open_game(undecided[:m], certain, tolerance, shares)
    m = 0
    for i in range(len(logits)):
        marginals[i] = 1.0 if logits[i] >= upper else 0.0
        if lower < logits[i] < upper:
            marginals[i] = shares[m]
            m += 1
    return value - taken


@njit(cache=True)  # type: ignore[misc]
def _open_game(logits: Array, certain: int, tolerance: float, shares: Array) -> float:
    """The game over the undecided labels, with ``certain`` labels that both sides take."""
    m = len(logits)
    predictor, adversary = np.zeros((MOST_STRATEGIES, m)), np.zeros((MOST_STRATEGIES, m))
    payoff, nothing = np.empty((MOST_STRATEGIES, MOST_STRATEGIES)), np.zeros(m)
    for i in range(m):
        predictor[0, i] = adversary[0, i] = 1.0 if logits[i] > 0 else 0.0
    payoff[0, 0] = _payoff(predictor[0], adversary[0], logits, certain)
    rows, columns = 1, 1
    while True:
        p, q = np.zeros(rows), np.zeros(columns)
        value = _matrix_game(payoff[:rows, :columns], p, q)
        cost = 0.0
        for i in range(m):
            shares[i] = 0.0
            for j in range(columns):
                shares[i] += q[j] * adversary[j, i]
            cost += logits[i] * shares[i]
        answer, reply = np.zeros(m), np.zeros(m)
        gained = _best_response(adversary[:columns], q, nothing, certain, 1.0, answer) - cost - value
        saved = _best_response(predictor[:rows], p, logits, certain, -1.0, reply) + value
        if max(gained, saved) <= tolerance or max(rows, columns) == MOST_STRATEGIES:
            return value
        if gained > tolerance:
            for i in range(m):
                predictor[rows, i] = answer[i]
            for j in range(columns):
                payoff[rows, j] = _payoff(answer, adversary[j], logits, certain)
            rows += 1
        if saved > tolerance:
            for i in range(m):
                adversary[columns, i] = reply[i]
            for i in range(rows):
                payoff[i, columns] = _payoff(predictor[i], reply, logits, certain)
            columns += 1


@njit(cache=True)  # type: ignore[misc]
def _payoff(predictor: Array, adversary: Array, logits: Array, certain: int) -> float:
    size, hits, cost = 2.0 * certain, 1.0 * certain, 0.0
    for i in range(len(logits)):
        size += predictor[i] + adversary[i]
        hits += predictor[i] * adversary[i]
        cost += logits[i] * adversary[i]
    return (1.0 if size == 0 else 2 * hits / size) - cost


@njit(cache=True)  # type: ignore[misc]
def _best_response(
    strategies: Array, probabilities: Array, logits: Array, certain: int, sign: float, answer: Array
) -> float:
    """The largest ``sign`` E[F1] + ψ·y against a mixture of the other side's; its labels are written to ``answer``."""
    m = strategies.shape[1]
    mixture, of_size = np.zeros((m + 1, m)), np.zeros(m + 1)
    for j in range(len(strategies)):
        size = 0
        for i in range(m):
            size += int(strategies[j, i])
        of_size[size] += probabilities[j]
        for i in range(m):
            mixture[size, i] += probabilities[j] * strategies[j, i]
    best = -np.inf
    gains, chosen = np.empty(m), np.zeros(m)
    for k in range(m + 1):
        value = 0.0
        for size in range(m + 1):
            total = 2 * certain + k + size
            value += sign * of_size[size] * (1.0 if total == 0 else 2 * certain / total)
        for i in range(m):
            gains[i], chosen[i] = logits[i], 0.0
            for size in range(max(0, 1 - k - 2 * certain), m + 1):
                gains[i] += sign * mixture[size, i] * 2 / (2 * certain + k + size)
        for _ in range(k):
            top = -1
            for i in range(m):
                if chosen[i] == 0 and (top < 0 or gains[i] > gains[top]):
                    top = i
            chosen[top] = 1.0
            value += gains[top]
        if value > best:
            best = value
            for i in range(m):
                answer[i] = chosen[i]
    return best


@njit(cache=True)  # type: ignore[misc]
def _matrix_game(payoff: Array, p: Array, q: Array) -> float:
    """Value and optimal mixtures p of rows, which want much, and q of columns, by the simplex method.

    The columns' linear program is max Σx with A x <= 1, x >= 0, for A shifted to be positive: its optimum is the
    inverse of the value, x are the columns' probabilities times it, and the dual variables those of the rows.
    """
    rows, columns = payoff.shape
    width = columns + rows + 1
    shift = 1.0
    for i in range(rows):
        for j in range(columns):
            shift = max(shift, 1 - payoff[i, j])
    table, basis = np.zeros((rows + 1, width)), np.empty(rows, dtype=np.int64)
    for i in range(rows):
        for j in range(columns):
            table[i, j] = payoff[i, j] + shift
        table[i, columns + i] = table[i, width - 1] = 1.0
        basis[i] = columns + i
    for j in range(columns):
        table[rows, j] = -1.0
    for step in range(100 * (rows + columns)):
        entering = 0
        for j in range(width - 1):
            if table[rows, j] < table[rows, entering]:
                entering = j
                # Bland's rule, slow but free of cycles, should the steepest descent run in circles.
                if step > 10 * (rows + columns) and table[rows, j] < -1e-12:
                    break
        if table[rows, entering] >= -1e-12:
            break
        leaving, ratio = -1, np.inf
        for i in range(rows):
            if table[i, entering] > 1e-12:
                candidate = table[i, width - 1] / table[i, entering]
                if candidate < ratio or (candidate == ratio and basis[i] < basis[leaving]):
                    leaving, ratio = i, candidate
        pivot = table[leaving, entering]
        for j in range(width):
            table[leaving, j] /= pivot
        for i in range(rows + 1):
            factor = table[i, entering]
            if i != leaving and factor != 0:
                for j in range(width):
                    table[i, j] -= factor * table[leaving, j]
        basis[leaving] = entering
    total = table[rows, width - 1]
    for i in range(rows):
        p[i] = table[rows, columns + i] / total
        if basis[i] < columns:
            q[basis[i]] = table[i, width - 1] / total
    return 1 / total - shift
