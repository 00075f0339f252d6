"""Rows left to a person, sets of classes and promises: what is promised, what test rows show, and MAPIE's beside ours.

    METRICFIT_DATA=../shared/data METRICFIT_KEPT=cache/rules python -m benchmarks.decisions.doubt --splits 5

Scores are those of ``kept.py`` with 2,000 training rows, of boosting; of several classes, those of a forest that is
fitted here on 1,000 rows. MAPIE (1.6; ``pip install --no-deps mapie``) is given the same scores. It has no promise for
each class by itself without cvxpy, so it is asked once for each class. Writes doubt.csv and doubt.md beside itself,
and the picture of the guide.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from mapie.classification import SplitConformalClassifier
from mapie.risk_control import BinaryClassificationController
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

from benchmarks.data import load
from benchmarks.decisions.kept import Unit, units
from benchmarks.decisions.shipped import means, two
from metricfit import metrics
from metricfit.decisions import InfeasibleError, best_threshold, cautious_rule, least_probabilities

HERE = Path(__file__).parent
COVERAGES = (1.0, 0.95, 0.9, 0.8)
SEVERAL = ("ann_thyroid", "connect4", "fars", "krkopt", "letter", "nursery", "shuttle", "winequality_red")
"""Tables of several classes, of those with at least 1.5 % of the rows."""

Array = NDArray[Any]


class Given(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose table holds its probabilities."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.classes_ = np.arange(size)

    def fit(self, X: Array, y: Array) -> Given:
        """Nothing."""
        return self

    def predict_proba(self, X: Array) -> Array:
        """The table."""
        return X

    def predict(self, X: Array) -> Array:
        """The most probable class."""
        return np.asarray(X.argmax(axis=1))


def mapie_sets(y: Array, held: Array, new: Array, error: float, score: str = "lac", seed: int = 0) -> Array:
    """MAPIE's sets (n, classes)."""
    given = Given(held.shape[1])
    how: Any = {"confidence_level": 1 - error, "conformity_score": score, "random_state": seed}
    return SplitConformalClassifier(given, prefit=True, **how).conformalize(held, y).predict_set(new)[1][:, :, 0]


def all_sets(y: Array, held: Array, new: Array, error: float, seed: int = 0) -> dict[str, Array]:
    """Sets by every way."""
    few = np.bincount(y, minlength=held.shape[1]) <= 1 / error  # MAPIE refuses; nothing can be left out then
    each = [mapie_sets(y[own], held[own], new, error)[:, k] if not few[k] else np.ones(len(new), dtype=bool)
            for k, own in enumerate(y == np.arange(held.shape[1])[:, None])]  # fmt: skip
    return {
        "ours": new >= least_probabilities(y, held, error),
        "MAPIE, lac": mapie_sets(y, held, new, error),
        "MAPIE, aps": mapie_sets(y, held, new, error, "aps", seed) if held.shape[1] > 2 else np.empty(0),
        "MAPIE, raps": mapie_sets(y, held, new, error, "raps", seed) if held.shape[1] > 2 else np.empty(0),
        "ours, each class": new >= least_probabilities(y, held, error, each_class=True),
        "MAPIE, lac, each class": np.stack(each, axis=1),
    }


def judged_sets(y: Array, sets: dict[str, Array]) -> list[dict[str, Any]]:
    """One row per way: how often the true class is inside, also of the worst class, and how many classes are."""
    found: list[dict[str, Any]] = []
    for way, possible in sets.items():
        if not possible.size:
            continue
        inside, ours = possible[np.arange(len(y)), y], sets["ours, each class" if "each" in way else "ours"]
        worst = min(inside[y == k].mean() for k in np.unique(y))
        found.append({"way": way, "value": inside.mean(), "worst": worst, "size": possible.sum(axis=1).mean(),
                      "same": (possible == ours).all(axis=1).mean()})  # fmt: skip
    return found


