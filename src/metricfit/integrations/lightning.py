"""Lightning: ``MetricLoss`` is an ordinary attribute of the LightningModule; this callback cools its temperature."""

from __future__ import annotations

from typing import Any

from metricfit.annealing import Mode
from metricfit.integrations import Schedule, library, losses_of

try:
    Callback: Any = library("lightning.pytorch", "metricfit[lightning]").Callback
except ImportError:
    Callback = library("pytorch_lightning", "metricfit[lightning]").Callback

__all__ = ["TemperatureAnnealing"]


class TemperatureAnnealing(Callback):  # type: ignore[misc]
    """Cool the temperature of a module's metric losses: T_k = T_0 r^k.

    The temperature is a buffer of the loss, so it is part of the module's checkpoint. The schedule's own state is saved
    beside it: a run resumed with ``ckpt_path`` goes on as if it had never stopped. With several processes the first
    one decides when to cool.

    Args:
        monitor: The logged validation loss that ``mode="plateau"`` watches, ``"val_loss"`` by default. Log it with
            ``sync_dist=True`` where there are several processes.
        mode: ``"plateau"`` cools when the validation loss has stopped falling, as EAST does, and counts validation
            runs; ``"epoch"`` cools every ``every`` epochs.
        loss: Name of the module's attribute, such as ``"loss"``; by default every metric loss in the module.
        stop: Whether to end training once further cooling is pointless (``mode="plateau"``).
        options: Of :class:`metricfit.TemperatureAnnealer`: ``factor``, ``patience``, ``min_delta`` and so on.

    Example:
        ``Trainer(callbacks=[TemperatureAnnealing("val_loss", patience=5)])``; see ``examples/with_lightning.py``.
    """

    def __init__(
        self, monitor: str | None = None, *, mode: Mode = "plateau", loss: str = "", stop: bool = True, **options: Any
    ) -> None:
        super().__init__()
        self.schedule, self.loss = Schedule(mode, monitor, "val_loss", stop, options), loss

    @property
    def annealer(self) -> Any:
        """The :class:`metricfit.TemperatureAnnealer`, None before training."""
        return self.schedule.annealer

    @property
    def state_key(self) -> str:
        """Distinguishes several of these callbacks in a checkpoint."""
        identity = {"monitor": self.schedule.monitor, "mode": self.schedule.mode, "loss": self.loss or None}
        return str(self._generate_state_key(**identity))

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Find the losses, before a checkpoint is restored."""
        if stage != "fit":
            return
        chosen = getattr(pl_module, self.loss, None) if self.loss else pl_module
        if chosen is None:
            raise ValueError(f"loss: {type(pl_module).__name__} has no attribute {self.loss!r}.")
        losses = losses_of(chosen)
        if self.annealer is None or self.annealer.losses != losses:  # else the same schedule goes on
            self.schedule.attach(losses)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Cool by the clock, and log the temperature of the epoch."""
        self.schedule.reach(trainer.current_epoch)
        pl_module.log("temperature", self.schedule.annealer.temperature)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Give the validation loss to the schedule."""
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        monitor, values = self.schedule.monitor, dict(trainer.callback_metrics)
        if monitor in values:
            values[monitor] = trainer.strategy.broadcast(float(values[monitor]))
        missing = f"{monitor!r} was not logged (but {{}}); log it in validation_step, or name another."
        trainer.should_stop |= self.schedule.observe(values, missing)

    def state_dict(self) -> dict[str, Any]:
        """The schedule, for the checkpoint."""
        return {} if self.annealer is None else self.annealer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint; Lightning restores it after :meth:`setup`."""
        if self.annealer is not None and state_dict:
            self.annealer.load_state_dict(state_dict)
