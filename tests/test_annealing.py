"""Cooling: geometric, on plateaus or by steps, saved and restored."""

import copy

import pytest
import torch

from metricfit import MetricLoss, TemperatureAnnealer


def test_geometric_schedule_by_steps():
    loss = MetricLoss("f1")
    annealer = TemperatureAnnealer(loss, factor=0.8, mode="epoch", every=3)
    temperatures = []
    for _ in range(9):
        annealer.step()
        temperatures.append(loss.temperature.item())
    expected = [0.2, 0.2, 0.16, 0.16, 0.16, 0.128, 0.128, 0.128, 0.1024]
    assert temperatures == pytest.approx(expected)
    assert annealer.temperature == 0.2 * 0.8**3
    assert not annealer.finished


def test_plateau_cools_when_the_loss_has_not_decreased_for_the_patience():
    loss = MetricLoss("f1")
    annealer = TemperatureAnnealer(loss, factor=0.5, patience=2)
    cooled = [annealer.step(v) for v in (1.0, 0.9, 0.95, 0.9, 0.8, 0.81, 0.82)]
    assert cooled == [False, False, False, True, False, False, True]
    assert annealer.coolings == 2
    assert loss.temperature.item() == pytest.approx(0.05)


def test_finished_after_fruitless_coolings_in_a_row():
    annealer = TemperatureAnnealer(MetricLoss("f1"), factor=0.9, patience=1, max_fruitless=2)
    values = iter([0.5, 0.6, 0.7, 0.8, 0.4, 0.45, 0.5, 0.6, 0.55, 0.6])
    fruitless = []
    while not annealer.finished:
        annealer.step(next(values))
        annealer.step(next(values))
        fruitless.append(annealer.fruitless)
    assert fruitless == [0, 1, 0, 1, 2]  # the third temperature improved on all before
    assert annealer.coolings == 4


def test_stops_at_the_minimum():
    loss = MetricLoss("f1")
    annealer = TemperatureAnnealer(loss, factor=0.1, mode="epoch", minimum=0.01)
    for _ in range(5):
        annealer.step()
    assert loss.temperature.item() == pytest.approx(0.01)
    plateau = TemperatureAnnealer(MetricLoss("f1"), factor=0.1, patience=1, minimum=0.1, max_fruitless=50)
    for _ in range(10):
        plateau.step(1.0)
    assert plateau.finished


def test_nan_counts_as_no_decrease():
    annealer = TemperatureAnnealer(MetricLoss("f1"), patience=2)
    assert [annealer.step(float("nan")) for _ in range(2)] == [False, True]


def test_several_losses_share_the_temperature():
    losses = [MetricLoss("f1"), MetricLoss("mcc")]
    TemperatureAnnealer(losses, factor=0.5, mode="epoch").step()
    assert [loss.temperature.item() for loss in losses] == pytest.approx([0.1, 0.1])


def test_state_dict_goes_on_exactly():
    def run(annealer, values):
        return [(annealer.step(v), annealer.temperature, annealer.finished) for v in values]

    values = [1.0, 0.9, 0.95, 0.97, 0.8, 0.85, 0.9, 0.7, 0.7, 0.7, 0.7]
    whole = run(TemperatureAnnealer(MetricLoss("f1"), patience=2), values)
    first = TemperatureAnnealer(MetricLoss("f1"), patience=2)
    start = run(first, values[:5])
    state = copy.deepcopy(first.state_dict())
    loss = MetricLoss("f1")
    second = TemperatureAnnealer(loss, patience=2)
    second.load_state_dict(state)
    assert loss.temperature.item() == pytest.approx(first.temperature)
    assert start + run(second, values[5:]) == whole
    assert all(isinstance(v, (int, float, str)) for v in state.values())


BAD = [
    ({"factor": 1.0}, "factor"),
    ({"factor": 0.0}, "factor"),
    ({"mode": "linear"}, "mode"),
    ({"patience": 0}, "patience"),
    ({"every": 0}, "every"),
    ({"max_fruitless": 0}, "max_fruitless"),
    ({"min_delta": -1.0}, "min_delta"),
    ({"minimum": 0.0}, "minimum"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=f"^{message}: expected"):
        TemperatureAnnealer(MetricLoss("f1"), **options)


def test_bad_use():
    with pytest.raises(ValueError, match="loss: expected a MetricLoss with a temperature"):
        TemperatureAnnealer(MetricLoss("f1", step="sigmoid"))
    with pytest.raises(ValueError, match="loss: expected"):
        TemperatureAnnealer([])
    with pytest.raises(ValueError, match="validation_loss: mode='plateau' needs"):
        TemperatureAnnealer(MetricLoss("f1")).step()
    with pytest.raises(ValueError, match="validation_loss: has no effect"):
        TemperatureAnnealer(MetricLoss("f1"), mode="epoch").step(0.3)
    with pytest.raises(ValueError, match="state: expected"):
        TemperatureAnnealer(MetricLoss("f1")).load_state_dict({"coolings": 1})


def test_training_with_annealing_closes_the_gap_between_loss_and_metric():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(500, 4, generator=generator)
    y = (x[:, 0] * 2 + torch.randn(500, generator=generator) > 2.2).long()
    layer = torch.nn.Linear(4, 2)
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    loss = MetricLoss("f1[1]")
    annealer = TemperatureAnnealer(loss, factor=0.8, patience=3, min_delta=1e-3)
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.05)
    start = abs(loss.diagnose(layer(x), y).gap)
    for _ in range(400):
        optimiser.zero_grad()
        value = loss(layer(x), y)
        value.backward()
        optimiser.step()
        annealer.step(value.item())
        if annealer.finished:
            break
    assert annealer.coolings > 2
    assert abs(loss.diagnose(layer(x), y).gap) < min(0.05, start)
