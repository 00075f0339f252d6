"""Compare methods on the same random splits of a table: networks trained on the metric, the usual way, and trees.

>>> from sklearn.datasets import load_iris
>>> X, y = load_iris(return_X_y=True, as_frame=True)
>>> comparison = Comparison(X, y, "f1", methods=["boosting", "random-forest"], splits=2)
>>> [row["method"] for row in comparison.run()] == ["boosting", "random-forest"] or "random-forest came first"
True
"""

from __future__ import annotations

import hashlib
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from metricfit.assess import leaderboard
from metricfit.classifier import MetricClassifier
from metricfit.data.reader import BadArgumentError, close_to
from metricfit.decisions.rules import argmax_rule
from metricfit.inputs import Task
from metricfit.metrics import Constrained, Metric, MetricLike, resolve
from metricfit.models.estimators import BOOSTING_LIBRARIES
from metricfit.training.recipes import Recipe
from metricfit.training.rows import split_rows

__all__ = ["METHODS", "Comparison", "available_methods"]


@dataclass(frozen=True)
class Part:
    """Rows to fit a method on, with classes (rows,) or 0/1 labels (rows, labels), and rows ``X_test`` to decide on."""

    X: pd.DataFrame
    y: NDArray[Any]
    weight: NDArray[np.float64] | None
    groups: NDArray[Any] | None
    X_test: pd.DataFrame
    classes: NDArray[Any]
    metric: Metric
    seed: int
    max_epochs: int | None


