"""Commands: what they write where, the options they share, from the command line or a TOML file, and their errors."""

from __future__ import annotations

import json
import math
import re
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, dataclass_transform

import typer

import metricfit  # each room is imported when a command first asks for it, after its cheap checks

if TYPE_CHECKING:
    from metricfit import MetricClassifier
    from metricfit.assess import HeldOutScores
    from metricfit.choices import Choice
    from metricfit.data import LabelledTable, Roles, TableFile
    from metricfit.metrics import Metric
    from metricfit.store import SavedModel

REQUIRED = MISSING
SPLITS, COLUMNS, RUN, _DATA = "Held-out data", "Columns", "The run", "Reading data"
_CONFIG = "A TOML file with any of these options, such as the train.toml of a model folder; the command line wins."
_WIDTH_OF_A_PIPE = 140
_OPTIONS = {"folds": ("folds", "group", "time"), "unused": ("categorical", "ignore")}  # of a choice's topic


def option(help: str, metavar: str, panel: str | None = None, default: Any = None, shown: str = "", **more: Any) -> Any:
    """A field that is an option with a value; ``shown`` is what the help shows for a default of None."""
    names, show = more.pop("names", ()), shown or default not in (None, REQUIRED)
    info = typer.Option(*names, metavar=metavar, help=help, show_default=show, rich_help_panel=panel, **more)
    return field(default=default, metadata={"typer": info})


def switch(names: str, help: str, panel: str | None = None, default: bool = False) -> Any:
    """A field that is an option without a value."""
    return field(default=default, metadata={"typer": typer.Option(*names.split(), help=help, rich_help_panel=panel)})


def argument(metavar: str, help: str, default: Any = REQUIRED, *, shown: str = "") -> Any:
    """A field that is a word without an option's name; ``shown`` is what the help shows for a default of None."""
    check = _existing if metavar in ("DATA", "MODEL") else None
    info = typer.Argument(metavar=metavar, help=help, show_default=shown or False, callback=check)
    return field(default=default, metadata={"typer": info})


def options_of(command: Any) -> dict[str, Field[Any]]:
    """The fields of a command that are options, its own before those of its bases."""
    known = {field.name: field for field in fields(command)}
    return {n: known[n] for kind in command.__mro__ for n in vars(kind).get("__annotations__", ()) if n in known}


def _existing(value: Any) -> Any:
    """Fail at once, before anything heavy is imported, if a file or folder is not there."""
    open_ended = isinstance(value, str) and ("://" in value or any(sign in value for sign in "*?["))
    there = value is None or str(value) == "-" or open_ended or Path(value).exists()
    expect(there, f"{value}: no such {'model folder' if isinstance(value, Path) else 'file'}.")
    return value


