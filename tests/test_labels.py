import numpy as np
import pandas as pd
import pytest
import sklearn.metrics
import torch
from hypothesis import given
from hypothesis import strategies as st

from metricfit.confusion import ConfusionMatrix
from metricfit.labels import class_labels, encode_labels

WORDS = ["cat", "dog", "eel"]


@pytest.mark.parametrize(
    "classes", [[0, 1], [-1, 1], [0, 1, 2, 5], [0.0, 1.0, 4.0], ["a", "b"], ["no", "yes", "z"], [False, True]]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_confusion_equals_scikit_learn(classes, weighted):
    rng = np.random.default_rng(len(classes))
    true, pred = rng.choice(classes, 50), rng.choice(classes, 50)
    weight = rng.random(50) if weighted else None
    cm = ConfusionMatrix.from_labels(true, pred, sample_weight=weight)
    expected = sklearn.metrics.confusion_matrix(true, pred, sample_weight=weight)
    np.testing.assert_allclose(cm.matrix, expected, rtol=1e-13)
    assert list(cm.labels) == classes
    assert [type(label) for label in cm.labels] == [type(c) for c in classes]
    assert cm.task == ("binary" if len(classes) == 2 else "multiclass")


@given(st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(WORDS), st.floats(0, 10)), min_size=1, max_size=30))
def test_confusion_is_the_sum_over_samples(samples):
    true, pred, weight = (list(column) for column in zip(*samples, strict=True))
    if sum(weight) == 0:
        weight = [1.0] * len(weight)
    cm = ConfusionMatrix.from_labels(true, pred, labels=WORDS, sample_weight=weight)
    for i, a in enumerate(WORDS):
        for j, b in enumerate(WORDS):
            cell = sum(w for t, p, w in zip(true, pred, weight, strict=True) if (t, p) == (a, b))
            assert cm.matrix[i, j].item() == pytest.approx(cell, rel=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_indicator_confusion_equals_scikit_learn(weighted):
    rng = np.random.default_rng(0)
    true, pred = rng.integers(0, 2, (2, 40, 3))
    weight = rng.random(40) if weighted else None
    cm = ConfusionMatrix.from_labels(true, pred, sample_weight=weight, labels=WORDS)
    expected = sklearn.metrics.multilabel_confusion_matrix(true, pred, sample_weight=weight)
    np.testing.assert_allclose(cm.matrix, expected, rtol=1e-13)
    assert (cm.task, cm.labels) == ("multilabel", tuple(WORDS))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 1], (0, 1)),
        ([0, 0], (0, 1)),
        ([-1, -1], (-1, 1)),
        ([True], (False, True)),
        ([1.0], (0.0, 1.0)),
        ([2, 2], (2,)),
        (["a"], ("a",)),
        ([3, 1, 2], (1, 2, 3)),
    ],
)
def test_a_lone_conventional_class_is_completed_to_its_pair(values, expected):
    classes = class_labels(np.array(values))
    assert classes == expected
    assert type(classes[0]) is type(expected[0])


FORMS = {
    "list": list,
    "array": np.array,
    "objects": lambda v: np.array(v, dtype=object),
    "series": pd.Series,
    "categories": lambda v: pd.Series(v, dtype="category"),
    "column": lambda v: np.array(v)[:, None],
    "frame": lambda v: pd.DataFrame({"y": v}),
}


@pytest.mark.parametrize("true_form", sorted(FORMS))
@pytest.mark.parametrize("pred_form", sorted(FORMS))
@pytest.mark.parametrize("values", [(["a", "b", "b"], ["a", "b", "a"]), ([3, 7, 7], [3, 7, 3])])
def test_every_form_of_labels_gives_the_same_matrix(true_form, pred_form, values):
    cm = ConfusionMatrix.from_labels(FORMS[true_form](values[0]), FORMS[pred_form](values[1]))
    assert cm.matrix.tolist() == [[1, 0], [1, 1]]
    assert cm.labels == tuple(sorted(set(values[0])))


@pytest.mark.parametrize(
    "values",
    [
        torch.tensor([0, 1, 1]),
        torch.tensor([0.0, 1.0, 1.0], requires_grad=True),
        torch.tensor([0, 1, 1]).bfloat16(),
        torch.tensor([False, True, True]),
        pd.Series([0, 1, 1], dtype="Int64"),
        pd.Series([False, True, True], dtype="boolean"),
    ],
)
def test_tensors_and_nullable_columns_are_labels(values):
    assert ConfusionMatrix.from_labels(values, [0, 1, 0]).matrix.tolist() == [[1, 0], [1, 1]]


