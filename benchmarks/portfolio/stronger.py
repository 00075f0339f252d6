"""Stronger networks, other members, leaves and beliefs for the portfolio.

    python -m benchmarks.portfolio.stronger fit --fits forest extra_trees boosting ce metric ce:smooth svc
    python -m benchmarks.portfolio.stronger score          # adds what is missing to stronger_choose.csv
    python -m benchmarks.portfolio.stronger table          # each also with --half claim

At most 1,500 training and 5,000 test rows of each split, five folds. Probabilities are kept in
``$METRICFIT_CACHE/stronger``, so that sets of models are compared without fitting again; weights and rule are the
package's.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import TargetEncoder
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from benchmarks.suite.fits import FITS, METRICS, Part
from benchmarks.suite.tables import CACHE, load_table, names, splits
from metricfit import Recipe, ensemble, metrics
from metricfit.choices import parts_of
from metricfit.data import TablePreprocessor
from metricfit.ensemble import LEAST, HeldOut, choose_ensemble, mean_of
from metricfit.models import EstimatorModel, Folds, NetworkModel, Table
from metricfit.training import loop, networks
from metricfit.training.networks import MemberMLP
from metricfit.training.objective import MemberObjective

KEPT = CACHE / "stronger"
RESULTS = Path(__file__).with_name("stronger.csv")
MOST_ROWS, MOST_TEST_ROWS = 1_500, 5_000


def part_of(name: str, split: int) -> Part:
    """A split, smaller."""
    X, y = load_table(name)
    train, test = splits(name, MOST_ROWS)[split]
    test = test[:MOST_TEST_ROWS]
    X_train, X_test = (X.iloc[rows].reset_index(drop=True) for rows in (train, test))
    return Part(X_train, y[train], X_test, y[test], split)


@dataclass(frozen=True)
class Variant:
    """What a network has otherwise than the default one."""

    recipe: dict[str, Any] = field(default_factory=dict)
    periodic: int = 0  # frequencies of each number, trained, followed by a linear map to three
    fourier: int = 0  # frequencies of each number, drawn once, as further inputs
    sigma: float = 0.1  # of the frequencies
    scale: bool = False  # a factor per input, learned quickly
    activation: str = "relu"
    coslog: int = 0  # cycles of the schedule
    smoothing: float = 0.0  # of the labels in the cross-entropy


REAL: dict[str, Any] = {"periodic": 16, "scale": True, "activation": "selu", "coslog": 4}
VARIANTS: dict[str, Variant] = {
    "fourier": Variant(fourier=8),
    "smooth": Variant(smoothing=0.1),
    "real": Variant(
        {"hidden_sizes": (256, 256, 256), "dropout": 0.15, "weight_decay": 2e-2, "batch_size": 256}, **REAL
    ),
    "real128": Variant(
        {"hidden_sizes": (256, 128), "dropout": 0.15, "weight_decay": 2e-2, "batch_size": 128},
        **REAL | {"periodic": 8, "smoothing": 0.1},
    ),
}


class Front(nn.Module):
    """Inputs times a factor each, and a periodic embedding of the numbers beside them."""

    def __init__(self, variant: Variant, members: int, inputs: int, numbers: Tensor, generator: torch.Generator):
        super().__init__()
        self.variant, self.outputs = variant, inputs
        if variant.scale:  # a step of the optimiser moves the factor six times as far
            self.bias_scale = nn.Parameter(torch.zeros(members, 1, inputs))
        if variant.periodic and len(numbers):
            self.numbers, many, k = numbers, len(numbers), variant.periodic

            def drawn(*shape: int) -> Tensor:
                return torch.rand(members, *shape, generator=generator) * 2 - 1

            normal = torch.randn(members, many, 1, k, generator=generator)
            # Both learn at a tenth of the rate.
            self.bias_frequency = nn.Parameter(10 * 2 * math.pi * variant.sigma * normal)
            self.bias_phase = nn.Parameter(10 * math.pi * drawn(many, 1, k))
            self.weight = nn.Parameter(10 * drawn(many, k, 3) / math.sqrt(k))
            self.bias_last = nn.Parameter(10 * drawn(many, 1, 3) / math.sqrt(k))
            self.outputs += 3 * many

    def forward(self, input: Tensor) -> Tensor:
        found = input * (1 + 6 * self.bias_scale) if self.variant.scale else input
        if not hasattr(self, "numbers"):
            return found
        x = found[..., self.numbers].mT[..., None]  # (members, numbers, n, 1)
        waves = (0.1 * (x * self.bias_frequency + self.bias_phase)).cos()
        made = waves @ (0.1 * self.weight) + 0.1 * self.bias_last
        made = made.transpose(1, 2).flatten(2)
        return torch.cat([found, made], dim=-1)


class Activation(nn.Module):
    """x + a (f(x) - x) with one a per unit, learned at a tenth of the rate."""

    def __init__(self, name: str, members: int, width: int) -> None:
        super().__init__()
        self.f, self.bias = getattr(nn.functional, name), nn.Parameter(torch.zeros(members, 1, width))

    def forward(self, input: Tensor) -> Tensor:
        return input + (self.f(input) - input) * (1 + 0.1 * self.bias)


class Stronger(MemberMLP):
    """The network of a variant."""

    def __init__(self, variant: Variant, numbers: Tensor, recipe: Recipe, sizes: tuple[int, int, int], seed: int):
        members, inputs, outputs = sizes
        generator = torch.Generator().manual_seed(seed)
        front = Front(variant, members, inputs, numbers, generator)
        super().__init__(members, front.outputs, outputs, recipe.hidden_sizes, recipe.dropout, generator=generator)
        self.front = front
        if variant.activation != "relu":
            for place, layer in enumerate(self.layers):
                if isinstance(layer, nn.ReLU):
                    width = self.layers[place - 1].weight.shape[2]
                    self.layers[place] = Activation(variant.activation, members, width)

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim == 2:
            input = input.expand(self.members, *input.shape)
        return self.layers(self.front(input))


def coslog(cycles: int, step: int, steps: int, recipe: Recipe) -> float:
    """The schedule of RealMLP."""
    share = math.log2(1 + (2**cycles - 1) * (step + 1) / (steps + 1))
    return recipe.learning_rate * 0.5 * (1 - math.cos(2 * math.pi * share))


def smoothed(forward: Any, epsilon: float, self: Any, logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """The loss with smoothed labels in its cross-entropy."""
    loss = forward(self, logits, target, weight)
    if self.recipe.balance != "none":
        weight = weight * self.class_weights[target]
    log_p = logits.float().log_softmax(-1)
    more = log_p.gather(-1, target[..., None].long())[..., 0] - log_p.mean(-1)
    return loss + epsilon * self.recipe.cross_entropy * (more * weight).sum(-1) / weight.sum(-1)


@contextlib.contextmanager
def varied(variant: Variant, numbers: Tensor) -> Iterator[None]:
    """The package with another network in it."""
    with contextlib.ExitStack() as stack:

        def change(owner: Any, name: str, new: Any) -> None:
            stack.enter_context(mock.patch.object(owner, name, new))

        if variant.periodic or variant.scale or variant.activation != "relu":
            change(networks, "build_network",
                   lambda recipe, *sizes, seed: Stronger(variant, numbers, recipe, sizes, seed))  # fmt: skip
        if variant.coslog:
            change(loop, "learning_rate_at", partial(coslog, variant.coslog))
        if variant.smoothing:
            old = MemberObjective.forward
            change(MemberObjective, "forward", lambda self, *a: smoothed(old, variant.smoothing, self, *a))
        yield


@cache
def problem_of(name: str, split: int) -> tuple[Part, TablePreprocessor, Table, Table]:
    """A split, and its rows as the models get them."""
    part = part_of(name, split)
    preprocessor = TablePreprocessor(random_state=part.seed)
    dense = preprocessor.fit_transform(part.X_train, part.y_train)
    tables = [
        Table(numbers, preprocessor.tree_features(X), preprocessor.tree_categories_, X)
        for numbers, X in ((dense, part.X_train), (preprocessor.transform(part.X_test), part.X_test))
    ]
    return part, preprocessor, *tables


def folds_of(part: Part, table: Table, metric: str) -> Folds:
    ones = np.ones(len(part.y_train), dtype=np.float32)
    task = "binary" if len(part.labels) == 2 else "multiclass"
    judge = metrics.resolve(metric, part.labels, task)[0]
    return Folds(table, part.y_train.astype(np.int64), ones, ones, part.folds, judge, task, part.labels, part.seed)


def with_waves(variant: Variant, preprocessor: TablePreprocessor, table: Table) -> Table:
    """More inputs: waves of the numbers, of random frequencies."""
    if not variant.fourier:
        return table
    at = positions(preprocessor)
    random = np.random.default_rng(0)
    w = 2 * np.pi * variant.sigma * random.normal(size=(len(at), variant.fourier))
    b = np.pi * random.uniform(-1, 1, size=(len(at), variant.fourier))
    waves = np.cos(table.dense[:, at][..., None] * w + b).reshape(len(table), -1)
    dense = np.ascontiguousarray(np.concatenate([table.dense, waves], axis=1), dtype=np.float32)
    return Table(dense, table.trees, table.categories, table.given)


def positions(preprocessor: TablePreprocessor) -> Any:
    found = [i for i, n in enumerate(preprocessor.get_feature_names_out()) if n.endswith("__quantile")]
    return np.array(found, dtype=np.intp)


def network(name: str, split: int, kind: str, metric: str) -> tuple[np.ndarray, np.ndarray]:
    objective, _, which = kind.partition(":")
    variant = VARIANTS[which] if which else Variant()
    part, preprocessor, train, test = problem_of(name, split)
    base = Recipe("log_loss" if objective == "ce" else "default")
    recipe = base.with_parts(variant.recipe).complete()
    model = NetworkModel(kind, recipe)
    folds = folds_of(part, with_waves(variant, preprocessor, train), metric)
    with varied(variant, torch.from_numpy(positions(preprocessor))):
        held = model.fit(folds, math.inf, lambda *_: None)
        return np.concatenate(held), model.predict(with_waves(variant, preprocessor, test))


def estimator(name: str, split: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    part, _, train, test = problem_of(name, split)
    which, _, options = kind.partition("@")
    if which == "svc":
        model = EstimatorModel(which, CalibratedClassifierCV(SVC(), cv=3, ensemble=False), n_jobs=1)
    elif which.startswith("kernel"):
        model = EstimatorModel(which, KernelLogistic(float(which[6:])), n_jobs=1)
    elif options == "rates":
        model = EstimatorModel(which, with_rates(which, part), n_jobs=1)
    else:
        model = EstimatorModel(which, parts_of(f"x:{options}")[1] if options else None, n_jobs=1)
    held = model.fit(folds_of(part, train, "f1"), math.inf, lambda *_: None)
    return np.concatenate(held), model.predict(test)


class KernelLogistic(ClassifierMixin, BaseEstimator):
    """Logistic regression on a Gaussian kernel between rows and at most 500 training rows."""

    def __init__(self, strength: float = 1.0) -> None:
        self.strength = strength

    def fit(self, X: Any, y: Any) -> KernelLogistic:
        gamma = 1 / max(1e-9, X.shape[1] * X.var())
        kernel = Nystroem(gamma=gamma, n_components=min(len(X), 500), random_state=0)
        self.model_ = make_pipeline(kernel, LogisticRegression(C=self.strength, max_iter=200)).fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict_proba(self, X: Any) -> Any:
        return self.model_.predict_proba(X)


def with_rates(which: str, part: Part) -> Pipeline:
    """A forest that gets rates of the classes, cross-fitted, in place of categories."""
    words = [column for column in part.X_train if part.X_train[column].dtype.kind not in "biuf"]
    kind = {"forest": RandomForestClassifier, "extra_trees": ExtraTreesClassifier}[which]
    rates = ColumnTransformer([("rates", TargetEncoder(), words)], remainder="passthrough")
    return make_pipeline(rates, kind(100, min_samples_leaf=2))


def fitted(name: str, split: int, kind: str, metric: str) -> tuple[np.ndarray, np.ndarray]:
    if kind.split(":")[0] in ("ce", "metric"):
        return network(name, split, kind, metric)
    if kind == "realmlp_td":
        found = FITS[kind](problem_of(name, split)[0])
        return found.held_out, found.test
    return estimator(name, split, kind)


def file_of(name: str, split: int, kind: str, metric: str = "f1") -> Path:
    own = f"_{metric}" if kind.split(":")[0] == "metric" else ""
    return KEPT / name / str(split) / f"{kind.replace(':', '-')}{own}.npz"


def nearest(name: str, split: int, kind: str, metric: str) -> Path:
    """Where a network was not trained on the metric, the one that was trained on F1 stands for it."""
    own = file_of(name, split, kind, metric)
    return own if own.exists() else file_of(name, split, kind)


def fit_all(tables: list[str], of: list[int], kinds: list[str], only: list[str]) -> None:
    for split in of:
        for kind in kinds:
            for name in tables:
                for metric in only if kind.split(":")[0] == "metric" else ["f1"]:
                    file = file_of(name, split, kind, metric)
                    if file.exists():
                        continue
                    start = time.process_time()
                    try:
                        held, test = fitted(name, split, kind, metric)
                    except Exception:
                        print(f"{name} {split} {kind} FAILED\n{traceback.format_exc()}", flush=True)
                        continue
                    cpu = time.process_time() - start
                    file.parent.mkdir(parents=True, exist_ok=True)
                    np.savez(file, held=held.astype(np.float32), test=test.astype(np.float32), cpu=cpu)
                    print(f"{time.strftime('%H:%M:%S')} {name} {split} {kind} {metric} {cpu:.1f}", flush=True)


TREES, NETWORKS = ("boosting", "extra_trees", "forest"), ("ce", "metric")
BASE = (*TREES, *NETWORKS)
RULES = {"": 1.0, " belief 0.5": 0.5, " belief 0.75": 0.75}
LEAF, SHALLOW = "@min_samples_leaf=1", "boosting@max_leaf_nodes=3"
CHANGES: dict[str, tuple[str, ...]] = {
    "with realmlp": ("realmlp_td",),
    "with svc": ("svc",),
    "kernel": ("kernel10",),
    "shallow": (SHALLOW,),
    "rates": ("extra_trees@rates", "forest@rates"),
    "leaf 1": (f"extra_trees{LEAF}",),
    "leaf 1 in both": (f"extra_trees{LEAF}", f"forest{LEAF}"),
    "leaf 1, kernel": (f"extra_trees{LEAF}", "kernel10"),
    "leaf 1, kernel, shallow": (f"extra_trees{LEAF}", "kernel10", SHALLOW),
    "leaf 1, svc": (f"extra_trees{LEAF}", "svc"),
    "leaf 1, svc, shallow": (f"extra_trees{LEAF}", "svc", SHALLOW),
    "both leaf 1, kernel": (f"extra_trees{LEAF}", f"forest{LEAF}", "kernel100"),
    "both leaf 1, svc": (f"extra_trees{LEAF}", f"forest{LEAF}", "svc"),
    "both leaf 1, svc, shallow": (f"extra_trees{LEAF}", f"forest{LEAF}", "svc", SHALLOW),
}
BESIDE = ("svc", "realmlp_td", SHALLOW, "kernel10", "kernel100")


def sets_of(kinds: set[str]) -> dict[str, tuple[str, ...]]:
    """The portfolio, without the networks, and with changes: a model of the same kind goes for a new one."""
    found = {"portfolio": BASE, "trees": TREES}
    for label, new in CHANGES.items():
        gone = {kind.split("@")[0] for kind in new if kind not in BESIDE}
        found[label] = (*(kind for kind in BASE if kind not in gone), *new)
    for kind in kinds:
        old = kind.split(":")[0]
        if old in NETWORKS and kind != old:
            found[f"{kind} for {old}"] = tuple(kind if k == old else k for k in BASE)
        if kind.startswith(("ce", "metric", "realmlp")):
            found[f"only {kind}"] = (kind,)
    return found


def score_all(half: str, results: Path) -> None:
    """Add what is missing."""
    there = set()
    if results.exists():
        there = set(map(tuple, pd.read_csv(results)[["table", "split", "metric", "models"]].to_numpy().tolist()))
    for name in names(half):
        for folder in sorted((KEPT / name).glob("*")):
            split, rows = int(folder.name), []
            stems = {file.stem for file in folder.glob("*.npz")}
            for metric in METRICS:
                kinds = {stem.replace("ce-", "ce:") for stem in stems if not stem.startswith("metric")}
                own = {stem.removesuffix("_f1").replace("-", ":") for stem in stems if stem.endswith("_f1")}
                kinds |= {kind for kind in own if metric == "f1" or kind == "metric"}
                todo = {which: members for which, members in sets_of(kinds).items()
                        if set(members) <= kinds and (name, split, metric, which) not in there}  # fmt: skip
                if not todo:
                    continue
                part = part_of(name, split)
                judge = metrics.resolve(metric, part.labels, "binary" if len(part.labels) == 2 else "multiclass")[0]
                order = np.concatenate([one.validation for one in part.folds])
                fold = np.repeat(np.arange(5), [len(one.validation) for one in part.folds])
                made = {kind: np.load(nearest(name, split, kind, metric)) for kind in set().union(*todo.values())}
                made = {kind: {k: v[k].astype(np.float64) for k in ("held", "test")} for kind, v in made.items()}
                for which, members in todo.items():
                    known = HeldOut(order, fold, part.y_train[order].astype(np.int64), np.ones(len(order)),
                                    part.labels, {kind: made[kind]["held"] for kind in members})  # fmt: skip
                    for label, belief in RULES.items() if which == "portfolio" else [("", 1.0)]:
                        with mock.patch.object(ensemble, "BELIEF", belief):
                            chosen = choose_ensemble(known, judge)
                        test = mean_of({kind: made[kind]["test"] for kind in members}, chosen.weights)
                        value = 100 * float(judge.score(part.y_test, chosen.rule.apply(test), labels=part.labels))
                        loss = -np.log(np.maximum(test[np.arange(len(test)), part.y_test], LEAST)).mean()
                        weight = sum(w for k, w in chosen.weights.items() if k not in BASE)
                        rows.append((name, split, metric, which + label, round(value, 3), round(float(loss), 5),
                                     round(weight, 2)))  # fmt: skip
            columns = ["table", "split", "metric", "models", "value", "log_loss", "weight"]
            if rows:
                pd.DataFrame(rows, columns=columns).to_csv(results, mode="a", header=not results.exists(), index=False)
                print(name, split, len(rows), flush=True)


def compared(rows: pd.DataFrame) -> str:
    """Each set less the portfolio, or less the default model of its kind; mean ± standard error over tables."""
    index = ["table", "split", "metric"]
    value, loss, weight = (rows.pivot_table(column, index, "models") for column in ("value", "log_loss", "weight"))
    lines = [f"| models | {' | '.join(METRICS)} | all | log-loss, % | lower on | weight | tables |", "|---" * 8 + "|"]
    for which in sorted(value):
        base = "portfolio"
        if which.startswith("only "):
            base = which.split(":")[0].split("@")[0]
            base = "only ce" if base not in value or base == which else base
        if which == base or base not in value:
            continue
        both = value[[which, base]].dropna().index
        if not len(both):
            continue
        gap = value.loc[both, which] - value.loc[both, base]
        of = [gap[gap.index.get_level_values("metric") == m].groupby("table").mean() for m in METRICS]
        of.append(gap.groupby("table").mean())
        of.append(100 * np.log(loss.loc[both, which] / loss.loc[both, base]).groupby("table").mean())
        cells = [f"{one.mean():+.2f} ± {one.sem():.2f}" for one in of]
        cells += [f"{(of[-1] < 0).sum()}", f"{weight.loc[both, which].mean():.2f}", f"{len(of[-1])}"]
        lines.append(f"| {which} (to {base}) | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("fit", "score", "table"))
    parser.add_argument("--fits", nargs="+", default=[])
    parser.add_argument("--half", default="choose")
    parser.add_argument("--tables", nargs="+")
    parser.add_argument("--splits", nargs="+", type=int, default=[0])
    parser.add_argument("--metrics", nargs="+", default=list(METRICS))
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        if args.what == "fit":
            fit_all(args.tables or names(args.half), args.splits, args.fits, args.metrics)
        if args.what == "score":
            score_all(args.half, RESULTS.with_stem(f"stronger_{args.half}"))
    if args.what == "table":
        print(compared(pd.read_csv(RESULTS.with_stem(f"stronger_{args.half}"))))


if __name__ == "__main__":
    main()
