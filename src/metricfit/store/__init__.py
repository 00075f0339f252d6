"""Saved models: safetensors, skops and JSON in one folder, written in one step, never pickle.

>>> import tempfile
>>> from sklearn.datasets import load_iris
>>> from metricfit import MetricClassifier, Recipe
>>> X, y = load_iris(return_X_y=True)
>>> quick = Recipe(min_updates=20, max_epochs=1)
>>> clf = MetricClassifier("mcc", recipe=quick, cv=None, baseline=False, random_state=0).fit(X, y)
>>> with tempfile.TemporaryDirectory() as parent:
...     folder = save(clf, f"{parent}/model")
...     [file.name for file in sorted(folder.iterdir()) if file.suffix != ".md"]
...     bool((load(folder).predict(X) == clf.predict(X)).all())
['history.parquet', 'model.json', 'model.safetensors', 'preprocessing.skops', 'report.html', 'scores.parquet']
True
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metricfit.store.folder import ModelFolderError, check_replaceable, read_folder, write_folder

if TYPE_CHECKING:
    from metricfit.classifier import MetricClassifier

__all__ = ["ModelFolderError", "check_replaceable", "describe", "load", "save"]


def save(
    classifier: MetricClassifier,
    folder: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    notes: dict[str, Any] | None = None,
    report: str | None = None,
    files: dict[str, bytes] | None = None,
) -> Path:
    """Write a fitted classifier as a model folder.

    The folder appears complete or not at all: a process that is killed leaves the old folder or the new one.

    Args:
        classifier: A fitted :class:`metricfit.MetricClassifier` with a built-in network and a metric that has a spec.
        folder: Where to; its parents are made.
        overwrite: Whether to replace a model folder (or an empty one) that is there.
        notes: Anything JSON can hold, kept under ``"notes"`` of ``model.json``.
        report: The page for ``report.html``; :func:`metricfit.report.render` makes it if it is not given.
        files: Further files by name, such as the settings of the run.

    Returns:
        The folder.
    """
    from metricfit.store.contents import contents_of

    path = Path(folder)
    check_replaceable(path, overwrite=overwrite)
    settings = (files or {}).get("train.toml", b"").decode()
    write_folder(path, {**(files or {}), **contents_of(classifier, notes or {}, report, settings or None)})
    return path


def load(folder: str | os.PathLike[str]) -> MetricClassifier:
    """A classifier from a model folder; it predicts exactly what the saved one did.

    The files are data: they are checked against the checksums and types that are allowed, and nothing in them is run.

    Args:
        folder: A folder that :func:`save` wrote.

    Raises:
        ModelFolderError: If the folder is incomplete, was changed, is of a newer format or holds a type that is not
            allowed.
    """
    from metricfit.store.contents import classifier_from

    path = Path(folder)
    return classifier_from(path, *read_folder(path))


def describe(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The content of ``model.json``, checked; without importing torch."""
    return read_folder(Path(folder))[0]
