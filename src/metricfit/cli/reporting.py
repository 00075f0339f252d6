"""The run behind ``metricfit report``."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from metricfit.assess.scores import HeldOutScores, codes_of, scores_of
from metricfit.cli.errors import CommandError, UsageError
from metricfit.cli.evaluating import labelled_rows
from metricfit.cli.models import LoadedModel, load_model
from metricfit.cli.output import Output
from metricfit.data import open_table
from metricfit.report import Unlabelled, render
from metricfit.report.content import NO_SCORES
from metricfit.store import ModelFolderError, describe, load

__all__ = ["run"]


def run(
    model: Path,
    data: str | None,
    *,
    out: Path | None,
    target: list[str] | None,
    weight: str | None,
    separator: str | None,
    encoding: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write the report with the options of the command."""
    output = Output(as_json, quiet)
    place = out or model / "report.html"
    if place.is_dir():
        raise UsageError(f"--out: {place} is a folder; name the file to write.")
    scores: HeldOutScores | None = None
    unlabelled: Unlabelled | None = None
    notices: list[str] = []
    if data is None:
        for option, given in (("--target", target), ("--weight", weight), ("--separator", separator),
                              ("--encoding", encoding)):  # fmt: skip
            if given is not None:
                raise UsageError(f"{option}: has no effect without DATA.")
        try:
            description, classifier = describe(model), load(model)
        except ModelFolderError as error:
            raise CommandError(str(error)) from error
        if classifier.held_out_ is None:
            output.warn(NO_SCORES.replace("MODEL", str(model)))
    else:
        loaded = load_model(model)
        description, classifier = describe(model), loaded.classifier
        scores, unlabelled = _read(loaded, data, target, weight, separator, encoding, output, notices)
    settings = model / "train.toml"
    text = render(
        classifier,
        description,
        settings=settings.read_text(encoding="utf-8") if settings.exists() else None,
        scores=scores,
        unlabelled=unlabelled,
        notices=notices,
    )
    _write(place, text)
    output.line(f"Report: {place}")
    kept = scores if data is not None else classifier.held_out_
    output.result({"report": str(place), "rows": 0 if kept is None else len(kept), "notes": notices})


def _read(
    loaded: LoadedModel,
    data: str,
    target: list[str] | None,
    weight: str | None,
    separator: str | None,
    encoding: str | None,
    output: Output,
    notices: list[str],
) -> tuple[HeldOutScores | None, Unlabelled | None]:
    """The model's scores of a file's rows, beside the truth where the file has it."""
    file = open_table(data, separator=separator, encoding=encoding)
    name = Path(data).name if data != "-" else "standard input"
    if target is None and (missing := _missing_target(loaded, file.columns)):
        if weight is not None:
            raise UsageError("--weight: has no effect on rows without labels.")
        notices.append(
            f"{name} has no column {missing}, so what is right is not known: matrices, curves and the explorer are "
            "left out, and the page shows only what the model says about these rows."
        )
        output.warn(notices[-1])
        return None, _predicted(loaded, file, name)
    table = labelled_rows(loaded, data, target, weight, separator, encoding)
    output.choices(table.choices)
    notices.append(
        f"These are the rows of {name}. The cross-entropy baseline is not kept with the model, so there is nothing to "
        "compare with here; the report of the held-out rows (without DATA) has the comparison."
    )
    return scores_of(loaded.classifier, table.X, table.y, table.weight, source=f"rows of {name}"), None


def _missing_target(loaded: LoadedModel, columns: list[str]) -> str:
    noted: Any = loaded.notes.get("target")
    names = [noted] if isinstance(noted, str) else list(noted or [])
    return ", ".join(repr(n) for n in names if n not in columns)


def _predicted(loaded: LoadedModel, file: Any, name: str) -> Unlabelled:
    classifier = loaded.classifier
    parts = [
        classifier.predict_raw_proba(X)
        for X, _ in file.frames(loaded.formats, gaps=loaded.gaps)
    ]  # fmt: skip
    proba = np.concatenate(parts) if parts else np.empty((0, len(classifier.classes_)))
    return Unlabelled(proba, codes_of(classifier.decision_rule_, proba), f"rows of {name}")


def _write(path: Path, text: str) -> None:
    """A half-written page never stands in the place of a whole one."""
    path = path.absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