@dataclass_transform(kw_only_default=True)
@dataclass(kw_only=True)
class Command(ABC):
    """What all commands have: where they write. Results go to standard output, everything else to standard error."""

    json: bool = switch("--json", "Write the result as JSON to standard output.", "Output")
    quiet: bool = switch("--quiet -q", "Write only the result and errors.", "Output")
    debug: bool = switch("--debug", "Show the traceback of an error.", "Output")

    def __init_subclass__(cls) -> None:
        dataclass(kw_only=True)(cls)

    def __post_init__(self) -> None:
        from rich.console import Console

        width = None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE
        # Column names and metrics hold brackets: they are text, never markup.
        self.console = Console(markup=False, highlight=False, emoji=False, width=width, soft_wrap=width is not None)
        self.log = Console(stderr=True, markup=False, highlight=False, emoji=False, soft_wrap=True)
        self.held = ExitStack()  # closed when the command ends

    @abstractmethod
    def run(self) -> None:
        """Do what the command is for."""

    def refuse(self, why: str, *options: str) -> None:
        """Raise a usage error if one of these options was given, which has no effect here."""
        for name in options:
            shown = "DATA" if name == "data" else "--" + name.replace("_", "-")
            expect(getattr(self, name) in (None, False), f"{shown}: has no effect {why}.")

    def note(self, text: str) -> None:
        """Write progress or an explanation, unless quiet."""
        if not self.quiet:
            self.log.print(text)

    def warn(self, text: str) -> None:
        """Write something the user should know even when quiet."""
        self.log.print(f"Warning: {text}")

    def show_choices(self, choices: Iterable[Choice]) -> list[str]:
        """Write what was decided without asking, each with the options that change it; returns the lines."""
        lines = []
        for choice in choices:
            names = choice.arguments or _OPTIONS.get(choice.topic, ())
            options = ", ".join(f"--{name.replace('_', '-')}" for name in names)
            lines.append(f"{choice} ({options})" if options else str(choice))
        if lines:
            self.note("\n  • ".join(["Chosen without asking (the option in brackets changes it):", *lines]))
        return lines

    def line(self, text: str) -> None:
        """Write one line of the result."""
        if not self.json:
            self.console.print(text)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, left: int = 1) -> None:
        """Write a table of the result; the first ``left`` columns are text, a pair is an interval."""
        if self.json:
            return
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(title=Text(title), box=box.SIMPLE_HEAD, title_justify="left", show_edge=False, pad_edge=False)
        for i, column in enumerate(columns):
            table.add_column(Text(column), justify="left" if i < left else "right", overflow="fold")
        for row in rows:
            table.add_row(*(Text(shown(cell)) for cell in row))
        self.console.print(table, soft_wrap=False)

    def result(self, content: Any) -> None:
        """Write the result as one JSON document, if that was asked for."""
        if self.json:
            sys.stdout.write(metricfit.files.to_json(content) + "\n")


def number(value: float | None) -> str:
    """Four digits, of money two, or a dash."""
    return "–" if value is None or math.isnan(value) else f"{value:,.2f}" if abs(value) >= 1000 else f"{value:.4f}"


def shown(cell: Any) -> str:
    """A cell of a table: a number, an interval (low, high), or text."""
    if isinstance(cell, tuple):
        low, high = map(number, cell)
        return low if low == "–" else f"{low} to {high}"
    return number(cell) if cell is None or isinstance(cell, float) else str(cell)


class CommandError(Exception):
    """A failure that is reported in one message; the program then ends with the exit code."""

    exit_code = 1


class UsageError(CommandError):
    """The call asks for something that does not exist, or combines options that exclude each other."""

    exit_code = 2


def expect(holds: bool, otherwise: str) -> None:
    """Raise a usage error unless something holds."""
    if not holds:
        raise UsageError(otherwise)


class Interrupted(BaseException):
    """Ctrl-C. Not a KeyboardInterrupt, which the training loop turns into an early end."""


@contextmanager
def stoppable(kept: str = "") -> Iterator[Callable[[], None]]:
    """Ctrl-C raises :class:`Interrupted` at once, which says what is kept.

    The function does so again, as NumPy and Cython may lose it.
    """
    pressed: list[bool] = []

    def stop(*_: Any) -> None:
        pressed.append(True)
        check()

    def check() -> None:
        if pressed:
            raise Interrupted(f"Stopped; {kept}. Give the same command to go on.")

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield check
    except Exception:
        check()
        raise
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def wrong_use() -> Iterator[None]:
    """Report a library function's complaint about an argument as one about the option of that name."""
    try:
        yield
    except (ValueError, TypeError, FileExistsError, FileNotFoundError) as error:
        raise UsageError(f"--{error}") from None


a_table = partial(argument, "DATA", "A CSV, JSON Lines, Parquet or Excel file; - for standard input.")
a_model = partial(argument, "MODEL", "A model folder that 'metricfit train' wrote.")
an_out = partial(option, names=("--out", "-o"))
a_seed = partial(option, "Seed of everything random.", "N", default=0, min=0)
to_overwrite = partial(switch, "--overwrite", "Replace what is there.")
"""Fields of several commands."""


