"""Options that several commands share, read from the command line or a TOML file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metricfit.cli.output import Output, UsageError, wrong_use

if TYPE_CHECKING:
    from metricfit.classifier import MetricClassifier
    from metricfit.data import LabelledTable, Roles, TableFile
    from metricfit.metrics import Metric
    from metricfit.store import SavedModel

__all__ = [
    "Data", "Labels", "Model", "Overwrite", "Reading", "Seed", "Training", "argument", "check_free", "checked_metric",
    "columns_of", "hold", "option", "resolved", "seconds", "switch", "to_toml",
]  # fmt: skip

SPLITS, COLUMNS, RUN, _DATA = "Held-out data", "Columns", "The run", "Reading data"
"""Headings of the help."""

_SWITCHES = ("config", "debug", "help")


def option(help: str, metavar: str, panel: str | None = None, default: Any = False, **more: Any) -> Any:
    """An option with a value; ``default`` is what the help shows as its default."""
    return typer.Option(metavar=metavar, help=help, show_default=default, rich_help_panel=panel, **more)


def switch(name: str, help: str, panel: str | None = None) -> Any:
    """An option without a value."""
    return typer.Option(name, help=help, rich_help_panel=panel)


def argument(metavar: str, help: str, default: Any = False) -> Any:
    """A word without an option's name; ``default`` is what the help shows as its default."""
    check = {"DATA": _existing, "MODEL": _existing}.get(metavar)
    return typer.Argument(metavar=metavar, help=help, show_default=default, callback=check)


def _existing(value: Any) -> Any:
    """Fail at once, before anything heavy is imported, if a file or folder is not there."""
    if value is not None and str(value) != "-" and not Path(value).exists():
        raise UsageError(f"{value}: no such {'model folder' if isinstance(value, Path) else 'file'}.")
    return value


def from_file(context: typer.Context, path: Path | None) -> Path | None:
    """Take defaults from a TOML file whose keys are the names of the options."""
    if path is None or context.resilient_parsing:
        return path
    import tomllib

    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{path}: not valid TOML: {error}.") from None
    known = {p.name: p for p in context.command.params if p.name and p.name not in _SWITCHES}
    values = {key.replace("-", "_"): value for key, value in found.items()}
    for key, value in values.items():
        if key not in known:
            from metricfit.data.reader import close_to

            raise typer.BadParameter(f"{path}: this command has no option {key!r}; {close_to(key, known)}")
        if getattr(known[key], "multiple", False) and isinstance(value, str):
            values[key] = [value]
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
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, bool | str | Path):
        # JSON's words and escapes are TOML's; only DEL must be written out in TOML as well.
        return json.dumps(value, default=str, ensure_ascii=False).replace("\x7f", "\\u007f")
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
    unit = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text[-1:].lower())
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


def resolved(metric: Metric, classifier: MetricClassifier) -> Metric:
    """The metric with its class or average written out; the positive class is the one that the model's metric names."""
    from metricfit import metrics
    from metricfit.metrics.algebra import named_class

    classes = tuple(classifier.classes_.tolist())
    if named_class(classifier.metric_, classes) == 0 and len(classes) == 2:
        classes = classes[::-1]
    with wrong_use():
        return metrics.resolve(metric, classes, classifier.task_)[0]


def check_free(out: Path, overwrite: bool) -> None:
    """Raise a usage error if no model folder may be written there."""
    from metricfit.store.folder import check_replaceable

    try:
        check_replaceable(out, overwrite=overwrite)
    except FileExistsError as error:
        raise UsageError(f"--out: {str(error).removeprefix('folder: ')} (--overwrite replaces a model.)") from None


def hold(out: Path, output: Output) -> None:
    """Keep other runs from writing there until the command ends."""
    from metricfit.files import BusyError, locked

    try:
        output.held.enter_context(locked(out))
    except BusyError as error:
        raise UsageError(f"--out: {error}; wait until it is done, or choose another folder.") from None


Data = Annotated[str, argument("DATA", "A CSV, JSON Lines, Parquet or Excel file; - for standard input.")]
Model = Annotated[Path, argument("MODEL", "A model folder that 'metricfit train' wrote.")]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Seed of everything random.")]
Overwrite = Annotated[bool, switch("--overwrite", "Replace what is there.")]
_CONFIG = "A TOML file with any of these options, such as the train.toml of a model folder; the command line wins."


