"""Saved models: safetensors, skops and JSON in one folder, written in one step, never pickle.

The folder that :func:`save` writes holds the model alone. :func:`metricfit.save` adds the pages for people.

>>> import tempfile
>>> from sklearn.datasets import load_iris
>>> from metricfit import MetricClassifier, Recipe
>>> X, y = load_iris(return_X_y=True)
>>> quick = Recipe(min_updates=20, max_epochs=1)
>>> clf = MetricClassifier("mcc", recipe=quick, cv=None, baseline=False, random_state=0).fit(X, y)
>>> with tempfile.TemporaryDirectory() as parent:
...     folder = save(clf, f"{parent}/model")
...     sorted(file.name for file in folder.iterdir())
...     bool((load(folder).predict(X) == clf.predict(X)).all())
['history.parquet', 'model.json', 'model.safetensors', 'preprocessing.skops', 'scores.parquet']
True
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metricfit.store.folder import ModelFolderError, check_replaceable, read_folder, write_folder

if TYPE_CHECKING:
    from metricfit.classifier import MetricClassifier

__all__ = ["ModelFolderError", "check_replaceable", "describe", "description_of", "load", "save"]


def save(
    classifier: MetricClassifier,
    folder: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    notes: dict[str, Any] | None = None,
    files: Mapping[str, bytes] | None = None,
) -> Path:
    """Write a fitted classifier as a model folder, without a report and a card.

    The folder appears complete or not at all: a process that is killed leaves the old folder or the new one.

    Args:
        classifier: A fitted :class:`metricfit.MetricClassifier` with a built-in network and a metric that has a spec.
        folder: Where to write; missing parent folders are made.
        overwrite: Whether to replace a model folder that is there. An empty folder is always replaced.
        notes: Anything that JSON can hold, kept under ``"notes"`` of ``model.json``.
        files: Further files by name, such as the settings of the run.

    Returns:
        The folder.
    """
    from metricfit.store.contents import contents_of

    path = Path(folder)
    check_replaceable(path, overwrite=overwrite)
    write_folder(path, {**(files or {}), **contents_of(classifier, notes or {})})
    return path


def load(folder: str | os.PathLike[str]) -> MetricClassifier:
    """Load a classifier from a model folder; it predicts exactly what the saved one did.

    The files are data: they are checked against their checksums and the types that are allowed. Nothing in them is run.

    Args:
        folder: A folder that :func:`metricfit.save` wrote.

    Raises:
        ModelFolderError: If the folder is incomplete, was changed, has a newer format or holds a type that is not
            allowed.
    """
    from metricfit.store.contents import classifier_from

    path = Path(folder)
    return classifier_from(path, *read_folder(path))


def describe(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the checked content of ``model.json``, without importing torch."""
    return read_folder(Path(folder))[0]


def description_of(classifier: MetricClassifier, notes: dict[str, Any] | None = None) -> dict[str, Any]:
    """The description of a fitted classifier as plain values: what ``model.json`` will hold, without its checksums."""
    from metricfit.store.contents import description

    return description(classifier, notes or {})
