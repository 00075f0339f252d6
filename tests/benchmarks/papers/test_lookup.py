"""The lookup table of btg against the step that it tabulates."""

import math

import pytest
import torch

from benchmarks.papers.lookup import Tabulated
from metricfit.steps import Amplifier, Annealed, Heaviside, Identity, Linear, Sigmoid

LINE = torch.linspace(0, 1, 20_001, dtype=torch.float64)


def double(value):
    return torch.tensor(value, dtype=torch.float64)


@pytest.mark.parametrize("step", [Linear(), Sigmoid(), Amplifier(), Identity(), Annealed(0.1)])
@pytest.mark.parametrize("decimals", [1, 2, 3])
def test_table_is_exact_on_its_grid_and_off_by_half_a_cell_elsewhere(step, decimals):
    table = Tabulated(step, p_decimals=decimals)
    taus = torch.linspace(0, 1, 11, dtype=torch.float64)[:, None]
    grid = torch.linspace(0, 1, 10**decimals + 1, dtype=torch.float64)
    assert torch.allclose(table(grid, taus), step(grid.expand(11, -1), taus), atol=1e-12)
    for tau in taus[1:-1].flatten().tolist():
        steepest = (step(LINE, double(tau)).diff() / LINE.diff()).max().item()
        off = (table(LINE, double(tau)) - step(LINE, double(tau))).abs().max().item()
        assert off <= steepest * 0.5 / 10**decimals + 1e-9


@pytest.mark.parametrize("step", [Linear(), Sigmoid(), Heaviside()])
def test_reported_table_error_is_the_largest_one_at_tabulated_thresholds(step):
    table = Tabulated(step)
    taus = [i / 10 for i in range(1, 10)]
    p = [i / 2000 for i in range(2001)]
    plain = max(abs(table(double(p), tau) - step(double(p), tau)).max().item() for tau in taus)
    assert table.max_error() == pytest.approx(plain, abs=1e-12)


def test_a_finer_table_is_more_accurate():
    errors = [Tabulated(Linear(), p_decimals=decimals).max_error() for decimals in (2, 3)]
    assert errors == pytest.approx([0.04, 0.004], rel=1e-6)  # slope 8 times half a cell


def test_table_trains_with_the_slopes_of_the_step():
    table = Tabulated(Sigmoid(), p_decimals=3)
    p = torch.linspace(0.01, 0.99, 37, dtype=torch.float64, requires_grad=True)
    (table_gradient,) = torch.autograd.grad(table(p, 0.3).sum(), p)
    (gradient,) = torch.autograd.grad(Sigmoid()(p, 0.3).sum(), p)
    assert torch.allclose(table_gradient, gradient, atol=0.02)
    assert gradient.max() > 2


def test_a_table_of_the_exact_step_has_no_slope():
    p = torch.rand(9, requires_grad=True)
    value = Tabulated(Heaviside())(p, 0.5)
    value.sum().backward()
    assert set(value.tolist()) <= {0.0, 1.0}
    assert p.grad.abs().max() == 0


def test_table_broadcasts_keeps_the_dtype_and_lets_nan_through():
    table = Tabulated(Linear())
    p = torch.rand(5, 3)
    assert table(p, torch.tensor([[[0.1]], [[0.5]]])).shape == (2, 5, 3)
    assert table(p.double(), 0.5).dtype == torch.float64
    assert table(torch.tensor([math.nan]), 0.5).isnan().all()


@pytest.mark.parametrize("decimals", [0, 5, -1])
@pytest.mark.parametrize("name", ["tau_decimals", "p_decimals"])
def test_table_names_a_bad_number_of_decimals(name, decimals):
    with pytest.raises(ValueError, match=f"{name}: .*got {decimals}"):
        Tabulated(Linear(), **{name: decimals})
