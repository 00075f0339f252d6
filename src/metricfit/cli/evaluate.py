"""``metricfit evaluate``."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

from metricfit.cli import options as opt
from metricfit.cli.output import Output, interval, number

if TYPE_CHECKING:
    from metricfit.assess import Decided, Estimate
    from metricfit.metrics import Metric

__all__ = ["command"]


def command(
    model: opt.Model,
    data: opt.Data,
    labels: opt.Labels,
    output: Output,
    metric: Annotated[list[str] | None, opt.option("Only these metrics.", "M…", default="all of them")] = None,
    seed: opt.Seed = 0,
) -> None:
    """Measure a model on labelled rows: every metric, also of each class, with 95 % intervals.

    Example: metricfit evaluate model test.csv --metric mcc "recall[yes]"
    """
    from metricfit.assess import Decided, estimate, scores_of
    from metricfit.assess.intervals import counted
    from metricfit.metrics import Constrained
    from metricfit.store import open_model

    wanted = [opt.checked_metric(spec) for spec in metric or []]
    loaded = open_model(model)
    table = labels.rows(loaded, data)
    output.choices(table.choices)
    scores = scores_of(loaded.classifier, table.X, table.y, table.weight)
    names = tuple(loaded.classifier.classes_.tolist())
    rows = Decided(scores.truth, scores.decided, names, scores.proba, scores.weight)
    overall = [opt.resolved(each, list(names), rows.task)[0] for each in wanted]
    if not wanted:
        overall = [loaded.classifier.metric_, *_registry(rows)]
    constraints = [c.metric for each in overall if isinstance(each, Constrained) for c in each.constraints]
    found = {str(each): estimate(each, rows, seed=seed) for each in [*overall, *constraints]}
    classes = {} if wanted else _by_class(overall, rows, seed)
    output.table(
        f"{len(table.y):,} rows of {data}",
        ["metric", "value", "95 % interval"],
        [[name, number(m.value), interval(m.low, m.high)] for name, m in found.items()],
    )
    if classes:
        what = "label" if rows.task == "multilabel" else "class"
        counts = counted(rows.truth, rows.decided, names).support.tolist()
        cells = [
            [label, name, number(values[label].value), interval(values[label].low, values[label].high), f"{count:,.0f}"]
            for label, count in zip(map(str, names), counts, strict=True)
            for name, values in classes.items()
        ]
        output.line("")
        output.table(f"By {what}", [what, "metric", "value", "95 % interval", "rows"], cells, left=2)
    output.result({
        "rows": len(table.y),
        "metrics": {name: asdict(m) for name, m in found.items()},
        "classes": {name: {c: asdict(m) for c, m in values.items()} for name, values in classes.items()},
    })  # fmt: skip


def _registry(rows: Decided) -> list[Metric]:
    """Every metric that needs no parameter of its own."""
    from metricfit import metrics

    found = []
    for name in metrics.available():
        try:
            found.append(metrics.resolve(name, rows.labels, rows.task)[0])
        except (ValueError, TypeError):
            # A cost matrix and a mean over thresholds have no default.
            continue
    return found


def _by_class(overall: list[Metric], rows: Decided, seed: int) -> dict[str, dict[str, Estimate]]:
    """Of each metric that has one, the value of each class."""
    from metricfit.assess import estimate_classes
    from metricfit.metrics import ClassMetric

    found: dict[str, dict[str, Estimate]] = {}
    for metric in overall:
        if isinstance(metric, ClassMetric) and not metric.judges_scores and metric.name not in found:
            try:
                values = estimate_classes(replace(metric, average="none", label=None), rows, seed=seed)
            except (ValueError, TypeError, IndexError):
                continue  # one that takes no average
            found[metric.name] = dict(zip(map(str, rows.labels), values, strict=True))
    return found
