"""Lightning: the loss is one line of the LightningModule, the annealing one callback.

python examples/with_lightning.py        (pip install 'metricfit[lightning]')
"""

from __future__ import annotations

import logging

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from metricfit import MetricLoss
from metricfit.integrations.lightning import TemperatureAnnealing
from metricfit.integrations.torchmetrics import ConfusionMetric


def clouds(n: int, seed: int) -> TensorDataset:
    """Three overlapping clouds of points; the third class is one in twenty."""
    random = torch.Generator().manual_seed(seed)
    y = torch.multinomial(torch.tensor([0.65, 0.3, 0.05]), n, replacement=True, generator=random)
    centres = torch.tensor([[0.0, 0.0], [1.5, 1.0], [1.0, -1.5]])
    return TensorDataset(centres[y] + torch.randn(n, 2, generator=random), y)


class Classifier(pl.LightningModule):
    """A small network trained on macro F1, plus some cross-entropy."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 3))
        self.loss = MetricLoss("f1", average="macro", cross_entropy=0.5)  # instead of nn.CrossEntropyLoss()
        self.score = ConfusionMetric("f1", num_classes=3, average="macro")  # exact, over batches and processes

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        """The loss of a batch."""
        value: Tensor = self.loss(self.network(batch[0]), batch[1])
        return value

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        """The validation loss that the annealing watches, and the exact score."""
        logits = self.network(batch[0])
        self.log("val_loss", self.loss(logits, batch[1]), sync_dist=True)
        self.score.update(logits, batch[1])
        self.log("val_f1", self.score)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def main() -> None:
    """Train until further cooling brings nothing."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    pl.seed_everything(0, verbose=False)
    model = Classifier()
    annealing = TemperatureAnnealing("val_loss", factor=0.7, patience=3, max_fruitless=2)
    trainer = pl.Trainer(
        max_epochs=40,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[annealing],
    )
    train = DataLoader(clouds(2000, seed=1), batch_size=256, shuffle=True)
    trainer.fit(model, train, DataLoader(clouds(1000, seed=2), batch_size=1000))
    print(f"epochs: {trainer.current_epoch}, temperature: {model.loss.temperature:.3f}")
    print(f"macro F1 on the validation points: {trainer.callback_metrics['val_f1']:.3f}")


if __name__ == "__main__":
    main()
