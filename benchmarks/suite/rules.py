"""Is the portfolio's rule the best one for single models too? From kept predictions of the half "choose".

    python -m benchmarks.suite run --tables choose --methods catboost lightgbm xgboost boosting logistic forest
    python -m benchmarks.suite.rules

Compares how much calibrated beliefs take the place of labels when the rule is tuned: not at all, by half, wholly (the
package's rule). Nothing is trained; every split in the folder of predictions counts.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from benchmarks.suite import cache
from benchmarks.suite.fits import METRICS, part
from benchmarks.suite.methods import METHODS, held_out_scores, needs, task, title
from benchmarks.suite.tables import names
from metricfit import metrics
from metricfit.decisions import best_rule
from metricfit.ensemble import BELIEF

RESULTS = Path(__file__).parent / "rules.csv"
BELIEFS = (0.0, 0.5, BELIEF)


def studied(predictions: Path) -> pd.DataFrame:
    """One row per table, split, metric, method and belief."""
    rows = []
    for table in names("choose"):
        for folder in sorted((predictions / table).glob("*")):
            split = part(table, int(folder.name))
            for method in METHODS:
                fits = {fit: folder / f"{fit}.npz" for fit in needs(method, "f1").values()}
                if len(fits) > 1 or not METHODS[method].tuned or not all(file.exists() for file in fits.values()):
                    continue
                made = {fit: cache.recall(file)[0] for fit, file in fits.items()}  # type: ignore[index]
                held = held_out_scores(split, made)
                ((name, proba),) = held.proba.items()
                for metric in METRICS:
                    resolved = metrics.resolve(metric, split.labels, task(split.labels))[0]
                    for belief in BELIEFS:
                        rule = best_rule(held.truth, proba, resolved, labels=split.labels, belief=belief).rule
                        value = resolved.score(split.y_test, rule.apply(made[name].test), labels=split.labels)
                        rows.append((table, split.seed, metric, method, belief, round(100 * float(value), 4)))
    return pd.DataFrame(rows, columns=["table", "split", "metric", "method", "belief", "value"])


def compared(rows: pd.DataFrame) -> str:
    """The package's rule less the others, in points: mean over tables ± standard error over tables."""
    wide = rows.pivot_table("value", ["method", "table", "split", "metric"], "belief")
    lines = ["| model | less beliefs 0 | less beliefs ½ | tables |", "|---|---|---|---|"]
    for method in (name for name in METHODS if name in set(rows["method"])):
        gaps = [(wide[BELIEF] - wide[other]).loc[method].groupby("table").mean() for other in BELIEFS[:2]]
        cells = [f"{gap.mean():+.2f} ± {gap.sem():.2f}" for gap in gaps]
        lines.append(f"| {title(method)} | {' | '.join(cells)} | {len(gaps[0])} |")
    return "\n".join(lines)


if __name__ == "__main__":
    cache.study(str(__doc__), RESULTS, studied, compared)
