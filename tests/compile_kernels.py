"""Compile the kernels once, into numba's cache; ``make test`` does it beside lint, before its workers need them all."""

import importlib.util
import sys

import numpy as np
import torch

from metricfit import MetricClassifier, MetricLoss
from metricfit.fast import five_points
from metricfit.fast.batch import Batch
from metricfit.steps import annealed_linear_step


def main(what):
    if importlib.util.find_spec("numba") is None:
        return
    torch.set_num_threads(1)
    if what == "double":
        compile_double()
    else:
        compile_losses()
        compile_fits()


def compile_double():
    # Only the comparison with the plain formulas takes the loops in double precision.
    for d in (3, 130):
        batch = Batch(five_points(annealed_linear_step), ignore=-100, is_softmax=True, is_fixed=False)
        scores = torch.zeros(4, d, dtype=torch.float64)
        tensors = (scores, torch.arange(4) % d, torch.ones_like(scores[:, 0]), None)
        batch.count(tensors)
        batch.pull_back(tensors, np.ones((d, d)))


def compile_losses():
    # Small and large batches of few and many classes each take kernels of their own.
    for n, d in ((64, 3), (200_000, 3), (64, 200)):
        logits = torch.zeros(n, d, requires_grad=True)
        MetricLoss("f1")(logits, torch.arange(n) % d).backward()
    MetricLoss("f1", task="binary")(logits[:, 0], torch.zeros(64)).backward()


def compile_fits():
    X = np.random.default_rng(0).normal(size=(400, 5)).astype(np.float32)
    MetricClassifier("f1", cv=None, baseline=False).fit(X, X[:, 0] > 1)


if __name__ == "__main__":
    main(sys.argv[1])
