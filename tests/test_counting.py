import math
from functools import partial

import numpy as np
import pytest
import sklearn.metrics
import torch
from hypothesis import given
from hypothesis import strategies as st

import metricfit.confusion
from metricfit import metrics
from metricfit.confusion import hard_confusion_matrix, soft_confusion_matrix
from metricfit.steps import (
    Amplifier,
    Annealed,
    Heaviside,
    Identity,
    Linear,
    Sigmoid,
)
from tests import helper
from tests.helper import batch, generator

STEPS = {
    "heaviside": Heaviside(),
    "linear": Linear(),
    "annealed": Annealed(),
    "sigmoid": Sigmoid(),
    "identity": Identity(),
    "amplifier": Amplifier(),
}
SHARP = Annealed(1e-9)


def close(matrix, expected, tolerance=1e-10):
    np.testing.assert_allclose(matrix.detach().numpy(), np.asarray(expected), rtol=tolerance, atol=tolerance)


class TestAgainstPlainLoops:
    @pytest.mark.parametrize("name", sorted(STEPS))
    @pytest.mark.parametrize("soft", [False, True])
    def test_multiclass_with_everything_at_once(self, name, soft):
        logits, target = batch("multiclass", (3, 4, 2, 3), soft=soft)
        ignored = torch.rand(3, 2, 3, generator=generator(9)) < 0.3
        target[ignored if not soft else ignored[:, None].expand_as(logits)] = -1
        weight, sample_weight = torch.tensor([0.5, 2.0, 0.0, 1.3]), torch.rand(3, 2, 3, generator=generator(5))
        cm = soft_confusion_matrix(
            logits, target, step=STEPS[name], weight=weight, sample_weight=sample_weight, ignore_index=-1
        )
        expected = helper.soft_multiclass(
            logits,
            target,
            helper.plain_step(name),
            weight=weight.tolist(),
            sample_weight=sample_weight,
            ignore_index=-1,
        )
        close(cm.matrix, expected)
        hard = hard_confusion_matrix(
            logits, target, weight=weight, sample_weight=sample_weight.double(), ignore_index=-1
        )
        close(
            hard.matrix,
            helper.soft_multiclass(
                logits,
                target,
                helper.plain_step("heaviside"),
                weight=weight.tolist(),
                sample_weight=sample_weight,
                ignore_index=-1,
            ),
        )

    @pytest.mark.parametrize("name", sorted(STEPS))
    @pytest.mark.parametrize("soft", [False, True])
    @pytest.mark.parametrize("tau", [0.5, 0.3])
    def test_binary_with_everything_at_once(self, name, soft, tau):
        logits, target = batch("binary", (4, 3, 2), soft=soft)
        target[torch.rand(4, 3, 2, generator=generator(9)) < 0.3] = 7
        weight, sample_weight = torch.tensor([0.5, 2.0]), torch.rand(4, generator=generator(5)).double()
        options = {"weight": weight, "sample_weight": sample_weight, "ignore_index": 7, "task": "binary"}
        for builder, plain in (
            (partial(soft_confusion_matrix, step=STEPS[name]), name),
            (hard_confusion_matrix, "heaviside"),
        ):
            cm = builder(logits, target, threshold=tau, **options)
            expected = helper.soft_labels(
                logits,
                target,
                helper.plain_step(plain),
                tau,
                weight=weight.tolist(),
                sample_weight=sample_weight,
                ignore_index=7,
                binary=True,
            )
            close(cm.matrix, expected)

    @pytest.mark.parametrize("name", sorted(STEPS))
    @pytest.mark.parametrize("soft", [False, True])
    @pytest.mark.parametrize("weights", ["sample", "position", "decision"])
    def test_multilabel_with_everything_at_once(self, name, soft, weights):
        logits, target = batch("multilabel", (4, 3, 2), soft=soft)
        target[torch.rand(4, 3, 2, generator=generator(9)) < 0.3] = -100
        shape = {"sample": (4,), "position": (4, 2), "decision": (4, 3, 2)}[weights]
        weight, sample_weight = torch.tensor([0.5, 2.0, 1.0]), torch.rand(shape, generator=generator(5)).double()
        taus = [0.3, 0.5, 0.8]
        for builder, plain in (
            (partial(soft_confusion_matrix, step=STEPS[name]), name),
            (hard_confusion_matrix, "heaviside"),
        ):
            cm = builder(
                logits, target, task="multilabel", threshold=torch.tensor(taus, dtype=torch.float64), weight=weight,
                sample_weight=sample_weight,
            )  # fmt: skip
            expected = helper.soft_labels(
                logits, target, helper.plain_step(plain), taus, weight=weight.tolist(), sample_weight=sample_weight
            )
            close(cm.matrix, expected)

    @pytest.mark.parametrize("task", ["multiclass", "binary", "multilabel"])
    @pytest.mark.parametrize("soft", [False, True])
    @pytest.mark.parametrize("builder", [soft_confusion_matrix, hard_confusion_matrix])
    def test_a_grid_of_thresholds_is_a_stack_of_matrices(self, task, soft, builder):
        logits, target = batch(task, (6,) if task == "binary" else (6, 3), soft=soft)
        sample_weight = torch.rand(6, generator=generator(2)).double()
        grid = [0.1, 0.5, 0.7]
        cm = builder(logits, target, task=task, thresholds=grid, sample_weight=sample_weight)
        assert cm.batch_shape == (3,)
        if task == "multiclass":  # one class against the rest
            p, positive = logits.softmax(1), target if soft else torch.nn.functional.one_hot(target, 3)
            options = {"task": "multilabel", "from_probabilities": True}
        else:
            p, positive, options = logits, target, {"task": task}
        for i, tau in enumerate(grid):
            single = builder(p, positive, threshold=tau, sample_weight=sample_weight, **options)
            assert cm.task == single.task
            close(cm.matrix[i], single.matrix, 1e-12)

    @pytest.mark.parametrize("soft", [False, True])
    def test_class_weights_on_a_multiclass_grid_weigh_the_true_class(self, soft):
        logits, target = batch("multiclass", (8, 3), soft=soft)
        weight = torch.tensor([1.0, 0.0, 3.0], dtype=torch.float64)
        cm = soft_confusion_matrix(logits, target, thresholds=[0.4], weight=weight)
        shares = target if soft else torch.nn.functional.one_hot(target, 3).double()
        p = logits.softmax(1)
        for k in range(3):
            for true, predicted in helper.positions((2, 2)):
                expected = 0.0
                for i, j in helper.positions((8, 3)):
                    h = Annealed()(p[i, k], 0.4).item()
                    hit = h if predicted else 1 - h
                    expected += weight[j].item() * shares[i, j].item() * hit * ((j == k) == bool(true))
                assert cm.matrix[0, k, true, predicted].item() == pytest.approx(expected, abs=1e-12)


