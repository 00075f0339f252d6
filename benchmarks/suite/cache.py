"""Probabilities on disk, outside the repository, so that rules and ensembles can be studied without training."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.suite.fits import Prediction
from benchmarks.suite.tables import CACHE as HOME

__all__ = ["CACHE", "forget", "keep", "recall", "study"]

CACHE = HOME / "predictions"


def path(folder: Path, table: str, split: int, fit: str) -> Path:
    """The file of one fit."""
    return folder / table / str(split) / f"{fit}.npz"


def keep(file: Path, made: Prediction, commit: str) -> None:
    """Write a prediction as it is; a killed write leaves nothing behind that could be read."""
    arrays = {"test": made.test, "held_out": made.held_out, "cpu_seconds": np.array(made.cpu_seconds)}
    if made.decided is not None:
        arrays["decided"] = made.decided
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".tmp")
    with fresh.open("wb") as stream:
        np.savez(stream, commit=np.array(commit), **arrays)
    fresh.replace(file)


def recall(file: Path) -> tuple[Prediction, str] | None:
    """A prediction and the commit it was made by, if there is one."""
    if not file.exists():
        return None
    with np.load(file, allow_pickle=False) as stored:
        decided = stored.get("decided")
        made = Prediction(stored["test"], stored["held_out"], decided, float(stored["cpu_seconds"]))
        return made, str(stored["commit"])


def forget(folder: Path, tables: list[str], fits: set[str]) -> None:
    """Remove the predictions of some fits, to make them again."""
    for table in tables:
        for file in (folder / table).glob("*/*.npz"):
            if file.stem in fits:
                file.unlink()


def study(
    about: str, results: Path, studied: Callable[[Path], pd.DataFrame], compared: Callable[[pd.DataFrame], str]
) -> None:
    """The command line of a study of kept predictions: write its rows to ``results``, and print what they say."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the predictions")
    parser.add_argument("--table", action="store_true", help="only print the table of the rows that are there")
    options = parser.parse_args()
    if not options.table:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            studied(options.cache).to_csv(results, index=False)
    print(compared(pd.read_csv(results)))
