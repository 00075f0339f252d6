"""MLflow: a classifier as a pyfunc model, which MLflow logs, registers, loads and serves; never pickle.

What MLflow keeps is a model folder of :mod:`metricfit.store`. Where it is loaded, metricfit has to be installed.
``mlflow.pyfunc.load_model(…).predict(frame)`` gives a frame: ``label`` (``label_<name>`` for several labels),
``probability_<class>`` with the decision rule folded in, and ``rule``, a short id that changes with the rule.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from metricfit import __version__, save
from metricfit.classifier import MetricClassifier
from metricfit.data import TablePreprocessor
from metricfit.integrations._annealing import library
from metricfit.store import load

__all__ = ["log_model", "save_model"]


class _Decider:
    def __init__(self, classifier: MetricClassifier) -> None:
        self.classifier = classifier
        self.rule = hashlib.sha256(classifier.decision_rule_.to_json().encode()).hexdigest()[:12]

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> pd.DataFrame:
        names, proba = self.classifier.classes_, self.classifier.predict_proba(model_input)
        if self.classifier.task_ == "multilabel":
            found = dict(zip([f"label_{name}" for name in names], (proba > 0.5).astype(np.int64).T, strict=True))
        else:
            codes = np.where(proba.max(axis=1) < self.classifier.decision_rule_.least, -1, proba.argmax(axis=1))
            found = {"label": self.classifier.decision_rule_.named(codes, names)}
        found |= dict(zip([f"probability_{name}" for name in names], proba.T, strict=True))
        return pd.DataFrame(found).assign(rule=self.rule)


def save_model(classifier: MetricClassifier, path: str | os.PathLike[str], **options: Any) -> None:
    """Write a fitted classifier as an MLflow model, with the columns of its training table as signature.

    Args:
        classifier: What :func:`metricfit.save` can save.
        path: The folder, which must not exist.
        options: Of ``mlflow.pyfunc.save_model``, such as ``input_example``, ``metadata`` and ``pip_requirements``.

    Example:
        ``save_model(classifier, "model")``, then ``mlflow.pyfunc.load_model("model").predict(frame)``.
    """
    _written("save_model", classifier, options, path=os.fspath(path))


def log_model(classifier: MetricClassifier, name: str = "model", **options: Any) -> Any:
    """Log a fitted classifier in the active run, as :func:`save_model` writes it; the result is MLflow's ``ModelInfo``.

    Args:
        classifier: What :func:`metricfit.save` can save.
        name: The model's name in the run.
        options: Of ``mlflow.pyfunc.log_model``, such as ``registered_model_name`` and ``input_example``.
    """
    return _written("log_model", classifier, options, name=name)


def _written(how: str, classifier: MetricClassifier, options: dict[str, Any], **place: str) -> Any:
    write = getattr(library("mlflow.pyfunc", "mlflow"), how)
    given = {"signature": _signature(classifier), "pip_requirements": [f"metricfit=={__version__}"], **options}
    with tempfile.TemporaryDirectory() as parent:
        folder = save(classifier, Path(parent) / "metricfit")
        return write(**place, loader_module=__name__, data_path=os.fspath(folder), **given)


def _signature(classifier: MetricClassifier) -> Any:
    """The columns, none for a model of an array; MLflow would refuse whole numbers where it expects doubles."""
    preprocessor, names = classifier.preprocessor_, classifier.classes_
    if not isinstance(preprocessor, TablePreprocessor) or not hasattr(classifier, "feature_names_in_"):
        return None
    types, inputs = library("mlflow.types.schema", "mlflow"), []
    for column in preprocessor.columns_:
        date = column.format.kind == "date" and not column.format.text
        inputs.append(types.ColSpec("datetime" if date else types.AnyType(), column.name))
    several = classifier.task_ == "multilabel"
    kind = {"b": "boolean", "i": "long", "u": "long", "f": "double"}.get(names.dtype.kind, "string")
    labels = [("long", f"label_{name}") for name in names] if several else [(kind, "label")]
    outputs = [*labels, *(("double", f"probability_{name}") for name in names), ("string", "rule")]
    schemas = types.Schema(inputs), types.Schema([types.ColSpec(*each) for each in outputs])
    return library("mlflow.models", "mlflow").ModelSignature(*schemas)


def _load_pyfunc(path: str) -> _Decider:  # MLflow calls it by this name
    return _Decider(load(path))
