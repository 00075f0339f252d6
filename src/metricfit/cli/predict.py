"""``metricfit predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from metricfit.cli import options as opt
from metricfit.cli.output import Output, UsageError


def command(
    model: opt.Model,
    data: opt.Data,
    reading: opt.Reading,
    output: Output,
    out: Annotated[
        Path | None,
        opt.option("Write to this .csv, .csv.gz, .parquet or .jsonl file.", "FILE", default="standard output"),
    ] = None,
    keep: Annotated[
        list[str] | None, opt.option("Columns to pass through: --keep id name, or --keep id,name.", "COL…")
    ] = None,
    raw: Annotated[bool, opt.switch("--raw", "Probabilities before the decision rule is folded in.")] = False,
    escape: Annotated[
        bool, opt.switch("--escape", "Put ' before CSV text that a spreadsheet takes for a formula.")
    ] = False,
    overwrite: opt.Overwrite = False,
) -> None:
    """Predict labels and probabilities for the rows of a table.

    The columns are found by name, in any order; further columns are ignored. The file is read, and the result
    written, some ten thousand rows at a time: it may be larger than memory. With --json each row is a JSON object.

    Example: metricfit predict model new.csv --keep customer_id --out predictions.csv
    """
    if out is not None and out.exists() and not overwrite:
        raise UsageError(f"--out: {out} exists; --overwrite replaces it.")
    from metricfit.store.model import open_model, writer

    loaded, file = open_model(model), reading.open(data)
    count = 0
    with writer(out, lines=output.json, escape=escape) as write:
        for frame in loaded.predictions(file, keep=opt.columns_of(keep, file.columns), raw=raw):
            count += len(frame)
            write(frame)
    if out is not None:
        output.note(f"{count:,} rows predicted: {out}")
