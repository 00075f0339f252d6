"""``metricfit evaluate``."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import metricfit
from metricfit.cli import command as cli

_USUAL = ("accuracy", "balanced_accuracy", "mcc", "precision", "recall", "f1", "auroc")
_OF_CLASSES = ("precision", "recall", "f1")
_SHOWN = 12  # classes of which the matrix still fits a terminal


class Evaluate(cli.Labels):
    """Measure a model on labelled rows: metrics with 95 % intervals, the classes, the confusion matrix.

    Example: metricfit evaluate model test.csv --metric mcc "recall[yes]"
    """

    model: Path = cli.a_model()
    data: str = cli.a_table()
    metric: list[str] | None = cli.option("These metrics; all for every one.", "M…", shown="the usual ones")
    seed: int = cli.a_seed()

    def run(self) -> None:
        wanted = [cli.checked_metric(spec) for spec in self.metric or [] if spec != "all"]
        loaded = metricfit.store.open_model(self.model)
        table, classifier = self.rows(loaded, self.data, wanted), loaded.classifier
        rows = cli.scored(classifier, table).judged(tuple(classifier.classes_.tolist()))
        judged = [cli.resolved(each, classifier) for each in wanted]
        if not wanted:
            judged = [classifier.metric_, *_metrics(classifier, every="all" in (self.metric or []))]
        found = {str(each): metricfit.assess.estimate(each, rows, seed=self.seed) for each in judged}
        limits = [c for each in judged if isinstance(each, metricfit.metrics.Constrained) for c in each.constraints]
        found |= {c.what + c.where: metricfit.assess.intervals.reached(c, rows, seed=self.seed) for c in limits}
        cells = [[name, m.value, (m.low, m.high)] for name, m in found.items()]
        self.table(f"{len(table.y):,} rows of {self.data}", ["metric", "value", "95 % interval"], cells)
        self.result({
            "rows": len(table.y), "metrics": {name: asdict(m) for name, m in found.items()},
            "classes": {} if wanted else self._by_class(rows),
            "confusion_matrix": None if rows.task == "multilabel" else rows.confusion.matrix.tolist(),
        })  # fmt: skip

    def _by_class(self, rows: metricfit.assess.Decided) -> dict[str, dict[str, Any]]:
        """Write what each class reaches, and the confusion matrix if it is not too large."""
        what = "label" if rows.task == "multilabel" else "class"
        chosen = (*_OF_CLASSES, "mcc") if what == "label" else _OF_CLASSES
        each = {name: metricfit.metrics.get(f"{name}:average=none") for name in chosen}
        found = {n: metricfit.assess.estimate_classes(metric, rows, seed=self.seed) for n, metric in each.items()}
        counts, names = rows.confusion, rows.labels
        values = ([m.value for m in each] for each in found.values())
        of_class = zip(names, *values, map(_count, counts.support), map(_count, counts.predicted), strict=True)
        self.line("")
        self.table(f"By {what}", [what, *chosen, "rows", "called so"], list(of_class))
        if what == "class" and len(names) <= _SHOWN:
            cells = [[name, *map(_count, counts.matrix[k])] for k, name in enumerate(names)]
            self.line("")
            self.table("Confusion matrix: true classes down, decisions across", ["", *map(str, names)], cells)
        return {n: {str(c): asdict(m) for c, m in zip(names, of, strict=True)} for n, of in found.items()}


def _count(value: Any) -> str:
    return f"{int(value):,}" if float(value).is_integer() else f"{float(value):,.6g}"


def _metrics(classifier: Any, *, every: bool) -> list[metricfit.metrics.Metric]:
    """The usual metrics, or all that need no parameter of their own; of two classes the positive one's."""
    found = []
    for name in metricfit.metrics.available() if every else _USUAL:
        with suppress(TypeError, cli.UsageError):  # a cost matrix and a mean over thresholds have no default
            found.append(cli.resolved(metricfit.metrics.get(name), classifier))
    return found