def from_file(context: typer.Context, path: Path | None) -> Path | None:
    """Take defaults from a TOML file whose keys are the names of the options."""
    if path is None or context.resilient_parsing:
        return path
    import tomllib

    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else f"not valid TOML: {error}"
        raise typer.BadParameter(f"{path}: {why}.") from None
    known = {p.name: p for p in context.command.params if p.name not in (None, "config", "debug", "help")}
    defaults = context.default_map = dict(context.default_map or {})
    for key, value in found.items():
        if (name := key.replace("-", "_")) not in known:
            told = f"this command has no option {name!r}; {metricfit.choices.close_to(name, map(str, known))}"
            raise typer.BadParameter(f"{path}: {told}")
        defaults[name] = [value] if getattr(known[name], "multiple", False) and isinstance(value, str) else value
    return path


def to_toml(options: dict[str, Any]) -> str:
    """Options as TOML; those that were not given are left out."""
    given = {key: json.dumps(v, default=str, ensure_ascii=False) for key, v in options.items() if v not in (None, [])}
    # JSON's words and escapes are TOML's; only DEL must be written out in TOML as well.
    return "".join(f"{key} = {text}\n" for key, text in given.items()).replace("\x7f", "\\u007f")


def columns_of(given: list[str] | None, known: list[str]) -> list[str]:
    """Column names of a repeated option; a text that is no column is divided at its commas."""
    names: list[str] = []
    for text in given or []:
        names += [text] if text in known else [part.strip() for part in text.split(",")]
    return names


