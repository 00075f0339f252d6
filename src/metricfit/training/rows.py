"""Rows: which a member is trained on and which it is stopped on, and in which order they come as batches."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.utils import _safe_indexing
from torch import Tensor

from metricfit.inputs import Task, expect
from metricfit.metrics import Metric
from metricfit.metrics.money import Money

Rows = NDArray[np.intp]

PLENTY_OF_ROWS = 100_000  # above this many rows one hold-out takes the place of the five-fold ensemble …
FEW_OF_A_CLASS = 1_000  # … unless a class is rarer than this, up to three times as many rows
TOO_FEW_ROWS = 10  # below this many rows nothing is held out
FOLDS = 5  # of the ensemble; a hold-out is one of so many parts


class Split(NamedTuple):
    """Rows of one member: trained on, and held out to stop on (which may be none)."""

    train: Rows
    validation: Rows


def choose_cv(cv: Any, rows: int, smallest_class: int, groups: int | None = None) -> tuple[int | None, str]:
    """The number of folds (``None``: a hold-out, 0: nothing held out) and why.

    It depends on the numbers of rows, of rows of the rarest class, and of groups whose rows stay together.
    """
    if cv is not None and not (isinstance(cv, str) and cv == "auto"):
        whole = isinstance(cv, int | np.integer) and not isinstance(cv, bool) and cv >= 2
        expect(whole, "cv", "'auto', a number of folds >= 2, None for a hold-out, a splitter or a list of splits", cv)
        if rows < 2 * cv:
            raise ValueError(f"cv: {cv} folds need at least {2 * cv} rows, got {rows}.")
        _check_groups(groups, int(cv))
        return int(cv), f"{cv}-fold ensemble, as asked for"
    if rows < TOO_FEW_ROWS:
        return 0, f"nothing held out: {rows} rows are too few"
    hold_out, few_groups = "one stratified hold-out of 20 %", ""
    if groups is not None and groups < FOLDS:
        _check_groups(groups, None)
        few_groups = f"there are no more than {groups} groups, and the rows of one stay together"
        hold_out = f"one hold-out of one of the {groups} groups"
    if cv is None:
        return None, f"{hold_out}, as asked for"
    if rows <= PLENTY_OF_ROWS:
        why = f"up to {PLENTY_OF_ROWS:,} rows every row is used for training and for validation"
    elif rows <= 3 * PLENTY_OF_ROWS and smallest_class < FEW_OF_A_CLASS:
        why = f"the rarest class has {smallest_class} rows, too few to hold out a fifth of them"
    else:
        return None, f"{hold_out}: {rows:,} rows are plenty"
    folds = FOLDS if groups is None else min(FOLDS, groups)
    return folds, f"{folds}-fold ensemble: {few_groups or why}"


def strata(y: NDArray[Any]) -> NDArray[np.intp]:
    """What splits and batches are balanced over: the class; for (n, L) indicators a row's rarest label, or none."""
    if y.ndim == 1:
        return y.astype(np.intp)
    rarity = np.where(y > 0, -y.sum(axis=0).astype(np.float64), -np.inf)
    return np.where(y.any(axis=1), rarity.argmax(axis=1) + 1, 0).astype(np.intp)


def group_codes(groups: ArrayLike, rows: int) -> Rows:
    """The group of each row as a number from 0, in the order of the groups' names."""
    names = np.asarray(groups)
    expect(names.shape == (rows,), "groups", f"one group per row, shape ({rows},)", names.shape)
    if missing := int(pd.isna(names).sum()):
        without = f"{missing} of {rows} without one (None or NaN); drop these rows or name a group for each"
        raise ValueError(f"groups: expected a group for every row, got {without}.")
    return pd.factorize(names, sort=True)[0].astype(np.intp)


def given_splits(cv: Any, y: NDArray[Any], groups: ArrayLike | None) -> list[Split] | None:
    """Splits of a scikit-learn splitter or an iterable of (training rows, validation rows); None if cv is neither."""
    if isinstance(cv, str) or not (hasattr(cv, "split") or isinstance(cv, Iterable)):
        return None
    pairs = cv.split(np.zeros((len(y), 1)), y, groups) if hasattr(cv, "split") else cv
    splits = [_given_split(pair, len(y)) for pair in pairs]
    if not splits or any(not len(split.train) for split in splits):
        raise ValueError("cv: expected at least one split, each with training rows.")
    return splits


