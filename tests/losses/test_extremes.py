"""Infinite logits and extreme weights: one behaviour, whichever way a batch takes."""

import math

import pytest
import torch

from metricfit import MetricLoss, fast
from tests.helper import generator

SHAPES = {"multiclass": [(6, 2), (6, 3), (6, 100)], "binary": [(6,)], "multilabel": [(6, 3)]}
TASKS = [(task, shape) for task, shapes in SHAPES.items() for shape in shapes]


@pytest.fixture(params=["compiled", "compiled in parts", "torch", "plain"])
def way(request, monkeypatch):
    if request.param == "compiled in parts":
        monkeypatch.setattr(fast, "PART_ELEMENTS", 1)
        monkeypatch.setattr(fast, "parts_of", fast.parts_of.__wrapped__)
    elif request.param == "torch":
        monkeypatch.setattr(fast, "compiled_loops", lambda: None)
    elif request.param == "plain":
        monkeypatch.setattr(fast, "metric_loss", lambda *_: None)


def batch(task, shape, dtype=torch.float32):
    logits = torch.randn(shape, generator=generator()).to(dtype)
    target = torch.arange(6) % 2
    return logits, target if task != "multilabel" else torch.eye(3)[torch.arange(6) % 3]


@pytest.mark.usefixtures("way")
class TestInfiniteLogits:
    @pytest.mark.parametrize(("task", "shape"), TASKS)
    @pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
    @pytest.mark.parametrize("options", [{}, {"cross_entropy": 0.5}, {"metric": "kappa"}], ids=str)
    def test_plus_infinity_is_refused_with_its_usual_cause(self, task, shape, dtype, options):
        logits, target = batch(task, shape, dtype)
        logits.view(-1)[1] = math.inf
        loss = MetricLoss(**{"metric": "f1", **options}, task=task)
        with pytest.raises(ValueError, match=r"input: infinite logits in 1 of 6 samples.*float16.*logits\.float\(\)"):
            loss(logits.requires_grad_(), target)

    @pytest.mark.parametrize(("task", "shape"), [("binary", (6,)), ("multilabel", (6, 3))])
    @pytest.mark.parametrize("options", [{}, {"cross_entropy": 0.5}], ids=str)
    def test_minus_infinity_is_refused_where_nothing_else_is_left(self, task, shape, options):
        logits, target = batch(task, shape)
        logits.view(-1)[1] = -math.inf
        with pytest.raises(ValueError, match="input: infinite logits in 1 of 6"):
            MetricLoss("f1", task=task, **options)(logits, target)

    @pytest.mark.parametrize("shape", SHAPES["multiclass"])
    @pytest.mark.parametrize("options", [{}, {"cross_entropy": 0.5}], ids=str)
    def test_minus_infinity_rules_a_class_out(self, shape, options):
        logits, target = batch("multiclass", shape)
        logits[0, 1], logits[3, 0] = -math.inf, -math.inf  # of samples of the other class
        far = logits.clamp_min(-1e4)
        found, expected = [], []
        for values, into in ((logits, found), (far, expected)):
            leaf = values.clone().requires_grad_()
            value = MetricLoss("f1", **options)(leaf, target)
            into += [value.detach(), torch.autograd.grad(value, leaf)[0]]
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-7)

    def test_cross_entropy_of_a_true_class_that_is_ruled_out_is_refused(self):
        logits, target = batch("multiclass", (6, 3))
        logits[0, 0] = -math.inf
        with pytest.raises(ValueError, match=r"input: .*-inf.*true class.*cross_entropy"):
            MetricLoss("f1", cross_entropy=0.5)(logits, target)
        assert MetricLoss("f1")(logits, target).isfinite()


