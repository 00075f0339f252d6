"""Recipes: named, inspectable configurations of a training run."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

import numpy as np
from torch import nn

from metricfit.choices import Range, Space, close_to, parts_of, spec_of
from metricfit.inputs import expect
from metricfit.losses.companions import Balance
from metricfit.steps import Annealed, Custom, StepLike, check_temperature
from metricfit.steps import get as get_step

WIDE = 2_000  # columns or features beyond which a table is wide


def usually(usual: Any, *, least: float | None = None) -> Any:
    """A part of a recipe that is as the named one says unless given: its value in the default recipe, its least."""
    return field(default=None, metadata={"usual": usual, "least": least})


@dataclass(frozen=True)
class Recipe:
    """How a network is trained: a named recipe, and the parts that differ from it.

    A part that is ``None`` is as the named recipe says; :meth:`complete` fills it in. Nothing is checked before that.

    Args:
        name: ``"default"``, ``"btg"``, ``"multiclass_fbeta"``, ``"east"``, ``"log_loss"``, ``"surrogate_fbeta"`` or
            ``"anyloss"``.
        objective: What is minimised: the ``"metric"`` on the soft confusion matrix, ``"log_loss"`` (cross-entropy) or
            ``"surrogate_fbeta"``.
        cross_entropy: Weight of the cross-entropy that is added to the metric's loss.
        balance: Class weights in the cross-entropy: ``"none"``, ``"sqrt"`` (∝ prior^-1/2) or ``"full"``.
        warm_start_epochs: Epochs of cross-entropy alone before the metric joins in.
        step: The approximation of the step function, as in :class:`metricfit.MetricLoss`.
        temperature: T of the annealed step, at the start.
        memory: Decay of the cross-batch memory of the confusion matrix; 0 is none.
        annealing: ``"plateau"`` cools when the validation loss stops decreasing (EAST), ``"epoch"`` every epoch.
        cooling: The factor r of a cooling.
        patience: Epochs without improvement that make a plateau; then cool (``annealing="plateau"``) or stop. 0 never
            stops early.
        min_delta: Validation has to improve by more than this to count for ``patience``.
        max_fruitless: Coolings in a row without improvement after which a member is finished.
        batch_size: Rows in a batch; below 1 the share of a member's rows.
        stratified: Whether each batch holds the classes in their overall shares.
        max_epochs: Passes over the data, unless the bounds on updates say otherwise.
        min_updates: Updates of the weights at least: small data get more epochs. Beyond 2,000 features they are fewer
            in proportion, because each changes more.
        max_updates: Updates of the weights at most: large data get fewer epochs.
        optimiser, momentum: ``"adamw"``, or ``"sgd"`` and its momentum.
        learning_rate: Of the optimiser, after the warm-up.
        warm_up_updates: Updates over which the learning rate rises from 0.
        schedule: ``"cosine"`` to 0 over the whole run, or ``"constant"``.
        weight_decay: Of the optimiser; not on biases.
        gradient_clip: Largest norm of a member's gradient; 0 does not clip.
        network: ``"mlp"``, ``"linear"``, a factory ``(in_features, out_features) -> module``, or a module. A module is
            a template: each member is a copy whose layers draw their weights anew (``reset_parameters``), so trained
            weights are not kept; a factory's are.
        hidden_sizes: Widths of the MLP's hidden layers.
        dropout: Share of activations dropped after each hidden layer.
        members: Networks per fold, started from different weights.
        averaging: Horizon in epochs of the moving average of the weights; 0 averages nothing.
        selection: What picks the checkpoint that is kept, on validation data: the ``"soft"`` metric at
            ``selection_temperature``, the ``"hard"`` (exact) metric, ``"log_loss"``, the ``"objective"`` as trained
            (the metric at the current temperature, the surrogate), or simply the ``"last"``.
        selection_temperature: T of the soft metric for the selection.
        checkpoints: About how many times in a run the selection looks.
        rule: ``"argmax"``, or ``"tuned"``: class offsets or a threshold chosen on out-of-fold probabilities. A
            constrained metric's rule is always tuned.
        mixed_precision: bfloat16 on a GPU that has it.

    >>> Recipe("east", patience=5)
    Recipe('east', patience=5)
    >>> Recipe("east", patience=5).complete().cooling
    0.9
    """

    name: str = "default"
    objective: Literal["metric", "log_loss", "surrogate_fbeta"] = usually("metric")
    cross_entropy: float = usually(0.5, least=0)
    balance: Balance = usually("sqrt")
    warm_start_epochs: int = usually(0, least=0)
    step: StepLike = usually("annealed")
    temperature: float = usually(0.2)
    memory: float = usually(0.9)
    annealing: Literal["none", "plateau", "epoch"] = usually("none")
    cooling: float = usually(0.9)
    patience: int = usually(0, least=0)
    min_delta: float = usually(0.0, least=0)
    max_fruitless: int = usually(3, least=1)
    batch_size: float = usually(512, least=1)
    stratified: bool = usually(True)
    max_epochs: int = usually(40, least=1)
    min_updates: int = usually(600, least=0)
    max_updates: int = usually(20_000, least=1)
    optimiser: Literal["adamw", "sgd"] = usually("adamw")
    momentum: float = usually(0.0)
    learning_rate: float = usually(5e-3)
    warm_up_updates: int = usually(20, least=0)
    schedule: Literal["cosine", "constant"] = usually("cosine")
    weight_decay: float = usually(1e-2, least=0)
    gradient_clip: float = usually(0.0, least=0)
    network: str | nn.Module | Callable[..., nn.Module] = usually("mlp")
    hidden_sizes: tuple[int, ...] = usually((128, 64))
    dropout: float = usually(0.1)
    members: int = usually(1, least=1)
    averaging: float = usually(3.0, least=0)
    selection: Literal["soft", "hard", "log_loss", "objective", "last"] = usually("soft")
    selection_temperature: float = usually(0.1)
    checkpoints: int = usually(50, least=1)
    rule: Literal["argmax", "tuned"] = usually("argmax")
    mixed_precision: bool = usually(True)

    @classmethod
    def of(cls, recipe: str | Recipe) -> Recipe:
        """A recipe from its name or its :meth:`spec`; a recipe as it is.

        >>> Recipe.of("east:patience=5,hidden_sizes=64-32").complete().hidden_sizes
        (64, 32)
        """
        if isinstance(recipe, str):
            name, parts = parts_of(recipe)
            return cls(name).with_parts(parts)
        if not isinstance(recipe, Recipe):
            raise TypeError(f"recipe: expected a name or a Recipe, got {type(recipe).__name__}.")
        return recipe

    def parts(self) -> dict[str, Any]:
        """Name and parts, as given."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def spec(self) -> str:
        """The recipe as a text that :meth:`of` reads; of a module or a function of one's own there is none."""
        return spec_of(self.name, self._given())

    def space(self) -> Space:
        """What a search may change: the parts that are not given, those of the loss where a metric is trained."""
        whole = SPACE | LOSS_SPACE if self.complete().objective == "metric" else SPACE
        return {part: values for part, values in whole.items() if getattr(self, part) is None}

    def with_parts(self, parts: Mapping[str, Any]) -> Self:
        """The same recipe with other parts."""
        if unknown := sorted(set(parts) - set(self.parts())):
            raise ValueError(f"recipe: has no part {unknown[0]!r}; the parts are {', '.join(sorted(self.parts()))}.")
        return replace(self, **parts)

    def complete(self) -> Recipe:
        """The recipe with every part filled in and checked."""
        if self.name not in RECIPES:
            raise ValueError(f"recipe: unknown name {self.name!r}; {close_to(str(self.name), RECIPES)}")
        usual, given = RECIPES["default"] | RECIPES[self.name], self._given()
        filled = {part: _plain(part, value, usual[part]) for part, value in (usual | given).items()}
        step = get_step(filled["step"])
        if isinstance(step, Annealed):  # its temperature has a part of its own, since it is cooled
            if filled["step"] != "annealed":
                filled["temperature"] = given.get("temperature", step.temperature)
            filled["step"] = "annealed"
        elif not isinstance(filled["step"], str) and not isinstance(step, Custom):
            filled["step"] = str(step)
        recipe = Recipe(self.name, **filled)
        _check(recipe)
        return recipe

    def epochs(self, updates_per_epoch: int, features: int = 1) -> int:
        """Passes over the data, given the updates of one and the number of features."""
        at_least = math.ceil(self.min_updates * min(1.0, WIDE / features) / updates_per_epoch)
        at_most = max(1, self.max_updates // updates_per_epoch)
        return max(1, at_least, min(self.max_epochs, at_most))

    def __repr__(self) -> str:
        """The name and the parts that are given."""
        given = [f"{part}={value!r}" for part, value in self._given().items()]
        return f"Recipe({', '.join([repr(self.name), *given])})"

    def _given(self) -> dict[str, Any]:
        return {part: value for part, value in self.parts().items() if value is not None and part != "name"}


def _check(recipe: Recipe) -> None:
    """Refuse parts out of their range, and those that do not go together."""
    parts = recipe.parts()
    for name, kind in get_type_hints(Recipe).items():
        if get_origin(kind) is Literal:
            known = f"one of {', '.join(map(repr, get_args(kind)))}"
            expect(parts[name] in get_args(kind), name, known, parts[name])
    for name in ("memory", "dropout", "momentum"):
        expect(0 <= parts[name] < 1, name, "a number in [0, 1)", parts[name])
    expect(recipe.learning_rate > 0, "learning_rate", "a number > 0", recipe.learning_rate)
    works = recipe.optimiser == "sgd" or not recipe.momentum
    expect(works, "momentum", "0 with optimiser='adamw', which has its own", recipe.momentum)
    expect(0 < recipe.cooling < 1, "cooling", "a factor strictly between 0 and 1", recipe.cooling)
    for temperature in (recipe.temperature, recipe.selection_temperature):
        check_temperature(temperature)
    if recipe.objective == "log_loss" and not recipe.cross_entropy:
        raise ValueError("cross_entropy: its weight is 0 and objective='log_loss': nothing would be trained.")
    anneals = recipe.objective == "metric" and isinstance(get_step(recipe.step), Annealed)
    if recipe.annealing != "none" and not anneals:
        given = f"objective={recipe.objective!r} and step={recipe.step!r}"
        raise ValueError(f"annealing: has no effect with {given}; only the metric's annealed step has a temperature.")
    if recipe.annealing == "plateau" and not recipe.patience:
        raise ValueError("patience: annealing='plateau' needs a patience of at least 1 epoch, got 0.")


def _plain(name: str, value: Any, usual: Any) -> Any:
    """A part's value as the plain Python type of its usual one; numbers are checked against the part's least."""
    if isinstance(usual, bool):
        truth = isinstance(value, bool | np.bool_ | numbers.Integral) and value in (0, 1)
        expect(truth, name, "True or False", value)
        return bool(value)
    if isinstance(usual, tuple):
        several = isinstance(value, Iterable) and not isinstance(value, str) and getattr(value, "ndim", 1) == 1
        expect(several, name, "a sequence of widths, such as (128, 64)", value)
        sizes = tuple(value)
        whole = all(_is_number(size) and int(size) == size >= 1 for size in sizes)
        expect(whole, name, "widths >= 1, whole numbers", sizes)
        return tuple(map(int, sizes))
    if isinstance(usual, int | float):
        least = Recipe.__dataclass_fields__[name].metadata["least"]
        share = name == "batch_size" and _is_number(value) and 0 < value < 1
        enough = _is_number(value) and (least is None or value >= least or share)
        expect(enough, name, "a number" if least is None else f"a number >= {least}", value)
        expect(share or isinstance(usual, float) or int(value) == value, name, "a whole number", value)
        return float(value) if share else type(usual)(value)
    return str(value) if isinstance(value, str) else value


def _is_number(value: Any) -> bool:
    """Whether it is a finite number, of Python or NumPy, and no truth value."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_) and math.isfinite(value)


_ALONE: dict[str, Any] = {"cross_entropy": 0.0, "balance": "none", "memory": 0.0}
_PAPERS: dict[str, Any] = {
    "min_updates": 0, "learning_rate": 1e-3, "schedule": "constant", "warm_up_updates": 0, "averaging": 0.0,
    "stratified": False, "selection": "objective", "max_epochs": 5000, "max_updates": 10**9, "batch_size": 1024,
}  # fmt: skip
RECIPES: dict[str, dict[str, Any]] = {
    "default": {each.name: each.metadata["usual"] for each in fields(Recipe) if each.name != "name"},
    "btg": _ALONE | _PAPERS | {
        "step": "linear:delta=0.1", "patience": 100, "weight_decay": 0.0, "hidden_sizes": (32, 16), "dropout": 0.5,
    },
    "multiclass_fbeta": _ALONE | _PAPERS | {
        "step": "linear:delta=0.2", "patience": 100, "hidden_sizes": (512, 256, 128), "dropout": 0.25,
    },
    "east": _ALONE | _PAPERS | {
        "annealing": "plateau", "patience": 50, "hidden_sizes": (512, 256, 128), "dropout": 0.25,
    },
    "log_loss": _ALONE | {"objective": "log_loss", "cross_entropy": 1.0, "selection": "log_loss"},
    "surrogate_fbeta": _ALONE | _PAPERS | {
        "objective": "surrogate_fbeta", "optimiser": "sgd", "momentum": 0.9, "learning_rate": 1e-2,
        "weight_decay": 1e-4, "batch_size": 100, "max_epochs": 120, "dropout": 0.0, "selection": "last",
    },
    "anyloss": _ALONE | _PAPERS | {
        "step": "amplifier", "network": "linear", "optimiser": "sgd", "weight_decay": 0.0, "batch_size": 0.05,
        "max_epochs": 100, "selection": "last",
    },
}  # fmt: skip
"""The parts of the default recipe, and what the others have differently: log-loss, and five papers as they train."""

SPACE: Space = {
    "learning_rate": Range(1e-3, 3e-2), "batch_size": (128, 256, 512, 1024), "weight_decay": Range(1e-4, 1e-1),
    "hidden_sizes": ((64, 32), (128, 64), (256, 128), (256, 128, 64)), "dropout": Range(0.0, 0.4, log=False),
}  # fmt: skip
LOSS_SPACE: Space = {
    "cross_entropy": Range(0.1, 2.0), "balance": ("none", "sqrt", "full"), "temperature": Range(0.1, 0.4),
}  # fmt: skip
"""What a search may try, and what more where a metric is trained."""
