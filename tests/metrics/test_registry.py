"""What must hold of every metric that the registry knows."""

import math
from dataclasses import replace

import numpy as np
import pytest
import sklearn.metrics
import torch

from metricfit import metrics
from metricfit.confusion import ConfusionMatrix, hard_confusion_matrix, soft_confusion_matrix
from tests.helper import batch, generator

RANKING = {"auroc", "auprc", "precision_at", "recall_at", "threshold_mean"}
DECISION = sorted(set(metrics.available()) - RANKING)
AVERAGES = ["auto", "macro", "micro", "weighted", "none", 1]
COSTS = [[0, 1, 2], [5, 0, 1], [3, 0.5, 0]]


def variants(name):
    """A metric with each of its averages; costs for three classes."""
    if name == "cost":
        return [metrics.ExpectedCost(matrix=COSTS)]
    if name == "threshold_mean":
        return [metrics.ThresholdMean(), metrics.ThresholdMean("recall:average=macro", grid=[0.2, 0.5])]
    cls = metrics.metric_class(name)
    found = [cls(average) for average in AVERAGES if not (name in RANKING and average == "micro")]
    if name == "kappa":
        found += [cls(weights="linear"), cls(weights="quadratic")]
    if name == "fbeta":
        found += [cls(beta=2), cls(beta=[1, 0.5, 3]), cls("weighted", beta=[1, 0.5, 3])]
    return found


EVERY = [pytest.param(metric, id=str(metric)) for name in metrics.available() for metric in variants(name)]
EVERY_DECISION = [pytest.param(metric, id=str(metric)) for name in DECISION for metric in variants(name)]


@pytest.mark.parametrize("name", metrics.available())
def test_each_metric_documents_itself(name):
    cls = metrics.metric_class(name)
    assert cls.name == name
    assert cls.formula
    assert cls.reference
    assert len(cls.__doc__.strip().splitlines()[0]) > 20
    default = metrics.get(name)
    lowest, highest = default.range
    assert lowest < highest
    assert default.perfect in (lowest, highest)
    assert default.greater_is_better is (default.perfect == highest)


@pytest.mark.parametrize("metric", EVERY)
def test_spec_reads_back_as_the_same_metric(metric):
    same = [metric]
    if not isinstance(metric, metrics.ThresholdMean):
        same += [replace(metric, zero_division=1.0), replace(metric, zero_division=0.123456789)]
    for one in same:
        again = metrics.get(str(one))
        assert again == one
        assert hash(again) == hash(one)
        assert one.spec == str(one) == str(again)


@pytest.mark.parametrize("name", sorted(set(metrics.available()) - {"threshold_mean"}))
def test_spec_with_an_undefined_value_of_nan_reads_back(name):
    metric = metrics.metric_class(name)(zero_division=math.nan)
    again = metrics.get(str(metric))
    assert math.isnan(again.zero_division)
    assert str(again) == str(metric)


@pytest.mark.parametrize("metric", EVERY_DECISION)
def test_values_stay_in_the_range(metric):
    matrices = torch.rand(1000, 3, 3, generator=generator(), dtype=torch.float64) ** 4
    matrices *= torch.rand(1000, 3, 3, generator=generator(1)) < 0.6
    values = metric(ConfusionMatrix(matrices))
    lowest, highest = metric.range
    assert (values >= lowest - 1e-12).all()
    assert (values <= highest + 1e-12).all()


QUALITY = [p for p in EVERY_DECISION if p.values[0].name not in ("predicted_share", "predicted_count")]
"""Share and count of predictions are there for constraints; they say nothing about their quality."""


@pytest.mark.parametrize("metric", QUALITY)
def test_a_perfect_prediction_has_the_perfect_value_and_loss_zero(metric):
    for dtype in (torch.float32, torch.float64):
        cm = ConfusionMatrix(torch.diag(torch.tensor([0.3, 5.0, 2.0], dtype=dtype)))
        assert torch.allclose(metric(cm), torch.full_like(metric(cm), metric.perfect), atol=1e-6)
        assert torch.allclose(metric.loss(lambda _, cm=cm: cm), torch.zeros_like(metric(cm)), atol=1e-6)


