"""The README's picture: the metric, its surrogates and cross-entropy along one parameter of a classifier.

python docs/figures/overview.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from torch.nn import functional as F

from metricfit import MetricLoss, metrics
from metricfit.confusion import hard_confusion_matrix
from metricfit.steps import Annealed

IMAGE = Path(__file__).parents[1] / "images" / "overview.png"
COLOURS = {0.2: "#fdba74", 0.05: "#f97316", 0.01: "#9a3412"}


def sample(n: int = 4000, positives: float = 0.06) -> tuple[torch.Tensor, torch.Tensor]:
    """One feature, few positives, two overlapping bells."""
    generator = torch.Generator().manual_seed(0)
    y = (torch.rand(n, generator=generator) < positives).long()
    return torch.randn(n, generator=generator) + 1.8 * y, y


def draw_steps(axes: plt.Axes) -> None:
    """EAST's step at falling temperatures."""
    p = torch.linspace(0, 1, 501)
    for temperature, colour in COLOURS.items():
        step = Annealed(temperature)
        axes.plot(p, step(p, 0.5), color=colour, label=f"T = {temperature:g}")
    axes.plot([0, 0.5, 0.5, 1], [0, 0, 1, 1], color="black", lw=1, ls="--", label="exact step")
    axes.set(xlabel="probability", ylabel="counts as positive", title="1. Soften the decision")
    axes.legend(frameon=False, fontsize=8)


def draw_losses(axes: plt.Axes) -> None:
    """F1 as the classifier's cut-off moves: exact, as our loss sees it, and where cross-entropy would stop."""
    x, y = sample()
    cuts = torch.linspace(-1.5, 5.0, 300)
    f1 = metrics.get("f1")
    slope = 1.8  # the true log-odds rise by 1.8 for each unit of x, so cross-entropy would choose it
    exact = [f1(hard_confusion_matrix(slope * (x - c), y, task="binary")).item() for c in cuts]
    for temperature, colour in COLOURS.items():
        loss = MetricLoss("f1", task="binary", temperature=temperature)
        axes.plot(
            cuts,
            [1 - loss(slope * (x - c), y).item() for c in cuts],
            color=colour,
            label=f"1 - loss, T = {temperature:g}",
        )
    axes.plot(cuts, exact, color="black", lw=1, ls="--", label="exact F1")
    entropy = torch.stack([F.binary_cross_entropy_with_logits(slope * (x - c), y.float()) for c in cuts])
    best, usual = max(range(len(cuts)), key=exact.__getitem__), int(entropy.argmin())
    axes.plot(cuts[usual], exact[usual], "o", color="#2563eb")
    axes.annotate(
        f"least cross-entropy:\nF1 = {exact[usual]:.2f}",
        (cuts[usual], exact[usual]),
        xytext=(cuts[usual] + 0.25, exact[usual] - 0.03),
        color="#2563eb",
        fontsize=9,
    )
    axes.plot(cuts[best], exact[best], "o", color="black")
    axes.annotate(
        f"best F1 = {exact[best]:.2f}",
        (cuts[best], exact[best]),
        xytext=(cuts[best] - 1.75, exact[best] + 0.012),
        fontsize=9,
    )
    axes.set(xlabel="cut-off of the classifier", ylabel="F1", title="2. Train on what you report")
    axes.set_ylim(0, 0.6)
    axes.legend(frameon=False, fontsize=8, loc="upper right")


def main() -> None:
    """Draw both panels."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), width_ratios=(1, 1.6), layout="constrained")
    draw_steps(left)
    draw_losses(right)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.title.set_fontsize(11)
        axes.title.set_horizontalalignment("left")
        axes.title.set_position((0, 1))
    IMAGE.parent.mkdir(exist_ok=True)
    figure.savefig(IMAGE, dpi=150)
    print(IMAGE)


if __name__ == "__main__":
    main()
