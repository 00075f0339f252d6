"""Accelerate: your own loop. Nothing of metricfit needs an adapter; the annealer is saved with the rest of the state.

python examples/with_accelerate.py       (pip install 'metricfit[huggingface]')
accelerate launch --cpu --num_processes 2 examples/with_accelerate.py
"""

from __future__ import annotations

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from metricfit import MetricLoss, TemperatureAnnealer, metrics


def clouds(n: int, seed: int) -> TensorDataset:
    """Two overlapping clouds of points; one point out of ten is positive."""
    random = torch.Generator().manual_seed(seed)
    y = (torch.rand(n, generator=random) < 0.1).long()
    return TensorDataset(1.5 * y[:, None] + torch.randn(n, 2, generator=random), y)


def main() -> None:
    """Train with gradient accumulation; with several processes the loss is that of all their samples."""
    torch.set_num_threads(1)
    set_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
    loader = DataLoader(clouds(2000, seed=1), batch_size=128, shuffle=True)
    model, optimiser, loader = accelerator.prepare(model, optimiser, loader)
    loss = MetricLoss("f1[1]", cross_entropy=0.5, memory=0.9).to(accelerator.device)
    annealer = TemperatureAnnealer(loss, mode="epoch", factor=0.8, every=5)
    accelerator.register_for_checkpointing(loss, annealer)  # save_state and load_state then include both

    for _ in range(20):
        for x, y in loader:
            with accelerator.accumulate(model):
                accelerator.backward(loss(model(x), y))  # divided by the number of micro-batches
                optimiser.step()
                optimiser.zero_grad()
        annealer.step()

    x, y = clouds(1000, seed=2).tensors
    with torch.no_grad():
        predicted = accelerator.unwrap_model(model)(x).argmax(dim=1)
    accelerator.print(f"F1: {metrics.get('f1').score(y, predicted):.3f}, temperature: {annealer.temperature:.3f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
