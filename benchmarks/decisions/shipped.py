"""A cut-off is chosen on rows that one fold's models scored each; which mean of the folds' models does it fit?

    METRICFIT_DATA=../shared/data METRICFIT_KEPT=cache/rules python -m benchmarks.decisions.shipped --splits 10

Scores are those of ``kept.py`` with 2,000 training rows, on ten real tables. Weights of forest and boosting are chosen
on log-loss as in the package, cut-offs by ``best_threshold`` on out-of-fold scores, with and without a confidence of 95
%. Rivals are single models: the folds' mean, and one model that was fitted on all training rows, each with a cut-off of
its own. Then a simulation in which everything is known. Writes shipped.csv and shipped.md beside itself.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import binom

from benchmarks.decisions.kept import MEMBERS, Unit, units
from metricfit import metrics
from metricfit.decisions import InfeasibleError, best_threshold
from metricfit.ensemble import HeldOut, log_loss_weights, mean_of
from metricfit.models.portfolio import pooled

HERE = Path(__file__).parent
BOUND = 0.9
ASKED = {"recall": (f"precision subject to recall >= {BOUND}", BOUND), "f1": ("f1", 0.0), "mcc": ("mcc", 0.0)}
SIMULATED, FOLDS = 1000, 5

Array = NDArray[np.float64]


def two(score: Array) -> Array:
    """Probabilities of both classes."""
    return np.stack([1 - score, score], axis=-1)


def means(each: Array) -> dict[str, Array]:
    """The folds' scores (folds, n) as one, by each mean."""
    log_odds = pooled(two(each), several=False)[:, 1]
    return {"probabilities": each.mean(axis=0), "log-odds": log_odds, "median": np.median(each, axis=0)}


def rows_of(unit: Unit) -> list[dict[str, Any]]:
    """One row per way, metric and confidence."""
    n = len(unit.y)
    held = HeldOut(np.arange(n), unit.fold, unit.y, np.ones(n), (0, 1), {m: two(unit.held[m]) for m in MEMBERS})
    weights = log_loss_weights(held)
    each = {m: means(unit.test[m]) for m in MEMBERS}
    ways = {
        ("portfolio", kind): (mean_of(unit.held, weights), mean_of({m: each[m][kind] for m in MEMBERS}, weights))
        for kind in each["forest"]
    }
    for m in MEMBERS:
        ways |= {(m, kind): (unit.held[m], score) for kind, score in each[m].items()}
        ways[m, "fitted on all rows"] = unit.held[m], unit.whole[m]
    found: list[dict[str, Any]] = []
    for asked, (spec, bound) in ASKED.items():
        metric = metrics.get(spec)
        objective = getattr(metric, "objective", metric)
        for confidence in (None, 0.95) if bound else (None,):
            for (model, kind), (score, test) in ways.items():
                try:
                    cut = best_threshold(unit.y, score, spec, confidence=confidence, belief=1.0).threshold
                except InfeasibleError:
                    continue
                called = test >= cut
                hits, positives = int((called & (unit.y_test == 1)).sum()), int(unit.y_test.sum())
                found.append({
                    "table": unit.table, "split": unit.split, "asked": asked, "confidence": confidence or 0.0,
                    "model": model, "mean of": kind, "value": objective.score(unit.y_test, called),
                    "recall": hits / positives, "held": hits >= bound * positives,
                    "missed": bool(bound) and binom.cdf(hits, positives, bound) < 0.05,
                })  # fmt: skip
    return found