def _given_split(pair: Any, rows: int) -> Split:
    try:
        train, validation = pair
    except (TypeError, ValueError):
        wanted, got = "pairs (training rows, validation rows)", reprlib.repr(pair)
        raise ValueError(f"cv: expected {wanted}, got {got} for one; give a list of pairs.") from None
    split = Split(_given_rows(train, rows, "training"), _given_rows(validation, rows, "validation"))
    if shared := len(np.intersect1d(split.train, split.validation)):
        twice = f"got {shared} that are training rows of the same split; take them out of one of the two"
        raise ValueError(f"cv: expected validation rows that are held out, {twice}.")
    return split


def _given_rows(values: Any, count: int, kind: str) -> Rows:
    """Row numbers from row numbers, of which negative ones count from the end, or from a mask."""
    try:
        array = np.array(np.asarray(values).tolist())  # objects too have a type then
    except ValueError:
        array = np.empty((0, 0))
    if array.shape == (0,):
        return np.empty(0, dtype=np.intp)
    if array.dtype == bool and array.shape == (count,):
        return np.flatnonzero(array)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        got = f"{reprlib.repr(values)} of type {array.dtype} and shape {array.shape}"
        raise ValueError(f"cv: expected {kind} rows as whole numbers or as a mask of {count} rows, got {got}.")
    if len(wrong := array[(array < -count) | (array >= count)]):
        raise ValueError(f"cv: expected {kind} rows from {-count} to {count - 1}, got {wrong[0]}.")
    return np.where(array < 0, array + count, array).astype(np.intp)


def split_rows(
    y: NDArray[Any], folds: int | None, *, groups: ArrayLike | None, random: np.random.Generator
) -> list[Split]:
    """One split per fold, or ``None`` for one hold-out, 0 to hold out nothing; rows of one group stay together."""
    every = np.arange(len(y))
    if folds == 0:
        return [Split(every, every[:0])]
    if groups is None:
        fold = _stratified_folds(strata(y), folds or FOLDS, random, keep_rare=folds is None)
    else:
        codes = group_codes(groups, len(y))
        found = int(codes.max()) + 1
        _check_groups(found, folds)
        fold = _grouped_folds(strata(y), folds or min(FOLDS, found), codes, random)
    return [Split(every[fold != k], every[fold == k]) for k in range(folds or 1)]


def _check_groups(found: int | None, folds: int | None) -> None:
    """Refuse more folds than groups; a hold-out needs two."""
    if found is None or found >= (folds or 2):
        return
    if folds is None:
        told = f"so that one can be held out, got {found}; leave groups out, or give cv a list of splits"
        raise ValueError(f"groups: expected at least 2 groups, {told}.")
    raise ValueError(f"groups: {folds} folds need at least as many groups, got {found}; lower cv.")


def _stratified_folds(stratum: Rows, folds: int, random: np.random.Generator, *, keep_rare: bool) -> Rows:
    # Rows in random order within their class, dealt out like cards: every class and every fold within one row.
    shuffled = random.permutation(len(stratum))
    order = shuffled[np.argsort(stratum[shuffled], kind="stable")]
    fold = np.empty(len(stratum), dtype=np.intp)
    fold[order] = np.arange(len(stratum)) % folds
    # A hold-out must leave at least one row of each class to train on.
    for k in np.unique(stratum[fold == 0]) if keep_rare else ():
        rows = np.flatnonzero(stratum == k)
        if (fold[rows] == 0).all():
            fold[rows[0]] = 1
    return fold


def _grouped_folds(stratum: Rows, folds: int, groups: Rows, random: np.random.Generator) -> Rows:
    # scikit-learn warns of classes with fewer rows than folds; merged here, they need not be spread.
    counts = np.bincount(stratum)
    merged = np.where(counts[stratum] < folds, counts.argmax(), stratum)
    splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=int(random.integers(2**31)))
    fold = np.empty(len(stratum), dtype=np.intp)
    for k, (_, validation) in enumerate(splitter.split(np.zeros(len(stratum)), merged, groups)):
        fold[validation] = k
    return fold


@dataclass(frozen=True)
class Table:
    """Rows in the forms that models like."""

    dense: NDArray[np.float32]  # scaled numbers without gaps, categories as indicators: networks, linear models
    trees: NDArray[np.float32]  # numbers as they are, gaps as NaN, categories as codes (n, columns)
    categories: NDArray[np.bool_]  # which columns are codes
    given: Any  # the table as it was given: pipelines that prepare it themselves

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.dense)

    @classmethod
    def of_numbers(cls, dense: NDArray[np.float32]) -> Table:
        """A table that is numbers without gaps already."""
        return cls(dense, dense, np.zeros(dense.shape[1], dtype=bool), dense)

    def head(self, rows: int) -> Table:
        """The first rows."""
        return Table(self.dense[:rows], self.trees[:rows], self.categories, _safe_indexing(self.given, slice(0, rows)))


