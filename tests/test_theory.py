"""The finite-sample bound, its inverse, and its coverage by simulation (east Theorems 5.8 and 5.9)."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metricfit import metrics
from metricfit.confusion import ConfusionMatrix, soft_confusion_matrix
from metricfit.steps import Annealed
from metricfit.theory import batch_size_for, deviation_bound, lipschitz


@given(deviation=st.floats(0.001, 0.5), classes=st.integers(1, 1000), confidence=st.floats(0.5, 0.999))
def test_batch_size_is_the_smallest_whose_bound_is_small_enough(deviation, classes, confidence):
    n = batch_size_for(deviation, classes, confidence=confidence)
    assert deviation_bound(n, classes, confidence=confidence) <= deviation * (1 + 1e-12)
    if n > 1:
        assert deviation_bound(n - 1, classes, confidence=confidence) > deviation * (1 - 1e-12)


def test_bound_halves_with_four_times_the_samples():
    assert deviation_bound(400, 3) == pytest.approx(deviation_bound(100, 3) / 2)


@pytest.mark.parametrize("temperature", [0.2, 0.02])
def test_bound_holds_with_the_confidence_it_claims(temperature):
    """Theorem 5.8 on a population of known soft confusion matrix: violations are rarer than 1 - confidence."""
    generator = torch.Generator().manual_seed(0)
    population = torch.randn(20_000, 3, generator=generator, dtype=torch.float64)
    target = (population + torch.randn(20_000, 3, generator=generator, dtype=torch.float64)).argmax(1)

    def matrix(rows):
        step = Annealed(temperature)
        return soft_confusion_matrix(population[rows], target[rows], step=step).matrix / len(rows)

    truth = matrix(torch.arange(20_000))
    n, confidence, trials = 200, 0.8, 400
    bound = deviation_bound(n, 3, confidence=confidence)
    rng = np.random.default_rng(1)
    violations = sum(
        (matrix(torch.as_tensor(rng.integers(0, 20_000, n))) - truth).abs().max().item() > bound for _ in range(trials)
    )
    assert violations / trials <= 1 - confidence
    # The bound is of the right order, not just enormous: a third of it would be violated.
    tight = sum(
        (matrix(torch.as_tensor(rng.integers(0, 20_000, n))) - truth).abs().max().item() > bound / 3
        for _ in range(trials)
    )
    assert tight > 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: deviation_bound(0, 2), "n: expected"),
        (lambda: deviation_bound(10, 0), "classes: expected"),
        (lambda: deviation_bound(10, 2, confidence=1.0), "confidence: expected"),
        (lambda: batch_size_for(0.0, 2), "deviation: expected"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def random_matrices(share, generator, number=20_000):
    """Matrices with this share of positives, many of them close to the corners."""
    rows = torch.rand(number, 2, 2, generator=generator, dtype=torch.float64) ** 6
    return torch.tensor([[1 - share], [share]], dtype=torch.float64) * rows / rows.sum(dim=-1, keepdim=True)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.7])
@pytest.mark.parametrize("name", ["accuracy", "balanced_accuracy", "recall", "f1", "fbeta:beta=2", "jaccard", "tss"])
def test_no_two_matrices_differ_by_more_than_the_lipschitz_constant_allows(name, share):
    generator = torch.Generator().manual_seed(0)
    metric, constant = metrics.get(name), lipschitz(name, share)
    first = random_matrices(share, generator)
    near = first + 1e-3 * (random_matrices(share, generator) - first)
    for second in (random_matrices(share, generator), near):
        moved = (metric(ConfusionMatrix(first, "binary")) - metric(ConfusionMatrix(second, "binary"))).abs()
        assert (moved <= constant * (first - second).abs().amax(dim=(-1, -2)) * (1 + 1e-6) + 1e-12).all()
    # Where the row sums may change too, the bound is reached: the slopes of the cells themselves.
    leaf = first.requires_grad_()
    (slopes,) = torch.autograd.grad(metric(ConfusionMatrix(leaf, "binary")).sum(), leaf)
    steepest = slopes.abs().sum(dim=(-1, -2)).max().item()
    assert 0.8 * constant < steepest <= constant * (1 + 1e-6)


def test_known_lipschitz_constants():
    assert lipschitz("fbeta:beta=2", 0.2) == pytest.approx((1 + 4) / (4 * 0.2), rel=1e-6)
    assert lipschitz("recall[0]", 0.2) == pytest.approx(1 / 0.8, rel=1e-6)
    for name in ("precision", "mcc", "gmean"):
        assert lipschitz(name, 0.2) == math.inf
    for wrong in (0.0, 1.0, -0.1):
        with pytest.raises(ValueError, match="positive_share: expected"):
            lipschitz("f1", wrong)
