"""The drawings of "How it works": the step functions and an annealed training, by metricfit.plots.

python docs/figures/drawings.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from metricfit import MetricClassifier, Recipe
from metricfit.plots import AnnealingDisplay, StepDisplay
from metricfit.steps import Annealed

IMAGES = Path(__file__).parents[1] / "images"
STEPS = ("annealed", "linear", "sigmoid", "amplifier", "identity")
WARM = {0.2: "#fdba74", 0.1: "#f97316", 0.05: "#c2410c", 0.01: "#7c2d12"}


def finish(figure: Any, name: str) -> None:
    """No frame at the top and the right, the exact step once in the legend."""
    for axes in figure.axes:
        axes.spines["top"].set_visible(False)
        handles, labels = axes.get_legend_handles_labels()
        once = dict(zip(labels, handles, strict=True))
        if len(once) < len(labels):
            once["exact step"] = once.pop("exact step")
            axes.legend(once.values(), once.keys(), frameon=False, fontsize=8)
    figure.savefig(IMAGES / name, dpi=150)
    print(IMAGES / name)


def draw_steps() -> None:
    """Every step by name."""
    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    for step in STEPS:
        StepDisplay(step).plot(axes)
    axes.spines["right"].set_visible(False)
    finish(figure, "steps.png")


def draw_temperatures() -> None:
    """The annealed step as it cools, at two thresholds."""
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
    for axes, tau in zip(panels, (0.5, 0.2), strict=True):
        for temperature, colour in WARM.items():
            StepDisplay(Annealed(temperature), tau=tau).plot(axes, color=colour)
        axes.set_title(f"threshold τ = {tau}", fontsize=10, loc="left")
        axes.spines["right"].set_visible(False)
    panels[1].set_ylabel("")
    finish(figure, "annealed-step.png")


def rare_digits() -> tuple[np.ndarray, np.ndarray]:
    """Scikit-learn's digits, fewer of each than of the one before."""
    X, y = load_digits(return_X_y=True)
    kept = np.concatenate([np.flatnonzero(y == digit)[: int(176 * 0.742**digit)] for digit in range(10)])
    return X[kept], y[kept]


def draw_annealing() -> None:
    """One training by the paper's recipe, with small settings so that the coolings can be told apart."""
    X, y = rare_digits()
    classifier = MetricClassifier(
        "f1", recipe=Recipe("east", patience=3, cooling=0.8, max_epochs=60, min_updates=200), cv=None, baseline=False,
        verbose=False, random_state=0,
    ).fit(X, y)  # fmt: skip
    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    handles = AnnealingDisplay.from_estimator(classifier, ax=axes).ax_.get_legend().legend_handles
    axes.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False, fontsize=8)
    finish(figure, "annealing.png")


def main() -> None:
    """Draw all."""
    IMAGES.mkdir(exist_ok=True)
    draw_steps()
    draw_temperatures()
    draw_annealing()


if __name__ == "__main__":
    main()
