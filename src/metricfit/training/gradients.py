"""The objective differentiated by hand, for class decisions with EAST's step: counts of a batch, and their way back.

Nothing is recorded by autograd: the few passes over the logits that are needed in either direction, and in between the
metric of a d x d matrix. :class:`metricfit.training.objective.MemberObjective` stays the reference.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, distributed

from metricfit.distributed import sum_over_processes
from metricfit.losses.memory import ConfusionMemory
from metricfit.steps import annealed_linear_step
from metricfit.training.counting import soft_counts
from metricfit.training.matrix_gradients import loss_of_matrix
from metricfit.training.objective import MemberObjective

__all__ = ["ManyClasses", "ObjectiveGradient", "TwoClasses"]


class ObjectiveGradient:
    """Losses and gradients of an objective: by hand where it covers it, else by autograd.

    Args:
        objective: Its state (temperatures, memory) is shared.
    """

    def __init__(self, objective: MemberObjective) -> None:
        self.objective = objective
        recipe, metric = objective.recipe, objective.metric
        linear = recipe.loss == "metric" and recipe.step == "annealed_linear" and objective.multipliers is None
        covered = recipe.loss == "cross_entropy" or (linear and metric.grids() == {None})
        self.by_hand = covered and objective.task != "multilabel"
        if self.by_hand:
            self._batch = TwoClasses if objective.task == "binary" else ManyClasses
            self._loss_of_matrix = loss_of_matrix(metric, objective.task, objective.labels)

    def __call__(self, logits: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The losses (members,), and the gradient of their sum with respect to the logits (members, n, d)."""
        if self.by_hand:
            with torch.no_grad():
                return self._closed_form(logits, target, weight)
        leaf = logits.detach().requires_grad_()
        losses = self.objective(leaf, target, weight)
        (gradient,) = torch.autograd.grad(losses.sum(), leaf)
        return losses.detach(), gradient

    def _closed_form(self, logits: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        objective = self.objective
        counts_matter = objective.recipe.loss == "metric" and not objective.warming
        temperature = objective.temperature if counts_matter else None
        batch: CountedBatch = self._batch(logits, target, weight, objective.class_weights, temperature)
        sums = [batch.total, batch.mass] if batch.counts is None else [batch.total, batch.mass, batch.counts]
        total, mass, *counts = sum_over_processes(sums, objective.group)
        share = 1 / mass.clamp_min(torch.finfo(mass.dtype).tiny)
        # The gradients of several processes are averaged, not added: see metricfit.distributed.
        processes = 1 if objective.group is None else distributed.get_world_size(objective.group)
        if not counts:
            return total * share, batch.pull_back(None, share * processes)
        share *= objective.recipe.cross_entropy
        losses, of_counts = self._metric(counts[0].numpy().astype(np.float64))
        losses += total.numpy() * share.numpy()
        gradient = batch.pull_back(torch.from_numpy(of_counts * processes).float(), share * processes)
        return torch.from_numpy(losses), gradient

    def _metric(self, counts: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The metric's losses and gradients, with the batch taken into the memory; see :class:`ConfusionMemory`."""
        if self.objective.memories is None:
            return self._loss_of_matrix(counts)
        memory: ConfusionMemory = self.objective.memories[0]  # type: ignore[assignment]
        total = counts.sum(axis=(1, 2), keepdims=True)
        scale = 1 / np.where(total > 0, total, 1.0)
        blended = counts * scale
        if memory.matrix.numel():
            past = memory.matrix.numpy()
            # A batch without any weight teaches nothing.
            blended += np.where(total > 0, memory.decay, 1.0) * (past - blended)
        memory.matrix = torch.from_numpy(blended.astype(np.float32))
        losses, gradient = self._loss_of_matrix(blended)
        return losses, gradient * scale


class CountedBatch(Protocol):
    """A batch of logits (members, n, d), labels (members, n) and weights (members, n) of all members.

    Attributes:
        counts: Soft counts (members, d, d), or None where they are not asked for.
        total: Sums (members,) of the weighted cross-entropies of the samples.
        mass: Sums (members,) of their weights, class weights included.
    """

    counts: Tensor | None
    total: Tensor
    mass: Tensor

    def pull_back(self, of_counts: Tensor | None, of_total: Tensor) -> Tensor:
        """The gradient of the logits, given those of the counts (members, d, d) and of the total (members,)."""


class TwoClasses:
    """Two logits, whose difference is all that matters; see :class:`CountedBatch`.

    At the threshold 1/2 the step is symmetric: steep within 5 T / 4 of it, flat outside.

    Args:
        logits: Logits (members, n, 2).
        target: Class indices (members, n).
        weight: Sample weights (members, n).
        class_weights: For the cross-entropy (2,).
        temperature: T, one a member, (members, 1, 1); None counts nothing.
    """

    def __init__(
        self, logits: Tensor, target: Tensor, weight: Tensor, class_weights: Tensor, temperature: Tensor | None
    ) -> None:
        # NumPy, and as few calls as possible: on so few numbers a call costs more than what it computes. By symmetry
        # all of it is a function of the probability that the wrong class gets.
        self.labels, scores, weights = target.numpy(), logits.numpy(), weight.numpy()
        self.sign = _SIGNS[self.labels]
        margin = self.sign * (scores[..., 1] - scores[..., 0])
        tail = np.exp(-np.abs(margin))
        whole = 1 + tail
        self.wrong = np.where(margin > 0, tail, _ONE) / whole
        self.masses = class_weights.numpy()[self.labels] * weights
        losses = np.log(whole) - np.minimum(margin, 0)
        self.total = torch.from_numpy(np.einsum("mn,mn->m", losses, self.masses))
        self.mass = torch.from_numpy(self.masses.sum(axis=1))
        self.counts: Tensor | None = None
        if temperature is not None:
            self.step = step = _step_at_half(tuple(temperature.flatten().tolist()))
            self.near = np.minimum(np.maximum(self.wrong, step.low), step.high)
            membership = step.outer * self.wrong + step.bend * self.near
            self.shares = np.empty((len(margin), 2, margin.shape[1]), np.float32)
            np.multiply(weights, self.labels, out=self.shares[:, 1], casting="same_kind")
            np.subtract(weights, self.shares[:, 1], out=self.shares[:, 0])
            support = self.shares.sum(axis=2)
            missed = np.matmul(self.shares, membership[..., None])[..., 0] + step.start * support
            right = np.maximum(support - missed, 0)
            counts = np.empty((len(margin), 2, 2), np.float32)
            counts[:, (0, 1), (0, 1)] = right
            counts[:, (0, 1), (1, 0)] = missed
            self.counts = torch.from_numpy(counts)

    def pull_back(self, of_counts: Tensor | None, of_total: Tensor) -> Tensor:
        """The gradient of the logits."""
        gradient = self.masses * of_total.numpy()[:, None]
        if of_counts is not None:
            cells = of_counts.numpy()
            of_missed = cells[:, (0, 1), (1, 0)] - cells[:, (0, 1), (0, 1)]
            of_wrong = np.matmul(of_missed[:, None, :], self.shares)[:, 0]
            of_wrong *= np.where(self.near == self.wrong, self.step.inner, self.step.outer)
            gradient += of_wrong * (1 - self.wrong)
        gradient *= self.wrong
        gradient *= self.sign
        both = np.empty((*gradient.shape, 2), np.float32)
        both[..., 0] = gradient
        np.negative(gradient, out=both[..., 1])
        return torch.from_numpy(both)


_ONE = np.float32(1)
_SIGNS = np.array([-1, 1], np.float32)


class _StepAtHalf(NamedTuple):
    """The step at the threshold 1/2 is start + outer · p + bend · clamp(p, low, high); each (members, 1)."""

    low: NDArray[np.float32]
    high: NDArray[np.float32]
    inner: NDArray[np.float32]
    outer: NDArray[np.float32]
    bend: NDArray[np.float32]
    start: NDArray[np.float32]


@lru_cache(maxsize=8)
def _step_at_half(temperatures: tuple[float, ...]) -> _StepAtHalf:
    t = np.array(temperatures)[:, None]
    half = 1.25 * t
    inner = (1 - 2 * t) / (2 * half)
    outer = np.where(half < 0.5 - 1e-6, t / np.maximum(0.5 - half, 1e-6), 0.0)  # at T = 0.4 nothing is outside
    parts = (0.5 - half, 0.5 + half, inner, outer, inner - outer, 0.5 - 0.5 * inner)
    return _StepAtHalf(*(part.astype(np.float32) for part in parts))


class ManyClasses:
    """Any number of logits, with the dynamic threshold; arguments as in :class:`TwoClasses`."""

    def __init__(
        self, logits: Tensor, target: Tensor, weight: Tensor, class_weights: Tensor, temperature: Tensor | None
    ) -> None:
        logs = logits.log_softmax(dim=-1)
        self.p = logs.exp()
        self.target = target[..., None]
        self.masses = weight * class_weights[target]
        self.mass = self.masses.sum(dim=1)
        self.total = -(logs.gather(2, self.target)[..., 0] * self.masses).sum(dim=1)
        self.counts: Tensor | None = None
        if temperature is not None:
            # Membership at the dynamic threshold is left to autograd; the metric, softmax and cross-entropy are not.
            self.leaf = self.p.detach().requires_grad_()
            with torch.enable_grad():
                self.graph = soft_counts(
                    self.leaf, target, weight, "multiclass", partial(annealed_linear_step, temperature=temperature)
                )
            self.counts = self.graph.detach()

    def pull_back(self, of_counts: Tensor | None, of_total: Tensor) -> Tensor:
        """The gradient of the logits."""
        scale = self.masses.mul_(of_total[:, None])[..., None]
        gradient = (self.p * scale).scatter_add_(2, self.target, -scale)
        if of_counts is not None:
            (of_p,) = torch.autograd.grad(self.graph, self.leaf, of_counts)
            gradient += self.p * (of_p - (of_p * self.p).sum(dim=-1, keepdim=True))
        return gradient
