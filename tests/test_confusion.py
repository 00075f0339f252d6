import numpy as np
import pytest
import sklearn.metrics
import torch
from hypothesis import given
from hypothesis import strategies as st

from metricfit import metrics
from metricfit.confusion import ConfusionMatrix, hard_confusion_matrix, soft_confusion_matrix
from tests import helper
from tests.helper import generator


class TestValueObject:
    MATRIX = torch.tensor([[5.0, 1.0, 2.0], [0.5, 4.0, 0.0], [3.0, 0.25, 7.0]], dtype=torch.float64)

    def test_counts_equal_sums_of_cells(self):
        cm = ConfusionMatrix(self.MATRIX)
        for k, expected in enumerate(helper.one_versus_rest(self.MATRIX.tolist())):
            assert [count[k].item() for count in cm.counts] == pytest.approx(expected, abs=1e-12)
        assert torch.equal(cm.support, self.MATRIX.sum(1))
        assert torch.equal(cm.predicted, self.MATRIX.sum(0))
        assert cm.total.item() == self.MATRIX.sum().item()

    @given(st.integers(2, 7), st.integers(0, 10**6), st.sampled_from([0.0, 1.0, 6.0]))
    def test_counts_keep_their_relative_precision(self, classes, seed, spread):
        """Cells of very different sizes; a class's small count must survive the others' large ones."""
        g = generator(seed)
        matrix = 10 ** (spread * torch.randn(classes, classes, generator=g, dtype=torch.float64).clamp(-2, 2))
        matrix *= torch.rand(classes, classes, generator=g) < 0.8
        cm = ConfusionMatrix(matrix)
        for k, (tp, fp, fn, tn) in enumerate(helper.one_versus_rest(matrix.tolist())):
            assert cm.tp[k].item() == tp
            assert cm.fp[k].item() == pytest.approx(fp, rel=1e-13)
            assert cm.fn[k].item() == pytest.approx(fn, rel=1e-13)
            assert cm.tn[k].item() == pytest.approx(tn, rel=1e-13, abs=1e-14 * min(fp, fn))

    def test_batches_equal_single_matrices(self):
        matrices = torch.rand(2, 5, 3, 3, generator=generator(), dtype=torch.float64)
        cm = ConfusionMatrix(matrices)
        assert cm.batch_shape == (2, 5)
        for place in helper.positions((2, 5)):
            single = ConfusionMatrix(matrices[place])
            for name in ("tp", "fp", "fn", "tn", "support", "predicted", "total"):
                assert torch.allclose(getattr(cm, name)[place], getattr(single, name), rtol=1e-14)

    def test_multilabel_counts_are_cells(self):
        matrices = torch.rand(4, 3, 2, 2, generator=generator())
        cm = ConfusionMatrix(matrices, "multilabel")
        assert (cm.num_classes, cm.batch_shape) == (3, (4,))
        assert torch.equal(torch.stack([cm.tn, cm.fp, cm.fn, cm.tp], -1).reshape(4, 3, 2, 2), matrices)

    def test_absent_classes_are_skipped_on_request(self):
        matrix = torch.tensor([[3.0, 1.0, 1.0], [0.0, 0.0, 0.0], [0.0, 1.0, 4.0]])
        assert ConfusionMatrix(matrix).averaged.tolist() == [True, True, True]
        assert ConfusionMatrix(matrix, absent="skip").averaged.tolist() == [True, False, True]

    def test_integer_counts_become_float64(self):
        cm = ConfusionMatrix(torch.tensor(sklearn.metrics.confusion_matrix([0, 1, 1], [0, 1, 0])), "binary")
        assert cm.matrix.dtype == torch.float64
        assert metrics.get("f1")(cm).item() == pytest.approx(2 / 3)

    @pytest.mark.parametrize(
        ("labels", "label", "index"),
        [
            (None, 1, 1),
            (None, "1", 1),
            (None, np.int64(2), 2),
            (("a", "b", "c"), "b", 1),
            ((0, 1, 2), 2, 2),
            ((5, 7, 9), 7, 1),
            ((5, 7, 9), "9", 2),
            ((0.0, 0.5, 1.0), 1, 2),
            ((0.0, 0.5, 1.0), "0.5", 1),
            ((False, True, "maybe"), "True", 1),
            ((2, 1, 0), 0, 2),
            (("0", "1", 1), 1, 2),
        ],
    )
    def test_classes_are_found_by_label(self, labels, label, index):
        assert ConfusionMatrix(self.MATRIX, labels=labels).class_index(label) == index

    @pytest.mark.parametrize("label", [3, -1, "3", "-1", "--1", "²", "x", "", 1.5, None, "__class__"])
    def test_unknown_class_is_named_with_the_known_ones(self, label):
        with pytest.raises(ValueError, match="no such class; the classes are 0, 1, 2; to name classes pass labels"):
            ConfusionMatrix(self.MATRIX).class_index(label)
        with pytest.raises(ValueError, match=r"no such class; the classes are a, b, c\."):
            ConfusionMatrix(self.MATRIX, labels=("a", "b", "c")).class_index(label)

    def test_a_long_list_of_classes_is_cut(self):
        with pytest.raises(ValueError, match=r"0, 1, .*19, …") as raised:
            ConfusionMatrix(torch.eye(500)).class_index(500)
        assert len(str(raised.value)) < 200

    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            (([[1.0, 2.0], [3.0, 4.0]],), TypeError, "matrix: .*list"),
            ((torch.rand(2, 3),), ValueError, r"matrix: .*square.*\(2, 3\)"),
            ((torch.rand(3),), ValueError, "matrix: .*square"),
            ((torch.rand(0, 0),), ValueError, "matrix: .*square"),
            ((torch.rand(3, 3), "binary"), ValueError, r"matrix: a binary task.*\(3, 3\)"),
            ((torch.rand(2, 2), "multilabel"), ValueError, "matrix: a multilabel task"),
            ((torch.rand(3, 3, 3), "multilabel"), ValueError, "matrix: a multilabel task"),
            ((torch.rand(3, 3), "ordinal"), ValueError, "task: .*'ordinal'"),
            ((torch.rand(3, 3), "multiclass", ("a", "b")), ValueError, "labels: expected 3.*got 2"),
            ((torch.rand(3, 3), "multiclass", None, "drop"), ValueError, "absent: .*'drop'"),
        ],
    )
    def test_bad_arguments_are_named(self, arguments, error, message):
        with pytest.raises(error, match=message):
            ConfusionMatrix(*arguments)


