"""Options that several commands share, read from the command line or a TOML file."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from metricfit.cli.command import REQUIRED, Command, UsageError, argument, option, switch, wrong_use

if TYPE_CHECKING:
    from metricfit.classifier import MetricClassifier
    from metricfit.data import LabelledTable, Roles, TableFile
    from metricfit.metrics import Metric
    from metricfit.store import SavedModel

SPLITS, COLUMNS, RUN, _DATA = "Held-out data", "Columns", "The run", "Reading data"
_CONFIG = "A TOML file with any of these options, such as the train.toml of a model folder; the command line wins."

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
    known = {p.name: p for p in context.command.params if p.name and p.name not in ("config", "debug", "help")}
    values = {key.replace("-", "_"): value for key, value in found.items()}
    for key, value in values.items():
        if key not in known:
            from metricfit.choices import close_to

            raise typer.BadParameter(f"{path}: this command has no option {key!r}; {close_to(key, known)}")
        if getattr(known[key], "multiple", False) and isinstance(value, str):
            values[key] = [value]
    context.default_map = {**(context.default_map or {}), **values}
    return path


def to_toml(options: dict[str, Any]) -> str:
    """Options as TOML; those that were not given are left out."""
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


@dataclass(kw_only=True)
class Reading(Command):
    """How a file is read."""

    separator: str | None = option("Character between a CSV file's fields.", "CHAR", _DATA, shown="detected")
    encoding: str | None = option("Encoding of a CSV file, e.g. cp1252.", "NAME", _DATA, shown="detected")

    def open(self, data: str) -> TableFile:
        """The file, or standard input."""
        from metricfit.data import open_table

        return open_table(data, separator=self.separator, encoding=self.encoding)


@dataclass(kw_only=True)
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


@dataclass(kw_only=True)
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

    def roles(self, file: TableFile, metric: Metric, time: str | None = None) -> Roles:
        """Which column of the file is what, also for the metric."""
        from metricfit.data import Roles

        several = ("target", "ignore", "use", "categorical")
        lists: dict[str, Any] = {name: columns_of(getattr(self, name), file.columns) for name in several}
        special: dict[str, Any] = {"group": self.group, "time": time, "weight": self.weight}
        return Roles(**lists, **special, missing=self.missing or [], named=metric.columns)

    def judged_by(self, spec: Metric, table: LabelledTable) -> Metric:
        """The metric with its class or average written out; the table's choices say which was taken."""
        from metricfit import metrics
        from metricfit.choices import Choice
        from metricfit.data.labelled import positive_class

        classes = table.classes.tolist()
        wanted = positive_class(table.task, classes, self.positive)
        with wrong_use():
            metric, why = metrics.resolve(spec, tuple(sorted(classes, key=lambda c: c == wanted)), table.task)
        if wanted is not None:
            changed = f"metric {metric}: the positive class is {wanted!r}, as --positive says"
            unchanged = f"--positive changes nothing: {metric} names its class, or treats all classes alike"
            table.choices.append(Choice("metric", changed if why else unchanged))
        elif why:
            table.choices.append(Choice("metric", why, ("positive" if table.task == "binary" else "metric",)))
        return metric
