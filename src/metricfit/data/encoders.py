"""One column: what it holds, its features for networks and for trees, and the one description that is saved of it."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri
from sklearn.utils import gen_batches

from metricfit.data.columns import BadValueError, ColumnFormat, Keyed, read_column

NumericMode = Literal["both", "standard", "quantile"]

STANDARD_LIMIT = 10.0
SCORE_LIMIT = 3.0
_ROWS = 2**15
_KNOTS = 1000
_ROWS_PER_LEVEL = 10
_PRIOR_ROWS = 10.0
_LEAST_REPEATED = 0.25
_TARGET_LIMIT = 10.0
_TREE_LEVELS = 253  # with one for all others 254, the most that histograms of 255 bins hold beside gaps
_EPOCH = np.datetime64("2000-01-01", "us")


def normal_score_curve(sample: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Knots of the map from values to normal scores, Φ⁻¹(rank in [0, 1]); ties share the mean of their ranks."""
    quantiles = np.sort(sample)
    if len(sample) > _KNOTS:
        places = np.linspace(0.0, len(sample) - 1.0, _KNOTS)
        # Rounding must not break the order; halves have finite differences.
        quantiles = 2 * np.maximum.accumulate(np.interp(places, np.arange(len(sample)), quantiles / 2))
    first = np.flatnonzero(np.append(True, quantiles[1:] > quantiles[:-1]))
    mean_rank = (np.append(first[1:], len(quantiles)) - 1 + first) / 2 / max(1, len(quantiles) - 1)
    return quantiles[first], np.clip(ndtri(mean_rank), -SCORE_LIMIT, SCORE_LIMIT)


@dataclass
class NumberEncoder:
    """Features of one column of numbers."""

    mode: NumericMode = "both"
    centre: float = 0.0
    scale: float = 0.0  # standard deviation; 0 for a constant column, which has no continuous feature
    fill: float = 0.0  # median, in place of gaps
    # The map to normal scores; empty where it would only repeat the standardised values.
    knots: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    scores: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    levels: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))  # whole numbers with an indicator each
    indicator: bool = False  # of gaps

    @classmethod
    def fit(
        cls, values: NDArray[Any], rows: NDArray[np.intp] | None, *, mode: NumericMode, integer_levels: int
    ) -> Self:
        """Learn the features of finite numbers and NaN; the quantiles from some of the rows, if they are given."""
        gap = np.isnan(values)
        present = values[~gap].astype(np.float64)
        encoder = cls(mode, indicator=len(present) < len(values))
        if not len(present):
            return encoder
        low, high = float(present.min()), float(present.max())
        encoder.centre = encoder.fill = low
        if low == high:
            return encoder
        # Relative to the largest magnitude, sums cannot overflow.
        unit = max(abs(low), abs(high))
        encoder.centre, encoder.scale = float((present / unit).mean()) * unit, float((present / unit).std()) * unit
        sample = present if rows is None else values[rows][~gap[rows]].astype(np.float64)
        if rows is not None and len(sample) < _KNOTS:
            sample = present[: len(rows)]  # nearly all gaps: the few values there are must all count
        encoder.fill = float(np.median(sample))
        few = pd.unique(present[:1000])  # settles nearly every column
        few = np.sort(pd.unique(present) if len(few) <= max(2, integer_levels) else few)
        if len(few) > 2:
            if mode != "standard":
                encoder.knots, encoder.scores = normal_score_curve(sample)
            if len(few) <= min(integer_levels, len(values) / _ROWS_PER_LEVEL) and (few == np.round(few)).all():
                encoder.levels = few
        return encoder

    @property
    def standardised(self) -> bool:
        """Whether the standardised number is a feature."""
        return self.scale > 0.0 and not (self.mode == "quantile" and len(self.knots))

    @property
    def suffixes(self) -> list[str]:
        """What is added to the name of the column, one entry per feature."""
        names = [""] * self.standardised + ["__quantile"] * bool(len(self.knots))
        return names + [f"={level:.17g}" for level in self.levels]

    def features(self, values: NDArray[Any], folds: Folds | None = None) -> list[NDArray[Any]]:
        """The features for networks."""
        x = np.array(values, dtype=np.float64)
        gap = np.isnan(x)
        x[gap] = self.fill
        parts: list[NDArray[Any]] = []
        if self.standardised:
            # Divided first: a difference of two huge values may be infinite.
            parts.append(np.clip(x / self.scale - self.centre / self.scale, -STANDARD_LIMIT, STANDARD_LIMIT))
        if len(self.knots):
            parts.append(np.interp(x, self.knots, self.scores))
        return parts + [(x == level) & ~gap for level in self.levels]

    def tree(self, values: NDArray[Any]) -> list[NDArray[Any]]:
        """What trees split: the numbers as they are, NaN for gaps."""
        limit = float(np.finfo(np.float32).max)
        return [np.clip(values.astype(np.float64), -limit, limit)]


