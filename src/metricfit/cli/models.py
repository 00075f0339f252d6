"""Model folders for the commands that use one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metricfit.cli.errors import CommandError, UsageError
from metricfit.cli.options import columns_of
from metricfit.data import GAPS, ColumnFormat, TablePreprocessor
from metricfit.data.columns import formats_from_json

if TYPE_CHECKING:
    from metricfit.classifier import MetricClassifier

__all__ = ["LoadedModel", "load_model"]


@dataclass
class LoadedModel:
    """A model and how its input is read.

    Attributes:
        classifier: The classifier.
        notes: What the run noted.
        formats: How each of its columns is read from text.
        gaps: Texts that stand for a missing value.
    """

    classifier: MetricClassifier
    notes: dict[str, Any]
    formats: dict[str, ColumnFormat]
    gaps: tuple[str, ...]

    def target(self, given: list[str] | None, known: list[str]) -> list[str]:
        """The target's column, or columns: as given (and among those known), or as in training."""
        found = columns_of(given, known) or self.notes.get("target")
        if not found:
            raise UsageError("--target: the model was not trained by the command line; name the column of the labels.")
        names = [found] if isinstance(found, str) else list(found)
        labels = self.classifier.classes_.tolist() if self.classifier.task_ == "multilabel" else [""]
        if len(names) != len(labels):
            each = f"{len(labels)} columns, for {', '.join(labels)}" if len(labels) > 1 else "one column"
            raise UsageError(f"--target: the model predicts {each}; got {', '.join(map(repr, names))}.")
        return names


def load_model(folder: Path) -> LoadedModel:
    """Read a model folder; what is wrong with it is told in one message."""
    from metricfit.store import ModelFolderError, describe, load

    try:
        description, classifier = describe(folder), load(folder)
    except ModelFolderError as error:
        raise CommandError(str(error)) from error
    notes = description["notes"]
    columns = description["columns"]
    if columns["names"] is None:
        raise CommandError(f"{folder}: the model was trained on an array without column names; use it in Python.")
    given = notes.get("input", {})
    if "formats" in given:
        formats = formats_from_json(given["formats"])
    else:
        preprocessor = classifier.preprocessor_
        formats = preprocessor.formats_ if isinstance(preprocessor, TablePreprocessor) else {}
    missing = [name for name in columns["names"] if name not in formats]
    formats |= {name: ColumnFormat("number") for name in missing}
    return LoadedModel(
        classifier, notes, {name: formats[name] for name in columns["names"]}, (*GAPS, *given.get("missing", []))
    )
