"""Compare methods on the same random splits of a table: networks trained on the metric, the usual way, and trees.

>>> from sklearn.datasets import load_iris
>>> X, y = load_iris(return_X_y=True, as_frame=True)
>>> comparison = Comparison(X, y, "f1", methods=["boosting", "random-forest"], splits=2)
>>> [row["method"] for row in comparison.run()] == ["boosting", "random-forest"] or "random-forest came first"
True
"""

from __future__ import annotations

import json
import math
import os
import re
import socket
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import joblib
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from metricfit.assess import Decided, leaderboard
from metricfit.assess.verdicts import assess
from metricfit.choices import close_to
from metricfit.classifier import MetricClassifier
from metricfit.data.reader import BadArgumentError
from metricfit.decisions.rules import argmax_rule
from metricfit.files import names_the_file, written_whole
from metricfit.labels import read_target, rows_columns
from metricfit.metrics import MetricLike, resolve
from metricfit.models.estimators import BOOSTING_LIBRARIES, all_classes
from metricfit.training.checkpoint import fingerprint
from metricfit.training.recipes import Recipe
from metricfit.training.rows import Split, split_rows

__all__ = ["METHODS", "Comparison", "Method", "available_methods"]


@dataclass(frozen=True)
class Method:
    """A way to fit and decide: models of the portfolio, the recipe of its networks, and whether the rule is tuned.

    Without a tuned rule trees decide by arg max; networks decide as their recipe says.
    """

    models: str = "auto"
    recipe: Recipe = field(default_factory=Recipe)
    tuned: bool = True


_TREES = {"random-forest": "forest", "boosting": "boosting", "xgboost": "xgboost", "lightgbm": "lightgbm"}
METHODS = {
    "metricfit": Method(),
    "network": Method("network"),
    "east": Method("network", Recipe("east", patience=10, min_delta=1e-4, batch_size=512)),
    "cross-entropy": Method("network", Recipe("log_loss")),
    "cross-entropy-weighted": Method("network", Recipe("log_loss", balance="full")),
    "cross-entropy-tuned": Method("network", Recipe("log_loss", rule="tuned")),
    **{f"{name}{end}": Method(kind, tuned=bool(end)) for name, kind in _TREES.items() for end in ("", "-tuned")},
}
"""What can be compared, by name."""


def available_methods() -> list[str]:
    """The names of the methods whose packages are installed."""
    return [n for n, method in METHODS.items() if method.models not in BOOSTING_LIBRARIES or find_spec(method.models)]


