"""The pictures of the guide "I need 90 % recall".

python docs/figures/recall.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from metricfit import ConfusionMatrix, metrics
from metricfit.decisions import best_threshold

IMAGES = Path(__file__).parents[1] / "images"
BLUE, ORANGE, GREY = "#2563eb", "#f97316", "#9ca3af"
GOAL = "precision[1] subject to recall[1] >= 0.9"


def scores() -> tuple[np.ndarray, np.ndarray]:
    """The guide's patients: truth and score of those to choose with."""
    features, benign = load_breast_cancer(return_X_y=True, as_frame=True)
    ill = (benign == 0).astype(int)
    quick = features[["mean texture", "mean smoothness", "mean symmetry"]]
    to_fit, to_choose, ill_fit, ill_choose = train_test_split(quick, ill, test_size=0.5, stratify=ill, random_state=0)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(to_fit, ill_fit)
    return ill_choose.to_numpy(), model.predict_proba(to_choose)[:, 1]


def draw_sweep() -> None:
    """Recall, precision and alarms over the cut-off, with the two cut-offs chosen."""
    ill, score = scores()
    thresholds = np.unique(score)
    every = ConfusionMatrix.from_scores(ill, score, thresholds=thresholds)
    recall, precision, called = (
        metrics.get(spec).compute(every) for spec in ("recall[1]", "precision[1]", "predicted_share[1]")
    )
    figure, axes = plt.subplots(figsize=(7.2, 4), layout="constrained")
    axes.step(thresholds, recall, where="pre", color=BLUE, lw=2, label="recall: share of the ill found")
    axes.step(
        thresholds, precision, where="pre", color=ORANGE, lw=2, label="precision: share of the called that are ill"
    )
    axes.step(thresholds, called, where="pre", color=GREY, lw=1.5, label="share of patients called ill")
    axes.axhline(0.9, color=BLUE, lw=0.8, ls=":")
    plain, safe = best_threshold(ill, score, GOAL), best_threshold(ill, score, GOAL, confidence=0.95)
    axes.axvline(
        plain.threshold,
        color="black",
        lw=1,
        ls="--",
        label=f"best cut-off with recall ≥ 90 % here: {plain.threshold:.3f}",
    )
    axes.axvline(safe.threshold, color="black", lw=1, label=f"the same with 95 % confidence: {safe.threshold:.3f}")
    axes.set(xlabel="cut-off", ylim=(0, 1.02), xlim=(0, 1))
    axes.yaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(1))
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False, fontsize=8.5)
    figure.savefig(IMAGES / "recall_sweep.png", dpi=150)


def draw_promise(repetitions: int = 2000, n: int = 300) -> None:
    """The true recall of cut-offs chosen on n cases each, from two normal distributions."""
    rng = np.random.default_rng(0)
    recall: dict[str, list[float]] = {"without confidence": [], "with 95 % confidence": []}
    for _ in range(repetitions):
        y = (rng.random(n) < 0.4).astype(int)
        score = rng.normal(size=n) + 2.5 * y
        for kind, confidence in (("without confidence", None), ("with 95 % confidence", 0.95)):
            chosen = best_threshold(y, score, GOAL, confidence=confidence).threshold
            recall[kind].append(float(norm.sf(chosen - 2.5)))
    figure, axes = plt.subplots(figsize=(7.2, 3.6), layout="constrained")
    bins = np.arange(0.80, 1.0001, 0.005)
    for (kind, values), colour in zip(recall.items(), (GREY, BLUE), strict=True):
        broken = np.mean(np.array(values) < 0.9)
        axes.hist(
            values,
            bins=bins,
            color=colour,
            alpha=0.65,
            label=f"{kind}: recall below 90 % in {100 * broken:.1f} % of the choices",
        )
    axes.axvline(0.9, color="black", lw=1)
    axes.set(xlabel="true recall of the chosen cut-off", ylabel="choices", xlim=(0.8, 1))
    axes.xaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(1, decimals=0))
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xticks(np.arange(0.80, 1.001, 0.02))
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", frameon=False, fontsize=9)
    figure.savefig(IMAGES / "recall_promise.png", dpi=150)


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    draw_sweep()
    draw_promise()