class TestSumOfCells:
    @given(
        task=st.sampled_from(["multiclass", "binary", "multilabel"]),
        name=st.sampled_from(sorted(STEPS)),
        tau=st.floats(0.01, 0.99),
        temperature=st.floats(1e-8, 0.4),
        classes=st.integers(2, 6),
        n=st.integers(1, 12),
        scale=st.sampled_from([0.0, 0.1, 3.0, 100.0, 1e4]),
        soft=st.booleans(),
        dtype=st.sampled_from([torch.float32, torch.float64]),
        seed=st.integers(0, 10**6),
    )
    def test_cells_sum_to_the_weights(self, task, name, tau, temperature, classes, n, scale, soft, dtype, seed):
        logits, target = batch(
            task, (n,) if task == "binary" else (n, classes), seed, soft=soft, scale=scale, dtype=dtype
        )
        step = Annealed(temperature) if name == "annealed" else STEPS[name]
        weight = torch.rand(n, generator=generator(seed), dtype=dtype)
        options = {} if task == "multiclass" else {"threshold": tau}
        for builder in (partial(soft_confusion_matrix, step=step), hard_confusion_matrix):
            cm = builder(logits, target, task=task, sample_weight=weight, **options)
            assert (cm.matrix >= 0).all()
            sums = cm.matrix.sum(dim=(-1, -2))
            tolerance = 1e-5 if dtype == torch.float32 else 1e-12
            assert torch.allclose(sums, weight.sum().expand_as(sums).to(sums), rtol=tolerance)
            assert torch.allclose(cm.total, weight.sum().to(sums), rtol=tolerance)

    @pytest.mark.parametrize("task", ["multiclass", "binary", "multilabel"])
    @given(tau=st.floats(0, 1), seed=st.integers(0, 1000))
    def test_rows_sum_to_the_true_counts_at_every_threshold(self, task, tau, seed):
        """btg eq. 6: TP + FN is the number of positives, whatever the threshold."""
        logits, target = batch(task, (9,) if task == "binary" else (9, 3), seed)
        cm = soft_confusion_matrix(logits, target, task=task, thresholds=[tau])
        positives = torch.nn.functional.one_hot(target, 3) if task == "multiclass" else target
        expected = positives.double().sum(0)
        support = cm.support[0] if task != "binary" else cm.support[0, 1]
        assert torch.allclose(support, expected, rtol=1e-12)


