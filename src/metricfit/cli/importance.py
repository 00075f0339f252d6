"""``metricfit importance``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metricfit.cli import options as opt
from metricfit.cli.command import interval, option


@dataclass(kw_only=True)
class Importance(opt.Labels):
    """Show which columns the decisions depend on: the drop of the metric when a column is shuffled.

    Use rows that the model was not trained on. An interval that holds 0 means: no dependence can be seen on these rows.

    Example: metricfit importance model test.csv
    """

    model: Path = opt.a_model()
    data: str = opt.a_table()
    metric: str | None = option("What is measured.", "M", shown="the model's metric")
    repeats: int = option("How often each column is shuffled.", "N", default=5, min=1)
    seed: int = opt.a_seed()

    def run(self) -> None:
        asked = None if self.metric is None else opt.checked_metric(self.metric)
        from metricfit.assess import permutation_importance
        from metricfit.store import open_model

        loaded = open_model(self.model)
        table = self.rows(loaded, self.data)
        judged = loaded.classifier.metric_ if asked is None else opt.resolved(asked, loaded.classifier)
        found = permutation_importance(
            loaded.classifier, table.X, table.y, metric=judged, sample_weight=table.weight, repeats=self.repeats,
            random_state=self.seed,
        )  # fmt: skip
        rows: list[Any] = found.to_dict(orient="records")
        cells = [[row["column"], f"{row['drop']:+.4f}", interval(row["low"], row["high"])] for row in rows]
        title = f"Drop of {judged} when a column is shuffled, {len(table.y):,} rows of {self.data}"
        self.table(title, ["column", "drop", "95 % interval"], cells)
        self.result({"metric": str(judged), "rows": len(table.y), "columns": rows})
