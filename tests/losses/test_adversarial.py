"""Adversarial F1 against a linear program over all labellings, and against ap_perf."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from sklearn.metrics import f1_score

from metricfit.losses import AdversarialF1Loss
from metricfit.losses.rivals import equilibrium

seeds = st.integers(0, 2**32 - 1)


def all_labellings(n):
    return np.array(list(product([0.0, 1.0], repeat=n)))


def f1_of_all(y, others):
    """F1 of each row of ``others``; 1 where both are empty."""
    size = y.sum() + others.sum(axis=1)
    return np.where(size == 0, 1.0, 2 * others @ y / np.where(size == 0, 1, size))


def game_by_linear_program(logits):
    """The value and the adversary's mixture with all 2^n strategies of either side."""
    sets = all_labellings(len(logits))
    payoff = np.stack([f1_of_all(one, sets) for one in sets]) - sets @ logits
    count = len(sets)
    found = linprog(
        np.append(np.zeros(count), 1.0),
        A_ub=np.hstack([payoff, -np.ones((count, 1))]),
        b_ub=np.zeros(count),
        A_eq=[np.append(np.ones(count), 0.0)],
        b_eq=[1.0],
        bounds=[(0, None)] * count + [(None, None)],
    )
    return found.fun, found.x[:count]


@given(seeds)
@settings(max_examples=60, deadline=None)
def test_adversarial_f1_finds_the_equilibrium_of_the_whole_game(seed):
    random = np.random.default_rng(seed)
    logits = random.normal(size=random.integers(1, 7)) * random.choice([0.05, 0.3, 1.0, 3.0])
    value, marginals = equilibrium(logits)
    exact, _ = game_by_linear_program(logits)
    assert value == pytest.approx(exact, abs=1e-6)
    # The marginals are the slope of the value, which has kinks: compare them by what they are worth nearby.
    nearby = logits + 1e-3 * random.normal(size=len(logits))
    assert game_by_linear_program(nearby)[0] <= value - marginals @ (nearby - logits) + 1e-6


# ap_perf 0.1.1 with max_iter=20000 (1000 where it had settled by then), for logits and labels drawn as below.
AP_PERF = {
    (0, 20, 1.0): [1, 0, 1, 1, 0, 1, 1, 1, 0, 0, 0, 0.508, 0, 0, 0, 0, 0, 0, 1, 1],
    (2, 10, 0.1): [0.083, 0.083, 0.083, 0.0, 0.167, 0.083, 0.083, 0.083, 0.083, 0.083],
    (3, 20, 3.0): [1, 0, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 0, 1, 0],
    (4, 5, 0.5): [0.0, 0.498, 1.0, 1.0, 0.0],
}


@pytest.mark.parametrize("case", AP_PERF)
def test_adversarial_f1_has_the_gradient_of_ap_perf(case):
    seed, n, scale = case
    random = np.random.default_rng(seed)
    logits = (random.normal(size=n) * scale).round(2)
    y = (random.random(n) < 0.3).astype(float)
    value, marginals = equilibrium(logits)
    assert marginals == pytest.approx(np.array(AP_PERF[case]), abs=1e-2)
    z = torch.tensor(logits, requires_grad=True)
    loss = AdversarialF1Loss()(z, torch.tensor(y))
    (3 * loss).backward()
    # The training's tolerance is looser than the exact value's.
    assert loss.item() == pytest.approx(-(value + logits @ y), abs=1e-2)
    assert z.grad is not None
    assert z.grad.sum().item() == pytest.approx(3 * (marginals - y).sum(), abs=0.3)


def test_a_large_input_is_cut_into_small_batches():
    random = torch.Generator().manual_seed(0)
    logits, y = torch.randn(45, generator=random), torch.randint(2, (45,), generator=random)
    loss = AdversarialF1Loss()
    pieces = [loss(z, t) for z, t in zip(logits.split(20), y.split(20), strict=True)]
    assert loss(logits, y).item() == pytest.approx(torch.stack(pieces).mean().item(), abs=1e-5)


def test_descent_on_adversarial_f1_learns():
    random = np.random.default_rng(0)
    y = (np.arange(200) < 40).astype(int)
    X = random.normal(size=(200, 3)) + y[:, None] * [1.5, 0.5, 0.0]
    features, target = torch.tensor(X, dtype=torch.float32), torch.tensor(y)
    weight = torch.zeros(4, requires_grad=True)
    optimiser = torch.optim.Adam([weight], lr=0.05)
    loss = AdversarialF1Loss()
    order = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    before = loss(features @ weight[:3] + weight[3], target).item()
    for rows in order.repeat(5).split(20):
        optimiser.zero_grad()
        loss(features[rows] @ weight[:3] + weight[3], target[rows]).backward()
        optimiser.step()
    logits = (features @ weight[:3] + weight[3]).detach()
    assert loss(logits, target).item() < before
    everything = f1_score(y, np.ones(200))
    assert f1_score(y, logits > 0) > everything + 0.1


def test_ignored_samples_take_no_part_and_what_has_no_place_is_refused():
    logits, y = torch.tensor([0.3, -0.2, 0.1, torch.nan], requires_grad=True), torch.tensor([1, 0, 1, -100])
    loss = AdversarialF1Loss()
    value = loss(logits, y)
    (gradient,) = torch.autograd.grad(value, logits)
    assert value.item() == loss(logits[:3], y[:3]).item()
    assert gradient.isfinite().all()
    assert gradient[3] == 0
    nothing = loss(logits, torch.full((4,), -100))
    (gradient,) = torch.autograd.grad(nothing, logits)
    assert (nothing.item(), gradient.tolist()) == (0.0, [0.0] * 4)
    for options in ({"weight": torch.ones(2)}, {"from_probabilities": True}, {"members": 2}):
        with pytest.raises(ValueError, match=f"{next(iter(options))}: has no place"):
            AdversarialF1Loss(**options)
    with pytest.raises(ValueError, match="sample_weight"):
        loss(logits[:3], y[:3], torch.tensor([1.0, 2.0, 1.0]))
    with pytest.raises(ValueError, match="batch_size"):
        AdversarialF1Loss(batch_size=0)
