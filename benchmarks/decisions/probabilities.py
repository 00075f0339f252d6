"""Whether calibrated probabilities can be trusted: their log-loss on new rows, and metrics of rows without labels.

    METRICFIT_DATA=../shared/data METRICFIT_KEPT=cache/rules python -m benchmarks.decisions.probabilities --splits 5

Scores are those of ``kept.py`` with 2,000 training rows. The calibration is chosen and fitted on the out-of-fold scores
and judged on test rows, which all folds' models together scored. Then 1,000 test rows, as they are or with two thirds
of their positives left out, lose their labels, each scored by one fold's models, as held-out rows are. How often does
the interval of ``expected_metric`` hold what the labels say? Writes probabilities.csv and probabilities.md beside it.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import brier_score_loss, log_loss

from benchmarks.decisions.kept import MEMBERS, Unit, units
from benchmarks.decisions.shipped import means, two
from metricfit import metrics
from metricfit.assess import expected_metric
from metricfit.decisions import best_threshold, calibrate

HERE = Path(__file__).parent
BATCH = 1000


def rows_of(unit: Unit) -> list[dict[str, Any]]:
    """One row per model and for each expected metric."""
    place: dict[str, Any] = {"table": unit.table, "split": unit.split}
    found: list[dict[str, Any]] = []
    each = {m: (unit.held[m], means(unit.test[m])["log-odds"]) for m in MEMBERS}
    each["both"] = tuple(np.mean([each[m][k] for m in MEMBERS], axis=0) for k in (0, 1))
    for name, (held, test) in each.items():
        p = test.clip(1e-5, 1 - 1e-5)
        map_ = calibrate(unit.y, held)
        q = map_.apply(test)
        judged = {"log-loss": log_loss, "Brier score": brier_score_loss}
        for score, function in judged.items():
            before, after = (function(unit.y_test, values) for values in (p, q))
            found.append({**place, "what": score, "of": name, "before": before, "after": after, "method": map_.method})
    held, at = each["both"][0], np.arange(len(unit.y_test))
    test = np.mean([unit.test[m][at % len(unit.test[m]), at] for m in MEMBERS], axis=0)
    rng = np.random.default_rng(unit.split)
    for name, kept in (("as they are", 1.0), ("a third of the positives", 1 / 3)):
        rows = rng.permutation(np.flatnonzero((unit.y_test == 0) | (rng.random(len(test)) < kept)))[:BATCH]
        cut = best_threshold(unit.y, held, "f1", belief=1.0).threshold
        decided = (test[rows] >= cut).astype(int)
        for spec in ("f1", "precision"):
            guess = expected_metric(spec, two(test[rows]), decided, unit.y, two(held))
            true = metrics.get(spec).score(unit.y_test[rows], decided)
            usual = metrics.get(spec).score(unit.y, held >= cut)
            found.append({**place, "what": spec, "of": name, "before": usual, "after": guess.value, "true": true,
                          "holds": guess.low <= true <= guess.high})  # fmt: skip
    return found


def page(frame: pd.DataFrame) -> str:
    """Means over tables."""
    lines = [
        "# Probabilities", "",
        f"{frame['table'].nunique()} tables, {frame['split'].nunique()} splits, 2,000 training rows; ± standard error",
        "over tables. Made by `probabilities.py`.", "",
        "| on test rows | of | before | calibrated | ratio | tables better | methods chosen |",
        "|---|---|---:|---:|---:|---:|---|",
    ]  # fmt: skip
    for score in ("log-loss", "Brier score"):
        for name, own in frame[frame["what"] == score].groupby("of", sort=False):
            each = own.groupby("table")[["before", "after"]].mean()
            ratio = each["after"] / each["before"]
            chosen = ", ".join(
                f"{way} {share:.0%}" for way, share in own["method"].value_counts(normalize=True).items()
            )
            cells = f"{each['before'].mean():.4f} | {each['after'].mean():.4f} | {ratio.mean():.3f} ± {ratio.sem():.3f}"
            lines.append(f"| {score} | {name} | {cells} | {(ratio < 1).sum()} of {len(ratio)} | {chosen} |")
    lines += [
        "",
        f"{BATCH:,} test rows without labels, decided for F1; error: mean distance to what the labels say.",
        "",
    ]
    lines += ["| metric | positives | in training | error of that | expected | error | interval holds |"]
    lines += ["|---|---|---:|---:|---:|---:|---:|"]
    for (spec, name), own in frame[frame["true"].notna()].groupby(["what", "of"], sort=False):
        far = [f"{own[c].mean():.3f} | {(own[c] - own['true']).abs().mean():.3f}" for c in ("before", "after")]
        lines.append(f"| {spec} | {name} | {' | '.join(far)} | {own['holds'].mean():.0%} of {len(own)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Calibrate, judge, write."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("--splits", type=int, default=5)
    frame = pd.DataFrame([row for unit in units(2000, parser.parse_args().splits) for row in rows_of(unit)])
    frame.round(5).to_csv(HERE / "probabilities.csv", index=False)
    (HERE / "probabilities.md").write_text(page(frame), encoding="utf-8")


if __name__ == "__main__":
    main()
