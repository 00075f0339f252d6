"""The run behind ``metricfit tune``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from metricfit import save
from metricfit.choices import Choice
from metricfit.cli.errors import CommandError, UsageError
from metricfit.cli.evaluating import judge, labelled_rows, resolved
from metricfit.cli.measure import measure
from metricfit.cli.metric_option import checked_metric
from metricfit.cli.models import load_model
from metricfit.cli.output import Output, interval, number
from metricfit.decisions import InfeasibleError, best_rule
from metricfit.metrics import Constrained
from metricfit.store import check_replaceable
from metricfit.training.explanation import rule_in_words

__all__ = ["run"]


def run(
    model: Path,
    data: str,
    *,
    spec: str,
    out: Path | None,
    confidence: float | None,
    target: list[str] | None,
    weight: str | None,
    overwrite: bool,
    separator: str | None,
    encoding: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Tune with the options of the command."""
    output = Output(as_json, quiet)
    asked = checked_metric(spec)
    if out is not None:
        try:
            check_replaceable(out, overwrite=overwrite)
        except FileExistsError as error:
            raise UsageError(f"--out: {str(error).removeprefix('folder: ')}") from None
    loaded = load_model(model)
    classifier = loaded.classifier
    labels = tuple(classifier.classes_.tolist())
    metric = resolved(asked, labels, classifier.task_)
    if metric.judges_scores:
        raise UsageError(f"--metric: {metric} judges the order of scores; no decision rule changes it.")
    table = labelled_rows(loaded, data, target, weight, separator, encoding)
    output.choices(table.choices)
    before = judge(loaded, table)
    try:
        best = best_rule(
            table.y, before.proba, metric, labels=labels, sample_weight=table.weight, confidence=confidence
        )
    except InfeasibleError as error:
        raise CommandError(str(error)) from error
    except ValueError as error:
        raise CommandError(f"no rule could be chosen: {error}") from error
    old, earlier = classifier.decision_rule_, classifier.metric_
    classifier.decision_rule_, classifier.metric_ = best.rule, metric
    if classifier.held_out_ is not None:
        classifier.held_out_ = classifier.held_out_.with_rule(best.rule)
        if metric != earlier:  # the baseline's rule was tuned for the other metric
            classifier.held_out_ = replace(classifier.held_out_, baseline_tuned=None)
    how = f"the decision rule was tuned for {metric} on {len(table.y):,} rows"
    classifier.choices_ = [*classifier.choices_, Choice("rule", how)]
    after = replace(before, predicted=best.rule.apply(before.proba))
    parts = [metric.objective, *(c.metric for c in metric.constraints)] if isinstance(metric, Constrained) else [metric]
    rows = []
    for part in parts:
        was, now = measure(part, before), measure(part, after)
        rows.append([str(part), number(was.value), number(now.value), interval(now.low, now.high)])
    notes = dict(loaded.notes)
    notes["earlier_rules"] = [*notes.get("earlier_rules", []), json.loads(old.to_json())]
    folder = out or model
    files = {name: (model / name).read_bytes() for name in ("train.toml",) if (model / name).exists()}
    save(classifier, folder, overwrite=out is None or overwrite, notes=notes, files=files)
    output.table(f"On the {len(table.y):,} rows it was chosen on", ["metric", "before", "after", "95 % interval"], rows)
    output.line(f"Rule:  {rule_in_words(best.rule)}")
    output.line(f"Model: {folder}")
    output.result(
        {
            "metric": str(metric),
            "rule": json.loads(best.rule.to_json()),
            "rows": [
                dict(zip(("metric", "before", "after"), (r[0], float(r[1]), float(r[2])), strict=True)) for r in rows
            ],
            "model": str(folder),
        }
    )
