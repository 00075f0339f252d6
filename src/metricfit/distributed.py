"""Several processes as one: their statistics are added up, so that a loss is that of all their samples together.

A metric of a matrix is no mean over samples: the mean of the processes' losses is something else. What can be added
are the counts S = Σᵣ Sᵣ. The gradient of L(S) on all samples is Σᵣ (∂Sᵣ/∂θ)ᵀ ∂L/∂S. Every process knows ∂L/∂S, so the
backward pass needs no message: process r pulls it back through its own samples. What gathers gradients
(DistributedDataParallel, FSDP, Lightning, Accelerate) takes their *mean* over R processes; so ∂L/∂S is multiplied by R.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, distributed
from torch.autograd.function import once_differentiable

from metricfit.inputs import expect

__all__ = ["Sync", "add_up", "check_sync", "group_of", "sum_over_processes"]

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