class TestLimits:
    @pytest.mark.parametrize("task", ["multiclass", "binary", "multilabel"])
    @given(seed=st.integers(0, 10**6), classes=st.integers(2, 6))
    def test_the_soft_matrix_tends_to_the_hard_one(self, task, seed, classes):
        logits, target = batch(task, (20,) if task == "binary" else (20, classes), seed)
        options = {} if task == "multiclass" else {"threshold": 0.4}
        soft = soft_confusion_matrix(logits, target, task=task, step=SHARP, **options)
        hard = hard_confusion_matrix(logits, target, task=task, **options)
        close(soft.matrix, hard.matrix, 1e-7)

    @pytest.mark.parametrize(
        "name", [n for n in metrics.available() if n != "cost" and not metrics.get(n).judges_scores]
    )
    @pytest.mark.parametrize("average", ["auto", "macro", "micro", "weighted", 1])
    def test_every_metric_of_the_soft_matrix_tends_to_the_hard_one(self, name, average):
        """East, Theorem 5.3: a continuous metric of C_T tends to the metric of C."""
        metric = metrics.metric_class(name)(average)
        logits, target = batch("multiclass", (60, 4), 3)
        hard = metric(hard_confusion_matrix(logits, target)).item()
        gaps = []
        for temperature in (0.2, 1e-3, 1e-6, 1e-9):
            cm = soft_confusion_matrix(logits, target, step=Annealed(temperature))
            gaps.append(abs(metric(cm).item() - hard))
        assert gaps[-1] < 1e-6
        assert gaps == sorted(gaps, reverse=True) or max(gaps[1:]) < 1e-2

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    def test_a_tie_counts_half_on_each_side(self, dtype):
        cm = soft_confusion_matrix(torch.tensor([[1.0, 1.0, -9.0]], dtype=dtype), torch.tensor([0]), step=SHARP)
        assert cm.matrix[0].tolist() == pytest.approx([0.5, 0.5, 0.0], abs=1e-6)
        binary = soft_confusion_matrix(torch.zeros(1, dtype=dtype), torch.tensor([1]), task="binary", step=SHARP)
        assert binary.matrix.tolist() == [[0.0, 0.0], [0.5, 0.5]]

    def test_a_hard_tie_goes_to_the_first_class_and_a_score_at_the_threshold_is_positive(self):
        assert hard_confusion_matrix(torch.tensor([[0.0, 1.0, 1.0]]), torch.tensor([2])).matrix[2].tolist() == [0, 1, 0]
        for dtype in (torch.float32, torch.float64):
            p = torch.tensor([0.1, 0.3, 0.7, 0.9], dtype=dtype)
            for i, tau in enumerate((0.1, 0.3, 0.7, 0.9)):
                cm = hard_confusion_matrix(p, torch.ones(4), task="binary", from_probabilities=True, threshold=tau)
                assert cm.matrix[1].tolist() == [i, 4 - i]

    def test_hard_matrix_equals_scikit_learn(self):
        logits, target = batch("multiclass", (200, 5))
        weight = torch.rand(200, generator=generator()).double()
        expected = sklearn.metrics.confusion_matrix(target, logits.argmax(1), sample_weight=weight)
        close(hard_confusion_matrix(logits, target, sample_weight=weight).matrix, expected, 1e-12)
        logits, target = batch("multilabel", (200, 4))
        expected = sklearn.metrics.multilabel_confusion_matrix(target, logits >= 0, sample_weight=weight)
        close(hard_confusion_matrix(logits, target, task="multilabel", sample_weight=weight).matrix, expected, 1e-12)


