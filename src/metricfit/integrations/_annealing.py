"""What the annealing callbacks of all libraries share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypedDict, get_args

from torch import nn

from metricfit.annealing import HasTemperature, TemperatureAnnealer

__all__ = ["AnnealingMode", "AnnealingOptions", "check_mode", "losses_of", "make_annealer", "missing_library"]

AnnealingMode = Literal["plateau", "epoch"]


class AnnealingOptions(TypedDict, total=False):
    """Options of :class:`metricfit.TemperatureAnnealer`, passed on."""

    factor: float
    patience: int
    min_delta: float
    max_fruitless: int
    every: int
    minimum: float


_EFFECTIVE: dict[str, set[str]] = {
    "plateau": {"factor", "patience", "min_delta", "max_fruitless", "minimum"},
    "epoch": {"factor", "every", "minimum"},
}


def check_mode(mode: AnnealingMode, monitor: str | None, options: AnnealingOptions) -> None:
    """Raise on an unknown mode, and on options that have no effect with it.

    >>> check_mode("epoch", None, {"patience": 3})
    Traceback (most recent call last):
        ...
    ValueError: patience: has no effect with mode='epoch', which takes every, factor and minimum.
    """
    if mode not in get_args(AnnealingMode):
        raise ValueError(f"mode: expected 'plateau' or 'epoch', got {mode!r}.")
    if mode == "epoch" and monitor is not None:
        raise ValueError("monitor: has no effect with mode='epoch', which cools by the clock.")
    for name in options:
        if name not in _EFFECTIVE[mode]:
            *most, last = sorted(_EFFECTIVE[mode])
            raise ValueError(f"{name}: has no effect with mode={mode!r}, which takes {', '.join(most)} and {last}.")


def make_annealer(
    loss: HasTemperature | Iterable[HasTemperature], mode: AnnealingMode, options: AnnealingOptions
) -> TemperatureAnnealer:
    """The annealer behind a callback."""
    return TemperatureAnnealer(loss, mode="plateau" if mode == "plateau" else "step", **options)


def losses_of(module: nn.Module) -> list[Any]:
    """Every submodule that has a temperature.

    >>> from metricfit import MetricLoss
    >>> [str(loss.metric) for loss in losses_of(nn.ModuleList([nn.Linear(2, 2), MetricLoss("mcc")]))]
    ['mcc']
    """
    found = [
        part
        for part in module.modules()
        if callable(getattr(part, "set_temperature", None)) and getattr(part, "temperature", None) is not None
    ]
    if not found:
        raise ValueError(
            f"loss: {type(module).__name__} holds no loss with a temperature; assign it in __init__, such as "
            "self.loss = MetricLoss('f1'), with step='annealed'."
        )
    return found


def missing_library(library: str, extra: str) -> str:
    """What to say when an optional library is not there."""
    return f"metricfit.integrations needs {library}; install it with: pip install 'metricfit[{extra}]'"
