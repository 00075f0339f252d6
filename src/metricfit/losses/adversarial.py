"""Adversarial prediction for F1: a game between labels of the predictor and of an adversary."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linprog
from torch import Tensor

from metricfit.inputs import InputOptions, Samples, expect
from metricfit.losses.rivals import SampleLoss

Array = NDArray[np.float64]
TOLERANCE = 1e-2  # in training: where logits are nearly the same, the exact equilibrium mixes very many strategies


class AdversarialF1Loss(SampleLoss):
    """Adversarial prediction for F1 (Wang et al. 2015; Fathony and Kolter 2020), for binary tasks.

    A predictor chooses labels ŷ of the batch, an adversary labels y̌; both may mix. With the logits ψ the loss is
    -(v + ψ·y), v the value of the game E[F1(ŷ, y̌)] - ψ·E[y̌], and its gradient E[y̌] - y. It is a mean over batches of
    at most ``batch_size`` samples, for which the authors advise 20; larger inputs are cut into such pieces. Weights,
    probabilities and members have no place in the game.

    >>> AdversarialF1Loss()(torch.tensor([5.0, -5.0]), torch.tensor([1, 0]))  # F1 = 1
    tensor(-1.)
    """

    tasks = ("binary",)

    def __init__(self, *, batch_size: int = 20, **options: Unpack[InputOptions]) -> None:
        for name in {"weight", "from_probabilities", "members"} & set(options):
            raise ValueError(f"{name}: has no place in the game of labels; leave it out.")
        super().__init__(**options)
        expect(isinstance(batch_size, int) and batch_size >= 1, "batch_size", "a whole number >= 1", batch_size)
        self.batch_size = batch_size

    def _of_samples(self, samples: Samples, p: Tensor) -> Tensor:
        kept = samples.weight[:, 0] > 0
        once = bool((samples.weight[kept] == 1).all())
        expect(once, "sample_weight", "none, since each sample counts once in the game of labels", "other weights")
        logits = samples.scores[kept, 0]
        pieces = logits.detach().cpu().double().split(self.batch_size)
        values, marginals = zip(*(equilibrium(piece.numpy(), TOLERANCE) for piece in pieces), strict=True)
        adversary = torch.from_numpy(np.concatenate(marginals)).to(logits)
        reached = sum(values) + (logits.detach() * adversary).sum()  # E[F1]
        loss: Tensor = ((logits * (adversary - samples.target[kept, 0])).sum() - reached) / len(pieces)
        return loss


def equilibrium(logits: Array, tolerance: float = 1e-7) -> tuple[float, Array]:
    """The game's value v and the adversary's probability of each label, (n,), by double oracle.

    Find the equilibrium of the strategies so far, add each side's best response to it, and stop when neither gains more
    than ``tolerance`` by it.

    >>> value, marginals = equilibrium(np.array([3.0, 0.0]))
    >>> round(value, 4), marginals.tolist()
    (-2.1667, [1.0, 0.5])
    """
    predictor = adversary = (logits > 0).astype(np.float64)[None]
    while True:
        size = predictor.sum(axis=1)[:, None] + adversary.sum(axis=1)
        f1 = np.where(size == 0, 1.0, 2 * predictor @ adversary.T / np.maximum(size, 1))
        value, p, q = _matrix_game(f1 - adversary @ logits)
        marginals = q @ adversary
        answer, reached = _best_response(adversary, q, 1.0, np.zeros_like(logits))
        reply, lowered = _best_response(predictor, p, -1.0, logits)
        gained, saved = float(reached - logits @ marginals - value), float(lowered + value)
        if max(gained, saved) <= tolerance:
            return value, marginals
        predictor = np.vstack([predictor, answer]) if gained > tolerance else predictor
        adversary = np.vstack([adversary, reply]) if saved > tolerance else adversary


def _best_response(strategies: Array, probabilities: Array, sign: float, logits: Array) -> tuple[Array, float]:
    """The labels with the largest ``sign`` E[F1] + ψ·y against a mixture of the other side's, and this value."""
    numbers = np.arange(strategies.shape[1] + 1)  # of labels, on either side
    of_size = (numbers == strategies.sum(axis=1)[:, None]) * probabilities[:, None]
    share = 2 / np.maximum(numbers[:, None] + numbers, 1)
    gains = logits + sign * share @ (of_size.T @ strategies)  # of each label, by the number of labels taken
    order = np.argsort(-gains, axis=1, kind="stable")
    best = np.take_along_axis(gains, order, axis=1).cumsum(axis=1).diagonal(-1)  # the k best of k
    values = np.append(sign * of_size[:, 0].sum(), best)  # without labels on both sides F1 is 1
    k = int(values.argmax())
    answer = np.zeros(len(logits))
    answer[order[k, :k]] = 1.0
    return answer, float(values[k])


def _matrix_game(payoff: Array) -> tuple[float, Array, Array]:
    """Value and optimal mixtures of rows, which want much, and of columns, by a linear program of the columns."""
    rows, columns = payoff.shape
    if rows == columns == 1:
        return float(payoff[0, 0]), np.ones(1), np.ones(1)
    found: Any = linprog(
        [0.0] * columns + [1.0], A_ub=np.hstack([payoff, -np.ones((rows, 1))]), b_ub=np.zeros(rows),
        A_eq=[[1.0] * columns + [0.0]], b_eq=[1.0], bounds=[(0, None)] * columns + [(None, None)],
    )  # fmt: skip
    return float(found.fun), -found.ineqlin.marginals, found.x[:columns]
