"""``metricfit compare``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from metricfit.cli import options as opt
from metricfit.cli.output import CommandError, Interrupted, Output, interval, number, stoppable

if TYPE_CHECKING:
    from metricfit.comparison import Comparison


def command(
    data: opt.Data,
    metric: Annotated[str, opt.option("What models are judged by; see 'metricfit metrics'.", "M")],
    training: opt.Training,
    output: Output,
    methods: Annotated[
        list[str] | None, opt.option("Methods to compare.", "NAME…", default="all that are installed")
    ] = None,
    splits: Annotated[
        int, opt.option("Random splits into 80 % to train on and 20 % to test.", "N", default=True, min=2)
    ] = 5,
    jobs: Annotated[int, opt.option("Fits at the same time; -1 for one per core.", "N", default=True)] = 1,
    backend: Annotated[
        str | None,
        opt.option("A joblib backend: loky, threading, or one for several machines: dask, ray.", "NAME",
                   default="joblib's"),
    ] = None,
    out: Annotated[
        Path | None,
        opt.option("One JSON line per result; what is in it is not computed again.", "FILE", opt.RUN,
                   "DATA's name + .compare.jsonl"),
    ] = None,
    overwrite: opt.Overwrite = False,
) -> None:  # fmt: skip
    """Compare methods on the same random splits: a leaderboard.

    Methods: metricfit is the portfolio; network and east are networks trained on the metric; cross-entropy,
    cross-entropy-weighted and cross-entropy-tuned the same networks trained the usual way; random-forest, boosting and,
    where installed, xgboost and lightgbm are trees, each also with -tuned, a decision rule tuned for the metric.

    To go on with a comparison that was stopped, give the same command again.

    Example: metricfit compare churn.csv --target churn --metric mcc --jobs 4
    """
    from metricfit.comparison import Comparison
    from metricfit.data import read_labelled

    spec, file, seed = opt.checked_metric(metric), training.open(data), training.seed
    table = read_labelled(file, training.roles(file), max_rows=training.max_rows, seed=seed, note=output.note)
    judged = training.metric(spec, table)
    output.choices(table.choices)
    path = out or Path(f"{'stdin' if data == '-' else Path(data).name.split('.')[0]}.compare.jsonl")
    names = [part.strip() for text in methods or [] for part in text.split(",") if part.strip()]
    comparison = Comparison(
        table.X, table.target, judged, methods=names or None, splits=splits, sample_weight=table.weight,
        groups=table.groups, max_epochs=training.max_epochs, out=path, overwrite=overwrite, random_state=seed,
    )  # fmt: skip
    count, wanted = len(comparison.todo), splits * len(comparison.methods)
    if count < wanted:
        output.note(f"{wanted - count} of {wanted} results are in {path} already.")
    started = time.monotonic()

    def progress(row: dict[str, Any]) -> None:
        output.note(
            f"[{count - len(comparison.todo)}/{count}, {time.monotonic() - started:.0f} s] split {row['split'] + 1}, "
            + f"{row['method']}: {number(row['value']) if not row['error'] else 'failed: ' + row['error']}"
        )

    try:
        with stoppable():
            comparison.run(jobs=jobs, backend=backend, progress=progress)
    except Interrupted:
        raise CommandError(f"stopped; the results so far are in {path}. Give the same command to go on.") from None
    _show(output, comparison, len(table.y), path)


def _show(output: Output, comparison: Comparison, rows: int, path: Path) -> None:
    from metricfit.metrics import Constrained

    board, metric = comparison.leaderboard(), comparison.metric
    if not board:
        raise CommandError(f"no method could be fitted; the reasons are in {path}.")
    reference = comparison.methods[0] if any(r["method"] == comparison.methods[0] for r in board) else ""
    least, most = metric.objective.range if isinstance(metric, Constrained) else metric.range
    cells = [
        [r["method"], number(r["mean"]), interval(max(r["low"], least), min(r["high"], most)),
         f"{r['difference']:+.4f}", interval(r["difference_low"], r["difference_high"]), f"{r['seconds']:.1f}"]
        for r in board
    ]  # fmt: skip
    heads = ["method", str(metric), "95 % interval", f"difference to {reference or 'the first'}", "95 % interval",
             "seconds"]  # fmt: skip
    output.table(f"{rows:,} rows, {comparison.splits} random splits, best first", heads, cells)
    best = board[0]
    if best["method"] == reference or not reference:
        output.line(f"{best['method']} came first.")
    else:
        sure = best["difference_low"] > 0 or best["difference_high"] < 0
        doubt = "" if sure else "; the difference is within the noise"
        output.line(f"{best['method']} came first, {abs(best['difference']):.4f} ahead of {reference}{doubt}.")
    output.line(f"Results: {path}")
    output.result({"metric": str(metric), "rows": rows, "splits": comparison.splits, "leaderboard": board,
                   "results": str(path)})  # fmt: skip