Method = Callable[[Part], tuple[NDArray[Any], NDArray[np.float64]]]
"""From rows to the labels and probabilities of the test rows."""


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

    Attributes:
        metric: The metric with its class or average written out.
        methods: The methods' names.
        results: One dict per result: split, method, value, seconds, error, note.
        todo: (split, method) of the results that are not there yet.
    """

    def __init__(
        self,
        X: pd.DataFrame,
        y: Any,
        metric: MetricLike = "f1",
        *,
        methods: Sequence[str] | None = None,
        splits: int = 5,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        max_epochs: int | None = None,
        out: str | Path | None = None,
        overwrite: bool = False,
        random_state: int = 0,
    ) -> None:
        self.methods = _known_methods(methods)
        labels = y.columns.to_numpy(dtype=object) if isinstance(y, pd.DataFrame) else None
        truth = np.asarray(y)
        classes = np.unique(truth) if labels is None else labels
        self.task: Task = "multilabel" if labels is not None else "binary" if len(classes) == 2 else "multiclass"
        self.metric = resolve(metric, tuple(classes.tolist()), self.task)[0]
        weight = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        rows = None if groups is None else np.asarray(groups)
        self._all = Part(X, truth, weight, rows, X, classes, self.metric, random_state, max_epochs)
        self.splits, self.path = splits, None if out is None else Path(out)
        self._identity = _identity(self._all)
        self.results = [] if self.path is None else _kept(self.path, self._identity, overwrite)
        done = {(row["split"], row["method"]) for row in self.results}
        wanted = [(split, name) for split in range(splits) for name in self.methods]
        self.todo = [unit for unit in wanted if unit not in done]

    def run(
        self, *, jobs: int = 1, backend: str | None = None, progress: Callable[[dict[str, Any]], None] | None = None
    ) -> list[dict[str, Any]]:
        """Compute what is missing.

        Args:
            jobs: Fits at the same time; -1 for one per core.
            backend: A joblib backend: ``"loky"``, ``"threading"``, or one for several machines: ``"dask"``, ``"ray"``.
            progress: Called with each result.

        Returns:
            The leaderboard; see :meth:`leaderboard`.
        """
        calls = [(self._all, self.task, split, name) for split, name in self.todo]
        with _joblib_backend(backend), ExitStack() as stack:
            log = None if self.path is None else stack.enter_context(self.path.open("a", encoding="utf-8"))
            for row in _run_all(_result, calls, jobs):
                self.results.append(row)
                self.todo.remove((row["split"], row["method"]))
                if log is not None:
                    log.write(json.dumps({**row, "run": self._identity}) + "\n")
                    log.flush()
                if progress is not None:
                    progress(row)
        return self.leaderboard()

    def leaderboard(self) -> list[dict[str, Any]]:
        """Methods from best to worst, as :func:`metricfit.assess.leaderboard` makes it; empty if all failed."""
        rows = [r for r in self.results if r["method"] in self.methods and r["split"] < self.splits]
        return leaderboard(rows, self.methods, bool(self.metric.greater_is_better)) if rows else []


@contextmanager
def _joblib_backend(name: str | None) -> Iterator[None]:
    """Let joblib run on a backend; without a name, on the one that is active.

    Dask's cluster is the one that ``DASK_SCHEDULER_ADDRESS`` names, or one on this machine; Ray's likewise.
    """
    with ExitStack() as stack:
        if name == "dask":
            stack.enter_context(_needed("distributed").Client())
        elif name == "ray":
            _needed("ray.util.joblib").register_ray()
        if name is not None:
            try:
                stack.enter_context(joblib.parallel_config(backend=name))
            except ValueError as error:
                raise BadArgumentError("backend", str(error)) from None
        yield


def _run_all(function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], jobs: int) -> Iterator[Any]:
    """Results as soon as they are ready, in that order, where the backend can hand them over so."""
    calls = [joblib.delayed(function)(*given) for given in arguments]
    backend = joblib.parallel.get_active_backend()[0]
    if getattr(backend, "supports_return_generator", False):
        yield from joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", pre_dispatch="n_jobs")(calls)
        return
    size = max(1, joblib.effective_n_jobs(jobs))
    for start in range(0, len(calls), size):
        yield from joblib.Parallel(n_jobs=jobs)(calls[start : start + size])


def _needed(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        package = module.split(".")[0]
        raise ImportError(f"backend: needs the package {package}: pip install {package}.") from None


def _known_methods(given: Sequence[str] | None) -> list[str]:
    installed = available_methods()
    for name in given or ():
        if name not in METHODS:
            raise BadArgumentError("methods", f"no method {name!r}; {close_to(name, METHODS)}")
        if name not in installed:
            needs = f"{name!r} needs the package {METHODS[name][0]}: pip install 'metricfit[boost]'."
            raise BadArgumentError("methods", needs)
    return list(dict.fromkeys(given or installed))


def _identity(part: Part) -> str:
    digest = hashlib.sha256(pd.util.hash_pandas_object(part.X, index=False).to_numpy().tobytes())
    for array in (part.y.astype(str), part.weight, part.groups):
        digest.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
    labels = part.classes.tolist() if part.y.ndim == 2 else []
    digest.update(json.dumps([str(part.metric), part.seed, part.max_epochs, list(part.X.columns), labels]).encode())
    return digest.hexdigest()[:16]


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
    path.write_text("".join(line + "\n" for line, _ in kept), encoding="utf-8")
    return [row for _, row in kept if not row["error"]]


def _result(everything: Part, task: str, split: int, method: str) -> dict[str, Any]:
    """Fit one method on one split and score it."""
    y, metric = everything.y, everything.metric
    codes = y if y.ndim == 2 else np.unique(y, return_inverse=True)[1]
    random = np.random.default_rng([everything.seed, split])
    (rows,) = split_rows(codes, None, groups=everything.groups, random=random)

    def some(values: Any, where: Any) -> Any:
        return None if values is None else values[where]

    part = replace(
        everything,
        X=everything.X.iloc[rows.train],
        y=y[rows.train],
        weight=some(everything.weight, rows.train),
        groups=some(everything.groups, rows.train),
        X_test=everything.X.iloc[rows.validation],
        seed=everything.seed + split,
    )
    row = {"split": split, "method": method, "value": math.nan, "seconds": 0.0, "error": "", "note": ""}
    started = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            decided, proba = METHODS[method][1](part)
    except Exception as error:
        return {**row, "value": None, "error": f"{type(error).__name__}: {error}"}
    row["seconds"] = time.perf_counter() - started
    objective = metric.objective if isinstance(metric, Constrained) else metric
    score = (proba[:, 1] if task == "binary" else proba) if objective.judges_scores else decided
    truth, weight = y[rows.validation], some(everything.weight, rows.validation)
    labels = tuple(part.classes.tolist())
    row["value"] = float(objective.score(truth, score, weight, labels=labels))
    if isinstance(metric, Constrained):
        reached = [(c.metric, c.metric.score(truth, decided, weight, labels=labels)) for c in metric.constraints]
        row["note"] = ", ".join(f"{name} {value:.4f}" for name, value in reached)
    return row


def _method(models: str, recipe: Recipe | None = None, *, tuned: bool = True) -> Method:
    """Fit models of the portfolio; without ``tuned`` they decide by arg max."""

    def fit(part: Part) -> tuple[NDArray[Any], NDArray[np.float64]]:
        shorter: dict[str, Any] = {} if part.max_epochs is None else {"max_epochs": part.max_epochs, "min_updates": 0}
        model = MetricClassifier(
            part.metric, models=models, recipe=(recipe or Recipe()).with_parts(shorter), baseline=False, verbose=False,
            cv="auto" if part.groups is None else max(2, min(5, len(np.unique(part.groups)))), random_state=part.seed,
        )  # fmt: skip
        target = pd.DataFrame(part.y, columns=part.classes) if part.y.ndim == 2 else part.y
        model.fit(part.X, target, part.weight, part.groups)
        proba = model.predict_raw_proba(part.X_test)
        rule = model.decision_rule_ if tuned else argmax_rule(part.y, tuple(model.classes_.tolist()))
        decided = rule.apply(proba)
        if len(model.classes_) < len(part.classes):  # some have no row in this split
            seen, proba = proba, np.zeros((len(proba), len(part.classes)))
            proba[:, np.searchsorted(part.classes, model.classes_)] = seen
        return decided, proba

    return fit


def _methods() -> Iterator[tuple[str, tuple[str, Method]]]:
    yield "metricfit", ("", _method("auto"))
    yield "network", ("", _method("network"))
    yield "east", ("", _method("network", Recipe("east")))
    yield "cross-entropy", ("", _method("network", Recipe("log_loss")))
    yield "cross-entropy-weighted", ("", _method("network", Recipe("log_loss", balance="full")))
    yield "cross-entropy-tuned", ("", _method("network", Recipe("log_loss", rule="tuned")))
    for name, model in (("random-forest", "forest"), ("boosting", "boosting"), ("xgboost",) * 2, ("lightgbm",) * 2):
        package = model if model in BOOSTING_LIBRARIES else ""
        yield name, (package, _method(model, tuned=False))
        yield f"{name}-tuned", (package, _method(model))


METHODS: dict[str, tuple[str, Method]] = dict(_methods())
"""Each method with the package it needs, if any."""


def available_methods() -> list[str]:
    """The names of the methods whose packages are installed."""
    return [name for name, (package, _) in METHODS.items() if not package or find_spec(package) is not None]
