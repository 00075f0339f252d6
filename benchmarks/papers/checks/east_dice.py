"""Is EAST's Dice the sum over samples that btg's released code has, instead of the coefficient of a batch?

``python -m benchmarks.papers.checks.east_dice`` trains EAST's network with both on three splits of cocktail party and
mammography and prints test scores at the arg max.
"""

from __future__ import annotations

from functools import partial

import pandas as pd
import torch
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from benchmarks.papers import data, losses, networks
from benchmarks.papers.config import protocol
from benchmarks.papers.training import Settings, outputs, train

TRIALS = 3
MOST_EPOCHS = 300
"""Nothing in the sum over samples speaks against calling everything positive, and that goes on and on."""


def main() -> None:
    torch.set_num_threads(1)
    how = protocol("east-tabular")
    settings = Settings(how.optimiser, how.learning_rate, how.batch_size, how.patience, MOST_EPOCHS)
    rows = []
    for dataset in ("cocktail_party", "mammography"):
        problem = data.load(dataset)
        for name in ("dice", "dice_sigmoid", "dice_released", "dice_released_sigmoid"):
            built = losses.build(
                name, approximation="linear", n_classes=2, prior=float(problem.prior[1]), single_output=False,
                temperature=how.temperature, delta=how.delta, k=how.k, weighted=False,
            )  # fmt: skip
            for trial in range(TRIALS):
                parts = data.split(problem, how.fractions, seed=trial)
                shape = tuple(parts.train[0].shape[1:])
                make = partial(networks.build, how.network, shape, built.n_outputs, dropout=how.dropout)
                fit = train(make, built.loss, parts.train, parts.validation, settings, seed=trial)
                called, y = outputs(fit.network, parts.test[0]).argmax(1).numpy(), parts.test[1].numpy()
                rows.append({
                    "data": dataset, "loss": name, "F1": f1_score(y, called, zero_division=0.0),
                    "accuracy": accuracy_score(y, called), "MCC": matthews_corrcoef(y, called), "epochs": fit.epochs,
                })  # fmt: skip
            print(rows[-1], flush=True)
    table = pd.DataFrame(rows).groupby(["data", "loss"]).agg(["mean", "std"])
    table.columns = [" ".join(column) for column in table.columns]
    print(table.round(3).to_string())


if __name__ == "__main__":
    main()
