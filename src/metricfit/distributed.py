"""Several processes as one: their statistics are added up, so that a loss is that of all their samples together.

A metric of a matrix is no mean over samples: the mean of the processes' losses is something else. What can be added
are the counts S = Σᵣ Sᵣ. The gradient of L(S) on all samples is Σᵣ (∂Sᵣ/∂θ)ᵀ ∂L/∂S. Every process knows ∂L/∂S, so the
backward pass needs no message: process r pulls it back through its own samples. What gathers gradients
(DistributedDataParallel, FSDP, Lightning, Accelerate) takes their *mean* over R processes; so ∂L/∂S is multiplied by R.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Literal

import torch
from torch import Tensor, distributed, nn
from torch.autograd.function import once_differentiable

from metricfit.inputs import expect

__all__ = [
    "Sync", "add_up", "agreed", "average_gradients", "check_sync", "gathered", "group_of", "is_first_process",
    "join_processes", "share_of_batch", "sum_over_processes", "wait_for_all",
]  # fmt: skip

Sync = Literal["auto", False] | Any
"""``"auto"``, ``False`` or a ``torch.distributed.ProcessGroup`` (which torch may be built without)."""


def check_sync(sync: Sync) -> Sync:
    """The option, if it is one."""
    is_group = distributed.is_available() and isinstance(sync, distributed.ProcessGroup)
    known = sync is False or sync == "auto" or is_group
    expect(known, "sync", "'auto', False or a torch.distributed.ProcessGroup", sync)
    return sync


def group_of(sync: Sync, training: bool) -> Any:
    """The group whose statistics are added up, or None where this process is on its own.

    ``"auto"`` is all processes while training: in evaluation mode they may see different numbers of batches. A group
    is always used, ``False`` never.
    """
    if sync is False or not distributed.is_available() or not distributed.is_initialized():
        return None
    if sync == "auto":
        sync = distributed.group.WORLD if training else None
    return sync if sync is not None and distributed.get_world_size(sync) > 1 else None


def sum_over_processes(tensors: Sequence[Tensor], group: Any) -> list[Tensor]:
    """The sums of several tensors over a group, in one message; without a group the tensors as they are.

    All processes have to call this with the same shapes. Sums are taken in float64. See the module for the gradient.
    """
    return list(tensors) if group is None else list(_Sum.apply(group, *tensors))  # type: ignore[no-untyped-call]


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, group: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.processes = distributed.get_world_size(group)
        packed = torch.cat([tensor.detach().double().flatten() for tensor in tensors])
        add_up(packed, group)
        parts = packed.split([tensor.numel() for tensor in tensors])
        return tuple(part.reshape(t.shape).to(t.dtype) for part, t in zip(parts, tensors, strict=True))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, *(gradient * ctx.processes for gradient in gradients)


def add_up(tensor: Tensor, group: Any) -> None:
    """Replace a tensor by its sum over a group."""
    try:
        distributed.all_reduce(tensor, group=group)
    except RuntimeError as error:
        raise RuntimeError(
            f"adding up the statistics of {distributed.get_world_size(group)} processes failed: another process has "
            "ended, or did not call the loss as often as this one. Look for the first error in the output of the "
            f"others; pass sync=False for losses that only some of them compute. ({error})"
        ) from error


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
    """Replace the gradients by their mean over the group, in one message; the top of the module says why."""
    if group is None:
        return
    wanted = [parameter for parameter in parameters if parameter.requires_grad]
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in wanted]
    packed = torch.cat([gradient.flatten() for gradient in gradients])
    add_up(packed, group)
    packed /= distributed.get_world_size(group)
    for parameter, mean in zip(wanted, packed.split([p.numel() for p in wanted]), strict=True):
        parameter.grad = mean.reshape(parameter.shape)
