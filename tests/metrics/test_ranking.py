import math

import numpy as np
import pytest
import sklearn.metrics
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metricfit import MetricLoss, metrics
from metricfit.confusion import ConfusionMatrix, hard_confusion_matrix, soft_confusion_matrix
from metricfit.decisions import best_threshold
from metricfit.steps import Heaviside
from tests.helper import batch, generator

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning"),
    pytest.mark.filterwarnings("ignore:No positive class found"),
]

REFERENCES = {"auroc": sklearn.metrics.roc_auc_score, "auprc": sklearn.metrics.average_precision_score}
both = pytest.mark.parametrize("name", sorted(REFERENCES))


def draw(seed, classes, *, ties, multilabel=False):
    rng = np.random.default_rng(seed)
    n = 40
    if multilabel:
        true = rng.integers(0, 2, (n, classes))
        true[:2] = [[0] * classes, [1] * classes]
        score = rng.random((n, classes))
    elif classes == 2:
        true, score = rng.integers(0, 2, n), rng.random(n)
        true[:2] = 0, 1
    else:
        true = np.concatenate([np.arange(classes), rng.integers(0, classes, n - classes)])
        score = rng.dirichlet(np.ones(classes), n)
    if ties:
        score = np.round(score, 1)
    return true, score, rng.random(n) + 0.1 if seed % 2 else None


class TestScore:
    @both
    @settings(max_examples=25)
    @given(seed=st.integers(0, 10**6), ties=st.booleans())
    def test_binary_equals_scikit_learn(self, name, seed, ties):
        true, score, weight = draw(seed, 2, ties=ties)
        expected = REFERENCES[name](true, score, sample_weight=weight)
        assert metrics.get(name).score(true, score, weight) == pytest.approx(expected, abs=1e-12)
        words = np.array(["no", "yes"])[true]
        assert metrics.get(name).score(words, score, weight) == pytest.approx(expected, abs=1e-12)
        probabilities = np.stack([1 - score, score], 1)
        assert metrics.get(name).score(true, probabilities, weight) == pytest.approx(expected, abs=1e-12)
        assert metrics.get(f"{name}[1]").score(true, score, weight) == pytest.approx(expected, abs=1e-12)
        other = REFERENCES[name](1 - true, -score, sample_weight=weight)
        assert metrics.get(f"{name}[0]").score(true, score, weight) == pytest.approx(other, abs=1e-12)

    @both
    @pytest.mark.parametrize("average", ["macro", "weighted", "none"])
    @pytest.mark.parametrize("multilabel", [False, True])
    @pytest.mark.parametrize("ties", [False, True])
    def test_several_classes_equal_scikit_learn(self, name, average, multilabel, ties):
        for seed in range(4):
            true, score, weight = draw(seed, 4, ties=ties, multilabel=multilabel)
            indicator = true if multilabel else np.eye(4)[true]
            kind = None if average == "none" else average
            expected = REFERENCES[name](indicator, score, average=kind, sample_weight=weight)
            ours = metrics.metric_class(name)(average).score(true, score, weight)
            np.testing.assert_allclose(ours, expected, atol=1e-12)

    def test_one_versus_rest_auroc_equals_scikit_learn(self):
        true, score, _ = draw(0, 3, ties=False)
        for average in ("macro", "weighted"):
            expected = sklearn.metrics.roc_auc_score(true, score, multi_class="ovr", average=average)
            assert metrics.AUROC(average).score(true, score) == pytest.approx(expected, abs=1e-12)

    @both
    def test_order_and_scale_of_scores_do_not_matter(self, name):
        true, score, weight = draw(1, 2, ties=True)
        order = np.random.default_rng(0).permutation(len(true))
        value = metrics.get(name).score(true, score, weight)
        assert metrics.get(name).score(true[order], score[order], weight[order]) == pytest.approx(value, abs=1e-13)
        assert metrics.get(name).score(true, 1e6 * score - 5, weight) == pytest.approx(value, abs=1e-13)
        for factor in (1e-20, 1e20):
            assert metrics.get(name).score(true, score, factor * weight) == pytest.approx(value, abs=1e-13)

    @both
    @pytest.mark.parametrize("zero_division", [0.0, 1.0, math.nan])
    def test_a_class_without_positives_has_the_undefined_value(self, name, zero_division):
        metric = metrics.metric_class(name)(zero_division=zero_division)
        np.testing.assert_equal(metric.score([0, 0], [0.1, 0.2]), zero_division)
        score = np.array([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0], [0.3, 0.7, 0.0], [0.6, 0.4, 0.0]])
        present = metrics.metric_class(name)("none").score([0, 1, 0, 1], score, labels=[0, 1, 2])[:2]
        mean = metrics.metric_class(name)("macro", zero_division=zero_division).score(
            [0, 1, 0, 1], score, labels=[0, 1, 2]
        )
        values = present.tolist() + ([] if math.isnan(zero_division) else [zero_division])
        assert mean == pytest.approx(sum(values) / len(values))

    def test_perfect_and_reversed_rankings(self):
        for name in REFERENCES:
            assert metrics.get(name).score([0, 0, 1, 1], [0.1, 0.2, 0.7, 0.8]) == 1
        assert metrics.get("auroc").score([0, 0, 1, 1], [0.8, 0.7, 0.2, 0.1]) == 0