def simulated(splits: int = 300) -> pd.DataFrame:
    """Recall on endless new rows where each fold's model is the truth and an error of its own, in log-odds."""
    rng, found = np.random.default_rng(0), []
    y_new = np.repeat([0, 1], [20_000, 20_000])
    truth_new = rng.normal(size=len(y_new)) + 2 * y_new
    for error in (0.5, 1.0):
        for split in range(splits):
            y = (rng.random(SIMULATED) < 0.15).astype(int)
            held = expit(1.5 * (rng.normal(size=SIMULATED) + 2 * y + error * rng.normal(size=SIMULATED)) - 4)
            each = expit(1.5 * (truth_new + error * rng.normal(size=(FOLDS, len(y_new)))) - 4)
            for confidence in (None, 0.95):
                cut = best_threshold(y, held, ASKED["recall"][0], confidence=confidence, belief=1.0).threshold
                for kind, score in {**means(each), "one model": each[0]}.items():
                    called = score >= cut
                    found.append({"error": error, "split": split, "confidence": confidence or 0.0, "mean of": kind,
                                  "recall": called[y_new == 1].mean(), "fpr": called[y_new == 0].mean()})  # fmt: skip
    return pd.DataFrame(found)


def page(frame: pd.DataFrame, known: pd.DataFrame) -> str:
    """Tables of means over tables."""
    tables, splits = frame["table"].nunique(), frame["split"].nunique()
    lines = [
        "# The rule of the model that ships", "",
        f"{tables} real tables, {splits} splits, 2,000 training rows, forest and boosting on five folds. Cut-offs for",
        f"precision subject to a recall of {BOUND} are chosen on out-of-fold rows. *Held*: splits with that recall on",
        "test rows, of which there are few positives on some tables; *missed*: splits below it by more than chance",
        "(5 %). Precision in points; *less*: the portfolio by the mean of log-odds less this way,",
        "mean over tables ± standard error over tables. Made by `shipped.py`.", "",
        "| confidence | model | mean of | recall | held | missed | precision | less |",
        "|---:|---|---|---:|---:|---:|---:|---:|",
    ]  # fmt: skip
    for confidence, part in frame[frame["asked"] == "recall"].groupby("confidence"):
        values = 100 * part.pivot_table("value", "table", ["model", "mean of"])
        for (model, kind), own in part.groupby(["model", "mean of"], sort=False):
            gap = values["portfolio", "log-odds"] - values[model, kind]
            cells = [f"{confidence:.0%}" if confidence else "none", model, kind, f"{own['recall'].mean():.3f}"]
            cells += [f"{own['held'].mean():.0%}", f"{own['missed'].mean():.0%}", f"{values[model, kind].mean():.1f}"]
            lines.append("| " + " | ".join([*cells, f"{gap.mean():+.1f} ± {gap.sem():.1f}"]) + " |")
    lines += [
        "",
        "Other metrics, in points, the same way:",
        "",
        "| metric | model | mean of | test | less |",
        "|---|---|---|---:|---:|",
    ]
    for name in ("f1", "mcc"):
        values = 100 * frame[frame["asked"] == name].pivot_table("value", "table", ["model", "mean of"])
        for model, kind in values:
            gap = values["portfolio", "log-odds"] - values[model, kind]
            told = f"{values[model, kind].mean():.1f} | {gap.mean():+.2f} ± {gap.sem():.2f}"
            lines.append(f"| {name} | {model} | {kind} | {told} |")
    lines += ["", "## Where everything is known", "",
              f"{known['split'].nunique()} draws of {SIMULATED} held-out rows, 15 % positive; a fold's model is the",
              "truth and an error of its own. *Held*: the recall on endless new rows is at least 0.9.", "",
              "| error | confidence | mean of | recall | held | false alarms |",
              "|---:|---:|---|---:|---:|---:|"]  # fmt: skip
    for (error, confidence, kind), own in known.groupby(["error", "confidence", "mean of"], sort=False):
        shown = f"{confidence:.0%}" if confidence else "none"
        held = (own["recall"] >= BOUND).mean()
        lines.append(
            f"| {error} | {shown} | {kind} | {own['recall'].mean():.3f} | {held:.0%} | {own['fpr'].mean():.3f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Choose, judge, write."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("--splits", type=int, default=10)
    frame = pd.DataFrame([row for unit in units(2000, parser.parse_args().splits) for row in rows_of(unit)])
    frame.round(5).to_csv(HERE / "shipped.csv", index=False)
    (HERE / "shipped.md").write_text(page(frame, simulated()), encoding="utf-8")


if __name__ == "__main__":
    main()
