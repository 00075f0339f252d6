import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metricfit.steps import (
    Amplifier,
    Annealed,
    Custom,
    Heaviside,
    Identity,
    Linear,
    Sigmoid,
    get,
)
from tests.helper import plain_step

probability = st.floats(0, 1)
threshold = st.floats(0.01, 0.99)
temperature = st.floats(1e-3, 0.399)
LINE = torch.linspace(0, 1, 20_001, dtype=torch.float64)

STEPS = [
    pytest.param(Heaviside(), plain_step("heaviside"), id="heaviside"),
    pytest.param(Linear(), plain_step("linear"), id="linear"),
    pytest.param(Linear(0.3), plain_step("linear", 0.3), id="linear-0.3"),
    pytest.param(Annealed(), plain_step("annealed"), id="annealed"),
    pytest.param(Annealed(0.01), plain_step("annealed", 0.01), id="annealed-0.01"),
    pytest.param(Sigmoid(), plain_step("sigmoid"), id="sigmoid"),
    pytest.param(Sigmoid(3.0), plain_step("sigmoid", 3.0), id="sigmoid-3"),
    pytest.param(Amplifier(), plain_step("amplifier"), id="amplifier"),
    pytest.param(Identity(), plain_step("identity"), id="identity"),
]


def double(value):
    return torch.tensor(value, dtype=torch.float64)


@pytest.mark.parametrize(("step", "plain"), STEPS)
@given(p=probability, tau=threshold)
def test_step_equals_the_formula_on_floats(step, plain, p, tau):
    assert step(double(p), double(tau)).item() == pytest.approx(plain(p, tau), rel=1e-12, abs=1e-13)


@pytest.mark.parametrize(("step", "plain"), STEPS)
@given(p=st.lists(probability, min_size=2, max_size=50), tau=st.floats(0, 1))
def test_step_stays_in_the_unit_interval_and_never_falls(step, plain, p, tau):
    values = step(double(sorted(p)), double(tau))
    assert ((values >= 0) & (values <= 1)).all()
    assert (values.diff() >= -1e-15).all()


@given(tau=threshold, delta=st.floats(0.01, 0.49), t=temperature)
def test_linear_steps_pass_through_their_ends_and_the_threshold(tau, delta, t):
    points = double([0.0, tau, 1.0])
    for step in (Linear(delta), Annealed(t)):
        assert step(points, double(tau)).tolist() == pytest.approx([0.0, 0.5, 1.0], abs=1e-12)
    assert Sigmoid()(double(tau), tau).item() == 0.5
    assert Heaviside()(double(tau), tau).item() == 1.0
    assert Amplifier()(double(0.5), tau).item() == 0.5


@given(tau=threshold, delta=st.floats(0.01, 0.49))
def test_linear_step_reaches_delta_at_its_knots(tau, delta):
    half = min(tau, 1 - tau) / 2
    knots = Linear(delta)(double([tau - half, tau + half]), double(tau))
    assert knots.tolist() == pytest.approx([delta, 1 - delta], abs=1e-12)


@given(tau=threshold, t=temperature)
def test_annealed_step_is_continuous_at_its_knots(tau, t):
    half = 5 * t * min(tau, 1 - tau) / 2
    for knot in (tau - half, tau, tau + half):
        around = Annealed(t)(double([knot - 1e-13, knot, knot + 1e-13]), double(tau))
        assert (around.diff().abs() < 1e-8).all()


@given(p=st.lists(probability, min_size=1, max_size=20), tau=st.floats(0, 1))
def test_annealed_step_at_a_fifth_is_the_linear_step(p, tau):
    p, tau = double(p), double(tau)
    assert Annealed(0.2)(p, tau).tolist() == pytest.approx(Linear(0.2)(p, tau).tolist(), abs=1e-12)


@given(p=probability, tau=threshold)
def test_annealed_step_tends_to_the_exact_step(p, tau):
    value = Annealed(1e-9)(double(p), double(tau)).item()
    if p == tau:
        assert value == 0.5
    elif abs(p - tau) > 1e-8:
        assert value == pytest.approx(Heaviside()(double(p), tau).item(), abs=1e-7)


ENDS_AND_BETWEEN = [0.0, 1e-7, 1e-3, 0.1, 0.3, 0.5, 0.7, 0.999, 1.0]
LINEAR_STEPS = [
    *(Annealed(t) for t in (0.4, 0.39, 0.2, 1e-3, 1e-6, 3e-8, 1e-8, 1e-12)),
    *(Linear(delta) for delta in (0.1, 0.2, 0.45)),
]


def points_close_to(tau, dtype):
    """A line of probabilities with the nearest representable neighbours of tau."""
    near = [torch.tensor(tau, dtype=dtype)]
    for end in (0.0, 1.0):
        first = near[0].nextafter(torch.tensor(end, dtype=dtype))
        near += [first, first.nextafter(torch.tensor(end, dtype=dtype))]
    return torch.cat([torch.linspace(0, 1, 101, dtype=dtype), torch.stack(near)]).sort().values


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("step", LINEAR_STEPS)
@pytest.mark.parametrize("tau", ENDS_AND_BETWEEN)
def test_linear_steps_have_no_bad_value_or_gradient_anywhere(step, tau, dtype):
    p = points_close_to(tau, dtype).requires_grad_()
    threshold = torch.tensor(tau, dtype=dtype, requires_grad=True)
    value = step(p, threshold)
    value.sum().backward()
    assert ((value >= 0) & (value <= 1)).all()
    assert (value.diff() >= -torch.finfo(dtype).eps).all()
    assert p.grad.isfinite().all()
    assert threshold.grad.isfinite()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("step", LINEAR_STEPS)
