"""A saved model: from a fitted classifier to the bytes of its files and back, and files of rows through it."""

from __future__ import annotations

import copy
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import safetensors.numpy
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from metricfit import data as tables
from metricfit import metrics, models, objects, steps
from metricfit.assess import HeldOutScores
from metricfit.assess.verdicts import REPORT_COLUMNS
from metricfit.choices import Choice
from metricfit.classifier import MetricClassifier
from metricfit.data import BadArgumentError, ColumnFormat, LabelledTable, TableFile, TablePreprocessor
from metricfit.decisions import DecisionRule
from metricfit.decisions.rules import GroupThresholds
from metricfit.ensemble import LEADERBOARD_COLUMNS
from metricfit.scoring import Scorer
from metricfit.store import folder as model_folder
from metricfit.store.folder import DESCRIPTION, TIMES, ModelFolderError, refused
from metricfit.training.loop import EpochRecord
from metricfit.training.recipes import Recipe

_TRUSTED = [f"{TablePreprocessor.__module__}.{TablePreprocessor.__qualname__}"]
"""What a saved preprocessor may be, beside scikit-learn's and NumPy's own that skops trusts; its state is plain."""
_MODELS: dict[str, type[models.Model]] = {"networks": models.NetworkModel, "estimators": models.EstimatorModel}
_PREPROCESSING, _HISTORY, _SCORES = "preprocessing.skops", "history.json", "scores.safetensors"
_MOST_NUMBERS = 12_000_000
"""Probabilities kept at most, about 50 MB; beyond it a stratified sample of the rows is kept."""
_SCORE_TYPES = {"truth": np.int32, "decided": np.int32, "baseline_tuned": np.int32, "single_decided": np.int32,
                "fold": np.int32, "proba": np.float32, "baseline": np.float32, "single": np.float32,
                "weight": np.float64}  # fmt: skip
_WIDEST = 4000
"""Bytes of a type of text, 1,000 characters, unless its values need more."""
_LIBRARIES = ("metricfit", "torch", "numpy", "scikit-learn", "pandas", "pyarrow", "safetensors", "skops")
_NOT_KEPT = ("metric", "recipe", "preprocess", "callbacks", "checkpoint_dir", "device", "class_weight")


def write_model(
    folder: Path, classifier: MetricClassifier, description: dict[str, Any], files: Mapping[str, bytes]
) -> None:
    """Write a fitted classifier, its :func:`description_of` and further files: what :func:`metricfit.save` does.

    The folder appears complete or not at all: a process that is killed leaves the old folder or the new one.
    """
    described, history = copy.deepcopy(description), _records(classifier.history_)
    times = [
        [{key: row.pop(key) for key in [*row] if key.endswith("seconds")} for row in rows]
        for rows in ([described["fitted"]], described["leaderboard"], history)
    ]
    contents = {**files, _HISTORY: json.dumps(history).encode(), TIMES: json.dumps(times).encode()}
    contents[DESCRIPTION] = json.dumps(described, allow_nan=False).encode()
    for saved, model in zip(described["models"], classifier.models_.values(), strict=True):
        contents[_file(saved)] = model.to_bytes()
    if classifier.preprocessor_ is not None:
        contents[_PREPROCESSING] = objects.to_bytes(classifier.preprocessor_, _TRUSTED, "preprocess: the transformer")
    if classifier.held_out_ is not None:
        contents[_SCORES] = scores_to_bytes(classifier.held_out_)
    model_folder.write_folder(folder, contents)


def load(folder: str | os.PathLike[str]) -> MetricClassifier:
    """Load a classifier from a folder that :func:`metricfit.save` wrote; it predicts exactly what the saved one did.

    The files are data: they are checked against their checksums and the types that are allowed. Nothing in them is run.

    Raises:
        ModelFolderError: If the folder is incomplete, was changed, has a newer format or holds a type that is not
            allowed.
    """
    return open_model(folder).classifier


def open_model(folder: str | os.PathLike[str]) -> SavedModel:
    """Read a model folder as :func:`load` does, to send files of rows through it or to change its rule."""
    path = Path(folder)
    with refused(path):
        description, contents = model_folder.read_folder(path)
        classifier, given = _rebuild(description, contents), description["notes"].get("input", {})
        preprocessor = classifier.preprocessor_
        columns = preprocessor.columns_ if isinstance(preprocessor, TablePreprocessor) else []
        formats = {column.name: column.format for column in columns}
        if "formats" in given:
            formats = {name: ColumnFormat(**how) for name, how in given["formats"].items()}
        used = {name: formats.get(name, ColumnFormat("number")) for name in description["columns"]["names"] or ()}
        return SavedModel(path, classifier, description, used, [str(text) for text in given.get("missing", ())])


