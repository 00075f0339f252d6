"""The leaderboard of a comparison: its intervals allow for the overlap of the splits."""

import math

import numpy as np
import pytest
from scipy import stats

from metricfit.assess import leaderboard


def test_intervals_of_the_leaderboard_are_the_corrected_ones():
    a, b = np.array([0.5, 0.6, 0.55, 0.58]), np.array([0.52, 0.57, 0.5, 0.6])
    rows = [
        {"split": i, "method": m, "value": v[i], "seconds": 1.0, "error": ""}
        for i in range(4)
        for m, v in (("a", a), ("b", b))
    ]
    board = {row["method"]: row for row in leaderboard(rows, ["a", "b"], True)}
    half = stats.t.ppf(0.975, 3) * math.sqrt((1 / 4 + 0.25) * (b - a).var(ddof=1))
    assert board["b"]["difference_high"] == pytest.approx((b - a).mean() + half)
    assert board["a"]["difference"] == 0
