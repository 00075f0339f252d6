"""The cross-entropy that is mixed in equals torch's own."""

import pytest
import torch
from torch.nn import functional as F

from metricfit import MetricLoss
from metricfit.losses.companions import class_weights


def added(loss_options, logits, target, sample_weight=None):
    """What cross_entropy=1 adds to the metric's loss."""
    plain = {k: v for k, v in loss_options.items() if k not in ("balance", "prior")}
    without = MetricLoss("accuracy", **plain).double()(logits, target, sample_weight)
    return MetricLoss("accuracy", cross_entropy=1.0, **loss_options).double()(logits, target, sample_weight) - without


@pytest.fixture
def multiclass():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(30, 4, generator=generator, dtype=torch.float64), torch.randint(0, 4, (30,), generator=generator)


def test_plain_equals_torch(multiclass):
    logits, target = multiclass
    torch.testing.assert_close(added({}, logits, target), F.cross_entropy(logits, target))


@pytest.mark.parametrize(("weighting", "power"), [("sqrt", 0.5), ("full", 1.0)])
def test_weighted_by_the_batch_equals_torch_with_those_weights(multiclass, weighting, power):
    logits, target = multiclass
    weight = (torch.bincount(target, minlength=4) / 30.0).double() ** -power
    expected = F.cross_entropy(logits, target, weight=weight)
    torch.testing.assert_close(added({"balance": weighting}, logits, target), expected)


def test_a_given_prior_replaces_the_batchs(multiclass):
    logits, target = multiclass
    prior = torch.tensor([100.0, 50.0, 10.0, 1.0])
    expected = F.cross_entropy(logits, target, weight=prior.double() ** -0.5)
    actual = added({"balance": "sqrt", "prior": prior}, logits, target)
    torch.testing.assert_close(actual, expected)


def test_ignored_positions_and_sample_weights(multiclass):
    logits, target = multiclass
    target = target.clone()
    target[:5] = -100
    w = torch.rand(30, dtype=torch.float64)
    each = F.cross_entropy(logits, target.clamp_min(0), reduction="none")[5:]
    torch.testing.assert_close(added({}, logits, target, w), (each * w[5:]).sum() / w[5:].sum())


def test_probability_targets_equal_torch(multiclass):
    logits, _ = multiclass
    target = torch.rand(30, 4, dtype=torch.float64).softmax(1)
    torch.testing.assert_close(added({}, logits, target), F.cross_entropy(logits, target))


@pytest.mark.parametrize("task", ["binary", "multilabel"])
def test_binary_and_multilabel_equal_torch(task):
    shape = (30,) if task == "binary" else (30, 3)
    logits, target = torch.randn(shape, dtype=torch.float64), torch.randint(0, 2, shape)
    expected = F.binary_cross_entropy_with_logits(logits, target.double())
    torch.testing.assert_close(added({"task": task}, logits, target), expected)
    from_probabilities = {"task": task, "from_probabilities": True}
    torch.testing.assert_close(added(from_probabilities, logits.sigmoid(), target), expected)


def test_binary_weights_are_of_negative_and_positive():
    logits, target = torch.randn(30, dtype=torch.float64), torch.tensor([0] * 24 + [1] * 6)
    each = F.binary_cross_entropy_with_logits(logits, target.double(), reduction="none")
    w = torch.where(target == 1, 0.2**-0.5, 0.8**-0.5)
    for prior in (None, torch.tensor([80.0, 20.0])):
        options = {"task": "binary", "balance": "sqrt"} | ({} if prior is None else {"prior": prior})
        torch.testing.assert_close(added(options, logits, target), (each * w).sum() / w.sum())


def test_multilabel_prior_is_the_positive_share():
    logits = torch.randn(40, 2, dtype=torch.float64)
    target = torch.zeros(40, 2).long()
    target[:4, 0] = target[:20, 1] = 1
    by_batch = added({"task": "multilabel", "balance": "full"}, logits, target)
    options = {"task": "multilabel", "balance": "full", "prior": torch.tensor([0.1, 0.5])}
    torch.testing.assert_close(added(options, logits, target), by_batch)


def test_class_weights_average_to_one_over_samples_and_skip_empty_classes():
    prior = torch.tensor([0.7, 0.3, 0.0])
    for weighting in ("none", "sqrt", "full"):
        weights = class_weights(prior, weighting)
        assert (weights * prior).sum().item() == pytest.approx(1)
        assert weights.isfinite().all()
