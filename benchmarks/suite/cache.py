"""Probabilities on disk, so that a change of the decision rule costs no training."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.suite.methods import Prediction

__all__ = ["CACHE", "Cached", "forget", "keep", "recall"]

CACHE = Path(__file__).parent / "cache"

Cached = tuple[Prediction, float, float, str]
"""The prediction, wall and processor seconds of its fit, and the commit it was made by."""


def path(folder: Path, dataset: str, configuration: str, split: int, fit: str, metric: str) -> Path:
    """The file of one fit; ``metric`` is empty where all metrics share it."""
    name = f"{fit}-{metric}" if metric else fit
    return folder / dataset.replace("/", "--") / configuration.replace("<=", "-at-most-") / f"{split}-{name}.npz"


def keep(file: Path, made: Cached) -> None:
    """Write a prediction; a killed write leaves nothing behind that could be read."""
    prediction, seconds, cpu_seconds, commit = made
    arrays = {"test": prediction.test.astype(np.float32), "cost": np.array([seconds, cpu_seconds])}
    if prediction.out_of_fold is not None and prediction.rows is not None:
        arrays |= {"rows": prediction.rows.astype(np.int32), "out_of_fold": prediction.out_of_fold.astype(np.float32)}
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".tmp")
    with fresh.open("wb") as stream:
        np.savez_compressed(stream, commit=np.array(commit), **arrays)
    fresh.replace(file)


def recall(file: Path) -> Cached | None:
    """Read a prediction, if there is one."""
    if not file.exists():
        return None
    with np.load(file, allow_pickle=False) as stored:
        held = "rows" in stored
        prediction = Prediction(
            stored["test"], stored["rows"] if held else None, stored["out_of_fold"] if held else None
        )
        return prediction, float(stored["cost"][0]), float(stored["cost"][1]), str(stored["commit"])


def forget(folder: Path, datasets: list[str], configuration: str, fits: set[str]) -> None:
    """Remove the predictions of some fits, to make them again."""
    for dataset in datasets:
        for file in path(folder, dataset, configuration, 0, "any", "").parent.glob("*.npz"):
            if file.stem.split("-")[1] in fits:
                file.unlink()
