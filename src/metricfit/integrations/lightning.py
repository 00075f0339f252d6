"""Lightning: ``MetricLoss`` is an ordinary attribute of the LightningModule; this callback cools its temperature."""

from __future__ import annotations

from typing import Any

from metricfit.integrations._annealing import AnnealingMode, Schedule, losses_of, needed

with needed("lightning", "lightning"):
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback

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
        self,
        monitor: str | None = None,
        *,
        mode: AnnealingMode = "plateau",
        loss: str | None = None,
        stop: bool = True,
        **options: Any,
    ) -> None:
        super().__init__()
        self.schedule, self.loss = Schedule(mode, monitor, "val_loss", stop, options), loss
        self._saved: dict[str, Any] = {}

    @property
    def annealer(self) -> Any:
        """The :class:`metricfit.TemperatureAnnealer`, None before training."""
        return self.schedule.annealer

    @property
    def state_key(self) -> str:
        """Distinguishes several of these callbacks in a checkpoint."""
        return str(self._generate_state_key(monitor=self.schedule.monitor, mode=self.schedule.mode, loss=self.loss))

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Find the losses, before a checkpoint is restored."""
        if stage != "fit":
            return
        chosen = pl_module if self.loss is None else getattr(pl_module, self.loss, None)
        if chosen is None:
            raise ValueError(f"loss: {type(pl_module).__name__} has no attribute {self.loss!r}.")
        self.schedule.attach(losses_of(chosen))
        self.load_state_dict(self._saved)

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
        if self.schedule.observe(values, missing):
            trainer.should_stop = True

    def state_dict(self) -> dict[str, Any]:
        """The schedule, for the checkpoint."""
        return {} if self.annealer is None else self.annealer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint, as soon as the losses are known."""
        self._saved = dict(state_dict)
        if self.annealer is not None and self._saved:
            self.annealer.load_state_dict(self._saved)
            self._saved = {}
