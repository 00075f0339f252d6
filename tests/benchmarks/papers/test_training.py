"""The papers' training loop against plain ones."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.papers.networks import build
from benchmarks.papers.training import QuickDropout, Settings, Stopping, augmented, outputs, train
from metricfit import MetricLoss


class CrossEntropy(nn.Module):
    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits, target.float())


def rows(n: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 4, generator=generator)
    return X, (X[:, 0] + 0.5 * torch.randn(n, generator=generator) > 0.5).long()


def small_network() -> nn.Module:
    return build("8-4", (4,), 1)


def test_training_equals_a_plain_loop_that_keeps_the_best_epoch() -> None:
    training, validation = rows(64, 0), rows(40, 1)
    # One batch an epoch: then the order of the rows changes nothing but rounding.
    settings = Settings("adam", 0.05, 64, patience=5, max_epochs=60)
    fit = train(small_network, CrossEntropy(), training, validation, settings, seed=3)
    torch.manual_seed(3)
    network = small_network()
    optimiser = torch.optim.Adam(network.parameters(), lr=0.05)
    losses, states = [], []
    while len(losses) < 60 and (len(losses) < 6 or min(losses[-5:]) < min(losses[:-5])):
        optimiser.zero_grad()
        F.binary_cross_entropy_with_logits(network(training[0]), training[1].float()).backward()
        optimiser.step()
        with torch.no_grad():
            losses.append(F.binary_cross_entropy_with_logits(network(validation[0]), validation[1].float()).item())
        states.append(copy.deepcopy(network.state_dict()))
    best = min(range(len(losses)), key=losses.__getitem__)
    assert fit.epochs == len(losses) < 60
    assert fit.best_epoch == best + 1 == fit.epochs - 5
    assert fit.validation_loss == pytest.approx(losses[best], abs=1e-5)
    for name, weight in fit.network.state_dict().items():
        torch.testing.assert_close(weight, states[best][name], atol=1e-4, rtol=1e-3)


def test_training_leaves_the_random_state_alone_and_depends_on_the_seed_alone() -> None:
    settings = Settings("adamw", 0.01, 16, patience=3, max_epochs=4)
    network = lambda: build("8-4", (4,), 1, dropout=0.5)  # noqa: E731
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = train(network, CrossEntropy(), rows(64, 0), rows(40, 1), settings, seed=0)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    again = train(network, CrossEntropy(), rows(64, 0), rows(40, 1), settings, seed=0)
    other = train(network, CrossEntropy(), rows(64, 0), rows(40, 1), settings, seed=1)
    X = rows(10, 2)[0]
    assert torch.equal(outputs(first.network, X), outputs(again.network, X))
    assert not torch.equal(outputs(first.network, X), outputs(other.network, X))


@given(st.lists(st.integers(0, 6), min_size=1, max_size=30), st.integers(1, 4))
def test_training_stops_when_the_window_brought_nothing_lower(values: list[int], patience: int) -> None:
    stopping = Stopping(CrossEntropy(), Settings("adam", 0.1, 1, patience, 100))
    stopped = len(values)
    for i, value in enumerate(values):
        stopping.step(float(value))
        if stopping.finished:
            stopped = i + 1
            break
    expected = len(values)
    for n in range(patience + 1, len(values) + 1):
        if min(values[n - patience : n]) >= min(values[: n - patience]):
            expected = n
            break
    assert stopped == expected


def test_annealing_cools_on_each_plateau_until_it_is_fruitless() -> None:
    loss = MetricLoss("f1")
    stopping = Stopping(loss, Settings("adam", 0.1, 1, patience=2, max_epochs=100, factor=0.5, fruitless=2))
    seen = []
    # Two plateaus that improve on the one before, then two that do not.
    for value in [0.9, 0.9, 0.9, 0.5, 0.5, 0.5, 0.6, 0.6, 0.6, 0.7, 0.7, 0.7]:
        assert not stopping.finished
        seen.append(round(stopping.temperature, 4))
        stopping.step(value)
    assert stopping.finished
    assert seen == [0.2] * 3 + [0.1] * 3 + [0.05] * 3 + [0.025] * 3


@pytest.mark.parametrize("factor", [None, 0.5])
def test_what_falls_by_less_than_asked_for_does_not_count(factor: float | None) -> None:
    def epochs(min_delta: float) -> int:
        loss = MetricLoss("f1")
        settings = Settings("adam", 0.1, 1, patience=2, max_epochs=100, factor=factor, fruitless=1, min_delta=min_delta)
        stopping = Stopping(loss, settings)
        for epoch in range(50):
            if stopping.finished:
                return epoch
            stopping.step(0.5 - 1e-4 * epoch)
        return 50

    assert epochs(0.0) == 50
    assert epochs(1e-3) < 20


def test_an_annealed_training_ends_at_a_lower_temperature() -> None:
    settings = Settings("adamw", 0.02, 32, patience=2, max_epochs=60, factor=0.8)
    loss = MetricLoss("f1", average=1, validate=False)
    fit = train(lambda: build("8-4", (4,), 2), loss, rows(128, 0), rows(64, 1), settings, seed=0)
    assert float(loss.temperature) < 0.2
    assert fit.temperature <= 0.2
    assert fit.validation_loss < 0.4


def test_quick_dropout_keeps_each_number_with_probability_one_minus_p_and_the_mean() -> None:
    layer = QuickDropout(0.25).train()
    x = torch.ones(400, 1000, requires_grad=True)
    torch.manual_seed(0)
    y = layer(x)
    assert y.unique().tolist() == pytest.approx([0, 4 / 3])
    assert float((y == 0).double().mean()) == pytest.approx(0.25, abs=0.005)
    y.sum().backward()
    torch.testing.assert_close(x.grad, y.detach())
    assert layer.eval()(x) is x


def test_augmented_images_are_crops_of_the_padded_image_or_its_mirror() -> None:
    images = torch.arange(1.0, 1 + 6 * 2 * 5 * 5).view(6, 2, 5, 5)
    torch.manual_seed(0)
    made = augmented(images, padding=1)
    for one, image in zip(made, images, strict=True):
        padded = F.pad(image, [1] * 4)
        crops = [padded[:, i : i + 5, j : j + 5] for i in range(3) for j in range(3)]
        assert any(torch.equal(one, crop) or torch.equal(one, crop.flip(2)) for crop in crops)
