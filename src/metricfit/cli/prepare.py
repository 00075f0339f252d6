"""From a file to what a classifier is trained on, with every choice made on the way in words."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.cli.columns import GAPS, BadValueError, ColumnFormat, read_column
from metricfit.cli.errors import BadDataError, UsageError
from metricfit.cli.frames import Rows, frame_from, matched_labels, read_rows
from metricfit.cli.memory import check_memory
from metricfit.cli.options import columns_of
from metricfit.cli.tables import TableFile
from metricfit.cli.targets import indicators, read_classes, read_labels
from metricfit.inputs import Task

__all__ = ["Prepared", "Roles", "prepare", "prepare_like"]

_ID_NAME = re.compile(r"(^|[\W_])(id|index|uuid|rownum|row_number)$|^unnamed|[a-z]I[Dd]$|^column_1$", re.IGNORECASE)


@dataclass(frozen=True)
class Roles:
    """Which column is what.

    Attributes:
        target: To be predicted: one column of classes, or several 0/1 columns.
        group: Rows with the same value stay together in splits.
        time: The latest rows are held out.
        weight: Weight of each row.
        ignore: Not used.
        use: Used though they look like identifiers.
        categorical: Taken as categories though they may hold numbers.
        missing: Further texts that stand for a missing value.
    """

    target: list[str]
    group: str | None = None
    time: str | None = None
    weight: str | None = None
    ignore: list[str] = field(default_factory=list)
    use: list[str] = field(default_factory=list)
    categorical: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def checked(self, file: TableFile) -> Roles:
        """With the names of repeated options divided and every name a column of the file."""
        known = file.columns
        lists: dict[str, Any] = {
            name: columns_of(getattr(self, name), known) for name in ("target", "ignore", "use", "categorical")
        }
        for name, columns in lists.items():
            file.check_columns(columns, f"--{name}")
        for name in ("group", "time", "weight"):
            if (column := getattr(self, name)) is not None:
                file.check_columns([column], f"--{name}")
        targets = lists["target"]
        others = {self.group, self.time, self.weight, *lists["ignore"], *lists["use"], *lists["categorical"]}
        for name in targets:
            if name in others or targets.count(name) > 1:
                raise UsageError(f"--target: the column {name!r} cannot have a second role.")
        return replace(self, **lists)

    @property
    def gaps(self) -> tuple[str, ...]:
        """Texts that stand for a missing value."""
        return (*GAPS, *self.missing)


@dataclass
class Prepared:
    """A table ready for a classifier.

    Attributes:
        X: The columns used.
        y: Classes (rows,), or 0/1 labels (rows, labels).
        groups: Group of each row, or None.
        time: Time of each row as numbers that sort, or None.
        weight: Weight of each row, or None.
        formats: How each column was read.
        choices: What was decided without asking.
        labels: Names of the labels, if there are several.
    """

    X: pd.DataFrame
    y: NDArray[Any]
    groups: NDArray[Any] | None
    time: NDArray[np.float64] | None
    weight: NDArray[np.float64] | None
    formats: dict[str, ColumnFormat]
    choices: list[str]
    labels: tuple[str, ...] = ()

    @property
    def task(self) -> Task:
        """What kind of target it is."""
        if self.labels:
            return "multilabel"
        return "binary" if len(self.classes) == 2 else "multiclass"

    @property
    def classes(self) -> NDArray[Any]:
        """The classes in sorted order, or the names of the labels."""
        return np.array(self.labels, dtype=object) if self.labels else np.unique(self.y)

    @property
    def target(self) -> Any:
        """What a classifier is fitted to: labels carry their names."""
        return pd.DataFrame(self.y, columns=list(self.labels)) if self.labels else self.y

    def take(self, keep: NDArray[np.bool_]) -> Prepared:
        """Some of the rows."""
        parts: dict[str, Any] = {
            n: None if getattr(self, n) is None else getattr(self, n)[keep] for n in ("groups", "time", "weight")
        }
        return replace(self, X=self.X[keep], y=self.y[keep], **parts)


def prepare(file: TableFile, roles: Roles, *, max_rows: int | None = None, seed: int = 0, task: str = "auto",
            note: Any = None) -> Prepared:  # fmt: skip
    """Read a table to train on.

    Args:
        file: The file.
        roles: Which column is what; checked.
        max_rows: Rows to draw at random at most.
        seed: Of the drawing.
        task: ``"auto"``, ``"binary"``, ``"multiclass"`` or ``"multilabel"``.
        note: Called with what training needs of memory, before anything is read.
    """
    left_out = {*roles.target, roles.group, roles.time, roles.weight, *roles.ignore}
    features = [name for name in file.columns if name not in left_out]
    if not features:
        raise UsageError(f"{file.name}: no column is left to predict {', '.join(map(repr, roles.target))} from.")
    wanted = min(file.rows, max_rows or file.rows)
    memory = check_memory(file, features, wanted, as_text=roles.categorical, gaps=roles.gaps)
    if memory and note is not None:
        note(memory)
    special = [n for n in (roles.group, roles.time, roles.weight) if n]
    needed = list(dict.fromkeys([*features, *roles.target, *special]))
    rows = read_rows(file, needed, max_rows, seed)
    choices = list(file.choices)
    if max_rows is not None and len(rows) == max_rows:
        choices.append(f"{max_rows:,} rows drawn at random (--max-rows)")
    several = len(roles.target) > 1
    rows, y = (
        read_labels(rows, roles.target, task, choices)
        if several
        else read_classes(rows, roles.target[0], task, choices)
    )
    X, formats = frame_from(rows, features, as_text=roles.categorical, gaps=roles.gaps)
    for name, how in formats.items():
        if how.why and "--categorical" not in how.why:
            choices.append(f"column {name!r}: {how.why}{_override(how)}")
    X = _without_identifiers(X, roles, choices)
    formats = {name: formats[name] for name in X.columns}
    return Prepared(X, y, *_special(rows, roles), formats, choices, tuple(roles.target) if several else ())


def prepare_like(file: TableFile, roles: Roles, formats: dict[str, ColumnFormat], classes: NDArray[Any]) -> Prepared:
    """Read a table with the columns, types and classes (or labels) that a model has."""
    missing = [name for name in formats if name not in file.columns]
    if missing:
        raise BadDataError(f"{file.name}: lacks the column {missing[0]!r} that the model is trained on.")
    file.check_columns(roles.target, "--target")
    special = [n for n in (roles.group, roles.time, roles.weight) if n and n in file.columns]
    rows = read_rows(file, list(dict.fromkeys([*formats, *roles.target, *special])))
    several = len(roles.target) > 1
    y, present = indicators(rows, roles.target) if several else matched_labels(rows, roles.target[0], classes)
    choices = []
    if not present.all():
        choices.append(f"{int((~present).sum()):,} rows of {file.name} without a label left out")
        rows = rows.take(present)
    if not len(rows):
        raise BadDataError(f"{file.name}: no row has a label in {', '.join(map(repr, roles.target))}.")
    X, _ = frame_from(rows, list(formats), formats, gaps=roles.gaps)
    absent: dict[str, Any] = {n: None for n in ("group", "time", "weight") if getattr(roles, n) not in special}
    here = replace(roles, **absent)
    labels = tuple(classes.tolist()) if several else ()
    return Prepared(X, y, *_special(rows, here), formats, choices, labels)


def _special(rows: Rows, roles: Roles) -> tuple[Any, Any, Any]:
    groups = time = weight = None
    if roles.group is not None:
        groups = pd.factorize(rows.column(roles.group).to_pandas().astype(str))[0]
    if roles.time is not None:
        time = _times(rows, roles.time)
    if roles.weight is not None:
        how = ColumnFormat("number", "decimal_comma" if rows.file.separator == ";" else "")
        try:
            weight = np.asarray(read_column(rows.column(roles.weight), how), dtype=np.float64)
        except BadValueError as error:
            raise rows.bad(roles.weight, error) from error
        bad = ~(weight >= 0)
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise rows.bad(roles.weight, BadValueError(row, str(weight[row]), "a weight >= 0"))
    return groups, time, weight


def _times(rows: Rows, name: str) -> NDArray[np.float64]:
    """Times as numbers that sort: numbers as they are, dates as microseconds."""
    frame, formats = frame_from(rows, [name])
    values = frame[name]
    if formats[name].kind == "number":
        times = np.asarray(values, dtype=np.float64)
    else:
        parsed = pd.to_datetime(
            values, errors="coerce", format=None if values.dtype.kind == "M" else "ISO8601", utc=True
        )
        times = np.array(parsed.astype("datetime64[us, UTC]").astype("int64"), dtype=np.float64)
        times[parsed.isna().to_numpy()] = np.nan
    if np.isnan(times).any():
        row = int(np.flatnonzero(np.isnan(times))[0])
        raise rows.bad(name, BadValueError(row, str(rows.column(name)[row].as_py()), "a number or a date in every row"))
    return times


def _without_identifiers(X: pd.DataFrame, roles: Roles, choices: list[str]) -> pd.DataFrame:
    drop = []
    for name in X.columns:
        values = X[name]
        if name in roles.use or name in roles.categorical or values.dtype.kind not in "iuf" or len(values) < 20:
            continue
        numbers = values.to_numpy(dtype=np.float64)
        if np.isnan(numbers).any() or (numbers != np.round(numbers)).any() or len(np.unique(numbers)) < len(numbers):
            continue
        running = bool((np.diff(numbers) == 1).all())
        if running or _ID_NAME.search(str(name)):
            why = "it counts the rows" if running else "its name, and no value occurs twice"
            choices.append(f"column {name!r} left out as an identifier: {why} (--use)")
            drop.append(name)
    if len(drop) == X.shape[1]:
        raise UsageError("only identifiers are left to predict from; name one with --use.")
    return X.drop(columns=drop)


def _override(how: ColumnFormat) -> str:
    return "" if how.kind == "text" else " (--categorical takes it as text)"
