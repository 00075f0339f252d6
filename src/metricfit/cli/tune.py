"""``metricfit tune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metricfit.cli.options import Data, Debug, Encoding, Json, Model, Quiet, Separator, TrueLabels

__all__ = ["command"]


def command(
    model: Model,
    data: Data,
    metric: Annotated[
        str,
        typer.Option(
            metavar="M", help="What to decide for, e.g. mcc or 'precision\\[yes] subject to recall\\[yes] >= 0.9'.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write the changed model here.", show_default="MODEL itself"),
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(metavar="P", min=0.0, max=1.0, help="Meet the constraints on new data with this probability.",
                     show_default=False),
    ] = None,
    target: TrueLabels = None,
    weight: Annotated[
        str | None, typer.Option(metavar="COL", help="Weight of each row.", show_default=False)
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the model folder of --out.")] = False,
    separator: Separator = None,
    encoding: Encoding = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:  # fmt: skip
    """Choose a new decision rule for another metric or constraint, without training again.

    Use rows that the model was not trained on. The network stays as it is; only the step from probabilities to
    labels changes.

    Example: metricfit tune model holdout.csv --metric "precision[yes] subject to recall[yes] >= 0.9"
    """
    from metricfit.cli.tuning import run

    run(model, data, spec=metric, out=out, confidence=confidence, target=target, weight=weight, overwrite=overwrite,
        separator=separator, encoding=encoding, as_json=json, quiet=quiet)  # fmt: skip
