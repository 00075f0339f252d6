"""What the annealing callbacks of all libraries share."""

from __future__ import annotations

import pytest
from torch import nn

from metricfit import MetricLoss
from metricfit.integrations import Schedule, library, losses_of


def test_an_option_without_effect_is_an_error_that_says_what_the_mode_takes() -> None:
    message = "^patience: has no effect with mode='epoch', which takes every, factor and minimum.$"
    with pytest.raises(ValueError, match=message):
        Schedule("epoch", None, "val_loss", True, {"patience": 3})
    with pytest.raises(ValueError, match=r"^monitor: has no effect with mode='epoch'"):
        Schedule("epoch", "loss", "val_loss", True, {})
    with pytest.raises(ValueError, match=r"^every: has no effect with mode='plateau', which takes factor, "):
        Schedule("plateau", None, "val_loss", True, {"every": 3})
    with pytest.raises(ValueError, match=r"^mode: expected 'plateau' or 'epoch', got 'batch'"):
        Schedule("batch", None, "val_loss", True, {})  # type: ignore[arg-type]


def test_it_cools_by_the_clock_or_on_a_plateau_and_says_when_to_stop() -> None:
    loss = MetricLoss("f1")
    clock = Schedule("epoch", None, "val_loss", True, {"factor": 0.5, "every": 2})
    clock.attach([loss])
    clock.reach(5)
    assert loss.temperature.item() == pytest.approx(0.2 * 0.5**2)
    assert not clock.observe({}, "not there")
    loss = MetricLoss("f1")
    plateau = Schedule("plateau", None, "val_loss", True, {"factor": 0.5, "patience": 1, "max_fruitless": 1})
    plateau.attach([loss])
    plateau.reach(5)
    assert [plateau.observe({"val_loss": value}, "") for value in (0.5, 0.5, 0.5, 0.5)] == [False, False, False, True]
    assert loss.temperature.item() == pytest.approx(0.1)
    with pytest.raises(ValueError, match=r"^monitor: not there, but a, b$"):
        plateau.observe({"b": 1, "a": 2}, "not there, but {}")


def test_every_loss_with_a_temperature_is_found() -> None:
    first, second = MetricLoss("mcc"), MetricLoss("f1")
    assert losses_of(nn.ModuleList([nn.Linear(2, 2), first, nn.Sequential(second)])) == [first, second]
    with pytest.raises(ValueError, match="loss: Linear holds no loss with a temperature"):
        losses_of(nn.Linear(2, 2))


def test_a_missing_library_says_what_to_install() -> None:
    with pytest.raises(ImportError, match=r"needs no_such.part; install it with: pip install 'metricfit\[no\]'"):
        library("no_such.part", "metricfit[no]")
