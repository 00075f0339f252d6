"""Does the scaling of adult's integer codes explain btg's numbers for networks on adult?

``python -m benchmarks.papers.checks.adult_networks`` trains btg's network on three splits with features that are left
as they are or brought to [0, 1] (standardised ones are in the tables) and prints means over the thresholds 0.1 … 0.9,
of probabilities and, as btg's code does for cross-entropy, of raw outputs.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import f1_score

from benchmarks.papers import data, losses, networks
from benchmarks.papers.config import protocol
from benchmarks.papers.evaluation import THRESHOLDS
from benchmarks.papers.training import Part, Settings, outputs, train

TRIALS = 3


def main() -> None:
    torch.set_num_threads(1)
    how = protocol("btg-tabular")
    problem = data.load("adult", encoding="integer")
    settings = Settings(how.optimiser, how.learning_rate, how.batch_size, how.patience, how.max_epochs)
    rows = []
    for scaling in ("0 to 1", "as they are"):
        splits = [data.split(problem, how.fractions, seed=trial, scale=False) for trial in range(TRIALS)]
        splits = [to_unit(parts) for parts in splits] if scaling == "0 to 1" else splits
        for name in ("f1", "accuracy", "bce", "auroc", "f1+weighted", "accuracy+weighted"):
            method, _, weighted = name.partition("+")
            built = losses.build(
                method, approximation="linear", n_classes=2, prior=float(problem.prior[1]), single_output=True,
                temperature=how.temperature, delta=how.delta, k=how.k, weighted=bool(weighted),
            )  # fmt: skip
            make = partial(
                networks.build, how.network, tuple(splits[0].train[0].shape[1:]), built.n_outputs, dropout=how.dropout
            )
            for trial, parts in enumerate(splits):
                fit = train(make, built.loss, parts.train, parts.validation, settings, seed=trial)
                logits = outputs(fit.network, parts.test[0])
                f1, accuracy = judged(logits.sigmoid(), parts.test)
                raw_f1, raw_accuracy = judged(logits, parts.test)
                rows.append({
                    "features": scaling, "loss": name, "f1": f1, "accuracy": accuracy, "raw f1": raw_f1,
                    "raw accuracy": raw_accuracy, "epochs": fit.epochs,
                })  # fmt: skip
            print(rows[-1], flush=True)
    table = pd.DataFrame(rows).groupby(["features", "loss"]).agg(["mean", "std"])
    table.columns = [" ".join(column) for column in table.columns]
    print(table.round(3).to_string())


def to_unit(parts: data.Parts) -> data.Parts:
    """Features of the training part from 0 to 1."""
    X = parts.train[0]
    low, high = X.amin(dim=0), X.amax(dim=0)
    spread = torch.where(high > low, high - low, torch.ones(()))
    made = {
        name: ((getattr(parts, name)[0] - low) / spread, getattr(parts, name)[1])
        for name in ("train", "validation", "test")
    }
    return replace(parts, **made)


def judged(output: torch.Tensor, test: Part) -> tuple[float, float]:
    """F1 and accuracy as means over the thresholds."""
    p, y = output.numpy(), test[1].numpy()
    decided = [(p >= threshold).astype(int) for threshold in THRESHOLDS]
    f1 = float(np.mean([f1_score(y, d, zero_division=0) for d in decided]))
    return f1, float(np.mean([np.mean(d == y) for d in decided]))


if __name__ == "__main__":
    main()
