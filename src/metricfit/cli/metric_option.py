"""The ``--metric`` option: a metric that exists, with its class or average written out."""

from __future__ import annotations

from metricfit import metrics
from metricfit.choices import Choice
from metricfit.cli.errors import UsageError
from metricfit.data import LabelledTable
from metricfit.data.targets import positive_class
from metricfit.metrics import Metric

__all__ = ["checked_metric", "explicit_metric"]


def checked_metric(spec: str) -> Metric:
    """A metric, or a usage error."""
    try:
        return metrics.get(spec)
    except (ValueError, TypeError) as error:
        raise UsageError(f"--{error}") from None


def explicit_metric(spec: Metric, table: LabelledTable, positive: str | None) -> Metric:
    """The metric with its class or average written out, and the choice told."""
    classes = table.classes.tolist()
    wanted = positive_class(table.task, classes, positive)
    if wanted is not None:
        classes = [label for label in classes if label != wanted] + [wanted]
    try:
        metric, why = metrics.resolve(spec, tuple(classes), table.task)
    except (ValueError, KeyError) as error:
        raise UsageError(f"--metric: {str(error).removeprefix('metric: ')}") from None
    if why and table.task == "binary":
        reason = "as --positive says" if wanted is not None else "the second in sorted order"
        meant = f"metric {metric}: the positive class is {classes[1]!r}, {reason}"
        table.choices.append(Choice("metric", meant, ("positive",)))
    elif why:
        what = "labels" if table.labels else "classes"
        meant = f"metric {metric}: the average over the {len(classes)} {what}"
        table.choices.append(Choice("metric", meant, ("metric",)))
    elif wanted is not None:
        meant = f"--positive changes nothing: {metric} names its class, or treats all classes alike"
        table.choices.append(Choice("metric", meant))
    return metric
