"""Steps differentiated by hand against autograd: the network, the objective, the metric of a matrix, AdamW."""

import copy

import numpy as np
import pytest
import torch

from metricfit import metrics
from metricfit.training import MemberMLP, get_recipe
from metricfit.training.direct import DirectMLP
from metricfit.training.gradients import ObjectiveGradient
from metricfit.training.matrix_gradients import _by_autograd, loss_of_matrix
from metricfit.training.objective import MemberObjective
from metricfit.training.optimiser import make_optimiser, take_step


@pytest.mark.parametrize("part", [None, slice(3, 9)])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize(("hidden", "outputs"), [((), 2), ((8,), 3), ((32, 16), 2), ((16, 12), 20)])
def test_the_network_by_hand_has_the_gradients_of_autograd(hidden, outputs, dropout, part):
    generator = torch.Generator().manual_seed(0)
    network = MemberMLP(3, 7, outputs, hidden, dropout, generator=generator)
    twin = copy.deepcopy(network)
    rows = 11 if part is None else part.stop - part.start
    direct = DirectMLP(twin)
    for step in range(2):  # the second one in the places of the first
        x, gradient = torch.randn(3, rows, 7, generator=generator), torch.randn(3, rows, outputs, generator=generator)
        for one in (network, twin):
            one.use_generator(torch.Generator().manual_seed(step))
            if part is not None:
                one.use_part(part, 11)
        network.zero_grad()
        logits = network(x)
        logits.backward(gradient)
        torch.testing.assert_close(direct.forward(x), logits.detach())
        direct.backward(gradient)
        for mine, theirs in zip(twin.parameters(), network.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad)


def test_rows_are_taken_for_every_member():
    table, index = torch.randn(20, 4), torch.tensor([[3, 1, 19], [0, 0, 7]])
    direct = DirectMLP(MemberMLP(2, 4, 2, ()))
    assert torch.equal(direct.take(table, index), table[index])
    assert torch.equal(direct.take(table, index[:, :2]), table[index[:, :2]])


TASKS = [("binary", 2), ("multiclass", 4)]
OBJECTIVES = [(recipe, *task) for recipe in ("default", "east", "cross_entropy") for task in TASKS]


@pytest.mark.parametrize(("recipe", "task", "classes"), [*OBJECTIVES, ("anyloss", "binary", 2)])
@pytest.mark.parametrize(
    "metric", ["f1", "mcc", "balanced_accuracy", "kappa", "recall[1] subject to precision[1] >= 0.5"]
)
def test_the_objective_by_hand_has_the_gradients_of_autograd(recipe, task, classes, metric):
    made = get_recipe(recipe)
    options = {"prior": torch.linspace(1, 2, classes) / classes, "labels": tuple(range(classes))}
    plain, by_hand = (MemberObjective(made, metrics.get(metric), task, 3, **options) for _ in range(2))
    for objective in (plain, by_hand):
        for member, temperature in enumerate((0.05, 0.2, 0.4)):
            objective.set_temperature(member, temperature)
    gradient_of = ObjectiveGradient(by_hand)
    assert gradient_of.by_hand == (recipe == "cross_entropy" or (recipe != "anyloss" and "subject" not in metric))
    generator = torch.Generator().manual_seed(0)
    for step in range(3):  # with a memory of the steps before
        plain.warming = by_hand.warming = step == 1
        logits = 3 * torch.randn(3, 50, classes, generator=generator)
        target = torch.randint(classes, (3, 50), generator=generator)
        weight = torch.rand(3, 50, generator=generator) * (step < 2)  # the last batch has no weight at all
        leaf = logits.clone().requires_grad_()
        losses = plain(leaf, target, weight)
        losses.sum().backward()
        found, gradient = gradient_of(logits, target, weight)
        torch.testing.assert_close(found.float(), losses.detach(), rtol=1e-5, atol=2e-6)
        torch.testing.assert_close(gradient, leaf.grad, rtol=1e-4, atol=1e-6)
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(by_hand.state_dict()[name], value)


def test_certain_logits_have_finite_losses_and_gradients():
    objective = MemberObjective(
        get_recipe("default"), metrics.get("f1"), "binary", 1, prior=torch.tensor([0.5, 0.5]), labels=(0, 1)
    )
    logits = torch.tensor([[[500.0, -500.0], [-500.0, 500.0], [500.0, -500.0]]])
    losses, gradient = ObjectiveGradient(objective)(logits, torch.tensor([[0, 1, 1]]), torch.ones(1, 3))
    assert losses.isfinite().all()
    assert gradient.isfinite().all()
    assert gradient[0, 2, 1] < 0


SPECS = [
    "f1", "f1[b]", "f1[a]", "f1:average=macro", "fbeta:beta=2", "precision", "recall:average=macro", "jaccard", "mcc",
    "mcc[b]", "balanced_accuracy", "kappa", "f1:average=micro", "f1:zero_division=1",
]  # fmt: skip


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(("task", "classes"), [("binary", 2), ("multiclass", 4)])
def test_metrics_by_hand_have_the_gradients_of_autograd(spec, task, classes):
    metric, labels = metrics.get(spec), tuple("abcd"[:classes])
    matrix = np.random.default_rng(0).random((6, classes, classes))
    matrix[1] = 0  # nothing at all
    matrix[2, 0] = 0  # no sample of the first class
    matrix[3, :, 1] = 0  # no prediction of the second
    matrix[4, 0], matrix[4, :, 1:] = 0, 0
    matrix[5] = np.eye(classes)
    loss, gradient = loss_of_matrix(metric, task, labels)(matrix)
    expected, expected_gradient = _by_autograd(metric, task, labels, matrix)
    np.testing.assert_allclose(loss, expected, atol=1e-6)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-5, atol=2e-6)


def test_a_metric_of_several_numbers_is_refused():
    with pytest.raises(ValueError, match="a loss needs one number"):
        loss_of_matrix(metrics.get("f1:average=none"), "multiclass", ("a", "b", "c"))(np.ones((2, 3, 3)))


def test_a_step_is_that_of_adamw_to_the_bit():
    network = MemberMLP(2, 5, 2, (4,), generator=torch.Generator().manual_seed(0))
    twin = copy.deepcopy(network)
    optimisers = [make_optimiser(one, get_recipe("default")) for one in (network, twin)]
    for step in range(4):
        for one, other in zip(network.parameters(), twin.parameters(), strict=True):
            one.grad = torch.randn(one.shape, generator=torch.Generator().manual_seed(step))
            other.grad = one.grad.clone()
        for group in optimisers[0].param_groups:
            group["lr"] = 0.1 / (step + 1)
        optimisers[0].step()
        take_step(optimisers[1], 0.1 / (step + 1))
        for one, other in zip(network.parameters(), twin.parameters(), strict=True):
            assert torch.equal(one, other)
    states = [optimiser.state_dict()["state"] for optimiser in optimisers]
    for key in states[0]:
        assert all(torch.equal(states[0][key][name], states[1][key][name]) for name in states[0][key])
