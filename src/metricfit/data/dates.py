"""Dates as features: elapsed days and the parts of the calendar that vary."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.data.numbers import NumberEncoder, NumericMode

__all__ = ["DateEncoder", "calendar_parts"]

_EPOCH = np.datetime64("2000-01-01", "us")


def calendar_parts(dates: NDArray[np.datetime64]) -> dict[str, NDArray[np.float64]]:
    """Numbers that describe dates, NaN where the date is missing; Monday is day 0 of the week.

    >>> parts = calendar_parts(np.array(["2024-02-29T12:00"], dtype="datetime64[us]"))
    >>> {name: value.item() for name, value in parts.items()}
    {'days': 8825.5, 'year': 2024.0, 'month': 2.0, 'day': 29.0, 'weekday': 3.0, 'hour': 12.0}
    """
    index = pd.DatetimeIndex(dates)
    days = (dates - _EPOCH) / np.timedelta64(1, "D")
    parts = {
        "year": index.year,
        "month": index.month,
        "day": index.day,
        "weekday": index.day_of_week,
        "hour": index.hour,
    }
    return {"days": days, **{name: np.asarray(part, dtype=np.float64) for name, part in parts.items()}}


@dataclass
class DateEncoder:
    """Features of one column of dates: a :class:`NumberEncoder` for each calendar part that varies."""

    parts: dict[str, NumberEncoder] = field(default_factory=dict)
    indicator: bool = False

    @classmethod
    def fit(
        cls,
        dates: NDArray[np.datetime64],
        sample_rows: NDArray[np.intp] | None,
        *,
        name: str,
        mode: NumericMode,
        integer_levels: int,
    ) -> Self:
        """Learn the features of a column of dates; arguments as for :meth:`NumberEncoder.fit`."""
        encoder = cls(indicator=bool(np.isnat(dates).any()))
        for part_name, values in calendar_parts(dates).items():
            part = NumberEncoder.fit(values, sample_rows, name=name, mode=mode, integer_levels=integer_levels)
            part.indicator = False  # one indicator for the date serves all its parts
            if part.suffixes:
                encoder.parts[part_name] = part
        return encoder

    @property
    def suffixes(self) -> list[str]:
        """What is added to the name of the column, one entry a feature."""
        names = [f"__{name}{suffix}" for name, part in self.parts.items() for suffix in part.suffixes]
        return names + ["__missing"] * self.indicator

    def write(self, dates: NDArray[Any], out: NDArray[np.float32], name: str) -> None:
        """Write the features of ``dates`` into the columns of ``out``."""
        values = calendar_parts(dates)
        place = 0
        for key, part in self.parts.items():
            width = len(part.suffixes)
            part.write(values[key], out[:, place : place + width], name)
            place += width
        if self.indicator:
            out[:, place] = np.isnat(dates)