def at_k(true, score, weight, k):
    """Precision and recall of the k highest scores in plain loops; of rows with the same score each gets its share."""
    rows = list(zip(true, score, [1.0] * len(true) if weight is None else weight, strict=True))
    total = sum(w for *_, w in rows)
    k = left = min(k, total) if k >= 1 else k * total
    found = 0.0
    for level in sorted(set(score), reverse=True):
        same = [(y, w) for y, s, w in rows if s == level]
        taken = min(1.0, left / sum(w for _, w in same))
        found += taken * sum(w for y, w in same if y)
        left -= taken * sum(w for _, w in same)
    return found / k, found / sum(w for y, _, w in rows if y)


class TestAtK:
    @settings(max_examples=50)
    @given(
        seed=st.integers(0, 10**6), ties=st.booleans(), k=st.sampled_from([1, 3, 17, 40, 1000, 0.01, 0.05, 0.5, 0.99])
    )
    def test_equals_plain_loops(self, seed, ties, k):
        true, score, weight = draw(seed, 2, ties=ties)
        for name, expected in zip(("precision_at", "recall_at"), at_k(true, score, weight, k), strict=True):
            assert metrics.get(f"{name}:k={k}").score(true, score, weight) == pytest.approx(expected, abs=1e-12)
        other = at_k(1 - true, -score, weight, k)
        assert metrics.get(f"recall_at:k={k}[0]").score(true, score, weight) == pytest.approx(other[1], abs=1e-12)

    @pytest.mark.parametrize("k", [1, 10, 0.25])
    def test_equals_scikit_learn_of_the_highest_rows(self, k):
        true, score, _ = draw(2, 2, ties=False)
        called = np.argsort(np.argsort(-score)) < (k if k >= 1 else k * len(true))
        precision, recall = metrics.PrecisionAt(k=k).score(true, score), metrics.RecallAt(k=k).score(true, score)
        assert precision == pytest.approx(sklearn.metrics.precision_score(true, called))
        assert recall == pytest.approx(sklearn.metrics.recall_score(true, called))

    def test_several_classes_are_averages_of_each_against_the_rest(self):
        true, score, weight = draw(1, 4, ties=True)
        each = [at_k(true == c, score[:, c], weight, 0.2) for c in range(4)]
        assert metrics.get("precision_at:k=0.2").score(true, score, weight) == pytest.approx(np.mean(each, axis=0)[0])
        assert metrics.RecallAt("none", k=0.2).score(true, score, weight) == pytest.approx([r for _, r in each])

    @pytest.mark.parametrize("name", ["precision_at", "recall_at"])
    def test_the_loss_of_a_fine_grid_is_near_the_score(self, name):
        random = generator(3)
        logits = torch.randn(400, generator=random, dtype=torch.float64)
        target = (torch.rand(400, generator=random) < logits.sigmoid()).double()
        metric = metrics.metric_class(name)(k=0.2, grid=999)
        leaf = logits.clone().requires_grad_()
        loss = MetricLoss(metric, task="binary", temperature=0.01).double()(leaf, target)
        assert 1 - loss.item() == pytest.approx(metric.score(target.long(), logits), abs=0.02)
        (gradient,) = torch.autograd.grad(loss, leaf)
        assert gradient[target == 1].sum() < 0 < gradient[target == 0].sum()

    def test_the_rule_is_of_the_highest_scores(self):
        true, score, _ = draw(3, 2, ties=False)
        for name, k in (("recall_at", 10), ("precision_at", 0.25)):
            found = best_threshold(true, score, f"{name}:k={k}")
            assert found.value == pytest.approx(at_k(true, score, None, 10)[1])
            assert (score >= found.threshold).sum() <= 10

    @pytest.mark.parametrize("k", [0, -1, 1.5, math.nan, math.inf])
    def test_other_numbers_are_refused(self, k):
        with pytest.raises(ValueError, match="k: expected a whole number of rows, or a share"):
            metrics.RecallAt(k=k)


