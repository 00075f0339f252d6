"""Recipes: named, inspectable configurations of a training run."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

import numpy as np

from metricfit.losses.cross_entropy import Balance
from metricfit.steps import Annealed, check_temperature
from metricfit.steps import get as get_step

__all__ = ["RECIPES", "Recipe", "get_recipe"]

Loss = Literal["metric", "cross_entropy", "surrogate_fbeta"]
Annealing = Literal["none", "plateau", "step"]
Schedule = Literal["cosine", "constant"]
Selection = Literal["soft", "hard", "cross_entropy", "loss", "last"]
Rule = Literal["argmax", "tuned"]


@dataclass(frozen=True)
class Recipe:
    """How a network is trained; every part can be overridden.

    Attributes:
        name: The recipe's name.
        loss: ``"metric"``, ``"cross_entropy"`` or ``"surrogate_fbeta"``.
        cross_entropy: Weight of the cross-entropy that is added to the metric's loss.
        class_weighting: Class weights in that cross-entropy, or in a loss that is cross-entropy alone: ``"none"``,
            ``"sqrt"`` (∝ prior^-1/2) or ``"full"``.
        warm_start_epochs: Epochs of cross-entropy alone before the metric joins in.
        step: The approximation of the step function, as in :class:`metricfit.MetricLoss`.
        temperature: T of the annealed step, at the start.
        memory: Decay of the cross-batch memory of the confusion matrix; 0 is none.
        annealing: ``"plateau"`` cools when the validation loss stops decreasing (EAST), ``"step"`` every epoch.
        cooling: The factor r of a cooling.
        patience: Epochs without improvement that make a plateau; then cool (``annealing="plateau"``) or stop. 0 never
            stops early.
        min_delta: What is better by no more than this, by validation, is no improvement to ``patience``.
        max_fruitless: Coolings in a row without improvement after which a member is finished.
        batch_size: Rows in a batch.
        stratified: Whether each batch holds the classes in their overall shares.
        max_epochs: Passes over the data, unless the bounds on steps say otherwise.
        min_steps: Optimiser steps at least: small data get more epochs.
        max_steps: Optimiser steps at most: large data get fewer epochs.
        learning_rate: Of AdamW, after the warm-up.
        warm_up_steps: Steps over which the learning rate rises from 0.
        schedule: ``"cosine"`` to 0 over the whole run, or ``"constant"``.
        weight_decay: Of AdamW; not on biases.
        gradient_clip: Largest norm of a member's gradient; 0 does not clip.
        network: ``"mlp"``, ``"linear"``, or, given to the classifier, a module or a factory of modules.
        hidden_sizes: Widths of the MLP's hidden layers.
        dropout: Share of activations dropped after each hidden layer.
        averaging: Horizon in epochs of the moving average of the weights; 0 averages nothing.
        selection: What picks the checkpoint that is kept, on validation data: the ``"soft"`` metric at
            ``selection_temperature``, the ``"hard"`` (exact) metric, ``"cross_entropy"``, the ``"loss"`` as trained
            (the metric at the current temperature, the surrogate), or simply the ``"last"``.
        selection_temperature: T of the soft metric for the selection.
        checkpoints: About how many times in a run the selection looks.
        rule: ``"argmax"``, or ``"tuned"``: class offsets or a threshold chosen on out-of-fold probabilities.

    >>> get_recipe("default").cross_entropy
    0.5
    >>> get_recipe("east", patience=5).patience
    5
    """

    name: str = "default"
    loss: Loss = "metric"
    cross_entropy: float = 0.5
    class_weighting: Balance = "sqrt"
    warm_start_epochs: int = 0
    step: str = "annealed"
    temperature: float = 0.2
    memory: float = 0.9
    annealing: Annealing = "none"
    cooling: float = 0.9
    patience: int = 0
    min_delta: float = 0.0
    max_fruitless: int = 3
    batch_size: int = 512
    stratified: bool = True
    max_epochs: int = 40
    min_steps: int = 600
    max_steps: int = 20_000
    learning_rate: float = 5e-3
    warm_up_steps: int = 20
    schedule: Schedule = "cosine"
    weight_decay: float = 1e-2
    gradient_clip: float = 0.0
    network: str = "mlp"
    hidden_sizes: tuple[int, ...] = (128, 64)
    dropout: float = 0.1
    averaging: float = 3.0
    selection: Selection = "soft"
    selection_temperature: float = 0.1
    checkpoints: int = 50
    rule: Rule = "argmax"

    def __post_init__(self) -> None:
        """Check every part and that the parts fit together; NumPy's numbers become Python's."""
        for field in fields(self):
            object.__setattr__(self, field.name, _plain(field.name, getattr(self, field.name), field.default))
        _check_choices(self)
        _check_numbers(self)
        step = get_step(self.step)
        check_temperature(self.temperature)
        check_temperature(self.selection_temperature)
        if self.annealing != "none" and (self.loss != "metric" or not isinstance(step, Annealed)):
            raise ValueError(
                f"annealing: has no effect with loss={self.loss!r} and step={self.step!r}; only the metric's "
                "annealed step has a temperature."
            )
        if self.annealing == "plateau" and not self.patience:
            raise ValueError("patience: annealing='plateau' needs a patience of at least 1 epoch, got 0.")

    def epochs(self, steps_per_epoch: int) -> int:
        """Passes over the data, given the steps of one."""
        at_least = -(-self.min_steps // steps_per_epoch)
        at_most = max(1, self.max_steps // steps_per_epoch)
        return max(1, at_least, min(self.max_epochs, at_most))


def get_recipe(recipe: str | Recipe, **overrides: Any) -> Recipe:
    """A recipe by name, with some of its parts replaced; ``None`` keeps a part.

    >>> get_recipe("cross_entropy", rule="tuned", learning_rate=None).rule
    'tuned'
    >>> get_recipe("easy")
    Traceback (most recent call last):
        ...
    ValueError: recipe: unknown name 'easy'; did you mean 'east'? The recipes are default, east, cross_entropy, ...
    """
    if isinstance(recipe, str):
        if recipe not in RECIPES:
            close = difflib.get_close_matches(recipe, RECIPES, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise ValueError(f"recipe: unknown name {recipe!r}; {hint}The recipes are {', '.join(RECIPES)}.")
        found = RECIPES[recipe]
    elif isinstance(recipe, Recipe):
        found = recipe
    else:
        raise TypeError(f"recipe: expected a name or a Recipe, got {type(recipe).__name__}.")
    known = {field.name for field in fields(Recipe)}
    if unknown := sorted(set(overrides) - known):
        raise ValueError(f"recipe: has no part {unknown[0]!r}; the parts are {', '.join(sorted(known))}.")
    return replace(found, **{key: value for key, value in overrides.items() if value is not None})


def _check_choices(recipe: Recipe) -> None:
    choices: dict[str, Any] = {
        "loss": Loss,
        "class_weighting": Balance,
        "annealing": Annealing,
        "schedule": Schedule,
        "selection": Selection,
        "rule": Rule,
    }
    for part, literal in choices.items():
        value = getattr(recipe, part)
        if value not in get_args(literal):
            raise ValueError(f"{part}: expected one of {', '.join(map(repr, get_args(literal)))}, got {value!r}.")


_AT_LEAST = {
    "batch_size": 1, "max_epochs": 1, "max_steps": 1, "checkpoints": 1, "max_fruitless": 1, "min_steps": 0,
    "warm_up_steps": 0, "warm_start_epochs": 0, "patience": 0, "cross_entropy": 0, "weight_decay": 0,
    "gradient_clip": 0, "averaging": 0, "min_delta": 0,
}  # fmt: skip


def _plain(part: str, value: Any, default: Any) -> Any:
    """A part's value as the plain Python type of its default."""
    if isinstance(default, bool):
        if not isinstance(value, bool | np.bool_ | numbers.Integral) or value not in (0, 1):
            raise ValueError(f"{part}: expected True or False, got {value!r}.")
        return bool(value)
    if isinstance(default, tuple):
        return _plain_sizes(part, value)
    if isinstance(default, int | float):
        if not _is_number(value):
            bound = f" >= {_AT_LEAST[part]}" if part in _AT_LEAST else ""
            raise ValueError(f"{part}: expected a number{bound}, got {value!r}.")
        if isinstance(default, float):
            return float(value)
        if int(value) != value:
            raise ValueError(f"{part}: expected a whole number, got {value!r}.")
        return int(value)
    return str(value) if isinstance(value, str) else value


