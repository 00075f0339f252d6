"""The processes that train one network together: join them, share the batches, average the gradients."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed, nn

from metricfit.distributed import add_up, group_of

__all__ = [
    "agreed", "average_gradients", "gathered", "is_first_process", "join_processes", "share_of_batch", "wait_for_all",
]  # fmt: skip


def join_processes() -> Any:
    """The group of the processes that ``torchrun`` started, joined until this one ends; None for a single process."""
    started = int(os.environ.get("WORLD_SIZE", "1")) > 1 and {"RANK", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()
    if started and distributed.is_available() and not distributed.is_initialized():
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        # After this time a silent process is taken for lost; one that ended is noticed at once. The store may outlive
        # the processes, with the addresses of those that torchrun has started anew.
        c10d: Any = distributed  # not all of whose names are declared
        store, rank, processes = next(c10d.rendezvous("env://"))
        store = c10d.PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)
        how: dict[str, Any] = {"store": store, "rank": rank, "world_size": processes}
        distributed.init_process_group(backend, timeout=timedelta(minutes=10), **how)
        atexit.register(lambda: distributed.is_initialized() and distributed.destroy_process_group())
    return group_of("auto", training=True)


def is_first_process() -> bool:
    """Whether this process is the one that writes and prints: the first, or the only one."""
    return group_of("auto", training=True) is None or distributed.get_rank() == 0


def wait_for_all() -> None:
    """Wait until every process has come here."""
    if (group := group_of("auto", training=True)) is not None:
        distributed.barrier(group)


def agreed(value: Tensor, group: Any) -> Tensor:
    """The first process's value, so that all decide the same though their last digits may differ."""
    if group is None:
        return value
    shared = value.detach().clone()
    distributed.broadcast(shared, src=0, group=group)
    return shared


def gathered(value: Any, group: Any) -> list[Any]:
    """The values of all processes, in their order."""
    found = [value] * (1 if group is None else distributed.get_world_size(group))
    if group is not None:
        distributed.all_gather_object(found, value, group=group)
    return found


def share_of_batch(size: int, group: Any) -> slice:
    """The part of a batch of so many samples that this process takes; sizes differ by one at most."""
    if group is None:
        return slice(0, size)
    rank, processes = distributed.get_rank(group), distributed.get_world_size(group)
    return slice(size * rank // processes, size * (rank + 1) // processes)


def average_gradients(parameters: Iterable[nn.Parameter], group: Any) -> None:
    """Replace the gradients by their mean over the group, in one message; :mod:`metricfit.distributed` says why."""
    if group is None:
        return
    wanted = [parameter for parameter in parameters if parameter.requires_grad]
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in wanted]
    packed = torch.cat([gradient.flatten() for gradient in gradients])
    add_up(packed, group)
    packed /= distributed.get_world_size(group)
    for parameter, mean in zip(wanted, packed.split([p.numel() for p in wanted]), strict=True):
        parameter.grad = mean.reshape(parameter.shape)
