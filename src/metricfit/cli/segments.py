"""``metricfit segments``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import metricfit
from metricfit.cli import command as cli


class Segments(cli.Labels):
    """Show where a model is worse: rows that share a value of a column, beside all other rows; and its worst errors.

    Use rows that the model was not trained on. p is corrected for the number of segments that were looked at.

    Example: metricfit segments model test.csv
    """

    model: Path = cli.a_model()
    data: str = cli.a_table()
    metric: str | None = cli.option("What is measured.", "M", shown="the model's metric")
    errors: int = cli.option("How many of the worst errors to show.", "N", default=5, min=0)
    seed: int = cli.a_seed()

    def run(self) -> None:
        classifier, table, judged = self.opened(self.model, self.data, self.metric)
        rows = cli.scored(classifier, table).judged(tuple(classifier.classes_.tolist()))
        with cli.wrong_use():
            found = metricfit.assess.segments(judged, rows, table.X, random_state=self.seed)
        parts: list[Any] = found.to_dict(orient="records")
        cells = [
            [p["column"], p["value"], f"{p['rows']:,}", p["metric"], (p["low"], p["high"]), p["rest"], f"{p['p']:.3f}",
             "worse" * p["worse"]] for p in parts[:10]
        ]  # fmt: skip
        heads = ["column", "value", "rows", "metric", "95 % interval", "other rows", "p", ""]
        self.table(f"{judged} by segment, {len(table.y):,} rows of {self.data}", heads, cells, left=2)
        self.line(f"Worse than the other rows, beyond chance: {found['worse'].sum()} of {len(parts)} segments.")
        worst = metricfit.assess.worst_errors(rows, table.X, most=self.errors)
        errors: list[Any] = worst.reset_index(names="row").to_dict("records")
        self.line("\nWrong decisions whose truth was thought least probable (row 1 is the first below the header):")
        for error in errors:
            error["row"] += 1
            row, true, decided, p, *values = error.values()
            shown = ", ".join(f"{name}={value}" for name, value in zip(table.X, values, strict=True))
            self.line(f"  row {row}: {true}, decided {decided}, p = {p:.3f}: {shown}")
        self.result({"metric": str(judged), "rows": len(table.y), "segments": parts, "errors": errors})
