import math
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metricfit import metrics
from metricfit.confusion import ConfusionMatrix
from metricfit.metrics import Combination, Constant
from metricfit.metrics.algebra import combine

R, P, FPR = metrics.Recall(1), metrics.Precision(1), metrics.FalsePositiveRate(1)
MATRIX = torch.tensor([[5.0, 1.0], [2.0, 3.0]], dtype=torch.float64)
CM = ConfusionMatrix(MATRIX)
r, p, fpr = 3 / 5, 3 / 4, 1 / 6


@pytest.mark.parametrize(
    ("metric", "value", "better", "perfect", "limits"),
    [
        (R + P, r + p, True, 2, (0, 2)),
        (R - FPR, r - fpr, True, 1, (-1, 1)),
        (1 - FPR, 1 - fpr, True, 1, (0, 1)),
        (1 - R, 1 - r, False, 0, (0, 1)),
        (FPR - R, fpr - r, False, -1, (-1, 1)),
        (-R, -r, False, -1, (-1, 0)),
        (-FPR, -fpr, True, 0, (-1, 0)),
        (0.7 * R + 0.3 * P, 0.7 * r + 0.3 * p, True, 1, (0, 1)),
        (R * 0.5, r * 0.5, True, 0.5, (0, 0.5)),
        (-2 * R, -2 * r, False, -2, (-2, 0)),
        (R * -2, r * -2, False, -2, (-2, 0)),
        (R / 4, r / 4, True, 0.25, (0, 0.25)),
        (R / -4, r / -4, False, -0.25, (-0.25, 0)),
        (R * P, r * p, True, 1, (0, 1)),
        (R + 1, r + 1, True, 2, (1, 2)),
        (2 + R, 2 + r, True, 3, (2, 3)),
        (2 * R * P / (R + P), 2 * r * p / (r + p), True, 1, (-math.inf, math.inf)),
        (1 / (1 + FPR), 1 / (1 + fpr), True, 1, (0.5, 1)),
        (-1 / (1 + FPR), -1 / (1 + fpr), False, -1, (-1, -0.5)),
        (R / (1 + FPR), r / (1 + fpr), True, 1, (0, 1)),
        (FPR * (1 - R), fpr * (1 - r), False, 0, (0, 1)),
        (metrics.MCC() * metrics.MCC(), None, True, 1, (-1, 1)),
    ],
)
def test_value_direction_best_value_and_range(metric, value, better, perfect, limits):
    if value is not None:
        assert metric(CM).item() == pytest.approx(value, rel=1e-14)
        assert metric.evaluate(lambda _: CM).item() == pytest.approx(value, rel=1e-14)
    assert metric.greater_is_better is better
    assert metric.perfect == pytest.approx(perfect)
    assert metric.range == pytest.approx(limits)
    perfect_cm = ConfusionMatrix(torch.diag(torch.tensor([3.0, 2.0])))
    assert metric.loss(lambda _: perfect_cm).item() == pytest.approx(0, abs=1e-6)


numbers = st.floats(-3, 3).map(lambda v: round(v, 3))
trees = st.recursive(
    st.one_of(numbers, st.sampled_from([R, P])),
    lambda inner: st.tuples(st.sampled_from("+-*/"), inner, inner),
    max_leaves=8,
)


def plain(tree):
    if not isinstance(tree, tuple):
        return tree if isinstance(tree, float) else {R: r, P: p}[tree]
    operator, left, right = tree[0], plain(tree[1]), plain(tree[2])
    if operator == "/":
        return left / right if right else 0.0
    return {"+": left + right, "-": left - right, "*": left * right}[operator]


def build(tree):
    return combine(tree[0], build(tree[1]), build(tree[2])) if isinstance(tree, tuple) else tree


@given(trees)
def test_any_tree_computes_as_numbers_do_and_reads_back(tree):
    try:
        metric = build(tree)
    except ValueError as error:
        assert any(word in str(error) for word in ("maximised", "best value", "divides by zero")), error  # noqa: PT017
        return
    if not isinstance(metric, Combination):
        return
    expected = plain(tree)
    assert metric(CM).item() == pytest.approx(expected, rel=1e-9, abs=1e-9)
    again = metrics.get(str(metric))
    assert again == metric
    assert again(CM).item() == metric(CM).item()
    lowest, highest = metric.range
    assert lowest - 1e-9 <= expected <= highest + 1e-9


