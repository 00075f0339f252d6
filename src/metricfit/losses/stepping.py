"""Which step a loss uses, and with which parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from numbers import Real
from typing import Any

from torch import Tensor

from metricfit.steps import (
    Step,
    amplifier_step,
    annealed_linear_step,
    identity_step,
    linear_step,
    sigmoid_step,
)

__all__ = ["HIGHEST_TEMPERATURE", "check_temperature", "check_tensor", "choose_step"]

HIGHEST_TEMPERATURE = 0.4
"""Above it the five points of east eq. 4 are out of order."""

_STEPS: dict[str, tuple[Callable[..., Tensor], str | None, float]] = {
    "annealed_linear": (annealed_linear_step, "temperature", 0.2),
    "linear": (linear_step, "delta", 0.1),
    "sigmoid": (sigmoid_step, "k", 10.0),
    "amplifier": (amplifier_step, "sharpness", 73.0),
    "identity": (identity_step, None, 0.0),
}


def check_temperature(temperature: float) -> float:
    """The temperature, if it is in (0, 0.4]."""
    if isinstance(temperature, bool) or not isinstance(temperature, Real):
        raise TypeError(f"temperature: expected a number, got {type(temperature).__name__}.")
    if not 0 < temperature <= HIGHEST_TEMPERATURE:
        raise ValueError(f"temperature: expected 0 < T <= {HIGHEST_TEMPERATURE}, got {temperature}.")
    return float(temperature)


def check_tensor(temperature: Tensor, *, look: bool) -> Tensor:
    """The same of a temperature that is a tensor; ``look`` at its value, for which a device has to finish."""
    if temperature.ndim or not temperature.is_floating_point():
        got = f"{temperature.dtype} of shape {tuple(temperature.shape)}"
        raise ValueError(f"temperature: expected a tensor that holds one floating-point number, got {got}.")
    # Compared in its own dtype: 0.4 in float32 is above 0.4.
    if look and not bool((temperature > 0) & (temperature <= HIGHEST_TEMPERATURE)):
        raise ValueError(f"temperature: expected 0 < T <= {HIGHEST_TEMPERATURE}, got {temperature.item():g}.")
    return temperature


def choose_step(
    step: str | Step,
    *,
    temperature: float | Tensor = 0.2,
    delta: float | None = None,
    k: float | None = None,
    sharpness: float | None = None,
) -> Step:
    """The step function with its parameter bound; a parameter that the step does not have is an error.

    >>> import torch
    >>> choose_step("sigmoid", k=20.0)(torch.tensor([0.5]), torch.tensor(0.5))
    tensor([0.5000])
    >>> choose_step("sigmoid", delta=0.2)
    Traceback (most recent call last):
        ...
    ValueError: delta: has no effect with step='sigmoid'.
    """
    name = step if isinstance(step, str) else "a function"
    if isinstance(step, str) and step not in _STEPS:
        raise ValueError(f"step: expected {', '.join(map(repr, _STEPS))} or a function (p, tau), got {step!r}.")
    if not isinstance(step, str) and not callable(step):
        raise TypeError(f"step: expected a name or a function (p, tau), got {type(step).__name__}.")
    entry: tuple[Callable[..., Tensor], str | None, float] = (
        _STEPS[step] if isinstance(step, str) else (step, None, 0.0)
    )
    function, parameter, default = entry
    given: dict[str, Any] = {"delta": delta, "k": k, "sharpness": sharpness}
    if not isinstance(temperature, Tensor):
        check_temperature(temperature)
        given["temperature"] = temperature if temperature != 0.2 else None
    for key, value in given.items():
        if value is not None and key != parameter:
            raise ValueError(f"{key}: has no effect with step={name!r}.")
    if parameter is None:
        return function
    if parameter == "temperature":
        return partial(function, temperature=temperature)
    value = default if given[parameter] is None else float(given[parameter])
    if parameter == "delta" and not 0 < value < 0.5:
        raise ValueError(f"delta: expected a number in (0, 0.5), got {value}.")
    if not value > 0:
        raise ValueError(f"{parameter}: expected a number > 0, got {value}.")
    return partial(function, **{parameter: value})
