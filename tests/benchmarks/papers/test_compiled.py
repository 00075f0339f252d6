"""Compiled training of small networks against torch: each loss with its gradient, then whole trainings."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from benchmarks.papers import compiled, losses
from benchmarks.papers.compiled_losses import goal_of, loss_and_gradient
from benchmarks.papers.networks import build
from benchmarks.papers.training import Settings, outputs, train
from metricfit import MetricLoss

METHODS = [
    "bce", "mse", "dice", "dice_sigmoid", "dice_released", "dice_released_sigmoid", "wmw_auroc", "auroc", "f1", "f2",
    "f3", "accuracy", "anyloss_accuracy", "anyloss_f1", "anyloss_balanced_accuracy", "anyloss_gmean",
]  # fmt: skip
GRID = tuple(i / 10 for i in range(1, 10))


def loss_of(method: str, **options: object) -> nn.Module:
    return losses.build(method, n_classes=2, prior=0.2, single_output=True, **options).loss  # type: ignore[arg-type]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("approximation", ["linear", "sigmoid"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("thresholds", [(0.5,), GRID], ids=["half", "grid"])
def test_losses_and_gradients_are_those_of_torch(
    method: str, approximation: str, weighted: bool, thresholds: tuple[float, ...]
) -> None:
    try:
        loss = loss_of(method, approximation=approximation, weighted=weighted, thresholds=thresholds)
    except ValueError:
        assert weighted  # has no effect on some
        return
    goal = goal_of(loss)
    assert goal is not None
    generator = torch.Generator().manual_seed(0)
    for spread, share in ((1.0, 0.3), (4.0, 0.1), (0.1, 0.5), (2.0, 0.0), (2.0, 1.0)):
        z = (spread * torch.randn(100, generator=generator)).requires_grad_()
        y = (torch.rand(100, generator=generator) < share).long()
        value = loss(z, y)
        expected = torch.autograd.grad(value, z)[0].numpy() if value.requires_grad else np.zeros(100)
        found = np.empty(100, np.float32)
        assert loss_and_gradient(goal, z.detach().numpy(), y.numpy(), found) == pytest.approx(
            float(value.detach()), abs=1e-5
        )
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * max(1e-3, np.abs(expected).max()))


@pytest.mark.parametrize("method", ["f1", "f3", "accuracy", "mcc", "ce", "auroc", "anyloss_gmean"])
@pytest.mark.parametrize("approximation", ["linear", "sigmoid", "annealed"])
@pytest.mark.parametrize("temperature", [0.2, 0.05, 0.004])
def test_losses_of_two_outputs_are_those_of_their_difference(
    method: str, approximation: str, temperature: float
) -> None:
    loss = losses.build(
        method, approximation=approximation, temperature=temperature, n_classes=2, prior=0.2, single_output=False
    ).loss
    goal = goal_of(loss)
    assert goal is not None
    generator = torch.Generator().manual_seed(1)
    for spread, share in ((1.0, 0.3), (4.0, 0.1), (0.1, 0.5), (2.0, 0.0), (2.0, 1.0)):
        logits = (spread * torch.randn(100, 2, generator=generator)).requires_grad_()
        y = (torch.rand(100, generator=generator) < share).long()
        value = loss(logits, y)
        expected = torch.autograd.grad(value, logits)[0].numpy() if value.requires_grad else np.zeros((100, 2))
        found, z = np.empty(100, np.float32), (logits[:, 1] - logits[:, 0]).detach().numpy()
        assert loss_and_gradient(goal, z, y.numpy(), found) == pytest.approx(float(value.detach()), abs=1e-5)
        tolerance = 1e-5 * max(1e-3, np.abs(expected).max())
        np.testing.assert_allclose(np.stack([-found, found], 1), expected, rtol=1e-3, atol=tolerance)


def rows(n: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 4, generator=generator)
    return X, (X[:, 0] + 0.5 * torch.randn(n, generator=generator) > 0.5).long()


@pytest.mark.parametrize("network", ["8-4", "linear", "5"])
@pytest.mark.parametrize("method", ["f1", "bce", "dice"])
def test_training_equals_the_plain_loop_with_one_batch_an_epoch(network: str, method: str) -> None:
    # One batch an epoch: then the order of the rows changes nothing but rounding.
    settings = Settings("adam", 0.05, 64, patience=5, max_epochs=25)
    make = partial(build, network, (4,), 1)
    training, validation = rows(64, 0), rows(40, 1)
    fits = [f(make, loss_of(method), training, validation, settings, seed=3) for f in (train, compiled.train)]
    plain, quick = fits
    assert (quick.epochs, quick.best_epoch) == (plain.epochs, plain.best_epoch)
    assert quick.validation_loss == pytest.approx(plain.validation_loss, abs=1e-4)
    X = rows(30, 9)[0]
    torch.testing.assert_close(outputs(quick.network, X), outputs(plain.network, X), atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize("network", ["8-4", "linear"])
@pytest.mark.parametrize("method", ["f1", "mcc", "ce"])
@pytest.mark.parametrize("factor", [None, 0.8])
def test_annealed_training_of_two_outputs_equals_the_plain_loop(
    network: str, method: str, factor: float | None
) -> None:
    settings = Settings("adamw", 0.03, 64, patience=3, max_epochs=40, factor=None if method == "ce" else factor)
    make = partial(build, network, (4,), 2)
    training, validation = rows(64, 0), rows(40, 1)
    approximation = "annealed" if settings.factor else "linear"

    def of_two() -> nn.Module:
        built = losses.build(method, approximation=approximation, n_classes=2, prior=0.2, single_output=False)
        return built.loss

    assert compiled.can_train(make, of_two(), settings)
    # Not seed 3: with cross-entropy a unit comes within 2e-8 of its ReLU's edge there, and rounding decides its side.
    plain, quick = (f(make, of_two(), training, validation, settings, seed=0) for f in (train, compiled.train))
    assert (quick.epochs, quick.best_epoch) == (plain.epochs, plain.best_epoch)
    assert quick.temperature == pytest.approx(plain.temperature, nan_ok=True)
    assert quick.validation_loss == pytest.approx(plain.validation_loss, abs=1e-5)
    X = rows(30, 9)[0]
    torch.testing.assert_close(outputs(quick.network, X), outputs(plain.network, X), atol=1e-4, rtol=1e-4)


def test_batches_and_dropout_learn_as_the_plain_loop_does() -> None:
    settings = Settings("adam", 0.02, 64, patience=20, max_epochs=25)
    make = partial(build, "16-8", (4,), 1, dropout=0.5)
    found: dict[str, list[float]] = {"plain": [], "compiled": []}
    for seed in range(6):
        for name, function in (("plain", train), ("compiled", compiled.train)):
            fit = function(make, loss_of("f1"), rows(201, 2 * seed), rows(100, 2 * seed + 1), settings, seed=seed)
            X, y = rows(1000, 1000)
            found[name].append(float(((outputs(fit.network, X) > 0) == (y == 1)).float().mean()))
    difference = np.subtract(found["compiled"], found["plain"])
    assert min(found["compiled"]) > 0.75
    assert abs(difference.mean()) < 3 * difference.std(ddof=1) / np.sqrt(6) + 0.005


def test_dropout_leaves_out_its_share_and_keeps_the_mean() -> None:
    mask, state = np.empty(200_003, np.float32), np.array([88172645463325252], np.uint64)
    compiled._draw(mask, 64, np.float32(256 / 192), state)
    first = mask.copy()
    assert (mask == 0).mean() == pytest.approx(0.25, abs=0.005)
    assert mask.mean() == pytest.approx(1, abs=0.005)
    compiled._draw(mask, 64, np.float32(256 / 192), state)
    assert np.corrcoef(first, mask)[0, 1] == pytest.approx(0, abs=0.01)


def test_the_seed_alone_decides_and_no_global_state_is_touched() -> None:
    settings = Settings("adam", 0.01, 16, patience=3, max_epochs=4)
    make = partial(build, "8-4", (4,), 1, dropout=0.5)
    before = torch.get_rng_state()
    fits = [compiled.train(make, loss_of("f1"), rows(64, 0), rows(40, 1), settings, seed=s) for s in (0, 0, 1)]
    assert compiled.can_train(make, loss_of("f1"), settings)
    assert torch.equal(torch.get_rng_state(), before)
    first, again, other = (outputs(fit.network, rows(10, 2)[0]) for fit in fits)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_what_is_not_covered_is_left_to_the_plain_loop() -> None:
    settings = Settings("adam", 0.01, 16, patience=3, max_epochs=4)
    single = partial(build, "8-4", (4,), 1)
    assert not compiled.can_train(partial(build, "8-4", (4,), 2), loss_of("f1"), settings)
    assert not compiled.can_train(partial(build, "tiny-darknet", (3, 32, 32), 1, width=0.1), loss_of("f1"), settings)
    assert not compiled.can_train(single, loss_of("f1"), Settings("sgd", 0.01, 16, 3, 4))
    assert not compiled.can_train(single, loss_of("f1"), Settings("adam", 0.01, 16, 3, 4, weight_decay=0.1))
    of_two = losses.build("f1", n_classes=2, prior=0.2, single_output=False).loss
    assert compiled.can_train(partial(build, "8-4", (4,), 2), of_two, settings)
    assert not compiled.can_train(single, of_two, settings)
    assert not compiled.can_train(partial(build, "8-4", (4,), 3), of_two, settings)
    assert not compiled.can_train(partial(build, "8-4", (4,), 2), MetricLoss("f1", average="macro"), settings)
    assert not compiled.can_train(single, MetricLoss("kappa", task="binary", step="linear"), settings)
    assert not compiled.can_train(partial(build, "8-4", (4,), 1, dropout=0.3), loss_of("f1"), settings)
    with pytest.raises(ValueError, match="not among the compiled"):
        compiled.train(single, nn.MSELoss(), rows(64, 0), rows(40, 1), settings, seed=0)
