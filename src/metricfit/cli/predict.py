"""``metricfit predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metricfit.cli import options as opt
from metricfit.cli.output import Output, UsageError

__all__ = ["command"]


def command(
    model: opt.Model,
    data: opt.Data,
    out: Annotated[
        Path | None,
        opt.option("Write to this .csv, .csv.gz, .parquet or .jsonl file.", "FILE", default="standard output"),
    ] = None,
    keep: Annotated[
        list[str] | None, opt.option("Columns to pass through: --keep id name, or --keep id,name.", "COL…")
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Probabilities before the decision rule is folded in.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of --out.")] = False,
    escape: Annotated[
        bool, typer.Option("--escape", help="Put ' before CSV text that a spreadsheet would run as a formula.")
    ] = False,
    separator: opt.Separator = None,
    encoding: opt.Encoding = None,
    json: Annotated[
        bool, typer.Option("--json", help="Write one JSON object per row.", rich_help_panel="Output")
    ] = False,
    quiet: opt.Quiet = False,
    debug: opt.Debug = False,
) -> None:
    """Predict labels and probabilities for the rows of a table.

    The columns are found by name, in any order; further columns are ignored. The file is read, and the result
    written, some ten thousand rows at a time: it may be larger than memory.

    Example: metricfit predict model new.csv --keep customer_id --out predictions.csv
    """
    from metricfit.data import open_table
    from metricfit.store.model import open_model, writer

    output = Output(json, quiet)
    if out is not None and out.exists() and not overwrite:
        raise UsageError(f"--out: {out} exists; --overwrite replaces it.")
    loaded = open_model(model)
    file = open_table(data, separator=separator, encoding=encoding)
    count = 0
    with writer(out, lines=json, escape=escape) as write:
        for frame in loaded.predictions(file, keep=opt.columns_of(keep, file.columns), raw=raw):
            count += len(frame)
            write(frame)
    if out is not None:
        output.note(f"{count:,} rows predicted: {out}")
