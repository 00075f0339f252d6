import math

import imblearn.metrics
import numpy as np
import pytest
import sklearn.metrics
import torch
import torchmetrics.functional.classification as torchmetrics
from hypothesis import given, settings
from hypothesis import strategies as st

from metricfit import metrics
from metricfit.confusion import ConfusionMatrix
from tests import helper

pytestmark = [
    pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true"),
    pytest.mark.filterwarnings("ignore:A single label was found"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning"),
]

AVERAGES = ["macro", "micro", "weighted", "none"]
ZERO_DIVISIONS = [0.0, 1.0, math.nan]
few = settings(max_examples=15)  # scikit-learn is slow


def equal(value, expected, tolerance=1e-12):
    np.testing.assert_allclose(np.asarray(value), np.asarray(expected), rtol=tolerance, atol=tolerance, equal_nan=True)


def draw(seed, classes):
    """True and predicted labels and weights; some classes absent from one array, some from both."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 30))
    occurring = rng.choice(classes, size=rng.integers(1, len(classes) + 1), replace=False)
    predicted = rng.choice(classes, size=rng.integers(1, len(classes) + 1), replace=False)
    true, pred = rng.choice(occurring, n), rng.choice(predicted, n)
    pred = np.where(rng.random(n) < rng.random(), true, pred)
    return true, pred, rng.random(n) + 0.01 if seed % 2 else None


SKLEARN = {
    "precision": (metrics.Precision, sklearn.metrics.precision_score, {}),
    "recall": (metrics.Recall, sklearn.metrics.recall_score, {}),
    "f1": (metrics.F1, sklearn.metrics.f1_score, {}),
    "jaccard": (metrics.Jaccard, sklearn.metrics.jaccard_score, {}),
    "fbeta-2": (metrics.FBeta, sklearn.metrics.fbeta_score, {"beta": 2.0}),
    "fbeta-0": (metrics.FBeta, sklearn.metrics.fbeta_score, {"beta": 0.0}),
}


CASES = [(name, z) for name in sorted(SKLEARN) for z in ZERO_DIVISIONS if (name, z) != ("jaccard", ZERO_DIVISIONS[2])]
"""scikit-learn's jaccard_score takes no NaN; the plain formulas below do."""


class TestScikitLearn:
    @pytest.mark.parametrize(("name", "zero_division"), CASES)
    @few
    @given(seed=st.integers(0, 10**6), labels=st.sampled_from([[0, 1, 2], list("abcd"), [3, 5, 8, 9, 20]]))
    def test_multiclass_with_absent_classes(self, name, zero_division, seed, labels):
        ours, theirs, parameters = SKLEARN[name]
        true, pred, weight = draw(seed, labels)
        for average in AVERAGES:
            value = ours(average, zero_division=zero_division, **parameters).score(true, pred, weight, labels=labels)
            expected = theirs(
                true, pred, labels=labels, average=None if average == "none" else average, sample_weight=weight,
                zero_division=zero_division, **parameters,
            )  # fmt: skip
            equal(value, expected)

    @pytest.mark.parametrize(("name", "zero_division"), CASES)
    @pytest.mark.parametrize("labels", [[0, 1], [-1, 1], ["no", "yes"], [False, True]])
    def test_bare_binary_is_the_second_class(self, name, zero_division, labels):
        ours, theirs, parameters = SKLEARN[name]
        for seed in range(8):
            true, pred, weight = draw(seed, labels)
            value = ours(zero_division=zero_division, **parameters).score(true, pred, weight, labels=labels)
            expected = theirs(
                true, pred, labels=labels, average=None, sample_weight=weight, zero_division=zero_division, **parameters
            )
            equal(value, expected[1])

    @pytest.mark.parametrize("name", sorted(SKLEARN))
    def test_one_class_by_label_or_index(self, name):
        ours, theirs, parameters = SKLEARN[name]
        true, pred, weight = draw(7, list("abcd"))
        expected = theirs(
            true, pred, labels=list("abcd"), average=None, sample_weight=weight, zero_division=0, **parameters
        )
        for k, label in enumerate("abcd"):
            equal(ours(label=label, **parameters).score(true, pred, weight, labels=list("abcd")), expected[k])
            cm = ConfusionMatrix(
                torch.tensor(sklearn.metrics.confusion_matrix(true, pred, labels=list("abcd"), sample_weight=weight))
            )
            equal(ours(k, **parameters)(cm), expected[k])

    @pytest.mark.parametrize(("name", "zero_division"), CASES)
    @pytest.mark.parametrize("average", AVERAGES)
    def test_multilabel(self, name, average, zero_division):
        ours, theirs, parameters = SKLEARN[name]
        rng = np.random.default_rng(3)
        for share in (0.0, 0.05, 0.5, 1.0):
            true, pred = rng.random((2, 12, 4)) < share
            weight = rng.random(12)
            value = ours(average, zero_division=zero_division, **parameters).score(true, pred, weight)
            expected = theirs(
                true, pred, average=None if average == "none" else average, sample_weight=weight,
                zero_division=zero_division, **parameters,
            )  # fmt: skip
            equal(value, expected)

    @given(seed=st.integers(0, 10**6), labels=st.sampled_from([[0, 1], [0, 1, 2], list("abcd")]))
    def test_metrics_of_the_whole_matrix(self, seed, labels):
        true, pred, weight = draw(seed, labels)

        def score(spec):
            return metrics.get(spec).score(true, pred, weight, labels=labels)

        equal(score("accuracy"), sklearn.metrics.accuracy_score(true, pred, sample_weight=weight))
        equal(score("balanced_accuracy"), sklearn.metrics.balanced_accuracy_score(true, pred, sample_weight=weight))
        equal(score("mcc"), sklearn.metrics.matthews_corrcoef(true, pred, sample_weight=weight), 1e-10)
        for weights in (None, "linear", "quadratic"):
            expected = sklearn.metrics.cohen_kappa_score(
                true, pred, labels=labels, weights=weights, sample_weight=weight, replace_undefined_by=0.0
            )
            equal(score(f"kappa:weights={weights}" if weights else "kappa"), expected, 1e-10)
            if weights is None:
                equal(score("hss"), expected, 1e-10)

    def test_multilabel_accuracy_is_the_share_of_right_decisions(self):
        rng = np.random.default_rng(3)
        true, pred = rng.integers(0, 2, (2, 30, 4))
        weight = rng.random(30)
        expected = 1 - sklearn.metrics.hamming_loss(true, pred, sample_weight=weight)
        equal(metrics.Accuracy().score(true, pred, weight), expected)
        equal(metrics.Accuracy("micro").score(true, pred, weight), expected)

    def test_adjusted_balanced_accuracy_is_binary_informedness(self):
        true, pred, weight = draw(1, [0, 1])
        assert set(true) == {0, 1}
        expected = sklearn.metrics.balanced_accuracy_score(true, pred, sample_weight=weight, adjusted=True)
        equal(metrics.Informedness().score(true, pred, weight), expected)

    def test_binary_likelihood_ratios_and_rates(self):
        rng = np.random.default_rng(1)
        true, pred = rng.integers(0, 2, (2, 40))
        fpr, tpr, _ = sklearn.metrics.roc_curve(true, pred)
        equal(metrics.FalsePositiveRate().score(true, pred), fpr[1])
        equal(metrics.Recall().score(true, pred), tpr[1])
        equal(metrics.FalseNegativeRate().score(true, pred), 1 - tpr[1])
        equal(metrics.NegativePredictiveValue().score(true, pred), sklearn.metrics.precision_score(1 - true, 1 - pred))
        equal(metrics.PredictedShare().score(true, pred), pred.mean())


class TestImbalancedLearn:
    @pytest.mark.parametrize("average", ["macro", "micro", "weighted", "none"])
    def test_specificity(self, average):
        for seed in range(10):
            true, pred, _ = draw(seed, [0, 1, 2, 3])  # imbalanced-learn leaves weights out of the true negatives
            expected = imblearn.metrics.specificity_score(
                true, pred, labels=[0, 1, 2, 3], average=None if average == "none" else average
            )
            equal(metrics.Specificity(average).score(true, pred, labels=[0, 1, 2, 3]), expected)

    @pytest.mark.parametrize("classes", [2, 3, 5])
    def test_geometric_mean(self, classes):
        rng = np.random.default_rng(classes)
        true = np.concatenate([np.arange(classes), rng.integers(0, classes, 40)])
        pred = np.where(rng.random(len(true)) < 0.6, true, rng.integers(0, classes, len(true)))
        weight = rng.random(len(true))
        expected = imblearn.metrics.geometric_mean_score(true, pred, average="multiclass", sample_weight=weight)
        equal(metrics.GMean().score(true, pred, weight), expected)
        per_class = imblearn.metrics.geometric_mean_score(true, pred, average=None)
        equal(metrics.GMean("none").score(true, pred), per_class)

    def test_geometric_mean_is_zero_when_a_class_is_always_missed(self):
        true, pred = [0, 0, 1, 1, 2], [0, 0, 0, 0, 2]
        assert imblearn.metrics.geometric_mean_score(true, pred) == 0
        assert metrics.GMean().score(true, pred) == 0


class TestTorchmetrics:
    @pytest.mark.parametrize("average", ["macro", "micro", "weighted", "none"])
    @pytest.mark.parametrize(
        ("metric", "reference"),
        [
            (metrics.Specificity, torchmetrics.multiclass_specificity),
            (metrics.Precision, torchmetrics.multiclass_precision),
            (metrics.Recall, torchmetrics.multiclass_recall),
            (metrics.F1, torchmetrics.multiclass_f1_score),
            (metrics.Jaccard, torchmetrics.multiclass_jaccard_index),
            (metrics.NegativePredictiveValue, torchmetrics.multiclass_negative_predictive_value),
        ],
    )
    def test_averages(self, metric, reference, average):
        generator = torch.Generator().manual_seed(0)
        true, pred = torch.randint(0, 5, (2, 300), generator=generator)
        equal(metric(average).score(true, pred), reference(pred, true, num_classes=5, average=average), 1e-6)

    def test_whole_matrix(self):
        generator = torch.Generator().manual_seed(0)
        true, pred = torch.randint(0, 5, (2, 300), generator=generator)
        equal(metrics.MCC().score(true, pred), torchmetrics.multiclass_matthews_corrcoef(pred, true, 5), 1e-5)
        for weights in ("none", "linear", "quadratic"):
            expected = torchmetrics.multiclass_cohen_kappa(pred, true, 5, weights=weights)
            equal(metrics.CohenKappa(weights=weights).score(true, pred), expected, 1e-5)


def stack(size, number=60):
    """Random matrices: dense and sparse ones, of whole and of broken numbers, with empty rows and columns."""
    rng = np.random.default_rng(size)
    found = []
    for _ in range(number):
        matrix = rng.integers(0, 9, (size, size)) * (1.0 if rng.random() < 0.5 else rng.random((size, size)))
        matrix *= rng.random((size, size)) < rng.choice([0.2, 0.6, 1.0])
        if rng.random() < 0.3:
            matrix[rng.integers(size)] = 0
        if rng.random() < 0.3:
            matrix[:, rng.integers(size)] = 0
        found.append(matrix)
    return np.stack([*found, np.zeros((size, size)), np.eye(size)])


matrices = st.integers(2, 5).flatmap(lambda size: st.sampled_from(stack(size).tolist()))


class TestPlainFormulas:
    @pytest.mark.parametrize("name", sorted(helper.CLASS_FORMULAS))
    @pytest.mark.parametrize("zero_division", ZERO_DIVISIONS)
    @pytest.mark.parametrize("size", [2, 3, 5])
    def test_every_metric_with_every_average(self, name, zero_division, size):
        metric_class = metrics.metric_class(name)
        batch = stack(size)
        cm = ConfusionMatrix(torch.from_numpy(batch))
        counts = [helper.one_versus_rest(matrix) for matrix in batch.tolist()]
        for average in ("macro", "micro", "weighted"):
            expected = [helper.average_of_classes(name, c, average, zero_division) for c in counts]
            equal(metric_class(average, zero_division=zero_division)(cm), expected, 1e-10)
        classes = np.array([[helper.CLASS_FORMULAS[name](*k, zero_division) for k in c] for c in counts])
        equal(metric_class("none", zero_division=zero_division)(cm), classes, 1e-10)
        equal(metric_class(1, zero_division=zero_division)(cm), classes[:, 1], 1e-10)
        whole = [helper.multiclass_formula(name, matrix, zero_division) for matrix in batch.tolist()]
        if whole[0] is None:
            whole = [helper.average_of_classes(name, c, "macro", zero_division) for c in counts]
        equal(metric_class(zero_division=zero_division)(cm), whole, 1e-10)

    @given(matrix=matrices)
    def test_weighted_kappa(self, matrix):
        cm = ConfusionMatrix(torch.tensor(matrix, dtype=torch.float64))
        for weights, power in (("none", 0), ("linear", 1), ("quadratic", 2)):
            equal(metrics.CohenKappa(weights=weights)(cm), helper.weighted_kappa(matrix, power, 0.0), 1e-9)

    @given(matrix=matrices)
    def test_a_beta_for_each_class(self, matrix):
        size = len(matrix)
        betas = [0.5 + k for k in range(size)]
        cm = ConfusionMatrix(torch.tensor(matrix, dtype=torch.float64))
        expected = [
            helper.ratio((1 + b * b) * tp, (1 + b * b) * tp + b * b * fn + fp, 0.0)
            for b, (tp, fp, fn, _) in zip(betas, helper.one_versus_rest(matrix), strict=True)
        ]
        equal(metrics.FBeta("none", beta=betas)(cm), expected)
        equal(metrics.FBeta(beta=betas)(cm), sum(expected) / size)
        equal(metrics.FBeta(size - 1, beta=betas)(cm), expected[-1])
        supports = [sum(row) for row in matrix]
        weighted = helper.ratio(sum(s * v for s, v in zip(supports, expected, strict=True)), sum(supports), 0.0)
        equal(metrics.FBeta("weighted", beta=betas)(cm), weighted)
        if size == 2:
            binary = ConfusionMatrix(cm.matrix, "binary")
            equal(metrics.FBeta(beta=betas)(binary), expected[1])

    @given(matrix=matrices, seed=st.integers(0, 1000))
    def test_expected_cost(self, matrix, seed):
        size = len(matrix)
        costs = np.random.default_rng(seed).normal(size=(size, size))
        cm = ConfusionMatrix(torch.tensor(matrix, dtype=torch.float64))
        total = sum(map(sum, matrix))
        expected = helper.ratio(sum(costs[i, j] * matrix[i][j] for i, j in helper.positions((size, size))), total, 0.0)
        equal(metrics.ExpectedCost(matrix=costs)(cm), expected)

    def test_a_large_beta_is_recall_and_a_small_one_precision(self):
        """multiclass-fbeta section 6.4 swaps them: a small beta prefers precision."""
        cm = ConfusionMatrix(torch.tensor([[50.0, 10.0], [5.0, 20.0]], dtype=torch.float64), "binary")
        equal(metrics.FBeta(beta=1e4)(cm), metrics.Recall()(cm), 1e-6)
        equal(metrics.FBeta(beta=1e-4)(cm), metrics.Precision()(cm), 1e-6)
        equal(metrics.FBeta(beta=0)(cm), metrics.Precision()(cm))

    def test_cost_of_labels(self):
        true, pred = np.array([[0, 1], [1, 1], [0, 0]]), np.array([[1, 1], [0, 1], [0, 1]])
        cost = metrics.ExpectedCost(matrix=[[0, 1], [5, 0]])
        equal(cost.score(true, pred), ((1 + 5 + 0) / 3 + (0 + 0 + 1) / 3) / 2)

    @pytest.mark.parametrize("task", ["multiclass", "binary"])
    def test_synonyms(self, task):
        cm = ConfusionMatrix(torch.tensor([[5.0, 1.0], [2.0, 4.0]], dtype=torch.float64), task)
        equal(metrics.get("csi")(cm), metrics.get("jaccard")(cm))
        equal(metrics.get("hss")(cm), metrics.get("kappa")(cm))
        equal(metrics.get("tss")(cm), metrics.get("informedness[1]")(cm))
        equal(metrics.get("fbeta")(cm), metrics.get("f1")(cm))


class TestDegenerate:
    def test_mcc_of_a_constant_prediction_is_exactly_zero(self):
        rng = np.random.default_rng(0)
        for classes in (2, 3, 10):
            for k in range(classes):
                true, weight = rng.integers(0, classes, 200), rng.random(200)
                assert metrics.MCC().score(true, np.full(200, k), weight, labels=range(classes)) == 0.0
                assert metrics.MCC().score(np.full(200, k), true, weight, labels=range(classes)) == 0.0
                assert metrics.HeidkeSkillScore().score(true, np.full(200, k), labels=range(classes)) == 0.0

    def test_mcc_of_a_perfect_batch_without_positives_is_zero(self):
        assert metrics.MCC().score([0, 0, 0], [0, 0, 0]) == 0.0
        assert sklearn.metrics.matthews_corrcoef([0, 0, 0], [0, 0, 0]) == 0.0

    def test_all_wrong_is_zero_although_classes_are_absent(self):
        """Absent classes are not counted as perfect."""
        cm = ConfusionMatrix(torch.tensor([[0.0, 3.0, 0.0], [4.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
        for name in ("f1", "jaccard", "recall", "precision"):
            assert metrics.get(name)(cm) == 0
            assert metrics.get(name)(ConfusionMatrix(cm.matrix, absent="skip")) == 0

    def test_skipping_absent_classes_averages_over_the_others(self):
        matrix = torch.tensor([[3.0, 1.0, 1.0], [0.0, 0.0, 0.0], [0.0, 1.0, 4.0]], dtype=torch.float64)
        recall = metrics.Recall("macro")
        equal(recall(ConfusionMatrix(matrix)), (3 / 5 + 0 + 4 / 5) / 3)
        equal(recall(ConfusionMatrix(matrix, absent="skip")), (3 / 5 + 4 / 5) / 2)
        f1 = metrics.F1("macro", zero_division=1.0)
        equal(f1(ConfusionMatrix(matrix, absent="skip")), (2 * 3 / 8 + 2 * 4 / 10) / 2)

    def test_nan_in_the_counts_is_not_hidden(self):
        cm = ConfusionMatrix(torch.tensor([[math.nan, 1.0], [1.0, 2.0]]))
        for name in helper.CLASS_FORMULAS:
            assert metrics.get(name)(cm).isnan(), name


class TestParameters:
    @pytest.mark.parametrize(
        ("make", "error", "message"),
        [
            (lambda: metrics.FBeta(beta=-1), ValueError, "beta: .*>= 0.*-1"),
            (lambda: metrics.FBeta(beta=[1, -2]), ValueError, "beta: .*>= 0"),
            (lambda: metrics.FBeta(beta=[]), ValueError, "beta: "),
            (lambda: metrics.FBeta(beta=math.nan), ValueError, "beta: .*finite"),
            (lambda: metrics.FBeta(beta=math.inf), ValueError, "beta: .*finite"),
            (lambda: metrics.FBeta(beta="two"), TypeError, "beta: .*'two'"),
            (lambda: metrics.FBeta(beta=None), TypeError, "beta: "),
            (lambda: metrics.FBeta(beta=[[1, 2]]), TypeError, "beta: "),
            (lambda: metrics.CohenKappa(weights="cubic"), ValueError, "weights: .*'cubic'"),
            (lambda: metrics.CohenKappa("macro", weights="linear"), ValueError, "weights='linear' needs"),
            (lambda: metrics.CohenKappa(1, weights="linear"), ValueError, "weights='linear' needs"),
            (lambda: metrics.ExpectedCost(1), ValueError, "cost: "),
            (lambda: metrics.ExpectedCost("weighted"), ValueError, "cost: "),
            (lambda: metrics.ExpectedCost(matrix=[[0, 1], [1]]), ValueError, "matrix: .*square"),
            (lambda: metrics.ExpectedCost(matrix=[[1]]), ValueError, "matrix: .*square"),
            (lambda: metrics.ExpectedCost(matrix=[[0, math.inf], [1, 0]]), ValueError, "matrix: .*finite"),
            (lambda: metrics.ExpectedCost(matrix=5), TypeError, "matrix: .*rows"),
            (lambda: metrics.ExpectedCost(matrix="ab"), TypeError, "matrix: .*rows"),
        ],
    )
    def test_bad_parameters_are_named(self, make, error, message):
        with pytest.raises(error, match=message):
            make()

    def test_parameters_must_fit_the_matrix(self):
        three = ConfusionMatrix(torch.ones(3, 3))
        with pytest.raises(ValueError, match=r"beta: .*each of the 3 classes, got 2"):
            metrics.FBeta(beta=[1, 2])(three)
        with pytest.raises(ValueError, match=r"beta: .*each of the 3 classes, got 2"):
            metrics.FBeta(2, beta=[1, 2])(three)
        with pytest.raises(ValueError, match=r"beta: .*micro"):
            metrics.FBeta("micro", beta=[1, 2, 3])(three)
        with pytest.raises(ValueError, match=r"matrix: expected costs for 3 classes, got \(2, 2\)"):
            metrics.ExpectedCost()(three)

    @pytest.mark.parametrize("beta", [np.array([1.0, 2.0]), torch.tensor([1.0, 2.0]), (1, 2), [1, 2]])
    def test_beta_may_be_any_sequence(self, beta):
        assert metrics.FBeta(beta=beta) == metrics.FBeta(beta=(1.0, 2.0))

    def test_cost_states_its_range_and_best_value(self):
        cost = metrics.ExpectedCost(matrix=[[0, 1], [5, -2]])
        assert (cost.range, cost.perfect, cost.greater_is_better) == ((-2, 5), -2, False)
