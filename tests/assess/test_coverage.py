"""The 95 % interval holds a known truth 93 to 97 times out of 100; a small run of benchmarks/decisions/coverage.py."""

import pytest

from benchmarks.decisions.coverage import coverage, cross_fitted, fixed, paired
from metricfit.assess import intervals


@pytest.mark.parametrize("rows", [200, 1000])
@pytest.mark.parametrize("goal", ["f1", "mcc", "precision"])
def test_the_interval_covers(goal, rows):
    found = coverage(fixed, goal, 0.1, 1.5, rows, 1000)
    assert found["coverage"].between(0.93, 0.97).all(), found
    assert (found[["below", "above"]] < 0.045).all(axis=None), "both ends miss about equally often"


@pytest.mark.parametrize("kind", [cross_fitted, paired])
def test_cross_fitted_values_and_paired_differences_are_covered(kind):
    assert coverage(kind, "f1", 0.3, 2.5, 200, 400)["coverage"].between(0.93, 0.97).all()


def test_the_band_finds_a_wrong_interval(monkeypatch):
    monkeypatch.setattr(intervals, "TAILS", (0.05, 0.95))
    assert not coverage(fixed, "f1", 0.1, 1.5, 1000, 400)["coverage"].between(0.93, 0.97).any()
