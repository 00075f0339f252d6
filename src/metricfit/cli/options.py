"""Options that several commands share, read from the command line or a TOML file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metricfit.cli.output import UsageError, wrong_use

if TYPE_CHECKING:
    from metricfit.data import LabelledTable, Roles, TableFile
    from metricfit.inputs import Task
    from metricfit.metrics import Metric

__all__ = [
    "Categorical", "Config", "Data", "Debug", "Encoding", "Group", "Ignore", "Json", "MaxEpochs", "MaxRows", "Missing",
    "Model", "Positive", "Quiet", "Seed", "Separator", "Target", "TrueLabels", "Use", "Weight", "check_free",
    "checked_metric", "columns_of", "explicit_metric", "option", "resolved", "roles_of", "seconds", "to_toml",
]  # fmt: skip

SPLITS, COLUMNS, RUN, _DATA, _OUTPUT = "Held-out data", "Columns", "The run", "Reading data", "Output"
"""Headings of the help."""

_SWITCHES = ("config", "debug", "help")


def from_file(context: typer.Context, path: Path | None) -> Path | None:
    """Take defaults from a TOML file whose keys are the names of the options."""
    if path is None or context.resilient_parsing:
        return path
    import tomllib

    try:
        with path.open("rb") as file:
            found = tomllib.load(file)
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{path}: not valid TOML: {error}.") from None
    known = [p.name for p in context.command.params if p.name and p.name not in _SWITCHES]
    values = {key.replace("-", "_"): value for key, value in found.items()}
    for key in values:
        if key not in known:
            from metricfit.data.reader import close_to

            raise typer.BadParameter(f"{path}: this command has no option {key!r}; {close_to(key, known)}")
    for parameter in context.command.params:
        if getattr(parameter, "multiple", False) and isinstance(values.get(parameter.name or ""), str):
            values[str(parameter.name)] = [values[str(parameter.name)]]
    context.default_map = {**(context.default_map or {}), **values}
    return path


def to_toml(options: dict[str, Any]) -> str:
    """Options as TOML; those that were not given are left out.

    >>> print(to_toml({"data": "a b.csv", "seed": 0, "time": None, "ignore": ["id"]}), end="")
    data = "a b.csv"
    seed = 0
    ignore = ["id"]
    """
    lines = [f"{key} = {_value(value)}" for key, value in options.items() if value is not None and value != []]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    if isinstance(value, str):
        # JSON's escapes are TOML's; only DEL must be written out in TOML as well.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def columns_of(given: list[str] | None, known: list[str]) -> list[str]:
    """Column names of a repeated option; a text that is no column is divided at its commas.

    >>> columns_of(["a,b", "c, d"], ["a", "b", "c, d"])
    ['a', 'b', 'c, d']
    """
    names: list[str] = []
    for text in given or []:
        names += [text] if text in known else [part.strip() for part in text.split(",")]
    return names


def seconds(text: str | None) -> float | None:
    """A length of time such as 90, 90s, 15m or 2h, in seconds.

    >>> seconds("1.5m")
    90.0
    """
    if text is None:
        return None
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    unit = units.get(text[-1:].lower())
    try:
        value = float(text if unit is None else text[:-1]) * (unit or 1.0)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise UsageError(f"--time-limit: expected a time such as 90s, 15m or 2h, got {text!r}.")
    return value


def checked_metric(spec: str) -> Metric:
    """The metric of ``--metric``, or a usage error."""
    from metricfit import metrics

    with wrong_use():
        return metrics.get(spec)


def resolved(metric: Metric, classes: list[Any], task: Task) -> tuple[Metric, bool]:
    """The metric with its class or average written out, and whether there was something to choose."""
    from metricfit import metrics

    with wrong_use():
        found, chosen = metrics.resolve(metric, tuple(classes), task)
    return found, bool(chosen)


def explicit_metric(spec: Metric, table: LabelledTable, positive: str | None) -> Metric:
    """The metric with its class or average written out; the table's choices say which was taken."""
    from metricfit.choices import Choice
    from metricfit.data.labelled import positive_class

    classes = table.classes.tolist()
    wanted = positive_class(table.task, classes, positive)
    if wanted is not None:
        classes = [label for label in classes if label != wanted] + [wanted]
    metric, chosen = resolved(spec, classes, table.task)
    if chosen and table.task == "binary":
        reason = "as --positive says" if wanted is not None else "the second in sorted order"
        text = f"metric {metric}: the positive class is {classes[1]!r}, {reason}"
        table.choices.append(Choice("metric", text, ("positive",)))
    elif chosen:
        text = f"metric {metric}: the average over the {len(classes)} {'labels' if table.labels else 'classes'}"
        table.choices.append(Choice("metric", text, ("metric",)))
    elif wanted is not None:
        text = f"--positive changes nothing: {metric} names its class, or treats all classes alike"
        table.choices.append(Choice("metric", text))
    return metric


