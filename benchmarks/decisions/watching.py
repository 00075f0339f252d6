"""How often monitoring raises an alarm where nothing has changed, and where something has.

    python -m benchmarks.decisions.watching --draws 200

Each draw makes 2,000 held-out and 1,000 new rows of a world of normal scores (10 % positive), with labels. Writes
watching.csv, one row per draw, and watching.md beside itself.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit import metrics
from metricfit.assess import HeldOutScores, monitor, scores_of
from metricfit.decisions import best_threshold

HERE = Path(__file__).parent
METRICS = ("f1", "mcc", "precision[1] subject to recall[1] >= 0.9")
WORLDS = {"nothing": (0.1, 1.8), "twice as many positives": (0.2, 1.8), "positives look different": (0.1, 1.2)}


def world(rng: np.random.Generator, n: int, share: float, apart: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Labels and probabilities."""
    y = (rng.random(n) < share).astype(int)
    p = 1 / (1 + np.exp(-(1.8 * (rng.normal(size=n) + apart * y) - 3.5)))
    return y, np.stack([1 - p, p], axis=1)


def model(rng: np.random.Generator, spec: str) -> Any:
    """What a classifier keeps of its held-out rows: each fold decided by a rule of the others."""
    y, p = world(rng, 2000, *WORLDS["nothing"])
    fold, decided = np.arange(len(y)) % 5, np.zeros(len(y), dtype=int)
    for k in range(5):
        others = fold != k
        decided[~others] = best_threshold(y[others], p[others, 1], spec, belief=1.0).rule.decide(p[~others])
    rule = best_threshold(y, p[:, 1], spec, belief=1.0).rule
    held = HeldOutScores(y, p.astype(np.float32), decided, fold=fold)
    given = {"metric_": metrics.get(spec), "classes_": np.array([0, 1]), "decision_rule_": rule, "task_": "binary"}
    return SimpleNamespace(held_out_=held, predict_as_held_out=np.asarray, predict_proba=lambda X, raw: X, **given)


def main() -> None:
    """Draw, count, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=200)
    rng, rows = np.random.default_rng(0), []
    for draw in range(parser.parse_args().draws):
        for name, how in WORLDS.items():
            if name != "nothing" and draw % 10:
                continue
            spec = METRICS[draw % 3]
            watched, (y, p) = model(rng, spec), world(rng, 1000, *how)
            found = monitor(watched, p, scores_of(watched, p, y))
            alarms = " ".join(sorted({each.kind for each in found if each.alarm}))
            without = any(each.alarm for each in found if each.kind != "measured")
            rows.append({"draw": draw, "changed": name, "metric": spec, "alarms": alarms, "without labels": without})
    frame = pd.DataFrame(rows)
    frame["alarm"] = frame["alarms"] != ""
    frame.to_csv(HERE / "watching.csv", index=False)
    lines = ["# False and true alarms", "", "`monitor` at a level of 5 %; made by `watching.py`.", ""]
    lines += ["| changed | draws | alarm | by what needs no labels |", "|---|---:|---:|---:|"]
    for name, own in frame.groupby("changed", sort=False):
        error = np.sqrt(own["alarm"].mean() * (1 - own["alarm"].mean()) / len(own))
        cells = [name, str(len(own)), f"{own['alarm'].mean():.1%} ± {error:.1%}", f"{own['without labels'].mean():.1%}"]
        lines.append("| " + " | ".join(cells) + " |")
    (HERE / "watching.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
