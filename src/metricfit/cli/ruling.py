"""The run behind ``metricfit tune --rule`` and ``--threshold``: a rule that was chosen elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

from metricfit import save
from metricfit.choices import Choice
from metricfit.cli.errors import CommandError, UsageError
from metricfit.cli.output import Output
from metricfit.decisions import DecisionRule
from metricfit.store import ModelFolderError, check_replaceable, describe, load
from metricfit.training.explanation import rule_in_words

__all__ = ["run"]


def run(
    model: Path,
    *,
    rule: str | None,
    threshold: float | None,
    out: Path | None,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Give the model the rule; the network stays as it is."""
    output = Output(as_json, quiet)
    if rule is not None and threshold is not None:
        raise UsageError("--threshold: is a rule already; give --rule or --threshold.")
    if out is not None:
        try:
            check_replaceable(out, overwrite=overwrite)
        except FileExistsError as error:
            raise UsageError(f"--out: {str(error).removeprefix('folder: ')}") from None
    try:
        description, classifier = describe(model), load(model)
    except ModelFolderError as error:
        raise CommandError(str(error)) from error
    classes = tuple(classifier.classes_.tolist())
    if threshold is not None:
        if classifier.task_ != "binary":
            raise UsageError(f"--threshold: decides between two classes; the model has {len(classes)}. Use --rule.")
        chosen = DecisionRule.at_threshold(threshold, classes)
    else:
        chosen = _read(rule or "", classes, several=classifier.task_ == "multilabel")
    old = classifier.decision_rule_
    classifier.decision_rule_ = chosen
    if classifier.held_out_ is not None:
        classifier.held_out_ = classifier.held_out_.with_rule(chosen)
    classifier.choices_ = [*classifier.choices_, Choice("rule", "the decision rule was given by hand")]
    notes = dict(description["notes"])
    notes["earlier_rules"] = [*notes.get("earlier_rules", []), json.loads(old.to_json())]
    folder = out or model
    files = {name: (model / name).read_bytes() for name in ("train.toml",) if (model / name).exists()}
    save(classifier, folder, overwrite=out is None or overwrite, notes=notes, files=files)
    output.line(f"Rule:  {rule_in_words(chosen)}")
    output.line(f"Model: {folder}")
    output.result({"rule": json.loads(chosen.to_json()), "model": str(folder)})


def _read(text: str, classes: tuple[object, ...], *, several: bool) -> DecisionRule:
    """A rule from JSON text, or from a file that holds it."""
    if not text.lstrip().startswith("{") and Path(text).is_file():
        text = Path(text).read_text(encoding="utf-8")
    try:
        found = DecisionRule.from_json(text)
    except (ValueError, TypeError) as error:
        raise UsageError(f"--{error}") from None
    if found.classes != classes:
        raise UsageError(f"--rule: its classes are {list(found.classes)[:5]}, the model's {list(classes)[:5]}.")
    if (found.kind == "thresholds") is not several:
        raise UsageError(f"--rule: a rule of kind {found.kind!r} does not fit this model.")
    return found
