"""From a fitted classifier to the bytes of its files, and back."""

from __future__ import annotations

import io
import json
import math
import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import skops.io
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from metricfit import metrics, steps
from metricfit.assess.scores import HeldOutScores
from metricfit.assess.verdicts import REPORT_COLUMNS
from metricfit.choices import Choice
from metricfit.classifier import MetricClassifier
from metricfit.data import TablePreprocessor
from metricfit.decisions import DecisionRule
from metricfit.ensemble import LEADERBOARD_COLUMNS
from metricfit.models import EstimatorModel, Model, NetworkModel
from metricfit.store.folder import (
    DESCRIPTION,
    FORMAT,
    VERSION,
    ModelFolderError,
    check_replaceable,
    read_folder,
    write_folder,
)  # fmt: skip
from metricfit.training.recipes import Recipe

__all__ = ["TRUSTED", "description_of", "load", "save", "scores_from", "scores_to_bytes"]

TRUSTED = [f"{TablePreprocessor.__module__}.{TablePreprocessor.__qualname__}"]
"""What a saved preprocessor may be, beside scikit-learn's and NumPy's own that skops trusts; its state is plain."""

_PREPROCESSING = "preprocessing.skops"
_MODELS: dict[str, type[Model]] = {"networks": NetworkModel, "estimators": EstimatorModel}
_HISTORY, _SCORES = "history.parquet", "scores.parquet"
_MOST_NUMBERS = 12_000_000
"""Probabilities kept at most, about 50 MB; beyond it a stratified sample of the rows is kept."""
_KEY = b"metricfit.scores"
_LIBRARIES = ("metricfit", "torch", "numpy", "scikit-learn", "pandas", "pyarrow", "safetensors", "skops")
_NOT_KEPT = {
    "metric",
    "recipe",
    "preprocess",
    "network",
    "callbacks",
    "checkpoint_dir",
    "device",
    "class_weight",
}


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
    path = Path(folder)
    check_replaceable(path, overwrite=overwrite)
    described = description_of(classifier, notes)
    models = classifier.models_.values()
    history = pa.Table.from_pandas(classifier.history_, preserve_index=False).replace_schema_metadata(None)
    contents = {
        **(files or {}),
        DESCRIPTION: json.dumps(described, allow_nan=False).encode(),
        **{_file(m): model.to_bytes() for m, model in zip(described["models"], models, strict=True)},
        _HISTORY: _parquet(history),
    }
    if classifier.preprocessor_ is not None:
        contents[_PREPROCESSING] = _skops(classifier.preprocessor_)
    if classifier.held_out_ is not None:
        contents[_SCORES] = scores_to_bytes(classifier.held_out_)
    write_folder(path, contents)
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
    path = Path(folder)
    description, contents = read_folder(path)
    try:
        return _rebuild(path, description, contents)
    except Exception as error:
        if isinstance(error, ModelFolderError):
            raise
        # Whatever a crafted file makes a reader trip over, the user gets one clear error.
        raise ModelFolderError(f"{path}: the files of this model do not fit together ({error}).") from error


def description_of(classifier: MetricClassifier, notes: dict[str, Any] | None = None) -> dict[str, Any]:
    """What ``model.json`` of a fitted classifier will hold, without its checksums; an error if it cannot be saved."""
    check_is_fitted(classifier)
    return {
        "format": FORMAT,
        "version": VERSION,
        "metric": _spec(classifier.metric_),
        "task": classifier.task_,
        "classes": _classes_to_json(classifier.classes_),
        "columns": _columns(classifier),
        "decision_rule": json.loads(classifier.decision_rule_.to_json()),
        "models": [
            {"name": name, "weight": classifier.weights_[name], **model.described()}
            for name, model in classifier.models_.items()
        ],
        "recipe": _recipe_parts(classifier.recipe_),
        "parameters": _parameters(classifier),
        "fitted": {
            "seed": int(classifier.seed_),
            "best_epochs": [int(epoch) for epoch in classifier.best_epochs_],
            "fit_seconds": float(classifier.fit_seconds_),
            "inputs": int(classifier.n_network_inputs_),
            "choices": [[choice.topic, choice.text] for choice in classifier.choices_],
        },
        "validation_report": _records(classifier.validation_report_),
        "leaderboard": _records(classifier.leaderboard_),
        "libraries": {name: version(name) for name in _LIBRARIES},
        "notes": notes or {},
    }