def calendar_parts(dates: NDArray[np.datetime64]) -> dict[str, NDArray[np.float64]]:
    """Numbers that describe dates, NaN where the date is missing; Monday is day 0 of the week."""
    index = pd.DatetimeIndex(dates)
    parts = {"days": (dates - _EPOCH) / np.timedelta64(1, "D"), "year": index.year, "month": index.month}
    parts |= {"day": index.day, "weekday": index.day_of_week, "hour": index.hour}
    return {name: np.asarray(part, dtype=np.float64) for name, part in parts.items()}


@dataclass
class DateEncoder:
    """Features of one column of dates: a :class:`NumberEncoder` for each calendar part that varies."""

    parts: dict[str, NumberEncoder] = field(default_factory=dict)
    indicator: bool = False

    @classmethod
    def fit(cls, dates: NDArray[np.datetime64], rows: NDArray[np.intp] | None, **details: Any) -> Self:
        """Learn the features of a column of dates; arguments as for :meth:`NumberEncoder.fit`."""
        encoder = cls(indicator=bool(np.isnat(dates).any()))
        for name, values in calendar_parts(dates).items():
            part = NumberEncoder.fit(values, rows, **details)
            part.indicator = False  # one indicator for the date serves all its parts
            if part.suffixes:
                encoder.parts[name] = part
        return encoder

    @property
    def suffixes(self) -> list[str]:
        """What is added to the name of the column, one entry per feature."""
        return [f"__{name}{suffix}" for name, part in self.parts.items() for suffix in part.suffixes]

    def features(self, dates: NDArray[Any], folds: Folds | None = None) -> list[NDArray[Any]]:
        """The features for networks."""
        values = calendar_parts(dates)
        return [feature for name, part in self.parts.items() for feature in part.features(values[name])]

    def tree(self, dates: NDArray[Any]) -> list[NDArray[Any]]:
        """What trees split: the calendar parts that vary, NaN for gaps."""
        values = calendar_parts(dates)
        return [values[name] for name in self.parts or ["days"]]


@dataclass(frozen=True)
class Folds:
    """The target of the training rows and a partition of them, for cross-fitted target rates."""

    indicator: NDArray[np.bool_]  # (n, classes)
    names: list[str]  # of the classes
    fold: NDArray[np.int8]  # part of each row, (n,)

    @property
    def prior(self) -> NDArray[np.float64]:
        """Shares of the classes; half a row more of each kind keeps the log-odds finite."""
        return np.asarray((self.indicator.sum(axis=0) + 0.5) / (len(self.indicator) + 1.0))


