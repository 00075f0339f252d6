"""The interval of a share in closed form: what the interval of a precision comes to, without drawing anything."""

from __future__ import annotations

from scipy import stats

from metricfit.assess.intervals import Estimate

__all__ = ["share"]


def share(positives: float, rows: float) -> Estimate:
    """A share of rows with its 95 % interval: Jeffreys', half a row of each kind as the prior.

    Args:
        positives: How many rows count; of weighted rows the effective number.
        rows: How many rows there are.

    >>> found = share(3, 10)
    >>> round(found.value, 2), round(found.low, 3), round(found.high, 3)
    (0.3, 0.093, 0.606)
    """
    value = positives / rows
    low, high = stats.beta.ppf([0.025, 0.975], positives + 0.5, rows - positives + 0.5)
    return Estimate(value, min(float(low), value), max(float(high), value))
