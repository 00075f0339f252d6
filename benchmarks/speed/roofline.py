"""The training loop against the roofline of its matrix products, and where the rest of a step goes.

``python benchmarks/speed/roofline.py`` writes ``roofline.csv`` beside it: for one network and for five, the processor
time of one thread that a training step of ``MetricClassifier`` on adult takes, as a multiple of its matrix products
alone: the same shapes and library, in places that are allocated beforehand, in turn with the steps.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from metricfit import metrics
from metricfit.data import TablePreprocessor, load
from metricfit.training import Problem, get_recipe
from metricfit.training.evaluation import TrainingData, take_rows
from metricfit.training.loop import _Trainer
from metricfit.training.optimiser import take_step
from metricfit.training.splits import split_rows

RESULTS = Path(__file__).parent / "roofline.csv"
NETWORKS = ((128, 64), (512, 256, 128), (32, 16))


def products(members: int, rows: int, sizes: tuple[int, ...]) -> Callable[[], None]:
    """All matrix products of a step: forward, gradients of weights, gradients of activations but the inputs'."""
    activations = [torch.randn(members, rows, size) for size in sizes]
    outputs = [torch.empty_like(activation) for activation in activations]
    weights = [torch.randn(members, a, b) for a, b in itertools.pairwise(sizes)]
    # The quicker layout for the few outputs of the last layer, as in training.
    weights[-1] = weights[-1].mT.contiguous().mT
    last = torch.empty(members, sizes[-1], sizes[-2])
    gradients = [torch.empty_like(weight) for weight in weights]

    def run() -> None:
        for i, weight in enumerate(weights):
            torch.bmm(activations[i], weight, out=outputs[i + 1])
        for i in range(len(weights) - 1, -1, -1):
            if i == len(weights) - 1:
                torch.bmm(activations[i + 1].mT, activations[i], out=last)
            else:
                torch.bmm(activations[i].mT, activations[i + 1], out=gradients[i])
            if i:
                torch.bmm(activations[i + 1], weights[i].mT, out=outputs[i])

    return run


def jobs(data: TrainingData, members: int, hidden: tuple[int, ...]) -> dict[str, Callable[[], Any]]:
    """The products, the parts of a step by themselves, and whole steps with cross-entropy and on two metrics."""
    target = data.target.numpy()
    splits = split_rows(
        target, members if members > 1 else None, members=1, groups=None, random=np.random.default_rng(0)
    )

    def trainer(recipe: str, metric: str) -> _Trainer:
        problem = Problem(data, splits, metrics.get(metric), "binary", (0, 1))
        made = _Trainer(problem, get_recipe(recipe, hidden_sizes=hidden), 0, None, torch.device("cpu"), False)
        made.network.train()
        made._randomness(0)
        return made

    trainers = {
        "cross-entropy": trainer("cross_entropy", "f1"),
        "F1": trainer("default", "f1"),
        "MCC": trainer("default", "mcc"),
    }
    one = trainers["F1"]
    batches = list(one.batches.epoch(torch.Generator().manual_seed(0)))
    turn = iter(range(sys.maxsize))
    y, w = take_rows(data.target, batches[0]), take_rows(data.weight, batches[0])
    logits = torch.randn(*batches[0].shape, 2)
    made: dict[str, Callable[[], Any]] = {
        "products": products(members, one.batches.batch_size, (data.features.shape[1], *hidden, 2)),
        "rows of the batch": lambda: one.direct.take(data.features, batches[next(turn) % len(batches)]),
        "forward": lambda: one.direct.forward(one.direct._rows),
        "backward": lambda: one.direct.backward(logits),
    }
    made |= {f"loss and gradient, {name}": lambda t=t: t.gradient(logits, y, w) for name, t in trainers.items()}
    made["AdamW"] = lambda: take_step(one.optimiser, 1e-3)
    made["average of the weights"] = lambda: one.average.update(1000)
    for name, t in trainers.items():
        made[f"whole step, {name}"] = lambda t=t: (
            t._step(batches[next(turn) % len(batches)], 1e-3), t.average.update(1000)
        )  # fmt: skip
    return made


def measure(made: dict[str, Callable[[], Any]], repetitions: int, calls: int = 10) -> dict[str, list[float]]:
    """Times over those of the products, in turn."""
    found: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(repetitions):
        times = {}
        for name, job in made.items():
            job()
            started = time.process_time()
            for _ in range(calls):
                job()
            times[name] = time.process_time() - started
        for name, taken in times.items():
            found[name].append(taken / times["products"])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    loaded = load("adult")
    _, codes = np.unique(np.asarray(loaded.y), return_inverse=True)
    features = torch.from_numpy(
        np.ascontiguousarray(TablePreprocessor(random_state=0).fit_transform(loaded.X, loaded.y))
    )
    data = TrainingData(features, torch.from_numpy(codes), torch.ones(len(codes)))
    rows = []
    for hidden in NETWORKS:
        for members in (5, 1):
            for name, found in measure(jobs(data, members, hidden), options.repetitions).items():
                low, median, high = np.quantile(found, [0.25, 0.5, 0.75]).round(3)
                row = {"network": "-".join(map(str, hidden)), "members": members, "what": name}
                rows.append(row | {"median": median, "lower_quartile": low, "upper_quartile": high})
                print(rows[-1], file=sys.stderr)
    pd.DataFrame(rows).to_csv(RESULTS, index=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
