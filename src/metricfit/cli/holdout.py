"""Leak-free splits: a file of its own, the latest rows, groups and spans of time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit.cli.errors import UsageError
from metricfit.cli.prepare import Prepared, Roles, prepare_like
from metricfit.cli.tables import open_table

__all__ = ["fold_groups", "held_out"]

_HELD_OUT_SHARE = 0.2
_BLOCKS = 5


def held_out(table: Prepared, roles: Roles, options: dict[str, Any]) -> tuple[Prepared, Prepared | None]:
    """The rows to train on and those to measure on, if the options set some apart."""
    if options["validation"] is not None:
        if table.time is not None:
            raise UsageError("--time: has no effect with --validation; give one of them.")
        file = open_table(options["validation"], separator=options["separator"], encoding=options["encoding"])
        held = prepare_like(file, roles, table.formats, table.classes)
        table.choices += held.choices
        return table, held
    if table.time is None:
        return table, None
    order = np.sort(table.time)
    cut = order[int(len(order) * (1 - _HELD_OUT_SHARE))]
    late = table.time >= cut
    if late.all():
        raise UsageError(f"--time: most rows of {roles.time!r} have the same value; nothing can be held out.")
    if table.groups is not None:
        both = np.isin(table.groups, table.groups[~late]) & late
        table.choices.append(f"{int(both.sum()):,} late rows left out: their groups have earlier rows (--group)")
        keep_late = late & ~both
    else:
        keep_late = late
    if not _same_classes(table.y[~late], table.y) or not keep_late.any():
        raise UsageError(f"--time: split by {roles.time!r}, some classes only occur late, or no late row is left.")
    table.choices.append(
        f"the latest {int(keep_late.sum()):,} rows by {roles.time!r} are held out, not trained on (--time)"
    )
    return table.take(~late), table.take(keep_late)


def _same_classes(part: NDArray[Any], y: NDArray[Any]) -> bool:
    """Whether every class (both values of every label) of ``y`` is in a part of it."""
    if y.ndim == 2:
        return bool((part.min(axis=0) < part.max(axis=0)).all())
    return len(np.unique(part)) == len(np.unique(y))


def fold_groups(table: Prepared, options: dict[str, Any]) -> tuple[NDArray[Any] | None, Any]:
    """The groups of the folds, and how many folds."""
    groups = table.groups
    if groups is None and table.time is not None:
        edges = np.quantile(table.time, np.linspace(0, 1, (options["folds"] or _BLOCKS) + 1)[1:-1])
        groups = np.searchsorted(np.unique(edges), table.time, side="right")
        table.choices.append(f"folds are {len(np.unique(groups))} spans of time (--folds)")
    if groups is None:
        return None, options["folds"] or "auto"
    found = len(np.unique(groups))
    if found < 2:
        raise UsageError(f"--group: at least two groups are needed, {options['group']!r} has {found}.")
    folds = options["folds"] or min(_BLOCKS, found)
    if folds > found:
        raise UsageError(f"--folds: {folds} folds need as many groups, there are {found}.")
    return groups, folds