def roles_of(options: dict[str, Any], file: TableFile) -> Roles:
    """Which column of the file is what, by the options of train and compare."""
    from metricfit.data import Roles

    several: dict[str, Any] = {
        name: columns_of(options[name], file.columns) for name in ("target", "ignore", "use", "categorical")
    }
    single: dict[str, Any] = {name: options.get(name) for name in ("group", "time", "weight")}
    return Roles(**several, **single, missing=options["missing"] or [])


def check_free(out: Path, overwrite: bool) -> None:
    """Raise a usage error if no model folder may be written there."""
    from metricfit.store import check_replaceable

    try:
        check_replaceable(out, overwrite=overwrite)
    except FileExistsError as error:
        raise UsageError(f"--out: {str(error).removeprefix('folder: ')} (--overwrite replaces a model.)") from None


def option(help: str, metavar: str, panel: str | None = None, default: Any = False, **more: Any) -> Any:
    """An option with a value; ``default`` is what the help shows as its default."""
    return typer.Option(metavar=metavar, help=help, show_default=default, rich_help_panel=panel, **more)


Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA", help="A CSV, JSON Lines, Parquet or Excel file; - for standard input.", show_default=False
    ),
]
Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model folder that 'metricfit train' wrote.", show_default=False)
]
Target = Annotated[list[str], option("The column to predict, or several 0/1 columns, each a label of its own.", "COL…")]
TrueLabels = Annotated[
    list[str] | None, option("The column of true labels, or columns.", "COL…", default="as in training")
]
Group = Annotated[str | None, option("Never split rows with the same value, such as one patient's.", "COL", SPLITS)]
Weight = Annotated[str | None, option("Weight of each row.", "COL", COLUMNS)]
Ignore = Annotated[list[str] | None, option("Columns not to use.", "COL…", COLUMNS)]
Use = Annotated[list[str] | None, option("Columns to use though they look like identifiers.", "COL…", COLUMNS)]
Categorical = Annotated[list[str] | None, option("Columns of numbers that are only codes.", "COL…", COLUMNS)]
Missing = Annotated[
    list[str] | None, option("Further texts that mean 'missing', beside '', ?, NA, null.", "TEXT…", COLUMNS)
]
Positive = Annotated[str | None, option("The positive class of two.", "LABEL", COLUMNS, "second in order")]
MaxRows = Annotated[int | None, option("Use at most this many rows, drawn at random.", "N", RUN, min=10)]
MaxEpochs = Annotated[
    int | None, option("Train the networks for at most this many epochs.", "N", RUN, "by recipe", min=1)
]
_CONFIG = "A TOML file with any of these options, such as the train.toml of a model folder; the command line wins."
Config = Annotated[Path | None, option(_CONFIG, "FILE", RUN, is_eager=True, callback=from_file)]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Seed of everything random.")]
Separator = Annotated[str | None, option("Character between the fields of a CSV file.", "CHAR", _DATA, "detected")]
Encoding = Annotated[str | None, option("Encoding of a CSV file, e.g. cp1252.", "NAME", _DATA, "detected")]
Json = Annotated[
    bool, typer.Option("--json", help="Write the result as JSON to standard output.", rich_help_panel=_OUTPUT)
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Write only the result and errors.", rich_help_panel=_OUTPUT)
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.", rich_help_panel=_OUTPUT)]
