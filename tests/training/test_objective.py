"""The batched loss of all members equals MetricLoss member by member, in value and gradient."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from metricfit import MetricLoss, metrics
from metricfit.confusion import ConfusionMatrix
from metricfit.losses import SurrogateFBetaLoss
from metricfit.training.networks import MemberMLP
from metricfit.training.objective import MemberObjective, Multipliers, Validation
from metricfit.training.recipes import Recipe
from metricfit.training.rows import TrainingData

CLASSES = {"binary": 2, "multiclass": 4, "multilabel": 3}


def sample(task, members=3, n=60, seed=0):
    generator = torch.Generator().manual_seed(seed)
    size = CLASSES[task]
    logits = 2 * torch.randn(members, n, size, generator=generator)
    if task == "multilabel":
        target = torch.randint(0, 2, (members, n, size), generator=generator)
    else:
        target = torch.randint(0, size, (members, n), generator=generator)
    return logits, target, torch.rand(members, n, generator=generator)


def prior_of(task):
    if task == "multilabel":
        return torch.tensor([[0.7, 0.3], [0.5, 0.5], [0.9, 0.1]])
    return torch.arange(1.0, CLASSES[task] + 1) / sum(range(1, CLASSES[task] + 1))


def objective(recipe, metric, task, members=3):
    labels = tuple(range(CLASSES[task]))
    return MemberObjective(recipe, metrics.get(metric), task, members, prior=prior_of(task), labels=labels)


METRICS = ["f1", "mcc", "0.5*recall[1] + 0.5*precision[1]", "auroc"]


@pytest.mark.parametrize(
    ("task", "metric"),
    [(task, metric) for task in CLASSES for metric in METRICS] + [("binary", "cost:matrix=[[0,1],[5,0]]")],
)
def test_losses_and_gradients_equal_metric_loss_member_by_member(task, metric):
    recipe = Recipe("default", cross_entropy=0.7).complete()
    together = objective(recipe, metric, task)
    kind = "multilabel" if task == "multilabel" else "multiclass"
    prior = prior_of(task)[:, 1] if task == "multilabel" else prior_of(task)
    spec = {"f1": "f1[1]", "auroc": "auroc[1]"}.get(metric, metric) if task == "binary" else metric
    alone = [MetricLoss(spec, task=kind, cross_entropy=0.7, balance="sqrt", prior=prior, memory=0.9) for _ in range(3)]
    for seed in range(3):  # several batches, so that the memory has a past
        logits, target, weight = sample(task, seed=seed)
        logits.requires_grad_()
        losses = together(logits, target, weight)
        expected = torch.stack([loss(logits[k], target[k], weight[k]) for k, loss in enumerate(alone)])
        torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-5)
        found, wanted = (torch.autograd.grad(v.sum(), logits)[0] for v in (losses, expected))
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-6)


def test_cross_entropy_alone_is_torchs():
    logits, target, _ = sample("multiclass")
    losses = objective(Recipe("log_loss").complete(), "f1", "multiclass")(logits, target, torch.ones(3, 60))
    expected = torch.stack([F.cross_entropy(logits[k], target[k]) for k in range(3)])
    torch.testing.assert_close(losses, expected)


def test_a_warm_start_is_cross_entropy_alone():
    logits, target, weight = sample("binary")
    together = objective(Recipe("default").complete(), "f1", "binary")
    together.warming = True
    torch.testing.assert_close(together(logits, target, weight), together.cross_entropy(logits, target, weight))
    together.warming = False
    assert not torch.equal(together(logits, target, weight), together.cross_entropy(logits, target, weight))


@pytest.mark.parametrize("task", ["binary", "multilabel"])
def test_the_surrogate_is_that_of_each_member_alone(task):
    logits, target, weight = sample(task)
    losses = objective(Recipe("surrogate_fbeta").complete(), "fbeta:beta=2", task)(logits, target, weight)
    scores = logits if task == "multilabel" else logits[..., 1] - logits[..., 0]
    alone = SurrogateFBetaLoss(2.0, task=task, positive_share=prior_of(task)[..., 1])  # the training set's
    expected = torch.stack([alone(scores[k], target[k], weight[k]) for k in range(3)])
    torch.testing.assert_close(losses, expected)


def test_losses_that_need_two_classes_say_so():
    with pytest.raises(ValueError, match="'surrogate_fbeta' is a loss of positives against negatives"):
        objective(Recipe("surrogate_fbeta").complete(), "f1", "multiclass")
    with pytest.raises(ValueError, match="amplifier's threshold is fixed"):
        objective(Recipe("anyloss").complete(), "f1", "multiclass")


def test_a_temperature_of_its_own_for_each_member():
    logits, target, weight = sample("multiclass")
    recipe = Recipe("default", memory=0.0, cross_entropy=0.0, balance="none").complete()
    together = objective(recipe, "f1", "multiclass")
    for k, temperature in enumerate((0.05, 0.2, 0.4)):
        together.temperature[k] = temperature
    expected = [
        MetricLoss("f1", temperature=t)(logits[k], target[k], weight[k]) for k, t in enumerate((0.05, 0.2, 0.4))
    ]
    torch.testing.assert_close(together(logits, target, weight), torch.stack(expected))


def test_multipliers_rise_while_a_constraint_is_missed_and_fall_while_it_holds():
    metric = metrics.get("precision[1] subject to recall[1] >= 0.8")
    multipliers = Multipliers(metric, members=2, rate=0.5)
    missed = ConfusionMatrix(torch.tensor([[90.0, 0.0], [8.0, 2.0]]).expand(2, 2, 2), "binary", (0, 1))
    loss = multipliers.loss(lambda _: missed)
    multipliers.update(missed)
    assert loss.tolist() == pytest.approx([0.0, 0.0])  # precision 1, no multiplier yet
    assert multipliers.value.flatten().tolist() == pytest.approx([0.3, 0.3])  # 0.5 * (0.8 - 0.2)
    loss = multipliers.loss(lambda _: missed)
    assert loss.tolist() == pytest.approx([0.3 * 0.6 / 1.3] * 2)
    held = ConfusionMatrix(torch.tensor([[90.0, 0.0], [0.0, 10.0]]).expand(2, 2, 2), "binary", (0, 1))
    for _ in range(200):
        multipliers.update(held)
    assert multipliers.value.tolist() == [[0.0], [0.0]]
    for _ in range(500):
        multipliers.update(missed)
    assert multipliers.value.tolist() == [[20.0], [20.0]]


def test_constraints_on_curves_are_refused():
    with pytest.raises(ValueError, match="constraints are on decisions, not curves"):
        Multipliers(metrics.get("precision[1] subject to auroc >= 0.8"), members=1)


@pytest.mark.parametrize("task", ["binary", "multilabel"])
def test_members_trained_by_the_surrogate_are_picked_each_by_its_own_validation_loss(task):
    _, target, _ = sample(task, members=1, n=40)
    features = torch.randn(40, 5, generator=torch.Generator().manual_seed(1))
    data = TrainingData(features, target[0], torch.ones(40))
    rows = [np.arange(20), np.arange(20, 40)]
    network = MemberMLP(2, 5, CLASSES[task], (4,), generator=torch.Generator().manual_seed(2))
    recipe = Recipe("surrogate_fbeta", selection="objective").complete()
    together = objective(recipe, "f1", task, members=2)
    validation = Validation(data, rows, CLASSES[task])
    key = validation.score(network, together, torch.ones(2, dtype=torch.bool)).key
    assert key.shape == (2,)
    assert key[0] != key[1]
    network.layers[2].weight.data[1] *= 2
    changed = validation.score(network, together, torch.ones(2, dtype=torch.bool)).key
    assert changed[0] == key[0]
    assert changed[1] != key[1]
