"""Many classes: counts of each class against the rest give the same loss as the matrix, without it."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch

from metricfit import MetricLoss

module = import_module("metricfit.losses.metric_loss")

METRICS = [
    "f1", "f1:average=micro", "f1:average=weighted", "fbeta:beta=2", "precision", "recall", "jaccard", "f1[2]",
    "specificity",
]  # fmt: skip


def value_and_gradient(metric, logits, target, weight, **options):
    logits = logits.clone().requires_grad_()
    loss = MetricLoss(metric, **options).to(logits.dtype)
    values = [loss(logits, target, weight) for _ in range(2)]  # twice: the memory
    sum(values).backward()
    return torch.stack(values).detach(), logits.grad


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("options", [{}, {"memory": 0.9, "cross_entropy": 0.5, "balance": "sqrt"}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_the_matrix(metric, options, dtype, monkeypatch) -> None:
    random = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(40, 7, generator=random, dtype=dtype)
    target = torch.randint(6, (40,), generator=random)  # class 6 does not occur
    target[5] = -100
    weight = torch.rand(40, generator=random, dtype=dtype)
    expected = value_and_gradient(metric, logits, target, weight, **options)
    monkeypatch.setattr(module, "MATRIX_UP_TO", 2)
    found = value_and_gradient(metric, logits, target, weight, **options)
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 1e-10, "atol": 1e-12}
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, **tolerance)


def test_metrics_of_the_whole_matrix_keep_it(monkeypatch) -> None:
    monkeypatch.setattr(module, "MATRIX_UP_TO", 2)
    logits, target = torch.randn(9, 3), torch.arange(9) % 3
    for metric in ("mcc", "kappa", "accuracy"):
        assert MetricLoss(metric).confusion(logits, target).matrix.shape == (3, 3)
    assert MetricLoss("f1").confusion(logits, target).matrix.shape == (3, 2, 2)
    soft = torch.rand(9, 3).softmax(dim=-1)  # probability targets
    assert MetricLoss("f1").confusion(logits, soft).matrix.shape == (3, 3)


def test_a_hundred_thousand_classes() -> None:
    # The matrix would have 10^10 cells, 40 GB.
    logits = torch.randn(8, 100_000, generator=torch.Generator().manual_seed(0), requires_grad=True)
    loss = MetricLoss("f1", cross_entropy=0.5, balance="sqrt", memory=0.9)(logits, torch.arange(8) * 1000)
    loss.backward()
    assert bool(logits.grad.isfinite().all())
    assert float(logits.grad.abs().sum()) > 0
