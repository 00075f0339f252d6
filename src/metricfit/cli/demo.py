"""``metricfit demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metricfit.cli.options import Debug, Json, Quiet, Seed

__all__ = ["command"]


def command(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to write the table and the model.")] = Path(
        "metricfit-demo"
    ),
    seed: Seed = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the results of an earlier demo.")] = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Train on a small made-up table of churning customers and show what it bought.

    Writes customers.csv and a model folder with a report; the commands it stands for are shown, to be tried again.
    """
    from metricfit.cli.demonstration import run

    run(out, seed=seed, overwrite=overwrite, as_json=json, quiet=quiet)
