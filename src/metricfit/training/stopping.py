"""Which weights each member keeps, and when it is finished."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from metricfit.annealing import TemperatureAnnealer
from metricfit.training.objective import MemberObjective
from metricfit.training.recipes import Recipe

__all__ = ["BestMembers", "Stopping", "member_of"]


def member_of(name: str) -> int | None:
    """The member a tensor of a :class:`StackedNetworks` belongs to; ``None`` if its first dimension is the members'.

    >>> member_of("networks.3.0.weight"), member_of("layers.0.weight")
    (3, None)
    """
    parts = name.split(".")
    return int(parts[1]) if parts[0] == "networks" else None


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
