"""``metricfit importance``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metricfit.cli import options as opt
from metricfit.cli.command import interval, option


@dataclass(kw_only=True)
class Importance(opt.Looking):
    """Show which columns the decisions depend on: the drop of the metric when a column is shuffled.

    Use rows that the model was not trained on. An interval that holds 0 means: no dependence can be seen on these rows.

    Example: metricfit importance model test.csv
    """

    model: Path = opt.a_model()
    data: str = opt.a_table()
    repeats: int = option("How often each column is shuffled.", "N", default=5, min=1)

    def run(self) -> None:
        classifier, table, judged = self.looked_at(self.model, self.data)
        from metricfit.assess import permutation_importance

        given: dict[str, Any] = {"sample_weight": table.weight, "repeats": self.repeats, "random_state": self.seed}
        found = permutation_importance(classifier, table.X, table.y, metric=judged, **given)
        rows: list[Any] = found.to_dict(orient="records")
        cells = [[row["column"], f"{row['drop']:+.4f}", interval(row["low"], row["high"])] for row in rows]
        title = f"Drop of {judged} when a column is shuffled, {len(table.y):,} rows of {self.data}"
        self.table(title, ["column", "drop", "95 % interval"], cells)
        self.result({"metric": str(judged), "rows": len(table.y), "columns": rows})
