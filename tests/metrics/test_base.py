import math

import numpy as np
import pytest
import torch

from metricfit import metrics
from metricfit.confusion import ConfusionMatrix, hard_confusion_matrix
from metricfit.metrics import CallableMetric, Metric
from tests.helper import batch, generator

MATRIX = torch.tensor([[5.0, 1.0], [2.0, 3.0]], dtype=torch.float64)


def tversky(cm):
    return cm.tp[1] / (cm.tp[1] + cm.fp[1] + 3 * cm.fn[1])


class TestMetric:
    def test_a_metric_needs_a_formula(self):
        with pytest.raises(TypeError, match="abstract"):
            Metric()

    def test_calling_computes(self):
        cm = ConfusionMatrix(MATRIX, "binary")
        metric = metrics.get("f1")
        assert metric(cm) == metric.compute(cm) == metric.evaluate(lambda _: cm)

    @pytest.mark.parametrize(
        ("name", "expected"), [("recall", 0.4), ("fpr", 1 / 6), ("mcc", 1 - 13 / math.sqrt(7 * 4 * 6 * 5))]
    )
    def test_distance_is_zero_at_the_perfect_value_and_grows_with_mistakes(self, name, expected):
        metric = metrics.get(name)
        cm = ConfusionMatrix(MATRIX, "binary")
        assert metric.distance(torch.tensor(metric.perfect)) == 0
        assert metric.loss(lambda _: cm).item() == pytest.approx(expected)

    def test_evaluation_asks_for_the_grid_the_metric_needs(self):
        asked = []

        def source(thresholds):
            asked.append(thresholds)
            logits, target = batch("binary", (20,))
            return hard_confusion_matrix(logits, target, task="binary", thresholds=thresholds)

        metrics.get("recall").evaluate(source)
        metrics.get("auroc:grid=3").evaluate(source)
        metrics.get("0.5*recall + 0.5*threshold_mean:metric=f1,grid=[0.2,0.6]").evaluate(source)
        assert asked == [None, (0.25, 0.5, 0.75), None, (0.2, 0.6)]


class TestScore:
    def test_types(self):
        assert type(metrics.get("f1").score([0, 1, 1], [0, 1, 0])) is float
        values = metrics.get("f1:average=none").score([0, 1, 1], [0, 1, 0])
        assert isinstance(values, np.ndarray)
        assert values.tolist() == pytest.approx([2 / 3, 2 / 3])

    def test_a_label_is_found_among_those_that_occur(self):
        assert metrics.get("recall[yes]").score(["no", "yes", "yes"], ["no", "no", "yes"]) == 0.5
        with pytest.raises(ValueError, match="class 'maybe': no such class; the classes are no, yes"):
            metrics.get("recall[maybe]").score(["no", "yes"], ["no", "no"])

    def test_numbers_keep_double_precision(self):
        """0.7 as a float32 is off in the eighth digit."""
        true, pred = [0, 1, 1, 0, 1, 1, 0], [0, 1, 0, 1, 1, 1, 0]
        expected = 0.7 * metrics.get("recall[1]").score(true, pred) + 0.3 * metrics.get("precision[1]").score(
            true, pred
        )
        assert metrics.get("0.7*recall[1] + 0.3*precision[1]").score(true, pred) == pytest.approx(expected, rel=1e-15)

    def test_scores_and_labels_do_not_mix(self):
        for spec in ("auroc + recall", "auroc + threshold_mean:metric=f1", "auroc subject to recall >= 0.5"):
            with pytest.raises(ValueError, match="score its parts one by one"):
                metrics.get(spec).score([0, 1], [0.2, 0.7])

    def test_metrics_of_the_same_scores_combine(self):
        true, score = [0, 1, 1, 0, 1], [0.1, 0.4, 0.35, 0.38, 0.9]
        parts = [metrics.get(name).score(true, score) for name in ("auroc", "auprc")]
        assert metrics.get("0.5*auroc:grid=9 + 0.5*auprc").score(true, score) == pytest.approx(sum(parts) / 2)

    def test_weights_are_samples(self):
        rng = np.random.default_rng(0)
        true, pred, times = rng.integers(0, 3, (3, 40))
        for name in ("mcc", "f1", "kappa:weights=quadratic"):
            weighted = metrics.get(name).score(true, pred, times, labels=[0, 1, 2])
            repeated = metrics.get(name).score(np.repeat(true, times), np.repeat(pred, times), labels=[0, 1, 2])
            assert weighted == pytest.approx(repeated, rel=1e-12)


class TestCallable:
    def test_any_function_of_the_matrix_is_a_metric(self):
        metric = metrics.get(tversky)
        assert metric(ConfusionMatrix(MATRIX)).item() == pytest.approx(3 / (3 + 1 + 6))
        assert metric.score([0, 1, 1], [0, 1, 0]) == pytest.approx(1 / 4)
        assert (metric.range, metric.greater_is_better, metric.perfect) == ((0, 1), True, 1)
        assert str(metric) == "tversky"

    def test_direction_and_range_can_be_given(self):
        misses = CallableMetric(lambda cm: cm.fn.sum(), range=(0.0, 10.0), greater_is_better=False)
        assert misses.perfect == 0
        assert misses.loss(lambda _: ConfusionMatrix(MATRIX)).item() == 3

    def test_a_sweep_is_mapped_over_the_function(self):
        matrices = torch.rand(2, 3, 2, 2, generator=generator())
        values = metrics.get(tversky)(ConfusionMatrix(matrices))
        assert values.shape == (2, 3)
        for i in range(2):
            for j in range(3):
                assert values[i, j] == pytest.approx(tversky(ConfusionMatrix(matrices[i, j])).item())

    def test_functions_are_differentiable_and_combine(self):
        leaf = MATRIX.clone().requires_grad_()
        value = (0.5 * metrics.get(tversky) + 0.5 * metrics.F1(1))(ConfusionMatrix(leaf))
        value.backward()
        assert leaf.grad.abs().max() > 0

    @pytest.mark.parametrize(
        ("function", "error", "message"),
        [
            (lambda cm: 0.5, TypeError, "must return a scalar tensor computed from the matrix, got float"),
            (lambda cm: cm.tp, ValueError, r"must return a scalar tensor .*, got shape \(2,\)"),
            (lambda cm: None, TypeError, "got NoneType"),
        ],
    )
    def test_what_is_no_scalar_tensor_is_refused(self, function, error, message):
        with pytest.raises(error, match=message):
            metrics.get(function)(ConfusionMatrix(MATRIX))
        with pytest.raises(error, match=message):
            metrics.get(function)(ConfusionMatrix(torch.stack([MATRIX, MATRIX])))