class TestEquivalences:
    @pytest.mark.parametrize("task", ["multiclass", "binary", "multilabel"])
    @pytest.mark.parametrize("builder", [soft_confusion_matrix, hard_confusion_matrix])
    def test_trailing_dimensions_equal_more_samples(self, task, builder):
        logits, target = batch(task, (5, 3, 2, 4))
        if task == "binary":
            flat, flat_target = logits.reshape(-1), target.reshape(-1)
        else:
            flat = logits.movedim(1, -1).reshape(-1, 3)
            flat_target = target.reshape(-1) if task == "multiclass" else target.movedim(1, -1).reshape(-1, 3)
        close(builder(logits, target, task=task).matrix, builder(flat, flat_target, task=task).matrix, 1e-12)

    @pytest.mark.parametrize("builder", [soft_confusion_matrix, hard_confusion_matrix])
    @pytest.mark.parametrize("thresholds", [None, [0.2, 0.6]])
    def test_indices_equal_one_hot_probabilities(self, builder, thresholds):
        logits, target = batch("multiclass", (7, 4, 3))
        one_hot = torch.nn.functional.one_hot(target, 4).movedim(-1, 1).double()
        options = {"weight": torch.tensor([1.0, 2.0, 0.5, 3.0]), "thresholds": thresholds}
        close(builder(logits, target, **options).matrix, builder(logits, one_hot, **options).matrix, 1e-12)

    @pytest.mark.parametrize("soft", [False, True])
    @pytest.mark.parametrize("builder", [soft_confusion_matrix, hard_confusion_matrix])
    def test_binary_equals_one_label(self, soft, builder):
        logits, target = batch("binary", (9,), soft=soft)
        binary = builder(logits, target, task="binary", threshold=0.3)
        label = builder(logits[:, None], target[:, None], task="multilabel", threshold=0.3)
        close(binary.matrix, label.matrix[0], 1e-12)

    @pytest.mark.parametrize("soft", [False, True])
    def test_binary_counts_class_weights_as_two_classes_do(self, soft):
        """A two-class softmax whose dynamic threshold is 1/2 is the binary task at 1/2."""
        logits, target = batch("binary", (9,), soft=soft)
        target = target.double()
        weight = torch.tensor([2.0, 5.0], dtype=torch.float64)
        two = soft_confusion_matrix(
            torch.stack([torch.zeros_like(logits), logits], 1), torch.stack([1 - target, target], 1), weight=weight
        )
        close(soft_confusion_matrix(logits, target, task="binary", weight=weight).matrix, two.matrix, 1e-12)

    @pytest.mark.parametrize("task", ["multiclass", "binary", "multilabel"])
    @pytest.mark.parametrize("builder", [soft_confusion_matrix, hard_confusion_matrix])
    def test_probabilities_equal_their_logits(self, task, builder):
        logits, target = batch(task, (7,) if task == "binary" else (7, 4, 3))
        p = logits.softmax(1) if task == "multiclass" else logits.sigmoid()
        given_p = builder(p, target, task=task, from_probabilities=True)
        close(builder(logits, target, task=task).matrix, given_p.matrix, 1e-12)

    @pytest.mark.parametrize("task", ["multiclass", "binary", "multilabel"])
    def test_order_of_samples_does_not_matter_and_parts_add_up(self, task):
        logits, target = batch(task, (8,) if task == "binary" else (8, 3))
        whole = soft_confusion_matrix(logits, target, task=task)
        order = torch.randperm(8, generator=generator())
        close(soft_confusion_matrix(logits[order], target[order], task=task).matrix, whole.matrix, 1e-12)
        first = soft_confusion_matrix(logits[:3], target[:3], task=task)
        close(first.matrix + soft_confusion_matrix(logits[3:], target[3:], task=task).matrix, whole.matrix, 1e-12)

    def test_integer_weights_equal_repeated_samples(self):
        logits, target = batch("multiclass", (5, 3))
        times = torch.tensor([1, 0, 3, 2, 1])
        weighted = soft_confusion_matrix(logits, target, sample_weight=times)
        repeated = soft_confusion_matrix(logits.repeat_interleave(times, 0), target.repeat_interleave(times))
        close(weighted.matrix, repeated.matrix, 1e-12)

    @pytest.mark.parametrize("task", ["multiclass", "binary", "multilabel"])
    @pytest.mark.parametrize("thresholds", [None, [0.2, 0.5, 0.9]])
    @pytest.mark.parametrize("soft", [False, True])
    def test_counting_in_blocks_changes_neither_value_nor_gradient(self, monkeypatch, task, thresholds, soft):
        logits, target = batch(task, (50,) if task == "binary" else (50, 3), soft=soft)
        results = []
        for elements in (2**20, 7):
            for limit in ("WHOLE_ELEMENTS", "BLOCK_ELEMENTS"):
                monkeypatch.setattr(metricfit.confusion, limit, elements)
            leaf = logits.clone().requires_grad_()
            matrix = soft_confusion_matrix(leaf, target, task=task, thresholds=thresholds).matrix
            direction = torch.rand(matrix.shape, generator=generator(1), dtype=matrix.dtype)
            (gradient,) = torch.autograd.grad((matrix * direction).sum(), leaf)
            results.append((matrix, gradient))
        close(results[0][0], results[1][0].detach(), 1e-12)
        close(results[0][1], results[1][1], 1e-12)