@pytest.mark.parametrize(
    ("metric", "text"),
    [
        (0.7 * R + 0.3 * P, "0.7*recall[1] + 0.3*precision[1]"),
        ((R + P) / 2, "(recall[1] + precision[1]) / 2"),
        (R - (FPR - 0.5), "recall[1] - (fpr[1] - 0.5)"),
        (R + (P + 1), "recall[1] + (precision[1] + 1)"),
        (R * (P / 2), "recall[1]*(precision[1] / 2)"),
        (R * P / 2, "recall[1]*precision[1] / 2"),
        (-R, "-recall[1]"),
        (-(R + P), "-(recall[1] + precision[1])"),
        (1e-9 * R, "1e-09*recall[1]"),
        (R / 3 + 1 / 3, "recall[1] / 3 + 0.3333333333333333"),
    ],
)
def test_text_has_the_brackets_it_needs(metric, text):
    assert str(metric) == text
    assert metrics.get(text) == metric


@pytest.mark.parametrize("number", [2, 2.0, np.float64(2), np.float32(2), np.int64(2)])
def test_numbers_of_numpy_combine_from_both_sides(number):
    assert number * R == R * number or (number * R)(CM) == (R * number)(CM)
    assert (number * R)(CM).item() == pytest.approx(2 * r)
    assert (R / number)(CM).item() == pytest.approx(r / 2)
    assert (number - R)(CM).item() == pytest.approx(2 - r)
    assert isinstance(np.float64(0.5) <= R, metrics.Constraint)


def test_an_unbounded_part_makes_the_whole_unbounded():
    quotient = 2 * R * P / (R + P)
    for metric in (0 * quotient, quotient * R, quotient + quotient, 1 - quotient):
        assert metric.range == (-math.inf, math.inf)


def test_two_numbers_are_one():
    assert combine("/", 1, 4) == Constant(0.25)
    assert (2 * (3 * R)).perfect == 6


def test_a_constant_is_a_metric_of_the_matrix():
    cm = ConfusionMatrix(torch.rand(4, 2, 2))
    assert Constant(0.5)(cm).tolist() == [0.5] * 4
    assert Constant(0.5).greater_is_better is None
    assert str(Constant(0.1)) == "0.1"


def test_values_of_classes_combine_with_values_of_all():
    matrices = torch.rand(3, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    each, all_ = metrics.Recall("none"), metrics.Precision("macro")
    combined = (2 * each + all_)(ConfusionMatrix(matrices))
    assert combined.shape == (3, 3)
    for i in range(3):
        cm = ConfusionMatrix(matrices[i])
        assert torch.allclose(combined[i], 2 * each(cm) + all_(cm))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_stays_and_gradients_flow(dtype):
    leaf = MATRIX.to(dtype).requires_grad_()
    metric = 2 * R * P / (R + P)
    value = metric(ConfusionMatrix(leaf))
    assert value.dtype == dtype
    (gradient,) = torch.autograd.grad(value, leaf)
    (expected,) = torch.autograd.grad(metrics.F1(1)(ConfusionMatrix(leaf)), leaf)
    assert torch.allclose(gradient, expected, atol=1e-6)


def test_zero_by_zero_is_zero_with_a_zero_gradient():
    leaf = torch.zeros(2, 2, requires_grad=True)
    value = (2 * R * P / (R + P))(ConfusionMatrix(leaf))
    value.backward()
    assert value.item() == 0
    assert leaf.grad.isfinite().all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: R + FPR, "adds up a metric to be maximised and one to be minimised"),
        (lambda: R - P, "adds up"),
        (lambda: FPR - metrics.FalseNegativeRate(1), "adds up"),
        (lambda: R * FPR, "multiplies a metric to be maximised"),
        (lambda: 1 - R + P, "adds up"),
        (lambda: R / FPR, "best value of the denominator is 0"),
        (lambda: 1 / FPR, "best value of the denominator is 0"),
        (lambda: R / (1 - P), "best value of the denominator is 0"),
        (lambda: R / 0, "best value of the denominator is 0"),
        (lambda: combine("/", 1, 0), "divides by zero"),
        (lambda: R + math.inf, "finite numbers, got inf"),
        (lambda: math.nan * R, "finite numbers, got nan"),
        (lambda: R.subject_to(P >= 0.5) + P, "then put the result under constraints"),
        (lambda: 0.5 * R.subject_to(P >= 0.5), "then put the result under constraints"),
    ],
)
def test_combinations_without_sense_are_refused(make, message):
    with pytest.raises(ValueError, match=message) as raised:
        make()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("other", ["precision", None, [1], True, 1j])
def test_other_things_do_not_combine(other):
    for make in (lambda: R + other, lambda: other * R if not isinstance(other, list) else R * other):
        with pytest.raises(TypeError, match="combines with metrics and numbers"):
            make()


def test_deep_trees_are_quick():
    tree = R
    for _ in range(60):
        tree = 0.5 * R + (0.5 * P + tree)
    start = time.perf_counter()
    assert tree.range[1] == pytest.approx(61)
    assert tree.perfect == pytest.approx(61)
    assert str(tree).count("recall") == 61
    assert time.perf_counter() - start < 1