def _plain_sizes(part: str, value: Any) -> tuple[int, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable) or getattr(value, "ndim", 1) != 1:
        raise ValueError(f"{part}: expected a sequence of widths, such as (128, 64), got {value!r}.")
    sizes = tuple(value)
    if any(not _is_number(size) or int(size) != size or size < 1 for size in sizes):
        raise ValueError(f"{part}: expected widths >= 1, whole numbers, got {sizes}.")
    return tuple(int(size) for size in sizes)


def _is_number(value: Any) -> bool:
    """Whether it is a finite number, of Python or NumPy, and no truth value."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_) and math.isfinite(value)


def _check_numbers(recipe: Recipe) -> None:
    for part, least in _AT_LEAST.items():
        if getattr(recipe, part) < least:
            raise ValueError(f"{part}: expected a number >= {least}, got {getattr(recipe, part)!r}.")
    if not recipe.learning_rate > 0:
        raise ValueError(f"learning_rate: expected a number > 0, got {recipe.learning_rate!r}.")
    for part in ("memory", "dropout"):
        if not 0 <= getattr(recipe, part) < 1:
            raise ValueError(f"{part}: expected a number in [0, 1), got {getattr(recipe, part)!r}.")
    if not 0 < recipe.cooling < 1:
        raise ValueError(f"cooling: expected a factor strictly between 0 and 1, got {recipe.cooling!r}.")
    if recipe.loss == "cross_entropy" and not recipe.cross_entropy:
        raise ValueError("cross_entropy: its weight is 0 and loss='cross_entropy': nothing would be trained.")


_EAST = Recipe(
    name="east",
    cross_entropy=0.0,
    class_weighting="none",
    memory=0.0,
    annealing="plateau",
    cooling=0.9,
    patience=10,
    min_delta=1e-4,
    max_epochs=400,
    min_steps=0,
    learning_rate=1e-3,
    schedule="constant",
    warm_up_steps=0,
    hidden_sizes=(512, 256, 128),
    dropout=0.25,
    averaging=0.0,
    stratified=False,
    selection="loss",
)

_CROSS_ENTROPY = Recipe(
    name="cross_entropy",
    loss="cross_entropy",
    cross_entropy=1.0,
    class_weighting="none",
    memory=0.0,
    selection="cross_entropy",
)

RECIPES: dict[str, Recipe] = {
    "default": Recipe(),
    "east": _EAST,
    "cross_entropy": _CROSS_ENTROPY,
    "surrogate_fbeta": Recipe(
        name="surrogate_fbeta", loss="surrogate_fbeta", cross_entropy=0.0, class_weighting="none", memory=0.0,
        selection="hard",
    ),
    "anyloss": Recipe(
        name="anyloss", cross_entropy=0.0, class_weighting="none", memory=0.0, step="amplifier", selection="hard",
    ),
}  # fmt: skip
"""The recipes by name: the default; EAST as in the paper; cross-entropy; surrogate F-beta; AnyLoss."""