class TestGrid:
    """The same metrics over a grid of thresholds, as losses see them."""

    def source(self, task, logits, target, builder=hard_confusion_matrix, **options):
        return lambda thresholds: builder(logits, target, task=task, thresholds=thresholds, **options)

    @both
    @pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
    def test_a_grid_through_every_score_gives_the_exact_area(self, name, task):
        logits, target = batch(task, (30,) if task == "binary" else (30, 3), 4)
        p = logits.softmax(1) if task == "multiclass" else logits.sigmoid()
        grid = tuple(sorted(set(p.flatten().tolist())))
        exact = metrics.get(name).score(target, p)
        metric = metrics.metric_class(name)(grid=grid)
        value = metric.evaluate(self.source(task, p, target, from_probabilities=True)).item()
        assert value == pytest.approx(exact, abs=1e-12)

    @both
    @pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
    def test_the_default_grid_is_close_to_the_exact_area(self, name, task):
        logits, target = batch(task, (400,) if task == "binary" else (400, 3), 4)
        p = logits.softmax(1) if task == "multiclass" else logits.sigmoid()
        exact = metrics.get(name).score(target, p)
        value = metrics.get(name).evaluate(self.source(task, logits, target)).item()
        assert value == pytest.approx(exact, abs=0.02)

    @both
    @pytest.mark.parametrize("label", [0, 1])
    def test_either_class_of_a_binary_task(self, name, label):
        logits, target = batch("binary", (300,), 4)
        score = logits.sigmoid()
        exact = REFERENCES[name]((target == label).int(), score if label else -score)
        metric = metrics.metric_class(name)(label, grid=499)
        assert metric.evaluate(self.source("binary", logits, target)).item() == pytest.approx(exact, abs=0.01)

    @both
    def test_the_direction_of_the_sweep_does_not_matter(self, name):
        logits, target = batch("multilabel", (50, 3), 4)
        cm = soft_confusion_matrix(logits, target, task="multilabel", thresholds=[0.1, 0.3, 0.5, 0.8])
        metric = metrics.get(name)
        assert metric(cm).item() == pytest.approx(metric(cm.with_matrix(cm.matrix.flip(0))).item(), abs=1e-13)

    @both
    @pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
    def test_a_better_ranking_has_a_smaller_loss_and_the_gradient_says_so(self, name, task):
        logits, target = batch(task, (60,) if task == "binary" else (60, 3), 4)
        sign = 2 * target - 1 if task != "multiclass" else 2 * torch.nn.functional.one_hot(target, 3) - 1
        leaf = logits.clone().requires_grad_()
        loss = metrics.get(name).loss(self.source(task, leaf, target, soft_confusion_matrix))
        (gradient,) = torch.autograd.grad(loss, leaf)
        assert (gradient * sign).sum() < 0
        better = metrics.get(name).loss(self.source(task, logits + sign, target, soft_confusion_matrix))
        assert better < loss

    @both
    def test_gradcheck(self, name):
        logits, target = batch("multiclass", (6, 3), 4)
        metric = metrics.metric_class(name)(grid=5)
        value = lambda leaf: metric.evaluate(self.source("multiclass", leaf, target, soft_confusion_matrix))  # noqa: E731
        assert torch.autograd.gradcheck(value, logits.requires_grad_())

    @both
    @pytest.mark.parametrize("only", [0, 1])
    def test_a_batch_of_one_class_is_finite_with_a_finite_gradient(self, name, only):
        leaf = torch.randn(8, generator=generator(), requires_grad=True)
        value = metrics.get(name).evaluate(self.source("binary", leaf, torch.full((8,), only), soft_confusion_matrix))
        value.backward()
        assert value.isfinite()
        assert leaf.grad.isfinite().all()

    @both
    def test_batch_dimensions_after_the_grid_stay(self, name):
        sweeps = [
            soft_confusion_matrix(*batch("multilabel", (20, 3), seed), task="multilabel", thresholds=[0.2, 0.5, 0.7])
            for seed in range(2)
        ]
        together = ConfusionMatrix(torch.stack([cm.matrix for cm in sweeps], dim=1), "multilabel")
        values = metrics.get(name)(together)
        assert values.shape == (2,)
        for value, cm in zip(values, sweeps, strict=True):
            assert value.item() == pytest.approx(metrics.get(name)(cm).item(), abs=1e-13)

    @both
    def test_one_matrix_has_no_curve(self, name):
        cm = ConfusionMatrix(torch.ones(2, 2), "binary")
        with pytest.raises(ValueError, match=f"{name}: needs a sweep of confusion matrices"):
            metrics.get(name)(cm)
        with pytest.raises(ValueError, match=f"{name}: needs a sweep"):
            metrics.get(name).of_classes(cm)

    def test_grids(self):
        assert metrics.AUROC(grid=3).thresholds == (0.25, 0.5, 0.75)
        assert metrics.AUROC(grid=[0, 0.5, 1]).thresholds == (0.0, 0.5, 1.0)
        assert len(metrics.AUROC().thresholds) == 99
        assert metrics.get("auroc:grid=[0.1,0.5]") == metrics.AUROC(grid=(0.1, 0.5))

    @pytest.mark.parametrize("cls", [metrics.AUROC, metrics.AUPRC, metrics.ThresholdMean])
    @pytest.mark.parametrize(
        "grid",
        [0, -1, 10**9, True, 1.5, None, "abc", [], [0.5, 0.2], [0.5, 0.5], [0.5, 1.5], [-0.1], ["a"], [math.nan]],
    )
    def test_bad_grids_are_named(self, cls, grid):
        with pytest.raises(ValueError, match="grid: expected"):
            cls(grid=grid)

    def test_micro_averages_of_areas_are_refused(self):
        with pytest.raises(ValueError, match="average: a micro average of an area"):
            metrics.AUROC("micro")


