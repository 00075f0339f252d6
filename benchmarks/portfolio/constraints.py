"""Precision at a recall of 0.9, above all with few positives: the portfolio beside single models.

    export METRICFIT_DATA=../shared/data
    python -m benchmarks.portfolio.constraints --splits 0 1 2     # fits; what is in the cache is not fitted again
    python -m benchmarks.portfolio.constraints --suite            # adds what benchmarks.suite has kept, fits nothing

Every split of ``TABLES`` (70 % to fit, at most 3,000 rows) is fitted once, by ``MetricClassifier`` for the metric
below; what each of its models says about held-out and about test rows is kept in ``cache/constraints``. The tables of
the suite come with the predictions of the suite, whose network is the one trained for F1. From these scores alone,
``constraints.csv`` gets one row per table, split and way to decide: the portfolio as it ships, every model alone with
the package's rule, and with ``best_threshold``. Weights, rules and the pick of a single model see held-out scores only.
``at_equal_recall`` is the precision that a way's test scores allow at the recall that the portfolio's decisions reach
on the same test rows: it compares scores at one point, whatever the cut-offs. ``constraints.md`` is made from it.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import binom
from sklearn.metrics import precision_recall_curve, precision_score, recall_score
from sklearn.model_selection import train_test_split

from benchmarks.data import load
from metricfit import MetricClassifier, metrics
from metricfit.decisions import InfeasibleError, best_threshold
from metricfit.ensemble import HeldOut, choose_ensemble, mean_of

HERE = Path(__file__).parent
RESULTS, REPORT, CACHE = HERE / "constraints.csv", HERE / "constraints.md", HERE / "cache" / "constraints"
BOUND = 0.9
METRIC = f"precision[1] subject to recall[1] >= {BOUND}"
TABLES: dict[str, tuple[str, Any]] = {
    "thyroid: hyper": ("ann_thyroid", 1),
    "thyroid: subnormal": ("ann_thyroid", 2),
    "mammography-3000": ("mammography", None),
    "dermatology-6": ("keel/dermatology-6", None),
    "abalone9-18": ("keel/abalone9-18", None),
    "car-good": ("keel/car-good", None),
    "winequality-red-4": ("keel/winequality-red-4", None),
}
"""The data set and its positive class, else the rarest one: 2 to 6 % positives; the first four are medical."""
MEMBERS = ("network", "network_ce", "boosting", "forest", "extra_trees")
RIVALS = ("lightgbm", "catboost", "xgboost", "logistic")
"""Of the suite, beside the members."""
MOST_ROWS = 3000

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Unit:
    """One split: truth of held-out and test rows, and what each model says about them (n, 2)."""

    table: str
    split: int
    y: NDArray[Any]
    fold: NDArray[np.intp]
    y_test: NDArray[Any]
    held: dict[str, Array]
    test: dict[str, Array]


class Models(MetricClassifier):
    """A ``MetricClassifier`` that keeps what its models said instead of choosing weights and a rule."""

    def _keep(self, folds: Any, begun: Any, fitted: Any, asked: Any) -> None:
        self.n_network_inputs_, self.folds_, self.fitted_ = folds.table.dense.shape[1], folds, fitted


def halves(table: str, split: int) -> Any:
    """Features to fit and to test, then their truth."""
    name, positive = TABLES[table]
    data = load(name)
    y = np.asarray(data.y)
    values, counts = np.unique(y, return_counts=True)
    truth = (y == (values[counts.argmin()] if positive is None else positive)).astype(int)
    X, X_test, y, y_test = train_test_split(data.X, truth, test_size=0.3, stratify=truth, random_state=split)
    if len(X) > MOST_ROWS:
        X, _, y, _ = train_test_split(X, y, train_size=MOST_ROWS, stratify=y, random_state=split)
    return X, X_test, y, y_test


def fitted(table: str, split: int) -> Unit:
    """One split of ``TABLES``, from the cache or by fitting."""
    file = CACHE / f"{table.replace(': ', '-')}-{split}.npz"
    if not file.exists():
        X, X_test, y, y_test = halves(table, split)
        clf = Models(METRIC, baseline=False, verbose=False, device="cpu", n_jobs=1, random_state=split).fit(X, y)
        parts = [part.validation for part in clf.folds_.splits]
        found = {"y": y[np.concatenate(parts)], "y_test": y_test,
                 "fold": np.repeat(np.arange(len(parts)), [len(part) for part in parts])}  # fmt: skip
        for model in clf.fitted_:
            found[f"held {model.name}"] = np.concatenate(model.held_out).astype(np.float64)
            found[f"test {model.name}"] = model.predict(clf._table(X_test)).astype(np.float64)
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(file, **found)
    with np.load(file) as kept:
        held, test = ({m: kept[f"{kind} {m}"] for m in MEMBERS if f"{kind} {m}" in kept} for kind in ("held", "test"))
        return Unit(table, split, kept["y"], kept["fold"], kept["y_test"], held, test)


def of_suite() -> Iterator[Unit]:
    """What the suite has kept of tables with two classes."""
    from benchmarks.suite import tables
    from benchmarks.suite.fits import part

    files = {"network": "network_f1", **{name: name for name in (*MEMBERS[1:], *RIVALS)}}
    for folder in sorted([*tables.CACHE.glob("predictions/*/*"), *tables.CACHE.glob("choose/*/*")]):
        table, split = folder.parent.name, folder.name
        if table not in tables.TABLES or tables.TABLES[table].classes != 2 or not (folder / "network_f1.npz").exists():
            continue
        rows = part(table, int(split))
        parts = [one.validation for one in rows.folds]
        made = {
            name: np.load(folder / f"{file}.npz") for name, file in files.items() if (folder / f"{file}.npz").exists()
        }
        fold = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        held, test = ({name: one[kind].astype(float) for name, one in made.items()} for kind in ("held_out", "test"))
        yield Unit(
            table,
            int(split),
            np.asarray(rows.y_train)[np.concatenate(parts)],
            fold,
            np.asarray(rows.y_test),
            held,
            test,
        )


def precision_at(truth: NDArray[Any], score: Array, recall: float) -> float:
    """The best precision of any cut-off that reaches the recall."""
    precision, reached, _ = precision_recall_curve(truth, score)
    return float(precision[reached >= recall - 1e-9].max())


def rows_of(unit: Unit) -> list[dict[str, Any]]:
    """One row per way to decide."""
    metric, n = metrics.get(METRIC), len(unit.y)
    every = HeldOut(np.arange(n), unit.fold, unit.y, np.ones(n), (0, 1), unit.held)
    members = every.of(*(name for name in MEMBERS if name in unit.held))
    chosen = choose_ensemble(members, metric)
    held, test = (mean_of(proba, chosen.weights) for proba in (unit.held, unit.test))
    ways = {"portfolio": (held, test, chosen.rule)}
    with suppress(InfeasibleError):  # too few positives to promise it
        ways["portfolio, 95 %"] = held, test, best_threshold(unit.y, held[:, 1], METRIC, confidence=0.95).rule
    for name, proba in unit.held.items():
        ways[name] = proba, unit.test[name], choose_ensemble(every.of(name), metric).rule
        ways[f"{name}, best_threshold"] = proba, unit.test[name], best_threshold(unit.y, proba[:, 1], METRIC).rule
    rows: list[dict[str, Any]] = []
    for way, (held, test, rule) in ways.items():
        decided = rule.decide(test)
        recall = float(recall_score(unit.y_test, decided))
        rows.append({
            "table": unit.table, "split": unit.split, "positives": float(unit.y.mean()), "way": way,
            "held_out": precision_at(unit.y, held[:, 1], BOUND), "recall": recall,
            "precision": float(precision_score(unit.y_test, decided, zero_division=0)),
            "test_positives": int(unit.y_test.sum()),
            "at_equal_recall": precision_at(unit.y_test, test[:, 1], rows[0]["recall"] if rows else recall),
        })  # fmt: skip
    return rows


def report(frame: pd.DataFrame) -> str:
    """The comparison in words and a table, from the rows of ``constraints.csv``."""
    plain = frame[~frame["way"].str.contains(",")]
    alone = plain[plain["way"] != "portfolio"]
    pick = alone.loc[alone.groupby(["table", "split"])["held_out"].idxmax()].assign(way="pick")
    wide = pd.concat([plain, pick]).pivot_table("at_equal_recall", ["table", "split"], "way")
    means = wide.groupby("table").mean()
    shipped = plain[plain["way"] == "portfolio"].groupby("table")[["positives", "recall", "precision"]].mean()
    shipped["splits"] = wide.groupby("table").size()
    lines = []
    for name, tables in (("up to 7 % positives", shipped.index[shipped["positives"] <= 0.07]), ("all", shipped.index)):
        found = []
        for way in ("pick", "boosting", "forest", "extra_trees", "network_ce", "network", *RIVALS):
            gap = (
                100 * (means["portfolio"] - means[way]).loc[tables].dropna() if way in means else pd.Series(dtype=float)
            )
            if len(gap) > 1:
                found.append(f"| {way} | {gap.mean():+.1f} ± {gap.sem():.1f} | {(gap > 0).sum()} of {len(gap)} |")
        title = f"Tables with {name}" if name != "all" else "All tables"
        lines += [f"## {title}", "", "| less | points of precision | portfolio ahead |", "|---|---|---|", *found, ""]
    lines += ["## By table", "", "Precision in per cent at the portfolio's recall on test rows, mean over splits.", ""]
    shown = ["portfolio", "pick", "boosting", "forest", "network_ce"]
    lines += [f"| table | positives | splits | recall | {' | '.join(shown)} |", "|---" * (4 + len(shown)) + "|"]
    for table in shipped.sort_values("positives").index:
        row, own = shipped.loc[table], means.loc[table]
        cells = [f"{100 * own[way]:.1f}" for way in shown]
        lines.append(
            f"| {table} | {row['positives']:.1%} | {row['splits']:.0f} | {row['recall']:.3f} | {' | '.join(cells)} |"
        )
    kept = []
    for way in ("portfolio", "portfolio, 95 %", "boosting, best_threshold", "forest, best_threshold"):
        own = frame[frame["way"] == way]
        by_table, hits = own.groupby("table")["recall"].mean(), (own["recall"] * own["test_positives"]).round()
        below = (binom.cdf(hits, own["test_positives"], BOUND) < 0.05).mean()  # 5 % where the true recall is just 0.9
        reached = f"{by_table.mean():.3f} ± {by_table.sem():.3f} | {(own['recall'] >= BOUND).mean():.0%} | {below:.0%}"
        kept.append(f"| {way} | {reached} | {len(own)} |")
    head = "| decided by | mean recall over tables | splits at 0.9 or above | below 0.9 by more than chance | splits |"
    lines += ["", "## The recall on test rows", "", head, "|---|---|---|---|---|", *kept]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Fit what is not kept, and write the table and the page."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("--splits", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--suite", action="store_true", help="add what benchmarks.suite has kept in METRICFIT_CACHE")
    options = parser.parse_args()
    earlier = pd.read_csv(RESULTS) if RESULTS.exists() else pd.DataFrame(columns=["table"])
    if options.suite:
        kept = earlier[earlier["table"].isin(list(TABLES))]
        new = [row for unit in of_suite() for row in rows_of(unit)]
    else:
        kept = earlier[~earlier["table"].isin(list(TABLES))]
        new = [row for split in options.splits for table in TABLES for row in rows_of(fitted(table, split))]
    frame = pd.concat([kept, pd.DataFrame(new).round(4)], ignore_index=True)
    frame.to_csv(RESULTS, index=False)
    REPORT.write_text(f"# {METRIC}\n\n{report(frame)}", encoding="utf-8")


if __name__ == "__main__":
    main()
