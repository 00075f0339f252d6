"""The diagnosis says what a batch can teach."""

import math

import pytest
import sklearn.metrics as sk
import torch

from metricfit import MetricLoss
from metricfit.losses import AnyLoss
from metricfit.theory import deviation_bound


def test_values_gap_and_bound():
    generator = torch.Generator().manual_seed(0)
    logits, target = torch.randn(200, 4, generator=generator), torch.arange(200) % 3
    loss = MetricLoss("f1")
    report = loss.diagnose(logits, target, confidence=0.9)
    expected = sk.f1_score(target, logits.argmax(1), average="macro", labels=[0, 1, 2], zero_division=0)
    assert report.hard_value == pytest.approx(expected)
    assert report.soft_value == pytest.approx(1 - loss(logits, target).item(), abs=1e-6)
    assert report.gap == pytest.approx(report.soft_value - report.hard_value)
    assert report.classes_without_support == (3,)
    assert report.samples == 200
    assert report.deviation_bound == pytest.approx(deviation_bound(200, 4, confidence=0.9))
    text = str(report)
    assert "classes without support: 3" in text
    assert "90% confidence" in text


def test_gap_closes_as_the_temperature_falls():
    generator = torch.Generator().manual_seed(1)
    logits, target = torch.randn(300, 3, generator=generator), torch.arange(300) % 3
    gaps = [abs(MetricLoss("mcc", temperature=t).diagnose(logits, target).gap) for t in (0.2, 0.05, 0.001)]
    assert gaps[0] > gaps[1] > gaps[2]


def test_saturated_samples_have_no_gradient():
    # AnyLoss's amplifier at p = 0.1 has a slope of 1.5e-11: the sample is there but teaches nothing.
    logits = torch.tensor([0.1, 0.05, -2.2, 3.0])
    report = AnyLoss("f1").diagnose(logits, torch.tensor([1, 0, 1, 0]))
    assert report.share_without_gradient == 0.5
    assert MetricLoss("f1", task="binary").diagnose(logits, torch.tensor([1, 0, 1, 0])).share_without_gradient == 0


def test_memory_and_parameters_are_left_alone():
    loss = MetricLoss("f1", memory=0.9, labels=["a", "b", "c"])
    logits, target = torch.randn(8, 3, requires_grad=True), torch.tensor([0, 1] * 4)
    loss(logits, target)
    before = loss.memories[0].matrix.clone()
    report = loss.diagnose(logits, target)
    assert torch.equal(loss.memories[0].matrix, before)
    assert logits.grad is None
    assert report.classes_without_support == ("c",)


@pytest.mark.parametrize("task", ["binary", "multilabel"])
def test_other_tasks_and_ranking_metrics(task):
    shape = (30,) if task == "binary" else (30, 2)
    generator = torch.Generator().manual_seed(2)
    logits, target = torch.randn(shape, generator=generator), torch.randint(0, 2, shape, generator=generator)
    for spec in ("f1", "auroc:grid=9"):
        report = MetricLoss(spec, task=task).diagnose(logits, target)
        assert 0 <= report.soft_value <= 1
        assert 0 <= report.hard_value <= 1


def test_the_bound_is_for_the_cells_that_there_are():
    logits, target = torch.randn(30, 1, generator=torch.Generator().manual_seed(3)), torch.arange(30)[:, None] % 2
    one_label = MetricLoss("f1", task="multilabel").diagnose(logits, target)
    binary = MetricLoss("f1", task="binary").diagnose(logits[:, 0], target[:, 0])
    assert one_label.deviation_bound == binary.deviation_bound
    for labels in (2, 3, 50):
        report = MetricLoss("f1", task="multilabel").diagnose(logits.expand(30, labels), target.expand(30, labels))
        assert report.deviation_bound >= math.sqrt(math.log(2 * 4 * labels / 0.05) / 60)


def test_ignored_samples_do_not_count():
    logits, target = torch.randn(10, 3), torch.arange(10) % 3
    target[:4] = -100
    assert MetricLoss("f1").diagnose(logits, target).samples == 6
