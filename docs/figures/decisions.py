"""The pictures of the guides on money, groups, capacity and prevalence, from the rows of benchmarks/decisions.

python docs/figures/decisions.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

IMAGES = Path(__file__).parents[1] / "images"
ROWS = Path(__file__).parents[2] / "benchmarks" / "decisions"
BLUE, ORANGE, GREY = "#2563eb", "#f97316", "#9ca3af"


def draw_money() -> None:
    """Euros more than by accepting everything, by rule and model: mean over splits and its standard error."""
    frame = pd.read_csv(ROWS / "money.csv")
    names = ["0.5", "F1's cut-off", "scikit-learn's grid", "best cut-off for money"]
    _, ax = plt.subplots(figsize=(7, 2.6), layout="constrained")
    for shift, (model, colour) in zip((-0.18, 0.18), (("logistic", BLUE), ("boosting", ORANGE)), strict=True):
        wide = frame[frame["model"] == model].pivot_table(index="split", columns="rule", values="euros")
        more = wide[names].sub(wide["accept everything"], axis=0)
        error = more.std(ddof=1) / np.sqrt(len(more))
        ax.barh(np.arange(4) + shift, more.mean(), 0.34, xerr=error, color=colour, ecolor=GREY, label=model)
    ax.set(yticks=range(4), yticklabels=names, xlabel="euros more than by accepting everything, 71,000 purchases")
    ax.invert_yaxis()
    ax.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
    ax.spines[["top", "right"]].set_visible(False)
    plt.savefig(IMAGES / "money.png", dpi=130)


def draw_groups() -> None:
    """The test recall of the worse sex, split by split."""
    frame = pd.read_csv(ROWS / "groups.csv").query("set == 'adult'")
    rules = ["all together", "in both sexes", "in both sexes, 95 % confidence"]
    _, ax = plt.subplots(figsize=(7, 2.4), layout="constrained")
    random = np.random.default_rng(0)
    for place, (rule, colour) in enumerate(zip(rules, (GREY, ORANGE, BLUE), strict=True)):
        worst = frame[frame["rule"] == rule]["worst"]
        ax.scatter(worst, place + random.uniform(-0.2, 0.2, len(worst)), s=14, color=colour)
    ax.axvline(0.7, color="black", linewidth=1, linestyle="--")
    ax.set(
        yticks=range(3), yticklabels=rules, xlabel="test recall of the worse sex, one dot per split (asked for: 0.7)"
    )
    ax.invert_yaxis()
    ax.spines[["top", "right"]].set_visible(False)
    plt.savefig(IMAGES / "groups.png", dpi=130)


def draw_capacity() -> None:
    """Alerts in the fullest hour of new rows, beside what was asked for; split by split, with the recall."""
    frame = pd.read_csv(ROWS / "groups.csv").query("set == 'creditcard'")  # worst: the most alerts of an hour
    _, ax = plt.subplots(figsize=(7, 2.6), layout="constrained")
    ax.bar(frame["split"] + 1, frame["worst"], color=np.where(frame["worst"] > 10, ORANGE, BLUE))
    for split, most, recall in frame[["split", "worst", "recall"]].itertuples(index=False):
        ax.text(split + 1, most + 0.3, f"{recall:.2f}", ha="center", fontsize=8)
    ax.axhline(10, color="black", linewidth=1, linestyle="--")
    ax.set(xticks=frame["split"] + 1, xlabel="split (above each bar the recall)", ylabel="alerts in the fullest hour")
    ax.spines[["top", "right"]].set_visible(False)
    plt.savefig(IMAGES / "capacity.png", dpi=130)


def draw_prevalence() -> None:
    """F1 at the new share, by how the cut-off was chosen: mean over splits and its standard error."""
    frame = pd.read_csv(ROWS / "prevalence.csv").query("metric == 'f1'")
    ways = {"kept": GREY, "moved, estimated": BLUE, "tuned on the test labels": ORANGE}
    _, ax = plt.subplots(figsize=(7, 2.4), layout="constrained")
    for shift, (way, colour) in zip((-0.27, 0, 0.27), ways.items(), strict=True):
        found = frame.groupby(["set", "wanted"], sort=False)[way]
        ax.bar(np.arange(found.ngroups) + shift, found.mean(), 0.25, yerr=found.sem(), color=colour, label=way)
    old = frame.groupby(["set", "wanted"], sort=False)["old share"].mean()
    names = [f"{name.split('_')[0]}\n{share:.1%} to {new:.0%}" for (name, new), share in old.items()]
    ax.set(xticks=range(len(names)), xticklabels=names, ylabel="F1 at the new share")
    ax.tick_params(axis="x", labelsize=8)
    ax.legend(frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1), fontsize=8)
    ax.spines[["top", "right"]].set_visible(False)
    plt.savefig(IMAGES / "prevalence.png", dpi=130)


if __name__ == "__main__":
    draw_money()
    draw_groups()
    draw_capacity()
    draw_prevalence()
