"""Tables to train on: which column is what, the memory they need, the rows with a label, splits that do not leak."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.choices import Choice, close_to
from metricfit.data.columns import LABEL_GAPS, ColumnFormat, identifier_reason, read_column
from metricfit.data.preprocessing import TablePreprocessor
from metricfit.data.reader import BadArgumentError, BadDataError, Formats, Rows, TableFile
from metricfit.inputs import Task
from metricfit.labels import as_label_array, repeated

_MANY_CLASSES = 100
_MANY_NUMBERS = 30
_INDICATORS = {"0": 0, "0.0": 0, "false": 0, "no": 0, "1": 1, "1.0": 1, "true": 1, "yes": 1}
_HELD_OUT_SHARE = 0.2
_FOLDS = 5
_PROGRAM = 1.1e9  # bytes of the libraries, the forests and a batch of the networks
_SMALL = 2_000_000  # fewer values than this need too little memory to be worth a look at the first rows
_SAMPLE_ROWS, _SAMPLE_COLUMNS = 4096, 200
_CONTROL_GROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Roles:
    """Which column is what."""

    target: list[str]  # to be predicted: one column of classes, or several 0/1 columns
    group: str | None = None  # rows with the same value stay together in splits
    time: str | None = None  # the latest rows are held out
    weight: str | None = None  # of each row
    ignore: list[str] = field(default_factory=list)  # not used
    use: list[str] = field(default_factory=list)  # used though they look like identifiers
    categorical: list[str] = field(default_factory=list)  # taken as categories though they may hold numbers
    named: Sequence[str] = ()  # read for the metric, which names them, whether they are features or ignored

    def check(self, file: TableFile) -> None:
        """Raise an error unless every name is a column of the file and the target has no second role."""
        for argument in ("target", "ignore", "use", "categorical", "group", "time", "weight"):
            names = getattr(self, argument) or []
            file.check_columns([names] if isinstance(names, str) else names, argument)
        file.check_columns(self.named, "metric")
        others = {self.group, self.time, self.weight, *self.ignore, *self.use, *self.categorical}
        for name in [name for name in self.target if name in others] or repeated(self.target):
            raise BadArgumentError("target", f"the column {name!r} cannot have a second role.")

    def columns(self, features: Iterable[str]) -> list[str]:
        """The features and all columns that have a role, each once."""
        special = filter(None, (self.group, self.time, self.weight))
        return list(dict.fromkeys([*features, *self.target, *special, *self.named]))


@dataclass
class LabelledTable:
    """A table ready for a classifier: the columns used, and the classes (rows,) or 0/1 labels (rows, labels).

    ``groups``, ``time`` (numbers that sort) and ``weight`` have a value for each row, or are None. ``formats`` says how
    each column was read, ``choices`` what was decided without asking; ``labels`` are the names of several labels, and
    ``columns`` those that the metric names.
    """

    X: pd.DataFrame
    y: NDArray[Any]
    groups: NDArray[Any] | None
    time: NDArray[np.float64] | None
    weight: NDArray[np.float64] | None
    formats: Formats
    choices: list[Choice]
    labels: tuple[str, ...] = ()
    columns: dict[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def task(self) -> Task:
        """What kind of target it is."""
        return "multilabel" if self.labels else "binary" if len(self.classes) == 2 else "multiclass"

    @property
    def classes(self) -> NDArray[Any]:
        """The classes in sorted order, or the names of the labels."""
        return np.array(self.labels, dtype=object) if self.labels else np.unique(self.y)

    @property
    def target(self) -> Any:
        """What a classifier is fitted to: labels carry their names."""
        return pd.DataFrame(self.y, columns=list(self.labels)) if self.labels else self.y

    def take(self, keep: NDArray[np.bool_]) -> LabelledTable:
        """Some of the rows."""
        groups, time, weight = (None if v is None else v[keep] for v in (self.groups, self.time, self.weight))
        columns = {name: values[keep] for name, values in self.columns.items()}
        return replace(self, X=self.X[keep], y=self.y[keep], groups=groups, time=time, weight=weight, columns=columns)

    def split_at_random(self, seed: int) -> tuple[LabelledTable, LabelledTable]:
        """Four fifths of the rows and the fifth, classes in their shares; rows of one group stay together."""
        from metricfit.training.rows import split_rows

        codes = self.y if self.labels else np.unique(self.y, return_inverse=True)[1]
        (split,) = split_rows(codes, None, groups=self.groups, random=np.random.default_rng([seed, 1]))
        late = np.isin(np.arange(len(self.y)), split.validation)
        return self.take(~late), self.take(late)

    def split_latest(self) -> tuple[LabelledTable, LabelledTable]:
        """The earlier four fifths of the rows by time, and the later fifth without the groups of the earlier rows."""
        if self.time is None:
            raise BadArgumentError("time", "the table has no column of times; name one.")
        late = self.time >= np.sort(self.time)[int(len(self.time) * (1 - _HELD_OUT_SHARE))]
        if late.all():
            raise BadArgumentError("time", "most rows have the same value; nothing can be held out.")
        held = late
        if self.groups is not None:
            held = late & ~np.isin(self.groups, self.groups[~late])
            early = f"{int(late.sum() - held.sum()):,} late rows left out: their groups have earlier rows"
            self.choices.append(Choice("rows", early, ("group",)))
        targets = np.atleast_2d(self.y.T)
        if not held.any() or any(len(np.unique(y[~late])) < len(np.unique(y)) for y in targets):
            raise BadArgumentError("time", "split by it, some classes only occur late, or no late row is left.")
        kept = f"the latest {int(held.sum()):,} rows by time are held out, not trained on"
        self.choices.append(Choice("rows", kept, ("time",)))
        return self.take(~late), self.take(held)

    def fold_groups(self, folds: int | None) -> tuple[NDArray[Any] | None, int | None]:
        """The groups that folds keep together (else spans of time, else None), and the number of folds, if known."""
        groups = self.groups
        if groups is None and self.time is not None:
            edges = np.quantile(self.time, np.linspace(0, 1, (folds or _FOLDS) + 1)[1:-1])
            groups = np.searchsorted(np.unique(edges), self.time, side="right")
            self.choices.append(Choice("folds", f"folds are {len(np.unique(groups))} spans of time", ("folds",)))
        if groups is None:
            return None, folds
        found = len(np.unique(groups))
        if found < 2:
            raise BadArgumentError("group", f"at least two groups are needed, there is {found}.")
        if folds is not None and folds > found:
            raise BadArgumentError("folds", f"{folds} folds need as many groups, there are {found}.")
        return groups, folds or min(_FOLDS, found)


def read_labelled(
    file: TableFile,
    roles: Roles,
    *,
    max_rows: int | None = None,
    seed: int = 0,
    task: str = "auto",
    note: Callable[[str], None] | None = None,
) -> LabelledTable:
    r"""Read a table to train on, ``max_rows`` of it at most, drawn at random with ``seed``.

    ``task`` is ``"auto"``, or says what the target must be. ``note`` is called with the required memory before anything
    is read, if it is worth a word.

    Example:
        >>> import tempfile
        >>> from metricfit.data import open_table
        >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        ...     _ = file.write("age,churn\n20,no\n30,yes\n40,\n")
        ...     file.flush()
        ...     table = read_labelled(open_table(file.name), Roles(["churn"]))
        >>> table.X["age"].tolist(), table.y.tolist()
        ([20, 30], ['no', 'yes'])
    """
    roles.check(file)
    left_out = {*roles.target, roles.group, roles.time, roles.weight, *roles.ignore}
    features = [name for name in file.columns if name not in left_out]
    if not features:
        left = f"is left to predict {', '.join(map(repr, roles.target))} from"
        raise BadArgumentError("ignore", f"no column of {file.name} {left}.")
    memory = check_memory(file, features, min(file.rows, max_rows or file.rows), roles.categorical)
    if memory and note is not None:
        note(memory)
    rows = file.read(roles.columns(features), max_rows, seed)
    choices = list(file.choices)
    if max_rows is not None and len(rows) == max_rows:
        choices.append(Choice("rows", f"{max_rows:,} rows drawn at random", ("max_rows",)))
    several = len(roles.target) > 1
    if several:
        y, present = _indicators(rows, roles.target)
    else:
        labels = rows.labels(roles.target[0])
        present = labels.notna().to_numpy()
        y = labels[present].to_numpy()
    rows = _labelled(rows, present, roles, choices)
    y = (_checked_labels if several else _checked_classes)(y, rows.file.name, roles.target, task, choices)
    formats = rows.formats(features, roles.categorical)
    for name, how in formats.items():
        if how.style:
            arguments = () if how.kind == "category" else ("categorical",)
            choices.append(Choice("columns", f"column {name!r}: {how.reason}", arguments))
    X = _without_identifiers(rows.frame(formats), roles, choices)
    formats = {name: formats[name] for name in X.columns}
    return _built(rows, roles, X, y, formats, choices, roles.target if several else ())


def read_labelled_like(file: TableFile, roles: Roles, formats: Formats, classes: NDArray[Any]) -> LabelledTable:
    """Read a table with the columns, types and classes (or labels) of a model; group, time, weight may be missing."""
    file.check_columns(formats)
    file.check_columns(roles.target, "target")
    file.check_columns(roles.named, "metric")
    absent: dict[str, Any] = {n: None for n in ("group", "time", "weight") if getattr(roles, n) not in file.columns}
    roles = replace(roles, **absent)
    rows = file.read(roles.columns(formats))
    several = len(roles.target) > 1
    y, present = _indicators(rows, roles.target) if several else matched_labels(rows, roles.target[0], classes)
    choices: list[Choice] = []
    rows = _labelled(rows, present, roles, choices)
    return _built(rows, roles, rows.frame(formats), y, formats, choices, classes.tolist() if several else ())


def _built(
    rows: Rows, roles: Roles, X: pd.DataFrame, y: Any, formats: Formats, choices: list[Choice], labels: Sequence[str]
) -> LabelledTable:
    """The table, with groups, times, weights, and the columns that the metric names."""
    groups = weight = None
    if roles.group is not None:
        groups = pd.factorize(rows.column(roles.group).to_pandas().astype(str))[0]
    if roles.weight is not None:
        how = rows.formats([roles.weight])[roles.weight]
        style = how.style if how.kind == "number" and how.style != "lenient" else ""
        weight = np.asarray(rows.read(roles.weight, ColumnFormat("number", style)), dtype=np.float64)
        rows.refuse(roles.weight, ~(weight >= 0), "a weight >= 0")
    time = None if roles.time is None else _times(rows, roles.time)
    named = {str(name): column.to_numpy() for name, column in rows.frame(rows.formats(roles.named)).items()}
    return LabelledTable(X, y, groups, time, weight, formats, choices, tuple(labels), named)


def _times(rows: Rows, name: str) -> NDArray[np.float64]:
    """Times as numbers that sort: numbers as they are, dates as microseconds since 1970 in UTC."""
    how = rows.formats([name])[name]
    if how.kind in ("number", "empty"):
        times = np.asarray(rows.read(name, how), dtype=np.float64)
    else:
        # Only ISO 8601 has time zones, which the features of a date leave out; for the order they count.
        values = rows.column(name).to_pandas() if how.text and not how.style else rows.frame({name: how})[name]
        written = None if values.dtype.kind == "M" else "ISO8601"
        parsed = pd.to_datetime(values, errors="coerce", format=written, utc=True).astype("datetime64[us, UTC]")
        times = np.where(parsed.isna(), np.nan, parsed.astype("int64"))
    rows.refuse(name, np.isnan(times), "a number or a date in every row")
    return times


def _without_identifiers(X: pd.DataFrame, roles: Roles, choices: list[Choice]) -> pd.DataFrame:
    """Leave out columns that only name the rows; those that are wanted become quantities for all who read on."""
    wanted, drop = {*roles.use, *roles.categorical}, []
    for name in X.columns:
        if X[name].dtype.kind in "iu" and (why := identifier_reason(X[name].to_numpy(), name)):
            if name in wanted:
                X[name] = X[name].astype(np.float64)
                continue
            choices.append(Choice("unused", f"column {name!r} left out as an identifier: {why}", ("use",)))
            drop.append(name)
    if len(drop) == X.shape[1]:
        raise BadArgumentError("use", "only identifiers are left to predict from; name one of them here.")
    return X.drop(columns=drop)


def _labelled(rows: Rows, present: NDArray[np.bool_], roles: Roles, choices: list[Choice]) -> Rows:
    """The rows that have a label; a choice says how many were left out."""
    which = "that lack one of the labels" if len(roles.target) > 1 else f"without a label in {roles.target[0]!r}"
    if not present.any():
        raise BadDataError(f"{rows.file.name}: there are only rows {which}.")
    if present.all():
        return rows
    choices.append(Choice("rows", f"{int((~present).sum()):,} rows {which} left out"))
    return rows.take(present)


def _checked_classes(y: NDArray[Any], file: str, names: list[str], task: str, choices: list[Choice]) -> NDArray[Any]:
    """The classes as one type; what was decided is added to the choices."""
    name = names[0]
    column = f"{file}: the column {name!r}"
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise BadDataError(f"{column} holds infinity, which is no label; correct or drop these rows.")
    y = as_label_array(y, name)
    y = y.astype(str) if y.dtype == object else y
    found, counts = np.unique(y, return_counts=True)
    classes = found.tolist()
    if len(classes) < 2:
        raise BadDataError(f"{column} holds only {repr(classes[0])[:200]}; two classes at least.")
    if y.dtype.kind == "f" or len(classes) > max(_MANY_CLASSES, len(y) // 5):
        held = f"{len(classes)} distinct values, such as {', '.join(map(repr, classes[:3]))}"
        advice = "Choose another target, or group its values into classes."
        raise BadDataError(f"{column} has {held}: a quantity or an identifier, no class. {advice}")
    if y.dtype.kind in "iu" and len(classes) > _MANY_NUMBERS and task == "auto":
        held = f"{name!r} holds {len(classes)} distinct numbers, {classes[0]} to {classes[-1]}"
        advice = "group its values into classes, or say 'multiclass' to take each number as a class"
        raise BadArgumentError("task", f"{held}: is it a quantity, for a regression? If not, {advice}.")
    kind = "binary" if len(classes) == 2 else "multiclass"
    if task == "multilabel":
        raise BadArgumentError("task", "multilabel needs several 0/1 columns as the target.")
    if task not in ("auto", kind):
        raise BadArgumentError("task", f"the column {name!r} has {len(classes)} classes, which is {kind}, not {task}.")
    values = {"i": "whole numbers", "b": "truth values"}.get(y.dtype.kind, "text")
    held = f"task {kind}: {name!r} holds {len(classes)} classes ({values}): {_shares(classes, counts / len(y))}"
    choices.append(Choice("target", held, ("target", "task")))
    if rare := [repr(c) for c, n in zip(classes, counts, strict=True) if n < 5]:
        choices.append(
            Choice("target", f"classes with fewer than 5 rows can hardly be learned: {', '.join(rare[:10])}")
        )
    return y


def _checked_labels(y: NDArray[Any], file: str, names: list[str], task: str, choices: list[Choice]) -> NDArray[Any]:
    """Labels (rows, labels), each with both values; arguments as above."""
    if task not in ("auto", "multilabel"):
        raise BadArgumentError("task", f"several target columns are labels, which is multilabel, not {task}.")
    shares = y.mean(axis=0)
    for name, share in zip(names, shares, strict=True):
        if share in (0, 1):
            raise BadDataError(f"{file}: the column {name!r} holds only {share:.0f}; there is nothing to learn.")
    held = f"task multilabel: {len(names)} labels, of which a row may have any: {_shares(names, shares)}"
    choices.append(Choice("target", held, ("target",)))
    return y


def _shares(names: Sequence[Any], shares: NDArray[np.float64]) -> str:
    shown = ", ".join(f"{name!r} {share:.1%}" for name, share in list(zip(names, shares, strict=True))[:10])
    return shown + (", …" if len(names) > 10 else "")


def _indicators(rows: Rows, names: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """0/1 columns of the rows that have a value in each of them (present, columns), and which rows these are."""
    expected = "0 or 1, as one of several target columns (or false and true, no and yes)"
    columns = np.stack([_matched(rows, name, _INDICATORS, str.lower, expected) for name in names], axis=1)
    present = np.asarray(~pd.isna(columns).any(axis=1))
    return columns[present].astype(np.int64), present


def matched_labels(rows: Rows, name: str, classes: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The target's labels among a model's classes, of the rows that have one, and which rows these are."""
    kind = classes.dtype.kind
    plain: Any = partial(pd.to_numeric, errors="coerce") if kind in "iuf" else str.lower if kind == "b" else str
    known = {plain(str(label)): label for label in classes.tolist()}
    expected = f"one of the model's classes ({', '.join(repr(c) for c in classes.tolist()[:10])})"
    labels = _matched(rows, name, known, plain, expected)
    present = ~pd.isna(labels)
    return np.array(labels[present].tolist(), dtype=classes.dtype), present


