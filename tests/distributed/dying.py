"""One of two processes, of which the second ends (or stops calling) in the middle: python dying.py RANK STORE HOW."""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta

import torch
from torch import distributed as dist

from metricfit import MetricLoss

if __name__ == "__main__":
    rank, store, how = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=timedelta(seconds=4)
    )
    logits, target = torch.randn(8, 3), torch.arange(8) % 3
    loss = MetricLoss("kappa")
    loss(logits, target)
    if rank == 1:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "stuck":
            time.sleep(60)
        logits[0, 0] = float("nan")
    for _ in range(2):
        loss(logits, target)
