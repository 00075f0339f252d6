"""Lightning: ``MetricLoss`` is an ordinary attribute of the LightningModule; this callback cools its temperature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from metricfit.integrations._annealing import (
    AnnealingMode,
    AnnealingOptions,
    check_mode,
    losses_of,
    make_annealer,
    missing_library,
)

if TYPE_CHECKING:
    import lightning.pytorch as pl
    from lightning.pytorch import Callback

    from metricfit.annealing import TemperatureAnnealer
else:
    try:
        from lightning.pytorch import Callback
    except ImportError:
        try:
            from pytorch_lightning import Callback
        except ImportError as error:
            raise ImportError(missing_library("lightning", "lightning")) from error

__all__ = ["TemperatureAnnealing"]


class TemperatureAnnealing(Callback):  # type: ignore[misc]
    """Cool the temperature of a module's metric losses: T_k = T_0 r^k.

    The temperature is a buffer of the loss, hence part of the module's checkpoint; the schedule's own state is saved
    beside it, so that a run resumed with ``ckpt_path`` goes on as if it had never stopped. Several processes take
    the first one's word on when to cool.

    Args:
        monitor: The logged validation loss that ``mode="plateau"`` watches, ``"val_loss"`` by default. Log it with
            ``sync_dist=True`` where there are several processes.
        mode: ``"plateau"`` cools when the validation loss has stopped falling, as EAST does, and counts validation
            runs; ``"epoch"`` cools every ``every`` epochs.
        loss: Name of the module's attribute, such as ``"loss"``; by default every metric loss in the module.
        stop: Whether to end training once further cooling is pointless (``mode="plateau"``).
        options: ``factor``, ``patience``, ``min_delta``, ``max_fruitless``, ``every``, ``minimum`` of
            :class:`metricfit.TemperatureAnnealer`.

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
        **options: Unpack[AnnealingOptions],
    ) -> None:
        super().__init__()
        check_mode(mode, monitor, options)
        self.monitor = "val_loss" if monitor is None else monitor
        self.mode, self.loss, self.stop, self.options = mode, loss, stop, options
        self.annealer: TemperatureAnnealer | None = None
        self._saved: dict[str, Any] | None = None

    @property
    def state_key(self) -> str:
        """Tells several of these callbacks apart in a checkpoint."""
        return str(self._generate_state_key(monitor=self.monitor, mode=self.mode, loss=self.loss))

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Find the losses, before a checkpoint is restored."""
        if stage != "fit":
            return
        chosen = pl_module if self.loss is None else getattr(pl_module, self.loss, None)
        if chosen is None:
            raise ValueError(f"loss: {type(pl_module).__name__} has no attribute {self.loss!r}.")
        losses = losses_of(chosen)
        if self.annealer is None or [id(one) for one in self.annealer.losses] != [id(one) for one in losses]:
            self.annealer = make_annealer(losses, self.mode, self.options)
        self._restore()

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Cool by the clock, and log the temperature of the epoch."""
        annealer = self._ready()
        # The epoch's number decides, not how often this was called: right wherever in an epoch a run was resumed.
        while self.mode == "epoch" and annealer.steps < trainer.current_epoch:
            annealer.step()
        pl_module.log("temperature", annealer.temperature)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Tell the schedule of the validation loss."""
        if self.mode == "epoch" or trainer.sanity_checking or trainer.state.fn != "fit":
            return
        if self.monitor not in trainer.callback_metrics:
            known = ", ".join(sorted(trainer.callback_metrics)) or "nothing"
            raise ValueError(
                f"monitor: {self.monitor!r} was not logged (but {known}); log it in validation_step, or name another."
            )
        annealer = self._ready()
        value = trainer.strategy.broadcast(float(trainer.callback_metrics[self.monitor]))
        annealer.step(value)
        if self.stop and annealer.finished:
            trainer.should_stop = True

    def state_dict(self) -> dict[str, Any]:
        """The schedule, for the checkpoint."""
        return {} if self.annealer is None else self.annealer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self._saved = dict(state_dict) or None
        self._restore()

    def _restore(self) -> None:
        if self.annealer is not None and self._saved is not None:
            self.annealer.load_state_dict(self._saved)
            self._saved = None

    def _ready(self) -> TemperatureAnnealer:
        if self.annealer is None:
            raise RuntimeError("TemperatureAnnealing: setup was not called; pass the callback to Trainer(callbacks=…).")
        return self.annealer
