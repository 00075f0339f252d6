"""From a fitted classifier to the bytes of its files, and back."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.torch
import skops.io
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from metricfit import metrics, steps
from metricfit.choices import Choice
from metricfit.classifier import MetricClassifier
from metricfit.data import TablePreprocessor, columns, encoders, preprocessing
from metricfit.decisions import DecisionRule
from metricfit.store.folder import DESCRIPTION, FORMAT, VERSION, ModelFolderError
from metricfit.store.scores import SCORES, scores_from, scores_to_bytes
from metricfit.training.networks import MemberLinear, MemberMLP
from metricfit.training.recipes import Recipe

__all__ = ["TRUSTED", "classifier_from", "contents_of", "description"]

TRUSTED = [
    f"{kind.__module__}.{kind.__qualname__}"
    for kind in (
        columns.ColumnFormat,
        encoders.CategoryEncoder,
        encoders.DateEncoder,
        encoders.NumberEncoder,
        TablePreprocessor,
        preprocessing._FittedColumn,
    )
]
"""Types that a saved preprocessor may hold, beside scikit-learn's and NumPy's own that skops trusts."""

_WEIGHTS, _PREPROCESSING, _HISTORY = "model.safetensors", "preprocessing.skops", "history.parquet"
_NOT_KEPT = {"metric", "recipe", "preprocess", "network", "callbacks", "checkpoint_dir", "device", "class_weight"}


def contents_of(classifier: MetricClassifier, notes: dict[str, Any]) -> dict[str, bytes]:
    """The bytes of every file of the model folder."""
    described = description(classifier, notes)
    weights = {name: value.detach().cpu().contiguous() for name, value in classifier.network_.state_dict().items()}
    contents = {
        DESCRIPTION: json.dumps(described, allow_nan=False).encode(),
        _WEIGHTS: safetensors.torch.save(weights, {"format": "pt"}),
        _HISTORY: _parquet(classifier.history_),
    }
    if classifier.preprocessor_ is not None:
        contents[_PREPROCESSING] = _skops(classifier.preprocessor_)
    if classifier.held_out_ is not None:
        contents[SCORES] = scores_to_bytes(classifier.held_out_)
    return contents


def classifier_from(path: Path, description: dict[str, Any], contents: dict[str, bytes]) -> MetricClassifier:
    """A fitted classifier from checked files; anything that does not fit together is a ModelFolderError."""
    try:
        return _rebuild(path, description, contents)
    except ModelFolderError:
        raise
    except Exception as error:
        # Whatever a crafted file makes a reader trip over, the user gets one clear error.
        raise ModelFolderError(f"{path}: the files of this model do not fit together ({error}).") from error


def description(classifier: MetricClassifier, notes: dict[str, Any]) -> dict[str, Any]:
    """What ``model.json`` holds, without its checksums; an error if the classifier cannot be saved."""
    check_is_fitted(classifier)
    network = classifier.network_
    if not isinstance(network, MemberMLP):
        raise ValueError(
            "network: only the built-in networks 'mlp' and 'linear' can be saved as a model folder, because loading "
            "must not run code; save network_.state_dict() with safetensors yourself."
        )
    sizes = [layer.weight.shape for layer in network.layers if isinstance(layer, MemberLinear)]
    return {
        "format": FORMAT,
        "version": VERSION,
        "metric": _spec(classifier.metric_),
        "task": classifier.task_,
        "classes": _classes_to_json(classifier.classes_),
        "columns": _columns(classifier),
        "decision_rule": json.loads(classifier.decision_rule_.to_json()),
        "network": {
            "members": network.members,
            "inputs": int(sizes[0][1]),
            "outputs": int(sizes[-1][2]),
            "hidden_sizes": [int(size[2]) for size in sizes[:-1]],
        },
        "recipe": _recipe_parts(classifier.recipe_),
        "parameters": _parameters(classifier),
        "fitted": {
            "seed": int(classifier.seed_),
            "best_epochs": [int(epoch) for epoch in classifier.best_epochs_],
            "fit_seconds": float(classifier.fit_seconds_),
            "choices": [[choice.topic, choice.text] for choice in classifier.choices_],
        },
        "validation_report": _records(classifier.validation_report_),
        "libraries": _library_versions(),
        "notes": notes,
    }


def _rebuild(path: Path, description: dict[str, Any], contents: dict[str, bytes]) -> MetricClassifier:
    shape = description["network"]
    recipe = _recipe(description["recipe"])
    parameters = dict(description["parameters"])
    if parameters.pop("class_weight_pairs", None):
        pairs = description["parameters"]["class_weight_pairs"]
        parameters["class_weight"] = pairs if isinstance(pairs, str) else dict(pairs)
    metric = metrics.get(description["metric"])
    classifier = MetricClassifier(metric, recipe=recipe, **parameters)
    classifier.preprocessor_ = _load_preprocessor(path, contents)
    if _PREPROCESSING not in contents:
        classifier.preprocess = None
    network = MemberMLP(
        shape["members"], shape["inputs"], shape["outputs"], shape["hidden_sizes"], recipe.dropout,
        generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    network.load_state_dict(safetensors.torch.load(contents[_WEIGHTS]))
    classifier.network_ = network.eval()
    classifier.metric_, classifier.recipe_ = metric, recipe
    classifier.classes_ = _classes_from_json(description["classes"])
    classifier.decision_rule_ = DecisionRule.from_json(json.dumps(description["decision_rule"]))
    classifier.task_ = description["task"]
    classifier.n_network_inputs_ = shape["inputs"]
    fitted = description["fitted"]
    classifier.seed_, classifier.best_epochs_ = fitted["seed"], fitted["best_epochs"]
    classifier.fit_seconds_ = fitted["fit_seconds"]
    classifier.choices_ = [Choice(topic, text) for topic, text in fitted["choices"]]
    columns = description["columns"]
    classifier.n_features_in_ = columns["count"]
    if columns["names"] is not None:
        classifier.feature_names_in_ = np.array(columns["names"], dtype=object)
    table = pq.read_table(pa.BufferReader(contents[_HISTORY]))
    classifier.history_ = table.to_pandas(ignore_metadata=True)
    classifier.validation_report_ = _report_frame(description["validation_report"])
    # Folders that were written before scores were kept have none.
    classifier.held_out_ = scores_from(contents[SCORES]) if SCORES in contents else None
    if len(classifier.classes_) != shape["outputs"]:
        raise ValueError(f"{len(classifier.classes_)} classes for a network of {shape['outputs']} outputs")
    return classifier


def _spec(metric: metrics.Metric) -> str:
    spec = str(metric)
    try:
        if metrics.get(spec) == metric or str(metrics.get(spec)) == spec:
            return spec
    except ValueError:
        pass
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
    names = getattr(classifier, "feature_names_in_", None)
    kinds = None
    if isinstance(classifier.preprocessor_, TablePreprocessor):
        kinds = [
            {"name": c.name, "kind": c.kind, "reason": c.reason, "dropped": c.dropped}
            for c in classifier.preprocessor_.describe()
        ]
    return {
        "count": int(classifier.n_features_in_),
        "names": None if names is None else [str(name) for name in names],
        "kinds": kinds,
    }


def _parameters(classifier: MetricClassifier) -> dict[str, Any]:
    """The constructor's arguments that are plain values."""
    kept: dict[str, Any] = {}
    for name, value in classifier.get_params(deep=False).items():
        if name in _NOT_KEPT:
            continue
        if isinstance(value, np.integer):
            value = int(value)
        if value is None or isinstance(value, bool | int | float | str):
            kept[name] = value
    weight = classifier.class_weight
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


