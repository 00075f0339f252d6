"""``metricfit tune``."""

from __future__ import annotations

from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metricfit.cli import options as opt
from metricfit.cli.output import Output, UsageError, in_words, interval, number, wrong_use

if TYPE_CHECKING:
    from metricfit.data import LabelledTable
    from metricfit.decisions import DecisionRule
    from metricfit.metrics import Metric
    from metricfit.store.model import SavedModel

__all__ = ["command"]


def command(
    model: opt.Model,
    data: Annotated[
        str | None,
        typer.Argument(metavar="DATA", help="Labelled rows, as CSV, CSV.gz or Parquet; - for standard input.",
                       show_default=False),
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
    target: opt.TrueLabels = None,
    weight: opt.Weight = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the model folder of --out.")] = False,
    separator: opt.Separator = None,
    encoding: opt.Encoding = None,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
    debug: opt.Debug = False,
) -> None:  # fmt: skip
    """Choose a new decision rule for another metric or constraint, without training again.

    Use rows that the model was not trained on. The network stays as it is; only the step from probabilities to
    labels changes.

    With --threshold or --rule the model gets a rule that was chosen elsewhere, such as in the report's explorer.

    Example: metricfit tune model holdout.csv --metric "precision[yes] subject to recall[yes] >= 0.9"
    """
    from metricfit import save
    from metricfit.choices import Choice
    from metricfit.data import open_table
    from metricfit.store import open_model
    from metricfit.training.explanation import rule_in_words

    output = Output(json, quiet)
    if out is not None:
        opt.check_free(out, overwrite)
    result: dict[str, Any] = {}
    if rule is not None or threshold is not None:
        for option, value in (("DATA", data), ("--metric", metric), ("--confidence", confidence), ("--target", target),
                              ("--weight", weight)):  # fmt: skip
            if value is not None:
                raise UsageError(f"{option}: has no effect with a rule that is given.")
        loaded = open_model(model)
        loaded.change_rule(_given_rule(loaded, rule, threshold), Choice("rule", "the decision rule was given by hand"))
    elif data is None or metric is None:
        raise UsageError("give DATA and --metric to choose a rule, or the rule itself with --threshold or --rule.")
    else:
        asked = opt.checked_metric(metric)
        loaded = open_model(model)
        file = open_table(data, separator=separator, encoding=encoding)
        table = loaded.labelled_rows(file, target=opt.columns_of(target, file.columns), weight=weight)
        result = _tune(loaded, table, asked, confidence, output)
    chosen = loaded.classifier.decision_rule_
    folder = save(loaded.classifier, out or model, overwrite=out is None or overwrite, notes=loaded.notes,
                  files=loaded.files)  # fmt: skip
    output.line(f"Rule:  {rule_in_words(chosen)}")
    output.line(f"Model: {folder}")
    output.result({**result, "rule": loads(chosen.to_json()), "model": str(folder)})


def _tune(
    loaded: SavedModel, table: LabelledTable, asked: Metric, confidence: float | None, output: Output
) -> dict[str, Any]:
    """Choose the rule on the rows, and show what it changes there."""
    from metricfit.assess import Decided, estimate, scores_of
    from metricfit.choices import Choice
    from metricfit.decisions import best_rule
    from metricfit.metrics import Constrained

    classifier = loaded.classifier
    labels = tuple(classifier.classes_.tolist())
    metric = opt.resolved(asked, list(labels), classifier.task_)[0]
    if metric.judges_scores:
        raise UsageError(f"--metric: {metric} judges the order of scores; no decision rule changes it.")
    output.choices(in_words(table.choices))
    before = scores_of(classifier, table.X, table.y, table.weight)
    best = best_rule(
        table.y, classifier.predict_raw_proba(table.X), metric, labels=labels, sample_weight=table.weight,
        confidence=confidence,
    )  # fmt: skip
    how = f"the decision rule was tuned for {metric} on {len(table.y):,} rows"
    loaded.change_rule(best.rule, Choice("rule", how), metric=metric)
    shown = []
    parts = [metric.objective, *(c.metric for c in metric.constraints)] if isinstance(metric, Constrained) else [metric]
    for part in parts:
        was, now = (
            estimate(part, Decided(s.truth, s.decided, labels, s.proba, s.weight))
            for s in (before, before.with_rule(best.rule))
        )
        shown.append((str(part), was, now))
    cells = [[name, number(was.value), number(now.value), interval(now.low, now.high)] for name, was, now in shown]
    output.table(
        f"On the {len(table.y):,} rows it was chosen on", ["metric", "before", "after", "95 % interval"], cells
    )
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
