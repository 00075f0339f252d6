"""``metricfit compare``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import metricfit
from metricfit.cli import command as cli


class Compare(cli.Training):
    """Compare methods on the same random splits: a leaderboard.

    Methods: metricfit is the portfolio; network and east are networks trained on the metric; cross-entropy,
    cross-entropy-weighted and cross-entropy-tuned the same networks trained the usual way; random-forest, boosting and,
    where installed, xgboost and lightgbm are trees, each also with -tuned, a decision rule tuned for the metric.

    To go on with a comparison that was stopped, give the same command again.

    Example: metricfit compare churn.csv --target churn --metric mcc --jobs 4
    """

    data: str = cli.a_table()
    metric: str = cli.option("What models are judged by; see 'metricfit metrics'.", "M", default=cli.REQUIRED)
    methods: list[str] | None = cli.option("Methods to compare.", "NAME…", shown="all that are installed")
    splits: int = cli.option("Random splits into 80 % to train on and 20 % to test.", "N", default=5, min=2)
    jobs: int = cli.option("Fits at the same time; -1 for one per core.", "N", default=1)
    backend: str | None = cli.option("loky, threading, or for several machines dask, ray.", "NAME", shown="joblib's")
    out: Path | None = cli.an_out("Where results are kept, one JSON line each.", "FILE", shown="DATA.compare.jsonl")
    overwrite: bool = cli.to_overwrite()

    def run(self) -> None:
        spec, file = cli.checked_metric(self.metric), self.open(self.data)
        table = self.labelled(file, self.roles(file, spec))
        judged = self.judged_by(spec, table)
        self.show_choices(table.choices)
        path = self.out or Path(f"{'stdin' if self.data == '-' else Path(self.data).name.split('.')[0]}.compare.jsonl")
        names = [part.strip() for text in self.methods or [] for part in text.split(",") if part.strip()]
        comparison = metricfit.comparison.Comparison(
            table.X, table.target, judged, methods=names or None, splits=self.splits, sample_weight=table.weight,
            groups=table.groups, max_epochs=self.max_epochs, out=path, overwrite=self.overwrite, random_state=self.seed,
            columns=table.columns,
        )  # fmt: skip
        count, wanted = len(comparison.todo), self.splits * len(comparison.methods)
        if count < wanted:
            self.note(f"{wanted - count} of {wanted} results are in {path} already.")
        started = time.monotonic()

        def progress(row: dict[str, Any]) -> None:
            self.note(
                f"[{count - len(comparison.todo)}/{count}, {time.monotonic() - started:.0f} s] split "
                f"{row['split'] + 1}, {row['method']}: "
                + (f"failed: {row['error']}" if row["error"] else cli.number(row["value"]))
            )
            check()

        with cli.stoppable(f"the results so far are in {path}") as check:
            comparison.run(jobs=self.jobs, backend=self.backend, progress=progress)
        self._show(comparison, len(table.y), path)

    def _show(self, comparison: metricfit.comparison.Comparison, rows: int, path: Path) -> None:
        board, metric = comparison.leaderboard(), comparison.metric
        if not board:
            raise cli.CommandError(f"no method could be fitted; the reasons are in {path}.")
        reference = comparison.methods[0] if any(r["method"] == comparison.methods[0] for r in board) else ""
        least, most = getattr(metric, "objective", metric).range
        cells = [
            [r["method"], r["mean"], (max(r["low"], least), min(r["high"], most)), f"{r['difference']:+.4f}",
             (r["difference_low"], r["difference_high"]), f"{r['seconds']:.1f}"] for r in board
        ]  # fmt: skip
        heads = ["method", str(metric), "95 % interval", f"difference to {reference or 'the first'}", "95 % interval",
                 "seconds"]  # fmt: skip
        self.table(f"{rows:,} rows, {comparison.splits} random splits, best first", heads, cells)
        best = board[0]
        ahead = ""
        if reference and best["method"] != reference:
            sure = best["difference_low"] > 0 or best["difference_high"] < 0
            doubt = "" if sure else "; the difference is within the noise"
            ahead = f", {abs(best['difference']):.4f} ahead of {reference}{doubt}"
        self.line(f"{best['method']} came first{ahead}.\nResults: {path}")
        self.result({"metric": str(metric), "rows": rows, "splits": comparison.splits, "leaderboard": board,
                     "results": str(path)})  # fmt: skip
