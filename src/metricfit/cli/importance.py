"""``metricfit importance``."""

from __future__ import annotations

from typing import Annotated, Any

from metricfit.cli import options as opt
from metricfit.cli.output import Output, interval


def command(
    model: opt.Model,
    data: opt.Data,
    labels: opt.Labels,
    output: Output,
    metric: Annotated[str | None, opt.option("What is measured.", "M", default="the model's metric")] = None,
    repeats: Annotated[int, opt.option("How often each column is shuffled.", "N", default=True, min=1)] = 5,
    seed: opt.Seed = 0,
) -> None:
    """Show which columns the decisions depend on: the drop of the metric when a column is shuffled.

    Use rows that the model was not trained on. An interval that holds 0 means: no dependence can be seen on these rows.

    Example: metricfit importance model test.csv
    """
    asked = None if metric is None else opt.checked_metric(metric)
    from metricfit.assess import permutation_importance
    from metricfit.store import open_model

    loaded = open_model(model)
    table = labels.rows(loaded, data)
    output.choices(table.choices)
    judged = loaded.classifier.metric_ if asked is None else opt.resolved(asked, loaded.classifier)
    found = permutation_importance(
        loaded.classifier, table.X, table.y, metric=judged, sample_weight=table.weight, repeats=repeats,
        random_state=seed,
    )  # fmt: skip
    rows: list[Any] = found.to_dict(orient="records")
    cells = [[row["column"], f"{row['drop']:+.4f}", interval(row["low"], row["high"])] for row in rows]
    title = f"Drop of {judged} when a column is shuffled, {len(table.y):,} rows of {data}"
    output.table(title, ["column", "drop", "95 % interval"], cells)
    output.result({"metric": str(judged), "rows": len(table.y), "columns": rows})
