import itertools

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from metricfit.membership import dynamic_membership, dynamic_threshold, threshold_membership
from metricfit.steps import (
    Amplifier,
    Annealed,
    Heaviside,
    Identity,
    Linear,
    Sigmoid,
)
from tests import helper

STEPS = {
    "heaviside": Heaviside(),
    "linear": Linear(),
    "annealed": Annealed(),
    "sigmoid": Sigmoid(),
    "identity": Identity(),
    "amplifier": Amplifier(),
}

distribution = st.lists(st.floats(0.001, 1), min_size=2, max_size=8).map(lambda v: [x / sum(v) for x in v])


def double(value):
    return torch.tensor(value, dtype=torch.float64)


@given(distribution)
def test_dynamic_threshold_is_the_mean_of_the_two_largest(p):
    threshold = dynamic_threshold(double([p]))
    assert threshold.shape == (1, 1)
    assert threshold.item() == pytest.approx(sum(sorted(p)[-2:]) / 2, abs=1e-15)


@given(distribution)
def test_only_the_largest_entry_reaches_the_dynamic_threshold(p):
    highest, second = sorted(p)[-1], sorted(p)[-2]
    assume(highest - second > 1e-12)
    assert (double(p) >= dynamic_threshold(double(p))).sum() == 1


@pytest.mark.parametrize("name", sorted(STEPS))
@given(p=distribution)
def test_dynamic_membership_equals_a_plain_loop(name, p):
    expected = helper.dynamic_membership(p, helper.plain_step(name))
    assert dynamic_membership(double([p]), STEPS[name])[0].tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", sorted(STEPS))
@pytest.mark.parametrize("classes", [2, 3, 10, 1000])
@pytest.mark.parametrize("sharpness", [0.0, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dynamic_memberships_sum_to_one(name, classes, sharpness, dtype):
    generator = torch.Generator().manual_seed(classes)
    logits = sharpness * torch.randn(20, classes, generator=generator, dtype=dtype)
    membership = dynamic_membership(logits.softmax(-1), STEPS[name])
    assert ((membership >= 0) & (membership <= 1)).all()
    assert torch.allclose(membership.sum(-1), torch.ones(20, dtype=dtype), atol=20 * torch.finfo(dtype).eps)


@given(distribution)
def test_membership_tends_to_one_hot_as_the_temperature_falls(p):
    """East, Proposition 5.2."""
    highest, second = sorted(p)[-1], sorted(p)[-2]
    assume(highest - second > 1e-6)
    one_hot = torch.nn.functional.one_hot(double(p).argmax(), len(p)).double()
    distances = []
    for temperature in (0.2, 1e-2, 1e-4, 1e-8, 1e-10):
        membership = dynamic_membership(double([p]), Annealed(temperature))
        distances.append((membership[0] - one_hot).abs().max().item())
    assert all(later <= earlier + 1e-9 for earlier, later in itertools.pairwise(distances))
    assert distances[-1] < 1e-8


@pytest.mark.parametrize("tied", [2, 3, 5])
@pytest.mark.parametrize("step", [Annealed(1e-8), Heaviside()])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tied_largest_entries_share_equally(tied, step, dtype):
    p = torch.tensor([[3.0] * tied + [1.0, 2.0]], dtype=dtype).softmax(-1)
    membership = dynamic_membership(p, step)[0]
    assert membership[:tied].tolist() == pytest.approx([1 / tied] * tied, abs=1e-6)
    assert membership[tied:].abs().max() < 1e-6


@pytest.mark.parametrize("name", ["linear", "annealed", "sigmoid", "identity"])
def test_membership_gradcheck(name):
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(6, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: dynamic_membership(x.softmax(-1), STEPS[name]), logits)


@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 1e4])
@pytest.mark.parametrize("temperature", [0.4, 0.2, 1e-8])
@pytest.mark.parametrize("classes", [2, 3, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_membership_and_gradient_stay_finite(scale, temperature, classes, dtype):
    generator = torch.Generator().manual_seed(0)
    logits = (scale * torch.randn(4, classes, generator=generator, dtype=dtype)).requires_grad_()
    membership = dynamic_membership(logits.softmax(-1), Annealed(temperature))
    (membership * torch.rand(4, classes, generator=generator, dtype=dtype)).sum().backward()
    assert membership.isfinite().all()
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("name", sorted(STEPS))
def test_threshold_membership_is_the_step_at_a_number_a_label_or_a_grid(name):
    p = torch.rand(6, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    plain = helper.plain_step(name)
    number = threshold_membership(p, 0.3, STEPS[name])
    labels = threshold_membership(p, double([0.2, 0.5, 0.9]), STEPS[name])
    grid = threshold_membership(p, double([0.2, 0.5])[:, None, None], STEPS[name])
    both = threshold_membership(p, double([[[0.2, 0.3, 0.4]], [[0.5, 0.6, 0.7]]]), STEPS[name])
    assert (number.shape, labels.shape, grid.shape, both.shape) == ((6, 3), (6, 3), (2, 6, 3), (2, 6, 3))
    for i, k in helper.positions((6, 3)):
        value = p[i, k].item()
        assert number[i, k].item() == pytest.approx(plain(value, 0.3), abs=1e-12)
        assert labels[i, k].item() == pytest.approx(plain(value, (0.2, 0.5, 0.9)[k]), abs=1e-12)
        assert grid[:, i, k].tolist() == pytest.approx([plain(value, 0.2), plain(value, 0.5)], abs=1e-12)
        expected = [plain(value, 0.2 + k / 10), plain(value, 0.5 + k / 10)]
        assert both[:, i, k].tolist() == pytest.approx(expected, abs=1e-12)
