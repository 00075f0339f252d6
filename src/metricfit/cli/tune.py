"""``metricfit tune``."""

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
        typer.Argument(metavar="DATA", help="Labelled rows, as CSV, CSV.gz or Parquet; - for standard input.",
                       show_default=False),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="M", help="What to decide for, e.g. mcc or 'precision\\[yes] subject to recall\\[yes] >= 0.9'.",
            show_default=False,
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(metavar="P", help="Take this threshold of the second class instead, without DATA.",
                     show_default=False),
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Take this rule instead, without DATA: JSON text, or a file with it.",
                     show_default=False),
    ] = None,
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

    With --threshold or --rule the model gets a rule that was chosen elsewhere, such as in the report's explorer.

    Example: metricfit tune model holdout.csv --metric "precision[yes] subject to recall[yes] >= 0.9"
    """
    from metricfit.cli.errors import UsageError

    if rule is not None or threshold is not None:
        from metricfit.cli import ruling

        for option, given in (("DATA", data), ("--metric", metric), ("--confidence", confidence), ("--target", target),
                              ("--weight", weight)):  # fmt: skip
            if given is not None:
                raise UsageError(f"{option}: has no effect with a rule that is given.")
        ruling.run(model, rule=rule, threshold=threshold, out=out, overwrite=overwrite, as_json=json, quiet=quiet)
        return
    if data is None or metric is None:
        raise UsageError("give DATA and --metric to choose a rule, or the rule itself with --threshold or --rule.")
    from metricfit.cli.tuning import run

    run(model, data, spec=metric, out=out, confidence=confidence, target=target, weight=weight, overwrite=overwrite,
        separator=separator, encoding=encoding, as_json=json, quiet=quiet)  # fmt: skip
