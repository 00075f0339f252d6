"""MetricLoss in a plain training loop: rare digits, judged by macro F1.

Scikit-learn's digits with a long tail (176 zeros … 12 nines). The same small network is trained with cross-entropy,
with cross-entropy and a tuned decision rule, with √-weighted cross-entropy, with the metric alone, and with both
together. Ten random splits; every number is macro F1 on the part that no training saw.

    python examples/digits.py --out digits-report
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from metricfit import MetricLoss, metrics
from metricfit.decisions import DecisionRule, best_offsets

METRIC = metrics.get("f1_macro")
EPOCHS, BATCH = 150, 128

LOSSES: dict[str, Callable[[Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    "cross-entropy": lambda counts: nn.CrossEntropyLoss(),
    "√-weighted cross-entropy": lambda counts: nn.CrossEntropyLoss(weight=counts**-0.5),
    "the metric alone": lambda counts: MetricLoss(METRIC),
    "metric + √-weighted cross-entropy": lambda counts: MetricLoss(
        METRIC, cross_entropy=0.5, balance="sqrt", prior=counts, memory=0.9
    ),
}
TUNED = "cross-entropy, tuned rule"


def long_tailed_digits() -> tuple[np.ndarray, np.ndarray]:
    """Scikit-learn's digits, of which class k keeps about 0.7^k."""
    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    kept = [rng.permutation(np.flatnonzero(y == k))[: int(170 * 0.7**k) + 6] for k in range(10)]
    rows = np.concatenate(kept)
    return x[rows], y[rows]


def train(loss: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor, seed: int) -> nn.Module:
    """A 64-32-10 network; the loop knows nothing of the loss."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = nn.Sequential(nn.Linear(x.shape[1], 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))
        optimiser = torch.optim.AdamW(network.parameters(), weight_decay=1e-2)
        batches = max(1, len(x) // BATCH)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 5e-3, total_steps=EPOCHS * batches)
        for _ in range(EPOCHS):
            order = torch.randperm(len(x))
            for rows in order[: batches * BATCH].tensor_split(batches):
                optimiser.zero_grad()
                loss(network(x[rows]), y[rows]).backward()
                optimiser.step()
                schedule.step()
    return network.eval()


@torch.no_grad()
def probabilities(network: nn.Module, x: Tensor) -> np.ndarray:
    """Softmax outputs, float64 so that rows sum to one."""
    return network(x).double().softmax(1).numpy()


def one_split(x: np.ndarray, y: np.ndarray, seed: int) -> list[dict[str, object]]:
    """Test scores of every method on one split."""
    train_x, test_x, train_y, test_y = train_test_split(x, y, test_size=0.4, stratify=y, random_state=seed)
    scaler = StandardScaler().fit(train_x)
    a, b = (torch.tensor(scaler.transform(part), dtype=torch.float32) for part in (train_x, test_x))
    target = torch.tensor(train_y)
    counts = torch.bincount(target, minlength=10).float()
    rows: list[dict[str, object]] = []
    for name, make in LOSSES.items():
        network = train(make(counts), a, target, seed)
        score = METRIC.score(test_y, probabilities(network, b).argmax(1))
        rows.append({"split": seed, "method": name, "macro_f1": score})
    rows.append({"split": seed, "method": TUNED, "macro_f1": tuned_score(a, target, b, test_y, seed)})
    return rows


def tuned_score(a: Tensor, target: Tensor, b: Tensor, test_y: np.ndarray, seed: int) -> float:
    """Cross-entropy with class offsets tuned on a quarter of the training data that it was not trained on."""
    fit, held = train_test_split(np.arange(len(a)), test_size=0.25, stratify=target, random_state=seed)
    network = train(nn.CrossEntropyLoss(), a[fit], target[fit], seed)
    rule: DecisionRule = best_offsets(target[held].numpy(), probabilities(network, a[held]), METRIC).rule
    return float(METRIC.score(test_y, rule.apply(probabilities(network, b))))


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """Mean, standard error and the paired difference from cross-entropy."""
    wide = results.pivot(index="split", columns="method", values="macro_f1")
    gain = wide.sub(wide["cross-entropy"], axis=0)
    table = pd.DataFrame({"mean": wide.mean(), "s.e.": wide.sem(), "gain": gain.mean(), "gain s.e.": gain.sem()})
    return table.sort_values("mean")


def draw(results: pd.DataFrame, summary: pd.DataFrame, path: Path) -> None:
    """One dot a split, a bar for the mean."""
    figure, axes = plt.subplots(figsize=(8, 3.4), layout="constrained")
    for height, method in enumerate(summary.index):
        scores = results.loc[results.method == method, "macro_f1"]
        ours = "metric" in method
        axes.scatter(scores, np.full(len(scores), height), s=18, alpha=0.5, color="#c2410c" if ours else "#475569")
        axes.plot([scores.mean()] * 2, [height - 0.3, height + 0.3], lw=3, color="#c2410c" if ours else "#475569")
        axes.annotate(f"{scores.mean():.3f}", (scores.mean(), height + 0.34), ha="center", va="bottom", fontsize=8)
    axes.set(yticks=range(len(summary)), yticklabels=summary.index, xlabel="macro F1 on unseen digits (dot: one split)")
    axes.set_ylim(-0.6, len(summary) - 0.2)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", alpha=0.3)
    axes.set_title("The same network, ten splits, five ways to train it", loc="left", fontsize=11)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def report(summary: pd.DataFrame, splits: int) -> str:
    """The result in Markdown, with what it does and does not show."""
    lines = ["| method | macro F1 | gain over cross-entropy (paired) |", "|---|---|---|"]
    for method, row in summary[::-1].iterrows():
        gain = "" if method == "cross-entropy" else f"{row['gain']:+.3f} ± {row['gain s.e.']:.3f}"
        lines.append(f"| {method} | {row['mean']:.3f} ± {row['s.e.']:.3f} | {gain} |")
    body = "\n".join(lines)
    return (
        f"# Rare digits, judged by macro F1\n\n{body}\n\n± is the standard error over {splits} random splits; a gain "
        "below two of them is noise.\n\n![result](result.png)\n\nMacro F1 counts rare classes as much as common ones; "
        "cross-entropy does not. √-weighted cross-entropy is\nthe strong simple rival: compare with it on your own "
        "data. The tuned rule trains on three\nquarters of the data and is tuned on the rest; how much of its loss "
        "is due to either was not separated.\n"
    )


def main() -> None:
    """Run, print the table, write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("digits-report"), help="folder for the report")
    parser.add_argument("--splits", type=int, default=10, help="random splits (default 10)")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    x, y = long_tailed_digits()
    rows: list[dict[str, object]] = []
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        for seed in progress.track(range(arguments.splits), description="training"):
            rows += one_split(x, y, seed)
    results = pd.DataFrame(rows)
    summary = summarise(results)
    results.to_csv(arguments.out / "results.csv", index=False)
    draw(results, summary, arguments.out / "result.png")
    (arguments.out / "report.md").write_text(report(summary, arguments.splits), encoding="utf-8")
    table = Table("method", "macro F1", "gain over cross-entropy", title="Rare digits, judged by macro F1")
    for method, row in summary[::-1].iterrows():
        gain = "" if method == "cross-entropy" else f"{row['gain']:+.3f} ± {row['gain s.e.']:.3f}"
        table.add_row(str(method), f"{row['mean']:.3f} ± {row['s.e.']:.3f}", gain)
    Console().print(table)
    print(f"report: {arguments.out / 'report.md'}")


if __name__ == "__main__":
    main()
