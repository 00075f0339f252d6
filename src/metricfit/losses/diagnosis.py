"""What a loss can learn from a batch, in numbers."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metricfit.confusion import hard_matrix
from metricfit.theory import deviation_bound

if TYPE_CHECKING:
    from metricfit.losses.metric_loss import MetricLoss


@dataclass(frozen=True)
class Diagnosis:
    """The state of a metric loss on one batch.

    The network is trained on the metric of the soft confusion matrix; ``hard_value`` is that of the predictions. A
    wide ``gap`` says that the one does not follow the other yet. ``share_without_gradient`` counts the samples whose
    gradient is below a millionth of the largest one. With this ``confidence`` no cell of the normalised confusion
    matrix is further from the population's than ``deviation_bound`` (east Theorem 5.8).
    """

    soft_value: float
    hard_value: float
    gap: float
    share_without_gradient: float
    classes_without_support: tuple[Hashable, ...]
    samples: int
    deviation_bound: float
    confidence: float

    def __str__(self) -> str:
        absent = ", ".join(map(str, self.classes_without_support[:10])) or "none"
        return (
            f"soft value {self.soft_value:.4f}, hard value {self.hard_value:.4f} (gap {self.gap:+.4f})\n"
            f"samples without gradient: {self.share_without_gradient:.1%} of {self.samples}\n"
            f"classes without support: {absent}\n"
            f"each cell of the matrix is within {self.deviation_bound:.4f} of the population's "
            f"({self.confidence:.0%} confidence)"
        )


def diagnose(
    loss: MetricLoss, input: Tensor, target: Tensor, sample_weight: Tensor | None, *, confidence: float
) -> Diagnosis:
    """Compute a :class:`Diagnosis`; the loss's memory is neither used nor changed, cross-entropy left out."""
    batch = loss.batch(target, sample_weight, remember=False)
    if loss.members is not None:
        raise ValueError("members: a diagnosis is of one network; give its logits to a loss without members.")
    batch.group = None
    samples, metric = batch.samples(input.detach()), loss.metric
    with torch.enable_grad():
        scores = samples.scores.clone().requires_grad_()
        samples = replace(samples, scores=scores)
        source = batch.source([batch.counts(samples, grid) for grid in loss.grids])
        soft = metric.evaluate(source).detach()
        (gradient,) = torch.autograd.grad(metric.loss(source), scores)
    counted = samples.weight > 0
    counted = counted if counted.ndim == 1 else counted.any(dim=-1)
    strength = gradient.abs().amax(dim=-1)[counted]
    strongest = float(strength.max()) if len(strength) else 0.0
    idle = (strength <= 1e-6 * strongest).double().mean() if len(strength) else torch.tensor(1.0)
    how: Any = {"threshold": loss.threshold, "labels": loss.labels, "absent": loss.absent}
    exact = {grid: hard_matrix(samples, thresholds=grid, **how) for grid in {None, *loss.grids}}
    hard, cm = float(metric.evaluate(exact.__getitem__)), exact[None]
    names = loss.labels if loss.labels is not None else range(cm.num_classes)
    # The side of a square matrix with no fewer cells than this one, which has four per label in a multi-label task.
    side = math.ceil(2 * math.sqrt(cm.num_classes)) if cm.task == "multilabel" else cm.num_classes
    absent = tuple(names[i] for i in torch.nonzero(cm.support <= 0).flatten().tolist())
    number, value = int(counted.sum()), float(soft)
    bound = deviation_bound(max(number, 1), side, confidence=confidence)
    return Diagnosis(value, hard, value - hard, float(idle), absent, number, bound, confidence)
