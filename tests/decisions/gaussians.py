"""Two normal distributions one unit of variance wide: every metric of every cut-off in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import norm

from metricfit import metrics
from metricfit.confusion import ConfusionMatrix


@dataclass(frozen=True)
class TwoGaussians:
    """Negatives around 0, positives around ``gap``, a share ``prevalence`` of positives."""

    gap: float = 2.0
    prevalence: float = 0.3

    def matrices(self, threshold: np.ndarray | float) -> ConfusionMatrix:
        t = np.asarray(threshold, dtype=float)
        fp, tp = (1 - self.prevalence) * norm.sf(t), self.prevalence * norm.sf(t - self.gap)
        cells = np.stack([1 - self.prevalence - fp, fp, self.prevalence - tp, tp], axis=-1)
        return ConfusionMatrix(torch.from_numpy(cells.reshape(*t.shape, 2, 2)), "binary")

    def value(self, metric: str, threshold: np.ndarray | float) -> np.ndarray:
        return metrics.get(metric).compute(self.matrices(threshold)).numpy()

    def best(self, metric: str) -> float:
        """The Bayes-optimal value: the best over a fine grid of the closed form."""
        return float(self.value(metric, np.linspace(-6, self.gap + 6, 400_001)).max())

    def sample(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        y = (rng.random(n) < self.prevalence).astype(int)
        return y, rng.normal(size=n) + self.gap * y
