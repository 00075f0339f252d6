"""Five models of five folds: which mean of theirs fits a cut-off that was chosen on held-out rows, of one model each?

    METRICFIT_DATA=../shared/data python -m benchmarks.portfolio.fold_means

Boosting and forest on the tables of ``constraints.py``, two splits. The cut-off is that of ``best_threshold`` for
precision subject to a recall of 0.9 on held-out rows; ``fold_means.csv`` has recall and precision on test rows if the
five models' probabilities are averaged, their logits are averaged, or the median is taken, and of single models.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from benchmarks.portfolio.constraints import METRIC, TABLES, Models, halves
from metricfit.decisions import best_threshold

RESULTS = Path(__file__).parent / "fold_means.csv"


def rows_of(table: str, split: int, name: str) -> list[dict[str, Any]]:
    """One row per mean."""
    X, X_test, y, y_test = halves(table, split)
    clf = Models(METRIC, models=[name], baseline=False, verbose=False, device="cpu", n_jobs=1, random_state=split)
    model = clf.fit(X, y).fitted_[0]
    truth = y[np.concatenate([part.validation for part in clf.folds_.splits])]
    cut = best_threshold(truth, np.concatenate(model.held_out)[:, 1].astype(float), METRIC).threshold
    new = model._rows(clf._table(X_test))
    each = np.stack([model._of_fold(fit, new)[:, 1] for fit in model.fits]).clip(1e-6, 1 - 1e-6).astype(float)
    means = {"probabilities": each.mean(0), "logits": expit(logit(each).mean(0)), "median": np.median(each, axis=0)}
    ways = {**{way: [score] for way, score in means.items()}, "one model": list(each)}
    found = []
    for way, scores in ways.items():
        recall = np.mean([(score[y_test == 1] >= cut).mean() for score in scores])
        precision = np.mean([y_test[score >= cut].mean() for score in scores])
        found.append(
            {
                "table": table,
                "split": split,
                "model": name,
                "mean of": way,
                "cut": cut,
                "recall": recall,
                "precision": precision,
            }
        )
    return found


def main() -> None:
    """Fit all, write the table, and print means and how far the recall is from 0.9."""
    warnings.simplefilter("ignore")
    names = ("boosting", "forest")
    rows = [row for split in (0, 1) for table in TABLES for name in names for row in rows_of(table, split, name)]
    frame = pd.DataFrame(rows).round(4)
    frame.to_csv(RESULTS, index=False)
    frame["off"] = (frame["recall"] - 0.9).abs()
    print(frame.groupby(["model", "mean of"], sort=False)[["recall", "precision", "off"]].mean().round(3))


if __name__ == "__main__":
    main()
