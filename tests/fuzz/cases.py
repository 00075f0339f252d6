"""One random case per seed and area: what is wrong with it, or an empty text."""

from __future__ import annotations

import contextlib
import gzip
import io
import random
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import torch

from metricfit import MetricClassifier, MetricLoss, fast, metrics, save
from metricfit.data import BadArgumentError, BadDataError, NotEnoughMemoryError, Roles, open_table, read_labelled
from metricfit.decisions import InfeasibleError, best_threshold
from tests.decisions.gaussians import TwoGaussians
from tests.fuzz import folders
from tests.fuzz.trial import in_child, load_trial

METRICS = ["f1", "mcc", "precision", "recall", "jaccard", "accuracy", "balanced_accuracy", "fbeta:beta=2", "kappa"]


def loss(seed: int) -> str:
    """Value and gradient of the fast way in float64 equal the plain way's; in float32 the value nearly does."""
    random_, torch_random = random.Random(seed), torch.Generator().manual_seed(seed)
    task = random_.choice(["multiclass", "multiclass", "binary", "multilabel"])
    n, classes = random_.choice([1, 2, 7, 33, 200]), random_.choice([2, 3, 5, 12, 40])
    places = random_.choice([(), (), (3,), (2, 2)])
    shape = (n, *places) if task == "binary" else (n, classes, *places)
    scale = random_.choice([0.1, 1.0, 5.0, 30.0])
    logits = torch.randn(shape, generator=torch_random, dtype=torch.float64) * scale
    if ties := random_.random() < 0.2:
        logits = logits.round()
    positions = shape if task != "multiclass" else (n, *places)
    target = torch.randint(2 if task != "multiclass" else classes, positions, generator=torch_random)
    if random_.random() < 0.2:
        target[torch.rand(positions, generator=torch_random) < 0.2] = -100
    options: dict[str, Any] = {"task": task, "temperature": random_.choice([0.01, 0.1, 0.2])}
    if random_.random() < 0.3:
        options["cross_entropy"] = random_.choice([0.1, 1.0])
    if random_.random() < 0.3:
        options["weight"] = torch.rand(2 if task == "binary" else classes, generator=torch_random) + 0.1
    sample_weight = torch.rand(n, generator=torch_random).double() if random_.random() < 0.3 else None
    spec = random_.choice(METRICS)

    def run(dtype: torch.dtype, plain: bool, at: torch.Tensor = logits) -> tuple[float, torch.Tensor]:
        module = MetricLoss(spec, **options).to(dtype)
        leaf = at.to(dtype, copy=True).requires_grad_()
        ways = mock.patch.object(fast, "metric_loss", return_value=None) if plain else contextlib.nullcontext()
        with ways:
            value = module(leaf, target, sample_weight=None if sample_weight is None else sample_weight.to(dtype))
            value.backward()
        assert leaf.grad is not None
        return value.item(), leaf.grad

    try:
        value, gradient = run(torch.float64, plain=True)
    except ValueError as error:
        for dtype, plain in ((torch.float64, False), (torch.float32, True), (torch.float32, False)):
            with contextlib.suppress(ValueError):
                return f"one way raises {error}, another gives {run(dtype, plain)[0]}"
        return ""
    sooner, its_gradient = run(torch.float64, plain=False)
    # The precision of a class that is predicted by less than rounding is 0/0 to one way and not to another.
    predicted = MetricLoss(spec, **options).double().confusion(logits, target, sample_weight).predicted
    faint = spec == "precision" and bool(((predicted > 0) & (predicted < 1e-15 * predicted.sum())).any())
    if faint and not abs(value - sooner) <= 1e-9:
        return ""
    size = max(1e-3, float(gradient.abs().max()))
    apart = (gradient - its_gradient).abs()
    if not abs(value - sooner) <= 1e-9 or not (ties or apart.max() <= 1e-8 * size):
        return f"plain {value} and fast {sooner}, gradients {apart.max()} apart"
    # At a tie the loss has a kink: each way may take the slope of either side, or one between them.
    differ = (~(apart <= 1e-8 * size)).nonzero().tolist()
    for place in map(tuple, random_.sample(differ, min(len(differ), 12))):
        answers = gradient[place].item(), its_gradient[place].item()
        for step in (1e-5, 1e-6):  # the longer one may reach the next kink
            low, high = _slopes(lambda x: run(torch.float64, True, x)[0], logits, place, step)
            if low - 1e-5 * size <= min(answers) and max(answers) <= high + 1e-5 * size:
                break
        else:
            return f"plain and fast gradients {answers} at {place}, slopes from {low} to {high}"
    for plain in (True, False):
        single, its_gradient = run(torch.float32, plain)
        if not (faint or abs(single - value) <= 2e-4 * max(1.0, scale)) or not its_gradient.isfinite().all():
            return f"float64 {value}, float32 {single} ({'plain' if plain else 'fast'})"
    return ""


