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
from metricfit.training import Recipe
from tests import helper
from tests.decisions.gaussians import TwoGaussians
from tests.fuzz import folders
from tests.fuzz.kills import finished, kill
from tests.fuzz.trial import in_child, load_trial

METRICS = ["f1", "mcc", "precision", "recall", "jaccard", "accuracy", "balanced_accuracy", "fbeta:beta=2", "kappa"]

FAINT = 1e-36
"""What is predicted by less than this is close to float32's smallest number, which counts as 0 in float32."""
MEMBERS = 200


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
    predicted = MetricLoss(spec, **options).double().confusion(logits, target, sample_weight).predicted
    faint = spec == "precision" and bool(((predicted > 0) & (predicted < FAINT)).any())
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


def members(seed: int) -> str:
    """Losses of many batches at once, each of a member: fast, plain, in float32, alone, and in plain loops."""
    random_, torch_random = random.Random(seed), torch.Generator().manual_seed(seed)
    task = random_.choice(["multiclass", "multiclass", "binary"])
    n, classes = random_.choice([1, 2, 7, 20]), random_.choice([2, 3, 5, 12]) if task == "multiclass" else 2
    places = random_.choice([(), (), (), (3,)])
    shape = (n, *places) if task == "binary" else (n, classes, *places)
    scale = torch.tensor([0.1, 1.0, 5.0, 30.0])[torch.randint(4, (MEMBERS,), generator=torch_random)].double()
    scale = scale.reshape(-1, *[1] * len(shape))
    logits = torch.randn((MEMBERS, *shape), generator=torch_random, dtype=torch.float64) * scale
    target = torch.randint(classes, (n, *places), generator=torch_random)
    if random_.random() < 0.2:
        target[torch.rand(target.shape, generator=torch_random) < 0.2] = -100
    temperature, spec = random_.choice([0.01, 0.1, 0.2, 0.3]), random_.choice(METRICS)
    options: dict[str, Any] = {"task": task, "temperature": temperature}
    weight = torch.rand(classes, generator=torch_random) + 0.1 if random_.random() < 0.3 else None
    sample_weight = torch.rand(n, generator=torch_random).double() if random_.random() < 0.3 else None

    def run(dtype: torch.dtype, plain: bool, member: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        several = MEMBERS if member is None else None
        module = MetricLoss(spec, members=several, weight=weight, **options).to(dtype)
        leaf = (logits if member is None else logits[member]).to(dtype, copy=True).requires_grad_()
        of_all = sample_weight if sample_weight is None else sample_weight.to(dtype)
        wanted, weights = target, of_all
        if member is None:
            wanted = target.expand(MEMBERS, *target.shape)
            weights = of_all if of_all is None else of_all.expand(MEMBERS, n)
        ways = mock.patch.object(fast, "metric_loss", return_value=None) if plain else contextlib.nullcontext()
        with ways:
            value = module(leaf, wanted, sample_weight=weights)
            value.sum().backward()
        assert leaf.grad is not None
        return value.detach(), leaf.grad

    def largest(x: torch.Tensor) -> torch.Tensor:
        return x.abs().flatten(1).amax(dim=1)

    value, gradient = run(torch.float64, True)
    sooner, its_gradient = run(torch.float64, False)
    apart = largest(gradient - its_gradient) / largest(gradient).clamp_min(1e-3)
    wrong = ~((value - sooner).abs() <= 1e-9) | ~(apart <= 1e-8)
    if wrong.any():
        k = int(wrong.nonzero()[0, 0])
        return f"{spec}, member {k}: plain {value[k]} and fast {sooner[k]}, gradients {apart[k]} apart"
    predicted = MetricLoss(spec, weight=weight, **options).double()
    counts = (
        [predicted.confusion(batch, target, sample_weight).predicted for batch in logits] if spec == "precision" else []
    )
    faint = torch.tensor([bool(((p > 0) & (p < FAINT)).any()) for p in counts] or [False])
    for plain in (True, False):
        single, its_gradient = run(torch.float32, plain)
        off = (single - value).abs() > 2e-4 * scale.flatten().clamp_min(1.0)
        if (off & ~faint).any() or not its_gradient.isfinite().all():
            k = int((off & ~faint).nonzero()[0, 0]) if (off & ~faint).any() else -1
            return f"{spec}, member {k}: float64 {value[k]}, float32 {single[k]} ({'plain' if plain else 'fast'})"
    k = random_.randrange(MEMBERS)
    one, its_gradient = run(torch.float64, True, k)
    if not abs(one - value[k]) <= 1e-12 or not largest(its_gradient[None] - gradient[k][None]) <= 1e-10:
        return f"{spec}, member {k}: {value[k]} among others, {one} alone"
    expected = 1 - _by_loops(spec, logits[k], target, task, temperature, weight, sample_weight)
    if not abs(expected - value[k]) <= 1e-9:
        return f"{spec}, member {k}: {value[k]}, in plain loops {expected}"
    return ""


def _by_loops(
    spec: str,
    logits: torch.Tensor,
    target: torch.Tensor,
    task: str,
    temperature: float,
    weight: Any,
    sample_weight: Any,
) -> float:
    """The metric of a soft confusion matrix, one sample after the other and one class after the other."""
    step = helper.plain_step("annealed", torch.tensor(temperature).item())  # it is a buffer in float32
    weights = {"weight": None if weight is None else weight.double().tolist(), "sample_weight": sample_weight}
    name = spec.partition(":")[0]

    def of_class(tp: float, fp: float, fn: float, tn: float) -> float:
        if name == "fbeta":
            return helper.ratio(5 * tp, 5 * tp + 4 * fn + fp, 0.0)
        return helper.CLASS_FORMULAS[name](tp, fp, fn, tn, 0.0)

    if task == "binary":
        matrix = helper.soft_labels(logits, target, step, binary=True, **weights)
    else:
        matrix = helper.soft_multiclass(logits, target, step, **weights)
    if not any(map(any, matrix)):
        return 1.0  # nothing counts: the loss is 0
    counts = helper.one_versus_rest(matrix)
    if task == "binary":
        return of_class(*counts[1])
    whole = helper.multiclass_formula(name, matrix, 0.0)
    present = [each for each in counts if each[0] + each[2] > 0]
    return whole if whole is not None else sum(of_class(*each) for each in present) / len(present)


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


Folder = tuple[dict[str, Any], dict[str, bytes]]


@cache
def model() -> tuple[Folder, list[Folder], pd.DataFrame]:
    """A small model of every kind, the kinds alone (which load sooner), and rows for them; the same in every run."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.normal(40, 10, 80), "plan": rng.choice(["a", "b"], 80)})
    table["since"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 400, 80), "D")
    y = np.where(table["age"] > 40, "yes", "no")
    options: dict[str, Any] = {"cv": 2, "baseline": False, "random_state": 0, "verbose": False}
    recipe = Recipe("default", max_epochs=3, min_updates=0)
    parts = [MetricClassifier("f1", models=name, recipe=recipe, **options).fit(table, y) for name in KINDS]
    for boosting, forest in zip(parts[1].models_["boosting"].fits, parts[2].models_["forest"].fits, strict=True):
        forest[0].estimators_ = forest[0].estimators_[:3]
        boosting[0]._predictors = boosting[0]._predictors[:3]

    def folder_of(classifier: MetricClassifier) -> Folder:
        with tempfile.TemporaryDirectory() as parent:
            description, contents = folders.read(save(classifier, Path(parent) / "model"))
            return description, {name: c for name, c in contents.items() if name not in ("report.html", "README.md")}

    alone = list(map(folder_of, parts))
    parts[0].models_ = {name: model for part in parts for name, model in part.models_.items()}
    parts[0].weights_ = dict(zip(KINDS, (0.4, 0.3, 0.3), strict=True))
    return folder_of(parts[0]), alone, table.head(5)


KINDS = ("network", "boosting", "forest")


def folder(seed: int) -> str:
    """A crafted folder is refused by one error, or gives a model that predicts or raises, within the limits."""
    random_ = random.Random(seed)
    whole, alone, rows = model()
    with tempfile.TemporaryDirectory() as parent:
        path, name = Path(parent) / "model", ""
        if random_.random() < 0.005:
            name = random_.choice(list(folders.HOSTILE))
            folders.HOSTILE[name](path, *whole)
        else:
            folders.seal(path, *folders.mutated(random_, *random_.choices([*alone, whole], (6, 2, 2, 1))[0]))
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
    "losses": loss, "members": members, "searches": search, "promises": promise, "folders": folder, "tables": table,
    "kills": kill,
}  # fmt: skip
PREPARED: dict[str, Callable[[], Any]] = {"folders": model, "kills": finished}
"""What an area makes once, before its first case."""
SEVERAL = {"members": MEMBERS}
"""How many cases one seed of an area stands for."""