def _recipe(saved: dict[str, Any]) -> Recipe:
    # A newer minor version may know further parts; their absence here is their default there.
    return Recipe().with_parts(saved).complete()


def _skops(preprocessor: Any) -> bytes:
    content: bytes = skops.io.dumps(preprocessor)
    untrusted = sorted(set(skops.io.get_untrusted_types(data=content)) - set(TRUSTED))
    if untrusted:
        raise ValueError(
            f"preprocess: a transformer that holds {', '.join(untrusted)} cannot be saved, because loading it would "
            "have to trust code; use scikit-learn's own transformers."
        )
    return content


def _load_preprocessor(path: Path, contents: dict[str, bytes]) -> Any:
    if _PREPROCESSING not in contents:
        return None
    content = contents[_PREPROCESSING]
    untrusted = sorted(set(skops.io.get_untrusted_types(data=content)) - set(TRUSTED))
    if untrusted:
        raise ModelFolderError(
            f"{path / _PREPROCESSING}: holds the type {untrusted[0]}, which is not allowed in a model; nothing was run."
        )
    preprocessor = skops.io.loads(content, trusted=TRUSTED)
    if not hasattr(preprocessor, "transform"):
        raise ModelFolderError(f"{path / _PREPROCESSING}: holds a {type(preprocessor).__name__}, not a transformer.")
    return preprocessor


def _parquet(frame: pd.DataFrame) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None), buffer)
    return buffer.getvalue()


def _records(report: pd.DataFrame) -> list[dict[str, Any]]:
    rows = report.to_dict(orient="records")
    return [{str(k): None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()} for row in rows]


def _report_frame(records: list[dict[str, Any]]) -> pd.DataFrame:
    frame = pd.DataFrame(records, columns=["model", "value", "low", "high", "gain", "rows", "note"])
    return frame.astype(dict.fromkeys(("value", "low", "high", "gain"), float))


def _library_versions() -> dict[str, str]:
    from importlib.metadata import version

    names = ("metricfit", "torch", "numpy", "scikit-learn", "pandas", "pyarrow", "safetensors", "skops")
    return {name: version(name) for name in names}
