"""TemperatureAnnealing in Lightning: cools as the annealer does, and resumes exactly from a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from metricfit import MetricLoss, TemperatureAnnealer
from tests.integrations.helper import blobs, network

pl = pytest.importorskip("lightning.pytorch", reason="lightning is not installed: make test-slow installs it")

from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: E402

from metricfit.integrations.lightning import TemperatureAnnealing  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*number of training batches"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists"),
    pytest.mark.filterwarnings("ignore:.*`isinstance.treespec, LeafSpec.` is deprecated"),
]


class Module(pl.LightningModule):
    """Logs the temperature that each epoch was trained and validated with."""

    def __init__(self, validation_losses: list[float] | None = None) -> None:
        super().__init__()
        self.network = network()
        self.loss = MetricLoss("f1", average="macro", memory=0.5)
        self.validation_losses = validation_losses
        self.temperatures: list[float] = []

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        return self.loss(self.network(batch[0]), batch[1])

    def on_train_epoch_start(self) -> None:
        self.temperatures.append(round(self.loss.temperature.item(), 6))

    def validation_step(self, batch: Any, index: int) -> None:
        value = self.loss(self.network(batch[0]), batch[1])
        if self.validation_losses is not None:
            value = torch.tensor(self.validation_losses[self.current_epoch])
        self.log("val_loss", value)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.05)


def run(module: Module, *callbacks: Any, epochs: int = 6, checkpoint: str | None = None, **options: Any) -> Any:
    loader = DataLoader(TensorDataset(*blobs()), batch_size=32)
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=any(isinstance(one, ModelCheckpoint) for one in callbacks),
        callbacks=list(callbacks),
        **options,
    )
    trainer.fit(module, loader, loader, ckpt_path=checkpoint)
    return trainer


LOSSES = [0.5, 0.4, 0.4, 0.4, 0.3, 0.3]


def test_plateau_cools_as_the_annealer_does() -> None:
    module = Module(LOSSES)
    trainer = run(module, TemperatureAnnealing(factor=0.5, patience=1))
    loss = MetricLoss("f1")
    annealer = TemperatureAnnealer(loss, factor=0.5, patience=1)
    expected = []
    for value in LOSSES:
        expected.append(round(loss.temperature.item(), 6))
        annealer.step(value)
    assert module.temperatures == expected == [0.2, 0.2, 0.2, 0.1, 0.1, 0.1]
    assert trainer.callback_metrics["temperature"].item() == pytest.approx(0.1)


def test_epoch_mode_cools_by_the_clock() -> None:
    module = Module()
    run(module, TemperatureAnnealing(mode="epoch", factor=0.5, every=2))
    assert module.temperatures == [0.2, 0.2, 0.1, 0.1, 0.05, 0.05]


def test_training_ends_when_cooling_is_pointless() -> None:
    flat = [0.5] * 20
    module = Module(flat)
    run(module, TemperatureAnnealing(patience=1, max_fruitless=2), epochs=20)
    stopped = len(module.temperatures)
    assert stopped < 20
    module = Module(flat)
    run(module, TemperatureAnnealing(patience=1, max_fruitless=2, stop=False), epochs=20)
    assert len(module.temperatures) == 20


@pytest.mark.parametrize("at_end_of", ["validation", "epoch"])
@pytest.mark.parametrize("mode", ["plateau", "epoch"])
def test_a_resumed_run_ends_with_the_same_weights(mode: str, at_end_of: str, tmp_path: Path) -> None:
    def callback() -> TemperatureAnnealing:
        options = {"patience": 1, "min_delta": 0.05, "stop": False} if mode == "plateau" else {}
        return TemperatureAnnealing(mode=mode, factor=0.7, **options)

    def saving() -> ModelCheckpoint:
        return ModelCheckpoint(
            tmp_path, save_top_k=-1, filename="{epoch}", save_on_train_epoch_end=at_end_of == "epoch"
        )

    whole = Module()
    annealing = callback()
    run(whole, annealing, epochs=8)
    first = Module()
    run(first, callback(), saving(), epochs=4)
    second = Module()
    resumed = callback()
    run(second, resumed, saving(), epochs=8, checkpoint=str(tmp_path / "epoch=3.ckpt"))
    assert len(set(whole.temperatures)) > 1, "nothing was cooled"
    assert first.temperatures + second.temperatures == whole.temperatures
    assert resumed.state_dict() == annealing.state_dict()
    for (name, a), b in zip(whole.state_dict().items(), second.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


def test_only_the_named_loss_is_cooled() -> None:
    module = Module()
    module.other = MetricLoss("mcc")
    run(module, TemperatureAnnealing(mode="epoch", factor=0.5, loss="loss"), epochs=2)
    assert module.loss.temperature.item() == pytest.approx(0.1)
    assert module.other.temperature.item() == pytest.approx(0.2)
    module = Module()
    module.other = MetricLoss("mcc")
    run(module, TemperatureAnnealing(mode="epoch", factor=0.5), epochs=2)
    assert module.loss.temperature.item() == pytest.approx(0.1)
    assert module.other.temperature.item() == pytest.approx(0.1)


def test_it_also_serves_the_package_pytorch_lightning() -> None:
    other = pytest.importorskip("pytorch_lightning")
    module = other.LightningModule()
    module.network, module.loss = network(), MetricLoss("f1")
    module.training_step = lambda batch, batch_idx: module.loss(module.network(batch[0]), batch[1])
    module.configure_optimizers = lambda: torch.optim.SGD(module.parameters(), lr=0.1)
    trainer = other.Trainer(
        max_epochs=3,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[TemperatureAnnealing(mode="epoch", factor=0.5)],
    )
    trainer.fit(module, DataLoader(TensorDataset(*blobs()), batch_size=32))
    assert module.loss.temperature.item() == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "batch"}, "mode: expected 'plateau' or 'epoch'"),
        ({"mode": "epoch", "monitor": "val_loss"}, "monitor: has no effect"),
        ({"mode": "epoch", "patience": 3}, "patience: has no effect with mode='epoch'"),
        ({"every": 3}, "every: has no effect with mode='plateau'"),
    ],
)
def test_options_without_effect_are_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TemperatureAnnealing(**options)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ValueError, match="monitor: 'valid' was not logged"):
        run(Module(), TemperatureAnnealing("valid"), epochs=1)
    with pytest.raises(ValueError, match="loss: Module has no attribute 'criterion'"):
        run(Module(), TemperatureAnnealing(loss="criterion"), epochs=1)
    module = Module()
    module.loss = torch.nn.CrossEntropyLoss()
    with pytest.raises(ValueError, match="loss: Module holds no loss with a temperature"):
        run(module, TemperatureAnnealing(), epochs=1)
