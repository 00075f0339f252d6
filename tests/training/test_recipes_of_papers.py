"""The recipes of the five papers train what these print, step by step."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from metricfit import metrics
from metricfit.training import Folds, Recipe, Table, Trainer
from metricfit.training.rows import BatchOrder, split_rows


def height(p, tau, delta, reach=1.0):
    """btg eq. 5, branch by branch; east eq. 4 has knots ``reach`` times as far from τ."""
    half = reach * torch.minimum(tau, 1 - tau) / 2
    if p < tau - half:
        return p * delta / (tau - half)
    if p > tau + half:
        return 1 - (1 - p) * delta / (1 - tau - half)
    return 0.5 + (p - tau) * (1 - 2 * delta) / (2 * half)


def memberships(z, delta, reach=1.0):
    """Steps at the mean of the two largest probabilities, normalised (multiclass-fbeta §4, east §4.1)."""
    p = z.softmax(0)
    largest = p.sort(descending=True).values
    tau = (largest[0] + largest[1]) / 2
    row = torch.stack([height(one, tau, delta, reach) for one in p])
    return row / row.sum()


def one_minus_fbeta(memberships, target, betas):
    """One minus the macro Fβ of the soft matrix."""
    matrix = torch.zeros(3, 3)
    for row, y in zip(memberships, target, strict=True):
        matrix = matrix + nn.functional.one_hot(y, 3)[:, None] * row
    scores = []
    for k, beta in enumerate(betas):
        tp, fn, fp = matrix[k, k], matrix[k].sum() - matrix[k, k], matrix[:, k].sum() - matrix[k, k]
        scores.append((1 + beta**2) * tp / ((1 + beta**2) * tp + beta**2 * fn + fp))
    return 1 - sum(scores) / 3


def one_minus_f1(heights, target):
    """One minus the F1 of eq. 6 of btg: a positive adds H to TP and 1 - H to FN, a negative H to FP."""
    tp = fp = fn = torch.zeros(())
    for h, y in zip(heights, target, strict=True):
        tp, fn, fp = (tp + h, fn + 1 - h, fp) if y == 1 else (tp, fn, fp + h)
    return 1 - 2 * tp / (2 * tp + fp + fn)


def btg_loss(logits, target, **_):
    return one_minus_f1([height((z[1] - z[0]).sigmoid(), torch.tensor(0.5), delta=0.1) for z in logits], target)


def fbeta_loss(logits, target, **_):
    return one_minus_fbeta([memberships(z, delta=0.2) for z in logits], target, betas=(1.0, 5.0, 0.25))


def east_loss(logits, target, temperature, **_):
    """Eq. 4: δ = T, and knots 5 T min(τ, 1 - τ) apart."""
    return one_minus_fbeta([memberships(z, temperature, 5 * temperature) for z in logits], target, betas=(1, 1, 1))


def surrogate_loss(logits, target, share, **_):
    """Eq. 20 with the weights of eq. 2, p the share of positives that is known."""
    total = torch.zeros(())
    for z, y in zip(logits, target, strict=True):
        f = (z[1] - z[0]).sigmoid()
        total = total + (-f.log() / share if y == 1 else (share / (1 - share) + f).log() / (1 - share))
    return total / len(target)


def anyloss_loss(logits, target, **_):
    """F1 of probabilities amplified by L = 73."""
    return one_minus_f1([1 / (1 + torch.exp(-73 * ((z[1] - z[0]).sigmoid() - 0.5))) for z in logits], target)


CASES = {
    "btg": (btg_loss, "f1", 2),
    "multiclass_fbeta": (fbeta_loss, metrics.FBeta(beta=[1.0, 5.0, 0.25], average="macro"), 3),
    "east": (east_loss, "f1:average=macro", 3),
    "surrogate_fbeta": (surrogate_loss, "f1", 2),
    "anyloss": (anyloss_loss, "f1", 2),
}
EPOCHS = 8
CHANGED = {"btg": {"learning_rate": 0.05}, "multiclass_fbeta": {"learning_rate": 0.05},
           "east": {"learning_rate": 0.05, "patience": 1, "cooling": 0.5}, "surrogate_fbeta": {},
           "anyloss": {"batch_size": 64, "learning_rate": 0.5}}  # fmt: skip
"""What makes the equations show in a few steps: larger rates, an impatient annealing, one batch per epoch."""


def optimiser_of(name, network):
    weights, biases = ([p for p in network.parameters() if (p.ndim > 1) == many] for many in (True, False))
    if name == "surrogate_fbeta":
        groups = [{"params": weights, "weight_decay": 1e-4}, {"params": biases}]
        return torch.optim.SGD(groups, lr=0.01, momentum=0.9)
    if name == "anyloss":
        return torch.optim.SGD(network.parameters(), lr=0.5)
    if name == "btg":
        return torch.optim.Adam(network.parameters(), lr=0.05)
    groups = [{"params": weights, "weight_decay": 0.01}, {"params": biases, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=0.05)


@pytest.mark.parametrize("name", CASES)
def test_a_recipe_trains_as_a_plain_loop_over_the_papers_equations(name):
    loss, metric, classes = CASES[name]
    random = np.random.default_rng(0)
    x = random.standard_normal((60, 4)).astype(np.float32)
    y = np.digitize(x[:, 0] + 0.5 * random.standard_normal(60), [0.3, 1.0][: classes - 1]).astype(np.int64)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, classes))
    (split,) = splits = split_rows(y, None, groups=None, random=random)
    ones = np.ones(60, dtype=np.float32)
    task = "binary" if classes == 2 else "multiclass"
    folds = Folds(
        Table.of_numbers(x), y, ones, ones, splits, metrics.get(metric), task, tuple(range(classes)), 0
    )  # fmt: skip
    how = {"network": lambda *_: copy.deepcopy(network), "max_epochs": EPOCHS, **CHANGED[name]}
    made = Trainer(folds, Recipe(name, **how).complete()).run([])

    optimiser, known = optimiser_of(name, network), {"temperature": 0.2, "share": float(y.mean())}
    parts = [(torch.from_numpy(x[rows]), torch.from_numpy(y[rows])) for rows in (split.train, split.validation)]
    lowest, here, kept, losses, temperatures = np.inf, np.inf, None, [], []
    for _ in range(EPOCHS):
        optimiser.zero_grad()
        loss(network(parts[0][0]), parts[0][1], **known).backward()
        optimiser.step()
        with torch.no_grad():
            losses.append(loss(network(parts[1][0]), parts[1][1], **known).item())
        if losses[-1] <= lowest or name in ("surrogate_fbeta", "anyloss"):  # these two stop nowhere: the last is kept
            lowest, kept = losses[-1], copy.deepcopy(network)
        if name == "east":  # one epoch without a lower loss at this temperature: cool
            here, known["temperature"] = (
                (losses[-1], known["temperature"]) if losses[-1] < here else (np.inf, known["temperature"] / 2)
            )
        temperatures.append(known["temperature"])
    assert [record.validation_loss for record in made.history] == pytest.approx(losses, abs=2e-4)
    if name == "east":
        assert [record.temperature for record in made.history] == pytest.approx(temperatures)
        assert temperatures[-1] < 0.2
    with torch.no_grad():
        torch.testing.assert_close(made.network(parts[1][0])[0], kept(parts[1][0]), rtol=1e-3, atol=1e-4)


def test_the_rest_is_as_the_papers_say():
    recipes = {name: Recipe(name).complete() for name in CASES}
    for recipe in recipes.values():
        assert (recipe.schedule, recipe.averaging, recipe.rule, recipe.stratified) == ("constant", 0, "argmax", False)
        assert (recipe.cross_entropy, recipe.memory, recipe.warm_up_updates, recipe.min_delta) == (0, 0, 0, 0)
        assert recipe.epochs(200) == recipe.max_epochs
    btg, fbeta, east, surrogate, anyloss = recipes.values()
    assert (btg.hidden_sizes, fbeta.hidden_sizes, east.hidden_sizes) == ((32, 16), *[(512, 256, 128)] * 2)
    for recipe, patience in ((btg, 100), (fbeta, 100), (east, 50)):
        assert (recipe.patience, recipe.batch_size, recipe.learning_rate) == (patience, 1024, 1e-3)
        assert recipe.selection == "objective"
    assert (btg.annealing, fbeta.annealing, east.annealing) == ("none", "none", "plateau")
    assert (east.temperature, east.cooling) == (0.2, 0.9)
    assert (btg.weight_decay, btg.dropout) == (0, 0.5)  # AdamW without decay is Adam
    assert (fbeta.optimiser, fbeta.weight_decay, fbeta.dropout, east.dropout) == ("adamw", 0.01, 0.25, 0.25)
    for recipe, epochs in ((surrogate, 120), (anyloss, 100)):
        assert (recipe.optimiser, recipe.patience, recipe.max_epochs) == ("sgd", 0, epochs)
        assert recipe.selection == "last"
    assert (surrogate.learning_rate, surrogate.momentum, surrogate.weight_decay) == (0.01, 0.9, 1e-4)
    assert (surrogate.batch_size, anyloss.batch_size, anyloss.learning_rate) == (100, 0.05, 1e-3)
    assert (anyloss.network, anyloss.momentum, anyloss.weight_decay) == ("linear", 0, 0)


@pytest.mark.parametrize("rows", [60, 399, 1000])
def test_a_share_of_the_rows_makes_twenty_batches(rows):
    order = BatchOrder([np.arange(rows)], Recipe("anyloss").complete().batch_size)
    batches = order.epoch(torch.Generator().manual_seed(0))
    assert len(batches) == order.steps == 20
    assert set(torch.cat(batches, dim=1).flatten().tolist()) == set(range(rows))
