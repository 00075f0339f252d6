"""``metricfit evaluate``."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metricfit.cli import command as cli

if TYPE_CHECKING:
    from metricfit.assess import Decided
    from metricfit.metrics import Metric

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
        from metricfit.assess import estimate, scores_of
        from metricfit.assess.intervals import reached
        from metricfit.metrics import Constrained
        from metricfit.store import open_model

        wanted = [cli.checked_metric(spec) for spec in self.metric or [] if spec != "all"]
        loaded = open_model(self.model)
        table, classifier = self.rows(loaded, self.data, wanted), loaded.classifier
        scores = scores_of(classifier, table.X, table.y, table.weight, columns=table.columns)
        rows = scores.judged(tuple(classifier.classes_.tolist()))
        judged = [cli.resolved(each, classifier) for each in wanted]
        if not wanted:
            judged = [classifier.metric_, *_metrics(classifier, every="all" in (self.metric or []))]
        found = {str(each): estimate(each, rows, seed=self.seed) for each in judged}
        limits = [c for each in judged if isinstance(each, Constrained) for c in each.constraints]
        found |= {c.what + c.where: reached(c, rows, seed=self.seed) for c in limits}
        cells = [[name, m.value, (m.low, m.high)] for name, m in found.items()]
        self.table(f"{len(table.y):,} rows of {self.data}", ["metric", "value", "95 % interval"], cells)
        self.result({
            "rows": len(table.y), "metrics": {name: asdict(m) for name, m in found.items()},
            "classes": {} if wanted else self._by_class(rows),
            "confusion_matrix": None if rows.task == "multilabel" else rows.confusion.matrix.tolist(),
        })  # fmt: skip

    def _by_class(self, rows: Decided) -> dict[str, dict[str, Any]]:
        """Write what each class reaches, and the confusion matrix if it is not too large."""
        from metricfit.assess import estimate_classes
        from metricfit.metrics import get

        what = "label" if rows.task == "multilabel" else "class"
        chosen = (*_OF_CLASSES, "mcc") if what == "label" else _OF_CLASSES
        found = {n: estimate_classes(get(f"{n}:average=none"), rows, seed=self.seed) for n in chosen}
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
    return f"{float(value):,.6g}"


def _metrics(classifier: Any, *, every: bool) -> list[Metric]:
    """The usual metrics, or all that need no parameter of their own; of two classes the positive one's."""
    from metricfit import metrics

    found = []
    for name in metrics.available() if every else _USUAL:
        with suppress(TypeError, cli.UsageError):  # a cost matrix and a mean over thresholds have no default
            found.append(cli.resolved(metrics.get(name), classifier))
    return found