def _matched(rows: Rows, name: str, known: dict[Any, Any], plain: Any, expected: str) -> NDArray[Any]:
    """What the values of a column stand for, None for gaps; ``plain`` makes the keys of ``known`` of their text."""
    codes, keys = read_column(rows.column(name), ColumnFormat("category"), LABEL_GAPS)
    found: NDArray[Any] = np.array([*(known.get(plain(key)) for key in keys), None], dtype=object)[codes]
    rows.refuse(name, (codes >= 0) & pd.isna(found), expected)
    return found


def positive_class(task: str, classes: list[Any], given: str | None) -> Any:
    """The class that is named as the positive one; None if none is."""
    if given is not None and task != "binary":
        what = "labels" if task == "multilabel" else "classes"
        raise BadArgumentError("positive", f"has a meaning for two classes; the target has {len(classes)} {what}.")
    by_text = {str(label): label for label in classes}
    if given is not None and given not in by_text:
        raise BadArgumentError("positive", f"no class {given!r}; {close_to(given, by_text)}")
    return None if given is None else by_text[given]


class NotEnoughMemoryError(MemoryError):
    """Training requires more memory than there is; ``max_rows`` would fit."""

    def __init__(self, message: str, max_rows: int) -> None:
        super().__init__(message)
        self.max_rows = max_rows


