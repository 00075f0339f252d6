"""Cooling schedules for the temperature of a metric loss (east section 4.3)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal, get_args

from metricfit.inputs import expect

__all__ = ["TemperatureAnnealer"]

Mode = Literal["plateau", "epoch"]


class TemperatureAnnealer:
    """Geometric cooling T_k = T_0 r^k, used like a learning-rate scheduler.

    ``mode="plateau"`` is EAST: train at one temperature until the validation loss has not decreased for ``patience``
    steps, cool, and be ``finished`` when ``max_fruitless`` coolings in a row brought no improvement over the best
    loss of all earlier temperatures. ``mode="epoch"`` cools every ``every`` calls of :meth:`step`.

    Args:
        loss: A :class:`metricfit.MetricLoss` (or anything with a ``temperature`` and ``set_temperature``), or several.
        factor: r, in (0, 1); the paper searches {0.8, 0.9}.
        mode: "plateau" or "epoch".
        patience: Steps without a decrease that make a plateau (mode "plateau").
        min_delta: A decrease smaller than this does not count (mode "plateau").
        max_fruitless: Coolings without improvement after which the annealing is finished (mode "plateau").
        every: Steps between two coolings (mode "epoch").
        minimum: The temperature is not lowered below this.

    >>> from metricfit import MetricLoss
    >>> loss = MetricLoss("mcc")
    >>> annealer = TemperatureAnnealer(loss, factor=0.5, patience=1)
    >>> [annealer.step(value) for value in (0.5, 0.4, 0.4)]  # True: cooled
    [False, False, True]
    >>> loss.temperature
    tensor(0.1000)
    """

    def __init__(
        self, loss: Any, *, factor: float = 0.9, mode: Mode = "plateau", patience: int = 10, min_delta: float = 0.0,
        max_fruitless: int = 3, every: int = 1, minimum: float = 1e-3,
    ) -> None:  # fmt: skip
        self.losses = list(loss) if isinstance(loss, Iterable) else [loss]
        if not self.losses or any(getattr(one, "temperature", None) is None for one in self.losses):
            raise ValueError("loss: expected a MetricLoss with a temperature, that is step='annealed'.")
        expect(mode in get_args(Mode), "mode", "'plateau' or 'epoch'", mode)
        expect(0 < factor < 1, "factor", "a number strictly between 0 and 1", factor)
        for name, value in {"patience": patience, "max_fruitless": max_fruitless, "every": every}.items():
            expect(value >= 1, name, "at least 1", value)
        expect(min_delta >= 0, "min_delta", "a number >= 0", min_delta)
        expect(minimum > 0, "minimum", "a temperature > 0", minimum)
        self.factor, self.mode, self.patience, self.min_delta = factor, mode, patience, min_delta
        self.max_fruitless, self.every, self.minimum = max_fruitless, every, minimum
        # Python floats, so that the schedule T_0 r^k does not collect float32 rounding.
        self.initial_temperature = float(f"{float(self.losses[0].temperature):.7g}")
        self.coolings = self.steps = self.fruitless = self.steps_without_decrease = 0
        self.best_before = self.best_here = math.inf

    @property
    def temperature(self) -> float:
        """T_0 r^k, not below the minimum."""
        return max(self.initial_temperature * self.factor**self.coolings, min(self.minimum, self.initial_temperature))

    @property
    def finished(self) -> bool:
        """Whether further cooling is pointless: fruitless several times, or at the minimum on a plateau."""
        at_end = self.temperature <= self.minimum and self.steps_without_decrease >= self.patience
        return self.mode == "plateau" and (self.fruitless >= self.max_fruitless or at_end)

    def step(self, validation_loss: float | None = None) -> bool:
        """Count one epoch (or step), cool when it is time, and say whether the temperature was lowered.

        Mode "plateau" needs the loss on validation data at the current temperature.
        """
        self.steps += 1
        if self.mode == "epoch":
            if validation_loss is not None:
                raise ValueError("validation_loss: has no effect with mode='epoch'.")
            return self.steps % self.every == 0 and self._cool()
        if validation_loss is None:
            raise ValueError("validation_loss: mode='plateau' needs the validation loss of each step.")
        value = float(validation_loss)
        if value < self.best_here - self.min_delta:  # false for NaN, which counts as no decrease
            self.best_here, self.steps_without_decrease = value, 0
            return False
        self.steps_without_decrease += 1
        if self.steps_without_decrease < self.patience or self.finished:
            return False
        self.fruitless = 0 if self.best_here < self.best_before - self.min_delta else self.fruitless + 1
        self.best_before = min(self.best_before, self.best_here)
        return not self.finished and self._cool()

    def _cool(self) -> bool:
        if self.temperature <= self.minimum:
            return False
        self.coolings += 1
        self.best_here, self.steps_without_decrease = math.inf, 0
        self._set_losses()
        return True

    def _set_losses(self) -> None:
        for loss in self.losses:
            loss.set_temperature(self.temperature)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on later."""
        return {key: value for key, value in vars(self).items() if key != "losses"}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a :meth:`state_dict`; sets the losses' temperature too."""
        unknown = set(state) ^ set(self.state_dict())
        if unknown:
            raise ValueError(f"state: expected the state_dict of a TemperatureAnnealer; differs in {sorted(unknown)}.")
        vars(self).update(state)
        self._set_losses()