@pytest.mark.parametrize("metric", QUALITY)
def test_more_mistakes_make_every_metric_worse(metric):
    good = torch.tensor([[9.0, 1.0, 0.5], [1.0, 8.0, 1.0], [0.5, 1.5, 7.0]], dtype=torch.float64)
    worse = torch.tensor([[4.0, 4.0, 2.5], [3.0, 4.0, 3.0], [2.5, 3.5, 3.0]], dtype=torch.float64)
    before, after = metric(ConfusionMatrix(good)), metric(ConfusionMatrix(worse))
    assert ((after < before) if metric.greater_is_better else (after > before)).all()
    distance = metric.distance(before)
    assert (distance > 0).all()
    assert (metric.distance(after) > distance).all()


@pytest.mark.parametrize("metric", EVERY_DECISION)
def test_batches_equal_a_loop_over_matrices(metric):
    matrices = torch.rand(2, 4, 3, 3, generator=generator(), dtype=torch.float64)
    matrices *= torch.rand(2, 4, 3, 3, generator=generator(1)) < 0.7
    values = metric(ConfusionMatrix(matrices))
    for i in range(2):
        for j in range(4):
            assert torch.allclose(values[i, j], metric(ConfusionMatrix(matrices[i, j])), atol=1e-13, rtol=1e-13)


