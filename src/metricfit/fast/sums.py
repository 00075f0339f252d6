"""The metrics of :mod:`metricfit.fast.loops` as operations on tensors, for devices: no value is waited for."""

from __future__ import annotations

import torch
from torch import Tensor

from metricfit.fast.loops import TINY
from metricfit.fast.metric_gradients import ClosedForm

__all__ = ["loss_of_sums"]

Parts = tuple[Tensor, Tensor, Tensor]


def loss_of_sums(metric: ClosedForm, hits: Tensor, true: Tensor, predicted: Tensor, skip_absent: bool) -> Parts:
    """1 - metric and the column and diagonal part of its gradient; all 0 without any weight.

    Args:
        metric: The metric.
        hits: The diagonal of the matrix, (d,), in float64.
        true: Sums of its rows.
        predicted: Sums of its columns.
        skip_absent: Whether means leave out classes without support.
    """
    if metric.ratio is None:
        loss, columns, diagonal = _mcc(metric, hits, true, predicted)
    else:
        loss, columns, diagonal = _mean_ratio(metric, hits, true, predicted, skip_absent)
    return torch.where(true.sum() > 0, loss, 0.0), columns, diagonal


def _mean_ratio(metric: ClosedForm, hits: Tensor, true: Tensor, predicted: Tensor, skip_absent: bool) -> Parts:
    a, b, c, d = metric.ratio or (0.0, 0.0, 0.0, 0.0)
    misses, false_alarms = true - hits, predicted - hits
    misses, false_alarms = misses * (misses > 0), false_alarms * (false_alarms > 0)
    below = b * hits + c * misses + d * false_alarms
    is_defined = below > TINY
    below = torch.where(is_defined, below, 1.0)
    value = torch.where(is_defined, a * hits / below, metric.undefined)
    takes_part = torch.ones_like(true, dtype=torch.bool) if not skip_absent or metric.label >= 0 else true > 0
    if metric.label >= 0:
        takes_part[: metric.label] = False
        takes_part[metric.label + 1 :] = False
    averaged = takes_part.sum()
    averaged = averaged + (averaged == 0)  # nothing at all: the loss is 0
    loss = 1.0 - (value * takes_part).sum() / averaged
    share = (takes_part & is_defined) / (below * averaged)
    rows, columns = value * c * share, value * d * share
    return loss, columns, (value * b - a) * share - rows - columns


def _mcc(metric: ClosedForm, hits: Tensor, true: Tensor, predicted: Tensor) -> Parts:
    total = true.sum()
    total = total + (total == 0)
    p, t = predicted / total, true / total
    correct = hits.sum() / total
    covariance = correct - (p * t).sum()
    # Twice the sums over pairs of different classes: exactly 0 where there is only one.
    spread, true_spread = 2 * (p * (p.cumsum(0) - p)).sum(), 2 * (t * (t.cumsum(0) - t)).sum()
    is_defined = (spread > TINY) & (true_spread > TINY)
    spread, true_spread = torch.where(is_defined, spread, 1.0), torch.where(is_defined, true_spread, 1.0)
    norm = (spread * true_spread) ** 0.5
    value = covariance / norm
    scale = is_defined / total
    columns = (value * (1.0 - p) / spread + t / norm) * scale
    return 1.0 - torch.where(is_defined, value, metric.undefined), columns, (p * 0 - 1 / norm) * scale
