"""From rows to what is said of them: differences and ranks over tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from benchmarks.suite.fits import METRICS
from benchmarks.suite.methods import CANDIDATES, METHODS, PICK, PORTFOLIO
from benchmarks.suite.tables import names

__all__ = ["Difference", "Ranks", "behind", "coverage", "difference", "main_methods", "ranks", "values", "with_pick"]

UNIT = ["table", "split", "metric"]


def with_pick(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows, in points and in the order of the tables, and one more per unit: the careful user's pick.

    It is the candidate with the best value out of fold, where all candidates are there; its processor time is that of
    all of them.
    """
    rows = rows.assign(value=100 * rows["value"], arg_max=100 * rows["arg_max"])
    some = rows[rows["method"].isin(CANDIDATES)]
    complete = some[some.groupby(UNIT)["method"].transform("nunique") == len(CANDIDATES)]
    picked = complete.loc[complete.groupby(UNIT)["held_out"].idxmax()].set_index(UNIT)
    spent = complete.groupby(UNIT)["cpu_seconds"].sum()
    picked = picked.assign(method=PICK, picked=picked["method"], cpu_seconds=spent).reset_index()
    order = [*names(), *sorted(set(rows["table"]) - set(names()))]
    both = pd.concat([rows, picked], ignore_index=True)
    return both.assign(table=pd.Categorical(both["table"], order, ordered=True))


def values(rows: pd.DataFrame, metric: str, column: str = "value") -> pd.DataFrame:
    """One row per table and split, one column per method."""
    wide = rows[rows["metric"] == metric].pivot_table(column, ["table", "split"], "method", observed=True)
    return wide.reindex(columns=[name for name in (*METHODS, PICK) if name in wide.columns])


def coverage(rows: pd.DataFrame) -> pd.DataFrame:
    """Splits that are complete, by table and method."""
    table = values(rows, METRICS[0]).notna().groupby("table", observed=True).sum()
    return table.loc[[name for name in table.index if table.loc[name].any()]]


def main_methods(rows: pd.DataFrame) -> list[str]:
    """The methods that have every table of the portfolio; those that have only some are compared separately."""
    counts = coverage(rows)
    counts = counts[counts[PORTFOLIO] > 0]
    return [name for name in counts if (counts[name] > 0).all()]


@dataclass(frozen=True)
class Difference:
    """A method less another one, on the splits that both have, in points.

    Attributes:
        by_table: The mean over splits, by table.
        errors: Its standard error over splits, by table; NaN for one split.
    """

    by_table: pd.Series
    errors: pd.Series

    @property
    def mean(self) -> float:
        """The mean over tables."""
        return float(self.by_table.mean())

    @property
    def error(self) -> float:
        """The standard error over tables."""
        return float(self.by_table.sem())

    def __str__(self) -> str:
        return f"{self.mean:+.1f} ± {self.error:.1f}" if len(self.by_table) > 1 else f"{self.mean:+.1f}"


def difference(rows: pd.DataFrame, metric: str | None, method: str, other: str) -> Difference | None:
    """Paired, for a metric or (None) the mean of all three; None where the two share no split."""
    parts = []
    for one in (metric,) if metric else METRICS:
        wide = values(rows, one)
        if method not in wide or other not in wide:
            return None
        parts.append((wide[method] - wide[other]).dropna())
    both = (sum(parts) / len(parts)).dropna().groupby("table", observed=True)
    found = Difference(both.mean(), both.sem())
    return found if len(found.by_table) else None


def behind(found: Difference, points: float = 3.0) -> dict[str, float]:
    """The tables on which it is behind by more than so many points, the worst first."""
    return found.by_table[found.by_table < -points].sort_values().to_dict()


@dataclass(frozen=True)
class Ranks:
    """Ranks of methods over the tables that all of them have.

    Attributes:
        each: One row per metric and table, one column per method; 1 is best, ties share their mean.
        splits: How many splits all methods share, by table.
    """

    each: pd.DataFrame
    splits: pd.Series

    def mean(self) -> pd.DataFrame:
        """Mean ranks: one row per method, the best over all metrics first; columns for the metrics and ``all``."""
        table = self.each.groupby("metric").mean().T.reindex(columns=list(METRICS))
        table["all"] = self.each.mean()
        return table.sort_values("all")

    def error(self) -> pd.DataFrame:
        """Standard errors over tables of the mean ranks."""
        table = self.each.groupby("metric").sem().T.reindex(columns=list(METRICS))
        table["all"] = self.each.groupby("table").mean().sem()
        return table


def ranks(rows: pd.DataFrame, methods: Sequence[str]) -> Ranks:
    """Rank the methods by their mean over the splits that all of them have, table by table."""
    found, splits = {}, {}
    for metric in METRICS:
        wide = values(rows, metric).reindex(columns=list(methods)).dropna()
        for table, part in wide.groupby("table", observed=True):
            found[metric, table] = part.mean().round(4).rank(ascending=False)
            splits[table] = len(part)
    each = pd.DataFrame(found).T.rename_axis(["metric", "table"])
    return Ranks(each, pd.Series(splits, dtype=int))
