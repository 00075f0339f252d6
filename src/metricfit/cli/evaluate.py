"""``metricfit evaluate``."""

from __future__ import annotations

from typing import Annotated

import typer

from metricfit.cli.options import Data, Debug, Encoding, Json, Model, Quiet, Seed, Separator, TrueLabels

__all__ = ["command"]


def command(
    model: Model,
    data: Data,
    metric: Annotated[
        list[str] | None,
        typer.Option(metavar="M…", help="Only these metrics.", show_default="all of them"),
    ] = None,
    target: TrueLabels = None,
    weight: Annotated[
        str | None, typer.Option(metavar="COL", help="Weight of each row.", show_default=False)
    ] = None,
    seed: Seed = 0,
    separator: Separator = None,
    encoding: Encoding = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:  # fmt: skip
    """Measure a model on labelled rows: every metric, also of each class, with 95 % bootstrap intervals.

    Example: metricfit evaluate model test.csv --metric mcc "recall[yes]"
    """
    from metricfit.cli.evaluating import run

    run(model, data, specs=metric or [], target=target, weight=weight, seed=seed, separator=separator,
        encoding=encoding, as_json=json, quiet=quiet)  # fmt: skip
