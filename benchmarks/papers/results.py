"""Rows of results: appended, never half a group of them."""

from __future__ import annotations

import csv
import fcntl
import io
import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import astuple, fields
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.papers.config import Experiment
from benchmarks.running import cut_half_row

__all__ = ["RESULTS", "append", "done", "now", "read", "version"]

RESULTS = Path(__file__).parent / "results"

KEY = [f.name for f in fields(Experiment)]
COLUMNS = {
    "scores": [
        *KEY, "trial", "rule", "metric", "class", "value", "learning_rate", "batch_size", "dropout", "factor", "grid",
        "train_rows", "seed", "version", "date",
    ],
    "grid": [
        *KEY, "grid", "learning_rate", "batch_size", "dropout", "factor", "validation_loss", "epochs", "seconds",
        "seed", "version", "date",
    ],
    "curves": [*KEY, "trial", "epoch", "metric", "value", "seed", "version", "date"],
}  # fmt: skip
"""Columns of the three kinds of rows: scores of trained models, the fits of a grid search, scores after each epoch."""

LAST = ("fit", "seconds")
"""Rule and metric of the row that ends the scores of a trial: without it they are not all there."""

TEXT = dict.fromkeys([*KEY, "rule", "metric", "class", "grid", "version", "date"], str)


def path_of(kind: str, experiment: Experiment, folder: Path) -> Path:
    """The file of an experiment's rows."""
    return folder / kind / f"{experiment.protocol}--{experiment.dataset}.csv"


def append(kind: str, experiment: Experiment, rows: Iterable[Mapping[str, Any]], folder: Path) -> None:
    """Add rows in one write, so that a run killed at any moment leaves whole rows and can go on.

    Args:
        kind: ``"scores"``, ``"grid"`` or ``"curves"``.
        experiment: What the rows belong to.
        rows: The other columns.
        folder: Where the results are.
    """
    key = dict(zip(KEY, astuple(experiment), strict=True))
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS[kind], lineterminator="\n")
    path = path_of(kind, experiment, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        cut_half_row(file)
        if file.tell() == 0:
            writer.writeheader()
        writer.writerows(key | dict(row) for row in rows)
        file.write(text.getvalue().encode())
        file.flush()
        os.fsync(file.fileno())


def read(kind: str, folder: Path, protocols: Iterable[str] | None = None) -> pd.DataFrame:
    """All rows of one kind; of scores only those of whole trials, the last where one was written twice."""
    frames = []
    wanted = None if protocols is None else set(protocols)
    for path in sorted((folder / kind).glob("*.csv")):
        if wanted is not None and path.stem.rsplit("--", 1)[0] not in wanted:
            continue
        content = path.read_text()
        text = io.StringIO(content[: content.rfind("\n") + 1])
        frames.append(pd.read_csv(text, dtype=TEXT, keep_default_na=False, na_values={"value": ["nan", ""]}))
    frames = [frame for frame in frames if len(frame)]
    if not frames:
        return pd.DataFrame(columns=COLUMNS[kind])
    rows = pd.concat(frames, ignore_index=True)
    if kind == "grid":
        same = [*KEY, "grid", "learning_rate", "batch_size", "dropout", "factor"]
        return rows.drop_duplicates(same, keep="last", ignore_index=True)
    if kind == "curves":
        return rows.drop_duplicates([*KEY, "trial", "epoch", "metric"], keep="last", ignore_index=True)
    rows = rows.drop_duplicates([*KEY, "trial", "rule", "metric", "class"], keep="last")
    whole = rows[(rows["rule"] == LAST[0]) & (rows["metric"] == LAST[1])][[*KEY, "trial"]]
    return rows.merge(whole, on=[*KEY, "trial"], how="inner").reset_index(drop=True)


def done(folder: Path, protocols: Iterable[str] | None = None) -> dict[tuple[Experiment, int], float]:
    """The fits that are there, with the seconds each took."""
    rows = read("scores", folder, protocols)
    rows = rows[(rows["rule"] == LAST[0]) & (rows["metric"] == LAST[1])]
    keys = zip(*(rows[name] for name in KEY), strict=True)
    return {
        (Experiment(*key), int(trial)): float(value)
        for key, trial, value in zip(keys, rows["trial"], rows["value"], strict=True)
    }


@cache
def version() -> str:
    """Version and commit of the code, with a ``+`` if the sources differ from it."""
    import metricfit

    def git(*arguments: str) -> str:
        root = Path(__file__).parents[2]
        return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout.strip()

    try:
        commit = git("rev-parse", "--short=10", "HEAD")
        changed = git("status", "--porcelain", "--", "src", "benchmarks/papers/*.py", "benchmarks/papers/configs")
    except (OSError, subprocess.CalledProcessError):
        return f"{metricfit.__version__} unknown"
    return f"{metricfit.__version__} {commit}{'+' if changed else ''}"


def now() -> str:
    """The time, UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
