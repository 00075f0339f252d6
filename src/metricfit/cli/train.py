"""``metricfit train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from metricfit.cli.config import from_file
from metricfit.cli.options import Data, Debug, Encoding, Json, Quiet, Seed, Separator, Target

__all__ = ["command"]

_SPLITS, _COLUMNS, _RUN = "Held-out data", "Columns", "The run"


def command(
    data: Data,
    target: Target,
    metric: Annotated[
        str,
        typer.Option(
            metavar="M",
            help="What the model is judged by: a name, 'f1\\[yes]', an expression, also "
            "'precision\\[yes] subject to recall\\[yes] >= 0.9'; "
            "see 'metricfit metrics'.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The model folder to write.", show_default=False)],
    validation: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Measure on this file's rows.", show_default=False, rich_help_panel=_SPLITS),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="COL", help="Never split rows with the same value, such as one patient's.", show_default=False,
            rich_help_panel=_SPLITS,
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="COL", help="Hold out the latest fifth of the rows, and validate on spans of time.",
            show_default=False, rich_help_panel=_SPLITS,
        ),
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=2, help="Members of the ensemble.", show_default="by size", rich_help_panel=_SPLITS
        ),
    ] = None,
    baseline: Annotated[
        bool,
        typer.Option(help="Train the same network with cross-entropy for comparison.", rich_help_panel=_SPLITS),
    ] = True,
    weight: Annotated[
        str | None,
        typer.Option(metavar="COL", help="Weight of each row.", show_default=False, rich_help_panel=_COLUMNS),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COL…", help="Columns not to use.", show_default=False,
            rich_help_panel=_COLUMNS,
        ),
    ] = None,
    use: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COL…", help="Columns to use though they look like identifiers.", show_default=False,
            rich_help_panel=_COLUMNS,
        ),
    ] = None,
    categorical: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COL…", help="Columns of numbers that are only codes.", show_default=False, rich_help_panel=_COLUMNS
        ),
    ] = None,
    missing: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT…", help="Further texts that mean 'missing', beside '', ?, NA, null.", show_default=False,
            rich_help_panel=_COLUMNS,
        ),
    ] = None,
    positive: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL", help="The positive class of two.", show_default="second in order", rich_help_panel=_COLUMNS
        ),
    ] = None,
    task: Annotated[
        str,
        typer.Option(metavar="TASK", help="auto, binary, multiclass or multilabel.", rich_help_panel=_COLUMNS),
    ] = "auto",
    recipe: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="default, east, log_loss, surrogate_fbeta or anyloss.", rich_help_panel=_RUN,
        ),
    ] = "default",
    max_time: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Stop training after 90s, 15m or 2h and keep the best so far.",
                     show_default=False, rich_help_panel=_RUN),
    ] = None,
    max_rows: Annotated[
        int | None,
        typer.Option(metavar="N", min=10, help="Train on so many rows, drawn at random, if there are more.",
                     show_default=False, rich_help_panel=_RUN),
    ] = None,
    max_epochs: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Passes over the data at most.", show_default="by recipe", rich_help_panel=_RUN
        ),
    ] = None,
    seed: Seed = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run that was stopped.", rich_help_panel=_RUN)
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace the model folder, or a stopped run.", rich_help_panel=_RUN),
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A TOML file with any of these options, such as the train.toml of a model folder; the "
            "command line wins.", show_default=False, is_eager=True, callback=from_file, rich_help_panel=_RUN,
        ),
    ] = None,
    separator: Separator = None,
    encoding: Encoding = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:  # fmt: skip
    """Train a classifier on the metric it is judged by.

    Reads a table, finds out what its columns hold, trains, measures on held-out rows beside cross-entropy plain and
    tuned, and writes a model folder with a report. Everything that was decided without asking is told on standard
    error with its reason.

    An option shown with COL… takes one name or several: --ignore id name, --ignore id,name, or the option again.

    Example: metricfit train churn.csv --target churn --metric "f1[yes]" --out model
    """
    from metricfit.cli.fitting import run

    options: dict[str, Any] = {
        "data": data, "target": target, "metric": metric, "out": str(out), "validation": validation, "group": group,
        "time": time, "folds": folds, "baseline": baseline, "weight": weight, "ignore": ignore or [], "use": use or [],
        "categorical": categorical or [], "missing": missing or [], "positive": positive, "task": task,
        "recipe": recipe, "max_time": max_time, "max_rows": max_rows, "max_epochs": max_epochs, "seed": seed,
        "separator": separator, "encoding": encoding,
    }  # fmt: skip
    run(options, resume=resume, overwrite=overwrite, as_json=json, quiet=quiet)
