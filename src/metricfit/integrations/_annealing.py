"""What the annealing callbacks of all libraries share: options, the losses to cool, when to cool and when to stop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn

from metricfit.annealing import Mode as AnnealingMode
from metricfit.annealing import TemperatureAnnealer

__all__ = ["AnnealingMode", "Schedule", "losses_of", "needed"]

_EFFECTIVE = {
    "plateau": ("factor", "max_fruitless", "min_delta", "minimum", "patience"),
    "epoch": ("every", "factor", "minimum"),
}


class Schedule:
    """The schedule behind a callback; its ``annealer`` is None until the losses are known.

    ``usual`` is the library's name of the validation loss, watched where no ``monitor`` is given. An option that has no
    effect is an error.

    >>> Schedule("epoch", None, "val_loss", True, {"patience": 3})
    Traceback (most recent call last):
        ...
    ValueError: patience: has no effect with mode='epoch', which takes every, factor and minimum.
    """

    def __init__(
        self, mode: AnnealingMode, monitor: str | None, usual: str, stop: bool, options: dict[str, Any]
    ) -> None:
        if mode not in _EFFECTIVE:
            raise ValueError(f"mode: expected 'plateau' or 'epoch', got {mode!r}.")
        if mode == "epoch" and monitor is not None:
            raise ValueError("monitor: has no effect with mode='epoch', which cools by the clock.")
        *most, last = _EFFECTIVE[mode]
        if idle := [name for name in options if name not in (*most, last)]:
            raise ValueError(f"{idle[0]}: has no effect with mode={mode!r}, which takes {', '.join(most)} and {last}.")
        self.mode, self.monitor, self.stop, self.options = mode, monitor or usual, stop, options
        self.annealer: Any = None

    def attach(self, losses: list[Any], *, anew: bool = False) -> None:
        """Cool these losses; unless it starts ``anew``, the schedule goes on where they are the same as before."""
        if anew or self.annealer is None or [*map(id, self.annealer.losses)] != [*map(id, losses)]:
            self.annealer = TemperatureAnnealer(losses, mode=self.mode, **self.options)

    def reach(self, epoch: int) -> None:
        """Cool by the clock, up to an epoch's number: right wherever in an epoch a run was resumed."""
        while self.mode == "epoch" and self.annealer.steps < epoch:
            self.annealer.step()

    def observe(self, values: Mapping[str, Any], missing: str) -> bool:
        """Cool on a plateau of the monitored value; whether training should end.

        ``missing`` is the error if the value is not there; ``{}`` in it stands for the names of the others.
        """
        if self.mode == "epoch":
            return False
        if self.monitor not in values:
            raise ValueError(f"monitor: {missing.format(', '.join(sorted(values)) or 'nothing')}")
        self.annealer.step(float(values[self.monitor]))
        return bool(self.stop and self.annealer.finished)


def losses_of(module: nn.Module) -> list[Any]:
    """Every submodule that has a temperature.

    >>> from metricfit import MetricLoss
    >>> [str(loss.metric) for loss in losses_of(nn.ModuleList([nn.Linear(2, 2), MetricLoss("mcc")]))]
    ['mcc']
    """
    found = [part for part in module.modules() if getattr(part, "temperature", None) is not None]
    if not found:
        raise ValueError(
            f"loss: {type(module).__name__} holds no loss with a temperature; assign it in __init__, such as "
            "self.loss = MetricLoss('f1')."
        )
    return found


@contextmanager
def needed(library: str, extra: str) -> Iterator[None]:
    """Imports of an optional library: where it is not installed, the error says how to install it."""
    try:
        yield
    except ImportError as error:
        advice = f"install it with: pip install 'metricfit[{extra}]'"
        raise ImportError(f"metricfit.integrations needs {library}; {advice}") from error
