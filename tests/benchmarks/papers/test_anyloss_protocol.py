"""AnyLoss's own protocol: its parts against scikit-learn and plain formulas, and its rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score

from benchmarks.papers.checks import anyloss_protocol as protocol


def test_the_metrics_of_all_folds_are_scikit_learns() -> None:
    random = np.random.default_rng(0)
    y, decided = random.random((10, 50)) < 0.3, random.random((10, 50)) < 0.4
    decided[0] = False
    found = protocol.at_half(decided, y)
    for k in range(10):
        recalls = [(decided[k] == y[k])[y[k] == side].mean() for side in (False, True)]
        expected = [
            accuracy_score(y[k], decided[k]), f1_score(y[k], decided[k], zero_division=0),
            balanced_accuracy_score(y[k], decided[k]), np.sqrt(recalls[0] * recalls[1]),
        ]  # fmt: skip
        assert found[:, k] == pytest.approx(expected)


@pytest.mark.parametrize("loss", ["mse", "bce", "anyloss_f1", "anyloss_gmean"])
def test_the_losses_of_all_folds_are_sums_of_plain_formulas(loss: str) -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(protocol.FOLDS, 12, generator=generator, dtype=torch.float64, requires_grad=True)
    y = (torch.rand(protocol.FOLDS, 12, generator=generator) < 0.4).double()
    y[:, 0], y[:, 1] = 1, 0
    p = z.sigmoid()
    if loss == "mse":
        expected = ((p - y) ** 2).mean(dim=1).sum()
    elif loss == "bce":
        expected = -(y * p.log() + (1 - y) * (1 - p).log()).mean(dim=1).sum()
    else:
        amplified = 1 / (1 + torch.exp(-73 * (p - 0.5)))
        tp, fp = (amplified * y).sum(dim=1), (amplified * (1 - y)).sum(dim=1)
        positives, negatives = y.sum(dim=1), (1 - y).sum(dim=1)
        f1 = 2 * tp / (positives + tp + fp)
        expected = (1 - (f1 if loss == "anyloss_f1" else (tp / positives * (1 - fp / negatives)).sqrt())).sum()
    found = protocol.objective(loss)(z, y)
    torch.testing.assert_close(found, expected)
    for one, other in zip(torch.autograd.grad(found, z), torch.autograd.grad(expected, z), strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-6)


def test_folds_are_stratified_and_have_two_components() -> None:
    X, y = protocol.rows_of("breast_cancer")
    assert (X.shape[1], y.sum()) == (30, 212)
    parts = list(protocol.folds_of("breast_cancer", ""))
    assert len(parts) == 10
    for X_train, y_train, X_test, y_test in parts:
        assert X_train.shape[1] == X_test.shape[1] == 2
        assert abs(y_test.mean() - 212 / 569) < 0.02
        assert len(y_train) + len(y_test) == 569
    for kind, larger in (("smote", True), ("under", False)):
        _, y_train, _, _ = next(protocol.folds_of("breast_cancer", kind))
        assert y_train.mean() == 0.5
        assert (len(y_train) > 512) == larger


def test_rows_are_whole_and_those_of_the_protocol() -> None:
    rows = protocol.complete()
    for _, folds in rows.groupby(["dataset", "network", "loss"])["fold"]:
        assert sorted(folds) == list(range(10))
    assert set(rows["loss"]) == set(protocol.LOSSES)
    assert rows[list(protocol.METRICS)].stack().between(0, 1).all()
