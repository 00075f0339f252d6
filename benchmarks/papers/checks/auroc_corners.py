"""Does the area without its corners explain btg's numbers for AUROC as a loss?

The released code adds up the trapezoids between its thresholds and leaves out those to (0, 0) and (1, 1). A network
that calls everything positive at all of them but one, and tells the classes apart there, then has nearly the whole
area. ``python -m benchmarks.papers.checks.auroc_corners`` trains btg's network on that area on three splits of three
sets and prints means over the thresholds 0.1 … 0.9, and the share that is called positive at the lowest, the last but
one and the highest.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import balanced_accuracy_score, f1_score
from torch import Tensor, nn

from benchmarks.papers import data, networks
from benchmarks.papers.config import protocol
from benchmarks.papers.evaluation import THRESHOLDS
from benchmarks.papers.losses import AUROC_THRESHOLDS
from benchmarks.papers.training import Settings, outputs, train
from metricfit.steps import Linear, Sigmoid

TRIALS = 3
DATASETS = ("cocktail_party", "mammography", "adult")


class AreaWithoutCorners(nn.Module):
    """One minus the trapezoids between the thresholds, of soft counts.

    >>> perfect = torch.tensor([9.0, -9.0]), torch.tensor([1, 0])
    >>> everything_but_the_last = torch.tensor([9.0, 1.73]), torch.tensor([1, 0])
    >>> loss = AreaWithoutCorners("linear")
    >>> bool(loss(*perfect) > 0.9), bool(loss(*everything_but_the_last) < 0.6)
    (True, True)
    """

    def __init__(self, step: str) -> None:
        super().__init__()
        self.step = {"linear": Linear(), "sigmoid": Sigmoid()}[step]

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        p, positive = input.sigmoid(), target == 1
        called = torch.stack([self.step(p, tau) for tau in AUROC_THRESHOLDS])
        tpr, fpr = called[:, positive].mean(dim=1), called[:, ~positive].mean(dim=1)
        area = ((fpr[:-1] - fpr[1:]) * (tpr[:-1] + tpr[1:]) / 2).sum()
        return 1 - area.nan_to_num(0.0)


def main() -> None:
    torch.set_num_threads(1)
    how = protocol("btg-tabular")
    settings = Settings(how.optimiser, how.learning_rate, how.batch_size, how.patience, how.max_epochs)
    rows = []
    for dataset in DATASETS:
        problem = data.load(dataset, encoding="integer")
        for step in ("linear", "sigmoid"):
            for trial in range(TRIALS):
                parts = data.split(problem, how.fractions, seed=trial)
                shape = tuple(parts.train[0].shape[1:])
                make = partial(networks.build, how.network, shape, 1, dropout=how.dropout)
                fit = train(make, AreaWithoutCorners(step), parts.train, parts.validation, settings, seed=trial)
                p, y = outputs(fit.network, parts.test[0]).sigmoid().numpy(), parts.test[1].numpy()
                called = [(p >= tau).astype(int) for tau in THRESHOLDS]
                rows.append({
                    "data": dataset, "step": step,
                    "F1": np.mean([f1_score(y, c, zero_division=0.0) for c in called]),
                    "accuracy": np.mean([c == y for c in called]),
                    "AUROC of labels": np.mean([balanced_accuracy_score(y, c) for c in called]),
                    "called at 0.1": called[0].mean(), "at 0.8": called[-2].mean(), "at 0.9": called[-1].mean(),
                    "epochs": fit.epochs,
                })  # fmt: skip
                print(rows[-1], flush=True)
    table = pd.DataFrame(rows).groupby(["data", "step"], sort=False).agg(["mean", "std"])
    table.columns = [" ".join(column) for column in table.columns]
    print(table.round(3).to_string())


if __name__ == "__main__":
    main()
