"""Models with scikit-learn's interface: forests, boosting, the boosting libraries, and the user's own."""

from __future__ import annotations

import contextlib
import importlib.util
import tempfile
import time
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
import torch
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.validation import has_fit_parameter
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from metricfit import objects
from metricfit.choices import Range, Space, parts_of
from metricfit.inputs import Task, expect
from metricfit.models.portfolio import Array, Model
from metricfit.training.checkpoint import CheckpointFile
from metricfit.training.loop import Progress
from metricfit.training.recipes import WIDE, Recipe
from metricfit.training.rows import Folds, Split, Table

Form = Literal["trees", "dense", "given"]

DEFAULT = ("boosting", "extra_trees", "forest", "network_ce", "network")
"""The portfolio of ``models="auto"``, the cheap ones first."""

BOOSTING_LIBRARIES = ("lightgbm", "xgboost", "catboost")  # each needs a package of its own
TREES = 100  # of a forest, in each fold
ROUNDS = 500  # trees of boosting at most …
PATIENCE = 20  # … until so many in a row have not improved the log-loss of the fold's validation rows
FEW_BINS = 32  # of a column of a wide table: histograms, not rows, are what boosting works on there
SMALL_WORK = 20_000  # rows times fits below which threads cost more than they bring


_ENSEMBLE: Space = {"max_features": Range(0.1, 1.0, log=False), "min_samples_leaf": Range(1, 50)}
_RATE, _SHARE = Range(0.02, 0.3), Range(0.3, 1.0, log=False)
SPACES: dict[str, Space] = {
    "forest": _ENSEMBLE,
    "extra_trees": _ENSEMBLE,
    "boosting": {
        "learning_rate": _RATE, "max_leaf_nodes": Range(4, 128), "min_samples_leaf": Range(2, 100),
        "l2_regularization": Range(1e-3, 100.0), "max_features": _SHARE,
    },
    "lightgbm": {
        "learning_rate": _RATE, "num_leaves": Range(4, 128), "min_child_samples": Range(2, 100),
        "reg_lambda": Range(1e-3, 100.0), "colsample_bytree": _SHARE,
    },
    "xgboost": {
        "learning_rate": _RATE, "max_depth": Range(2, 10), "min_child_weight": Range(0.1, 100.0),
        "reg_lambda": Range(1e-3, 100.0), "colsample_bytree": _SHARE,
    },
    "catboost": {"learning_rate": _RATE, "depth": Range(2, 10), "l2_leaf_reg": Range(0.1, 100.0)},
}  # fmt: skip
"""The parameters of the built-in models that a spec may set, and what a search may try."""