@pytest.mark.usefixtures("way")
class TestExtremeWeights:
    @pytest.mark.parametrize(("task", "shape"), TASKS)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("size", [1e30, 1e-30])
    @pytest.mark.parametrize("metric", ["f1", "kappa"])
    def test_products_out_of_range_are_refused(self, task, shape, dtype, size, metric):
        logits, target = batch(task, shape, dtype)
        classes = 2 if task == "binary" else shape[1]
        loss = MetricLoss(metric, task=task, weight=torch.full((classes,), size))
        with pytest.raises(ValueError, match=r"sample_weight · weight: .*between 1e-18 and 1e\+18.*divide"):
            loss(logits, target, torch.full((6,), size))

    @pytest.mark.parametrize("size", [1e38, 1e-40])
    @pytest.mark.parametrize("metric", ["f1", "kappa"])
    def test_sums_out_of_range_are_refused(self, size, metric):
        logits, target = batch("multiclass", (6, 3))
        with pytest.raises(ValueError, match="sample_weight: expected"):
            MetricLoss(metric)(logits, target, torch.full((6,), size))

    @pytest.mark.parametrize(("task", "shape"), TASKS)
    @pytest.mark.parametrize("options", [{}, {"cross_entropy": 0.5}, {"memory": 0.9}], ids=str)
    def test_denormal_class_weights_count_where_the_product_is_usual(self, task, shape, options):
        logits, target = batch(task, shape)
        target, classes = target if task == "multiclass" else target.float(), 2 if task == "binary" else shape[1]
        tiny = MetricLoss("f1", task=task, weight=torch.full((classes,), 1e-40), **options)
        expected = MetricLoss("f1", task=task, **options)(logits, target)
        torch.testing.assert_close(tiny(logits, target, torch.full((6,), 1e38)), expected, rtol=1e-4, atol=1e-6)

    @pytest.mark.parametrize("size", [1e16, 1e-16])
    @pytest.mark.parametrize("metric", ["f1", "mcc", "kappa"])
    def test_the_unit_of_weights_does_not_matter_within_the_range(self, size, metric):
        logits, target = batch("multiclass", (6, 3))
        expected = MetricLoss(metric)(logits, target, torch.ones(6))
        torch.testing.assert_close(MetricLoss(metric)(logits, target, torch.full((6,), size)), expected)

    def test_single_weights_may_be_tiny_and_all_may_be_zero(self):
        logits, target = batch("multiclass", (6, 3))
        weights = torch.tensor([1.0, 1.0, 0.5, 1e-30, 1e-45, 0.0])
        weighed = MetricLoss("f1")(logits, target, weights)
        torch.testing.assert_close(weighed, MetricLoss("f1")(logits[:3], target[:3], weights[:3]))
        assert MetricLoss("f1")(logits, target, torch.zeros(6)).item() == 0
        assert MetricLoss("f1", weight=torch.zeros(3))(logits, target, torch.ones(6)).item() == 0

    @pytest.mark.parametrize("size", [1e-45, 1e-38, 1e-31])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize(
        "options", [{"metric": "recall"}, {"metric": "f1", "cross_entropy": 0.5}, {"metric": "kappa"}], ids=str
    )
    def test_a_sample_that_weighs_next_to_nothing_counts_as_none(self, size, dtype, options):
        logits, _ = batch("multiclass", (6, 3), dtype)
        target, found = torch.tensor([0, 0, 1, 1, 2, 2]), []  # the third class has no other samples
        for least in (size, 0.0):
            leaf = logits.clone().requires_grad_()
            value = MetricLoss(**options)(leaf, target, torch.tensor([3.0] * 4 + [least] * 2, dtype=torch.float64))
            found.append((value.detach(), torch.autograd.grad(value, leaf)[0]))
        torch.testing.assert_close(*found, rtol=1e-5, atol=1e-9)

    @pytest.mark.parametrize("size", [1e-45, 1e-40, 1e-38, 1e-36, 1e-30])
    @pytest.mark.parametrize("metric", ["mcc", "kappa", "gmean", "fowlkes_mallows"])
    def test_a_label_that_weighs_next_to_nothing_has_a_finite_gradient(self, size, metric):
        target = torch.randint(2, (8, 2), generator=generator()).float()
        for scale in (1.0, 30.0):
            logits = (scale * torch.randn((8, 2), generator=generator())).requires_grad_()
            MetricLoss(metric, task="multilabel", weight=torch.tensor([1.0, size]))(logits, target).backward()
            assert logits.grad.isfinite().all()

    @pytest.mark.parametrize(("task", "shape"), TASKS)
    def test_class_weights_that_are_infinite_in_single_precision_are_refused(self, task, shape):
        logits, target = batch(task, shape)
        weight = torch.ones(2 if task == "binary" else shape[1], dtype=torch.float64)
        weight[-1] = 1e200  # of a class that the batch of three or more classes has not
        for sample_weight in (None, torch.full((6,), 1e-300, dtype=torch.float64)):
            with pytest.raises(ValueError, match="weight: expected finite weights"):
                MetricLoss("f1", task=task, weight=weight)(logits.requires_grad_(), target, sample_weight)