class TestSums:
    MATRIX = torch.rand(3, 3)

    def test_only_like_matrices_add_up(self):
        cm = ConfusionMatrix(self.MATRIX, labels=("a", "b", "c"))
        assert torch.equal((cm + ConfusionMatrix(self.MATRIX)).matrix, 2 * self.MATRIX)
        with pytest.raises(ValueError, match=r"different tasks or classes, .*'binary', 2"):
            _ = cm + ConfusionMatrix(torch.eye(2), "binary")
        with pytest.raises(ValueError, match="different tasks or classes"):
            _ = cm + ConfusionMatrix(self.MATRIX, labels=("a", "c", "b"))
        with pytest.raises(TypeError):
            _ = cm + 1


class TestBuilderArguments:
    @pytest.mark.parametrize("builder", [soft_confusion_matrix, hard_confusion_matrix])
    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({"task": "ordinal"}, ValueError, "task: "),
            ({"threshold": 0.3}, ValueError, "threshold: has no effect with a multiclass task"),
            ({"task": "multilabel", "threshold": 1.5}, ValueError, r"threshold: .*\[0, 1\]"),
            (
                {"task": "multilabel", "threshold": torch.tensor([0.2, 0.5])},
                ValueError,
                r"threshold: .*one number or 3.*\(2,\)",
            ),
            ({"task": "multilabel", "threshold": torch.rand(4, 3)}, ValueError, "threshold: "),
            ({"thresholds": []}, ValueError, "thresholds: "),
            ({"thresholds": [0.2, 1.2]}, ValueError, r"thresholds: .*\[0, 1\]"),
            ({"absent": "drop"}, ValueError, "absent: "),
            ({"labels": ("a", "b")}, ValueError, "labels: expected 3"),
        ],
    )
    def test_bad_options_are_named(self, builder, options, error, message):
        logits, target = helper.batch("multilabel" if options.get("task") == "multilabel" else "multiclass", (4, 3))
        with pytest.raises(error, match=message):
            builder(logits, target, **options)

    @pytest.mark.parametrize("builder", [soft_confusion_matrix, hard_confusion_matrix])
    def test_arrays_and_empty_batches_are_refused(self, builder):
        logits, target = helper.batch("multiclass", (4, 3))
        with pytest.raises(TypeError, match=r"input: .*ndarray"):
            builder(logits.numpy(), target)
        with pytest.raises(ValueError, match="input: the batch is empty"):
            builder(logits[:0], target[:0])

    def test_labels_and_absent_reach_the_matrix(self):
        logits, target = helper.batch("multiclass", (4, 3))
        for builder in (soft_confusion_matrix, hard_confusion_matrix):
            cm = builder(logits, target, labels=("a", "b", "c"), absent="skip")
            assert (cm.labels, cm.absent, cm.task) == (("a", "b", "c"), "skip", "multiclass")

    @pytest.mark.parametrize("task", ["multiclass", "binary", "multilabel"])
    @pytest.mark.parametrize("thresholds", [None, [0.2, 0.6]])
    def test_builders_compile_and_transform(self, task, thresholds):
        logits, target = helper.batch(task, (4,) if task == "binary" else (4, 3))

        def matrix(logits):
            return soft_confusion_matrix(logits, target, task=task, thresholds=thresholds).matrix

        expected = matrix(logits)
        compiled = torch.compile(matrix, backend="eager", fullgraph=True)
        assert torch.allclose(compiled(logits), expected)
        mapped = torch.func.vmap(matrix)(torch.stack([logits, 2 * logits]))
        assert torch.allclose(mapped[0], expected)
        assert torch.allclose(mapped[1], matrix(2 * logits))
        jacobian = torch.func.jacrev(matrix)(logits)
        assert torch.allclose(jacobian, torch.autograd.functional.jacobian(matrix, logits))


def test_an_index_names_a_class_only_where_every_label_is_text():
    words = ConfusionMatrix(torch.eye(2), labels=("no", "yes"))
    assert (words.class_index(0), words.class_index(1)) == (0, 1)
    numbers = ConfusionMatrix(torch.eye(2), labels=(1, 2))
    assert numbers.class_index(1) == 0
    for matrix, label in ((words, 2), (words, -1), (numbers, 0)):
        with pytest.raises(ValueError, match="no such class"):
            matrix.class_index(label)