@pytest.mark.parametrize("tau", ENDS_AND_BETWEEN)
def test_linear_steps_stay_in_the_unit_interval_in_half_precision(step, tau, dtype):
    value = step(torch.linspace(0, 1, 101).to(dtype), torch.tensor(tau, dtype=dtype))
    assert ((value >= 0) & (value <= 1)).all()


@pytest.mark.parametrize(
    "step",
    [
        Linear(),
        Sigmoid(),
        Amplifier(),
        Identity(),
        *(Annealed(t) for t in (0.39, 0.2, 0.05)),
    ],
)
@pytest.mark.parametrize("tau", [0.15, 0.5, 0.8])
def test_gradcheck_away_from_the_knots(step, tau):
    p = double([0.013, 0.11, 0.27, 0.46, 0.58, 0.71, 0.87, 0.99]).requires_grad_()
    threshold = double(tau).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: step(a, b) + 0 * b, (p, threshold))


def test_the_exact_step_has_no_gradient():
    p = torch.rand(5, requires_grad=True)
    assert not Heaviside()(p, 0.5).requires_grad


def test_temperature_may_be_a_tensor_and_keeps_the_dtype():
    for dtype in (torch.float32, torch.float64):
        p = torch.rand(7, dtype=dtype)
        by_tensor = Annealed(torch.tensor(0.05, dtype=torch.float64))(p, torch.tensor(0.3))
        assert by_tensor.dtype == dtype
        assert by_tensor.tolist() == pytest.approx(Annealed(0.05)(p, 0.3).tolist(), abs=1e-6)


def test_thresholds_broadcast():
    p = torch.rand(4, 3, dtype=torch.float64)
    taus = double([0.2, 0.5, 0.7])
    together = Annealed()(p, taus)
    for k in range(3):
        assert torch.equal(together[:, k], Annealed()(p[:, k], taus[k]))


@pytest.mark.parametrize("tau", [0.1, 0.35, 0.5, 0.9])
@pytest.mark.parametrize(
    "step",
    [
        Linear(0.1),
        Linear(0.4),
        Annealed(0.2),
        Annealed(0.35),
        Annealed(0.02),
        Sigmoid(10.0),
        Amplifier(73.0),
        Identity(),
        Custom(lambda p, tau: p**2),
    ],
    ids=str,
)
def test_lipschitz_constant_is_the_steepest_difference_quotient(step, tau):
    constant = step.lipschitz(tau)
    quotients = step(LINE, double(tau)).diff() / LINE.diff()
    assert quotients.max().item() <= constant * (1 + 1e-9)
    assert quotients.max().item() == pytest.approx(constant, rel=1e-4)


@pytest.mark.parametrize("tau", [0.0, 1.0])
@pytest.mark.parametrize("step", [Linear(), Annealed()])
def test_lipschitz_constant_is_finite_at_the_ends(step, tau):
    assert 0 < step.lipschitz(tau) < math.inf


def test_lipschitz_constant_of_the_exact_step_is_infinite():
    assert Heaviside().lipschitz() == math.inf


@pytest.mark.parametrize(
    ("call", "error", "named"),
    [
        (lambda: get("cubic"), ValueError, "step: unknown name 'cubic'; there are 'annealed', 'linear'"),
        (lambda: get("anealed"), ValueError, "did you mean 'annealed'"),
        (lambda: get("linear:k=3"), ValueError, "step: 'linear' has no parameter 'k'; it takes delta"),
        (lambda: get("identity:k=3"), ValueError, "it takes none"),
        (lambda: get("linear:delta=much"), ValueError, "step: expected a number for delta in .*'much'"),
        (lambda: get(3), TypeError, "step: expected a step, its spec or a function"),
        (lambda: get(Linear), TypeError, "write Linear()"),
        (lambda: Linear().lipschitz(1.5), ValueError, "tau: .*1.5"),
        (lambda: Linear(0.7), ValueError, "delta: expected .*0.7"),
        (lambda: Annealed(0.0), ValueError, "temperature: .*0.0"),
        (lambda: Annealed(0.5), ValueError, "temperature: .*0.5"),
        (lambda: Annealed("hot"), TypeError, "temperature: expected a number, got str"),
        (lambda: Sigmoid(-1.0), ValueError, "k: expected a number > 0"),
        (lambda: Amplifier(math.inf), ValueError, "sharpness: expected a number > 0"),
    ],
)
def test_a_bad_step_or_parameter_is_named(call, error, named):
    with pytest.raises(error, match=named):
        call()


@pytest.mark.parametrize(
    "step", [Annealed(0.05), Linear(0.25), Sigmoid(20.0), Amplifier(7.0), Identity(), Heaviside()], ids=str
)
def test_a_step_is_read_back_from_its_text(step):
    assert get(str(step)) == step
    assert get(step) is step
    assert get(step.name).name == step.name


def test_a_function_is_a_step():
    step = get(lambda p, tau: p)
    assert torch.equal(step(LINE, 0.5), LINE)


@pytest.mark.parametrize("delta", [0.1, 0.4])
def test_the_steepest_slope_is_one_of_the_lines_that_join_the_five_points(delta):
    points = [(0, 0), (0.15, delta), (0.3, 0.5), (0.45, 1 - delta), (1, 1)]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(points)]
    assert Linear(delta).lipschitz(0.3) == pytest.approx(max(slopes))