class Comparison:
    """Methods × splits; each result is kept in a file as soon as it is there.

    Args:
        X: The table (rows, columns), a pandas frame.
        y: Classes (rows,), or a frame of 0/1 labels (rows, labels).
        metric: What methods are judged by.
        methods: Names of :data:`METHODS`; None for all whose packages are installed. The first is the reference.
        splits: Random splits into 80 % to train on and 20 % to test.
        sample_weight: Weight of each row (rows,).
        groups: Rows of one group are never split (rows,).
        max_epochs: Bound on the networks' training.
        out: A file of one JSON line per result. What is in it is not computed again.
        overwrite: Whether to start anew instead.
        random_state: Seed.
        columns: The columns that the metric names and X has not.

    Attributes:
        metric: The metric with its class or average written out.
        methods: The methods' names.
        results: One dict per result: split, method, value, seconds, error, note.
        todo: (split, method) of the results that are not there yet.
    """

    def __init__(
        self, X: pd.DataFrame, y: Any, metric: MetricLike = "f1", *, methods: Sequence[str] | None = None,
        splits: int = 5, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None,
        max_epochs: int | None = None, out: str | Path | None = None, overwrite: bool = False, random_state: int = 0,
        columns: Mapping[str, ArrayLike] | None = None,
    ) -> None:  # fmt: skip
        self.methods = _known_methods(methods)
        self.X, self.target = X, read_target(y, len(X))
        self.metric = resolve(metric, self.target.labels, self.target.task)[0]
        self.weight = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        self.groups = None if groups is None else np.asarray(groups)
        self.columns = rows_columns(self.metric.columns, X, columns, len(X))
        self.splits, self.seed, self.max_epochs = splits, random_state, max_epochs
        self.path = None if out is None else Path(out)
        self._identity = self._made_of()
        self.results = [] if self.path is None else _kept(self.path, self._identity, overwrite)
        done = {(row["split"], row["method"]) for row in self.results}
        wanted = [(split, name) for split in range(splits) for name in self.methods]
        self.todo = [unit for unit in wanted if unit not in done]

    def run(
        self, *, jobs: int = 1, backend: str | None = None, progress: Callable[[dict[str, Any]], None] | None = None
    ) -> list[dict[str, Any]]:
        """Compute what is missing, ``jobs`` fits at a time (-1 for one per core), and give the leaderboard.

        ``backend`` is one of joblib's: ``"loky"``, ``"threading"``, or for several machines ``"dask"``, ``"ray"``;
        ``progress`` is called with each result.
        """
        with _joblib_backend(backend), _placed(self, jobs) as place:
            for row in _run_all([joblib.delayed(_result_of)(place, *unit) for unit in self.todo], jobs):
                self.results.append(row)
                self.todo.remove((row["split"], row["method"]))
                if self.path is not None:
                    with names_the_file(self.path), self.path.open("a", encoding="utf-8") as log:
                        log.write(json.dumps({**row, "run": self._identity}) + "\n")
                if progress is not None:
                    progress(row)
        return self.leaderboard()

    def leaderboard(self) -> list[dict[str, Any]]:
        """Methods from best to worst, as :func:`metricfit.assess.leaderboard` makes it; empty if all failed."""
        rows = [r for r in self.results if r["method"] in self.methods and r["split"] < self.splits]
        return leaderboard(rows, self.methods, bool(self.metric.greater_is_better)) if rows else []

    def _made_of(self) -> str:
        """What the results depend on, as a short text."""
        labels = self.target.labels if self.target.task == "multilabel" else ()
        rest = [str(self.metric), self.seed, self.max_epochs, list(self.X.columns), labels]
        hashed, truth = pd.util.hash_pandas_object(self.X, index=False).to_numpy(), self.target.truth.astype(str)
        named = [column.astype(str) for column in self.columns.values()]
        return fingerprint(hashed, truth, self.weight, self.groups, *named, np.array(json.dumps(rest)))

    def _result(self, split: int, name: str) -> dict[str, Any]:
        """Fit one method on one split and score it."""
        codes = self.target.codes
        (rows,) = split_rows(codes, None, groups=self.groups, random=np.random.default_rng([self.seed, split]))
        row = {"split": split, "method": name, "value": math.nan, "seconds": 0.0, "error": "", "note": ""}
        started = time.perf_counter()
        try:
            with warnings.catch_warnings(action="ignore"):
                decided, proba = self._decided(METHODS[name], rows, self.seed + split)
        except Exception as error:
            return {**row, "value": None, "error": f"{type(error).__name__}: {error}"}
        row["seconds"] = time.perf_counter() - started
        weight = None if self.weight is None else self.weight[rows.validation]
        columns = {name: values[rows.validation] for name, values in self.columns.items()}
        judged = Decided(codes[rows.validation], decided, self.target.labels, proba, weight, columns)
        found = assess(name, self.metric, judged)
        return {**row, "value": found.estimate.value, "note": found.note.removeprefix("with ")}

    def _decided(self, method: Method, rows: Split, seed: int) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """The decisions and probabilities of a split's test rows."""
        shorter: dict[str, Any] = {} if self.max_epochs is None else {"max_epochs": self.max_epochs, "min_updates": 0}
        weight, groups = (None if part is None else part[rows.train] for part in (self.weight, self.groups))
        folds = "auto" if groups is None else max(2, min(5, len(np.unique(groups))))
        model = MetricClassifier(
            self.metric, models=method.models, recipe=method.recipe.with_parts(shorter), baseline=False, cv=folds,
            verbose=False, random_state=seed,
        )  # fmt: skip
        y, classes = self.target.truth[rows.train], self.target.classes
        target = pd.DataFrame(y, columns=classes) if y.ndim == 2 else y
        model.fit(self.X.iloc[rows.train], target, weight, groups, {n: c[rows.train] for n, c in self.columns.items()})
        proba = model.predict_proba(self.X.iloc[rows.validation], raw=True)
        rule = model.decision_rule_
        if not method.tuned:
            proba = model._by_group(proba, self.X.iloc[rows.validation], back=True)
            rule = argmax_rule(y, tuple(model.classes_.tolist()))
        decided = rule.decide(proba)
        if len(model.classes_) < len(classes):  # some have no row in this split
            place = np.searchsorted(classes, model.classes_)
            decided, proba = np.where(decided < 0, -1, place[decided]), all_classes(proba, place, len(classes))
        return decided, proba