@dataclass(kw_only=True)
class Reading:
    """How a file is read. The fields of these classes are options of the commands that take them."""

    separator: Annotated[str | None, option("Character between a CSV file's fields.", "CHAR", _DATA, "detected")] = None
    encoding: Annotated[str | None, option("Encoding of a CSV file, e.g. cp1252.", "NAME", _DATA, "detected")] = None

    def open(self, data: str) -> TableFile:
        """The file, or standard input."""
        from metricfit.data import open_table

        return open_table(data, separator=self.separator, encoding=self.encoding)


@dataclass(kw_only=True)
class Labels(Reading):
    """How labelled rows are read for a model that is there."""

    target: Annotated[
        list[str] | None, option("The column of true labels, or columns.", "COL…", default="as in training")
    ] = None
    weight: Annotated[str | None, option("Weight of each row.", "COL", COLUMNS)] = None

    def rows(self, model: SavedModel, data: str | TableFile) -> LabelledTable:
        """The labelled rows of a file, read as in training."""
        file = self.open(data) if isinstance(data, str) else data
        return model.labelled_rows(file, target=columns_of(self.target, file.columns), weight=self.weight)


@dataclass(kw_only=True)
class Training(Reading):
    """Which rows and columns to train on, and for how long."""

    target: Annotated[
        list[str], option("The column to predict, or several 0/1 columns, each a label of its own.", "COL…")
    ]
    group: Annotated[
        str | None, option("Never split rows with the same value, such as one patient's.", "COL", SPLITS)
    ] = None
    weight: Annotated[str | None, option("Weight of each row.", "COL", COLUMNS)] = None
    ignore: Annotated[list[str] | None, option("Columns not to use.", "COL…", COLUMNS)] = None
    use: Annotated[list[str] | None, option("Columns to use though they look like identifiers.", "COL…", COLUMNS)] = (
        None
    )
    categorical: Annotated[list[str] | None, option("Columns of numbers that are only codes.", "COL…", COLUMNS)] = None
    missing: Annotated[
        list[str] | None, option("Further texts that mean 'missing', beside '', ?, NA, null.", "TEXT…", COLUMNS)
    ] = None
    positive: Annotated[str | None, option("The positive class of two.", "LABEL", COLUMNS, "second in order")] = None
    max_rows: Annotated[int | None, option("Use at most this many rows, drawn at random.", "N", RUN, min=10)] = None
    max_epochs: Annotated[
        int | None, option("Train the networks for at most this many epochs.", "N", RUN, "by recipe", min=1)
    ] = None
    seed: Seed = 0
    config: Annotated[Path | None, option(_CONFIG, "FILE", RUN, is_eager=True, callback=from_file)] = None

    def roles(self, file: TableFile, time: str | None = None) -> Roles:
        """Which column of the file is what."""
        from metricfit.data import Roles

        several = ("target", "ignore", "use", "categorical")
        lists: dict[str, Any] = {name: columns_of(getattr(self, name), file.columns) for name in several}
        return Roles(**lists, group=self.group, time=time, weight=self.weight, missing=self.missing or [])

    def metric(self, spec: Metric, table: LabelledTable) -> Metric:
        """The metric with its class or average written out; the table's choices say which was taken."""
        from metricfit import metrics
        from metricfit.choices import Choice
        from metricfit.data.labelled import positive_class

        classes = table.classes.tolist()
        wanted = positive_class(table.task, classes, self.positive)
        if wanted is not None:
            classes = [label for label in classes if label != wanted] + [wanted]
        with wrong_use():
            metric, why = metrics.resolve(spec, tuple(classes), table.task)
        if wanted is not None:
            changed = f"metric {metric}: the positive class is {wanted!r}, as --positive says"
            unchanged = f"--positive changes nothing: {metric} names its class, or treats all classes alike"
            table.choices.append(Choice("metric", changed if why else unchanged))
        elif why:
            table.choices.append(Choice("metric", why, ("positive" if table.task == "binary" else "metric",)))
        return metric
