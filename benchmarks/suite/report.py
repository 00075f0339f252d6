"""``docs/results.md``: everything in it comes from the committed rows."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from benchmarks.suite.datasets import DATASETS
from benchmarks.suite.methods import METHODS, METRICS
from benchmarks.suite.plots import TITLES, heat_map, rank_plot
from benchmarks.suite.results import read
from benchmarks.suite.summary import (
    ENOUGH_SPLITS,
    PLANNED_SPLITS,
    REFERENCE,
    Comparison,
    coverage,
    differences,
    finished_sets,
    main_methods,
    one_configuration,
    ranks,
    scores,
    verdicts,
)

__all__ = ["write_report"]

_HEAD = """\
# Results on many data sets

Written by `python -m benchmarks.suite table` from the rows in `benchmarks/suite/results/`; `make bench-suite` computes
those. Do not edit by hand.

**Protocol.** Random stratified splits, 80 % to train and 20 % to test, the same for all methods. *MetricClassifier* is
trained on the metric of the column. *The same network* is its network, preprocessing, optimiser and five-fold ensemble
trained by cross-entropy: plain, with class weights inverse to the class sizes (weighted) or to their square roots
(√-weighted). *Tuned rule*: a threshold (two classes) or class offsets (more) that are best for the metric on
out-of-fold probabilities. scikit-learn's MLP (on the same preprocessed features), random forest, HistGradientBoosting
and XGBoost are taken plain, one model on all training rows; and, the fair comparison, as an ensemble of five folds with
a rule tuned in the same way. Every library's model has its default parameters. F1 is the positive class's with two
classes, the macro average with more. Means over splits are shown × 100, ± standard errors; as the splits of a set share
rows, these are somewhat too small.

