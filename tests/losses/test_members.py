"""Ensemble members in one call: each loss, gradient, memory and temperature is the member's own."""

import pytest
import torch

from metricfit import MetricLoss, losses, metrics
from metricfit.confusion import ConfusionMatrix, hard_confusion_matrix, soft_confusion_matrix

SHAPES = {"multiclass": (3, 40, 4), "binary": (3, 40), "multilabel": (3, 40, 2)}
ONE_DECISION = [name for name in metrics.available() if name != "cost"]


def batch(task, *, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    shape = SHAPES[task]
    logits = torch.randn(shape, generator=generator, dtype=dtype, requires_grad=True)
    if task == "multiclass":
        target = torch.randint(0, shape[-1], shape[:-1], generator=generator)
    else:
        target = torch.randint(0, 2, shape, generator=generator)
    weight = torch.rand(shape[:2], generator=generator, dtype=dtype)
    return logits, target, weight


def assert_equals_single_losses(make, task, *, batches=1, dtype=torch.float64, tolerance=1e-12):
    together, alone = make(3), [make(None) for _ in range(3)]
    for seed in range(batches):
        logits, target, weight = batch(task, seed=seed, dtype=dtype)
        values = together(logits, target, weight)
        (gradient,) = torch.autograd.grad(values.sum(), logits)
        assert values.shape == (3,)
        for k, loss in enumerate(alone):
            leaf = logits[k].detach().requires_grad_()
            value = loss(leaf, target[k], weight[k])
            (expected,) = torch.autograd.grad(value, leaf)
            torch.testing.assert_close(values[k].detach(), value.detach(), rtol=tolerance, atol=tolerance)
            torch.testing.assert_close(gradient[k], expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("task", SHAPES)
@pytest.mark.parametrize("spec", ONE_DECISION)
def test_every_metric_of_each_member_is_that_of_a_loss_of_its_own(spec, task):
    assert_equals_single_losses(lambda members: MetricLoss(spec, task=task, members=members).double(), task)


@pytest.mark.parametrize("task", SHAPES)
@pytest.mark.parametrize(
    "options",
    [
        {"memory": 0.9},
        {"cross_entropy": 0.5},
        {"cross_entropy": 0.5, "balance": "sqrt", "memory": 0.5},
        {"step": "sigmoid:k=5"},
        {"step": "linear:delta=0.3"},
        {"temperature": 0.03},
        {"absent": "count"},
        {"ignore_index": 0},
        {"validate": False},
    ],
    ids=str,
)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
def test_every_option_holds_for_each_member(task, options, dtype, tolerance):
    def make(members):
        return MetricLoss("f1", task=task, members=members, **options).to(dtype)

    assert_equals_single_losses(make, task, batches=3, dtype=dtype, tolerance=tolerance)


@pytest.mark.parametrize("task", SHAPES)
def test_a_prior_and_class_weights_hold_for_each_member(task):
    size = {"multiclass": 4, "binary": 2, "multilabel": 2}[task]
    prior = torch.tensor([0.4, 0.3, 0.2, 0.1][:size])
    options = {"cross_entropy": 0.7, "balance": "full", "prior": prior, "weight": torch.arange(1.0, size + 1)}
    assert_equals_single_losses(lambda members: MetricLoss("mcc", task=task, members=members, **options).double(), task)


def test_each_member_has_a_temperature_of_its_own():
    logits, target, weight = batch("multiclass")
    loss = MetricLoss("mcc", members=3, temperature=[0.1, 0.2, 0.3]).double()
    loss.set_temperature([0.05, 0.2, 0.4])
    values = loss(logits, target, weight)
    for k, temperature in enumerate([0.05, 0.2, 0.4]):
        single = MetricLoss("mcc", temperature=temperature).double()
        assert values[k].item() == pytest.approx(single(logits[k], target[k], weight[k]).item(), abs=1e-7)
    loss.set_temperature(0.1)
    assert loss.temperature.tolist() == pytest.approx([0.1] * 3)


def test_a_member_without_weight_has_no_loss_and_no_gradient():
    logits, target, weight = batch("multiclass")
    weight[1] = 0
    values = MetricLoss("f1", members=3, cross_entropy=0.5, memory=0.9).double()(logits, target, weight)
    values.sum().backward()
    assert values[1].item() == 0
    assert logits.grad[1].abs().max() == 0
    assert logits.grad[0].abs().max() > 0


def test_positions_and_shares_of_classes():
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(2, 5, 3, 4, 2, generator=generator, dtype=torch.float64)
    target = torch.rand(2, 5, 3, 4, 2, generator=generator, dtype=torch.float64).softmax(dim=2)
    together = MetricLoss("f1", members=2, cross_entropy=0.5)(logits, target)
    each = [MetricLoss("f1", cross_entropy=0.5)(logits[k], target[k]) for k in range(2)]
    torch.testing.assert_close(together, torch.stack(each))


@pytest.mark.parametrize("task", SHAPES)
@pytest.mark.parametrize("thresholds", [None, [0.2, 0.5, 0.9]])
@pytest.mark.parametrize("build", [soft_confusion_matrix, hard_confusion_matrix])
def test_matrices_of_members_are_those_of_each(task, thresholds, build):
    logits, target, weight = batch(task)
    together = build(logits.detach(), target, task=task, thresholds=thresholds, sample_weight=weight, members=3).matrix
    for k in range(3):
        one = build(logits[k].detach(), target[k], task=task, thresholds=thresholds, sample_weight=weight[k]).matrix
        torch.testing.assert_close(together[k] if thresholds is None else together[:, k], one)


def test_the_surrogate_judges_each_member_by_its_own_loss():
    logits, target, weight = batch("binary")
    values = losses.SurrogateFBetaLoss(2.0, members=3)(logits, target, weight)
    each = [losses.SurrogateFBetaLoss(2.0)(logits[k], target[k], weight[k]) for k in range(3)]
    torch.testing.assert_close(values, torch.stack(each))


def test_codes_with_leading_dimensions_are_counted_apart():
    generator = torch.Generator().manual_seed(2)
    true = torch.randint(0, 3, (50,), generator=generator)
    predicted = torch.randint(0, 3, (2, 4, 50), generator=generator)
    weight = torch.rand(50, generator=generator, dtype=torch.float64)
    found = ConfusionMatrix.from_codes(true, predicted, 3, weight).matrix
    for place in [(0, 0), (1, 3)]:
        for i in range(3):
            for j in range(3):
                cell = weight[(true == i) & (predicted[place] == j)].sum()
                assert found[(*place, i, j)].item() == pytest.approx(cell.item())
