"""The training loop against the roofline of its matrix products, and where the rest of a step goes.

``python -m benchmarks.speed.roofline`` writes ``roofline.csv`` beside it: for one network and for five, the processor
time of one thread that a training step of ``MetricClassifier`` on adult takes, as a multiple of its matrix products
alone: the same shapes, in places that are allocated beforehand, in turn with the steps. Both the compiled steps of long
runs and those of the loop, which serve short runs and installations without the extra ``fast``.
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
from threadpoolctl import threadpool_limits

from benchmarks.data import load
from metricfit import metrics
from metricfit.data import TablePreprocessor
from metricfit.fast import mlp
from metricfit.training import Problem, get_recipe
from metricfit.training.evaluation import TrainingData
from metricfit.training.loop import _Trainer
from metricfit.training.optimiser import start_moments
from metricfit.training.splits import split_rows

RESULTS = Path(__file__).parent / "roofline.csv"
NETWORKS = ((128, 64), (512, 256, 128), (32, 16))
COMPILED = "whole step, compiled"
STEPS = 32
"""Compiled steps are timed so many at a time, as they are run."""


def products(members: int, rows: int, sizes: tuple[int, ...]) -> Callable[[], None]:
    """All matrix products of a step: forward, gradients of weights, gradients of activations but the inputs'."""
    random = np.random.default_rng(0)
    activations = [random.standard_normal((members, rows, size), dtype=np.float32) for size in sizes]
    outputs = [np.empty_like(activation) for activation in activations]
    weights = [random.standard_normal((members, a, b), dtype=np.float32) for a, b in itertools.pairwise(sizes)]
    gradients = [np.empty_like(weight) for weight in weights]

    def run() -> None:
        for m in range(members):
            for i, weight in enumerate(weights):
                np.matmul(activations[i][m], weight[m], out=outputs[i + 1][m])
            for i in range(len(weights) - 1, -1, -1):
                np.matmul(activations[i][m].T, activations[i + 1][m], out=gradients[i][m])
                if i:
                    np.matmul(activations[i + 1][m], weights[i][m].T, out=outputs[i][m])

    return run


def trainer_of(data: TrainingData, members: int, hidden: tuple[int, ...], recipe: str, metric: str) -> _Trainer:
    """A trainer in the middle of its first epoch."""
    folds = members if members > 1 else None
    splits = split_rows(data.target.numpy(), folds, members=1, groups=None, random=np.random.default_rng(0))
    problem = Problem(data, splits, metrics.get(metric), "binary", (0, 1))
    made = _Trainer(problem, get_recipe(recipe, hidden_sizes=hidden), 0, None, torch.device("cpu"), False)
    made.network.train()
    made._randomness(0)
    start_moments(made.optimiser)
    return made


def parts(trainer: _Trainer, order: torch.Tensor) -> dict[str, Callable[[], Any]]:
    """The parts of a compiled step by themselves, each for all members."""
    steps, batch = trainer.compiled, order.shape[2]
    goals, addresses, adamw = steps._goals(), steps._addresses(), steps._adamw(1000, [1e-3] * order.shape[1])
    dropout = steps._dropout(len(order) * batch, order.shape[1])
    sizes, index, classes = steps.sizes, order.numpy(), int(steps.sizes[-1])
    outputs, pulled = (np.zeros(batch * int(s.sum()), np.float32) for s in (sizes, sizes[1:]))
    gradients = np.zeros(int(((sizes[:-1] + 1) * sizes[1:]).sum()), np.float32)
    x, logits = outputs[: batch * sizes[0]].reshape(batch, -1), outputs[-batch * classes :].reshape(batch, classes)
    target, weight, mass = np.zeros(batch, np.int64), np.zeros(batch, np.float32), np.zeros(batch, np.float32)
    of_logits, turn = pulled[-batch * classes :].reshape(batch, classes), iter(range(sys.maxsize))

    def each(part: Callable[[int, int], Any]) -> Callable[[], None]:
        def run() -> None:
            step = next(turn) % order.shape[1]
            for m in range(len(order)):
                part(m, step)

        return run

    return {
        "rows of the batch": each(
            lambda m, step: mlp._take(steps.data, index[m, step], goals[m], x, target, weight, mass)
        ),
        "forward": each(lambda m, step: mlp._forward(sizes, batch, m, step, addresses, dropout, outputs)),
        "loss and gradient": each(
            lambda m, _: mlp.two_classes(logits, target, mass, weight, goals[m], False, of_logits)
        ),
        "backward": each(
            lambda m, _: mlp._backward(sizes, batch, m, addresses, dropout.scale, outputs, pulled, gradients)
        ),
        "AdamW and average": each(lambda m, step: mlp._update(sizes, m, step, addresses, gradients, adamw)),
    }


def jobs(data: TrainingData, members: int, hidden: tuple[int, ...]) -> dict[str, Callable[[], Any]]:
    """The products, the parts of a step by themselves, and whole steps with cross-entropy and on two metrics."""
    trainers = {
        name: trainer_of(data, members, hidden, recipe, metric)
        for name, recipe, metric in (
            ("cross-entropy", "cross_entropy", "f1"), ("F1", "default", "f1"), ("MCC", "default", "mcc")
        )
    }  # fmt: skip
    one = trainers["F1"]
    order = one.batches.whole_epoch(torch.Generator().manual_seed(0))
    turn = iter(range(sys.maxsize))
    made: dict[str, Callable[[], Any]] = {
        "products": products(members, one.batches.batch_size, (data.features.shape[1], *hidden, 2))
    }
    made |= parts(one, order)
    for name, t in trainers.items():
        made[f"{COMPILED}, {name}"] = lambda t=t: t.compiled.run(order[:, :STEPS], 1000, [1e-3] * STEPS)
    for name, t in trainers.items():
        made[f"whole step of the loop, {name}"] = lambda t=t: (
            t._step(order[:, next(turn) % order.shape[1]], 1e-3), t.average.update(1000)
        )  # fmt: skip
    return made


def measure(made: dict[str, Callable[[], Any]], repetitions: int, calls: int = 10) -> dict[str, list[float]]:
    """Times of a step over those of the products, in turn."""
    found: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(repetitions):
        times = {}
        for name, job in made.items():
            job()
            times_called, steps = (1, STEPS) if name.startswith(COMPILED) else (calls, calls)
            started = time.process_time()
            for _ in range(times_called):
                job()
            times[name] = (time.process_time() - started) / steps
        for name, taken in times.items():
            found[name].append(taken / times["products"])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    threadpool_limits(1, user_api="blas")
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
