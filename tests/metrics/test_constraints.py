import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metricfit import metrics
from metricfit.confusion import ConfusionMatrix
from metricfit.metrics import Constrained, Constraint

recall, precision, fpr = metrics.Recall(1), metrics.Precision(1), metrics.FalsePositiveRate(1)
CM = ConfusionMatrix(torch.tensor([[5.0, 1.0], [2.0, 3.0]], dtype=torch.float64))  # recall 0.6, precision 0.75


class TestConstraint:
    def test_comparisons_make_constraints(self):
        assert (recall >= 0.9) == Constraint(recall, ">=", 0.9)
        assert (fpr <= 0.1) == Constraint(fpr, "<=", 0.1)
        assert (0.9 <= recall) == (recall >= 0.9)  # noqa: SIM300
        assert repr(recall >= 0.9) == "Constraint(recall[1] >= 0.9)"

    @pytest.mark.parametrize(
        "make",
        [
            lambda: precision.subject_to(recall >= 0.9 and fpr <= 0.1),
            lambda: precision.subject_to(recall >= 0.9 or fpr <= 0.1),
            lambda: precision.subject_to(0.2 <= recall <= 0.9),
            lambda: precision.subject_to(not recall >= 0.9),
        ],
    )
    def test_joining_them_in_python_drops_none_in_silence(self, make):
        with pytest.raises(TypeError, match=r"recall\[1\] >= 0.*one by one"):
            make()

    @given(st.floats(0, 1), st.floats(0, 1))
    def test_violation_is_the_missing_part(self, value, bound):
        value = torch.tensor(value, dtype=torch.float64)
        assert (recall >= bound).violation(value).item() == max(0, bound - value.item())
        assert (recall <= bound).violation(value).item() == max(0, value.item() - bound)

    @pytest.mark.parametrize("bound", [0.9, 1 / 3, 0.123456789, 1, 0, 1e-7])
    def test_text_keeps_the_bound(self, bound):
        metric = precision.subject_to(recall >= bound)
        assert metrics.get(str(metric)) == metric

    @pytest.mark.parametrize(
        ("make", "error", "message"),
        [
            (lambda: recall >= 1.5, ValueError, r"recall\[1\] >= 1.5: cannot be met, recall\[1\] lies between 0 and 1"),
            (lambda: recall <= -0.1, ValueError, "cannot be met"),
            (lambda: recall >= math.nan, ValueError, "finite number, got nan"),
            (lambda: recall >= -math.inf, ValueError, "finite number, got -inf"),
            (lambda: recall >= "0.9", TypeError, "with a number, got str"),
            (lambda: recall >= precision, TypeError, "with a number, got Precision"),
            (lambda: recall >= True, TypeError, "with a number, got bool"),
            (lambda: Constraint(recall, ">", 0.5), ValueError, "compares with >= or <=, got '>'"),
            (lambda: metrics.Recall("none") >= 0.5, ValueError, "one value per class"),
            (lambda: precision.subject_to(recall >= 0.5) >= 0.5, ValueError, "subject_to: "),
        ],
    )
    def test_bad_constraints_are_named(self, make, error, message):
        with pytest.raises(error, match=message):
            make()

    def test_numbers_of_numpy_are_bounds(self):
        assert (recall >= np.float32(0.5)) == (recall >= 0.5)
        assert type((recall >= np.int64(1)).bound) is float


class TestConstrained:
    def test_a_feasible_result_has_the_objective_value(self):
        metric = precision.subject_to(recall >= 0.5, fpr <= 0.2)
        assert metric(CM).item() == pytest.approx(0.75)
        assert metric.loss(lambda _: CM).item() == pytest.approx(0.25)
        assert [v.item() for v in metric.violations(lambda _: CM)] == [0, 0]

    def test_an_infeasible_result_is_worse_than_any_feasible_one(self):
        metric = precision.subject_to(recall >= 0.9, fpr <= 0.1)
        violations = [0.3, 1 / 6 - 0.1]
        assert [v.item() for v in metric.violations(lambda _: CM)] == pytest.approx(violations)
        assert metric(CM).item() == pytest.approx(0 - 0.3)
        assert metric.loss(lambda _: CM).item() == pytest.approx(0.25 + 10 * sum(violations))
        cheap = metrics.ExpectedCost(matrix=[[0, 1], [5, 0]]).subject_to(recall >= 0.9)
        assert cheap(CM).item() == pytest.approx(5 + 0.3)

    def test_it_takes_after_its_objective(self):
        metric = metrics.MCC().subject_to(recall >= 0.9)
        assert (metric.range, metric.greater_is_better, metric.perfect) == ((-1, 1), True, 1)
        assert metric.thresholds is None

    def test_batches_equal_single_matrices(self):
        matrices = torch.rand(6, 2, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        metric = precision.subject_to(recall >= 0.5, fpr <= 0.7)
        values = metric(ConfusionMatrix(matrices))
        losses = metric.loss(lambda _: ConfusionMatrix(matrices))
        assert 0 < (values < 0).sum() < 6
        for i in range(6):
            cm = ConfusionMatrix(matrices[i])
            assert values[i].item() == pytest.approx(metric(cm).item())
            assert losses[i].item() == pytest.approx(metric.loss(lambda _, cm=cm: cm).item())

    def test_score(self):
        true, pred = [0, 0, 1, 1, 1], [0, 1, 1, 1, 0]
        assert metrics.get("precision[1] subject to recall[1] >= 0.6").score(true, pred) == pytest.approx(2 / 3)
        assert metrics.get("precision[1] subject to recall[1] >= 0.7").score(true, pred) == pytest.approx(2 / 3 - 0.7)

    def test_the_loss_pulls_towards_the_constraint(self):
        leaf = CM.matrix.clone().requires_grad_()
        precision.subject_to(recall >= 0.9).loss(lambda _: ConfusionMatrix(leaf)).backward()
        assert leaf.grad[1, 0] > 0  # misses of class 1 raise the loss
        assert leaf.grad[1, 1] < 0

    def test_penalty_scales_the_violation(self):
        soft = Constrained(precision, (recall >= 0.9,), penalty=1.0)
        assert soft.loss(lambda _: CM).item() == pytest.approx(0.25 + 0.3)

    @pytest.mark.parametrize(
        ("make", "error", "message"),
        [
            (lambda: precision.subject_to(), ValueError, "subject_to: expected at least one constraint"),
            (lambda: precision.subject_to(0.9), TypeError, "subject_to: expected constraints .*got float"),
            (lambda: precision.subject_to(recall), TypeError, "subject_to: .*got Recall"),
            (
                lambda: precision.subject_to(recall >= 0.9).subject_to(recall >= 0.8),
                ValueError,
                "all constraints at once",
            ),
            (lambda: Constrained(precision, (recall >= 0.9,), penalty=0), ValueError, "penalty: .*> 0"),
            (lambda: Constrained(precision, (recall >= 0.9,), penalty=math.nan), ValueError, "penalty: "),
        ],
    )
    def test_bad_arguments_are_named(self, make, error, message):
        with pytest.raises(error, match=message):
            make()

    def test_text_reads_back(self):
        for metric in (
            precision.subject_to(recall >= 0.9),
            (0.5 * precision + 0.5 * metrics.MCC()).subject_to(recall >= 0.9, fpr <= 0.05),
            metrics.F1("macro").subject_to(recall - fpr >= -0.25),
            precision.subject_to(metrics.PredictedShare(label="fraud") <= 0.02),
        ):
            assert metrics.get(str(metric)) == metric
