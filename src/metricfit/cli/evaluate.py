"""``metricfit evaluate``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from metricfit.cli import options as opt
from metricfit.cli.output import Output, UsageError, interval, number

if TYPE_CHECKING:
    from metricfit.metrics import Metric

_USUAL = ("accuracy", "balanced_accuracy", "mcc", "precision", "recall", "f1", "auroc")
_OF_CLASSES = ("precision", "recall", "f1")
_SHOWN = 12
"""Classes of which the matrix still fits a terminal."""


def command(
    model: opt.Model,
    data: opt.Data,
    labels: opt.Labels,
    output: Output,
    metric: Annotated[
        list[str] | None, opt.option("These metrics; all for every one.", "M…", default="the usual ones")
    ] = None,
    seed: opt.Seed = 0,
) -> None:
    """Measure a model on labelled rows: metrics with 95 % intervals, the classes, the confusion matrix.

    Example: metricfit evaluate model test.csv --metric mcc "recall[yes]"
    """
    from metricfit.assess import Decided, estimate, estimate_classes, scores_of
    from metricfit.metrics import Constrained, get
    from metricfit.store import open_model

    wanted = [opt.checked_metric(spec) for spec in metric or [] if spec != "all"]
    loaded = open_model(model)
    table = labels.rows(loaded, data)
    output.choices(table.choices)
    classifier = loaded.classifier
    scores, names = scores_of(classifier, table.X, table.y, table.weight), tuple(classifier.classes_.tolist())
    rows = Decided(scores.truth, scores.decided, names, scores.proba, scores.weight)
    judged = [opt.resolved(each, classifier) for each in wanted]
    if not wanted:
        judged = [classifier.metric_, *_metrics(classifier, every="all" in (metric or []))]
    limits = [c.metric for each in judged if isinstance(each, Constrained) for c in each.constraints]
    found = {str(each): estimate(each, rows, seed=seed) for each in [*judged, *limits]}
    output.table(
        f"{len(table.y):,} rows of {data}",
        ["metric", "value", "95 % interval"],
        [[name, number(m.value), interval(m.low, m.high)] for name, m in found.items()],
    )
    classes: dict[str, dict[str, Any]] = {}
    if not wanted:
        chosen = (*_OF_CLASSES, "mcc") if rows.task == "multilabel" else _OF_CLASSES
        each = {n: estimate_classes(get(f"{n}:average=none"), rows, seed=seed) for n in chosen}
        classes = {n: {str(c): asdict(m) for c, m in zip(names, of, strict=True)} for n, of in each.items()}
        counts, what = rows.confusion, "label" if rows.task == "multilabel" else "class"
        of_class = [
            [
                name,
                *(number(of[k].value) for of in each.values()),
                _count(counts.support[k]),
                _count(counts.predicted[k]),
            ]
            for k, name in enumerate(names)
        ]
        output.line("")
        output.table(f"By {what}", [what, *chosen, "rows", "called so"], of_class)
        if what == "class" and len(names) <= _SHOWN:
            cells = [[name, *map(_count, counts.matrix[k])] for k, name in enumerate(names)]
            output.line("")
            output.table("Confusion matrix: true classes down, decisions across", ["", *map(str, names)], cells)
    output.result({
        "rows": len(table.y), "metrics": {name: asdict(m) for name, m in found.items()}, "classes": classes,
        "confusion_matrix": None if rows.task == "multilabel" else rows.confusion.matrix.tolist(),
    })  # fmt: skip


def _count(value: Any) -> str:
    return f"{float(value):,.6g}"


def _metrics(classifier: Any, *, every: bool) -> list[Metric]:
    """The usual metrics, or all that need no parameter of their own; of two classes the positive one's."""
    from metricfit import metrics

    found = []
    for name in metrics.available() if every else _USUAL:
        try:
            found.append(opt.resolved(metrics.get(name), classifier))
        except (TypeError, UsageError):
            continue  # a cost matrix and a mean over thresholds have no default
    return found
