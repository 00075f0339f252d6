"""``metricfit segments``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metricfit.cli import options as opt
from metricfit.cli.command import interval, number, option, wrong_use


@dataclass(kw_only=True)
class Segments(opt.Labels):
    """Show where a model is worse: rows that share a value of a column, beside all other rows; and its worst errors.

    Use rows that the model was not trained on. p is corrected for the number of segments that were looked at.

    Example: metricfit segments model test.csv
    """

    model: Path = opt.a_model()
    data: str = opt.a_table()
    metric: str | None = option("What is measured.", "M", shown="the model's metric")
    fewest: int = option("Rows that make a segment.", "N", default=30, min=2)
    errors: int = option("How many of the worst errors to show.", "N", default=5, min=0)
    seed: int = opt.a_seed()

    def run(self) -> None:
        asked = None if self.metric is None else opt.checked_metric(self.metric)
        from metricfit.assess import scores_of, segments, worst_errors
        from metricfit.store import open_model

        loaded = open_model(self.model)
        table, classifier = self.rows(loaded, self.data), loaded.classifier
        judged = classifier.metric_ if asked is None else opt.resolved(asked, classifier)
        rows = scores_of(classifier, table.X, table.y, table.weight).judged(tuple(classifier.classes_.tolist()))
        with wrong_use():
            found = segments(judged, rows, table.X, fewest=self.fewest, random_state=self.seed)
        parts: list[Any] = found.to_dict(orient="records")
        cells = [
            [part["column"], part["value"], f"{part['rows']:,}", number(part["metric"]),
             interval(part["low"], part["high"]), number(part["rest"]), f"{part['p']:.3f}", "worse" * part["worse"]]
            for part in parts[:10]
        ]  # fmt: skip
        heads = ["column", "value", "rows", "metric", "95 % interval", "other rows", "p", ""]
        self.table(f"{judged} by segment, {len(table.y):,} rows of {self.data}", heads, cells, left=2)
        self.line(f"Worse than the other rows, beyond chance: {found['worse'].sum()} of {len(parts)} segments.")
        errors: list[Any] = worst_errors(rows, table.X, most=self.errors).reset_index(names="row").to_dict("records")
        self.line("\nWrong decisions whose truth was thought least probable (row 1 is the first below the header):")
        for error in errors:
            error["row"] += 1
            row, true, decided, p, *values = error.values()
            shown = ", ".join(f"{name}={value}" for name, value in zip(table.X, values, strict=True))
            self.line(f"  row {row}: {true}, decided {decided}, p = {p:.3f}: {shown}")
        self.result({"metric": str(judged), "rows": len(table.y), "segments": parts, "errors": errors})
