"""Does EAST's accuracy loss leave the larger class with other batches of the paper's grid than the tables'?

``python -m benchmarks.papers.checks.east_accuracy`` trains EAST's network on the first split of mammography and of
credit card fraud and prints validation loss, test F1 and epochs. Batches of 1,024 are in the grid of the tables.
"""

from __future__ import annotations

import sys
from functools import partial

import pandas as pd
import torch
from sklearn.metrics import f1_score

from benchmarks.papers import data, losses, networks
from benchmarks.papers.config import protocol
from benchmarks.papers.training import Settings, outputs, train

CASES = {
    "mammography": [(128, 0.01), (128, 0.001), (2048, 0.001), (2048, 0.0001)],
    "creditcard": [(8192, 0.001), (8192, 0.0001)],
}
"""Batch sizes and learning rates."""


def main(datasets: list[str]) -> None:
    torch.set_num_threads(1)
    rows = []
    for dataset in datasets or CASES:
        how = protocol("east-tabular").of_dataset(dataset)
        problem = data.load(dataset)
        parts = data.split(problem, how.fractions, seed=0)
        make = partial(networks.build, how.network, tuple(parts.train[0].shape[1:]), 2, dropout=how.dropout)
        for batch, rate in CASES[dataset]:
            built = losses.build(
                "accuracy", approximation="annealed", n_classes=2, prior=float(problem.prior[1]), single_output=False,
                temperature=how.temperature, delta=how.delta, k=how.k, weighted=False,
            )  # fmt: skip
            settings = Settings(
                how.optimiser, rate, batch, how.patience, how.max_epochs, factor=0.8, fruitless=how.fruitless,
                min_delta=how.min_delta.get(dataset, 0.0),
            )  # fmt: skip
            fit = train(make, built.loss, parts.train, parts.validation, settings, seed=0)
            called = outputs(fit.network, parts.test[0]).argmax(1).numpy()
            rows.append({
                "data": dataset, "batch": batch, "learning rate": rate, "validation loss": fit.validation_loss,
                "test F1": f1_score(parts.test[1].numpy(), called, zero_division=0.0), "epochs": fit.epochs,
            })  # fmt: skip
            print(rows[-1], flush=True)
    print(pd.DataFrame(rows).round(4).to_string(index=False))


if __name__ == "__main__":
    main(sys.argv[1:])
