"""AnyLoss at its own protocol, on its four imbalanced sets: against squared error, cross-entropy, resampling and SOL.

``python -m benchmarks.papers.checks.anyloss_protocol`` appends to anyloss_protocol.csv beside itself; what is there is
not computed again. What the authors' notebooks say is taken from them: ten stratified folds, two principal components,
one layer or a hidden one of two sigmoid units, He's starting weights, SGD at 0.001, 100 epochs, batches of 5 % of the
training rows, L = 73, a threshold of one half. What they do not say is chosen here: features are standardised before
and after the components, categories are integer codes, and the last epoch counts. The folds are trained side by side,
each on its own rows: a row or two of a fold's epoch are left out where the folds differ in size.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.decomposition import PCA
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch.nn import functional as F

from benchmarks.data import load
from metricfit import metrics
from metricfit.decisions import best_threshold
from metricfit.losses import AnyLoss, SOLLoss

FILE = Path(__file__).with_suffix(".csv")
SETS = {
    "synthetic": "synthetic", "breast_cancer": "breast cancer", "diabetes_prediction": "diabetes",
    "creditcard": "credit card fraud",
}  # fmt: skip
METRICS = {"accuracy": "accuracy", "f1": "F1", "balanced_accuracy": "balanced accuracy", "gmean": "G-mean"}
NETWORKS = {"slp": "single layer", "mlp": "network"}
RIVALS = {
    "mse": "squared error",
    "bce": "cross-entropy",
    "bce+smote": "after SMOTE",
    "bce+under": "after undersampling",
}
LOSSES = [*RIVALS, *(f"{kind}_{metric}" for kind in ("anyloss", "sol") for metric in METRICS)]
FOLDS, EPOCHS, SHARE, RATE, HIDDEN = 10, 100, 0.05, 0.001, 2
CLOSE = 0.01
"""A metric has arrived in the first epoch from which on it stays this close to its last value."""
COLUMNS = ["dataset", "network", "loss", "fold", *METRICS, *(f"tuned_{m}" for m in METRICS),
           *(f"epochs_{m}" for m in METRICS), "seconds"]  # fmt: skip

Array = NDArray[np.float64]


def rows_of(dataset: str) -> tuple[Array, NDArray[np.int64]]:
    """Features and 0/1 targets."""
    if dataset == "synthetic":
        X, y = make_classification(
            10_000, 5, n_informative=3, n_redundant=1, n_clusters_per_class=1, weights=[0.9, 0.1], class_sep=1.2,
            random_state=0,
        )  # fmt: skip
        return X, y.astype(np.int64)
    if dataset == "breast_cancer":
        X, y = load_breast_cancer(return_X_y=True)
        return X, (1 - y).astype(np.int64)  # malignant is positive
    found = load(dataset)
    codes = found.X.apply(lambda c: c if c.dtype.kind in "iuf" else c.astype("category").cat.codes)
    return codes.to_numpy(dtype=np.float64), np.asarray(found.y, dtype=np.int64)


def folds_of(dataset: str, resampled: str) -> Iterator[tuple[Array, ...]]:
    """Training and test rows of each fold, as two components; the training rows ``"smote"``d or thinned ``"under"``."""
    from imblearn.over_sampling import SMOTE
    from imblearn.under_sampling import RandomUnderSampler

    resampler = {"smote": SMOTE, "under": RandomUnderSampler}.get(resampled)
    X, y = rows_of(dataset)
    for train, test in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(X, y):
        reduced = make_pipeline(StandardScaler(), PCA(2), StandardScaler()).fit(X[train])
        parts = reduced.transform(X[train]), y[train]
        parts = parts if resampler is None else resampler(random_state=0).fit_resample(*parts)
        yield *parts, reduced.transform(X[test]), y[test]


def objective(loss: str) -> Callable[[Tensor, Tensor], Tensor]:
    """The sum over folds of the loss of logits and targets, both (folds, n)."""
    kind, _, metric = loss.partition("_")
    if kind in ("anyloss", "sol"):
        made = (AnyLoss if kind == "anyloss" else SOLLoss)(metric, members=FOLDS, validate=False)
        return lambda z, y: made(z, y).sum()
    if loss == "mse":
        return lambda z, y: ((z.sigmoid() - y) ** 2).mean(dim=1).sum()
    return lambda z, y: F.binary_cross_entropy_with_logits(z, y, reduction="none").mean(dim=1).sum()


def starting_weights(network: str, generator: torch.Generator) -> list[Tensor]:
    """Weights and biases of each layer, He's, with the folds' dimension first."""
    sizes = [2, 1] if network == "slp" else [2, HIDDEN, 1]
    found = []
    for fan_in, fan_out in pairwise(sizes):
        weight = torch.randn(FOLDS, fan_in, fan_out, generator=generator) * (2 / fan_in) ** 0.5
        found += [weight.requires_grad_(), torch.zeros(FOLDS, 1, fan_out, requires_grad=True)]
    return found


def logits_of(weights: list[Tensor], x: Tensor) -> Tensor:
    for k in range(0, len(weights) - 2, 2):
        x = torch.baddbmm(weights[k + 1], x, weights[k]).sigmoid()
    return torch.baddbmm(weights[-1], x, weights[-2])[..., 0]


def fit(dataset: str, network: str, loss: str) -> Iterator[dict[str, object]]:
    """Rows of one loss, one per fold."""
    parts = list(folds_of(dataset, loss.partition("+")[2]))
    least = min(len(part[1]) for part in parts), min(len(part[3]) for part in parts)
    size = max(1, round(SHARE * least[0]))
    generator = torch.Generator().manual_seed(0)
    weights = starting_weights(network, generator)
    optimiser, minimised = torch.optim.SGD(weights, lr=RATE), objective(loss)
    X, y = ([torch.from_numpy(part[k]).float() for part in parts] for k in (0, 1))
    tests = torch.stack([torch.from_numpy(part[2][: least[1]]).float() for part in parts])
    targets = np.stack([part[3][: least[1]] for part in parts])
    seconds, history = 0.0, np.empty((EPOCHS, len(METRICS), FOLDS))
    for epoch in range(EPOCHS):
        started = time.process_time()
        order = [torch.randperm(len(one), generator=generator)[: least[0]] for one in X]
        mixed_X, mixed_y = (torch.stack([one[o] for one, o in zip(of, order, strict=True)]) for of in (X, y))
        for x, t in zip(mixed_X.split(size, 1), mixed_y.split(size, 1), strict=True):
            optimiser.zero_grad()
            minimised(logits_of(weights, x), t).backward()
            optimiser.step()
        seconds += time.process_time() - started
        with torch.no_grad():
            history[epoch] = at_half(logits_of(weights, tests).numpy() >= 0, targets == 1)
    with torch.no_grad():
        for k, (_, y_train, x, y_test) in enumerate(parts):

            def scores(rows: Tensor, k: int = k) -> Array:
                return logits_of([w[k : k + 1] for w in weights], rows[None])[0].sigmoid().double().numpy()

            held, test = scores(X[k]), scores(torch.from_numpy(x).float())
            row: dict[str, object] = {"dataset": dataset, "network": network, "loss": loss, "fold": k}
            for place, metric in enumerate(METRICS):
                exact = metrics.get(f"{metric}[1]" if metric == "f1" else metric)
                cut = best_threshold(y_train, held, metric).threshold
                row[metric] = round(exact.score(y_test, (test >= 0.5).astype(int)), 5)
                row[f"tuned_{metric}"] = round(exact.score(y_test, (test >= cut).astype(int)), 5)
                far = np.abs(history[:, place, k] - history[-1, place, k]) > CLOSE
                row[f"epochs_{metric}"] = int(far.nonzero()[0].max() + 2) if far.any() else 1
            yield row | {"seconds": round(seconds / FOLDS, 3)}


def at_half(decided: NDArray[np.bool_], y: NDArray[np.bool_]) -> Array:
    """The four metrics of each fold, (metrics, folds); F1 is 0 where nothing is found."""
    tp, fp = (decided & y).sum(axis=1), (decided & ~y).sum(axis=1)
    positives, n = y.sum(axis=1), y.shape[1]
    recall, specificity = tp / positives, 1 - fp / (n - positives)
    f1 = 2 * tp / np.maximum(positives + tp + fp, 1)
    return np.stack([(tp + n - positives - fp) / n, f1, (recall + specificity) / 2, np.sqrt(recall * specificity)])


def complete(file: Path = FILE) -> pd.DataFrame:
    """The rows of the sets and networks that were run with every loss."""
    rows = pd.read_csv(file)
    return rows.groupby(["dataset", "network"], sort=False).filter(lambda here: here["loss"].nunique() == len(LOSSES))


def gaps(rows: pd.DataFrame) -> Iterator[tuple[str, str, str, str, pd.Series]]:
    """AnyLoss for a metric less another in it, fold by fold: data set, network, metric, the other, differences."""
    for (dataset, network), here in rows.groupby(["dataset", "network"], sort=False):
        values = here.set_index(["loss", "fold"])
        for metric in METRICS:
            ours = values.loc[f"anyloss_{metric}", metric]
            for rival, name in RIVALS.items():
                yield dataset, network, metric, name, ours - values.loc[rival, metric]
            yield dataset, network, metric, "SOL for it", ours - values.loc[f"sol_{metric}", metric]
            tuned = values.loc["bce", f"tuned_{metric}"]
            yield dataset, network, metric, "cross-entropy, tuned threshold", ours - tuned


def summary(rows: pd.DataFrame) -> str:
    """How often AnyLoss is ahead and behind by two standard errors, and the mean difference, as Markdown."""
    found = pd.DataFrame([
        {"network": network, "other": other, "mean": gap.mean(), "error": gap.std() / len(gap) ** 0.5}
        for _, network, _, other, gap in gaps(rows)
    ])  # fmt: skip
    lines = [f"| AnyLoss against | {' | '.join(NETWORKS.values())} |", "|---|---|---|"]
    for other, here in found.groupby("other", sort=False):
        cells = []
        for network in NETWORKS:
            one = here[here["network"] == network]
            ahead, behind = (one["mean"] > 2 * one["error"]).sum(), (one["mean"] < -2 * one["error"]).sum()
            mean = f"{one['mean'].mean():+.3f}".replace("-", "\N{MINUS SIGN}")
            cells.append(f"{ahead} ahead, {behind} behind of {len(one)}; {mean}")
        lines.append(f"| {other} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(gap: pd.Series) -> str:
    error = gap.std() / len(gap) ** 0.5
    return f"{gap.mean():+.3f} ± {error:.3f}".replace("-", "\N{MINUS SIGN}")


def table(rows: pd.DataFrame) -> str:
    """AnyLoss for a metric less the others in it: mean ± standard error over folds, as Markdown."""
    lines: list[str] = []
    for (dataset, network, metric), here in pd.DataFrame(
        [(*names, other, _cell(gap)) for *names, other, gap in gaps(rows)],
        columns=["dataset", "network", "metric", "other", "cell"],
    ).groupby(["dataset", "network", "metric"], sort=False):
        if not lines:
            head = ["AnyLoss for it, in it", "it has", *(f"less {other}" for other in here["other"])]
            lines += [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
        of = rows[(rows["dataset"] == dataset) & (rows["network"] == network) & (rows["loss"] == f"anyloss_{metric}")]
        cells = [f"{SETS[dataset]}, {NETWORKS[network]}, {METRICS[metric]}", f"{of[metric].mean():.3f}", *here["cell"]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def speed(rows: pd.DataFrame) -> str:
    """Seconds of CPU and epochs until the metric of the loss (F1 for those without) has arrived, as Markdown."""
    kinds = {"mse": "squared error", "bce": "cross-entropy", "anyloss_f1": "AnyLoss for F1", "sol_f1": "SOL for F1"}
    lines = [f"| seconds; epochs until F1 stays within 0.01 | {' | '.join(kinds.values())} |", "|---|---|---|---|---|"]
    for (dataset, network), here in rows.groupby(["dataset", "network"], sort=False):
        means = here.groupby("loss")[["seconds", "epochs_f1"]].mean()
        cells = [f"{means.loc[kind, 'seconds']:.2f}; {means.loc[kind, 'epochs_f1']:.0f}" for kind in kinds]
        lines.append(f"| {SETS[dataset]}, {NETWORKS[network]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--file", type=Path, default=FILE, help="where to append the rows")
    options = parser.parse_args()
    torch.set_num_threads(1)
    there = set()
    if options.file.exists():
        done = pd.read_csv(options.file)
        there = set(zip(done["dataset"], done["network"], done["loss"], strict=True))
    for dataset in options.datasets:
        for network in NETWORKS:
            for loss in LOSSES:
                if (dataset, network, loss) in there:
                    continue
                found = list(fit(dataset, network, loss))
                with options.file.open("a", newline="") as file:
                    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                    if file.tell() == 0:
                        writer.writeheader()
                    writer.writerows(found)
                print(dataset, network, loss, found[0]["seconds"], flush=True)


if __name__ == "__main__":
    main()
