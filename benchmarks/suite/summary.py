"""From rows to means, paired differences and ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from benchmarks.suite.datasets import DATASETS
from benchmarks.suite.methods import METHODS, METRICS

__all__ = [
    "Comparison", "coverage", "differences", "finished_sets", "main_methods", "one_configuration", "ranks", "scores",
]  # fmt: skip

FEWEST_SPLITS = 1
ENOUGH_SPLITS = 10
"""What the suite aims at; less is called preliminary."""

PLANNED_SPLITS = {"creditcard": 3}
"""Fewer where a split takes half an hour."""

REFERENCE = "default"


def one_configuration(rows: pd.DataFrame) -> pd.DataFrame:
    """Of each data set the configuration with the most rows, so that none counts twice; sets in the suite's order."""
    sizes = rows.groupby(["dataset", "configuration"]).size()
    chosen = set(sizes.groupby("dataset").idxmax())
    kept = rows[[pair in chosen for pair in zip(rows["dataset"], rows["configuration"], strict=True)]]
    known = [name for name in DATASETS if name in set(kept["dataset"])]
    order = [*known, *sorted(set(kept["dataset"]) - set(known))]
    return kept.assign(dataset=pd.Categorical(kept["dataset"], order, ordered=True))


def scores(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Values, a row for each data set and split, a column for each method (in the order of the table of methods)."""
    wide = rows[rows["metric"] == metric].pivot_table("value", ["dataset", "split"], "method", observed=True)
    return wide.reindex(columns=[name for name in METHODS if name in wide.columns])


def coverage(rows: pd.DataFrame) -> pd.DataFrame:
    """Splits that have all metrics, by data set and method."""
    complete = rows.groupby(["dataset", "split", "method"], observed=True)["metric"].nunique() == len(METRICS)
    table = complete[complete].groupby(["dataset", "method"], observed=True).size().unstack(fill_value=0)
    table = table.reindex(rows["dataset"].cat.categories, fill_value=0)
    return table.reindex(columns=[name for name in METHODS if name in table.columns])


def main_methods(rows: pd.DataFrame) -> list[str]:
    """The methods with at least half of the reference's splits on all of its sets; others would take sets out."""
    counts = coverage(rows)
    wanted = counts[REFERENCE] if REFERENCE in counts else counts.max(axis=1)
    sets = counts[wanted > 0].ge((wanted[wanted > 0] / 2).clip(lower=FEWEST_SPLITS), axis=0).sum()
    return [name for name in sets.index if sets[name] == sets.max()]


def finished_sets(rows: pd.DataFrame) -> list[str]:
    """The sets on which every method has all of its splits."""
    fewest = coverage(rows).min(axis=1)
    return [name for name, splits in fewest.items() if splits >= PLANNED_SPLITS.get(str(name), ENOUGH_SPLITS)]


@dataclass(frozen=True)
class Comparison:
    """Ranks of methods over the data sets that all of them completed.

    Attributes:
        ranks: A row for each data set and metric, a column for each method; 1 is best, ties share their mean.
        splits: How many splits all methods have, by data set.
    """

    ranks: pd.DataFrame
    splits: pd.Series

    @property
    def sets(self) -> list[str]:
        return list(self.splits.index)

    def average(self) -> pd.DataFrame:
        """Average ranks: a row for each method, columns for the metrics and overall, best first."""
        table = self.ranks.groupby("metric", observed=True).mean().T.reindex(columns=list(METRICS))
        table["overall"] = self.ranks.mean()
        return table.sort_values("overall")

    def level_with(self, method: str) -> list[str]:
        """Methods whose rank differs from this one's by less than two standard errors of the paired difference."""
        by_set = self.ranks.groupby("dataset", observed=True).mean()
        gaps = by_set.drop(columns=method).sub(by_set[method], axis=0)
        return [name for name in gaps if not abs(gaps[name].mean()) > 2 * gaps[name].sem()]

    def error(self) -> pd.DataFrame:
        """Standard errors over data sets of the average ranks; overall, of the mean over the metrics."""
        by_metric = self.ranks.groupby("metric", observed=True).sem().T.reindex(columns=list(METRICS))
        by_metric["overall"] = self.ranks.groupby("dataset", observed=True).mean().sem()
        return by_metric


def ranks(rows: pd.DataFrame, methods: Sequence[str]) -> Comparison:
    """Rank the methods by their mean over the splits that all of them have, set by set."""
    found, splits = {}, {}
    common = [_common(scores(rows, metric), methods) for metric in METRICS]
    for dataset in rows["dataset"].cat.categories:
        parts = [wide.loc[dataset] for wide in common if dataset in wide.index.get_level_values(0)]
        if len(parts) < len(METRICS) or min(map(len, parts)) < FEWEST_SPLITS:
            continue
        splits[dataset] = min(map(len, parts))
        for metric, values in zip(METRICS, parts, strict=True):
            found[dataset, metric] = values.mean().round(6).rank(ascending=False)
    index = pd.MultiIndex.from_tuples(found, names=["dataset", "metric"]) if found else None
    return Comparison(
        pd.DataFrame(list(found.values()), index=index, columns=list(methods)), pd.Series(splits, dtype=int)
    )


def _common(wide: pd.DataFrame, methods: Sequence[str]) -> pd.DataFrame:
    return wide.reindex(columns=list(methods)).dropna()


def differences(rows: pd.DataFrame, metric: str, method: str, reference: str = REFERENCE) -> pd.DataFrame:
    """Paired differences reference − method by data set: mean, standard error over splits, number of splits."""
    wide = _common(scores(rows, metric), [reference, method])
    by_set = (wide[reference] - wide[method]).groupby("dataset", observed=True)
    table = pd.DataFrame({"mean": by_set.mean(), "error": by_set.sem(), "splits": by_set.size()})
    return table[table["splits"] >= FEWEST_SPLITS]


def verdicts(table: pd.DataFrame) -> tuple[int, int, int]:
    """Sets on which the reference is better, equal (to a thousandth of a point), worse."""
    better, worse = int((table["mean"] > 1e-5).sum()), int((table["mean"] < -1e-5).sum())
    return better, len(table) - better - worse, worse