@dataclass
class SavedModel:
    """A model folder and how its input is read."""

    folder: Path
    classifier: MetricClassifier
    description: dict[str, Any]  # the content of model.json
    formats: dict[str, ColumnFormat]  # of each of its columns; empty for a model of an array without column names
    missing: list[str]  # further texts that stand for a missing value

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
        self, data: str | TableFile, *, target: Sequence[str] = (), weight: str | None = None, named: Sequence[str] = ()
    ) -> LabelledTable:
        """The rows of a file that have a label, read as the rows of training were.

        ``target`` are the columns of the true labels, by default those of training; ``named`` those that metrics name.
        """
        file = self._opened(data)
        names = list(target) or self.target
        if not names:
            raise BadArgumentError("target", "the model was not trained from a file; name the column of the labels.")
        labels = self.classifier.classes_.tolist() if self.classifier.task_ == "multilabel" else [""]
        if len(names) != len(labels):
            each = f"{len(labels)} columns, for {', '.join(labels)}" if len(labels) > 1 else "one column"
            raise BadArgumentError("target", f"the model predicts {each}; got {', '.join(map(repr, names))}.")
        if weight is not None:
            file.check_columns([weight], "weight")
        roles = tables.Roles(target=names, weight=weight, named=named)
        table = tables.read_labelled_like(file, roles, self.formats, self.classifier.classes_)
        table.choices[:0] = file.choices
        return table

    def features(self, data: str | TableFile) -> pd.DataFrame:
        """The columns that the model takes, of all rows of a file; the file needs no labels."""
        frames = self._opened(data).frames(self.formats)
        return pd.concat([X for X, _ in frames] or [pd.DataFrame(columns=list(self.formats))])

    def predictions(
        self, data: str | TableFile, *, keep: Sequence[str] = (), raw: bool = False
    ) -> Iterator[pd.DataFrame]:
        """Decisions and probabilities of a file's rows, some ten thousand at a time; at least one frame.

        Columns to ``keep`` are passed through. Unless ``raw``, probabilities are calibrated on what was held out.
        """
        file = self._opened(data)
        file.check_columns(keep, "keep")
        scorer, frame = Scorer(self.classifier, keep=keep, raw=raw), None
        for X, rows in file.frames(self.formats, keep):
            yield (frame := scorer.result(X, {name: rows.table[name].to_pandas() for name in keep}))
        if frame is None:
            yield scorer.result([], {name: [] for name in keep})

    @property
    def files(self) -> dict[str, bytes]:
        """Files of the folder that go with the model into another one."""
        settings = self.folder / "train.toml"
        return {settings.name: settings.read_bytes()} if settings.exists() else {}

    def change_rule(self, rule: DecisionRule, choice: Choice, *, metric: metrics.Metric | None = None) -> None:
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

    def _opened(self, data: str | TableFile) -> TableFile:
        if not self.formats:
            raise ModelFolderError(f"{self.folder}: trained on an array without column names; use it in Python.")
        file = tables.open_table(data) if isinstance(data, str) else data
        return replace(file, gaps=(*tables.GAPS, *self.missing))