@pytest.mark.parametrize("metric", [p for p in EVERY_DECISION if p.values[0].name != "predicted_count"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_values_do_not_depend_on_the_scale_of_the_weights(metric, dtype, tolerance):
    matrix = torch.tensor([[9.0, 1.0, 0.5], [1.0, 0.0, 1.0], [0.0, 1.5, 0.25]], dtype=dtype)
    factors = torch.tensor([1.0, 1e-20, 1e-8, 1e8, 1e20], dtype=dtype)[:, None, None]
    plain, *scaled = metric(ConfusionMatrix(matrix * factors))
    for values in scaled:
        assert torch.allclose(plain, values, rtol=tolerance, atol=tolerance)


def degenerate():
    zeros, ones = torch.zeros(3, 3), torch.ones(3, 3)
    yield "all zeros", zeros
    for i, j in ((0, 0), (1, 1), (0, 1), (1, 0)):
        cell = zeros.clone()
        cell[i, j] = 5
        yield f"the cell {i}, {j} only", cell
    for k in (0, 1):
        row, column = zeros.clone(), zeros.clone()
        row[k] = column[:, k] = torch.tensor([2.0, 1.0, 3.0])
        yield f"class {k} only", row
        yield f"class {k} predicted only", column
    eye = torch.eye(3)
    yield "no mistake", eye
    yield "only mistakes", ones - eye
    yield "hardly a mistake", eye + 1e-30
    yield "hardly a hit", ones - eye + 1e-30 * eye
    yield "tiny", 1e-30 * ones
    yield "hardly anything of class 1", torch.tensor([[1.0, 1e-30, 1.0], [1e-30, 1e-30, 1e-30], [1.0, 1e-30, 2.0]])


@pytest.mark.parametrize("metric", EVERY_DECISION)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_value_and_gradient_are_finite_on_degenerate_matrices(metric, dtype):
    cases, matrices = zip(*degenerate(), strict=True)
    leaf = torch.stack(matrices).to(dtype).requires_grad_()
    lowest, highest = metric.range
    for absent in ("count", "skip"):
        values = metric(ConfusionMatrix(leaf, absent=absent))
        (gradients,) = torch.autograd.grad(values.sum(), leaf)
        for case, value, gradient in zip(cases, values, gradients, strict=True):
            assert value.isfinite().all(), case
            assert ((value >= lowest - 1e-6) & (value <= highest + 1e-6)).all(), case
            assert gradient.isfinite().all(), case


@pytest.mark.parametrize("metric", EVERY_DECISION)
def test_gradcheck(metric):
    matrix = torch.rand(3, 3, generator=generator(), dtype=torch.float64) + 0.2
    assert torch.autograd.gradcheck(lambda m: metric(ConfusionMatrix(m)), matrix.requires_grad_())


@pytest.mark.parametrize("metric", EVERY)
def test_order_of_samples_does_not_matter(metric):
    logits, target = batch("multiclass", (40, 3), 5)
    weight = torch.rand(40, generator=generator()).double()
    order = torch.randperm(40, generator=generator())
    values = []
    for places in (torch.arange(40), order):
        arguments = (logits[places], target[places])
        for builder in (soft_confusion_matrix, hard_confusion_matrix):
            values.append(
                metric.evaluate(
                    lambda t, b=builder, a=arguments, w=weight[places]: b(*a, thresholds=t, sample_weight=w)
                )
            )
    assert torch.allclose(values[0], values[2], atol=1e-12)
    assert torch.allclose(values[1], values[3], atol=1e-12)


@pytest.mark.parametrize("metric", EVERY)
def test_half_precision_logits_give_a_float32_value_and_a_finite_gradient(metric):
    logits, target = batch("multiclass", (30, 3), 5, dtype=torch.float32)
    for dtype in (torch.float16, torch.bfloat16):
        leaf = logits.to(dtype).requires_grad_()
        value = metric.evaluate(lambda t, leaf=leaf: soft_confusion_matrix(leaf, target, thresholds=t))
        assert value.dtype == torch.float32
        value.sum().backward()
        assert leaf.grad.isfinite().all()


class TestLookup:
    @pytest.mark.parametrize(
        "name",
        [
            "accuracy", "balanced_accuracy", "average_precision", "roc_auc", "roc_auc_ovr", "roc_auc_ovr_weighted",
            "matthews_corrcoef", "f1", "f1_macro", "f1_micro", "f1_weighted", "precision", "precision_macro",
            "precision_micro", "precision_weighted", "recall", "recall_macro", "recall_micro", "recall_weighted",
            "jaccard", "jaccard_macro", "jaccard_micro", "jaccard_weighted",
        ],
    )  # fmt: skip
    def test_scorer_names_of_scikit_learn_score_the_same(self, name):
        class Predictor(sklearn.base.ClassifierMixin, sklearn.base.BaseEstimator):
            def __init__(self, classes):
                self.classes_ = np.arange(classes)

            def __sklearn_is_fitted__(self):
                return True

            def predict_proba(self, X):
                return X

            def predict(self, X):
                return X.argmax(1)

        classes = 2 if name in ("f1", "precision", "recall", "jaccard", "average_precision", "roc_auc") else 3
        rng = np.random.default_rng(0)
        y, X = rng.integers(0, classes, 60), rng.dirichlet(np.ones(classes), 60)
        expected = sklearn.metrics.get_scorer(name)(Predictor(classes), X, y)
        metric = metrics.get(name)
        ours = metric.score(y, X if isinstance(metric, (metrics.AUROC, metrics.AUPRC)) else X.argmax(1))
        assert ours == pytest.approx(expected, abs=1e-12)

    def test_every_classification_scorer_of_a_confusion_matrix_is_known(self):
        missing = []
        for name in sklearn.metrics.get_scorer_names():
            if name.split("_")[0] in ("f1", "precision", "recall", "jaccard", "matthews", "balanced", "accuracy"):
                try:
                    metrics.get(name)
                except ValueError as error:
                    assert "averages over samples" in str(error)  # noqa: PT017
                    missing.append(name)
        assert missing == ["f1_samples", "jaccard_samples", "precision_samples", "recall_samples"]

    def test_aliases_name_existing_metrics(self):
        from metricfit.metrics.registry import NAMES

        for name, (cls, _) in NAMES.items():
            assert cls.name in metrics.available()
            assert metrics.get(name).name == cls.name
            assert (name in metrics.available()) == (name == cls.name)

    def test_available_is_sorted_and_complete(self):
        names = metrics.available()
        assert names == sorted(set(names))
        required = {
            "accuracy", "balanced_accuracy", "precision", "recall", "specificity", "npv", "fbeta", "f1", "jaccard",
            "gmean", "mcc", "kappa", "informedness", "markedness", "fowlkes_mallows", "tss", "hss", "csi", "cost",
            "auroc", "auprc", "precision_at", "recall_at", "threshold_mean",
        }  # fmt: skip
        assert required <= set(names)

    @pytest.mark.parametrize(
        ("wrong", "suggestion"),
        [
            ("f1_makro", "f1_macro"), ("F1", "f1"), ("MCC", "mcc"), ("acuracy", "accuracy"), ("auc", "auroc"),
            ("balanced_acc", "balanced_accuracy"), ("kapa", "kappa"), ("precison[1]", "precision"),
        ],
    )  # fmt: skip
    def test_unknown_names_suggest_close_ones(self, wrong, suggestion):
        with pytest.raises(ValueError, match=rf"metric: unknown name .*did you mean .*'{suggestion}'"):
            metrics.get(wrong)

    def test_a_name_like_no_other_lists_all(self):
        with pytest.raises(ValueError, match=r"unknown name 'xyzzy'; the names are accuracy, .*tss\."):
            metrics.get("xyzzy")

    @pytest.mark.parametrize(
        ("spec", "message"),
        [
            ("f1:beta=2", "'f1' has no parameter 'beta'; it takes average, label, zero_division"),
            ("f2:beta=3", "'f2' already sets beta=2.0; write 'fbeta' instead"),
            ("f1_macro:average=micro", "'f1_macro' already sets average=macro"),
            ("f1_macro[1]", "label=1 picks one class, average='macro' has no effect"),
            ("f1:average=macro[1]", "has no effect"),
            ("f1[1]:label=2", "parameter 'label' is given twice"),
            ("f1:average=macro,average=micro", "parameter 'average' is given twice"),
            ("f1:average=mean", "average: expected one of"),
            ("f1:zero_division=warn", "zero_division: "),
            ("fbeta:beta=-1", "beta: .*>= 0"),
            ("kappa:weights=cubic", "weights: "),
            ("auroc:average=micro", "average: "),
            ("auroc:grid=0", "grid: "),
            ("auroc:grid=1000000000000", "grid: "),
            ("threshold_mean:metric=auroc", "metric: expected a metric of one decision"),
            ("cost[1]", "cost: "),
        ],
    )
    def test_bad_parameters_are_named(self, spec, message):
        with pytest.raises(ValueError, match=message):
            metrics.get(spec)

    @pytest.mark.parametrize("spec", ["fbeta:beta=two", "threshold_mean:metric=5", "cost:matrix=abc", "cost:matrix=5"])
    def test_parameters_of_a_wrong_type_are_named(self, spec):
        with pytest.raises(TypeError, match=r"^(beta|metric|matrix): expected"):
            metrics.get(spec)

    def test_metrics_and_functions_pass_through(self):
        metric = metrics.F1("macro")
        assert metrics.get(metric) is metric
        assert isinstance(metrics.get(lambda cm: cm.tp[0]), metrics.CallableMetric)

    @pytest.mark.parametrize("wrong", [None, 5, b"f1", ["f1"], torch.tensor(1.0)])
    def test_other_things_are_refused(self, wrong):
        with pytest.raises(TypeError, match="metric: expected a name"):
            metrics.get(wrong)

    def test_a_class_is_not_a_function_of_the_matrix(self):
        with pytest.raises(TypeError, match=r"got the class F1; write F1\(\)"):
            metrics.get(metrics.F1)

    def test_metric_class_resolves_aliases(self):
        assert metrics.metric_class("dice") is metrics.F1
        with pytest.raises(ValueError, match="unknown name"):
            metrics.metric_class("nope")
