"""The ``--metric`` option: a metric that exists, with its class or average written out."""

from __future__ import annotations

import numpy as np

from metricfit import metrics
from metricfit.cli.errors import UsageError
from metricfit.cli.prepare import Prepared, positive_class
from metricfit.metrics import Metric
from metricfit.training.metric_choice import resolve_metric

__all__ = ["checked_metric", "explicit_metric"]


def checked_metric(spec: str) -> Metric:
    """A metric, or a usage error."""
    try:
        return metrics.get(spec)
    except (ValueError, TypeError) as error:
        raise UsageError(f"--{error}") from None


def explicit_metric(spec: Metric, table: Prepared, positive: str | None) -> Metric:
    """The metric with its class or average written out, and the choice told."""
    classes = np.unique(table.y).tolist()
    wanted = positive_class(table.y, positive)
    if wanted is not None:
        classes = [label for label in classes if label != wanted] + [wanted]
    try:
        metric, why = resolve_metric(spec, tuple(classes), "binary" if len(classes) == 2 else "multiclass")
    except (ValueError, KeyError) as error:
        raise UsageError(f"--metric: {str(error).removeprefix('metric: ')}") from None
    if why and len(classes) == 2:
        reason = "as --positive says" if wanted is not None else "the second in sorted order"
        table.choices.append(f"metric {metric}: the positive class is {classes[1]!r}, {reason} (--positive)")
    elif why:
        table.choices.append(f"metric {metric}: the average over the {len(classes)} classes (--metric)")
    elif wanted is not None:
        table.choices.append(f"--positive changes nothing: {metric} names its class, or treats all classes alike")
    return metric