def _named_estimator(name: str, folds: Folds, rows: int) -> Any:
    """A new estimator of the built-in models, for the folds and the rows of one."""
    stops, leaf, categories = folds.held_out, max(2, min(20, rows // 50)), folds.table.categories
    if name in ("forest", "extra_trees"):
        kind = RandomForestClassifier if name == "forest" else ExtraTreesClassifier
        return kind(TREES, min_samples_leaf=max(2, rows // 10_000))  # where rows are many, trees stay small
    if name == "boosting":
        rounds = max(100, ROUNDS * 3 // max(3, len(folds.labels)))  # each of one tree per class
        how: dict[str, Any] = {"max_iter": rounds if stops else 100, "n_iter_no_change": PATIENCE}
        how["categorical_features"] = categories if categories.any() else None
        how["max_bins"] = FEW_BINS if len(categories) > WIDE and not categories.any() else 255
        # Without a penalty, leaves of a rare class take huge steps.
        return HistGradientBoostingClassifier(min_samples_leaf=leaf, l2_regularization=1.0, **how)
    library, threads = importlib.import_module(name), 1 if len(folds.splits) > 1 else -1  # folds run in parallel
    if name == "catboost":
        rounds, columns = ROUNDS * 2 if stops else 300, np.flatnonzero(categories).tolist()
        options = {"allow_writing_files": False, "verbose": False, "thread_count": threads, "random_state": 0}
        return library.CatBoostClassifier(iterations=rounds, cat_features=columns or None, **options)
    common = {"n_estimators": ROUNDS * 4 if stops else 100, "learning_rate": 0.05, "n_jobs": threads}
    if name == "lightgbm":
        # By default categories of fewer than 100 rows are left out.
        return library.LGBMClassifier(**common, min_child_samples=leaf, min_data_per_group=leaf, verbose=-1)
    kinds = np.where(categories, "c", "q").tolist() if categories.any() else None
    return library.XGBClassifier(**common, enable_categorical=True, feature_types=kinds)


def names_of(models: Any) -> list[tuple[str, Any]]:
    """The models of a portfolio by name; an estimator of the user's comes with it, parameters with the built-in ones.

    >>> from sklearn.naive_bayes import GaussianNB
    >>> names_of(["network", "forest:min_samples_leaf=5", GaussianNB()])
    [('forest', {'min_samples_leaf': 5}), ('gaussiannb', GaussianNB()), ('network', {})]
    """
    several = models if isinstance(models, list | tuple) else [models]
    given = [each for model in several for each in (DEFAULT if isinstance(model, str) and model == "auto" else [model])]
    found: list[tuple[str, Any]] = []
    known = ("network", "network_ce", "forest", "extra_trees", "boosting", *BOOSTING_LIBRARIES)
    for model in given:
        named, taken = isinstance(model, str), [other for other, _ in found]
        pair: tuple[str, Any] = parts_of(model) if named else (type(model).__name__.lower(), model)
        name, with_it = pair
        if named:
            expected = f"'auto', one or several of {', '.join(known)}, or scikit-learn classifiers"
            expect(name in known, "models", expected, model)
            if unknown := sorted(with_it.keys() - SPACES.get(name, {}).keys()):
                takes = ", ".join(SPACES[name]) if name in SPACES else "none, networks are trained as the recipe says"
                raise ValueError(f"models: {name!r} has no parameter {unknown[0]!r}; it takes {takes}.")
            if name in taken:
                raise ValueError(f"models: {name!r} is given twice; leave one out.")
        while name in taken:
            name += "_2"
        found.append((name, with_it))
    if not found:
        raise ValueError("models: expected at least one model, got none.")
    # The cheap ones first, whatever the order they are named in; one's own and the libraries' before the networks.
    order = {name: place for place, name in enumerate(DEFAULT)}
    return sorted(found, key=lambda pair: order.get(pair[0], order["forest"]))


TRUSTED = [
    "functools.partial",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.tree._tree.Tree",
    "sklearn.utils.validation.check_array",
]
"""What scikit-learn's trees are made of, beside the types that skops trusts; none of it runs what a file holds."""


class EstimatorModel(Model):
    """One estimator per fold.

    ``estimator`` is a scikit-learn classifier (a pipeline gets the table as given, others numbers without gaps), or has
    the parameters of the built-in model of this ``name`` that are not as usual. ``n_jobs`` folds run in threads.
    """

    def __init__(
        self, name: str, estimator: Any = None, n_jobs: int | None = None, checkpoint: CheckpointFile | None = None
    ) -> None:
        own = estimator is not None and not isinstance(estimator, dict)
        if not own and name in BOOSTING_LIBRARIES and importlib.util.find_spec(name) is None:
            raise ImportError(f"models: {name!r} needs the package {name}; pip install {name}.")
        for method in ("fit", "predict_proba", "get_params") if own else ():
            if not hasattr(estimator, method):
                expected = "names or scikit-learn classifiers with predict_proba"
                raise TypeError(f"models: expected {expected}, got {estimator!r}, which has no {method}.")
        self.estimator: Any = estimator if own else None
        self.parameters: dict[str, Any] = {} if own else dict(estimator or {})
        self.name, self.n_jobs, self.checkpoint = name, n_jobs, checkpoint
        self.form: Form = "trees" if not own else "given" if isinstance(estimator, Pipeline) else "dense"
        # The fitted estimators of each fold: one, or one per label where the estimator itself does not take several.
        self.fits: list[list[Any]] = []
        self.outputs = 0

    def fit(self, folds: Folds, until: float, progress: Progress) -> list[Array]:
        """Fit every fold, several at a time."""
        self.outputs, self.several = len(folds.labels), folds.task == "multilabel"
        if self.checkpoint is not None and (state := self.checkpoint.load()) is not None:
            self.seconds = state["seconds"]
            self._read(state["fits"].numpy().tobytes())
            return [part.numpy() for part in state["held_out"]]
        started, done = time.perf_counter(), list[int]()

        def one(k: int, split: Split) -> tuple[list[Any], Array]:
            if time.monotonic() >= until:
                raise TimeoutError
            with threadpool_limits(1):  # of this thread: the folds are what runs in parallel
                fitted = self._fit_fold(folds, split, k)
                found = self._of_fold(fitted, self._rows(folds.table, split.validation))
            done.append(k)
            progress(len(done), len(folds.splits), "")
            return fitted, found

        parallel = self._parallel(len(folds.codes) * len(folds.splits))
        pairs = parallel(delayed(one)(k, split) for k, split in enumerate(folds.splits))
        self.fits, held_out = [fitted for fitted, _ in pairs], [found for _, found in pairs]
        self.seconds = time.perf_counter() - started
        if self.checkpoint is not None:
            with contextlib.suppress(ValueError):  # not every estimator can be kept without code
                content = torch.frombuffer(bytearray(self.to_bytes()), dtype=torch.uint8)
                parts: dict[str, Any] = {"fits": content, "held_out": list(map(torch.from_numpy, held_out))}
                self.checkpoint.save({"seed": folds.seed, "seconds": self.seconds, **parts}, last=True)
        return held_out

    def each_fold(self, table: Table) -> Array:
        """Every fold's fit."""
        whole = self._rows(table)

        def one(fitted: list[Any]) -> Array:
            with threadpool_limits(1):
                return self._of_fold(fitted, whole)

        return np.stack(self._parallel(len(table) * len(self.fits))(delayed(one)(f) for f in self.fits))

    def to_bytes(self) -> bytes:
        """The fitted estimators as a skops file, which holds no code; a ValueError where that cannot be."""
        with contextlib.suppress(OSError, ValueError):  # thousands of trees take seconds to write: once is enough
            state = None if self.checkpoint is None else self.checkpoint.load()
            if state is not None and state["seconds"] == self.seconds:  # of this very fit, of no later one
                return bytes(state["fits"].numpy().tobytes())
        plain = [[e.to_plain() if isinstance(e, LibraryFit) else e for e in fold] for fold in self.fits]
        return objects.to_bytes(plain, TRUSTED, f"models: {self.name}")

    def described(self) -> dict[str, Any]:
        """The form of table that it takes."""
        return {"kind": "estimators", "form": self.form, "outputs": self.outputs}

    @classmethod
    def restored(
        cls, name: str, described: dict[str, Any], content: bytes, task: Task, recipe: Recipe
    ) -> EstimatorModel:
        """The fitted estimators."""
        if described["form"] not in get_args(Form):
            raise ValueError(f"a table in the form {described['form']!r}")
        model = cls(name)
        model.form, model.outputs, model.several = described["form"], int(described["outputs"]), task == "multilabel"
        model._read(content)
        for estimator in [each for fits in model.fits for each in fits]:
            _check_fit(estimator, max(2, model.outputs))
        return model

    def _read(self, content: bytes) -> None:
        plain = objects.from_bytes(content, TRUSTED, self.name)
        self.fits = [[LibraryFit.of_plain(e) if isinstance(e, dict) else e for e in fold] for fold in plain]

    def _parallel(self, work: int) -> Parallel:
        jobs = 1 if work < SMALL_WORK else effective_n_jobs(-1 if self.n_jobs is None else self.n_jobs)
        return Parallel(jobs, prefer="threads")

    def _rows(self, table: Table, rows: Any = slice(None)) -> Any:
        """Rows in the form that the estimator takes."""
        found = _safe_indexing(getattr(table, self.form), rows)
        if self.name == "catboost" and self.estimator is None and table.categories.any():
            found = pd.DataFrame(found)
            for k in np.flatnonzero(table.categories):  # categories must be whole numbers, gaps too
                found[k] = found[k].fillna(-1).astype(np.int64)
        return found

    def _fit_fold(self, folds: Folds, split: Split, k: int) -> list[Any]:
        own = self.estimator is not None
        estimator: Any = clone(self.estimator) if own else _named_estimator(self.name, folds, len(split.train))
        estimator.set_params(**self.parameters)
        seed = int(np.random.SeedSequence([folds.seed, k]).generate_state(1)[0] >> 1)
        seeded = [name for name in estimator.get_params() if name.split("__")[-1] == "random_state"]
        estimator.set_params(**dict.fromkeys(seeded, seed))
        together = get_tags(estimator).target_tags.multi_output and self.name not in BOOSTING_LIBRARIES
        if not self.several or together:
            return [self._fit_one(estimator, folds, split, folds.codes)]
        return [self._fit_one(clone(estimator), folds, split, folds.codes[:, j]) for j in range(self.outputs)]

    def _fit_one(self, estimator: Any, folds: Folds, split: Split, codes: NDArray[np.int64]) -> Any:
        train = split.train[folds.weight[split.train] > 0]
        y, weight = codes[train], folds.weight[train].astype(np.float64)
        seen, X = np.unique(y), self._rows(folds.table, train)
        if y.ndim == 1 and len(seen) == 1:
            return int(y[0])  # most classifiers refuse a single class
        fit_options: dict[str, Any] = {}
        if not (weight == weight[0]).all():
            last = estimator.steps[-1] if isinstance(estimator, Pipeline) else ("", estimator)
            if not has_fit_parameter(last[1], "sample_weight"):
                raise ValueError(f"models: {self.name} takes no sample_weight; leave it out of models, or the weights.")
            fit_options[f"{last[0]}__sample_weight" if last[0] else "sample_weight"] = weight
        if self.estimator is not None or self.name in ("forest", "extra_trees"):
            return estimator.fit(X, y, **fit_options)
        held = split.validation[(folds.weight[split.validation] > 0) & np.isin(codes[split.validation], seen)]
        y_held = codes[held]
        if self.name in BOOSTING_LIBRARIES:  # xgboost takes no other classes than 0, 1, …
            y, y_held = np.searchsorted(seen, y), np.searchsorted(seen, y_held)
        estimator.fit(X, y, **fit_options, **self._stopping(estimator, folds, held, y_held))
        if self.name == "boosting":
            if not folds.table.categories.any():
                estimator._bin_mapper.bin_thresholds_ = []  # for categories alone; one array per column is slow to save
            return estimator
        return LibraryFit(self.name, estimator.booster_ if self.name == "lightgbm" else estimator, seen)

    def _stopping(self, estimator: Any, folds: Folds, rows: NDArray[np.intp], y: NDArray[Any]) -> dict[str, Any]:
        """What a boosting model needs to stop on validation rows."""
        X, weight = self._rows(folds.table, rows), folds.weight[rows].astype(np.float64)
        columns = np.flatnonzero(folds.table.categories).tolist()
        if self.name == "boosting":
            estimator.set_params(early_stopping=len(y) > 0)
            return {"X_val": X, "y_val": y, "sample_weight_val": weight} if len(y) else {}
        known = {"categorical_feature": columns} if self.name == "lightgbm" and columns else {}
        if not len(y):
            return known
        library = importlib.import_module(self.name)
        if self.name == "lightgbm":
            newer = has_fit_parameter(estimator, "eval_X")
            given = {"eval_X": X, "eval_y": y} if newer else {"eval_set": [(X, y)]}
            stop = library.early_stopping(PATIENCE, verbose=False)
            return {**known, **given, "eval_sample_weight": [weight], "callbacks": [stop]}
        if self.name == "xgboost":
            estimator.set_params(early_stopping_rounds=PATIENCE)
            return {"eval_set": [(X, y)], "sample_weight_eval_set": [weight], "verbose": False}
        pool = library.Pool(X, y, cat_features=columns or None, weight=weight)
        return {"eval_set": pool, "early_stopping_rounds": PATIENCE}

    def _of_fold(self, fitted: list[Any], X: Any) -> Array:
        """Probabilities of one fold's fit."""
        if not X.shape[0]:
            return np.empty((0, self.outputs))
        if self.several and len(fitted) == 1:
            found = list(zip(fitted[0].predict_proba(X), fitted[0].classes_, strict=True))
        else:  # where a fold had one class only, that is in the estimator's place
            sure = np.ones((X.shape[0], 1))
            found = [(sure, [e]) if isinstance(e, int) else (e.predict_proba(X), e.classes_) for e in fitted]
        if not self.several:
            return all_classes(*found[0], self.outputs)
        return np.stack([all_classes(*one, 2)[:, 1] for one in found], axis=1)


SKLEARN = (RandomForestClassifier, ExtraTreesClassifier, HistGradientBoostingClassifier)
Nodes = dict[str, NDArray[Any]]
"""Arrays with one entry per node of a tree: feature, threshold, left, right, gap_left, leaf."""

_NODES = ("feature", "threshold", "left", "right", "gap_left")
_OF_FOREST = ("feature", "threshold", "left_child", "right_child", "missing_go_to_left")
_OF_BOOSTING = ("feature_idx", "num_threshold", "left", "right", "missing_go_to_left")


def trees_of(estimator: Any) -> list[tuple[Any, Nodes]]:
    """Every tree of a fitted forest or boosting model of scikit-learn, and its nodes."""
    if isinstance(estimator, HistGradientBoostingClassifier):
        trees = [predictor for step in estimator._predictors for predictor in step]
        names, nodes = _OF_BOOSTING, [tree.nodes for tree in trees]
        leaves = [each["is_leaf"] != 0 for each in nodes]
    else:
        trees = [each.tree_ for each in estimator.estimators_]
        names, nodes = _OF_FOREST, [tree.__getstate__()["nodes"] for tree in trees]
        leaves = [each["left_child"] == -1 for each in nodes]
    arrays = [{name: each[field].copy() for name, field in zip(_NODES, names, strict=True)} for each in nodes]
    return [(tree, each | {"leaf": leaf}) for tree, each, leaf in zip(trees, arrays, leaves, strict=True)]


def _check_fit(estimator: Any, classes: int) -> None:
    """Refuse what a file may hold but no fit gives; an estimator may be the only class that a fold has seen."""
    if not isinstance(estimator, SKLEARN):
        if not (0 <= estimator < classes if isinstance(estimator, int) else hasattr(estimator, "predict_proba")):
            raise ValueError("an estimator that gives no probabilities of these classes")
        return
    for _, nodes in trees_of(estimator):
        at = np.flatnonzero(~nodes["leaf"])
        children = np.stack([nodes[side][at].astype(np.int64) for side in ("left", "right")])
        if (children <= at).any() or (children >= len(nodes["leaf"])).any():
            raise ValueError("a tree whose branches lead nowhere, or in circles")
        feature = nodes["feature"][at].astype(np.int64)
        if (feature < 0).any() or (feature >= estimator.n_features_in_).any():
            raise ValueError("a tree that splits a column which is not there")


class LibraryFit(NamedTuple):
    """A fit of a boosting library, kept in the library's own format, and the classes of its rows."""

    library: str
    model: Any
    classes_: NDArray[np.int64]

    def predict_proba(self, X: Any) -> Array:
        if self.library != "lightgbm":
            return np.asarray(self.model.predict_proba(X))
        found = np.asarray(self.model.predict(X))
        return np.stack([1 - found, found], axis=1) if found.ndim == 1 else found

    def to_plain(self) -> dict[str, Any]:
        """What a file keeps: bytes that hold no code."""
        if self.library == "catboost":
            with tempfile.TemporaryDirectory() as folder:
                self.model.save_model(place := f"{folder}/model.cbm")
                content = Path(place).read_bytes()
        elif self.library == "xgboost":
            content = bytes(self.model.get_booster().save_raw())
        else:
            content = self.model.model_to_string().encode()
        return {"library": self.library, "model": content, "classes": self.classes_}

    @classmethod
    def of_plain(cls, kept: dict[str, Any]) -> LibraryFit:
        name, content = kept["library"], kept["model"]
        if name not in BOOSTING_LIBRARIES:
            raise ValueError(f"a fit of the library {name!r}")
        library = importlib.import_module(name)
        if name == "lightgbm":
            model = library.Booster(model_str=content.decode())
        elif name == "xgboost":
            (model := library.XGBClassifier()).load_model(bytearray(content))
        else:
            model = library.CatBoostClassifier().load_model(blob=content)
        return cls(name, model, kept["classes"])


def all_classes(found: Array, classes: Any, outputs: int) -> Array:
    """Probabilities of all classes from those that an estimator has seen."""
    proba = np.zeros((len(found), outputs))
    proba[:, np.asarray(classes, dtype=np.intp)] = found
    return proba
