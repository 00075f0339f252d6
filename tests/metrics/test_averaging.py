import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metricfit import metrics
from metricfit.confusion import ConfusionMatrix
from metricfit.metrics.base import quote, spell

MATRIX = torch.tensor([[5.0, 1.0, 2.0], [0.0, 4.0, 1.0], [3.0, 0.0, 7.0]], dtype=torch.float64)


class TestAverages:
    def test_auto_is_the_positive_class_or_the_macro_average(self):
        two = torch.tensor([[5.0, 1.0], [2.0, 3.0]])
        recall = metrics.Recall()
        assert recall(ConfusionMatrix(two, "binary")) == pytest.approx(3 / 5)
        assert recall(ConfusionMatrix(two, "multiclass")) == pytest.approx((5 / 6 + 3 / 5) / 2)
        assert recall(ConfusionMatrix(torch.stack([two, two]), "multilabel")) == pytest.approx(3 / 5)

    def test_auto_is_the_own_form_of_metrics_that_have_one(self):
        cm = ConfusionMatrix(MATRIX)
        assert metrics.Accuracy()(cm).item() == pytest.approx(16 / 23)
        assert metrics.Accuracy("macro")(cm).item() == pytest.approx((17 / 23 + 21 / 23 + 17 / 23 + 0) / 3)

    def test_multilabel_takes_averages_and_labels(self):
        matrices = torch.tensor([[[5.0, 1.0], [2.0, 3.0]], [[1.0, 1.0], [1.0, 7.0]]])
        cm = ConfusionMatrix(matrices, "multilabel", ("spam", "urgent"))
        assert metrics.Recall("macro")(cm) == pytest.approx((3 / 5 + 7 / 8) / 2)
        assert metrics.Recall("micro")(cm) == pytest.approx(10 / 13)
        assert metrics.Recall("weighted")(cm) == pytest.approx((5 * 3 / 5 + 8 * 7 / 8) / 13)
        assert metrics.Recall("none")(cm).tolist() == pytest.approx([3 / 5, 7 / 8])
        assert metrics.Recall(label="urgent")(cm) == pytest.approx(7 / 8)
        # metrics with a multiclass form have none for labels: their mean is meant
        for name in ("accuracy", "mcc", "kappa", "gmean", "hss", "tss", "balanced_accuracy"):
            metric = metrics.metric_class(name)
            assert metric()(cm) == pytest.approx(metric("macro")(cm).item())

    def test_an_index_in_place_of_an_average_is_a_class(self):
        assert metrics.Recall(1) == metrics.Recall(label=1) == metrics.Recall(np.int64(1))
        assert metrics.Recall(1)(ConfusionMatrix(MATRIX)).item() == pytest.approx(4 / 5)

    def test_weights_that_vanish_leave_the_plain_mean(self):
        """Precision is undefined where there is support, and defined where there is none: scikit-learn's fallback."""
        metric = metrics.Precision("weighted", zero_division=math.nan)
        assert metric.score([0, 0], [1, 1], labels=[0, 1]) == 0.0

    @pytest.mark.parametrize("zero_division", [0.0, 1.0, 0.5])
    @pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
    def test_an_empty_matrix_has_the_undefined_value(self, zero_division, average):
        cm = ConfusionMatrix(torch.zeros(3, 3))
        for absent in ("count", "skip"):
            value = metrics.Recall(average, zero_division=zero_division)(ConfusionMatrix(cm.matrix, absent=absent))
            assert value == zero_division


class TestArguments:
    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: metrics.F1("mean"), "average: expected one of auto, macro, .*'mean'; for a class by name write"),
            (lambda: metrics.F1(True), "average: "),
            (lambda: metrics.F1(1.5), "average: "),
            (lambda: metrics.F1(None), "average: "),
            (lambda: metrics.F1(1, 2), "average=1 and label=2 both name a class"),
            (lambda: metrics.F1("macro", "yes"), "label='yes' picks one class, average='macro' has no effect"),
            (lambda: metrics.F1(zero_division="warn"), "zero_division: .*'warn'"),
            (lambda: metrics.F1(zero_division=math.inf), "zero_division: "),
            (lambda: metrics.F1(zero_division=None), "zero_division: "),
        ],
    )
    def test_bad_arguments_are_named(self, make, message):
        with pytest.raises(ValueError, match=message):
            make()

    def test_metrics_are_values(self):
        assert metrics.F1("macro") == metrics.F1("macro")
        assert metrics.F1("macro") != metrics.F1("micro")
        assert metrics.F1("macro") != metrics.Jaccard("macro")
        assert len({metrics.F1(1), metrics.F1(label=1), metrics.F1(2)}) == 2
        with pytest.raises(AttributeError):
            metrics.F1().average = "macro"


class TestSpelling:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (1.0, "1"),
            (0.1, "0.1"),
            (1 / 3, "0.3333333333333333"),
            (1e-7, "1e-07"),
            (math.nan, "nan"),
            (3, "3"),
            ("macro", "macro"),
            ((1.0, 0.5), "[1,0.5]"),
            (((0.0, 1.0), (2.0, 0.0)), "[[0,1],[2,0]]"),
        ],
    )
    def test_parameters(self, value, text):
        assert spell(value) == text

    @given(st.one_of(st.integers(-100, 100), st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), max_size=12)))
    def test_a_label_reads_back(self, label):
        metric = metrics.Recall(label=label)
        if isinstance(label, str) and not label.isprintable():
            return
        assert metrics.get(str(metric)) == metric

    @pytest.mark.parametrize(
        "label",
        [
            "a b", " padded ", "", "it's", 'say "x"', "[x]", "a]b", "back\\slash", "\\'", "1", "-1", "01", "1.5", "f1",
            "and", "subject to", "+", "é", "日本", "-", "a:b=c,d", "x'y]\\",
        ],
    )  # fmt: skip
    def test_an_awkward_label_reads_back(self, label):
        metric = metrics.Recall(label=label)
        assert metrics.get(str(metric)) == metric
        assert metrics.get(f"0.5*{metric} + 0.5*precision[1]") == 0.5 * metric + 0.5 * metrics.Precision(1)

    def test_quotes_are_escaped(self):
        assert quote("it's \\ there") == r"'it\'s \\ there'"
