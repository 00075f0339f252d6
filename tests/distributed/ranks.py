"""One of several processes: trains on its share of each batch and compares with one process that has the whole batch.

    python ranks.py RANK WORLD STORE OUT

writes {case: [largest difference of losses, of gradients, of weights, of remembered matrices]} to OUT.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from metricfit import MetricLoss

FEATURES = 6
STEPS = 2


@dataclass(frozen=True)
class Case:
    """A loss, and how its batches look."""

    make: Callable[[], nn.Module]
    classes: int = 4
    task: str = "multiclass"
    dtype: torch.dtype = torch.float64
    accumulate: int = 1
    sizes: tuple[int, ...] = (17, 5, 11)
    weighted: bool = False
    ignored: bool = False
    rare: bool = False
    positions: tuple[int, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


F32 = torch.float32
EMPTY = (17, 0, 5)
RECIPE = {"cross_entropy": 0.5, "balance": "sqrt", "memory": 0.9}
CASES = {
    "f1": Case(lambda: MetricLoss("f1")),
    "mcc": Case(lambda: MetricLoss("mcc"), sizes=(1, 30, 2)),
    "kappa, weights, ignored": Case(
        lambda: MetricLoss("kappa", weight=torch.tensor([1.0, 2.0, 0.5, 3.0])), weighted=True, ignored=True
    ),
    "f1, empty rank": Case(lambda: MetricLoss("f1"), sizes=EMPTY),
    "f1, only one rank has samples": Case(lambda: MetricLoss("f1"), sizes=(0, 9, 0)),
    "f1, a class on one rank only": Case(lambda: MetricLoss("f1"), rare=True),
    "f1, whole ranks ignored": Case(lambda: MetricLoss("f1", cross_entropy=1.0), sizes=(4, 1, 1), ignored=True),
    "compiled f1": Case(lambda: MetricLoss("f1"), dtype=F32),
    "compiled mcc, weights, ignored": Case(lambda: MetricLoss("mcc"), dtype=F32, weighted=True, ignored=True),
    "compiled f1, empty rank": Case(lambda: MetricLoss("f1"), dtype=F32, sizes=EMPTY),
    "compiled counts, kappa": Case(lambda: MetricLoss("kappa"), dtype=F32),
    "compiled images": Case(lambda: MetricLoss("jaccard"), dtype=F32, sizes=(3, 1, 2), positions=(4, 5)),
    "images": Case(lambda: MetricLoss("jaccard"), sizes=(3, 0, 2), positions=(4, 5), ignored=True),
    "recipe": Case(lambda: MetricLoss("f1", **RECIPE), accumulate=2),
    "recipe, empty rank": Case(lambda: MetricLoss("mcc", **RECIPE), accumulate=2, sizes=EMPTY, weighted=True),
    "recipe, float32": Case(lambda: MetricLoss("f1", **RECIPE), accumulate=2, dtype=F32),
    "cross-entropy with a prior": Case(
        lambda: MetricLoss(
            "f1", cross_entropy=2.0, balance="full", prior=torch.tensor([4.0, 3.0, 2.0, 1.0])
        )
    ),
    "probability targets": Case(lambda: MetricLoss("f1", **RECIPE), task="soft"),
    "sigmoid step": Case(lambda: MetricLoss("g_mean", step="sigmoid")),
    "binary": Case(lambda: MetricLoss("f1", task="binary", **RECIPE), task="binary", classes=1, sizes=EMPTY),
    "binary auroc": Case(lambda: MetricLoss("auroc:grid=9", task="binary"), task="binary", classes=1),
    "binary auprc, empty rank, memory": Case(
        lambda: MetricLoss("auprc:grid=9", task="binary", memory=0.8),
        task="binary",
        classes=1,
        sizes=EMPTY,
        accumulate=2,
    ),
    "multiclass auroc": Case(lambda: MetricLoss("auroc:grid=9"), sizes=EMPTY),
    "two grids": Case(
        lambda: MetricLoss("0.5*f1 + 0.5*auroc:grid=5", task="binary", memory=0.9), task="binary", classes=1
    ),
    "multi-label": Case(
        lambda: MetricLoss("f1:average=macro", task="multilabel", **RECIPE), task="multilabel", accumulate=2,
        weighted=True, ignored=True,
    ),
    "multi-label, empty rank": Case(
        lambda: MetricLoss("jaccard:average=micro", task="multilabel", threshold=0.3), task="multilabel", sizes=EMPTY
    ),
    "any function": Case(lambda: MetricLoss(lambda cm: cm.tp[1] / (cm.tp[1] + cm.fp[1] + 3 * cm.fn[1]))),
}  # fmt: skip


def global_batch(case: Case, sizes: list[int], generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor | None]:
    n, places = sum(sizes), case.positions
    x = torch.randn((n, *places, FEATURES), generator=generator, dtype=torch.float64)
    if case.task in ("multiclass", "soft"):
        y = torch.randint(case.classes, (n, *places), generator=generator)
        if case.rare:
            y[1:] = y[1:].clamp_max(case.classes - 2)
            y[0] = case.classes - 1
        if case.ignored:
            y[sizes[0] :: 2] = -100
        if case.task == "soft":
            y = torch.rand((n, case.classes), generator=generator, dtype=torch.float64).softmax(dim=-1)
    else:
        y = torch.randint(2, (n,) if case.task == "binary" else (n, case.classes), generator=generator).double()
        if case.ignored:
            y[sizes[0] :: 2, 0] = -100
    weight = torch.rand((n, *places), generator=generator, dtype=torch.float64) if case.weighted else None
    return x.to(case.dtype), y if case.task in ("multiclass", "binary", "multilabel") else y.to(case.dtype), weight


class Net(nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        self.linear = nn.Linear(FEATURES, case.classes)
        self.task = case.task

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.linear(x)
        return logits.squeeze(-1) if self.task == "binary" else logits.movedim(-1, 1)


def network(case: Case) -> Net:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return Net(case).to(case.dtype)


def differences(case: Case, rank: int, world: int, wrap: Callable[[nn.Module], nn.Module]) -> list[float]:
    sizes = list(case.sizes[:world])
    start = sum(sizes[:rank])
    mine = slice(start, start + sizes[rank])
    alone = network(case)
    together = wrap(copy.deepcopy(alone))
    loss_alone, loss_together = case.make(), case.make()
    loss_alone.sync = False
    if case.dtype == torch.float64:
        loss_alone, loss_together = loss_alone.double(), loss_together.double()
    optimisers = [torch.optim.SGD(model.parameters(), lr=0.5) for model in (alone, together)]
    random = torch.Generator().manual_seed(2)
    worst = [0.0, 0.0, 0.0, 0.0]

    def note(place: int, ours: Tensor, theirs: Tensor) -> None:
        worst[place] = max(worst[place], float((full(ours) - theirs).abs().max()))

    for _ in range(STEPS):
        for optimiser in optimisers:
            optimiser.zero_grad()
        for part in range(case.accumulate):
            x, y, weight = global_batch(case, sizes, random)
            expected = loss_alone(alone(x), y, weight) / case.accumulate
            expected.backward()
            last = part == case.accumulate - 1
            if isinstance(together, DistributedDataParallel):
                together.require_backward_grad_sync = last  # what no_sync() does
            part_weight = None if weight is None else weight[mine]
            value = loss_together(together(x[mine]), y[mine], part_weight) / case.accumulate
            value.backward()
            note(0, value.detach(), expected.detach())
        for ours, theirs in zip(together.parameters(), alone.parameters(), strict=True):
            note(1, ours.grad, theirs.grad)
        for optimiser in optimisers:
            optimiser.step()
        for ours, theirs in zip(together.parameters(), alone.parameters(), strict=True):
            note(2, ours.detach(), theirs.detach())
        for ours, theirs in zip(loss_together.buffers(), loss_alone.buffers(), strict=True):
            note(3, ours, theirs)
    return worst


def full(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def sharded(model: nn.Module) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    return fully_shard(model)


def special_cases(rank: int, world: int) -> dict[str, Any]:
    """What is not a comparison of whole trainings."""
    x, y = torch.randn(5, 3, generator=torch.Generator().manual_seed(rank)), torch.arange(5) % 3
    alone = MetricLoss("kappa", sync=False)(x, y)
    found: dict[str, Any] = {}
    found["sync=False is this process alone"] = float(
        MetricLoss("f1", sync=False)(x, y) - MetricLoss("f1").eval()(x, y)
    )
    if rank == 0:  # nobody else calls: must not wait
        found["evaluation waits for nobody"] = float(MetricLoss("kappa").eval()(x, y) - alone)
    pair = dist.new_group([0, 1])
    if rank < 2:
        both = [torch.randn(5, 3, generator=torch.Generator().manual_seed(r)) for r in (0, 1)]
        expected = MetricLoss("kappa", sync=False)(torch.cat(both), torch.cat([y, y]))
        grouped = MetricLoss("kappa", sync=pair).eval()(x, y)
        found["a group of two"] = float(grouped - expected)
    logits = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(MetricLoss("kappa")(logits, y), logits, create_graph=True)
    try:
        gradient.sum().backward()
        found["second derivatives"] = "no error"
    except RuntimeError as error:
        found["second derivatives"] = str(error)
    sent: list[int] = []
    plain = dist.all_reduce
    dist.all_reduce = lambda tensor, **options: (sent.append(tensor.numel() * 8), plain(tensor, **options))[1]
    MetricLoss("f1", **RECIPE)(torch.randn(1000 * (rank + 1), 7), torch.arange(1000 * (rank + 1)) % 7)
    dist.all_reduce = plain
    found["bytes"] = sent
    return found


def main(rank: int, world: int, store: str, out: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=world, timeout=timedelta(seconds=60)
    )
    found: dict[str, Any] = {}
    for name, case in CASES.items():
        found[name] = differences(case, rank, world, DistributedDataParallel)
    for name in ("f1", "recipe, float32", "multi-label"):
        found["FSDP " + name] = differences(CASES[name], rank, world, sharded)
    found |= special_cases(rank, world)
    Path(out).write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