def test_given_labels_set_the_order_and_add_classes():
    cm = ConfusionMatrix.from_labels(["a", "b"], ["a", "a"], labels=["c", "b", "a"])
    assert cm.matrix.tolist() == [[0, 0, 0], [0, 0, 1], [0, 0, 1]]
    cm = ConfusionMatrix.from_labels([0, 1], [0, 0], labels=np.array([2, 1, 0]))
    assert cm.labels == (2, 1, 0)
    assert type(cm.labels[0]) is int
    assert cm.matrix.tolist() == [[0, 0, 0], [0, 0, 1], [0, 0, 1]]


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=20), st.permutations(range(-5, 6)))
def test_encoding_finds_the_place_among_the_classes(values, classes):
    places = encode_labels(np.array(values), tuple(classes), "y_true")
    assert [classes[i] for i in places] == values


BAD_LABELS = {
    "lengths": (ValueError, r"y_pred: .*\(2,\).*\(3,\)", ([0, 1], [0, 1, 1]), {}),
    "kinds of target": (ValueError, r"y_pred: .*\(2, 2\).*\(2,\)", ([[0, 1], [1, 0]], [0, 1]), {}),
    "empty": (ValueError, "y_true: expected at least one sample", ([], []), {}),
    "three dimensions": (ValueError, r"y_true: .*\(1, 1, 2\)", ([[[0, 1]]], [[[0, 1]]]), {}),
    "ragged": (ValueError, "y_true: .*unequal length", ([[0], [0, 1]], [0, 1]), {}),
    "NaN": (ValueError, "y_pred: .*NaN", ([0, 1], [0, np.nan]), {}),
    "None": (ValueError, "y_true: .*missing", (["a", None], ["a", "b"]), {}),
    "pandas NA": (ValueError, "y_true: .*missing", (pd.Series(["a", pd.NA], dtype=object), ["a", "b"]), {}),
    "missing string": (ValueError, "y_true: .*missing", (pd.Series(["a", None], dtype="str"), ["a", "b"]), {}),
    "text and numbers": (TypeError, "y_true and y_pred: one holds text", (["0", "1"], [0, 1]), {}),
    "text among numbers": (TypeError, "y_true: holds both text and numbers", (["0", 1], ["0", "1"]), {}),
    "unknown label": (ValueError, r"y_pred: label .c. is not .*\[.a., .b.\]", (["a"], ["c"]), {"labels": ["a", "b"]}),
    "unknown longer label": (ValueError, "y_true: label 'bb'", (["bb"], ["b"]), {"labels": ["a", "b"]}),
    "text for number classes": (TypeError, "y_true: the classes .* are numbers", (["a"], ["a"]), {"labels": [0, 1]}),
    "numbers for text classes": (TypeError, "y_true: the classes .* are text", ([0], [0]), {"labels": ["a", "b"]}),
    "repeated labels": (ValueError, "labels: .*distinct", ([0], [0]), {"labels": [0, 1, 0]}),
    "no labels": (ValueError, "labels: .*distinct", ([0], [0]), {"labels": []}),
    "not an indicator": (ValueError, "y_pred: .*0 and 1 only", ([[0, 1]], [[0, 2]]), {}),
    "indicator labels": (ValueError, "labels: expected 2", ([[0, 1]], [[0, 1]]), {"labels": ["a"]}),
    "weights' length": (ValueError, r"sample_weight: .*\(2,\).*\(3,\)", ([0, 1], [0, 1]), {"sample_weight": [1, 1, 1]}),
    "negative weight": (ValueError, "sample_weight: .*>= 0", ([0, 1], [0, 1]), {"sample_weight": [1, -1]}),
    "NaN weight": (ValueError, "sample_weight: .*finite", ([0, 1], [0, 1]), {"sample_weight": [1, np.nan]}),
    "zero weights": (ValueError, "sample_weight: all weights are zero", ([0, 1], [0, 1]), {"sample_weight": [0, 0]}),
    "text weights": (TypeError, "sample_weight: expected numbers", ([0, 1], [0, 1]), {"sample_weight": ["a", "b"]}),
}  # fmt: skip


@pytest.mark.parametrize("case", sorted(BAD_LABELS))
def test_bad_labels_are_named(case):
    error, message, arguments, options = BAD_LABELS[case]
    with pytest.raises(error, match=message) as raised:
        ConfusionMatrix.from_labels(*arguments, **options)
    assert "\n" not in str(raised.value)


def plain_counts(positive, score, weight, tau):
    cells = np.zeros((2, 2))
    for y, s, w in zip(positive, score, weight, strict=True):
        cells[int(y), int(s >= tau)] += w
    return cells


scored = st.lists(
    st.tuples(st.booleans(), st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.7, 1.0]), st.floats(0.1, 5)),
    min_size=1,
    max_size=25,
)