def check_memory(file: TableFile, columns: Sequence[str], rows: int, categorical: Sequence[str] = ()) -> str:
    """The memory that training on so many rows requires, in words; an error if that is more than there is."""
    if rows * len(columns) < _SMALL:
        return ""
    some = columns[:: max(1, len(columns) // _SAMPLE_COLUMNS)]  # in a wide table they stand for all
    first = next(file.batches(some))
    sample = first.take(first.records < _SAMPLE_ROWS)
    X = sample.frame(sample.formats(some, categorical))
    features = TablePreprocessor(random_state=0).fit(X).transform(X[:1]).shape[1]
    values = X.memory_usage(deep=True).sum() / len(X)
    # The rows as the file has them, their values and features. The factors, for copies, are measured ones.
    per_row = 1.1 * file.size / max(1, file.rows) + (1.9 * values + 2.6 * 4 * features) * len(columns) / len(some)
    needed = rows * per_row + _PROGRAM
    free = free_memory()
    shape = f"about {rows:,} rows × {len(columns)} columns"
    if free is not None and needed > free:
        fits = max(1000.0, (free - _PROGRAM) / per_row)
        digit = 10 ** math.floor(math.log10(fits))
        most = int(fits // digit * digit)
        lack = f"{shape} need about {needed / 1e9:.1f} GB of memory and {free / 1e9:.1f} GB are free"
        advice = f"train on a random part (max_rows={most}), or use a larger machine."
        raise NotEnoughMemoryError(f"{file.name}: {lack}; {advice}", most)
    return f"{shape}; training needs about {needed / 1e9:.1f} GB of memory" if needed > 1e9 else ""


def free_memory() -> float | None:
    """Bytes that can be had, within the limit of a container, or None if the system does not say."""
    found = []
    with suppress(OSError, ValueError, AttributeError):
        found.append(float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) * 0.8)
    with suppress(OSError, ValueError, KeyError, IndexError):
        sizes = {line.split(":")[0]: line.split()[1] for line in Path("/proc/meminfo").read_text().splitlines()}
        found = [float(sizes["MemAvailable"]) * 1024]
    for folder, limit, name in ((".", "max", "anon"), ("memory", "limit_in_bytes", "total_rss")):
        with suppress(OSError, ValueError, KeyError):
            place = _CONTROL_GROUP / folder
            used = dict(line.split() for line in (place / "memory.stat").read_text().splitlines())
            # "max" stands for no limit, and is no number.
            found.append(float((place / f"memory.{limit}").read_text()) - float(used[name]))
    return min(found, default=None)