def _rebuild(path: Path, description: dict[str, Any], contents: dict[str, bytes]) -> MetricClassifier:
    fitted, columns = description["fitted"], description["columns"]
    # A newer minor version may know further parts; their absence here is their default there.
    recipe = Recipe().with_parts(description["recipe"]).complete()
    metric, parameters = metrics.get(description["metric"]), dict(description["parameters"])
    if pairs := parameters.pop("class_weight_pairs", None):
        parameters["class_weight"] = pairs if isinstance(pairs, str) else dict(pairs)
    if _PREPROCESSING not in contents:
        parameters["preprocess"] = None
    classifier = MetricClassifier(metric, recipe=recipe, **parameters)
    classifier.preprocessor_ = _load_preprocessor(path, contents)
    classifier.metric_, classifier.recipe_, classifier.task_ = metric, recipe, description["task"]
    classifier.classes_ = _classes_from_json(description["classes"])
    classifier.decision_rule_ = DecisionRule.from_json(json.dumps(description["decision_rule"]))
    classifier.seed_, classifier.best_epochs_ = fitted["seed"], fitted["best_epochs"]
    classifier.fit_seconds_ = fitted["fit_seconds"]
    classifier.choices_ = [Choice(topic, text) for topic, text in fitted["choices"]]
    classifier.n_features_in_, classifier.n_network_inputs_ = columns["count"], fitted["inputs"]
    if columns["names"] is not None:
        classifier.feature_names_in_ = np.array(columns["names"], dtype=object)
    classifier.history_ = pq.read_table(pa.BufferReader(contents[_HISTORY])).to_pandas(ignore_metadata=True)
    classifier.validation_report_ = _frame(description["validation_report"], REPORT_COLUMNS)
    classifier.leaderboard_ = _frame(description["leaderboard"], LEADERBOARD_COLUMNS)
    classifier.weights_ = {m["name"]: float(m["weight"]) for m in description["models"]}
    classifier.models_ = {}
    for saved in description["models"]:
        if saved["outputs"] != len(classifier.classes_):
            raise ValueError(f"{len(classifier.classes_)} classes for a model of {saved['outputs']} outputs")
        kind, content = _MODELS[saved["kind"]], contents[_file(saved)]
        classifier.models_[saved["name"]] = kind.restored(saved["name"], saved, content, classifier.task_, recipe)
    # Nothing may have been held out.
    classifier.held_out_ = scores_from(contents[_SCORES]) if _SCORES in contents else None
    return classifier


def _spec(metric: metrics.Metric) -> str:
    spec = str(metric)
    with suppress(ValueError):
        if metrics.get(spec) == metric or str(metrics.get(spec)) == spec:
            return spec
    raise ValueError(
        f"metric: {spec!r} is a Python function, or has no spec that can be read back; write it as an expression such "
        "as '0.7*recall[1] + 0.3*precision[1]' to save the model."
    )


def _classes_to_json(classes: NDArray[Any]) -> dict[str, Any]:
    values = classes.tolist()
    if any(not isinstance(value, str | int | float) for value in values):
        raise ValueError(f"classes: only text, numbers and truth values can be saved, got {values[0]!r}.")
    return {"values": values, "dtype": "object" if classes.dtype == object else classes.dtype.str}


def _classes_from_json(saved: dict[str, Any]) -> NDArray[Any]:
    dtype = np.dtype(saved["dtype"])
    if dtype.kind not in "biufUO":
        raise ValueError(f"classes of type {dtype}")
    return np.array(saved["values"], dtype=dtype)


def _columns(classifier: MetricClassifier) -> dict[str, Any]:
    names, kinds = getattr(classifier, "feature_names_in_", None), None
    if isinstance(classifier.preprocessor_, TablePreprocessor):
        kept = ("name", "kind", "reason", "dropped")
        kinds = [{name: getattr(c, name) for name in kept} for c in classifier.preprocessor_.columns_]
    names = None if names is None else [str(name) for name in names]
    return {"count": int(classifier.n_features_in_), "names": names, "kinds": kinds}


def _parameters(classifier: MetricClassifier) -> dict[str, Any]:
    """The constructor's arguments that are plain values."""
    kept: dict[str, Any] = {}
    weight = classifier.class_weight
    for name, value in classifier.get_params(deep=False).items():
        plain = int(value) if isinstance(value, np.integer) else value
        texts = isinstance(plain, list | tuple) and all(isinstance(part, str) for part in plain)
        if name not in _NOT_KEPT and (texts or plain is None or isinstance(plain, bool | int | float | str)):
            kept[name] = plain
    if isinstance(weight, dict):
        kept["class_weight_pairs"] = [[getattr(k, "item", lambda k=k: k)(), float(v)] for k, v in weight.items()]
    elif weight is not None:
        kept["class_weight_pairs"] = weight
    return kept


