"""``metricfit compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from metricfit.cli.config import from_file
from metricfit.cli.options import Data, Debug, Encoding, Json, Quiet, Seed, Separator, Target

__all__ = ["command"]

_COLUMNS, _RUN = "Columns", "The run"


def command(
    data: Data,
    target: Target,
    metric: Annotated[
        str, typer.Option(metavar="M", help="What models are judged by; see 'metricfit metrics'.", show_default=False)
    ],
    methods: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME…", help="Methods to compare.",
                     show_default="all that are installed"),
    ] = None,
    splits: Annotated[
        int, typer.Option(metavar="N", min=2, help="Random splits into 80 % to train on and 20 % to test.")
    ] = 5,
    jobs: Annotated[int, typer.Option(metavar="N", help="Fits at the same time; -1 for one a core.")] = 1,
    backend: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A joblib backend: loky, threading, or one for several machines: dask, ray.",
                     show_default="joblib's"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="One JSON line a result; what is in it is not computed again.",
            show_default="DATA's name + .compare.jsonl", rich_help_panel=_RUN,
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Start anew.", rich_help_panel=_RUN)
    ] = False,
    seed: Seed = 0,
    group: Annotated[
        str | None,
        typer.Option(metavar="COL", help="Never split rows with the same value.", show_default=False,
                     rich_help_panel=_COLUMNS),
    ] = None,
    weight: Annotated[
        str | None,
        typer.Option(metavar="COL", help="Weight of each row.", show_default=False, rich_help_panel=_COLUMNS),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="COL…", help="Columns not to use.", show_default=False, rich_help_panel=_COLUMNS),
    ] = None,
    use: Annotated[
        list[str] | None,
        typer.Option(metavar="COL…", help="Columns to use though they look like identifiers.", show_default=False,
                     rich_help_panel=_COLUMNS),
    ] = None,
    categorical: Annotated[
        list[str] | None,
        typer.Option(metavar="COL…", help="Columns of numbers that are only codes.", show_default=False,
                     rich_help_panel=_COLUMNS),
    ] = None,
    missing: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT…", help="Further texts that mean 'missing'.", show_default=False,
                     rich_help_panel=_COLUMNS),
    ] = None,
    positive: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help="The positive class of two.", show_default="second in order",
                     rich_help_panel=_COLUMNS),
    ] = None,
    max_rows: Annotated[
        int | None,
        typer.Option(metavar="N", min=10, help="Rows to draw at random at most.", show_default=False,
                     rich_help_panel=_RUN),
    ] = None,
    max_epochs: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Passes of the networks over the data at most.",
                     show_default="by recipe", rich_help_panel=_RUN),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A TOML file with any of these options; the command line wins.",
                     show_default=False, is_eager=True, callback=from_file, rich_help_panel=_RUN),
    ] = None,
    separator: Separator = None,
    encoding: Encoding = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:  # fmt: skip
    """Compare methods on the same random splits: a leaderboard.

    Methods: metricfit, metricfit-tuned and east are networks trained on the metric; cross-entropy,
    cross-entropy-weighted and cross-entropy-tuned the same networks trained the usual way; random-forest, boosting and,
    where installed, xgboost and lightgbm are trees, each also with -tuned, a decision rule tuned for the metric.

    A comparison that was stopped goes on where it was when the same command is given again.

    Example: metricfit compare churn.csv --target churn --metric mcc --jobs 4
    """
    from metricfit.cli.comparing import run

    options: dict[str, Any] = {
        "data": data, "target": target, "metric": metric, "splits": splits, "seed": seed, "group": group,
        "weight": weight, "ignore": ignore or [], "use": use or [], "categorical": categorical or [],
        "missing": missing or [], "positive": positive, "max_rows": max_rows, "max_epochs": max_epochs,
        "separator": separator, "encoding": encoding,
    }  # fmt: skip
    run(options, methods=methods or [], jobs=jobs, backend=backend, out=out, overwrite=overwrite, as_json=json,
        quiet=quiet)  # fmt: skip
