"""What the integrations share: the annealing schedule behind a callback, the losses to cool, and missing libraries."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from torch import nn

from metricfit.annealing import Mode, TemperatureAnnealer
from metricfit.inputs import expect

_EFFECTIVE = {
    "plateau": ("factor", "max_fruitless", "min_delta", "minimum", "monitor", "patience"),
    "epoch": ("every", "factor", "minimum"),
}


class Schedule:
    """The schedule behind a callback: ``usual`` is watched where no ``monitor`` is given; idle options are errors."""

    def __init__(self, mode: Mode, monitor: str | None, usual: str, stop: bool, options: dict[str, Any]) -> None:
        expect(mode in _EFFECTIVE, "mode", "'plateau' or 'epoch'", mode)
        *most, last = _EFFECTIVE[mode]
        given = [*options, *(["monitor"] if monitor is not None else [])]
        if idle := [name for name in given if name not in (*most, last)]:
            raise ValueError(f"{idle[0]}: has no effect with mode={mode!r}, which takes {', '.join(most)} and {last}.")
        self.mode, self.monitor, self.stop, self.options = mode, monitor or usual, stop, options
        self.annealer: Any = None  # until the losses are known

    def attach(self, losses: list[Any]) -> None:
        """Cool these losses, from their temperature on."""
        self.annealer = TemperatureAnnealer(losses, mode=self.mode, **self.options)

    def reach(self, epoch: int) -> None:
        """Cool by the clock, up to an epoch's number: right wherever in an epoch a run was resumed."""
        while self.mode == "epoch" and self.annealer.steps < epoch:
            self.annealer.step()

    def observe(self, values: Mapping[str, Any], missing: str) -> bool:
        """Cool on a plateau of the monitored value, or raise ``missing`` with the others' names; whether to stop."""
        if self.mode == "epoch":
            return False
        if self.monitor not in values:
            raise ValueError(f"monitor: {missing.format(', '.join(sorted(values)) or 'nothing')}")
        self.annealer.step(float(values[self.monitor]))
        return bool(self.stop and self.annealer.finished)


def losses_of(module: nn.Module) -> list[Any]:
    """Every submodule that has a temperature."""
    found = [part for part in module.modules() if getattr(part, "temperature", None) is not None]
    if not found:
        advice = "assign one in __init__, such as self.loss = MetricLoss('f1')"
        raise ValueError(f"loss: {type(module).__name__} holds no loss with a temperature; {advice}.")
    return found


def library(module: str, package: str) -> Any:
    """A module of an optional library; where it is missing, the error says which package to install."""
    try:
        return import_module(module)
    except ImportError as error:
        advice = f"install it with: pip install '{package}'"
        raise ImportError(f"metricfit.integrations needs {module}; {advice}") from error