def description_of(classifier: MetricClassifier, notes: dict[str, Any] | None = None) -> dict[str, Any]:
    """What ``model.json`` of a fitted classifier will hold, without its checksums; an error if it cannot be saved."""
    check_is_fitted(classifier)
    names = [str(name) for name in getattr(classifier, "feature_names_in_", ())] or None
    kinds = None
    if isinstance(classifier.preprocessor_, TablePreprocessor):
        found = [(c.name, c.format.kind, c.format.reason, c.dropped) for c in classifier.preprocessor_.columns_]
        kinds = [dict(zip(("name", "kind", "reason", "dropped"), each, strict=True)) for each in found]
    return {
        "metric": _spec(classifier.metric_),
        "task": classifier.task_,
        "classes": _classes_to_json(classifier.classes_),
        "columns": {"count": int(classifier.n_features_in_), "names": names, "kinds": kinds},
        "decision_rule": json.loads(classifier.decision_rule_.to_json()),
        "group_thresholds": _groups_to_json(classifier.group_thresholds_),
        "models": [
            {"name": n, "weight": classifier.weights_[n], **m.described()} for n, m in classifier.models_.items()
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


def _rebuild(description: dict[str, Any], contents: dict[str, bytes]) -> MetricClassifier:
    fitted, columns, history = description["fitted"], description["columns"], json.loads(contents[_HISTORY])
    with suppress(Exception):  # times are for people, and not protected
        parts = zip(([fitted], description["leaderboard"], history), json.loads(contents[TIMES]), strict=True)
        for row, more in (pair for rows, times in parts for pair in zip(rows, times, strict=True)):
            row |= {k: value for k, value in more.items() if k.endswith("seconds") and isinstance(value, float)}
    metric, parameters = metrics.get(description["metric"]), dict(description["parameters"])
    # A newer minor version may know further parts; their absence here is their default there.
    recipe = Recipe().with_parts(description["recipe"]).complete()
    if pairs := parameters.pop("class_weight_pairs", None):
        parameters["class_weight"] = pairs if isinstance(pairs, str) else dict(pairs)
    preprocessor = None
    if _PREPROCESSING in contents:
        preprocessor = objects.from_bytes(contents[_PREPROCESSING], _TRUSTED, _PREPROCESSING)
        if not hasattr(preprocessor, "transform"):
            raise ValueError(f"{_PREPROCESSING} holds a {type(preprocessor).__name__}, not a transformer")
    else:
        parameters["preprocess"] = None
    classifier = MetricClassifier(metric, recipe=recipe, **parameters)
    classifier.preprocessor_ = preprocessor
    classifier.metric_, classifier.recipe_, classifier.task_ = metric, recipe, description["task"]
    classifier.classes_ = _classes_from_json(description["classes"])
    classifier.decision_rule_ = DecisionRule.from_json(json.dumps(description["decision_rule"]))
    classifier.group_thresholds_ = _groups_from_json(description.get("group_thresholds"), classifier.classes_)
    classifier.seed_, classifier.best_epochs_ = fitted["seed"], fitted["best_epochs"]
    classifier.fit_seconds_ = fitted.setdefault("fit_seconds", math.nan)
    classifier.choices_ = [Choice(topic, text) for topic, text in fitted["choices"]]
    classifier.n_features_in_, classifier.n_network_inputs_ = columns["count"], fitted["inputs"]
    if columns["names"] is not None:
        classifier.feature_names_in_ = np.array(columns["names"], dtype=object)
    classifier.history_ = _frame(history, EpochRecord._fields)
    classifier.validation_report_ = _frame(description["validation_report"], REPORT_COLUMNS)
    classifier.leaderboard_ = _frame(description["leaderboard"], LEADERBOARD_COLUMNS)
    classifier.weights_ = {m["name"]: float(m["weight"]) for m in description["models"]}
    if not all(0 <= weight <= 1 for weight in classifier.weights_.values()):
        raise ValueError("weights of models that are not between 0 and 1")
    if len({_file(saved) for saved in description["models"]}) < len(description["models"]):
        raise ValueError("several models in one file")  # each would take the time of that file again
    classifier.models_ = {}
    for saved in description["models"]:
        if saved["outputs"] != len(classifier.classes_):
            raise ValueError(f"{len(classifier.classes_)} classes for a model of {saved['outputs']} outputs")
        restored = _MODELS[saved["kind"]].restored
        model = restored(saved["name"], saved, contents[_file(saved)], classifier.task_, recipe)
        classifier.models_[saved["name"]] = model
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


def _groups_to_json(groups: GroupThresholds | None) -> dict[str, Any] | None:
    if groups is None:
        return None
    kept = {"column": groups.column, "shared": groups.shared, "value": groups.value}
    return kept | {"thresholds": [[name, limit] for name, limit in groups.thresholds.items()]}


def _groups_from_json(saved: dict[str, Any] | None, classes: NDArray[Any]) -> GroupThresholds | None:
    if saved is None:
        return None
    thresholds = {name: float(limit) for name, limit in saved["thresholds"]}
    value, shared = float(saved["value"]), float(saved["shared"])
    if not np.isfinite([value, shared, *thresholds.values()]).all() or len(classes) != 2:
        raise ValueError("cut-offs of groups that are no numbers, or not of two classes")
    return GroupThresholds(str(saved["column"]), tuple(classes.tolist()), thresholds, value, shared)


def _classes_to_json(classes: NDArray[Any]) -> dict[str, Any]:
    values = classes.tolist()
    if any(not isinstance(value, str | int | float) for value in values):
        raise ValueError(f"classes: only text, numbers and truth values can be saved, got {values[0]!r}.")
    dtype = classes.dtype if classes.dtype.itemsize <= _WIDEST else np.array(values).dtype
    return {"values": values, "dtype": "object" if dtype.kind == "O" else dtype.str}


def _classes_from_json(saved: dict[str, Any]) -> NDArray[Any]:
    dtype, values = np.dtype(saved["dtype"]), saved["values"]
    if not isinstance(values, list) or any(not isinstance(value, str | int | float) for value in values):
        raise ValueError("classes that are not text, numbers or truth values")
    if dtype.kind not in "biufUO" or dtype.itemsize > max(_WIDEST, np.array(values, dtype=str).itemsize):
        raise ValueError(f"classes of type {saved['dtype']!r:.100}")
    return np.array(values, dtype=dtype)


def _parameters(classifier: MetricClassifier) -> dict[str, Any]:
    """The constructor's arguments that are plain values."""
    kept: dict[str, Any] = {}
    for name, value in classifier.get_params(deep=False).items():
        plain = value.item() if isinstance(value, np.generic) else value
        texts = isinstance(plain, list | tuple) and all(isinstance(part, str) for part in plain)
        if name not in _NOT_KEPT and (texts or plain is None or isinstance(plain, bool | int | float | str)):
            kept[name] = plain
    weight: Any = classifier.class_weight
    if isinstance(weight, dict):  # whose keys need not be text
        weight = [[k.item() if isinstance(k, np.generic) else k, float(v)] for k, v in weight.items()]
    return kept if weight is None else kept | {"class_weight_pairs": weight}


def _recipe_parts(recipe: Recipe) -> dict[str, Any]:
    """The parts as plain values; a step is kept by its spec."""
    spec = str(recipe.step)
    with suppress(ValueError):
        steps.get(spec)
        return recipe.parts() | {"step": spec}
    raise ValueError("recipe: its step is a Python function, loading must not run code; use one of metricfit.steps.")


def _file(saved: dict[str, Any]) -> str:
    return f"{saved['name']}.{'safetensors' if saved['kind'] == 'networks' else 'skops'}"


def _frame(records: list[dict[str, Any]], columns: Iterable[str]) -> pd.DataFrame:
    frame = pd.DataFrame(records, columns=list(columns))
    return frame.astype({name: float for name in columns if name not in ("model", "note", "rows", "epoch", "active")})


def _records(report: pd.DataFrame) -> list[dict[str, Any]]:
    rows = report.to_dict(orient="records")
    return [{str(k): None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()} for row in rows]


def scores_to_bytes(scores: HeldOutScores) -> bytes:
    """Held-out scores as a safetensors file; what is no array is kept as JSON in the array ``about``."""
    width = scores.proba.shape[1] * (1 + (scores.baseline is not None) + (scores.single is not None))
    scores = scores.sample(max(1, _MOST_NUMBERS // width))
    about: dict[str, Any] = {n: getattr(scores, n) for n in ("source", "total", "cross_fitted", "single_name")}
    about["columns"], parts = [], dict[str, Any]()
    for name, dtype in _SCORE_TYPES.items():
        if (part := getattr(scores, name)) is not None:
            parts[name] = np.ascontiguousarray(part, dtype=dtype)
    for name, values in scores.columns.items():  # of text the levels are kept apart
        levels: Any = None
        if values.dtype.kind not in "biuf":
            levels, values = np.unique(values.astype(str), return_inverse=True)
        parts[f"column_{len(about['columns'])}"] = np.ascontiguousarray(values)
        about["columns"].append([name, levels if levels is None else levels.tolist()])
    parts["about"] = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
    return bytes(safetensors.numpy.save(parts))


def scores_from(content: bytes) -> HeldOutScores:
    """Read :func:`scores_to_bytes` back; whatever does not fit together is an error."""
    parts: dict[str, Any] = safetensors.numpy.load(content)
    about, columns = json.loads(parts.pop("about").tobytes()), dict[str, Any]()
    for k, (name, levels) in enumerate(about.pop("columns")):
        values = parts.pop(f"column_{k}")
        columns[str(name)] = values if levels is None else np.array(levels, dtype=str)[values]
    if wrong := [name for name, part in parts.items() if part.dtype != _SCORE_TYPES[name]]:
        raise ValueError(f"the scores hold a {wrong[0]} of type {parts[wrong[0]].dtype}")
    parts |= {name: part.astype(np.int64) for name, part in parts.items() if part.dtype == np.int32}
    about |= {"source": str(about["source"]), "cross_fitted": bool(about["cross_fitted"])}
    return HeldOutScores(**parts, **about, columns=columns)