@dataclass(frozen=True)
class Folds:
    """What every model of a portfolio is fitted on: the same rows, held out in the same folds."""

    table: Table
    codes: NDArray[np.int64]  # class codes (n,), or 0/1 (n, labels)
    weight: NDArray[np.float32]  # for training (n,): sample weights times class weights
    plain_weight: NDArray[np.float32]  # the former alone
    splits: Sequence[Split]  # of each fold; without validation rows nothing is held out
    metric: Metric  # what the models are judged by
    task: Task
    labels: tuple[Hashable, ...]  # names of classes or labels
    seed: int  # of everything random; no global seed is changed
    shares: Tensor | None = None  # class shares (d,), where they are not those of the rows at hand
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # those that the metric names

    def of_counts(self, *, plain: bool) -> Folds:
        """The same for what trains on counts alone: without groups, money as the weight of the rows (not if plain)."""
        money, found = getattr(self.metric, "objective", self.metric), replace(self, metric=self.metric.of_counts)
        if plain or not isinstance(money, Money):
            return found
        codes, stakes = money.stakes(self.columns, self.labels, self.codes)
        weight = (self.weight * stakes / (self.weight * stakes).mean()).astype(np.float32)
        return replace(found, codes=codes, weight=weight)

    @property
    def held_out(self) -> bool:
        """Whether any row is held out."""
        return any(len(split.validation) for split in self.splits)


class TrainingData(NamedTuple):
    """Rows as tensors on one device."""

    features: Tensor  # (n, features), float32
    target: Tensor  # class codes (n,), or 0/1 (n, labels)
    weight: Tensor  # (n,): sample weights times class weights

    def shares(self, task: Task, classes: int) -> Tensor:
        """Weighted class shares (d,), or (L, 2) of negatives and positives."""
        weight, target = self.weight.double().cpu(), self.target.cpu()
        if task == "multilabel":
            positive = (target * weight[:, None]).sum(dim=0) / weight.sum()
            return torch.stack([1 - positive, positive], dim=-1).float()
        counts = torch.zeros(classes, dtype=torch.float64).index_add(0, target, weight)
        return (counts / counts.sum()).float()


def take_rows(rows: Tensor, index: Tensor) -> Tensor:
    """Rows by an index (members, n), as (members, n, …)."""
    return rows.index_select(0, index.flatten()).reshape(*index.shape, *rows.shape[1:])


class BatchOrder:
    """Row indices of the batches of every member, given its training rows.

    All members get batches of one size, also the last; one with fewer rows starts over. With the class of every row,
    each class is spread evenly over the epoch. Where the steps are given, batches are of just the size given.
    """

    def __init__(
        self, rows: Sequence[Rows], batch_size: float, *, stratum: Rows | None = None, steps: int | None = None
    ) -> None:
        longest = max(len(r) for r in rows)
        self.steps = steps or math.ceil(1 / batch_size if batch_size < 1 else longest / batch_size)
        self.batch_size = int(batch_size) if steps else -(-longest // self.steps)
        self._stratified = stratum is not None
        self._members = [_interleaved(r, np.zeros_like(r) if stratum is None else stratum[r]) for r in rows]

    def epoch(self, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Index tensors (members, batch_size), one per step."""
        length = self.steps * self.batch_size
        orders = [self._drawn(*member, generator) for member in self._members]
        filled = [o if len(o) == length else o.repeat(-(-length // len(o)))[:length] for o in orders]
        return torch.stack(filled).reshape(-1, self.steps, self.batch_size).unbind(dim=1)

    def _drawn(self, blocks: list[Tensor], slots: Tensor, generator: torch.Generator) -> Tensor:
        shuffled = torch.cat([block[torch.randperm(len(block), generator=generator)] for block in blocks])
        if not self._stratified:
            return shuffled
        # The turn changes which rows meet in a batch, and where in the epoch a rare class appears.
        turn = int(torch.randint(len(slots), (), generator=generator))
        return shuffled[slots].roll(turn)


def _interleaved(rows: Rows, stratum: Rows) -> tuple[list[Tensor], Tensor]:
    """The rows of each class, and where all of them one after the other go in an epoch."""
    counts = np.bincount(stratum)
    by_class = np.argsort(stratum, kind="stable")
    of_row = stratum[by_class]
    # The r-th of m rows of a class sits at (r + 1/2) / m of the epoch.
    place = (np.arange(len(rows)) - (np.cumsum(counts) - counts)[of_row] + 0.5) / counts[of_row]
    blocks = torch.from_numpy(rows[by_class]).split(counts.tolist())
    return [block for block in blocks if len(block)], torch.from_numpy(np.argsort(place, kind="stable"))
