"""The run behind ``metricfit evaluate``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from metricfit import metrics
from metricfit.assess import Decided, Estimate, estimate, estimate_classes, scores_of
from metricfit.cli.errors import UsageError
from metricfit.cli.metric_option import checked_metric
from metricfit.cli.models import LoadedModel, load_model
from metricfit.cli.output import Output, interval, number
from metricfit.data import LabelledTable, Roles, open_table, read_labelled_like
from metricfit.inputs import Task
from metricfit.metrics import ClassMetric, Constrained, Metric

__all__ = ["judge", "labelled_rows", "resolved", "run"]


def run(
    model: Path,
    data: str,
    *,
    specs: list[str],
    target: list[str] | None,
    weight: str | None,
    seed: int,
    separator: str | None,
    encoding: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Evaluate with the options of the command."""
    output = Output(as_json, quiet)
    wanted = [checked_metric(spec) for spec in specs]
    loaded = load_model(model)
    table = labelled_rows(loaded, data, target, weight, separator, encoding)
    output.choices(table.choices)
    judged = judge(loaded, table)
    labels = judged.labels
    if wanted:
        overall = [resolved(metric, labels, judged.task) for metric in wanted]
    else:
        overall = [loaded.classifier.metric_, *_registry(labels, judged.task)]
    found = {str(metric): estimate(metric, judged, seed=seed) for metric in overall}
    for metric in overall:
        if isinstance(metric, Constrained):
            found |= {str(c.metric): estimate(c.metric, judged, seed=seed) for c in metric.constraints}
    classes: dict[str, dict[str, Estimate]] = {}
    for metric in overall if not wanted else []:
        if isinstance(metric, ClassMetric) and not metric.judges_scores and metric.name not in classes:
            values = _of_each_class(metric, judged, seed)
            if values:
                classes[metric.name] = dict(zip(map(str, labels), values, strict=True))
    output.table(
        f"{len(table.y):,} rows of {data}",
        ["metric", "value", "95 % interval"],
        [[name, number(m.value), interval(m.low, m.high)] for name, m in found.items()],
    )
    if classes:
        counts = (
            judged.truth.sum(axis=0)
            if judged.task == "multilabel"
            else np.bincount(judged.truth, minlength=len(labels))
        )
        support = dict(zip(map(str, labels), map(int, counts), strict=True))
        rows = [
            [
                label,
                name,
                number(values[label].value),
                interval(values[label].low, values[label].high),
                f"{support[label]:,}",
            ]
            for label in support
            for name, values in classes.items()
        ]
        output.line("")
        what = "label" if judged.task == "multilabel" else "class"
        output.table(f"By {what}", [what, "metric", "value", "95 % interval", "rows"], rows, left=2)
    output.result(
        {
            "rows": len(table.y),
            "metrics": {name: vars(m) for name, m in found.items()},
            "classes": {name: {c: vars(m) for c, m in values.items()} for name, values in classes.items()},
        }
    )


def labelled_rows(
    loaded: LoadedModel,
    data: str,
    target: list[str] | None,
    weight: str | None,
    separator: str | None,
    encoding: str | None,
) -> LabelledTable:
    """The rows of a file that have a label, read as the model's training rows were."""
    file = open_table(data, separator=separator, encoding=encoding)
    names = loaded.target(target, file.columns)
    if weight is not None:
        file.check_columns([weight], "weight")
    roles = Roles(target=names, weight=weight, missing=list(loaded.gaps))
    table = read_labelled_like(file, roles, loaded.formats, loaded.classifier.classes_)
    table.choices[:0] = file.choices
    return table


def judge(loaded: LoadedModel, table: LabelledTable) -> Decided:
    """The model's predictions beside the truth."""
    scores = scores_of(loaded.classifier, table.X, table.y, table.weight)
    labels = tuple(loaded.classifier.classes_.tolist())
    return Decided(scores.truth, scores.decided, labels, scores.proba, scores.weight)


def resolved(metric: Metric, labels: tuple[Any, ...], task: Task) -> Metric:
    """The metric with its class or average written out."""
    try:
        return metrics.resolve(metric, labels, task)[0]
    except (ValueError, KeyError) as error:
        raise UsageError(f"--metric: {str(error).removeprefix('metric: ')}") from None


def _registry(labels: tuple[Any, ...], task: Task) -> list[Metric]:
    """Every metric that needs no parameter of its own."""
    found = []
    for name in metrics.available():
        try:
            found.append(metrics.resolve(name, labels, task)[0])
        except (ValueError, TypeError):
            # A cost matrix and a mean over thresholds have no default.
            continue
    return found


def _of_each_class(metric: ClassMetric, judged: Decided, seed: int) -> list[Estimate] | None:
    try:
        each = replace(metric, average="none", label=None)
        return estimate_classes(each, judged, seed=seed)
    except (ValueError, TypeError, IndexError):
        return None
