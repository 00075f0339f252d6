"""``metricfit tune``."""

from __future__ import annotations

from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from metricfit.cli import options as opt
from metricfit.cli.output import Output, UsageError, interval, number, wrong_use

if TYPE_CHECKING:
    from metricfit.data import LabelledTable
    from metricfit.decisions import DecisionRule
    from metricfit.metrics import Metric
    from metricfit.store.model import SavedModel


def command(
    model: opt.Model,
    labels: opt.Labels,
    output: Output,
    data: Annotated[
        str | None, opt.argument("DATA", "Labelled rows, as CSV, CSV.gz or Parquet; - for standard input.")
    ] = None,
    metric: Annotated[
        str | None,
        opt.option("What to decide for, e.g. mcc or 'precision\\[yes] subject to recall\\[yes] >= 0.9'.", "M"),
    ] = None,
    threshold: Annotated[
        float | None, opt.option("Take this threshold of the second class instead, without DATA.", "P")
    ] = None,
    rule: Annotated[
        str | None, opt.option("Take this rule instead, without DATA: JSON text, or a file with it.", "JSON")
    ] = None,
    out: Annotated[Path | None, opt.option("Write the changed model here.", "DIR", default="MODEL itself")] = None,
    confidence: Annotated[
        float | None, opt.option("Meet the constraints on new data with this probability.", "P", min=0.0, max=1.0)
    ] = None,
    overwrite: opt.Overwrite = False,
) -> None:
    """Choose a new decision rule for another metric or constraint, without training again.

    Use rows that the model was not trained on. The network stays as it is; only the step from probabilities to
    labels changes.

    With --threshold or --rule the model gets a rule that was chosen elsewhere, such as in the report's explorer.

    Example: metricfit tune model holdout.csv --metric "precision[yes] subject to recall[yes] >= 0.9"
    """
    from metricfit import save
    from metricfit.choices import Choice
    from metricfit.store import open_model

    if out is not None:
        opt.check_free(out, overwrite)
    result: dict[str, Any] = {}
    if threshold is not None and not 0 <= threshold <= 1:
        raise UsageError(f"--threshold: expected a probability from 0 to 1, got {threshold:g}.")
    if rule is not None or threshold is not None:
        for option, value in (("DATA", data), ("--metric", metric), ("--confidence", confidence),
                              ("--target", labels.target), ("--weight", labels.weight)):  # fmt: skip
            if value is not None:
                raise UsageError(f"{option}: has no effect with a rule that is given.")
        loaded = open_model(model)
        loaded.change_rule(_given_rule(loaded, rule, threshold), Choice("rule", "the decision rule was given by hand"))
    elif data is None or metric is None:
        raise UsageError("give DATA and --metric to choose a rule, or the rule itself with --threshold or --rule.")
    else:
        asked, loaded = opt.checked_metric(metric), open_model(model)
        result = _tune(loaded, labels.rows(loaded, data), asked, confidence, output)
    chosen = loaded.classifier.decision_rule_
    folder = save(loaded.classifier, out or model, overwrite=out is None or overwrite, notes=loaded.notes,
                  files=loaded.files)  # fmt: skip
    output.line(f"Rule:  {chosen.in_words()}\nModel: {folder}")
    output.result({**result, "rule": loads(chosen.to_json()), "model": str(folder)})


def _tune(
    loaded: SavedModel, table: LabelledTable, asked: Metric, confidence: float | None, output: Output
) -> dict[str, Any]:
    """Choose the rule on the rows, and show what it changes there."""
    from metricfit.assess import Decided, estimate, scores_of
    from metricfit.choices import Choice
    from metricfit.decisions import best_rule
    from metricfit.metrics import Constrained

    classifier, count = loaded.classifier, f"{len(table.y):,}"
    labels = tuple(classifier.classes_.tolist())
    metric = opt.resolved(asked, classifier)
    if metric.judges_scores:
        raise UsageError(f"--metric: {metric} judges the order of scores; no decision rule changes it.")
    output.choices(table.choices)
    before = scores_of(classifier, table.X, table.y, table.weight)
    best = best_rule(
        table.y, classifier.predict_raw_proba(table.X), metric, labels=labels, sample_weight=table.weight,
        confidence=confidence,
    )  # fmt: skip
    loaded.change_rule(
        best.rule, Choice("rule", f"the decision rule was tuned for {metric} on {count} rows"), metric=metric
    )
    both = [Decided(s.truth, s.decided, labels, s.proba, s.weight) for s in (before, before.with_rule(best.rule))]
    parts = [metric.objective, *(c.metric for c in metric.constraints)] if isinstance(metric, Constrained) else [metric]
    shown = [(str(part), estimate(part, both[0]), estimate(part, both[1])) for part in parts]
    cells = [[name, number(was.value), number(now.value), interval(now.low, now.high)] for name, was, now in shown]
    output.table(f"On the {count} rows it was chosen on", ["metric", "before", "after", "95 % interval"], cells)
    rows = [{"metric": name, "before": was.value, "after": now.value} for name, was, now in shown]
    return {"metric": str(metric), "rows": rows}


def _given_rule(loaded: SavedModel, text: str | None, threshold: float | None) -> DecisionRule:
    """The rule of --threshold or --rule, checked against the model."""
    from metricfit.decisions import DecisionRule

    classes, task = tuple(loaded.classifier.classes_.tolist()), loaded.classifier.task_
    if text is None:
        if task != "binary":
            raise UsageError(f"--threshold: decides between two classes; the model has {len(classes)}. Use --rule.")
        return DecisionRule.at_threshold(threshold or 0.0, classes)
    if threshold is not None:
        raise UsageError("--threshold: is a rule already; give --rule or --threshold.")
    if not text.lstrip().startswith("{") and Path(text).is_file():
        text = Path(text).read_text(encoding="utf-8")
    with wrong_use():
        found = DecisionRule.from_json(text)
    if found.classes != classes:
        raise UsageError(f"--rule: its classes are {list(found.classes)[:5]}, the model's {list(classes)[:5]}.")
    if (found.kind == "thresholds") is not (task == "multilabel"):
        raise UsageError(f"--rule: a rule of kind {found.kind!r} does not fit this model.")
    return found
