"""From gradients to the weights that each member keeps: AdamW, schedule, moving average, best weights, stopping."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from metricfit.annealing import TemperatureAnnealer
from metricfit.training.objective import MemberObjective
from metricfit.training.recipes import Recipe

__all__ = [
    "BestMembers",
    "Stopping",
    "WeightAverage",
    "clip_gradients",
    "learning_rate_at",
    "make_optimiser",
    "take_step",
]


def member_of(name: str) -> int | None:
    """The member a tensor of a :class:`StackedNetworks` belongs to; ``None`` if its first dimension is the members'.

    >>> member_of("networks.3.0.weight"), member_of("layers.0.weight")
    (3, None)
    """
    parts = name.split(".")
    return int(parts[1]) if parts[0] == "networks" else None


def make_optimiser(network: nn.Module, recipe: Recipe) -> torch.optim.AdamW:
    """AdamW; weight decay on weights but not on biases, norms and other vectors."""
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for name, parameter in network.named_parameters():
        matrix = parameter.ndim > (2 if member_of(name) is None else 1) and "bias" not in name
        (decayed if matrix else plain).append(parameter)
    groups = [
        {"params": parameters, "weight_decay": decay}
        for parameters, decay in ((decayed, recipe.weight_decay), (plain, 0.0))
        if parameters
    ]
    if not groups:
        raise ValueError("network: it has no parameters, there is nothing to train.")
    return torch.optim.AdamW(groups, lr=recipe.learning_rate, fused=True)


@torch.no_grad()
def take_step(optimiser: torch.optim.AdamW, rate: float) -> None:
    """What ``optimiser.step()`` does at this learning rate, without its bookkeeping.

    That took 0.2 ms a step, a fifth of the matrix products of one network and a batch of 512.
    """
    for group in optimiser.param_groups:
        group["lr"] = rate
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    # The first step makes the state; other devices and parameters that the loss does not reach need the bookkeeping.
    if not optimiser.state or not all(p.is_cpu and p.grad is not None for p in parameters):
        optimiser.step()
        return
    for group in optimiser.param_groups:
        states = [optimiser.state[p] for p in group["params"]]
        steps = [state["step"] for state in states]
        torch._foreach_add_(steps, 1)
        torch._fused_adamw_(
            group["params"],
            [p.grad for p in group["params"]],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            steps,
            lr=rate,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
        )


def learning_rate_at(step: int, steps: int, recipe: Recipe) -> float:
    """The learning rate of a step, counted from 0: a linear rise, then the schedule.

    >>> learning_rate_at(0, 100, Recipe(learning_rate=1.0, warm_up_updates=4).complete())
    0.25
    """
    if step < recipe.warm_up_updates:
        return recipe.learning_rate * (step + 1) / recipe.warm_up_updates
    if recipe.schedule == "constant":
        return recipe.learning_rate
    share = (step - recipe.warm_up_updates) / max(1, steps - recipe.warm_up_updates)
    return recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * share))


def clip_gradients(parameters: Iterable[tuple[str, nn.Parameter]], members: int, largest: float) -> None:
    """Scale down the gradient of each member whose norm exceeds ``largest``; members do not affect each other."""
    found = [(member_of(name), p.grad) for name, p in parameters if p.grad is not None]
    squares = torch.zeros(members, device=found[0][1].device)
    for member, gradient in found:
        if member is None:
            squares = squares + gradient.flatten(1).square().sum(dim=1)
        else:
            squares[member] += gradient.square().sum()
    factor = (largest / squares.sqrt().clamp_min(1e-12)).clamp_max(1.0)
    for member, gradient in found:
        gradient.mul_(factor.reshape(-1, *[1] * (gradient.ndim - 1)) if member is None else factor[member])


class WeightAverage:
    """An exponential moving average of weights and buffers; the weights themselves if there is no horizon.

    Args:
        state: The live tensors.
        horizon: Steps that the average reaches back; 0 for none.
    """

    def __init__(self, state: dict[str, Tensor], horizon: float) -> None:
        self.live = state
        self.decay = 1 - 1 / horizon if horizon > 1 else 0.0
        self.averaged = {name: value.detach().clone() for name, value in state.items()} if self.decay else state
        self._pairs = [(self.averaged[name], live) for name, live in state.items() if live.is_floating_point()]
        self._others = [(self.averaged[name], live) for name, live in state.items() if not live.is_floating_point()]

    def update(self, step: int) -> None:
        """Take in the weights after a step, counted from 0; the first steps are forgotten faster."""
        if not self.decay:
            return
        with torch.no_grad():
            torch._foreach_lerp_([a for a, _ in self._pairs], [b for _, b in self._pairs], self.share(step))
            for kept, live in self._others:
                kept.copy_(live)

    def share(self, step: int) -> float:
        """The share of the weights after a step in their average."""
        return 1 - min(self.decay, (1 + step) / (10 + step))


class BestMembers:
    """The best weights of each member so far; of equals the latest.

    Args:
        members: Ensemble members.
        state: Weights to start from.
    """

    def __init__(self, members: int, state: dict[str, Tensor]) -> None:
        self.key = torch.full((members,), -math.inf, dtype=torch.float64)
        self.epoch = torch.zeros(members, dtype=torch.long)
        self.state = {name: value.detach().clone() for name, value in state.items()}

    def update(self, key: Tensor, epoch: int, state: dict[str, Tensor], active: Tensor) -> None:
        """Keep the weights of the active members whose key is at least the best so far."""
        key = key.detach().double().cpu()
        better = (key >= self.key) & active & key.isfinite()
        self.key = torch.where(better, key, self.key)
        self.epoch = torch.where(better, torch.full_like(self.epoch, epoch), self.epoch)
        for name, kept in self.state.items():
            member = member_of(name)
            if member is None:
                rows = better.to(kept.device).reshape(-1, *[1] * (kept.ndim - 1))
                kept.copy_(torch.where(rows, state[name], kept))
            elif better[member]:
                kept.copy_(state[name])

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"key": self.key, "epoch": self.epoch, "state": self.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        self.key, self.epoch = state["key"], state["epoch"]
        for name, kept in self.state.items():
            kept.copy_(state["state"][name])


class _OneTemperature:
    """One member's entry of the objective's temperatures, for an annealer."""

    def __init__(self, objective: MemberObjective, member: int) -> None:
        self.objective, self.member = objective, member
        self.temperature: Any = objective.recipe.temperature

    def set_temperature(self, temperature: float) -> None:
        self.objective.set_temperature(self.member, temperature)


class Stopping:
    """Annealing and early stopping of each member by itself.

    Args:
        recipe: Patience, annealing, cooling.
        objective: Whose temperatures are lowered.
    """

    def __init__(self, recipe: Recipe, objective: MemberObjective) -> None:
        members = objective.members
        self.recipe = recipe
        self.active = torch.ones(members, dtype=torch.bool)
        self.waited = torch.zeros(members, dtype=torch.long)
        self.best = torch.full((members,), -math.inf, dtype=torch.float64)
        self.annealers: list[TemperatureAnnealer] = []
        if recipe.annealing == "plateau":
            options: dict[str, Any] = {
                "patience": recipe.patience, "min_delta": recipe.min_delta, "max_fruitless": recipe.max_fruitless,
            }  # fmt: skip
        else:
            options = {"mode": "epoch"}
        if recipe.annealing != "none":
            self.annealers = [
                TemperatureAnnealer(_OneTemperature(objective, k), factor=recipe.cooling, **options)
                for k in range(members)
            ]

    def epoch_ended(self) -> None:
        """Cool once per epoch, where the recipe says so."""
        if self.recipe.annealing == "epoch":
            for annealer in self.annealers:
                annealer.step()

    def validated(self, loss: Tensor, key: Tensor) -> None:
        """Take the validation losses, and what the selection compares (more is better); cool or finish members."""
        finite = loss.isfinite().cpu()
        if self.recipe.annealing == "plateau":
            for k, annealer in enumerate(self.annealers):
                if self.active[k]:
                    annealer.step(float(loss[k]))
                    self.active[k] = not annealer.finished
        elif self.recipe.patience:
            key = key.detach().double().cpu()
            better = key > self.best + self.recipe.min_delta
            self.best = torch.where(better, key, self.best)
            self.waited = torch.where(better, torch.zeros_like(self.waited), self.waited + 1)
            self.active &= self.waited < self.recipe.patience
        # What has become NaN stays NaN: such a member keeps what it had.
        self.active &= finite

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        annealers = [annealer.state_dict() for annealer in self.annealers]
        return {"active": self.active, "waited": self.waited, "best": self.best, "annealers": annealers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        self.active, self.waited, self.best = state["active"], state["waited"], state["best"]
        for annealer, saved in zip(self.annealers, state["annealers"], strict=True):
            annealer.load_state_dict(saved)
