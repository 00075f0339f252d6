"""What a formula does with zeros, and how it prints."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metricfit.fast.closed_form import coefficients
from metricfit.metrics.formula import javascript as javascript_of
from metricfit.metrics.formula import text as text_of
from metricfit.metrics.formula import trace


def value_of(function, undefined=0.0, **counts):
    return trace(function).of_counts(counts.__getitem__, {}, undefined)


@given(st.floats(0, 1e12))
def test_a_power_of_one_half_is_the_square_root(value):
    root = value_of(lambda c: c.tp**0.5, tp=torch.tensor(value, dtype=torch.float64)).item()
    expected = math.sqrt(value) if value > torch.finfo(torch.float64).tiny else 0.0
    assert root == pytest.approx(expected, rel=1e-15, abs=0)


@pytest.mark.parametrize("value", [0.0, -0.0, -1e-12, -1.0])
def test_the_gradient_of_a_root_is_zero_at_and_below_zero(value):
    x = torch.tensor([value, 4.0], dtype=torch.float64, requires_grad=True)
    root = value_of(lambda c: c.tp**0.5, tp=x)
    root.sum().backward()
    assert root.tolist() == [0.0, 2.0]
    assert x.grad.tolist() == [0.0, 0.25]


def test_nan_stays_nan():
    nan = torch.tensor([math.nan])
    assert value_of(lambda c: c.tp**0.5, tp=nan).isnan()
    assert value_of(lambda c: c.tp / c.fp, tp=nan, fp=torch.ones(1)).isnan()
    assert value_of(lambda c: c.tp / c.fp, tp=torch.ones(1), fp=nan).isnan()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_zero_over_zero_makes_the_whole_formula_undefined(dtype):
    tp, fn = (torch.tensor(v, dtype=dtype, requires_grad=True) for v in ([0.0, 1.0], [0.0, 3.0]))
    value = value_of(lambda c: c.tp / (c.tp + c.fn) + 5, 0.5, tp=tp, fn=fn)
    value.sum().backward()
    assert value.tolist() == [0.5, 5.25]
    assert tp.grad.tolist() == [0.0, 3 / 16]
    assert fn.grad.tolist() == [0.0, -1 / 16]


@pytest.mark.parametrize(
    ("function", "text", "javascript"),
    [
        (lambda c: c.tp - (c.fp - c.fn), "TP - (FP - FN)", "(c, p) => c.tp - (c.fp - c.fn)"),
        (lambda c: -c.tp / c.n, "-1 TP / n", "(c, p) => divide((-1) * c.tp, (c.tp + c.fp + c.fn + c.tn))"),
        (lambda c: (c.tp + c.fp) ** 2 / c.n, "(TP + FP)² / n",
         "(c, p) => divide(((c.tp + c.fp) ** 2), (c.tp + c.fp + c.fn + c.tn))"),
        (lambda c: c.tp / (c.fp / c.fn), "TP / (FP / FN)", "(c, p) => divide(c.tp, divide(c.fp, c.fn))"),
        (lambda c: c.sum(c.tp * (c.fp + 1)) / c.n, "Σₖ (TPₖ·(FPₖ + 1)) / n",
         "(m, p) => divide(total(m, (c) => c.tp * (c.fp + 1)), m.n)"),
    ],
)  # fmt: skip
def test_brackets(function, text, javascript):
    formula = trace(function)
    assert text_of(formula).replace("(-1)", "-1") == text
    assert javascript_of(formula) == javascript


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda c: 1 - c.tp / (c.tp + c.fn), ((0, 0, 1, 0), (1, 0, 1, 0))),
        (lambda c: 3 * c.tp / (2 * c.n), ((3, 0, 0, 0), (2, 2, 2, 2))),
        (lambda c: c.tp / c.n + c.tn / c.n, ((1, 0, 0, 1), (1, 1, 1, 1))),
        (lambda c: c.tp / (c.tp + c.fn) + c.tn / (c.tn + c.fp), None),
        (lambda c: c.tp * c.tp / c.n, None),
        (lambda c: c.tp / (c.tp + 1), None),
        (lambda c: c.tp + c.fp, None),
    ],
)
def test_coefficients_of_a_fraction(function, expected):
    assert coefficients(trace(function), {}) == expected
