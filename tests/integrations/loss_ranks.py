"""One of two processes: accumulates gradients over micro-batches as the Trainer does, and averages them as DDP does.

python loss_ranks.py RANK STORE OUT

writes the largest difference from the gradient of one process that has both processes' micro-batches, once for
``num_items_in_batch`` counted over all processes (and the loss then multiplied by their number), once for each alone.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path

import torch
from torch import Tensor, distributed

from metricfit import MetricLoss
from metricfit.integrations.huggingface import compute_loss_func

SIZES = [(9, 5), (3, 7)]  # of two micro-batches, in each of two processes


def micro_batches() -> list[list[tuple[Tensor, Tensor]]]:
    """For each process its micro-batches; the same everywhere."""
    random = torch.Generator().manual_seed(1)
    return [
        [(torch.randn(n, 3, generator=random).double(), torch.randint(0, 3, (n,), generator=random)) for n in sizes]
        for sizes in SIZES
    ]


def reference(start: Tensor) -> Tensor:
    """One process: the mean over micro-batches, weighted by their samples, each of both processes together."""
    weight = start.clone().requires_grad_()
    first, second = micro_batches()
    total = sum(sum(sizes) for sizes in SIZES)
    for (x, y), (u, v) in zip(first, second, strict=True):
        loss = MetricLoss("f1", sync=False)(torch.cat([x, u]) @ weight, torch.cat([y, v]))
        (loss * (len(y) + len(v)) / total).backward()
    return weight.grad


def main(rank: int, store: str, out: str) -> None:
    """Compare both ways of counting."""
    timeout = timedelta(seconds=60)
    distributed.init_process_group(
        "gloo", rank=rank, world_size=2, store=distributed.FileStore(store, 2), timeout=timeout
    )
    start = torch.randn(3, 3, generator=torch.Generator().manual_seed(2)).double()
    everywhere, here = sum(sum(sizes) for sizes in SIZES), sum(SIZES[rank])
    found = {}
    for name, count, factor in (("all processes", everywhere, 2), ("each process", here, 1)):
        weight = start.clone().requires_grad_()
        function = compute_loss_func(MetricLoss("f1"))
        for x, y in micro_batches()[rank]:
            (factor * function({"logits": x @ weight}, y, num_items_in_batch=torch.tensor(count))).backward()
        distributed.all_reduce(weight.grad)
        found[name] = (weight.grad / 2 - reference(start)).abs().max().item()
    distributed.destroy_process_group()
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
