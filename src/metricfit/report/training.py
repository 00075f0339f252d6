"""What happened in training: curves, coolings, whether the loss tracked the metric, the step at the end."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import torch

from metricfit.report.formula import number
from metricfit.steps import Annealed
from metricfit.steps import get as get_step
from metricfit.training.recipes import Recipe

__all__ = ["alignment", "coolings", "step_curve", "training"]


def training(classifier: Any) -> dict[str, Any] | None:
    """The data of the training charts, or None without a single epoch."""
    history: pd.DataFrame = classifier.history_
    if not len(history):
        return None
    recipe: Recipe = classifier.recipe_
    columns = ("epoch", "loss", "soft_metric", "hard_metric", "log_loss", "temperature")
    found: dict[str, Any] = {name: [number(v) for v in history[name].tolist()] for name in columns}
    found["coolings"] = coolings(history)
    found["kept"] = sorted({int(e) for e in classifier.best_epochs_})
    found["selection_temperature"] = recipe.selection_temperature
    found["loss_is"] = recipe.objective
    found["alignment"] = alignment(history)
    uses_step = recipe.objective == "metric"
    found["step"] = step_curve(recipe, float(history["temperature"].iloc[-1])) if uses_step else None
    return found


def coolings(history: pd.DataFrame) -> list[int]:
    """Epochs at whose end the temperature was lower than before.

    >>> coolings(pd.DataFrame({"epoch": [1, 2, 3], "temperature": [0.2, 0.2, 0.18]}))
    [3]
    """
    falls = history["temperature"].diff() < -1e-12
    return [int(e) for e in history.loc[falls, "epoch"]]


def alignment(history: pd.DataFrame) -> dict[str, Any]:
    """Pairs of the surrogate and the exact metric, epoch by epoch, and how closely they go together."""
    known = history[["epoch", "soft_metric", "hard_metric", "temperature"]].replace([np.inf, -np.inf], np.nan).dropna()
    soft, hard = known["soft_metric"].to_numpy(), known["hard_metric"].to_numpy()
    enough = len(known) > 2 and float(soft.std()) > 1e-12 and float(hard.std()) > 1e-12
    together = float(np.corrcoef(soft, hard)[0, 1]) if enough else math.nan
    ranks = float(known["soft_metric"].rank().corr(known["hard_metric"].rank())) if enough else math.nan
    points = [[float(v) for v in row] for row in known.to_numpy()]
    return {"points": points, "correlation": number(together), "rank_correlation": number(ranks)}


def step_curve(recipe: Recipe, temperature: float, *, points: int = 201) -> dict[str, Any]:
    """The step over the probability at the threshold one half, at the first and the last temperature."""
    p = torch.linspace(0, 1, points, dtype=torch.float64)
    half = torch.tensor(0.5, dtype=torch.float64)
    chosen = get_step(recipe.step)
    annealed = isinstance(chosen, Annealed)

    def heights(t: float) -> list[float]:
        step = Annealed(t) if annealed else chosen
        return [round(float(v), 6) for v in step(p, half)]

    first = recipe.temperature
    return {
        "name": str(recipe.step),
        "p": [round(float(v), 4) for v in p],
        "last": heights(temperature),
        "first": heights(first) if annealed and abs(first - temperature) > 1e-6 else None,
        "temperature": round(temperature, 6) if annealed else None,
        "first_temperature": first if annealed else None,
    }