def _recipe_parts(recipe: Recipe) -> dict[str, Any]:
    """The parts as plain values; a step is kept by its spec."""
    spec = str(recipe.step)
    try:
        steps.get(spec)
    except ValueError:
        raise ValueError(
            "recipe: its step is a Python function, and loading must not run code; use one of metricfit.steps to save "
            "the model."
        ) from None
    return recipe.parts() | {"step": spec}


def _untrusted(content: bytes) -> list[str]:
    return sorted(set(skops.io.get_untrusted_types(data=content)) - set(TRUSTED))


def _skops(preprocessor: Any) -> bytes:
    content: bytes = skops.io.dumps(preprocessor, compression=zipfile.ZIP_DEFLATED, compresslevel=1)
    if untrusted := _untrusted(content):
        raise ValueError(
            f"preprocess: a transformer that holds {', '.join(untrusted)} cannot be saved, because loading it would "
            "have to trust code; use scikit-learn's own transformers."
        )
    return content


def _load_preprocessor(path: Path, contents: dict[str, bytes]) -> Any:
    if _PREPROCESSING not in contents:
        return None
    content, file = contents[_PREPROCESSING], path / _PREPROCESSING
    if untrusted := _untrusted(content):
        raise ModelFolderError(
            f"{file}: holds the type {untrusted[0]}, which is not allowed in a model; nothing was run."
        )
    preprocessor = skops.io.loads(content, trusted=TRUSTED)
    if not hasattr(preprocessor, "transform"):
        raise ModelFolderError(f"{file}: holds a {type(preprocessor).__name__}, not a transformer.")
    return preprocessor


def _parquet(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def _file(saved: dict[str, Any]) -> str:
    """The file of a model, by what the description says of it."""
    return f"{saved['name']}.{'safetensors' if saved['kind'] == 'networks' else 'skops'}"


def _frame(records: list[dict[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    """Read :func:`_records` back."""
    frame = pd.DataFrame(records, columns=list(columns))
    return frame.astype({name: float for name in columns if name not in ("model", "note", "rows")})


def _records(report: pd.DataFrame) -> list[dict[str, Any]]:
    rows = report.to_dict(orient="records")
    return [{str(k): None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()} for row in rows]


def scores_to_bytes(scores: HeldOutScores) -> bytes:
    """Held-out scores as a Parquet file of plain columns; of two classes only the second's probabilities are kept."""
    width = scores.proba.shape[1] * (1 if scores.baseline is None else 2)
    if len(scores) > (most := max(1, _MOST_NUMBERS // width)):
        scores = scores.sample(most)
    labels = scores.truth.ndim == 2
    binary = not labels and scores.proba.shape[1] == 2
    parts: dict[str, NDArray[Any]] = {}
    for name in ("truth", "decided", "baseline_tuned", "proba", "baseline", "weight"):
        part = getattr(scores, name)
        if part is None:
            continue
        part = part.astype(np.int32) if part.dtype.kind == "i" else part[:, 1:] if binary and part.ndim == 2 else part
        parts |= {name: part} if part.ndim == 1 else {f"{name}_{k}": column for k, column in enumerate(part.T)}
    about = {"source": scores.source, "total": scores.total, "cross_fitted": scores.cross_fitted, "binary": binary,
             "labels": labels}  # fmt: skip
    table = pa.table({name: pa.array(np.ascontiguousarray(values)) for name, values in parts.items()})
    return _parquet(table.replace_schema_metadata({_KEY: json.dumps(about).encode()}))


def scores_from(content: bytes) -> HeldOutScores:
    """Read :func:`scores_to_bytes` back; whatever does not fit together is a ValueError."""
    table = pq.read_table(pa.BufferReader(content))
    about = json.loads((table.schema.metadata or {})[_KEY])
    labels, binary = bool(about["labels"]), bool(about["binary"])

    def read(name: str, dtype: Any) -> Any:
        names = [n for n in table.column_names if n == name or re.fullmatch(rf"{name}_\d+", n)]
        if not names:
            return None
        found = [np.asarray(table.column(n).to_numpy(), dtype=dtype) for n in names]
        if names == [name]:
            return found[0]
        return np.stack([1 - found[0], *found] if binary else found, axis=1)

    truth = read("truth", np.int64)
    if truth is None or (truth.ndim == 2) != labels:
        raise ValueError("the scores hold no truth")
    return HeldOutScores(
        truth, read("proba", np.float32), read("decided", np.int64), read("baseline", np.float32),
        read("baseline_tuned", np.int64), read("weight", np.float64), str(about["source"]), about["total"],
        bool(about["cross_fitted"]),
    )  # fmt: skip