def seconds(text: str | None) -> float | None:
    """A length of time such as 90, 90s, 15m or 2h, in seconds."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d*\.?\d+)([smh]?)", text.lower())
    if not found or float(found[1]) == 0:
        raise UsageError(f"--time-limit: expected a time such as 90s, 15m or 2h, got {text!r}.")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


def checked_metric(spec: str) -> Metric:
    """The metric of ``--metric``, or a usage error."""
    with wrong_use():
        return metricfit.metrics.get(spec)


def resolved(metric: Metric | None, classifier: MetricClassifier) -> Metric:
    """A metric, or the model's, with its class written out; the positive class is the one that the model's names."""
    if metric is None:
        return classifier.metric_
    from metricfit.metrics.algebra import named_class

    classes = tuple(classifier.classes_.tolist())
    if named_class(classifier.metric_, classes) == 0 and len(classes) == 2:
        classes = classes[::-1]
    with wrong_use():
        return metricfit.metrics.resolve(metric, classes, classifier.task_)[0]


def scored(classifier: MetricClassifier, table: LabelledTable, **more: Any) -> HeldOutScores:
    """What a classifier says about the rows of a table; ``more`` are arguments of ``scores_of``."""
    return metricfit.assess.scores_of(classifier, table.X, table.y, table.weight, columns=table.columns, **more)


def check_free(out: Path, overwrite: bool) -> None:
    """Raise a usage error if no model folder may be written there."""
    try:
        metricfit.store.check_replaceable(out, overwrite=overwrite)
    except FileExistsError as error:
        raise UsageError(f"--out: {str(error).removeprefix('folder: ')} (--overwrite replaces a model.)") from None


class Reading(Command):
    """How a file is read."""

    separator: str | None = option("Character between a CSV file's fields.", "CHAR", _DATA, shown="detected")
    encoding: str | None = option("Encoding of a CSV file, e.g. cp1252.", "NAME", _DATA, shown="detected")

    def open(self, data: str) -> TableFile:
        """The file, or standard input."""
        return metricfit.data.open_table(data, separator=self.separator, encoding=self.encoding)


class Labels(Reading):
    """How labelled rows are read for a model that is there."""

    target: list[str] | None = option("The column of true labels, or columns.", "COL…", shown="as in training")
    weight: str | None = option("Weight of each row.", "COL", COLUMNS)

    def rows(self, model: SavedModel, data: str | TableFile, judged: Sequence[Metric] = ()) -> LabelledTable:
        """The labelled rows of a file, with the columns that metrics (the model's own, if none) name; says choices."""
        file = self.open(data) if isinstance(data, str) else data
        named = dict.fromkeys(name for metric in judged or [model.classifier.metric_] for name in metric.columns)
        target = columns_of(self.target, file.columns)
        table = model.labelled_rows(file, target=target, weight=self.weight, named=[*named])
        self.show_choices(table.choices)
        return table

    def opened(self, model: Path, data: str, spec: str | None) -> tuple[MetricClassifier, LabelledTable, Metric]:
        """A model, the labelled rows of a file, and the metric that is asked for, or the model's own."""
        asked = None if spec is None else checked_metric(spec)
        loaded = metricfit.store.open_model(model)
        table = self.rows(loaded, data, [] if asked is None else [asked])
        return loaded.classifier, table, resolved(asked, loaded.classifier)


class Training(Reading):
    """Which rows and columns to train on, and for how long."""

    target: list[str] = option("The column to predict, or several 0/1 columns of labels.", "COL…", default=REQUIRED)
    group: str | None = option("Never split rows with the same value, such as one patient's.", "COL", SPLITS)
    weight: str | None = option("Weight of each row.", "COL", COLUMNS)
    ignore: list[str] | None = option("Columns not to use.", "COL…", COLUMNS)
    use: list[str] | None = option("Columns to use though they look like identifiers.", "COL…", COLUMNS)
    categorical: list[str] | None = option("Columns of numbers that are only codes.", "COL…", COLUMNS)
    missing: list[str] | None = option("Further texts that mean 'missing', beside '', ?, NA, null.", "TEXT…", COLUMNS)
    positive: str | None = option("The positive class of two.", "LABEL", COLUMNS, shown="second in order")
    max_rows: int | None = option("Use at most this many rows, drawn at random.", "N", RUN, min=10)
    max_epochs: int | None = option("Most epochs of the networks' training.", "N", RUN, shown="by recipe", min=1)
    seed: int = a_seed()
    config: Path | None = option(_CONFIG, "FILE", RUN, is_eager=True, callback=from_file)

    def open(self, data: str) -> TableFile:
        """The file, or standard input, with the words for a missing value."""
        file = super().open(data)
        file.gaps += tuple(self.missing or ())
        return file

    def roles(self, file: TableFile, metric: Metric, time: str | None = None) -> Roles:
        """Which column of the file is what, also for the metric."""
        several = ("target", "ignore", "use", "categorical")
        lists: dict[str, Any] = {name: columns_of(getattr(self, name), file.columns) for name in several}
        special: dict[str, Any] = {"group": self.group, "time": time, "weight": self.weight}
        return metricfit.data.Roles(**lists, **special, named=metric.columns)

    def labelled(self, file: TableFile, roles: Roles, task: str = "auto") -> LabelledTable:
        """The rows of a file that have a label, drawn at random if there are too many."""
        how: dict[str, Any] = {"max_rows": self.max_rows, "seed": self.seed, "note": self.note}
        return metricfit.data.read_labelled(file, roles, task=task, **how)

    def judged_by(self, spec: Metric, table: LabelledTable) -> Metric:
        """The metric with its class or average written out; the table's choices say which was taken."""
        classes = table.classes.tolist()
        wanted = metricfit.data.labelled.positive_class(table.task, classes, self.positive)
        with wrong_use():
            ordered = tuple(sorted(classes, key=lambda c: c == wanted))
            metric, why = metricfit.metrics.resolve(spec, ordered, table.task)
        by: tuple[str, ...] = ("positive" if table.task == "binary" else "metric",)
        if wanted is not None:
            changed = f"metric {metric}: the positive class is {wanted!r}, as --positive says"
            unchanged = f"--positive changes nothing: {metric} names its class, or treats all classes alike"
            why, by = changed if why else unchanged, ()
        if why:
            table.choices.append(metricfit.choices.Choice("metric", why, by))
        return metric
