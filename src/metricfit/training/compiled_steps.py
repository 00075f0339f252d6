"""The steps of an epoch of the built-in network, by the compiled loops of :mod:`metricfit.fast.mlp`.

Only the time they take differs from the steps of the loop: weights, moments, averages and the memory are read and
written where they are, and random numbers are drawn in the same order. Members do not touch each other's tensors, so
that each may have a thread of its own, and only one.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]
from torch import Tensor

from metricfit.fast.batch import LIMITS, numba_is_here
from metricfit.fast.metric_gradients import ClosedForm, as_array
from metricfit.training.direct import DirectMLP
from metricfit.training.evaluation import TrainingData
from metricfit.training.gradients import ObjectiveGradient
from metricfit.training.matrix_gradients import closed_form
from metricfit.training.optimiser import WeightAverage, start_moments

__all__ = ["CompiledSteps", "is_worth_compiling"]

WORTHWHILE_STEPS = 1000
"""Loading numba takes about as long as so many steps of a small network; compiling, once, ten times that."""

WORTHWHILE_PRODUCTS = 1 << 35
"""Of a run, by the rows of its batches times weights: some seconds, where members that have stopped cost nothing."""

LARGE_PRODUCTS = 1 << 25
"""With more rows times weights than this, several threads for one product save more than the compiled steps."""

STEPS_AT_ONCE = 32
"""Steps between two chances for Ctrl-C."""


def is_worth_compiling(data: TrainingData, gradient: ObjectiveGradient, steps: int, products: int) -> bool:
    """Whether the compiled steps cover data and objective, and are many enough and not too large.

    Covered are cross-entropy and the metrics with a closed form, on the CPU and in one process.

    Args:
        data: All rows.
        gradient: The objective.
        steps: Steps of the run.
        products: Rows in a batch times weights of a member.
    """
    objective = gradient.objective
    if products > LARGE_PRODUCTS and torch.get_num_threads() > objective.members:
        return False
    stops_early = objective.recipe.patience and steps * products * objective.members >= WORTHWHILE_PRODUCTS
    if steps < WORTHWHILE_STEPS and not stops_early:
        return False
    if not gradient.by_hand or objective.group is not None or not numba_is_here():
        return False
    is_known = closed_form(objective.metric, objective.task, objective.labels) is not None
    if not is_known and objective.recipe.loss != "cross_entropy":
        return False
    tensors = (data.features, data.target, data.weight)
    kinds = (torch.float32, torch.int64, torch.float32)
    return all(t.is_cpu and t.is_contiguous() and t.dtype == kind for t, kind in zip(tensors, kinds, strict=True))


class CompiledSteps:
    """Steps of all members.

    Args:
        direct: The network.
        data: All rows.
        gradient: The objective.
        optimiser: Its state is used and kept up to date.
        average: The averaged weights.
    """

    def __init__(
        self,
        direct: DirectMLP,
        data: TrainingData,
        gradient: ObjectiveGradient,
        optimiser: torch.optim.AdamW,
        average: WeightAverage,
    ) -> None:
        from metricfit.fast import mlp  # brings numba

        self._mlp = mlp
        self.direct, self.objective, self.optimiser, self.average = direct, gradient.objective, optimiser, average
        self.data = mlp.Data(data.features.numpy(), data.target.numpy(), data.weight.numpy())
        widths = [linear.weight.shape[2] for linear in direct.linears]
        self.sizes = np.array([data.features.shape[1], *widths], np.int64)
        form = closed_form(self.objective.metric, self.objective.task, self.objective.labels)
        self.form = form or ClosedForm(None, -1, 0.0)
        self.blas = ThreadpoolController().select(user_api="blas")

    def run(self, order: Tensor, taken: int, rates: Sequence[float], active: Tensor) -> NDArray[np.float64]:
        """The steps of an epoch; returns their losses, (members that train, steps).

        Args:
            order: Rows of each step, (members, steps, batch).
            taken: Steps before these.
            rates: The learning rate of each.
            active: Which members train, (members,); the others stay as they are.
        """
        members, steps, batch = order.shape
        start_moments(self.optimiser)
        goals, addresses, adamw = self._goals(), self._addresses(), self._adamw(taken, rates)
        dropout, index = self._dropout(members * batch, steps), order.numpy()
        training = torch.nonzero(active).flatten().tolist()
        losses = np.empty((members, steps))

        def train(member: int, some: slice) -> None:
            common = (self.sizes, addresses, self.data, index[member], goals[member], dropout, adamw)
            self._mlp.train_steps(member, *common, some.start, losses[member, some])

        workers = min(len(training), torch.get_num_threads())
        with self.blas.limit(limits=1), ThreadPoolExecutor(workers) as pool:
            for start in range(0, steps, STEPS_AT_ONCE):
                some = slice(start, start + STEPS_AT_ONCE)
                list((pool.map if workers > 1 else map)(train, training, [some] * len(training)))
        for state in self.optimiser.state.values():
            state["step"] += steps
        self._remember(goals)
        return losses[training]

    def _goals(self) -> list[Any]:
        """What each member minimises, with its memory."""
        objective, recipe, form = self.objective, self.objective.recipe, self.form
        counts = recipe.loss == "metric" and not objective.warming
        matrices = np.zeros((objective.members, self.sizes[-1], self.sizes[-1]), np.float32)
        decay, is_first = 0.0, True
        if counts and objective.memories is not None:
            memory: Any = objective.memories[0]
            decay, is_first = memory.decay, not memory.matrix.numel()
            if not is_first:
                matrices[:] = memory.matrix.numpy()
        return [
            self._mlp.Goal(
                class_weight=objective.class_weights.numpy(),
                cross_entropy=float(recipe.cross_entropy) if counts else 1.0,
                counts=counts,
                delta=np.float32(temperature),
                factor=np.float32(5 * temperature),
                ratio=as_array(form.ratio),
                label=form.label,
                undefined=form.undefined,
                decay=decay,
                memory=matrix,
                is_first=is_first,
                limits=LIMITS[np.dtype(np.float32)],
            )
            for temperature, matrix in zip(objective.temperature.flatten().tolist(), matrices, strict=True)
        ]

    def _remember(self, goals: list[Any]) -> None:
        if goals[0].decay:
            memory: Any = self.objective.memories[0]  # type: ignore[index]
            memory.matrix = torch.from_numpy(np.stack([goal.memory for goal in goals]))

    def _addresses(self) -> NDArray[np.int64]:
        """Where the tensors of each layer are."""
        live = [p for linear in self.direct.linears for p in (linear.weight, linear.bias)]
        states = [self.optimiser.state[p] for p in live]
        moments = [[state[name] for state in states] for name in ("exp_avg", "exp_avg_sq")]
        return np.array([[t.data_ptr() for t in kind] for kind in (live, *moments, self.average.of(live))], np.int64)

    def _adamw(self, taken: int, rates: Sequence[float]) -> Any:
        decayed = self.optimiser.param_groups[0]
        shares = [self.average.share(taken + step) for step in range(len(rates))] if self.average.decay else []
        return self._mlp.AdamW(
            rates=np.array(rates),
            taken=taken,
            beta1=decayed["betas"][0],
            beta2=decayed["betas"][1],
            epsilon=decayed["eps"],
            weight_decay=decayed["weight_decay"],
            clip=float(self.objective.recipe.gradient_clip),
            averaging=np.array(shares),
        )

    def _dropout(self, rows: int, steps: int) -> Any:
        """Windows of the long masks, drawn in the order of the steps and layers."""
        dropouts = [dropout for dropout in self.direct.dropouts if dropout is not None]
        starts = np.empty((steps, len(dropouts)), np.int64)
        for step in range(steps):
            for layer, dropout in enumerate(dropouts):
                starts[step, layer] = dropout.window(rows * int(self.sizes[layer + 1]))
        masks = np.array([dropout.long.data_ptr() for dropout in dropouts], np.int64)
        return self._mlp.Dropout(masks, starts, np.float32(1 / (1 - dropouts[0].rate) if dropouts else 1))
