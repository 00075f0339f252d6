"""``metricfit report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metricfit.cli.options import Debug, Encoding, Json, Model, Quiet, Separator, TrueLabels

__all__ = ["command"]


def command(
    model: Model,
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="Rows that the model was not trained on: CSV, CSV.gz or Parquet; - for standard input.",
            show_default="the rows held out in training",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the page here.", show_default="MODEL/report.html"),
    ] = None,
    target: TrueLabels = None,
    weight: Annotated[
        str | None, typer.Option(metavar="COL", help="Weight of each row.", show_default=False)
    ] = None,
    separator: Separator = None,
    encoding: Encoding = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:  # fmt: skip
    """Write the report of a model: one HTML page with the measured metric, an explorer of decision rules, and curves.

    Without DATA it is drawn from the rows that were held out in training. With DATA it shows those rows: without
    labels, only what the model says about them.

    Example: metricfit report model march.csv --out march.html
    """
    from metricfit.cli.reporting import run

    run(model, data, out=out, target=target, weight=weight, separator=separator, encoding=encoding, as_json=json,
        quiet=quiet)  # fmt: skip
