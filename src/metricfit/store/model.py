"""A saved model and files: rows are read as in training, predicted batch by batch, and its rule can be replaced.

>>> import tempfile
>>> import pandas as pd
>>> from metricfit import MetricClassifier, store
>>> X = pd.DataFrame({"age": range(60), "plan": ["a", "b", "c"] * 20})
>>> clf = MetricClassifier("mcc", cv=None, baseline=False, verbose=False, random_state=0).fit(X, X["age"] > 30)
>>> with tempfile.TemporaryDirectory() as parent:
...     folder = store.save(clf, f"{parent}/model")
...     X.to_csv(f"{parent}/new.csv", index=False)
...     frames = store.open_model(folder).predictions(f"{parent}/new.csv", keep=["age"])
...     print(*next(frames).columns)
age prediction probability_False probability_True
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from metricfit import data as tables
from metricfit.choices import Choice
from metricfit.data import GAPS, BadArgumentError, ColumnFormat, LabelledTable, TableFile
from metricfit.store.contents import load_described
from metricfit.store.folder import ModelFolderError, refused

if TYPE_CHECKING:
    from metricfit.classifier import MetricClassifier
    from metricfit.decisions import DecisionRule
    from metricfit.metrics import Metric

__all__ = ["SavedModel", "open_model"]


@dataclass
class SavedModel:
    """A model folder and how its input is read.

    Attributes:
        folder: The folder.
        classifier: The classifier.
        description: The content of ``model.json``.
        formats: How each of its columns is read from text.
        missing: Further texts that stand for a missing value, beside the usual ones.
    """

    folder: Path
    classifier: MetricClassifier
    description: dict[str, Any]
    formats: dict[str, ColumnFormat]
    missing: tuple[str, ...]

    @property
    def notes(self) -> dict[str, Any]:
        """What the run that trained it noted."""
        return dict(self.description["notes"])

    @property
    def target(self) -> list[str]:
        """The target's columns in training; empty if it was not trained from a file."""
        noted: Any = self.notes.get("target")
        return [noted] if isinstance(noted, str) else list(noted or [])

    def labelled_rows(
        self, data: str | TableFile, *, target: Sequence[str] = (), weight: str | None = None, **reading: Any
    ) -> LabelledTable:
        """The rows of a file that have a label, read as the rows of training were.

        Args:
            data: A file as for :func:`metricfit.data.read_table`; ``-`` for standard input.
            target: The columns of the true labels; those of training if empty.
            weight: The column of weights.
            reading: ``separator`` and ``encoding`` of a CSV file.
        """
        file = self._opened(data, **reading)
        names = list(target) or self.target
        if not names:
            raise BadArgumentError("target", "the model was not trained from a file; name the column of the labels.")
        labels = self.classifier.classes_.tolist() if self.classifier.task_ == "multilabel" else [""]
        if len(names) != len(labels):
            each = f"{len(labels)} columns, for {', '.join(labels)}" if len(labels) > 1 else "one column"
            raise BadArgumentError("target", f"the model predicts {each}; got {', '.join(map(repr, names))}.")
        if weight is not None:
            file.check_columns([weight], "weight")
        roles = tables.Roles(target=names, weight=weight, missing=list(self.missing))
        table = tables.read_labelled_like(file, roles, self.formats, self.classifier.classes_)
        table.choices[:0] = file.choices
        return table

    def probabilities(self, data: str | TableFile, **reading: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Probabilities (rows, classes) of a file's rows before the decision rule; the file needs no labels."""
        frames = self._opened(data, **reading).frames(self.formats, gaps=(*GAPS, *self.missing))
        parts = [self.classifier.predict_raw_proba(X) for X, _ in frames]
        return np.concatenate(parts) if parts else np.empty((0, len(self.classifier.classes_)))

    def predictions(
        self, data: str | TableFile, *, keep: Sequence[str] = (), raw: bool = False, **reading: Any
    ) -> Iterator[pd.DataFrame]:
        """Decisions and probabilities of a file's rows, some ten thousand at a time; at least one frame.

        Args:
            data: As for :meth:`labelled_rows`; columns are found by name.
            keep: Columns to pass through.
            raw: Whether to give the probabilities before the decision rule is folded in.
            reading: ``separator`` and ``encoding`` of a CSV file.
        """
        file = self._opened(data, **reading)
        file.check_columns(keep, "keep")
        classifier, rule = self.classifier, self.classifier.decision_rule_
        several, labels = classifier.task_ == "multilabel", classifier.classes_.tolist()
        decided = [f"prediction_{label}" for label in labels] if several else ["prediction"]
        probable = [f"probability_{label}" for label in labels]
        if clash := [name for name in keep if name in (*decided, *probable)]:
            raise BadArgumentError("keep", f"{clash[0]!r} is the name of a result; rename the column.")
        frame = None
        for X, rows in file.frames(self.formats, keep, gaps=(*GAPS, *self.missing)):
            proba = classifier.predict_raw_proba(X)
            folded = proba if rule.kind == "argmax" else rule.fold(proba)
            found = {name: rows.table[name].to_pandas() for name in keep}
            if several:
                found |= dict(zip(decided, (folded > 0.5).astype(np.int64).T, strict=True))
            else:
                found["prediction"] = classifier.classes_[folded.argmax(axis=1)]
            found |= dict(zip(probable, (proba if raw else folded).T, strict=True))
            yield (frame := pd.DataFrame(found))
        if frame is None:
            yield pd.DataFrame({name: [] for name in [*keep, *decided, *probable]})

    @property
    def files(self) -> dict[str, bytes]:
        """Files of the folder that go with the model into another one."""
        settings = self.folder / "train.toml"
        return {settings.name: settings.read_bytes()} if settings.exists() else {}

    def change_rule(self, rule: DecisionRule, choice: Choice, *, metric: Metric | None = None) -> None:
        """Give the model another decision rule; the network stays, the old rule is kept in its notes.

        Write it with ``metricfit.save(model.classifier, folder, notes=model.notes, files=model.files)``. ``choice``
        says how the rule was chosen, ``metric`` what for, if that is another metric.
        """
        classifier = self.classifier
        old, judged = classifier.decision_rule_, classifier.metric_
        classifier.decision_rule_, classifier.metric_ = rule, metric or judged
        if classifier.held_out_ is not None:
            classifier.held_out_ = classifier.held_out_.with_rule(rule)
            if classifier.metric_ != judged:  # the baseline's rule was tuned for the other metric
                classifier.held_out_ = replace(classifier.held_out_, baseline_tuned=None)
        classifier.choices_ = [*classifier.choices_, choice]
        self.description["notes"]["earlier_rules"] = [*self.notes.get("earlier_rules", []), json.loads(old.to_json())]

    def _opened(self, data: str | TableFile, separator: str | None = None, encoding: str | None = None) -> TableFile:
        if not self.formats:
            raise ModelFolderError(
                f"{self.folder}: the model was trained on an array without column names; use it in Python."
            )
        return tables.open_table(data, separator=separator, encoding=encoding) if isinstance(data, str) else data


def open_model(folder: str | os.PathLike[str]) -> SavedModel:
    """Read a model folder.

    Raises:
        ModelFolderError: As :func:`metricfit.store.load`.
    """
    path = Path(folder)
    classifier, description = load_described(path)
    with refused(path):
        given, preprocessor = description["notes"].get("input", {}), classifier.preprocessor_
        columns = preprocessor.columns_ if isinstance(preprocessor, tables.TablePreprocessor) else []
        formats = {column.name: column.format for column in columns}
        if "formats" in given:
            formats = {name: ColumnFormat(**how) for name, how in given["formats"].items()}
        names = description["columns"]["names"] or ()
        used = {name: formats.get(name, ColumnFormat("number")) for name in names}
        return SavedModel(path, classifier, description, used, tuple(map(str, given.get("missing", ()))))
