"""Does a boosting library help the portfolio? From kept predictions of the half "choose".

    python -m benchmarks.suite run --tables choose --splits 2 --methods portfolio catboost lightgbm xgboost logistic
    python -m benchmarks.suite.members

Each set of models gets the package's weights and rule. Nothing is trained; every split in the folder of predictions
counts. The careful user's pick is the best single model by the metric out of fold, as in the suite.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pandas as pd

from benchmarks.suite import cache
from benchmarks.suite.fits import METRICS, part
from benchmarks.suite.methods import CANDIDATES, MEMBERS, held_out_scores, task
from benchmarks.suite.tables import names
from metricfit import metrics
from metricfit.ensemble import choose_ensemble, decided_by_others, mean_of

RESULTS = Path(__file__).parent / "members.csv"
LIBRARIES = ("catboost", "lightgbm", "xgboost")
SETS: dict[str, tuple[str, ...]] = {
    "portfolio": MEMBERS,
    **{f"with {name}": (*MEMBERS, name) for name in LIBRARIES},
    "with all three": (*MEMBERS, *LIBRARIES),
    **{name: (name,) for name in CANDIDATES},
}


def studied(predictions: Path) -> pd.DataFrame:
    """One row per table, split, metric and set; ``held_out`` is there for single models."""
    rows = []
    for table in names("choose"):
        for folder in sorted((predictions / table).glob("*")):
            split = part(table, int(folder.name))
            for metric in METRICS:
                for which, models in SETS.items():
                    files = {name: folder / f"{name}{f'_{metric}' * (name == 'network')}.npz" for name in models}
                    if not all(file.exists() for file in files.values()):
                        continue
                    made = {name: cache.recall(file)[0] for name, file in files.items()}  # type: ignore[index]
                    held = held_out_scores(split, made)
                    resolved = metrics.resolve(metric, split.labels, task(split.labels))[0]
                    choose = partial(choose_ensemble, metric=resolved)
                    chosen = choose(held)
                    test = chosen.rule.apply(mean_of({name: one.test for name, one in made.items()}, chosen.weights))
                    out = decided_by_others(held, choose)[1] if len(models) == 1 else None
                    values = [resolved.score(split.y_test, test, labels=split.labels)]
                    values += [] if out is None else [resolved.score(held.codes, out, labels=split.labels)]
                    found = [round(100 * float(value), 4) for value in values]
                    rows.append((table, split.seed, metric, which, *found, *[None] * (2 - len(found))))
    return pd.DataFrame(rows, columns=["table", "split", "metric", "set", "value", "held_out"])


def compared(rows: pd.DataFrame) -> str:
    """Each set less the portfolio and less the careful user's pick, in points ± standard error over tables."""
    index = ["table", "split", "metric"]
    wide = rows.pivot_table("value", index, "set").dropna()
    held = rows.pivot_table("held_out", index, "set").loc[wide.index, list(CANDIDATES)]
    pick = pd.Series([wide.loc[i, held.loc[i].idxmax()] for i in wide.index], index=wide.index)
    heads = [f"{metric}, less {other}" for other in ("portfolio", "pick") for metric in (*METRICS, "all three")]
    lines = [f"| models | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
    for which in (name for name in SETS if len(SETS[name]) > 1):
        cells = []
        for other in (wide["portfolio"], pick):
            gap = wide[which] - other
            parts = [gap.xs(metric, level="metric") for metric in METRICS] + [gap]
            means = [one.groupby("table").mean() for one in parts]
            cells += [f"{mean.mean():+.2f} ± {mean.sem():.2f}" for mean in means]
        lines.append(f"| {which} | {' | '.join(cells)} |")
    splits = wide.index.droplevel("metric").unique()
    return "\n".join([*lines, "", f"{len(splits)} splits of {splits.get_level_values(0).nunique()} tables."])


if __name__ == "__main__":
    cache.study(str(__doc__), RESULTS, studied, compared)