def rows_of_several(name: str, split: int) -> list[dict[str, Any]]:
    """Sets of a table with several classes: a forest, other rows to choose on, other rows to judge by."""
    data = load(name)
    labels = np.asarray(data.y).astype(str)
    values, counts = np.unique(labels, return_counts=True)
    some = np.flatnonzero(np.isin(labels, values[counts >= 0.015 * len(labels)]))
    X = pd.get_dummies(data.X, dtype=float).fillna(0).to_numpy(float)[some]
    y = np.unique(labels[some], return_inverse=True)[1]
    how: dict[str, Any] = {"random_state": split}
    size = min(1000, len(y) // 3)
    X_fit, X, y_fit, y = train_test_split(X, y, train_size=size, stratify=y, **how)
    X_held, X, y_held, y = train_test_split(X, y, train_size=size, stratify=y, **how)
    X, y = X[:3000], y[:3000]
    model = RandomForestClassifier(100, min_samples_leaf=2, **how).fit(X_fit, y_fit)
    held, new = model.predict_proba(X_held), model.predict_proba(X)
    place = {"table": name, "split": split, "kind": "several", "metric": "sets", "asked": 0.9}
    return [{**place, **row} for row in judged_sets(y, all_sets(y_held, held, new, 0.1, split))]


def decided_with_mapie(unit: Unit, held: Array, test: Array) -> list[dict[str, Any]]:
    """Rows for which MAPIE's set is one class are decided; the rule of ours has the same coverage of held-out rows."""
    found: list[dict[str, Any]] = []
    for error in (0.05, 0.02):
        one_class = mapie_sets(unit.y, held, held, error).sum(axis=1) == 1
        sets = mapie_sets(unit.y, held, test, error)
        theirs, sure = sets.argmax(axis=1), sets.sum(axis=1) == 1
        if not 0.3 < one_class.mean() < 1:
            continue
        for metric in ("f1", "accuracy"):
            decided = cautious_rule(unit.y, held, metric, coverage=one_class.mean()).rule.apply(test)
            ours = np.array([one is not None for one in decided])
            judge = metrics.get(metric)
            for way, called, rows in (("MAPIE", theirs, sure), ("ours", decided, ours)):
                value = judge.score(unit.y_test[rows], called[rows].astype(int))
                found.append({"metric": f"{metric} beside MAPIE", "asked": error, "way": way, "value": value,
                              "reached": rows.mean()})  # fmt: skip
    return found


def promised_with_mapie(unit: Unit, held: Array, test: Array) -> list[dict[str, Any]]:
    """The best precision with a recall of 0.9 that is promised at a confidence of 95 %."""
    cuts: dict[str, float] = {}
    for belief, way in ((0.0, "ours, on labels"), (1.0, "ours")):
        try:
            asked = "precision subject to recall >= 0.9"
            cuts[way] = best_threshold(unit.y, held[:, 1], asked, confidence=0.95, belief=belief).threshold
        except InfeasibleError:
            cuts[way] = float("nan")
    for method in ("bonferroni_holm", "fixed_sequence"):
        how: Any = {"confidence_level": 0.95, "best_predict_param_choice": "precision", "fwer_method": method}
        theirs = BinaryClassificationController(lambda X: X, "recall", 0.9, **how).calibrate(held, unit.y)
        best = theirs.best_predict_param
        cuts[f"MAPIE, {method}"] = float("nan") if best is None else float(best)
    found: list[dict[str, Any]] = []
    for way, cut in cuts.items():
        called = test[:, 1] >= cut
        value, recall = (metrics.get(m).score(unit.y_test, called) for m in ("precision", "recall"))
        found.append({"metric": "promise", "way": way, "value": value if cut == cut else np.nan,
                      "reached": recall if cut == cut else np.nan})  # fmt: skip
    return found


def rows_of(unit: Unit) -> list[dict[str, Any]]:
    """One row per metric and coverage, and one for the sets."""
    held, test = two(unit.held["boosting"]), two(means(unit.test["boosting"])["log-odds"])
    place: dict[str, Any] = {"table": unit.table, "split": unit.split, "kind": "two"}
    found: list[dict[str, Any]] = []
    for metric in ("f1", "accuracy"):
        for asked in COVERAGES:
            decided = cautious_rule(unit.y, held, metric, coverage=asked).rule.apply(test)
            sure = np.array([one is not None for one in decided])
            value = metrics.get(metric).score(unit.y_test[sure], decided[sure].astype(int))
            found.append({**place, "metric": metric, "asked": asked, "value": value, "reached": sure.mean()})
    for row in judged_sets(unit.y_test, all_sets(unit.y, held, test, 0.1)):
        found.append({**place, "metric": "sets", "asked": 0.9, **row})
    beside = decided_with_mapie(unit, held, test) + promised_with_mapie(unit, held, test)
    found += [{**place, **row} for row in beside]
    return found


def page(frame: pd.DataFrame) -> str:
    """Means over tables."""
    lines = [
        "# Doubt",
        "",
        f"{frame[frame['metric'] == 'f1']['table'].nunique()} tables, {frame['split'].nunique()} splits, boosting on",
        "2,000 rows, other test rows. In points, mean over tables; *gain*: less deciding all, ± standard error over",
        "tables. MAPIE has the same scores. Made by `doubt.py`.",
        "",
        "| metric | coverage asked | reached | value of the decided rows | gain |",
        "|---|---:|---:|---:|---:|",
    ]
    for metric in ("f1", "accuracy"):
        own = frame[frame["metric"] == metric]
        wide = 100 * own.pivot_table("value", "table", "asked")
        for asked in COVERAGES:
            gain, reached = wide[asked] - wide[1.0], own[own["asked"] == asked]["reached"].mean()
            told = f"{wide[asked].mean():.1f} | {gain.mean():+.1f} ± {gain.sem():.1f} |"
            lines.append(f"| {metric} | {asked:.0%} | {reached:.1%} | {told}")
    of_sets = frame[frame["metric"] == "sets"]
    for several in (False, True):
        own = of_sets[(of_sets["kind"] == "several") == several]
        kind = "several classes" if several else "two classes"
        lines += [
            "",
            f"Sets with an error of 10 %, {own['table'].nunique()} tables of {kind}; the worst table in brackets:",
        ]
        lines += ["", "| sets | true class inside | of the worst class | classes in a set | same set as ours |"]
        lines += ["|---|---:|---:|---:|---:|"]
        for way, part in own.groupby("way", sort=False):
            each = part.groupby("table")[["value", "worst", "size", "same"]].mean()
            cells = [f"{each[c].mean():.1%} ({each[c].min():.1%})" for c in ("value", "worst")]
            lines.append(
                f"| {' | '.join([str(way), *cells])} | {each['size'].mean():.2f} | {each['same'].mean():.2%} |"
            )
    lines += [
        "",
        "Decided are the rows whose set of MAPIE is one class; ours leaves as many held-out rows to a person:",
        "",
    ]
    lines += ["| metric | MAPIE's error | decided, MAPIE | ours | value, MAPIE | ours | difference | tables better |"]
    lines += ["|---|---:|---:|---:|---:|---:|---:|---:|"]
    for metric in ("f1", "accuracy"):
        own = frame[frame["metric"] == f"{metric} beside MAPIE"]
        for error, part in own.groupby("asked", sort=False):
            wide = 100 * part.pivot_table(["value", "reached"], "table", "way")
            gap = wide["value", "ours"] - wide["value", "MAPIE"]
            cells = [f"{wide['reached', way].mean():.1f}%" for way in ("MAPIE", "ours")]
            cells += [f"{wide['value', way].mean():.1f}" for way in ("MAPIE", "ours")]
            cells += [f"{gap.mean():+.1f} ± {gap.sem():.1f}", f"{(gap > 0).sum()} of {len(gap)}"]
            lines.append(f"| {metric} | {error:.0%} | {' | '.join(cells)} |")
    lines += [
        "",
        "Precision with a recall of 0.9 promised at 95 % confidence. *Held*: splits with that recall on test rows.",
        "",
    ]
    lines += ["| rule | found | recall | held | precision | less ours |", "|---|---:|---:|---:|---:|---:|"]
    own = frame[frame["metric"] == "promise"]
    wide = 100 * own.pivot_table("value", ["table", "split"], "way")
    for way, part in own.groupby("way", sort=False):
        gap = (wide[way] - wide["ours"]).groupby(level="table").mean().dropna()
        recall, there = part["reached"].dropna(), f"{part['value'].notna().mean():.0%}"
        held = f"{recall.mean():.3f} | {(recall >= 0.9).mean():.0%}"
        lines.append(f"| {way} | {there} | {held} | {wide[way].mean():.1f} | {gap.mean():+.1f} ± {gap.sem():.1f} |")
    return "\n".join(lines) + "\n"


def draw(unit: Unit, place: Path) -> None:
    """The metric of the decided rows over their share, on held-out rows."""
    fig, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
    for metric in ("f1", "accuracy"):
        found = cautious_rule(unit.y, two(unit.held["boosting"]), metric, coverage=0.5)
        ax.plot(found.curve[:, 0], found.curve[:, 1], label=metric)
    ax.set(xlabel="Share of the rows that are decided", ylabel="Metric of these rows", title=unit.table)
    ax.invert_xaxis()
    ax.legend()
    fig.savefig(place, dpi=110)


def main() -> None:
    """Choose, judge, write, draw."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("--splits", type=int, default=5)
    splits = parser.parse_args().splits
    every = list(units(2000, splits))
    rows = [row for unit in every for row in rows_of(unit)]
    rows += [row for name in SEVERAL for split in range(splits) for row in rows_of_several(name, split)]
    frame = pd.DataFrame(rows)
    frame.round(5).to_csv(HERE / "doubt.csv", index=False)
    (HERE / "doubt.md").write_text(page(frame), encoding="utf-8")
    draw(next(unit for unit in every if unit.table == "adult"), HERE.parents[1] / "docs" / "images" / "doubt.png")


if __name__ == "__main__":
    main()
