"""The recipes of Bridging the gap and multi-class Fβ train what their papers print, step by step."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from metricfit import metrics
from metricfit.training import Folds, Recipe, Table, Trainer
from metricfit.training.rows import split_rows


def height(p, tau, delta):
    """btg eq. 5, branch by branch."""
    half = torch.minimum(tau, 1 - tau) / 2
    if p < tau - half:
        return p * delta / (tau - half)
    if p > tau + half:
        return 1 - (1 - p) * delta / (1 - tau - half)
    return 0.5 + (p - tau) * (1 - 2 * delta) / (2 * half)


def btg_loss(logits, target):
    """One minus the F1 of eq. 6 at one half."""
    tp = fp = fn = torch.zeros(())
    for z, y in zip(logits, target, strict=True):
        h = height((z[1] - z[0]).sigmoid(), torch.tensor(0.5), delta=0.1)
        tp, fn, fp = (tp + h, fn + 1 - h, fp) if y == 1 else (tp, fn, fp + h)
    return 1 - 2 * tp / (2 * tp + fp + fn)


def fbeta_loss(logits, target, betas=(1.0, 5.0, 0.25)):
    """One minus the macro Fβ of memberships at the mean of the two largest probabilities (multiclass-fbeta §4)."""
    matrix = torch.zeros(3, 3)
    for z, y in zip(logits, target, strict=True):
        p = z.softmax(0)
        largest = p.sort(descending=True).values
        tau = (largest[0] + largest[1]) / 2
        row = torch.stack([height(p[k], tau, delta=0.2) for k in range(3)])
        matrix = matrix + nn.functional.one_hot(y, 3)[:, None] * (row / row.sum())
    scores = []
    for k, beta in enumerate(betas):
        tp, fn, fp = matrix[k, k], matrix[k].sum() - matrix[k, k], matrix[:, k].sum() - matrix[k, k]
        scores.append((1 + beta**2) * tp / ((1 + beta**2) * tp + beta**2 * fn + fp))
    return 1 - sum(scores) / 3


CASES = {
    "btg": (btg_loss, "f1", 2, 0.0),
    "multiclass_fbeta": (fbeta_loss, metrics.FBeta(beta=[1.0, 5.0, 0.25], average="macro"), 3, 0.01),
}


@pytest.mark.parametrize("name", CASES)
def test_a_recipe_trains_as_a_plain_loop_over_the_papers_equations(name):
    loss, metric, classes, decay = CASES[name]
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
    recipe = Recipe(name, network=lambda *_: copy.deepcopy(network), max_epochs=8, learning_rate=0.05).complete()
    made = Trainer(folds, recipe).run([])

    optimiser = torch.optim.AdamW([
        {"params": [p for p in network.parameters() if p.ndim > 1], "weight_decay": decay},
        {"params": [p for p in network.parameters() if p.ndim == 1], "weight_decay": 0.0},
    ], lr=0.05)  # fmt: skip
    parts = [(torch.from_numpy(x[rows]), torch.from_numpy(y[rows])) for rows in (split.train, split.validation)]
    lowest, kept, losses = np.inf, None, []
    for _ in range(8):
        optimiser.zero_grad()
        loss(network(parts[0][0]), parts[0][1]).backward()
        optimiser.step()
        with torch.no_grad():
            losses.append(loss(network(parts[1][0]), parts[1][1]).item())
        if losses[-1] < lowest:
            lowest, kept = losses[-1], copy.deepcopy(network)
    assert [record.validation_loss for record in made.history] == pytest.approx(losses, abs=1e-4)
    with torch.no_grad():
        torch.testing.assert_close(made.network(parts[1][0])[0], kept(parts[1][0]), rtol=1e-3, atol=1e-4)


def test_the_rest_is_as_the_papers_say():
    btg, fbeta = (Recipe(name).complete() for name in CASES)
    assert (btg.hidden_sizes, fbeta.hidden_sizes) == ((32, 16), (512, 256, 128))
    for recipe in (btg, fbeta):
        assert (recipe.patience, recipe.min_delta, recipe.batch_size, recipe.learning_rate) == (100, 0, 1024, 1e-3)
        assert (recipe.schedule, recipe.averaging, recipe.annealing, recipe.rule) == ("constant", 0, "none", "argmax")
        assert (recipe.cross_entropy, recipe.memory, recipe.warm_up_updates) == (0, 0, 0)
        assert recipe.epochs(200) == recipe.max_epochs
    assert (btg.weight_decay, btg.dropout) == (0, 0.5)  # AdamW without decay is Adam
