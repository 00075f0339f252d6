"""``metricfit importance``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import metricfit
from metricfit.cli import command as cli


class Importance(cli.Labels):
    """Show which columns the decisions depend on: the drop of the metric when a column is shuffled.

    Use rows that the model was not trained on. An interval that holds 0 means: no dependence can be seen on these rows.

    Example: metricfit importance model test.csv
    """

    model: Path = cli.a_model()
    data: str = cli.a_table()
    metric: str | None = cli.option("What is measured.", "M", shown="the model's metric")
    repeats: int = cli.option("How often each column is shuffled.", "N", default=5, min=1)
    seed: int = cli.a_seed()

    def run(self) -> None:
        classifier, table, judged = self.opened(self.model, self.data, self.metric)
        found = metricfit.assess.permutation_importance(
            classifier, table.X, table.y, metric=judged, sample_weight=table.weight, repeats=self.repeats,
            random_state=self.seed,
        )  # fmt: skip
        rows: list[Any] = found.to_dict(orient="records")
        cells = [[row["column"], f"{row['drop']:+.4f}", (row["low"], row["high"])] for row in rows]
        title = f"Drop of {judged} when a column is shuffled, {len(table.y):,} rows of {self.data}"
        self.table(title, ["column", "drop", "95 % interval"], cells)
        self.result({"metric": str(judged), "rows": len(table.y), "columns": rows})