def target_scores(
    level: NDArray[np.intp], size: int, indicator: NDArray[np.bool_], prior: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Log-odds of the classes in each level, shrunk to the prior by ten more rows, minus the prior's; unknown: 0."""
    counts = np.bincount(level[level >= 0], minlength=size)
    hits = np.stack([np.bincount(level[column & (level >= 0)], minlength=size) for column in indicator.T], axis=1)
    rate = (hits + _PRIOR_ROWS * prior) / (counts[:, None] + _PRIOR_ROWS)
    scores = np.log(rate / (1 - rate)) - np.log(prior / (1 - prior))
    return np.vstack([scores, np.zeros(scores.shape[1])])


@dataclass
class CategoryEncoder:
    """Features of one column of categories; those that are not given are empty."""

    levels: NDArray[Any] = field(default_factory=lambda: np.empty(0, object))  # the most frequent first
    shown: int = 0  # levels, from the first, with an indicator each
    rare: bool = False  # whether one indicator stands for all other levels, those never seen included
    others: bool = False  # whether training had levels that are not kept
    indicator: bool = False  # of gaps
    # Standardised log-frequency of each level; target scores (levels, classes) and what they were divided by. The last
    # entry is for unknown levels.
    log_count: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, dtype=np.float32))
    target: NDArray[np.float32] = field(default_factory=lambda: np.empty((1, 0), dtype=np.float32))
    target_scale: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    target_names: list[str] = field(default_factory=list)

    @classmethod
    def fit(cls, keyed: Keyed, *, max_one_hot: int, min_frequency: int, frequency: bool, folds: Folds | None) -> Self:
        """Learn the features; ``frequency`` adds the log-frequency of the level, ``folds`` the target rates."""
        codes, keys = keyed
        encoder = cls(indicator=bool((codes < 0).any()), others=True)
        counts = np.bincount(codes[codes >= 0], minlength=len(keys))
        # A level of a declared category type need not occur.
        order = np.lexsort((keys.astype(str), -counts))[: int((counts > 0).sum())]
        if len(order) < 2:
            return encoder
        encoder.levels, counts = keys[order], counts[order]
        encoder.shown = int((counts[:max_one_hot] >= min_frequency).sum())
        encoder.rare = encoder.shown < len(order)
        if encoder.shown == 0 or counts[counts > 1].sum() < _LEAST_REPEATED * counts.sum():
            # Identifiers or free text: what is seen once says nothing about new rows.
            return cls(indicator=encoder.indicator, others=True)
        # A level seen once says no more than an unknown one.
        known = max(encoder.shown, int((counts > 1).sum())) if encoder.rare else len(order)
        if frequency:
            logs = np.log(counts)
            mean = np.average(logs, weights=counts)
            deviation = float(np.sqrt(np.average((logs - mean) ** 2, weights=counts)))
            if deviation > 1e-6:
                encoder.log_count = ((np.append(logs[:known], 0.0) - mean) / deviation).astype(np.float32)
        if folds is not None:
            scores = target_scores(encoder.find((codes, keys)), len(order), folds.indicator, folds.prior)
            deviation_of = np.sqrt(np.average(scores[:-1] ** 2, axis=0, weights=counts))
            encoder.target_scale = np.where(deviation_of > 1e-6, deviation_of, 1.0)
            encoder.target, encoder.target_names = encoder._scaled(scores[[*range(known), -1]]), folds.names
        encoder.levels = encoder.levels[: known if frequency or folds is not None else encoder.shown]
        encoder.others = len(encoder.levels) < len(order)
        return encoder

    def _scaled(self, scores: NDArray[np.float64]) -> NDArray[np.float32]:
        return np.clip(scores / self.target_scale, -_TARGET_LIMIT, _TARGET_LIMIT).astype(np.float32)

    @property
    def suffixes(self) -> list[str]:
        """What is added to the name of the column, one entry per feature."""
        names = [f"={level}" for level in self.levels[self._first : self.shown]]
        names += ["__rare"] * self.rare + ["__frequency"] * bool(len(self.log_count))
        return names + [f"__target={name}" for name in self.target_names]

    @property
    def _first(self) -> int:
        """The first level with an indicator: of two levels one says all, the more frequent is left out."""
        return int(self.shown == 2 and not self.rare)

    def find(self, keyed: Keyed) -> NDArray[np.intp]:
        """The level of each row; -1 for an unknown one, -2 for a gap."""
        codes, keys = keyed
        known = pd.Index(self.levels, dtype=object).get_indexer(pd.Index(keys, dtype=object))
        return np.append(known, -2)[codes]

    def features(self, keyed: Keyed, folds: Folds | None = None) -> list[NDArray[Any]]:
        """The features for networks; ``folds``, given for the training rows, cross-fit the target rates."""
        level = self.find(keyed)
        known = np.maximum(level, -1)
        parts: list[NDArray[Any]] = [level == place for place in range(self._first, self.shown)]
        if self.rare:
            parts.append((level >= self.shown) | (level == -1))
        if len(self.log_count):
            parts.append(np.where(level == -2, np.float32(0.0), self.log_count[known]))
        if self.target_names:
            target = self.target[known]
            if folds is not None:
                for here in (folds.fold == part for part in np.unique(folds.fold)):
                    scores = target_scores(level[~here], len(self.levels), folds.indicator[~here], folds.prior)
                    target[here] = self._scaled(scores)[known[here]]
            parts += list(target.T)
        return parts

    def tree(self, keyed: Keyed) -> list[NDArray[Any]]:
        """What trees split: the place of the level, one more for all that are not kept, NaN for gaps."""
        level, most = self.find(keyed), min(len(self.levels), _TREE_LEVELS)
        other = most if self.others or most < len(self.levels) else np.nan  # without others, an unknown one is a gap
        return [np.select([level == -2, (level >= 0) & (level < most)], [np.nan, level], other)]


