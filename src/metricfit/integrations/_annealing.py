"""What the annealing callbacks of all libraries share: options, the losses that are cooled, when to cool and stop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, get_args

from torch import nn

from metricfit.annealing import Mode as AnnealingMode
from metricfit.annealing import TemperatureAnnealer

__all__ = ["AnnealingMode", "AnnealingOptions", "Schedule", "missing_library"]


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


class Schedule:
    """The schedule behind a callback; it has an annealer once the losses are known.

    ``usual`` is the library's name of the validation loss, watched where no ``monitor`` is given. An option that has no
    effect is an error.

    >>> Schedule("epoch", None, "val_loss", True, {"patience": 3})
    Traceback (most recent call last):
        ...
    ValueError: patience: has no effect with mode='epoch', which takes every, factor and minimum.
    """

    def __init__(
        self, mode: AnnealingMode, monitor: str | None, usual: str, stop: bool, options: AnnealingOptions
    ) -> None:
        if mode not in get_args(AnnealingMode):
            raise ValueError(f"mode: expected 'plateau' or 'epoch', got {mode!r}.")
        if mode == "epoch" and monitor is not None:
            raise ValueError("monitor: has no effect with mode='epoch', which cools by the clock.")
        for name in options:
            if name not in _EFFECTIVE[mode]:
                *most, last = sorted(_EFFECTIVE[mode])
                raise ValueError(f"{name}: has no effect with mode={mode!r}, which takes {', '.join(most)} and {last}.")
        self.mode, self.monitor, self.stop, self.options = mode, monitor or usual, stop, options
        self.annealer: TemperatureAnnealer | None = None

    @property
    def ready(self) -> TemperatureAnnealer:
        """The annealer; an error before :meth:`attach`."""
        if self.annealer is None:
            raise RuntimeError("TemperatureAnnealing: training began without this callback; add it before training.")
        return self.annealer

    def attach(self, module: nn.Module) -> TemperatureAnnealer:
        """Cool every loss in a module; the schedule goes on where the losses are the same as before."""
        losses = losses_of(module)
        if self.annealer is None or [id(one) for one in self.annealer.losses] != [id(one) for one in losses]:
            self.restart(losses)
        return self.ready

    def restart(self, losses: list[Any]) -> TemperatureAnnealer:
        """Begin anew with these losses."""
        self.annealer = TemperatureAnnealer(losses, mode=self.mode, **self.options)
        return self.annealer

    def reach(self, epoch: int) -> None:
        """Cool by the clock, up to an epoch's number: right wherever in an epoch a run was resumed."""
        while self.mode == "epoch" and self.ready.steps < epoch:
            self.ready.step()

    def observe(self, values: Mapping[str, Any], missing: str) -> bool:
        """Cool on a plateau of the monitored value; whether training should end.

        ``missing`` is the error if the value is not there; ``{}`` in it stands for the names of the others.
        """
        if self.mode == "epoch":
            return False
        if self.monitor not in values:
            raise ValueError(f"monitor: {missing.format(', '.join(sorted(values)) or 'nothing')}")
        self.ready.step(float(values[self.monitor]))
        return self.stop and self.ready.finished


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
            "self.loss = MetricLoss('f1')."
        )
    return found


def missing_library(library: str, extra: str) -> str:
    """The error for an optional library that is not installed."""
    return f"metricfit.integrations needs {library}; install it with: pip install 'metricfit[{extra}]'"
