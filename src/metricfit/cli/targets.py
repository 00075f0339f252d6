"""What is to be predicted: the classes of one column, or several 0/1 columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.cli.columns import BadValueError, read_target
from metricfit.cli.errors import BadDataError, UsageError, close_to
from metricfit.cli.frames import Rows, label_text

__all__ = ["indicators", "positive_class", "read_classes", "read_labels"]

_MANY_CLASSES = 100
_INDICATORS = {"0": 0.0, "false": 0.0, "1": 1.0, "true": 1.0}


def read_labels(rows: Rows, names: Sequence[str], task: str, choices: list[str]) -> tuple[Rows, NDArray[Any]]:
    """Several 0/1 columns as labels (rows, labels) of those rows that have them all."""
    if task not in ("auto", "multilabel"):
        raise UsageError(f"--task: several columns in --target are labels, which is multilabel, not {task}.")
    found, present = indicators(rows, names)
    if not present.any():
        raise BadDataError(f"{rows.file.name}: no row has all of the labels {', '.join(map(repr, names))}.")
    if not present.all():
        choices.append(f"{int((~present).sum()):,} rows that lack one of the labels left out")
        rows = rows.take(present)
    shares = found.mean(axis=0)
    for name, share in zip(names, shares, strict=True):
        if share in (0, 1):
            raise BadDataError(
                f"{rows.file.name}: the column {name!r} holds only {share:.0f}; there is nothing to learn."
            )
    shown = ", ".join(f"{name!r} {share:.1%}" for name, share in list(zip(names, shares, strict=True))[:10])
    more = ", …" if len(names) > 10 else ""
    choices.append(f"task multilabel: {len(names)} labels, of which a row may have any: {shown}{more} (--target)")
    return rows, found


def indicators(rows: Rows, names: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """0/1 columns of the rows that have a value in each of them (present, columns), and which rows these are."""
    columns = np.empty((len(rows), len(names)))
    for k, name in enumerate(names):
        codes, values = pd.factorize(read_target(rows.column(name)))
        read = [_INDICATORS.get(label_text(value).lower(), np.nan) for value in values]
        if np.isnan(read).any():
            wrong = int(np.flatnonzero(np.isnan(read))[0])
            row = int(np.flatnonzero(codes == wrong)[0])
            raise rows.bad(
                name, BadValueError(row, label_text(values[wrong]), "0 or 1, as one of several --target columns")
            )
        columns[:, k] = np.append(read, np.nan)[codes]
    present = np.asarray(np.isfinite(columns).all(axis=1))
    return columns[present].astype(np.int64), present


def positive_class(task: str, classes: list[Any], given: str | None) -> Any:
    """The class that ``--positive`` names."""
    if given is None:
        return None
    if task != "binary":
        what = "labels" if task == "multilabel" else "classes"
        raise UsageError(f"--positive: has a meaning for two classes; the target has {len(classes)} {what}.")
    by_text = {str(label): label for label in classes}
    if given not in by_text:
        raise UsageError(f"--positive: no class {given!r}; {close_to(given, by_text)}")
    return by_text[given]


def read_classes(rows: Rows, name: str, task: str, choices: list[str]) -> tuple[Rows, NDArray[Any]]:
    """The labels of those rows that have one."""
    labels = read_target(rows.column(name))
    present = labels.notna().to_numpy()
    if not present.any():
        raise BadDataError(f"{rows.file.name}: the column {name!r} holds no label at all.")
    if not present.all():
        choices.append(f"{int((~present).sum()):,} rows without a label in {name!r} left out")
        rows, labels = rows.take(present), labels[present]
    y = _as_array(labels)
    classes, counts = np.unique(y, return_counts=True)
    if len(classes) < 2:
        raise BadDataError(
            f"{rows.file.name}: the column {name!r} holds only {classes.tolist()[0]!r}; two classes at least."
        )
    if y.dtype.kind == "f" or len(classes) > max(_MANY_CLASSES, len(y) // 5):
        raise BadDataError(
            f"{rows.file.name}: the column {name!r} has {len(classes)} distinct values, such as "
            f"{', '.join(repr(v) for v in classes.tolist()[:3])}: a quantity or an identifier, no class. Choose "
            "another --target, or group its values into classes."
        )
    found = "binary" if len(classes) == 2 else "multiclass"
    if task == "multilabel":
        raise UsageError("--task: multilabel needs several 0/1 columns in --target.")
    if task not in ("auto", found):
        raise UsageError(f"--task: the column {name!r} has {len(classes)} classes, which is {found}, not {task}.")
    shares = ", ".join(f"{c!r} {n / len(y):.1%}" for c, n in list(zip(classes.tolist(), counts, strict=True))[:10])
    more = ", …" if len(classes) > 10 else ""
    kind = {"i": "whole numbers", "b": "truth values"}.get(y.dtype.kind, "text")
    choices.append(f"task {found}: {name!r} holds {len(classes)} classes ({kind}): {shares}{more} (--target, --task)")
    rare = [c for c, n in zip(classes.tolist(), counts, strict=True) if n < 5]
    if rare:
        choices.append(f"classes with fewer than 5 rows can hardly be learned: {', '.join(map(repr, rare[:10]))}")
    return rows, y


def _as_array(labels: pd.Series[Any]) -> NDArray[Any]:
    values = labels.to_numpy()
    if values.dtype != object:
        return np.asarray(values)
    kinds = {type(v) for v in values.tolist()}
    if kinds <= {int}:
        return values.astype(np.int64)
    if kinds <= {bool, np.bool_}:
        return values.astype(bool)
    return np.array([str(v) for v in values], dtype=str)
