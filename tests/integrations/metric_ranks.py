"""One of two processes: updates a torchmetrics metric with its share of the samples and writes the synchronised value.

python metric_ranks.py RANK WORLD STORE OUT
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed as dist

from metricfit.integrations.torchmetrics import ConfusionMetric

SPECS = ("f1:average=macro", "mcc", "recall[2]", "auroc", "precision[1] subject to recall[1] >= 0.2")
SHARES = (slice(0, 37), slice(37, 50))  # processes need not see equally many samples


def samples() -> tuple[torch.Tensor, torch.Tensor]:
    """The same everywhere."""
    random = torch.Generator().manual_seed(3)
    return torch.randn(50, 3, generator=random), torch.randint(0, 3, (50,), generator=random)


def main(rank: int, world: int, store: str, out: str) -> None:
    """Compute every metric over both processes."""
    timeout = timedelta(seconds=60)
    dist.init_process_group("gloo", rank=rank, world_size=world, store=dist.FileStore(store, world), timeout=timeout)
    logits, target = samples()
    values = {}
    for spec in SPECS:
        metric = ConfusionMetric(spec, num_classes=3)
        for part in torch.arange(50)[SHARES[rank]].split(7):
            metric.update(logits[part], target[part])
        values[spec] = metric.compute().item()
    dist.destroy_process_group()
    Path(out).write_text(json.dumps(values))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
