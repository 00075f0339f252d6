"""What does EAST lose on adult if a temperature ends after fewer epochs without progress than 50?

``python -m benchmarks.papers.checks.east_patience [losses]`` trains EAST's network on the first split of adult (integer
codes) with each patience, and prints validation loss, test scores and epochs; without names for F1 alone.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial

import pandas as pd
import torch
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from benchmarks.papers import data, losses, networks
from benchmarks.papers.config import protocol
from benchmarks.papers.training import Settings, outputs, train

PATIENCES = (10, 50)


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    how = protocol("east-tabular")
    problem = data.load("adult", encoding="integer")
    parts = data.split(problem, how.fractions, seed=0)
    settings = Settings(
        how.optimiser, how.learning_rate, how.batch_size, how.patience, how.max_epochs, factor=0.8,
        fruitless=how.fruitless,
    )  # fmt: skip
    make = partial(networks.build, how.network, tuple(parts.train[0].shape[1:]), 2, dropout=how.dropout)
    rows = []
    for name in names:
        for patience in PATIENCES:
            built = losses.build(
                name, approximation="annealed", n_classes=2, prior=float(problem.prior[1]), single_output=False,
                temperature=how.temperature, delta=how.delta, k=how.k, weighted=False,
            )  # fmt: skip
            one = replace(settings, patience=patience)
            fit = train(make, built.loss, parts.train, parts.validation, one, seed=0)
            called, y = outputs(fit.network, parts.test[0]).argmax(1).numpy(), parts.test[1].numpy()
            rows.append({
                "loss": name, "patience": patience, "validation loss": fit.validation_loss, "f1": f1_score(y, called),
                "accuracy": accuracy_score(y, called), "mcc": matthews_corrcoef(y, called), "epochs": fit.epochs,
                "best epoch": fit.best_epoch,
            })  # fmt: skip
            print(rows[-1], flush=True)
    print(pd.DataFrame(rows).round(4).to_string(index=False))


if __name__ == "__main__":
    main(sys.argv[1:] or ["f1"])