def _slopes(f: Callable[[torch.Tensor], float], x: torch.Tensor, place: Any, step: float) -> list[float]:
    """The two one-sided derivatives in one coordinate, by differences of second order, the lower one first."""
    found = []
    for h in (step, -step):
        near, far = x.clone(), x.clone()
        near[place] += h
        far[place] += 2 * h
        found.append((4 * f(near) - 3 * f(x) - f(far)) / (2 * h))
    return sorted(found)


def search(seed: int) -> str:
    """The best threshold is as good as the best of all thresholds, one after another; with a constraint too."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 60))
    score = rng.choice([rng.random(n), rng.integers(0, 6, n) / 5, rng.normal(size=n) * 100])
    score[:2] = 0.0, 1.0  # equal scores are refused
    y = np.append([0, 1], rng.integers(0, 2, n - 2))
    weight = rng.random(n) + 0.01 if rng.random() < 0.3 else None
    spec = str(rng.choice(METRICS))
    least = float(rng.choice([0.5, 0.8, 0.95])) if rng.random() < 0.4 else None
    metric, recall = metrics.get(spec), metrics.get("recall")
    values = {}
    for threshold in [*np.unique(score), np.inf]:
        decided = (score >= threshold).astype(int)
        if least is None or recall.score(y, decided, sample_weight=weight) >= least:
            values[threshold] = metric.score(y, decided, sample_weight=weight)
    full = spec if least is None else f"{spec} subject to recall >= {least}"
    try:
        found = best_threshold(y, score, full, sample_weight=weight)
    except InfeasibleError:
        return "" if not values else f"{full}: not reached, but {values}"
    best = max(values.values())
    own = metric.score(y, (score >= found.threshold).astype(int), sample_weight=weight)
    if not abs(found.value - best) <= 1e-9 or not abs(own - best) <= 1e-9:
        return f"{full}: found {found.value} (it gives {own}), the best is {best}"
    return ""


_kept = [0, 0]


def promise(seed: int) -> str:
    """A recall promised with a confidence of 95 % is kept, where the truth is known; judged over all cases."""
    rng = np.random.default_rng(seed)
    truth = TwoGaussians(gap=float(rng.uniform(1, 3)), prevalence=float(rng.uniform(0.1, 0.5)))
    y, score = truth.sample(int(rng.integers(150, 1500)), rng)
    with contextlib.suppress(InfeasibleError):
        found = best_threshold(y, score, "precision subject to recall >= 0.8", confidence=0.95)
        _kept[0] += 1
        _kept[1] += bool(truth.value("recall", found.threshold) < 0.8)
    # Four standard errors above 5 %.
    cases, broken = _kept
    if cases >= 500 and broken / cases > 0.05 + 4 * (0.05 * 0.95 / cases) ** 0.5:
        return f"{broken} of {cases} promises at 95 % were broken"
    return ""


@cache
def model() -> tuple[dict[str, Any], dict[str, bytes], pd.DataFrame]:
    """A small model of every kind, and rows for it; the same in every run."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.normal(40, 10, 80), "plan": rng.choice(["a", "b"], 80)})
    table["since"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 400, 80), "D")
    y = np.where(table["age"] > 40, "yes", "no")
    options = {"cv": 2, "baseline": False, "random_state": 0, "verbose": False}
    parts = [MetricClassifier("f1", models=m, **options).fit(table, y) for m in ("network", "boosting", "forest")]
    classifier = parts[0]
    classifier.models_ = {name: model for part in parts for name, model in part.models_.items()}
    classifier.weights_ = {"network": 0.4, "boosting": 0.3, "forest": 0.3}
    for forest, boosting in zip(classifier.models_["forest"].fits, classifier.models_["boosting"].fits, strict=True):
        forest[0].estimators_ = forest[0].estimators_[:3]
        boosting[0]._predictors = boosting[0]._predictors[:3]
    with tempfile.TemporaryDirectory() as parent:
        return *folders.read(save(classifier, Path(parent) / "model")), table.head(5)