@contextmanager
def _joblib_backend(name: str | None) -> Iterator[None]:
    """Let joblib run on a backend; without a name, on the one that is active.

    Dask's cluster is the one that ``DASK_SCHEDULER_ADDRESS`` names, or one on this machine; Ray's likewise.
    """
    variable = {"dask": "DASK_SCHEDULER_ADDRESS", "ray": "RAY_ADDRESS"}.get(name or "", "")
    with ExitStack() as stack:
        try:
            if found := re.fullmatch(r"(?:\w+://)?(.+):(\d+)", os.environ.get(variable, "")):
                socket.create_connection((found[1], int(found[2])), timeout=10).close()  # Ray itself waits for minutes
            if name == "dask":
                stack.enter_context(import_module("distributed").Client())
            elif name == "ray":
                import_module("ray").init(ignore_reinit_error=True)
                import_module("ray.util.joblib").register_ray()
            if name is not None:
                stack.enter_context(joblib.parallel_config(backend=name))
        except ImportError as error:
            package = str(error.name).split(".")[0]
            raise ImportError(f"backend: needs the package {package}: pip install {package}.") from None
        except ValueError as error:
            raise BadArgumentError("backend", str(error)) from None
        except OSError as error:
            told = f"nothing answers at {os.environ.get(variable, 'its address')} ({error})"
            raise BadArgumentError("backend", f"{name}: {told}; start the cluster, or correct {variable}.") from None
        yield


@contextmanager
def _placed(comparison: Comparison, jobs: int) -> Iterator[Any]:
    """What stands for a comparison in every call: its table is sent to a cluster, or written to a file, once."""
    backend = joblib.parallel.get_active_backend()[0]
    if hasattr(backend, "client"):  # Dask's
        yield backend.client.scatter(comparison, broadcast=True, hash=False)
    elif "Ray" in type(backend).__name__:
        ray = import_module("ray")
        yield partial(ray.get, ray.put(comparison))
    elif getattr(backend, "supports_sharedmem", False) or joblib.effective_n_jobs(jobs) == 1:
        yield comparison
    else:
        with TemporaryDirectory(prefix="metricfit") as folder:
            yield partial(_read_back, joblib.dump(comparison, os.path.join(folder, "comparison"))[0])


@lru_cache(1)
def _read_back(path: str) -> Comparison:
    """A comparison whose numbers stay in the file, which all processes of a machine share."""
    return joblib.load(path, mmap_mode="r")  # type: ignore[no-any-return]


def _result_of(place: Any, split: int, name: str) -> dict[str, Any]:
    with joblib.parallel_config(backend="threading"):  # else the folds of one fit would travel too
        return (place() if callable(place) else place)._result(split, name)  # type: ignore[no-any-return]


def _run_all(calls: Sequence[Any], jobs: int) -> Iterator[Any]:
    """Results as soon as they are ready, in that order, where the backend can hand them over so."""
    backend = joblib.parallel.get_active_backend()[0]
    if getattr(backend, "supports_return_generator", False):
        yield from joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", pre_dispatch="n_jobs")(calls)
        return
    size = max(1, joblib.effective_n_jobs(jobs))
    for start in range(0, len(calls), size):
        yield from joblib.Parallel(n_jobs=jobs)(calls[start : start + size])


def _known_methods(given: Sequence[str] | None) -> list[str]:
    installed = available_methods()
    for name in given or ():
        if name not in METHODS:
            raise BadArgumentError("methods", f"no method {name!r}; {close_to(name, METHODS)}")
        if name not in installed:
            package = METHODS[name].models
            raise BadArgumentError("methods", f"{name!r} needs the package {package}: pip install 'metricfit[boost]'.")
    return list(dict.fromkeys(given or installed))


def _kept(path: Path, identity: str, overwrite: bool) -> list[dict[str, Any]]:
    if not path.exists() or overwrite:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("", encoding="utf-8")
        return []
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue  # the line that a kill cut off
        if not isinstance(row, dict) or row.get("run") != identity:
            other = "other data, metric, seed or columns"
            reason = f"{path} holds results of another comparison ({other}); choose another file, or overwrite it."
            raise BadArgumentError("out", reason)
        kept.append((line, row))
    with written_whole(path) as whole:
        whole.write_text("".join(line + "\n" for line, _ in kept), encoding="utf-8")
    return [row for _, row in kept if not row["error"]]
