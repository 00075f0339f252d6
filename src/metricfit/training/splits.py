"""Which rows a member is trained on and which it is stopped on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import StratifiedGroupKFold

__all__ = ["Split", "choose_cv", "given_splits", "split_rows", "strata"]

Rows = NDArray[np.intp]

PLENTY_OF_ROWS = 100_000
"""Above this many rows one hold-out takes the place of the five-fold ensemble …"""

FEW_OF_A_CLASS = 1_000
"""… unless a class is rarer than this, up to three times as many rows."""

TOO_FEW_ROWS = 10
"""Below this many rows nothing is held out."""

HOLD_OUT_SHARE = 0.2


@dataclass(frozen=True)
class Split:
    """Rows of one member.

    Attributes:
        train: Rows it is trained on.
        validation: Rows it is stopped on; empty if nothing is held out.
    """

    train: Rows
    validation: Rows


def choose_cv(cv: Any, rows: int, smallest_class: int) -> tuple[int | None, str]:
    """The number of folds (``None``: a hold-out, 0: nothing held out) and why.

    >>> choose_cv("auto", 5_000, 200)
    (5, '5-fold ensemble: up to 100,000 rows every row is used for training and for validation')
    """
    if cv is not None and not (isinstance(cv, str) and cv == "auto"):
        if isinstance(cv, bool) or not isinstance(cv, int | np.integer) or cv < 2:
            raise ValueError(
                f"cv: expected 'auto', a number of folds >= 2, None for a hold-out, a splitter or a list of splits, "
                f"got {cv!r}."
            )
        if rows < 2 * cv:
            raise ValueError(f"cv: {cv} folds need at least {2 * cv} rows, got {rows}.")
        return int(cv), f"{cv}-fold ensemble, as asked for"
    if rows < TOO_FEW_ROWS:
        return 0, f"nothing held out: {rows} rows are too few"
    if cv is None:
        return None, "one stratified hold-out of 20 %, as asked for"
    if rows <= PLENTY_OF_ROWS:
        why = f"up to {PLENTY_OF_ROWS:,} rows every row is used for training and for validation"
        return 5, f"5-fold ensemble: {why}"
    if rows <= 3 * PLENTY_OF_ROWS and smallest_class < FEW_OF_A_CLASS:
        return 5, f"5-fold ensemble: the rarest class has {smallest_class} rows, too few to hold out a fifth of them"
    return None, f"one stratified hold-out of 20 %: {rows:,} rows are plenty"


def strata(y: NDArray[Any]) -> NDArray[np.intp]:
    """What splits and batches are balanced over: the class; for (n, L) indicators a row's rarest label, or none.

    >>> strata(np.array([[1, 0], [1, 1], [0, 0], [1, 0]]))
    array([1, 2, 0, 1])
    """
    if y.ndim == 1:
        return y.astype(np.intp)
    counts = y.sum(axis=0)
    rarity = np.where(y > 0, -counts.astype(np.float64), -np.inf)
    return np.where(y.any(axis=1), rarity.argmax(axis=1) + 1, 0).astype(np.intp)


def given_splits(cv: Any, y: NDArray[Any], groups: ArrayLike | None) -> list[Split] | None:
    """Splits of a scikit-learn splitter or an iterable of (training rows, validation rows); None if cv is neither."""
    if hasattr(cv, "split") and not isinstance(cv, str):
        pairs = list(cv.split(np.zeros((len(y), 1)), y, groups))
    elif isinstance(cv, Iterable) and not isinstance(cv, str):
        pairs = list(cv)
    else:
        return None
    splits = [Split(np.asarray(train, dtype=np.intp), np.asarray(test, dtype=np.intp)) for train, test in pairs]
    if not splits or any(not len(split.train) for split in splits):
        raise ValueError("cv: expected at least one split, each with training rows.")
    return splits


def split_rows(
    y: NDArray[Any], folds: int | None, *, members: int, groups: ArrayLike | None, random: np.random.Generator
) -> list[Split]:
    """One split a member.

    Args:
        y: Class codes (n,) or indicators (n, L).
        folds: The number of folds; ``None`` for one hold-out; 0 to hold out nothing.
        members: Members that share each split.
        groups: Rows of one group stay together, (n,).
        random: Source of the shuffling.
    """
    every = np.arange(len(y))
    if folds == 0:
        return [Split(every, every[:0])] * members
    fold = _fold_of_row(strata(y), folds or round(1 / HOLD_OUT_SHARE), groups, random, keep_rare=folds is None)
    kept = range(folds or 1)
    return [Split(every[fold != k], every[fold == k]) for k in kept for _ in range(members)]


def _fold_of_row(
    stratum: NDArray[np.intp], folds: int, groups: ArrayLike | None, random: np.random.Generator, *, keep_rare: bool
) -> NDArray[np.intp]:
    if groups is not None:
        return _grouped_folds(stratum, folds, groups, random)
    # Rows in random order within their class, dealt out like cards: every class and every fold within one row.
    shuffled = random.permutation(len(stratum))
    order = shuffled[np.argsort(stratum[shuffled], kind="stable")]
    fold = np.empty(len(stratum), dtype=np.intp)
    fold[order] = np.arange(len(stratum)) % folds
    if keep_rare:
        # A hold-out must leave at least one row of each class to train on.
        for k in np.unique(stratum[fold == 0]):
            rows = np.flatnonzero(stratum == k)
            if (fold[rows] == 0).all():
                fold[rows[0]] = 1
    return fold


def _grouped_folds(
    stratum: NDArray[np.intp], folds: int, groups: ArrayLike, random: np.random.Generator
) -> NDArray[np.intp]:
    names = np.asarray(groups)
    if names.shape != stratum.shape:
        raise ValueError(f"groups: expected one group a row, shape {stratum.shape}, got {names.shape}.")
    found = len(np.unique(names))
    if found < folds:
        raise ValueError(f"groups: {folds} folds need at least as many groups, got {found}; lower cv.")
    # scikit-learn warns of classes with fewer rows than folds; merged here, they need not be spread.
    counts = np.bincount(stratum)
    merged = np.where(counts[stratum] < folds, counts.argmax(), stratum)
    splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=int(random.integers(2**31)))
    fold = np.empty(len(stratum), dtype=np.intp)
    for k, (_, validation) in enumerate(splitter.split(np.zeros(len(stratum)), merged, names)):
        fold[validation] = k
    return fold