def folder(seed: int) -> str:
    """A crafted folder is refused by one error, or gives a model that predicts or raises, within the limits."""
    random_ = random.Random(seed)
    description, contents, rows = model()
    with tempfile.TemporaryDirectory() as parent:
        path, name = Path(parent) / "model", ""
        if random_.random() < 0.05:
            name = random_.choice(list(folders.HOSTILE))
            folders.HOSTILE[name](path, description, contents)
        else:
            folders.seal(path, *folders.mutated(random_, description, contents))
        if random_.random() < 0.1:
            file = random_.choice([file for file in path.iterdir() if file.is_file()])
            file.write_bytes(folders._mutate_bytes(random_, file.read_bytes()))
        outcome, problem = load_trial(path, lambda classifier: classifier.predict_proba(rows))
        if name and outcome.kind != "refused":
            return f"{name}: {outcome}"
        return problem


WORDS = [
    "1", "2.5", "-3e4", "", "NA", "x", "yes", "no", "2024-02-30", "2024-01-02", "1,5", "35.000",
    "é", '"', "'", "\0", "=1+1",
    "nan", "inf", "1e999", "9" * 400, "a" * 5000, " ", "\ufeff", "true", "12:30", "#", "\\",
]  # fmt: skip


def table(seed: int) -> str:
    """A table is read, or refused by one error that names what is wrong; nothing else."""
    random_ = random.Random(seed)
    columns, rows = random_.choice([1, 2, 5, 40]), random_.choice([0, 1, 2, 30])
    names = [random_.choice(["a", "b", "target", "", "x y", "é", "a"]) + str(k) * (k % 3) for k in range(columns)]
    names[0] = "target"
    kinds = [random_.sample(WORDS, 3) for _ in names]
    cells = [[random_.choice(kind if random_.random() < 0.9 else WORDS) for kind in kinds] for _ in range(rows)]
    ending = random_.choice([".csv", ".csv", ".csv.gz", ".parquet", ".jsonl", ".csv.xz", ".zip"])
    if ending == ".parquet":
        buffer = io.BytesIO()
        frame = pd.DataFrame(cells, columns=[f"{name}{k}" if k else name for k, name in enumerate(names)])
        frame.to_parquet(buffer)
        content = buffer.getvalue()
    else:
        separator = random_.choice([",", ";", "\t", "|"])
        lines = [separator.join(row) for row in [names, *cells]]
        if random_.random() < 0.2 and len(lines) > 1:
            lines[random_.randrange(len(lines))] += separator + "more"
        encoding = random_.choice(["utf-8", "utf-8", "latin-1", "utf-16", "utf-8-sig"])
        content = "\n".join(lines).encode(encoding, errors="replace")
        content = gzip.compress(content) if ending == ".csv.gz" else content
    if random_.random() < 0.4:
        content = folders._mutate_bytes(random_, content)

    def work() -> tuple[str, str]:
        try:
            read_labelled(open_table(str(path)), Roles(["target"]))
        except (BadDataError, BadArgumentError, NotEnoughMemoryError, ImportError) as error:
            return ("refused", "") if len(str(error)) < 5000 else ("raised", f"a message of {len(str(error)):,} signs")
        except BaseException as error:
            return "raised", f"{type(error).__name__}: {error}"
        return "accepted", ""

    parent = Path(tempfile.mkdtemp())
    try:
        path = parent / f"table{ending}"
        path.write_bytes(content)
        return in_child(work, limit=2**31).problem(len(content))
    finally:
        shutil.rmtree(parent)


AREAS: dict[str, Callable[[int], str]] = {
    "losses": loss, "searches": search, "promises": promise, "folders": folder, "tables": table,
}  # fmt: skip
