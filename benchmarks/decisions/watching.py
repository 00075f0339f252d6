"""How often monitoring raises an alarm where nothing has changed, and where something has.

    python -m benchmarks.decisions.watching --draws 600
    METRICFIT_DATA=../shared/data METRICFIT_KEPT=cache/rules python -m benchmarks.decisions.watching --splits 10

Each draw makes 2,000 held-out and 1,000 new rows of a world of normal scores (10 % positive), with labels; every tenth
one also of the worlds that have changed. With ``--splits`` the rows are real: the held-out and test scores of
``kept.py`` with 2,000 training rows, boosting, 500 test rows at a time. What is in watching.csv is not drawn again.
Writes watching.csv, one row per draw, and watching.md beside itself.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.decisions.shipped import means, two
from metricfit import metrics
from metricfit.assess import HeldOutScores, monitor, scores_of, watching
from metricfit.decisions import best_rule

HERE = Path(__file__).parent
METRICS = ("f1", "mcc", "precision[1] subject to recall[1] >= 0.9")
WORLDS = {"nothing": (0.1, 1.8), "twice as many positives": (0.2, 1.8), "positives look different": (0.1, 1.2)}
DRAWS = watching._DRAWS  # of labels, which only lines of constraints are tested by
REAL, BATCH = "nothing, real tables", 500

Array = NDArray[Any]


def world(rng: np.random.Generator, n: int, share: float, apart: float) -> tuple[Array, Array]:
    """Labels and probabilities."""
    y = (rng.random(n) < share).astype(int)
    return y, two(1 / (1 + np.exp(-(1.8 * (rng.normal(size=n) + apart * y) - 3.5))))


def model(y: Array, p: Array, fold: Array, spec: str) -> Any:
    """What a classifier keeps of its held-out rows: each fold decided by a rule of the others."""
    decided = np.zeros(len(y), dtype=int)
    for k in np.unique(fold):
        others = fold != k
        decided[~others] = best_rule(y[others], p[others], spec, belief=1.0).rule.decide(p[~others])
    rule = best_rule(y, p, spec, belief=1.0).rule
    held = HeldOutScores(y, p.astype(np.float32), decided, fold=fold)
    given = {"metric_": metrics.get(spec), "classes_": np.array([0, 1]), "decision_rule_": rule, "task_": "binary"}
    # New rows come as (n, 4): the scores as of held-out rows, then those of all folds, by which predict decides.
    return SimpleNamespace(
        held_out_=held, predict_as_held_out=lambda X: X[:, :2], predict_proba=lambda X, raw: X[:, 2:], **given
    )


def watched(name: str, draw: Any, spec: str, model: Any, y: Array, X: Array) -> dict[str, Any]:
    """One row: which lines gave an alarm, and the least chance, times the number of lines, with and without labels."""
    watching._DRAWS = DRAWS if "subject to" in spec else 2
    found = monitor(model, X, scores_of(model, X, y))
    unlabelled = [each for each in found if each.kind != "measured"]
    row: dict[str, Any] = {"draw": draw, "changed": name, "metric": spec}
    row["alarms"] = " ".join(sorted({each.kind for each in found if each.alarm}))
    row["without labels"] = any(each.alarm for each in unlabelled)
    for part, lines in (("least", found), ("least without labels", unlabelled)):
        row[part] = np.nanmin([each.chance for each in lines]) * len(found)
    return row


def drawn(draws: range) -> Iterator[dict[str, Any]]:
    """Of the worlds of normal scores."""
    for draw in draws:
        spec = METRICS[draw % 3]
        for place, (name, how) in enumerate(WORLDS.items()):
            if place and draw % 10:
                continue
            rng = np.random.default_rng([draw, place])
            y, p = world(rng, 2000, *WORLDS["nothing"])
            y_new, new = world(rng, 1000, *how)
            ours = model(y, p, np.arange(len(y)) % 5, spec)
            yield watched(name, draw, spec, ours, y_new, np.concatenate([new, new], axis=1))


def real(splits: int, known: set[Any]) -> Iterator[dict[str, Any]]:
    """Of real tables."""
    from benchmarks.decisions.kept import units

    for unit in units(2000, splits):
        each, rng = unit.test["boosting"], np.random.default_rng(unit.split)
        shuffled, spec = rng.permutation(len(unit.y_test)), METRICS[unit.split % 3]
        if f"{unit.table} {unit.split} 0" in known:
            continue
        ours = model(unit.y, two(unit.held["boosting"]), unit.fold, spec)
        for batch in range(min(4, len(shuffled) // BATCH)):
            rows = shuffled[batch * BATCH : (batch + 1) * BATCH]
            one = two(each[np.arange(BATCH) % len(each), rows])
            X = np.concatenate([one, two(means(each[:, rows])["log-odds"])], axis=1)
            yield watched(REAL, f"{unit.table} {unit.split} {batch}", spec, ours, unit.y_test[rows], X)


def page(frame: pd.DataFrame) -> str:
    """Shares of draws with an alarm."""
    lines = [
        "# False and true alarms", "",
        "`monitor` at a level of 5 %; *error*: the standard error, of real tables over splits (up to four batches of",
        f"{BATCH} rows each have the same held-out rows). Made by `watching.py`.", "",
        "| changed | metric | draws | alarm | error | by what needs no labels |", "|---|---|---:|---:|---:|---:|",
    ]  # fmt: skip
    for name, world in frame.groupby("changed", sort=False):
        for spec, own in [("all", world), *world.groupby("metric", sort=False)]:
            alarm = own["alarms"] != ""
            cluster = own["draw"].astype(str).str.rsplit(" ", n=1).str[0] if name == REAL else own.index
            sums = (alarm - alarm.mean()).groupby(cluster).sum()
            error = np.sqrt((sums**2).sum()) / len(own)
            shares = f"{alarm.mean():.1%} | {error:.1%} | {own['without labels'].mean():.1%}"
            lines.append(f"| {name} | {spec} | {len(own)} | {shares} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Draw, count, write."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=0)
    parser.add_argument("--splits", type=int, default=0)
    options, path = parser.parse_args(), HERE / "watching.csv"
    kept = pd.read_csv(path, keep_default_na=False) if path.exists() else pd.DataFrame({"changed": [], "draw": []})
    known, rows = set(kept[kept["changed"] == REAL]["draw"]), kept.to_dict("records")
    first = 1 + max((int(row["draw"]) for row in rows if row["changed"] != REAL), default=-1)
    for part in (drawn(range(first, options.draws)), real(options.splits, known)):
        for row in part:
            rows.append(row)
            if len(rows) % 50 == 0:
                pd.DataFrame(rows).to_csv(path, index=False)
    frame = pd.DataFrame(rows)
    frame.round(6).to_csv(path, index=False)
    (HERE / "watching.md").write_text(page(frame), encoding="utf-8")


if __name__ == "__main__":
    main()