**Data.** Adult without `fnlwgt`, creditcard without `Time` and with the logarithm of `Amount`, abalone's classes with
at least 20 rows. The twelve KEEL sets were chosen by a rule, before any result: at least 20 positives; of the sets cut
from one source only the one with the most positives (the larger set on a tie); no source that is here already.
"""


def write_report(results: Path, docs: Path) -> str:
    """Write ``results.md`` and its plots; returns the text."""
    everything = read(results)
    everything = everything[everything["method"].isin(METHODS)]
    if everything.empty:
        raise ValueError(f"results: {results} holds no rows; compute some with python -m benchmarks.suite run.")
    rows = one_configuration(everything)
    images = docs / "images"
    images.mkdir(parents=True, exist_ok=True)
    main = main_methods(rows)
    comparison = ranks(rows, main)
    parts = [_HEAD, _completeness(rows)]
    if comparison.sets:
        rank_plot(comparison, images / "suite-ranks.png")
        parts += ["## Average ranks", _verdict(comparison), "![Average ranks](images/suite-ranks.png)"]
        parts += [_rank_table(rows, comparison)]
    every = ranks(rows[rows["dataset"].isin(finished_sets(rows))], list(coverage(rows).columns))
    if every.sets and len(every.ranks.columns) > len(main):
        left = ", ".join(name for name in comparison.sets if name not in every.sets)
        parts += [
            f"With the methods that have not finished all sets, on the {len(every.sets)} that they have (not {left}):"
        ]
        parts += [_rank_table(rows, every)]
    if REFERENCE in main:
        parts += [_difference_table(rows)]
    heat_map(rows, main, images / "suite-sets.png")
    parts += ["## Data set by data set", "![Distance from the best method](images/suite-sets.png)"]
    parts += [_set_table(rows, dataset) for dataset in rows["dataset"].cat.categories]
    text = "\n\n".join(part.strip() for part in parts) + "\n"
    (docs / "results.md").write_text(text)
    return text


def _completeness(rows: pd.DataFrame) -> str:
    counts = coverage(rows)
    lines = ["## What was run", ""]
    capped = rows[rows["configuration"] != "full"].groupby("dataset", observed=True)["train_rows"].max()
    if len(capped):
        named = ", ".join(f"{name} ({size:,} rows)" for name, size in capped.items())
        lines += [
            f"**Training rows were capped** on {named}: a stratified sample in which no class falls below 20 rows if "
            "it had them. All methods got the same rows; the test rows are all there. These are not results at full "
            "size.",
            "",
        ]
    if missing := [name for name in DATASETS if name not in set(counts.index[counts.max(axis=1) > 0])]:
        lines += [f"**Not run yet:** {', '.join(missing)}.", ""]
    lines += [
        f"Splits completed, all three metrics (the aim is {ENOUGH_SPLITS}, and 3 on creditcard for its size):",
        "",
    ]
    groups = {
        "MetricClassifier": ["default"],
        "same network": [m for m in METHODS if METHODS[m].family == "same network, cross-entropy"],
        "east": ["east"],
        "other libraries": [m for m in METHODS if METHODS[m].family == "other libraries"],
    }
    lines += [f"| data set | {' | '.join(groups)} |", "|---|" + "---|" * len(groups)]
    for dataset, line in counts.iterrows():
        cells = [_span(line.reindex(names, fill_value=0)) for names in groups.values()]
        lines.append(f"| {dataset} | {' | '.join(cells)} |")
    machines, libraries = sorted(set(rows["machine"])), sorted(set(rows["libraries"]))
    lines += ["", f"Machine: {'; '.join(machines)}. Libraries: {'; '.join(libraries)}."]
    own = rows[rows["method"].map(lambda name: METHODS[name].family != "other libraries")]
    if len(own):
        lines += ["metricfit commits (with a fingerprint of the sources where they differed): "]
        lines[-1] += ", ".join(f"`{c}` ({n} rows)" for c, n in own["commit"].value_counts().items()) + "."
    return "\n".join(lines)


def _verdict(comparison: Comparison) -> str:
    average = comparison.average()
    best, sets = average.index[0], len(comparison.sets)
    places = {column: int(average[column].rank(method="min").get(REFERENCE, 0)) for column in average}
    text = f"Over {sets} data sets and three metrics, the best average rank of {len(average)} methods is "
    text += f"{average['overall'].iloc[0]:.2f}: **{METHODS[best].title}**."
    if REFERENCE in average.index and best != REFERENCE:
        text += f" MetricClassifier comes {_ordinal(places['overall'])} with {average.loc[REFERENCE, 'overall']:.2f}."
    if REFERENCE in average.index:
        named = ", ".join(f"{_ordinal(places[m])} for {TITLES[m]}" for m in METRICS)
        text += f" By metric it is {named}."
    if level := comparison.level_with(best):
        names = "; ".join(METHODS[name].title for name in average.index if name in level)
        text += f" Not to be told apart from the first (ranks less than two standard errors away): {names}."
    text += " Ranks are of the means over splits, set by set; ties share the mean of their ranks."
    if left_out := [name for name in DATASETS if name not in comparison.sets and REFERENCE in average.index]:
        text += (
            f"\n\n**Not in the ranking**, as not all methods have run on them yet: {', '.join(left_out)}. The ranking "
            "may change with them, above all where they are larger than the others."
        )
    few = _too_few(comparison)
    if len(few):
        text += (
            f"\n\n**Preliminary**: on {len(few)} of the {sets} sets all methods share only {_span(few)} of "
            f"{ENOUGH_SPLITS} splits; their means are noisy. `make bench-suite` goes on from here."
        )
    return text


def _too_few(comparison: Comparison) -> pd.Series:
    """Numbers of splits that all methods share, of the sets where they are less than planned."""
    planned = pd.Series({name: PLANNED_SPLITS.get(name, ENOUGH_SPLITS) for name in comparison.splits.index})
    return comparison.splits[comparison.splits < planned]


def _span(counts: pd.Series) -> str:
    least, most = int(counts.min()), int(counts.max())
    return str(most) if least == most else f"{least} to {most}"


def _ordinal(n: int) -> str:
    suffix = "th" if 10 <= n % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{suffix}"


def _rank_table(rows: pd.DataFrame, comparison: Comparison) -> str:
    average, error = comparison.average(), comparison.error()
    here = rows[rows["dataset"].isin(comparison.sets)]
    seconds = here.groupby(["method", "dataset"], observed=True)["cpu_seconds"].mean().groupby("method").median()
    lines = ["| method | overall | " + " | ".join(TITLES[m] for m in METRICS) + " | seconds a fit |"]
    lines += ["|---|" + "---|" * (len(METRICS) + 2)]
    for method in average.index:
        title = f"**{METHODS[method].title}**" if method == REFERENCE else METHODS[method].title
        overall = f"{average.loc[method, 'overall']:.2f}"
        if len(comparison.sets) > 1:
            overall += f" ± {error.loc[method, 'overall']:.2f}"
        cells = [f"{average.loc[method, m]:.2f}" for m in METRICS]
        lines.append(f"| {title} | {overall} | {' | '.join(cells)} | {seconds[method]:.1f} |")
    lines += [
        "",
        "± is the standard error over data sets. Seconds: processor time on one thread, folds and rule included, ",
    ]
    lines[-1] += "median over data sets."
    return "\n".join(lines)


def _difference_table(rows: pd.DataFrame) -> str:
    lines = [
        "## Paired differences",
        "",
        "MetricClassifier minus the other method on the same splits, in points: mean over data sets ± its standard "
        "error, and on how many sets it is better / equal / worse.",
        "",
        "| MetricClassifier against | " + " | ".join(TITLES[m] for m in METRICS) + " |",
        "|---|" + "---|" * len(METRICS),
    ]
    for method in METHODS:
        if method == REFERENCE or method not in set(rows["method"]):
            continue
        cells = []
        for metric in METRICS:
            table = differences(rows, metric, method)
            if table.empty:
                cells.append("")
                continue
            mean, error = 100 * table["mean"].mean(), 100 * table["mean"].sem()
            spread = f" ± {error:.1f}" if len(table) > 1 else ""
            cells.append(f"{mean:+.1f}{spread} ({' / '.join(map(str, verdicts(table)))})")
        lines.append(f"| {METHODS[method].title} | {' | '.join(cells)} |")
    for method in coverage(rows).columns:
        if method not in main_methods(rows):
            lines += ["", f"{METHODS[method].title} is unfinished: {_part_that_was_run(rows, method)}."]
    return "\n".join(lines)


def _part_that_was_run(rows: pd.DataFrame, method: str) -> str:
    splits = rows[rows["method"] == method].groupby(["metric", "dataset"], observed=True)["split"].nunique()
    parts = [(TITLES[m], splits[m]) for m in METRICS if m in splits.index.get_level_values(0)]
    return "; ".join(f"{title} on {len(some)} sets, {_span(some)} splits" for title, some in parts)


def _set_table(rows: pd.DataFrame, dataset: str) -> str:
    here = rows[rows["dataset"] == dataset]
    first = here.iloc[0]
    capped = "" if first["configuration"] == "full" else ", capped"
    size = f"{here['train_rows'].max():,} training rows{capped}, {first['test_rows']:,} test rows"
    lines = [f"<details><summary>{dataset}: {first['classes']} classes, {size}</summary>", ""]
    lines += ["| method | " + " | ".join(TITLES[m] for m in METRICS) + " | splits | seconds a fit |"]
    lines += ["|---|" + "---|" * (len(METRICS) + 2)]
    wide = {metric: scores(here, metric) for metric in METRICS}
    best = {metric: table.mean().max() for metric, table in wide.items()}
    for method in METHODS:
        mine = here[here["method"] == method]
        if mine.empty:
            continue
        cells = []
        for metric in METRICS:
            values = 100 * wide[metric].get(method, pd.Series(dtype=float)).dropna()
            if values.empty:
                cells.append("")
                continue
            text = f"{values.mean():.1f} ± {values.sem():.1f}" if len(values) > 1 else f"{values.mean():.1f}"
            cells.append(f"**{text}**" if values.mean() >= 100 * best[metric] - 1e-9 else text)
        splits = mine.groupby("metric")["split"].nunique().min()
        lines.append(f"| {METHODS[method].title} | {' | '.join(cells)} | {splits} | {mine['cpu_seconds'].mean():.1f} |")
    return "\n".join([*lines, "", "</details>"])