class TestIgnoredAndExtreme:
    @pytest.mark.parametrize("task", ["multiclass", "binary", "multilabel"])
    @pytest.mark.parametrize("validate", [True, False])
    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    def test_whatever_sits_at_ignored_positions_is_harmless(self, task, validate, bad):
        logits, target = batch(task, (6,) if task == "binary" else (6, 3, 2))
        if task == "multiclass":
            hidden = torch.zeros(6, 2, dtype=torch.bool)
            hidden[2, 1] = hidden[4, 0] = True
            cells = hidden[:, None].expand_as(logits)
        else:
            cells = hidden = torch.rand(logits.shape, generator=generator(4)) < 0.3
        target[hidden] = -100
        expected_leaf = logits.clone().requires_grad_()
        expected = soft_confusion_matrix(expected_leaf, target, task=task).matrix
        leaf = logits.masked_fill(cells, bad).requires_grad_()
        matrix = soft_confusion_matrix(leaf, target, task=task, validate=validate).matrix
        direction = torch.rand(matrix.shape, generator=generator(1), dtype=torch.float64)
        (matrix * direction).sum().backward()
        (expected * direction).sum().backward()
        close(matrix, expected.detach(), 1e-12)
        close(leaf.grad, expected_leaf.grad, 1e-12)
        assert (leaf.grad[cells] == 0).all()

    @pytest.mark.parametrize("task", ["multiclass", "binary", "multilabel"])
    @pytest.mark.parametrize("from_probabilities", [False, True])
    def test_a_batch_of_ignored_positions_is_a_zero_matrix_in_the_graph(self, task, from_probabilities):
        leaf = torch.full((4,) if task == "binary" else (4, 3), math.nan, requires_grad=True)
        target = torch.full((4,) if task != "multilabel" else (4, 3), -100)
        matrix = soft_confusion_matrix(leaf, target, task=task, from_probabilities=from_probabilities).matrix
        assert matrix.requires_grad
        assert (matrix == 0).all()
        matrix.sum().backward()
        assert (leaf.grad == 0).all()

    @pytest.mark.parametrize("task", ["multiclass", "binary", "multilabel"])
    @pytest.mark.parametrize("size", [1e4, -1e4, 88.0])
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    @pytest.mark.parametrize("name", sorted(STEPS))
    def test_extreme_logits(self, task, size, dtype, name):
        logits, target = batch(task, (6,) if task == "binary" else (6, 4), dtype=torch.float32)
        leaf = (logits.sign() * size).to(dtype).requires_grad_()
        matrix = soft_confusion_matrix(leaf, target, task=task, step=STEPS[name]).matrix
        assert matrix.isfinite().all()
        assert torch.allclose(matrix.sum((-1, -2)), torch.tensor(6.0, dtype=matrix.dtype))
        if matrix.requires_grad:
            (matrix * torch.rand(matrix.shape, generator=generator())).sum().backward()
            assert leaf.grad.isfinite().all()

    @pytest.mark.parametrize("classes", [2, 1000])
    @pytest.mark.parametrize("n", [1, 50])
    def test_two_and_a_thousand_classes_and_one_sample(self, classes, n):
        logits, target = batch("multiclass", (n, classes), dtype=torch.float32)
        leaf = logits.clone().requires_grad_()
        cm = soft_confusion_matrix(leaf, target)
        assert cm.total.item() == pytest.approx(n, rel=1e-5)
        metrics.get("mcc")(cm).backward()
        assert leaf.grad.isfinite().all()
        close(
            soft_confusion_matrix(logits, target, step=SHARP).matrix, hard_confusion_matrix(logits, target).matrix, 1e-4
        )

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    @pytest.mark.parametrize("task", ["multiclass", "binary", "multilabel"])
    def test_half_precision_inputs_are_summed_in_float32(self, dtype, task):
        n = 5000  # float16 counts stop at 2048, bfloat16 ones at 256
        logits, target = batch(task, (n,) if task == "binary" else (n, 3), dtype=torch.float32)
        half = logits.to(dtype)
        cm = soft_confusion_matrix(half, target, task=task)
        assert cm.matrix.dtype == torch.float32
        assert cm.total.item() == pytest.approx(n, rel=1e-5)
        close(cm.matrix, soft_confusion_matrix(half.double(), target, task=task).matrix, 1e-4)

    def test_float64_stays(self):
        logits, target = batch("multiclass", (4, 3))
        assert soft_confusion_matrix(logits, target, sample_weight=torch.ones(4)).matrix.dtype == torch.float64
        assert hard_confusion_matrix(logits.float(), target).matrix.dtype == torch.float64

    @pytest.mark.parametrize("task", ["multiclass", "binary", "multilabel"])
    @pytest.mark.parametrize("thresholds", [None, [0.2, 0.7]])
    @pytest.mark.parametrize("soft", [False, True])
    def test_gradcheck(self, task, thresholds, soft):
        logits, target = batch(task, (4,) if task == "binary" else (4, 3), soft=soft)
        sample_weight = torch.rand(4, generator=generator(8)).double()

        def matrix(leaf):
            return soft_confusion_matrix(
                leaf, target, task=task, thresholds=thresholds, sample_weight=sample_weight
            ).matrix

        assert torch.autograd.gradcheck(matrix, logits.requires_grad_())

    def test_nan_propagates_without_validation(self):
        logits, target = batch("multiclass", (4, 3))
        logits[1, 2] = math.nan
        with pytest.raises(ValueError, match="input: NaN logits in 1 of 4"):
            soft_confusion_matrix(logits, target)
        assert soft_confusion_matrix(logits, target, validate=False).matrix.isnan().any()