@given(scored)
def test_sweep_has_a_matrix_for_every_distinct_cut_off(samples):
    positive, score, weight = (np.array(column) for column in zip(*samples, strict=True))
    cm = ConfusionMatrix.from_scores(positive.astype(int), score, sample_weight=weight, labels=[0, 1])
    cut_offs = [np.inf, *sorted(set(score.tolist()), reverse=True)]
    assert cm.matrix.shape == (len(cut_offs), 2, 2)
    for matrix, tau in zip(cm.matrix, cut_offs, strict=True):
        np.testing.assert_allclose(matrix, plain_counts(positive, score, weight, tau), rtol=1e-12, atol=1e-12)


@given(scored, st.sampled_from([np.float32, np.float64]))
def test_sweep_at_thresholds_counts_scores_that_reach_them(samples, dtype):
    positive, score, weight = (np.array(column) for column in zip(*samples, strict=True))
    taus = [0.0, 0.1, 0.25, 0.7, 1.0]
    cm = ConfusionMatrix.from_scores(
        positive.astype(int), score.astype(dtype), thresholds=taus, sample_weight=weight, labels=[0, 1]
    )
    for matrix, tau in zip(cm.matrix, taus, strict=True):
        np.testing.assert_allclose(matrix, plain_counts(positive, score, weight, tau), rtol=1e-12, atol=1e-12)


def test_multiclass_sweep_takes_each_class_against_the_rest():
    true = np.array(["a", "b", "c", "a"])
    score = np.array([[0.9, 0.1, 0.0], [0.3, 0.3, 0.4], [0.2, 0.2, 0.6], [0.5, 0.1, 0.4]])
    cm = ConfusionMatrix.from_scores(true, score)
    assert (cm.task, cm.labels, cm.matrix.shape) == ("multilabel", ("a", "b", "c"), (5, 3, 2, 2))
    for k, name in enumerate("abc"):
        single = ConfusionMatrix.from_scores((true == name).astype(int), score[:, k])
        assert torch.equal(cm.matrix[: len(single.matrix), k], single.matrix)
        assert (cm.matrix[len(single.matrix) :, k] == single.matrix[-1]).all()


def test_two_columns_of_a_binary_target_mean_the_second_class():
    score = np.array([0.1, 0.7, 0.4])
    both = ConfusionMatrix.from_scores(["no", "yes", "yes"], np.stack([1 - score, score], 1))
    assert both.task == "binary"
    assert torch.equal(both.matrix, ConfusionMatrix.from_scores(["no", "yes", "yes"], score).matrix)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_tensors_are_scores(dtype):
    score = torch.tensor([0.125, 0.75, 0.5], dtype=dtype, requires_grad=True)
    assert torch.equal(
        ConfusionMatrix.from_scores([0, 1, 1], score).matrix,
        ConfusionMatrix.from_scores([0, 1, 1], [0.125, 0.75, 0.5]).matrix,
    )


BAD_SCORES = {
    "length": (ValueError, "y_pred: expected 2 scores.*got 3", ([0, 1], [0.1, 0.2, 0.3])),
    "a number": (ValueError, r"y_pred: .*got \(\)", ([0, 1], 0.5)),
    "three dimensions": (ValueError, r"y_pred: .*\(2, 1, 2\)", ([0, 1], np.zeros((2, 1, 2)))),
    "text": (TypeError, "y_pred: expected numbers", ([0, 1], ["low", "high"])),
    "NaN": (ValueError, "y_pred: expected finite numbers", ([0, 1], [0.1, np.nan])),
    "infinity": (ValueError, "y_pred: expected finite numbers", ([0, 1], [0.1, np.inf])),
    "one column for three classes": (ValueError, r"y_pred: .*\(3, 3\).*\(3,\)", ([0, 1, 2], [0.1, 0.2, 0.3])),
    "two columns for three classes": (ValueError, r"y_pred: .*\(3, 3\).*labels=", ([0, 1, 2], np.zeros((3, 2)))),
    "one column for an indicator": (ValueError, r"y_pred: .*\(2, 2\)", ([[0, 1], [1, 0]], [0.1, 0.2])),
    "not an indicator": (ValueError, "y_true: .*0 and 1 only", ([[0, 2], [1, 0]], np.zeros((2, 2)))),
    "a class without a name": (ValueError, "y_pred: .*one column for each of 1 classes", (["a", "a"], [0.1, 0.2])),
}


@pytest.mark.parametrize("case", sorted(BAD_SCORES))
def test_bad_scores_are_named(case):
    error, message, arguments = BAD_SCORES[case]
    with pytest.raises(error, match=message) as raised:
        ConfusionMatrix.from_scores(*arguments)
    assert "\n" not in str(raised.value)
