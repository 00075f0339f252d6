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
    """Train on a small table that comes with scikit-learn and show what it bought.

    Writes digits.csv, handwritten digits of which some are rare, and a model folder with a report; the command it
    stands for is shown, to be tried with a table of your own.
    """
    from metricfit.cli.demonstration import run

    run(out, seed=seed, overwrite=overwrite, as_json=json, quiet=quiet)
