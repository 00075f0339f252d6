"""Step one: fit every candidate once on every split, and keep what it says.

    METRICFIT_DATA=../shared/data python -m benchmarks.portfolio.fitting --splits 0 1 2

What is in the cache is not fitted again; a killed run goes on where it was.
"""

from __future__ import annotations

import argparse
import time
import traceback
import warnings
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold
from threadpoolctl import threadpool_limits

from benchmarks.portfolio.members import CORE, FITS, Problem

__all__ = ["CACHE", "load_unit", "problem_of"]

CACHE = Path(__file__).parent / "cache"
MOST_ROWS = 6000
MOST_TEST_ROWS = 20_000
FEWEST_OF_A_CLASS = 20
FOLDS = 5


@lru_cache(maxsize=2)
def _table(name: str) -> tuple[pd.DataFrame, NDArray[np.intp], list[Any]]:
    from benchmarks.suite.tables import load_table, splits

    X, y = load_table(name)
    frame = X if isinstance(X, pd.DataFrame) else pd.DataFrame(np.asarray(X))
    frame = frame.reset_index(drop=True)
    return frame, np.unique(np.asarray(y), return_inverse=True)[1], list(splits(name, 10_000))


def capped(y: NDArray[np.intp], rows: NDArray[np.intp], most: int, seed: int) -> NDArray[np.intp]:
    """A stratified sample in which no class falls below 20 rows if it had them."""
    if len(rows) <= most:
        return rows
    random = np.random.default_rng(seed)
    kept = []
    for k in np.unique(y[rows]):
        of_class = rows[y[rows] == k]
        size = min(len(of_class), max(round(most / len(rows) * len(of_class)), FEWEST_OF_A_CLASS))
        kept.append(random.choice(of_class, size, replace=False))
    return random.permutation(np.concatenate(kept))


def problem_of(name: str, split: int, repeat: int = 0) -> tuple[Problem, NDArray[np.intp]]:
    """The training part of one split with its folds, and the truth of the test rows."""
    X, y, pairs = _table(name)
    train, test = (np.asarray(part) for part in pairs[split])
    train = capped(y, train, MOST_ROWS, split)
    test = test if len(test) <= MOST_TEST_ROWS else np.random.default_rng(split).choice(test, MOST_TEST_ROWS, False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a class with fewer rows than folds
        folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=split + 1000 * repeat).split(train, y[train]))
    frames = (X.iloc[rows].reset_index(drop=True) for rows in (train, test))
    X_train, X_test = frames
    return Problem(X_train, y[train], X_test, int(y.max()) + 1, folds, split + 1000 * repeat), y[test]


def path(cache: Path, name: str, split: int, fit: str, repeat: int = 0) -> Path:
    tail = f"@{repeat}" if repeat else ""
    return cache / name.replace("/", "--") / str(split) / f"{fit}{tail}.npz"


def fit_one(name: str, split: int, fit: str, repeat: int, cache: Path) -> float:
    """Fit and keep; returns processor seconds."""
    problem, y_test = problem_of(name, split, repeat)
    start = time.process_time()
    scores = FITS[fit](problem)
    cpu = time.process_time() - start
    arrays: dict[str, Any] = {"y": problem.y, "y_test": y_test, "cpu": np.array(cpu)}
    fold = np.empty(len(problem.y), dtype=np.int8)
    for number, (_, held) in enumerate(problem.folds):
        fold[held] = number
    arrays["fold"] = fold
    for member, (held_out, test) in scores.items():
        arrays |= {f"oof:{member}": held_out.astype(np.float32), f"test:{member}": test.astype(np.float32)}
    file = path(cache, name, split, fit, repeat)
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".tmp")
    with fresh.open("wb") as stream:
        np.savez(stream, **arrays)
    fresh.replace(file)
    return cpu


def load_unit(cache: Path, name: str, split: int) -> dict[str, Any]:
    """Everything that is known of one split: y, y_test, fold, and for each member (out-of-fold, test, cpu)."""
    found: dict[str, Any] = {"members": {}}
    for file in sorted((cache / name.replace("/", "--") / str(split)).glob("*.npz")):
        repeat = f"@{file.stem.split('@')[1]}" if "@" in file.stem else ""
        with np.load(file) as stored:
            if not repeat:
                found |= {key: stored[key] for key in ("y", "y_test", "fold")}
            for key in stored:
                if key.startswith("oof:"):
                    member = key.removeprefix("oof:")
                    pair = (stored[key].astype(np.float64), stored[f"test:{member}"].astype(np.float64))
                    found["members"][member + repeat] = (*pair, float(stored["cpu"]))
    return found


def jobs(
    names: list[str], splits: list[int], fits: list[str], repeats: list[int]
) -> Iterator[tuple[str, int, str, int]]:
    """All tables get their first split before any gets its second."""
    for split in splits:
        for name in names:
            for fit in fits:
                for repeat in repeats:
                    yield name, split, fit, repeat


def main() -> None:
    from benchmarks.suite.tables import names

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", help="default: all of the half that choices are made on")
    parser.add_argument("--splits", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--fits", nargs="+", default=list(CORE), choices=list(FITS))
    parser.add_argument("--repeats", nargs="+", type=int, default=[0])
    parser.add_argument("--most-rows", type=int, default=10**9, help="only tables of at most so many rows")
    parser.add_argument("--cache", type=Path, default=CACHE)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    sizes = {name: len(_table(name)[1]) for name in args.tables or names("choose")}
    chosen = [name for name in sorted(sizes, key=sizes.__getitem__) if sizes[name] <= args.most_rows]
    with threadpool_limits(1):
        for name, split, fit, repeat in jobs(chosen, args.splits, args.fits, args.repeats):
            if path(args.cache, name, split, fit, repeat).exists():
                continue
            try:
                cpu = fit_one(name, split, fit, repeat, args.cache)
                print(f"{time.strftime('%H:%M:%S')} {name} {split} {fit} {repeat}: {cpu:.1f} s", flush=True)
            except Exception:  # one broken fit must not end the run
                print(f"{name} {split} {fit} {repeat} FAILED\n{traceback.format_exc()}", flush=True)


if __name__ == "__main__":
    main()