class TestThresholdMean:
    @pytest.mark.parametrize("inner", ["f1", "mcc", "accuracy", "recall[0]", "fpr"])
    def test_score_is_the_mean_over_the_grid(self, inner):
        rng = np.random.default_rng(0)
        true, score, weight = rng.integers(0, 2, 50), rng.random(50), rng.random(50)
        score[:9] = np.arange(1, 10) / 10  # scores at the thresholds themselves are positive
        values = [
            metrics.get(inner).score(true, (score >= tau / 10).astype(int), weight, labels=[0, 1])
            for tau in range(1, 10)
        ]
        metric = metrics.ThresholdMean(inner)
        assert metric.score(true, score, weight) == pytest.approx(sum(values) / 9, abs=1e-12)

    def test_multilabel_score(self):
        rng = np.random.default_rng(0)
        true, score = rng.integers(0, 2, (50, 3)), rng.random((50, 3))
        values = [metrics.F1("macro").score(true, score >= tau) for tau in (0.25, 0.6)]
        metric = metrics.ThresholdMean(metrics.F1("macro"), grid=[0.25, 0.6])
        assert metric.score(true, score) == pytest.approx(sum(values) / 2)

    @pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
    def test_over_a_soft_sweep_it_is_the_mean_of_soft_values(self, task):
        logits, target = batch(task, (20,) if task == "binary" else (20, 3), 2)
        metric = metrics.ThresholdMean("f1", grid=[0.2, 0.5, 0.6])
        for step in (Heaviside(), None):
            options = {"step": step} if step else {}
            sweep = soft_confusion_matrix(logits, target, task=task, thresholds=metric.thresholds, **options)
            values = [metrics.F1()(sweep.with_matrix(matrix)).item() for matrix in sweep.matrix]
            assert metric(sweep).item() == pytest.approx(sum(values) / 3)

    def test_it_takes_after_its_metric(self):
        cost = metrics.ThresholdMean(metrics.ExpectedCost(matrix=[[0, 1], [5, 0]]))
        assert (cost.range, cost.greater_is_better, cost.perfect) == ((0, 5), False, 0)
        assert metrics.ThresholdMean("mcc").range == (-1, 1)

    @pytest.mark.parametrize(
        "inner",
        ["f1", "f1:average=macro", "recall[it's]", "fbeta:beta=[1,2,3]", "0.5*recall[1] + 0.5*precision[a b]", "kappa"],
    )
    @pytest.mark.parametrize("grid", [9, [0.1, 0.25]])
    def test_spec_reads_back(self, inner, grid):
        metric = metrics.ThresholdMean(inner, grid=grid)
        assert metrics.get(str(metric)) == metric
        assert metrics.get(f"0.5*{metric} + 0.5*auroc") == 0.5 * metric + 0.5 * metrics.AUROC()

    def test_one_matrix_has_no_sweep(self):
        with pytest.raises(ValueError, match="needs a sweep of confusion matrices"):
            metrics.ThresholdMean()(ConfusionMatrix(torch.ones(2, 2), "binary"))

    @pytest.mark.parametrize("inner", ["auroc", "threshold_mean", "recall subject to precision >= 0.5", "f1 + auroc"])
    def test_only_metrics_of_one_decision(self, inner):
        with pytest.raises(ValueError, match="metric: expected a metric of one decision"):
            metrics.ThresholdMean(inner)

    def test_other_things_are_refused(self):
        with pytest.raises(TypeError, match="metric: expected a metric or its spec, got int"):
            metrics.ThresholdMean(5)
