"""The grid search: once for each loss and data set, on one split, all fits written down.

Adult is searched with integer codes, the papers'; its networks on one-hot codes take what was chosen there.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd

from benchmarks.papers.config import Experiment
from benchmarks.papers.fits import RIVALS, Choice, base, loss_of, protocol_of, search_fit
from benchmarks.papers.results import KEY, append, now, read, version

__all__ = ["chosen", "fixed", "missing", "points", "search"]

VALUES = ("learning_rate", "batch_size", "dropout", "factor")


def fixed(experiment: Experiment) -> Choice | None:
    """The protocol's own values, where it leaves nothing to choose."""
    how = protocol_of(experiment)
    if experiment.batch == "grid" and how.grids and base(experiment.method) not in RIVALS:
        return None
    batch = int(experiment.batch) if experiment.batch.isdigit() else how.batch_size
    # What a method insists on goes before the batch size of the table.
    if "batch_size" in how.overrides.get(base(experiment.method), {}):
        batch = how.batch_size
    return Choice(how.learning_rate, batch, how.dropout, how.factor)


def points(experiment: Experiment, grid: str) -> list[Choice]:
    """All choices of a grid; the annealing factor only for losses that are annealed."""
    how = protocol_of(experiment)
    if grid not in how.grids:
        raise ValueError(f"grid: protocol {how.name} has no grid {grid!r}; there are: {', '.join(how.grids)}.")
    values = how.grids[grid]
    batches = [*values.get("batch_size", (how.batch_size,))]
    if grid == "full":
        batches += how.wider_batches.get(experiment.dataset, {}).get(base(experiment.method), ())
    annealed = how.annealing and loss_of(experiment).annealed
    factors = values.get("factor", (how.factor,)) if annealed else (how.factor,)
    rates, dropouts = values.get("learning_rate", (how.learning_rate,)), values.get("dropout", (how.dropout,))
    return [Choice(*point, grid) for point in itertools.product(rates, batches, dropouts, factors)]


def _searched(experiment: Experiment) -> Experiment:
    """The experiment whose grid search serves this one."""
    return replace(experiment, encoding="integer") if experiment.encoding else experiment


def _found(experiment: Experiment, grid: str, folder: Path) -> pd.DataFrame:
    experiment = _searched(experiment)
    rows = read("grid", folder, [experiment.protocol])
    same = rows["grid"] == grid
    for name in KEY:
        same &= rows[name] == getattr(experiment, name)
    return rows[same]


def missing(experiment: Experiment, grid: str, folder: Path) -> list[Choice]:
    """The points that have not been tried."""
    rows = _found(experiment, grid, folder)
    tried = set(zip(*(rows[name].astype(float) for name in VALUES), strict=True))
    return [p for p in points(experiment, grid) if tuple(float(getattr(p, name)) for name in VALUES) not in tried]


def search(experiment: Experiment, point: Choice, folder: Path) -> None:
    """Try one point and write it down."""
    experiment, start = _searched(experiment), time.perf_counter()
    made = search_fit(experiment, point)
    row = {
        "grid": point.grid, "learning_rate": point.learning_rate, "batch_size": point.batch_size,
        "dropout": point.dropout, "factor": point.factor, "validation_loss": round(made.validation_loss, 6),
        "epochs": made.epochs, "seconds": round(time.perf_counter() - start, 2), "seed": 0,
        "version": version(), "date": now(),
    }  # fmt: skip
    append("grid", experiment, [row], folder)


def chosen(experiment: Experiment, grid: str, folder: Path) -> Choice:
    """The point with the lowest validation loss."""
    rows = _found(experiment, grid, folder)
    if rows.empty:
        raise ValueError(f"grid: nothing was tried yet for {experiment.title}; run it without --budget.")
    best = rows.sort_values("validation_loss", kind="stable").iloc[0]
    return Choice(
        float(best["learning_rate"]), int(best["batch_size"]), float(best["dropout"]), float(best["factor"]), grid
    )
