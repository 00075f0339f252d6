"""Compile the kernels once, into numba's cache; ``make test`` does it beside lint, before its workers need them all."""

import importlib.util
import sys

import torch

from metricfit import MetricLoss
from metricfit.fast import compiled_pass, five_points
from metricfit.fast.blocks import Job
from metricfit.steps import Annealed


def main(what):
    if importlib.util.find_spec("numba") is None:
        return
    torch.set_num_threads(1)
    if what == "double":
        compile_double()
    else:
        compile_losses()


def compile_double():
    # Only the comparison with the plain formulas takes the loops in double precision.
    for d in (3, 130):
        scores, target = torch.zeros(4, d, dtype=torch.float64), torch.arange(4) % d
        job = Job(scores, target, torch.ones(4, dtype=torch.float64), None, five_points(Annealed()), -100, True, False,
                  False)  # fmt: skip
        compiled_pass(job, lambda counts, d=d: (counts, torch.ones(1, d, d)))


def compile_losses():
    # Small and large batches of few and many classes each take kernels of their own.
    for n, d in ((64, 3), (200_000, 3), (64, 200)):
        logits = torch.zeros(n, d, requires_grad=True)
        MetricLoss("f1")(logits, torch.arange(n) % d).backward()


if __name__ == "__main__":
    main(sys.argv[1])
