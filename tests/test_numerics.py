import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metricfit.numerics import accumulation_dtype, safe_divide

finite = st.floats(-1e6, 1e6, allow_nan=False)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
        (torch.int64, torch.float32),
    ],
)
def test_counts_are_summed_in_float32_or_better(dtype, expected):
    assert accumulation_dtype(dtype) == expected


@given(finite, finite, st.sampled_from([0.0, 1.0, -3.5]))
def test_safe_divide_is_division_where_that_is_defined(numerator, denominator, undefined):
    a, b = torch.tensor(numerator, dtype=torch.float64), torch.tensor(denominator, dtype=torch.float64)
    value = safe_divide(a, b, undefined).item()
    if abs(denominator) <= torch.finfo(torch.float64).tiny:
        assert value == undefined
    else:
        assert value == numerator / denominator


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("undefined", [0.0, 1.0, math.nan])
@pytest.mark.parametrize("numerator", [0.0, 1.0])
def test_gradient_of_division_by_zero_is_zero(dtype, undefined, numerator):
    a = torch.tensor([numerator, 1.0], dtype=dtype, requires_grad=True)
    b = torch.tensor([0.0, 4.0], dtype=dtype, requires_grad=True)
    value = safe_divide(a, b, undefined)
    assert value[0].item() == undefined or math.isnan(undefined)
    value.sum().backward()
    assert a.grad.tolist() == [0.0, 0.25]
    assert b.grad.tolist() == [0.0, -0.0625]


def test_safe_divide_gradcheck_away_from_zero():
    a = torch.tensor([0.3, -2.0, 5.0], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([0.5, 1.5, -3.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(safe_divide, (a, b))
    assert torch.autograd.gradgradcheck(safe_divide, (a, b))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_safe_divide_keeps_tiny_denominators(dtype):
    tiny = torch.tensor(1e-30, dtype=dtype, requires_grad=True)
    value = safe_divide(tiny, tiny + tiny)
    value.backward()
    assert value.item() == 0.5
    assert tiny.grad.isfinite()


def test_nan_stays_nan():
    nan, one = torch.tensor(math.nan), torch.tensor(1.0)
    assert safe_divide(nan, one).isnan()
    assert safe_divide(one, nan).isnan()
