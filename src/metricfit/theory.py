"""What the papers prove: how far a batch's matrix can be from the population's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from metricfit.metrics import MetricLike

__all__ = ["batch_size_for", "deviation_bound", "lipschitz"]


def deviation_bound(n: int, classes: int, *, confidence: float = 0.95) -> float:
    """sqrt(log(2 d² / δ) / (2 n)): no cell of the matrix divided by n is further off, with this confidence.

    This is east Theorem 5.8, for ``n`` samples of d ``classes`` and a ``confidence`` of 1 - δ. A metric that is
    L-Lipschitz in the cells, see :func:`lipschitz`, is then within L times this bound (Theorem 5.9).

    >>> round(deviation_bound(1024, 2), 4)
    0.0498
    """
    if n < 1:
        raise ValueError(f"n: expected at least one sample, got {n}.")
    return math.sqrt(_exponent(classes, confidence) / (2 * n))


def batch_size_for(deviation: float, classes: int, *, confidence: float = 0.95) -> int:
    """The smallest batch whose :func:`deviation_bound` is at most ``deviation``.

    >>> batch_size_for(0.05, 2)
    1016
    """
    if not deviation > 0:
        raise ValueError(f"deviation: expected a number > 0, got {deviation}.")
    return math.ceil(_exponent(classes, confidence) / (2 * deviation**2))


def _exponent(classes: int, confidence: float) -> float:
    if classes < 1:
        raise ValueError(f"classes: expected at least 1, got {classes}.")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: expected a number strictly between 0 and 1, got {confidence}.")
    return math.log(2 * classes**2 / (1 - confidence))


def lipschitz(metric: MetricLike, positive_share: float) -> float:
    """L: while no cell of a 2 x 2 matrix divided by n moves by more than ε, the metric moves by at most L ε.

    The metric is then within L times :func:`deviation_bound` (east Theorem 5.9). L is the largest sum of the cells'
    absolute slopes over all matrices with this share of positives; quotients of counts have it in a corner. It is
    infinite for precision, MCC and, against btg section 4.1, G-mean: they jump where nothing is predicted positive, or
    rise like a root.

    >>> [round(lipschitz(name, 0.1), 3) for name in ("accuracy", "recall", "f1", "precision")]
    [2.0, 10.0, 20.0, inf]
    """
    import torch  # the command line's advice needs none of it

    from metricfit.confusion import ConfusionMatrix
    from metricfit.metrics import get

    if not 0 < positive_share < 1:
        raise ValueError(f"positive_share: expected a share strictly between 0 and 1, got {positive_share}.")
    prior = torch.tensor([[1 - positive_share], [positive_share]], dtype=torch.float64)
    corners = torch.eye(2, dtype=torch.float64)[torch.cartesian_prod(torch.arange(2), torch.arange(2))]
    found = []
    for away in (1e-5, 1e-8):  # from the corner, where some metrics are 0/0
        matrix = (prior * ((1 - away) * corners + away / 2)).requires_grad_()
        (slopes,) = torch.autograd.grad(get(metric)(ConfusionMatrix(matrix, "binary")).sum(), matrix)
        found.append(slopes.abs().sum(dim=(-1, -2)).max().item())
    return math.inf if found[1] > 2 * found[0] else found[1]
