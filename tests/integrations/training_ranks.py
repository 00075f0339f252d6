"""A whole training by Lightning or by the Hugging Face Trainer, alone or as one of torchrun's processes.

python training_ranks.py FRAMEWORK OUT                                              one process, batches of 32
python -m torch.distributed.run --nproc-per-node 2 training_ranks.py FRAMEWORK OUT  two, batches of 16 each

Rank 0 writes the weights and the temperature that training ended with.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from metricfit import MetricLoss
from tests.integrations.helper import Model, blobs, network

ROWS, BATCH, EPOCHS, RATE, COOLING = 96, 32, 4, 0.05, 0.5


def loss() -> MetricLoss:
    """With a memory, whose state every process must share."""
    return MetricLoss("f1", average="macro", memory=0.5, cross_entropy=0.5)


def by_lightning(batch: int) -> tuple[nn.Module, float]:
    """Lightning's DDP strategy where there are several processes."""
    import lightning.pytorch as pl

    from metricfit.integrations.lightning import TemperatureAnnealing

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network, self.loss = network(), loss()

        def training_step(self, batch: list[Tensor], index: int) -> Tensor:
            value: Tensor = self.loss(self.network(batch[0]), batch[1])
            return value

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=RATE)

    module = Module()
    processes = BATCH // batch
    trainer = pl.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        devices=processes,
        strategy="ddp" if processes > 1 else "auto",
        use_distributed_sampler=False,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[TemperatureAnnealing(mode="epoch", factor=COOLING)],
    )
    rows = TensorDataset(*blobs(ROWS))
    # Lightning's own sampler shuffles; this one deals the rows out in order, so that batches are parts of those of one.
    sampler = DistributedSampler(rows, processes, int(os.environ.get("RANK", "0")), shuffle=False)
    trainer.fit(module, DataLoader(rows, batch_size=batch, sampler=sampler))
    return module.network, float(module.loss.temperature)


def by_huggingface(batch: int) -> tuple[nn.Module, float]:
    """The Trainer, which wraps the model in DDP where there are several processes."""
    from transformers import Trainer, TrainingArguments

    from metricfit.integrations.huggingface import TemperatureAnnealing, compute_loss_func

    rows = [{"features": x, "labels": y} for x, y in zip(*blobs(ROWS), strict=True)]
    function = compute_loss_func(loss())
    options: dict[str, Any] = {
        "optim": "sgd",
        "learning_rate": RATE,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
    }
    arguments = TrainingArguments(
        tempfile.mkdtemp(),
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=batch,
        use_cpu=True,
        seed=3,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        remove_unused_columns=False,
        label_names=["labels"],
        **options,
    )
    annealing = TemperatureAnnealing(function, mode="epoch", factor=COOLING)
    model = Model()
    Trainer(model, arguments, train_dataset=rows, compute_loss_func=function, callbacks=[annealing]).train()
    return model.network, annealing.annealer.temperature


def main(framework: str, out: str) -> None:
    """Train and write what came out."""
    torch.set_num_threads(1)
    batch = BATCH // int(os.environ.get("WORLD_SIZE", "1"))
    trained, temperature = {"lightning": by_lightning, "huggingface": by_huggingface}[framework](batch)
    if os.environ.get("RANK", "0") == "0":
        weights = torch.cat([value.flatten() for value in trained.state_dict().values()])
        Path(out).write_text(json.dumps({"weights": weights.tolist(), "temperature": temperature}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
