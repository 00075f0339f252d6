"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from metricfit.data import Roles

__all__ = [
    "Data",
    "Debug",
    "Encoding",
    "Json",
    "Model",
    "Quiet",
    "Seed",
    "Separator",
    "Target",
    "TrueLabels",
    "columns_of",
    "roles_of",
    "seconds",
]

_DATA = "Reading data"
_OUTPUT = "Output"

Data = Annotated[
    str, typer.Argument(metavar="DATA", help="A CSV, CSV.gz or Parquet file; - for standard input.", show_default=False)
]
Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model folder that 'metricfit train' wrote.", show_default=False)
]
Separator = Annotated[
    str | None,
    typer.Option(
        metavar="CHAR",
        help="Character between the fields of a CSV file.",
        show_default="found out",
        rich_help_panel=_DATA,
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Encoding of a CSV file, e.g. cp1252.",
        show_default="found out",
        rich_help_panel=_DATA,
    ),
]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Seed of everything random.")]
Target = Annotated[
    list[str],
    typer.Option(
        metavar="COL…",
        help="The column to predict, or several 0/1 columns, each a label of its own.",
        show_default=False,
    ),
]
TrueLabels = Annotated[
    list[str] | None,
    typer.Option(metavar="COL…", help="The column of true labels, or columns.", show_default="as in training"),
]
Json = Annotated[
    bool, typer.Option("--json", help="Write the result as JSON to standard output.", rich_help_panel=_OUTPUT)
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Write nothing but the result and errors.", rich_help_panel=_OUTPUT)
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.", rich_help_panel=_OUTPUT)]


def columns_of(given: list[str] | None, known: list[str]) -> list[str]:
    """Column names of a repeated option; a text that is no column is divided at its commas.

    >>> columns_of(["a,b", "c, d"], ["a", "b", "c, d"])
    ['a', 'b', 'c, d']
    """
    names: list[str] = []
    for text in given or []:
        names += [text] if text in known else [part.strip() for part in text.split(",")]
    return names


def roles_of(options: dict[str, Any], known: list[str]) -> Roles:
    """Which column is what, from the options of a command."""
    from metricfit.data import Roles

    names: dict[str, Any] = {n: columns_of(options[n], known) for n in ("target", "ignore", "use", "categorical")}
    return Roles(**names, **{n: options.get(n) for n in ("group", "time", "weight")}, missing=options["missing"])


def seconds(text: str | None) -> float | None:
    """A length of time such as 90, 90s, 15m or 2h, in seconds.

    >>> seconds("1.5m")
    90.0
    """
    from metricfit.cli.errors import UsageError

    if text is None:
        return None
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    unit = units.get(text[-1:].lower())
    try:
        value = float(text if unit is None else text[:-1]) * (unit or 1.0)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise UsageError(f"--max-time: expected a time such as 90s, 15m or 2h, got {text!r}.")
    return value
