"""``metricfit predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metricfit.cli.options import Data, Debug, Encoding, Model, Quiet, Separator

__all__ = ["command"]


def command(
    model: Model,
    data: Data,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write to this .csv, .csv.gz, .parquet or .jsonl file.", show_default="standard output"
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COL…", help="Columns to pass through: --keep id name, or --keep id,name.", show_default=False
        ),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Probabilities before the decision rule is folded in.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of --out.")] = False,
    separator: Separator = None,
    encoding: Encoding = None,
    json: Annotated[
        bool, typer.Option("--json", help="Write one JSON object a row.", rich_help_panel="Output")
    ] = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:  # fmt: skip
    """Predict labels and probabilities for the rows of a table.

    The columns are found by name, in any order; further columns are ignored. The file is read, and the result
    written, some ten thousand rows at a time: it may be larger than memory.

    Example: metricfit predict model new.csv --keep customer_id --out predictions.csv
    """
    from metricfit.cli.predicting import run

    run(model, data, out=out, keep=keep or [], raw=raw, overwrite=overwrite, separator=separator, encoding=encoding,
        as_json=json, quiet=quiet)  # fmt: skip
