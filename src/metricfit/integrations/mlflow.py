"""MLflow: a classifier as a pyfunc model, which MLflow logs, registers, loads and serves; never pickle.

What MLflow keeps is a model folder of :mod:`metricfit.store`. Where it is loaded, metricfit has to be installed.
``mlflow.pyfunc.load_model(…).predict(frame)`` gives what ``metricfit predict`` gives: ``prediction`` (of several labels
``prediction_<name>``) and ``probability_<class>``; beside them ``rule``, a short id that changes with the rule.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

from metricfit import __version__, save
from metricfit.classifier import MetricClassifier
from metricfit.data import TablePreprocessor
from metricfit.integrations import library
from metricfit.store import load

__all__ = ["log_model", "save_model"]


class _Decider:
    def __init__(self, classifier: MetricClassifier) -> None:
        self.scorer = classifier.scorer()
        self.rule = hashlib.sha256(classifier.decision_rule_.to_json().encode()).hexdigest()[:12]

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> pd.DataFrame:
        return self.scorer.result(model_input, {}).assign(rule=self.rule)


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
    preprocessor = classifier.preprocessor_
    if not isinstance(preprocessor, TablePreprocessor) or not hasattr(classifier, "feature_names_in_"):
        return None
    types, inputs = library("mlflow.types.schema", "mlflow"), []
    for column in preprocessor.columns_:
        date = column.format.kind == "date" and not column.format.text
        inputs.append(types.ColSpec("datetime" if date else types.AnyType(), column.name))
    outputs = [types.ColSpec(kind, name) for name, kind in (*classifier.scorer().types.items(), ("rule", "string"))]
    return library("mlflow.models", "mlflow").ModelSignature(types.Schema(inputs), types.Schema(outputs))


def _load_pyfunc(path: str) -> _Decider:  # MLflow calls it by this name
    return _Decider(load(path))