@dataclass
class FittedColumn:
    """A column of the training table: what it holds and what became of it."""

    name: str  # x0, x1, … in a table without names
    format: ColumnFormat  # what it holds and how its text is read
    gaps: int = 0  # missing values in the training rows
    levels: int | None = None  # distinct values of a category there
    dropped: str = ""  # why nothing (or only the indicator of gaps) was made from it
    encoder: Any = field(default_factory=NumberEncoder)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features made from it; an indicator of gaps is the last."""
        suffixes = [*self.encoder.suffixes, *["__missing"] * self.encoder.indicator]
        return tuple(f"{self.name}{suffix}" for suffix in suffixes)

    @property
    def values(self) -> str:
        """What it held in training, in a few words, as far as its features say."""
        if self.levels is not None:
            often = ", ".join(str(level)[:40] for level in self.encoder.levels[:3])
            return f"{self.levels:,} distinct" + (f"; most often {often}" if often else "")
        date = isinstance(self.encoder, DateEncoder)
        number = self.encoder.parts.get("days", NumberEncoder()) if date else self.encoder
        if not len(number.knots):
            return f"mean {number.centre:.4g}" if number.scale and not date else ""
        low, high = number.knots[[0, -1]]
        if date:
            return " to ".join(f"{_EPOCH + np.timedelta64(int(day), 'D')}"[:10] for day in (low, high))
        return f"{low:.4g} to {high:.4g}, median {number.fill:.4g}"

    def write(self, values: Any, out: NDArray[np.float32], folds: Folds | None = None) -> None:
        """Write the features of what :meth:`read` returned into the columns of ``out``."""
        whole = isinstance(values, tuple)  # numbers and dates come in parts, so that temporary arrays stay small
        for rows in [slice(None)] if whole else gen_batches(len(values), _ROWS):
            for place, part in enumerate(self.encoder.features(values if whole else values[rows], folds)):
                out[rows, place] = part
        if self.encoder.indicator:
            out[:, -1] = gaps_of(values)

    def read(self, values: Any) -> Any:
        """What its encoder takes: numbers, dates, or :data:`Keyed`; unreadable text is a gap where text was read."""
        name, date = f"X: column {self.name!r}", self.format.kind == "date"
        try:
            found = read_column(values, self.format, strict=not self.format.text and not date)
        except BadValueError as error:
            held = f"held {'dates' if date else 'numbers'} in fit, now holds {error.value!r}"
            raise ValueError(f"{name} {held}; convert it, or leave the value missing.") from None
        except TypeError as error:
            raise TypeError(f"{name} holds values that are no categories: {error}.") from error
        if not isinstance(found, tuple) and found.dtype.kind == "f" and np.isinf(found).any():
            raise ValueError(f"{name} contains infinity; replace it by a number, or by NaN if the value is unknown.")
        return found


def gaps_of(values: Any) -> Any:
    """Which rows of what was read are gaps."""
    return values[0] < 0 if isinstance(values, tuple) else pd.isna(values)


_TYPES = {kind.__name__: kind for kind in (FittedColumn, ColumnFormat, NumberEncoder, DateEncoder, CategoryEncoder)}


def pack(columns: list[FittedColumn]) -> dict[str, Any]:
    """Columns as JSON, and their numbers as one array per type, in which equal arrays are kept once."""
    arrays: dict[str, dict[bytes, int]] = {}
    sizes: Counter[str] = Counter()

    def plain(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return {"type": type(value).__name__, **vars(value)}
        if value.dtype == object:
            return {"text": value.tolist()}
        dtype, content = value.dtype.str, value.tobytes()
        start = arrays.setdefault(dtype, {}).setdefault(content, sizes[dtype])
        sizes[dtype] += value.size if start == sizes[dtype] else 0
        return {"dtype": dtype, "shape": value.shape, "start": start}

    text = json.dumps(columns, default=plain)
    return {"columns": text, "numbers": {dtype: np.frombuffer(b"".join(kept), dtype) for dtype, kept in arrays.items()}}


def unpack(packed: dict[str, Any]) -> list[FittedColumn]:
    """Columns from :func:`pack`."""

    def built(value: dict[str, Any]) -> Any:
        if "type" in value:
            return _TYPES[value.pop("type")](**value)
        if "text" in value:
            return np.array(value["text"], dtype=object)
        if "dtype" in value:
            start, shape = value["start"], value["shape"]
            return packed["numbers"][value["dtype"]][start : start + math.prod(shape)].reshape(shape)
        return value

    return list(json.loads(packed["columns"], object_hook=built))
