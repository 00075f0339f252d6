"""skorch: ``criterion=MetricLoss, criterion__metric="f1"`` is all it takes; a callback cools the temperature."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metricfit.annealing import Mode
from metricfit.integrations import Schedule, library, losses_of

Callback: Any = library("skorch.callbacks", "metricfit[skorch]").Callback

__all__ = ["TemperatureAnnealing", "two_columns"]


def two_columns(logits: Tensor) -> Tensor:
    """Probabilities (N, 2) of one logit per sample: ``predict_nonlinearity`` of a ``NeuralNetBinaryClassifier``.

    skorch derives the nonlinearity from criteria that it knows, and takes the module's output as it is for others. So
    name it with a metric loss: this function for ``task="binary"``, ``torch.nn.Softmax(dim=-1)`` for the multiclass
    task of a ``NeuralNetClassifier``.

    >>> two_columns(torch.tensor([0.0, 2.0]))
    tensor([[0.5000, 0.5000],
            [0.1192, 0.8808]])
    """
    positive = logits.reshape(-1).sigmoid()
    return torch.stack([1 - positive, positive], dim=1)


class TemperatureAnnealing(Callback):  # type: ignore[misc]
    """Cool the temperature of the net's criterion.

    The schedule is read from ``net.history``, which skorch saves and loads with its checkpoints: a net that goes on
    by ``partial_fit`` or after ``LoadInitState`` cools as if it had never stopped. The temperature of each epoch is
    recorded there under ``"temperature"``.

    Args:
        monitor: The column of the history that ``mode="plateau"`` watches, ``"valid_loss"`` by default.
        mode: ``"plateau"`` cools when the validation loss has stopped falling; ``"epoch"`` every ``every`` epochs.
        stop: Whether to end training once further cooling is pointless (``mode="plateau"``).
        factor, patience, min_delta, max_fruitless, every, minimum: As in :class:`metricfit.TemperatureAnnealer`, whose
            defaults ``None`` means.

    Example:
        ``NeuralNetClassifier(…, callbacks=[TemperatureAnnealing(patience=5)])``; see ``examples/with_skorch.py``.
    """

    def __init__(
        self, monitor: str | None = None, *, mode: Mode = "plateau", stop: bool = True, factor: float | None = None,
        patience: int | None = None, min_delta: float | None = None, max_fruitless: int | None = None,
        every: int | None = None, minimum: float | None = None,
    ) -> None:  # fmt: skip
        # Stored one by one and checked later, so that scikit-learn's grid search can set each.
        self.monitor, self.mode, self.stop = monitor, mode, stop
        self.factor, self.patience, self.min_delta = factor, patience, min_delta
        self.max_fruitless, self.every, self.minimum = max_fruitless, every, minimum

    def initialize(self) -> TemperatureAnnealing:
        """Check the options and forget the schedule: the net starts afresh."""
        options = {name: value for name, value in self.get_params().items() if value is not None}
        mode, stop, monitor = options.pop("mode"), options.pop("stop"), options.pop("monitor", None)
        self.schedule_ = Schedule(mode, monitor, "valid_loss", stop, options)
        return self

    def on_epoch_begin(self, net: Any, **_: Any) -> None:
        """Catch up with the epochs of the history, and record the temperature of this one."""
        schedule, past, losses = self.schedule_, net.history[:-1], losses_of(net.criterion_)
        known = schedule.annealer
        if known is None or known.losses != losses or known.steps != len(past):
            for loss in losses if past else []:
                loss.set_temperature(past[0].get("temperature", float(loss.temperature)))
            schedule.attach(losses)
            for number, epoch in enumerate(past, start=1):
                self._count(number, epoch)
        net.history.record("temperature", schedule.annealer.temperature)

    def on_epoch_end(self, net: Any, **_: Any) -> None:
        """Give the epoch to the schedule."""
        if self._count(len(net.history), net.history[-1]):
            if net.verbose:
                print("Stopping since further cooling brings nothing.")
            raise KeyboardInterrupt  # how skorch's own callbacks end training

    def _count(self, number: int, epoch: dict[str, Any]) -> bool:
        self.schedule_.reach(number)
        missing = f"the history has no {self.schedule_.monitor!r}; leave train_split on, or name one of {{}}."
        return self.schedule_.observe({key: value for key, value in epoch.items() if key != "batches"}, missing)
