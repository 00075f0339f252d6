"""``docs/results.md`` and the numbers of other pages: everything in them comes from the committed rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from benchmarks.suite.fits import AUTOGLUON_SECONDS, METRICS, PATIENCE, ROUNDS
from benchmarks.suite.methods import CANDIDATES, MEMBERS, METHODS, PICK, PORTFOLIO, title
from benchmarks.suite.plots import TITLES, picture
from benchmarks.suite.results import read
from benchmarks.suite.summary import Difference, behind, coverage, difference, main_methods, ranks, values, with_pick
from benchmarks.suite.tables import MOST_TRAIN_ROWS, TABLES, names

__all__ = ["write_marked", "write_report"]

RIVALS = {PICK: "the careful user's pick", "catboost": "CatBoost with the best rule"}
"""With whom the first sentences compare, and what they call them."""

FORMER = {"b271607219", "04c54f2c35"}
"""Commits of rows from before two defaults changed."""

SHORT = (PORTFOLIO, "with_catboost", "network", PICK, "catboost", "lightgbm", "xgboost", "forest", "network_ce")
"""The rows of the table in the README."""

_PROTOCOL = f"""\
## Protocol

* **Tables.** Forty real tables, named before anything was measured on them, in two halves
  (`benchmarks/suite/tables.py`). Members, combination and rule of the portfolio were chosen on the half "choose"
  (`benchmarks/portfolio`); everything on this page is measured on the half "claim", unless it says otherwise.
  Tables marked * were, in some version, in an earlier suite on which defaults of the networks had been chosen.
* **Splits.** Stratified, seven tenths to train on and three tenths to test on, the same for all methods; training
  rows above {MOST_TRAIN_ROWS:,} are sampled. Ten splits are planned, three for tables above 20,000 rows; the tables
  say how many there are. ± is the standard error over tables of the mean over splits, not over splits: splits of
  one table share rows.
* **Metrics.** F1 is the positive class's with two classes and the macro average with more. All values are in points
  (× 100).
* **Models.** Each method is five models, one per fold; test probabilities are their mean. All share the folds.
  CatBoost, LightGBM and XGBoost get categories as such, have their library's default trees (LightGBM: learning
  rate 0.05, leaves of 5 rows, samples of 0.8; XGBoost: learning rate 0.1), at most {ROUNDS} rounds, and stop when
  the held-out fold's log-loss has not improved for {PATIENCE}. HistGradientBoosting, random forest, extra trees
  and the cross-entropy network are the members of the portfolio, alone; logistic regression gets the network's
  features. LGBM-TD, XGB-TD, CatBoost-TD, RealMLP-TD and TabM-D are pytabkit's tuned defaults (tuned by their
  authors on tables of 1,000 rows and more), stopped by log-loss on the held-out fold (RealMLP without label
  smoothing, as its authors advise for that). Two rivals were set anew after first rows of this half had shown
  them to be weak, and both gained: LightGBM, by settings compared on the half "choose", and pytabkit's models,
  which stop by the error rate if nothing is said.
* **Rule.** Every one of them decides by the best rule that we know, metricfit's own: offsets tuned for the metric
  on calibrated out-of-fold probabilities. It suits single models too: on nine tables of the half "choose" it is
  on average better than tuning on labels for each of six models (from +0.3 ± 0.3 points for CatBoost to +2.8 ±
  1.1 for HistGradientBoosting; `benchmarks/suite/rules.csv`). The exceptions are `models="network"`, which is
  trained on the metric and decides by arg max, and AutoGluon (preset `good_quality` without dynamic stacking),
  which is given the metric as `eval_metric`, {AUTOGLUON_SECONDS} seconds of wall time and one core, and decides
  by itself.
* **The careful user's pick** is the best of {{candidates}}, by the metric out of fold, each fold decided by a rule
  tuned on the others.
* **MetricClassifier.** Its members other than the metric-trained network do not depend on the metric, so they were
  fitted once for all three; weights and rule come from the package's `choose_ensemble`. That gives, bit for bit,
  what `MetricClassifier(metric, random_state=split).fit(X, y)` gives (`tests/benchmarks/test_suite.py` checks it).
* **CatBoost as a sixth model** was chosen on the half "choose": on 32 splits of 16 tables +0.5 ± 0.4 points to the
  portfolio and +1.0 ± 0.4 to the careful user's pick (LightGBM -0.1 ± 0.1 and XGBoost +0.2 ± 0.3 to the portfolio;
  `benchmarks/suite/members.csv`). Rows of CatBoost alone on the half "claim" had been seen by then.
* **Versions.** Since the first rows two defaults have changed: boosting has an L2 penalty of 1
  (`benchmarks/portfolio/README.md`), and a model of metricfit pools its folds by their log-odds, where the rivals have
  the mean of probabilities (0.0 ± 0.1 points on these metrics, `benchmarks/decisions/shipped.md`). {{versions}}
  CatBoost, LightGBM and XGBoost, run again on teaching and new_thyroid, gave the same values.
* **Seconds** are of one core, folds and rule included, for one metric; the median over tables of the mean over
  splits."""

_ADD = """\
## Add a method

Write a function `(part) -> (held-out probabilities, test probabilities)` into `FITS` of `benchmarks/suite/fits.py`, a
line into `METHODS` of `benchmarks/suite/methods.py`, and run

```
make bench-suite SUITE="--methods mine"
```

It computes what is missing and writes this page. Predictions are kept in `$METRICFIT_CACHE/predictions`, so that
another rule (`SUITE="--rescore mine"`) needs no training. The rows are in `benchmarks/suite/results/`: one CSV file per
table with value, out-of-fold value, value of arg max, processor seconds, commit, libraries and machine."""


def write_report(results: Path, docs: Path) -> str:
    """Write ``results.md`` and its picture; returns the text."""
    rows = _claim(results)
    images = docs / "images"
    images.mkdir(parents=True, exist_ok=True)
    ordered = _ordered(rows)
    picture(rows, ordered, images / "suite.png")
    parts = [
        "# Results on many tables",
        "<!-- Written by `python -m benchmarks.suite table`; do not edit by hand. -->",
        _sentence(rows),
        f"The careful user fits {len(CANDIDATES)} usual models, each decided by a tuned rule, and picks the one that "
        "is best out of fold.",
        "![Points above MetricClassifier](images/suite.png)",
        "## Ranks and differences",
        _main_table(rows, ordered),
        _partial_table(rows, [name for name in METHODS if name in set(rows["method"]) and name not in ordered]),
        _larger(rows),
        _losses(rows),
        _rule_table(rows, ordered),
        _PROTOCOL.format(candidates=_listed([title(name) for name in CANDIDATES], "and"), versions=_versions(rows)),
        _what_was_run(rows),
        _ADD,
        "## Table by table",
        *(_of_table(rows, name) for name in rows["table"].cat.categories if (rows["table"] == name).any()),
    ]
    text = "\n\n".join(part.strip() for part in parts if part) + "\n"
    (docs / "results.md").write_text(text)
    return text


def write_marked(results: Path, root: Path) -> None:
    """Put numbers between the marks of the README and of the guide on cross-entropy."""
    rows = _claim(results)
    _mark(root / "README.md", f"{_sentence(rows)}\n\n{_main_table(rows, _ordered(rows), short=True)}")
    _mark(root / "docs" / "guides" / "cross-entropy.md", fallback_table(rows))


def _mark(page: Path, made: str) -> None:
    before, marks, after = re.split(r"(<!-- suite -->.*<!-- /suite -->)", page.read_text(), flags=re.S)
    page.write_text(before + marks[: len("<!-- suite -->")] + f"\n\n{made}\n\n<!-- /suite -->" + after)


def fallback_table(rows: pd.DataFrame) -> str:
    """What cross-entropy with a tuned rule would have gained on networks trained on the metric."""
    gains: dict[str, list[pd.Series]] = {"always": [], "where it is better on held-out rows": []}
    for metric in METRICS:
        value, held_out = values(rows, metric), values(rows, metric, "held_out")
        gain = value["network_ce"] - value["network"]
        gains["always"].append(gain)
        better = held_out["network_ce"] > held_out["network"]
        gains["where it is better on held-out rows"].append(gain.where(better | gain.isna(), 0.0))
    heads = ["cross-entropy instead", *(TITLES[m] for m in METRICS), "all three"]
    lines = [_line(heads), "|---" * len(heads) + "|"]
    for policy, parts in gains.items():
        means = [part.groupby("table", observed=True).mean().dropna() for part in (*parts, sum(parts) / len(parts))]
        lines.append(_line([policy, *(f"{m.mean():+.1f} ± {m.sem():.1f}" for m in means)]))
    tables = gains["always"][0].dropna().index.get_level_values("table").nunique()
    return "\n".join([*lines, "", f"{tables} tables, standard errors over tables."])


def _claim(results: Path) -> pd.DataFrame:
    """The rows of the half that the claim is measured on; all rows where there are none of it."""
    rows = read(results)
    rows = rows[rows["method"].isin(METHODS)]
    if PORTFOLIO not in set(rows["method"]):
        raise ValueError(
            f"results: {results} has no rows of {PORTFOLIO}; compute some: python -m benchmarks.suite run."
        )
    here = rows[rows["table"].isin(names("claim"))]
    return with_pick(here if len(here) else rows)


def _ordered(rows: pd.DataFrame) -> list[str]:
    """The methods that have all tables, the best mean rank first."""
    return list(ranks(rows, main_methods(rows)).mean().index)


def _sentence(rows: pd.DataFrame) -> str:
    """The answer in three sentences: differences to the rivals, ranks, and what is lost."""
    found = ranks(rows, main_methods(rows))
    mean, tables = found.mean(), len(found.splits)
    first = [f"{_place(mean[m], PORTFOLIO)} for {TITLES[m]}" for m in METRICS]
    fresh = " that the portfolio was not chosen on" if set(found.splits.index) <= set(names("claim")) else ""
    fewest, most = found.splits.min(), found.splits.max()
    span = f"{fewest} to {most} splits" if fewest < most else f"{most} split{'s' if most > 1 else ''}"
    on = f"On {tables} tables{fresh}, `MetricClassifier`"
    text = f"ranks {_listed(first, 'and')} among {len(mean)} methods ({span} of each table)."
    gaps = {rival: gap for rival in RIVALS if (gap := difference(rows, None, PORTFOLIO, rival))}
    if not gaps:
        return f"{on} {text}"
    said = [f"{gap} points from {RIVALS[rival]} ({_verdict(gap)})" for rival, gap in gaps.items()]
    worse = {r: set().union(*(behind(d) for m in METRICS if (d := difference(rows, m, PORTFOLIO, r)))) for r in gaps}
    lost = {rival: [name for name in names() if name in tables] for rival, tables in worse.items()}
    behind_on = [f"{_listed(tables, 'and') or 'no table'} ({RIVALS[rival]})" for rival, tables in lost.items()]
    together = _listed([TITLES[m] for m in METRICS], "and")
    return (
        f"{on} is {_listed(said, 'and')}, over {together} together. It {text} It is behind by more than 3 points for "
        f"some metric on {_listed(behind_on, 'and on')}."
    )


def _verdict(gap: Difference) -> str:
    """What two standard errors say."""
    return "ahead" if gap.mean > 2 * gap.error else "behind" if gap.mean < -2 * gap.error else "level"


def _place(ranked: pd.Series, method: str) -> str:
    place = int(ranked.rank(method="min")[method])
    word = {1: "first", 2: "second", 3: "third"}.get(place, f"{place}th")
    return f"{word} (mean rank {ranked[method]:.1f})"


def _listed(words: Sequence[str], last: str) -> str:
    return ", ".join(words[:-1]) + f" {last} {words[-1]}" if len(words) > 1 else "".join(words)


def _main_table(rows: pd.DataFrame, ordered: Sequence[str], *, short: bool = False) -> str:
    found = ranks(rows, ordered)
    mean, error = found.mean(), found.error()
    seconds = _seconds(rows)
    first = "MetricClassifier less the method, in points" if short else "method"
    heads = [first, f"mean rank of {len(ordered)}", *(TITLES[m] for m in METRICS), "all three", "CPU s"]
    lines = [_line(heads), "|---" * len(heads) + "|"]
    for method in ordered:
        if short and method not in SHORT:
            continue
        own = method == PORTFOLIO
        spread = f" ± {error.loc[method, 'all']:.1f}" if len(found.splits) > 1 else ""
        rank = f"{mean.loc[method, 'all']:.1f}{spread}"
        cells = ["" if own else str(difference(rows, m, PORTFOLIO, method)) for m in (*METRICS, None)]
        name = f"**{title(method)}**" if own else title(method)
        lines.append(_line([name, rank, *cells, f"{seconds[method]:.1f}"]))
    caption = (
        "Differences are `MetricClassifier` less the method, in points, mean over tables ± standard error over tables. "
        "Ranks are of the means over splits, table by table; ties share the mean of their ranks."
    )
    return "\n".join(lines if short else [*lines, "", caption])


def _seconds(rows: pd.DataFrame) -> pd.Series:
    return rows.groupby(["method", "table"], observed=True)["cpu_seconds"].mean().groupby("method").median()


def _partial_table(rows: pd.DataFrame, methods: Sequence[str]) -> str:
    if not methods:
        return ""
    heads = ["method", "tables", "splits", *(TITLES[m] for m in METRICS), "all three", "CPU s", "MetricClassifier's"]
    lines = ["Methods that cost more were run on some of the tables only; here on the splits that they have:", ""]
    lines += [_line(heads), "|---" * len(heads) + "|"]
    for method in methods:
        mine = rows[rows["method"] == method]
        units = mine[["table", "split"]].drop_duplicates()
        same = rows.merge(units, on=["table", "split"])
        same = same.assign(table=same["table"].astype(rows["table"].dtype))
        seconds = _seconds(same)
        cells = [str(difference(rows, m, PORTFOLIO, method)) for m in (*METRICS, None)]
        places = [str(mine["table"].nunique()), str(len(units))]
        lines.append(_line([title(method), *places, *cells, f"{seconds[method]:.1f}", f"{seconds[PORTFOLIO]:.1f}"]))
    named = sorted({str(name) for m in methods for name in rows.loc[rows["method"] == m, "table"]})
    return "\n".join([*lines, "", f"Tables: {', '.join(n for n in names() if n in named) or ', '.join(named)}."])


def _larger(rows: pd.DataFrame, method: str = "with_catboost") -> str:
    """What one more member brings, where its rows are there."""
    rivals = [rival for rival in (PORTFOLIO, *RIVALS) if difference(rows, None, method, rival)]
    if not rivals:
        return ""
    heads = ["less", *(TITLES[m] for m in METRICS), "all three"]
    lines = ["## With CatBoost among the models", "", f"`{title(method)}` less the others, in points:", ""]
    lines += [_line(heads), "|---" * len(heads) + "|"]
    for rival in rivals:
        lines.append(_line([title(rival), *(str(difference(rows, m, method, rival)) for m in (*METRICS, None))]))
    return "\n".join(lines)


def _losses(rows: pd.DataFrame) -> str:
    lines = [
        "## Where it loses",
        "",
        "Tables on which it is behind by more than 3 points, with standard errors over splits:",
        "",
    ]
    for rival in RIVALS:
        for metric in METRICS:
            found = difference(rows, metric, PORTFOLIO, rival)
            if found is None:
                continue
            cells = []
            for name, gap in behind(found).items():
                spread = f" ± {found.errors[name]:.1f}" if found.errors[name] == found.errors[name] else " (one split)"
                cells.append(f"{name} {gap:+.1f}{spread}")
            lines.append(f"* to {title(rival)}, {TITLES[metric]}: {', '.join(cells) or 'none'}")
    return "\n".join(lines)


def _rule_table(rows: pd.DataFrame, ordered: Sequence[str]) -> str:
    lines = ["## What the rule buys", "", "The tuned rule less arg max, the same models, in points:", ""]
    heads = ["method", *(TITLES[m] for m in METRICS)]
    lines += [_line(heads), "|---" * len(heads) + "|"]
    for method in ordered:
        if method == PICK or not METHODS[method].tuned:
            continue
        cells = []
        for metric in METRICS:
            gap = (values(rows, metric)[method] - values(rows, metric, "arg_max")[method]).groupby(
                "table", observed=True
            )
            by_table = gap.mean().dropna()
            cells.append(f"{by_table.mean():+.1f}" + (f" ± {by_table.sem():.1f}" if len(by_table) > 1 else ""))
        lines.append(_line([title(method), *cells]))
    return "\n".join(lines)


def _versions(rows: pd.DataFrame) -> str:
    """On which tables MetricClassifier and its members alone have today's defaults."""
    own = rows[rows["method"].isin({PORTFOLIO, "with_catboost", "logistic", *MEMBERS})]
    old = own["commit"].str.split().map(lambda commits: bool(FORMER.intersection(commits)))
    former = set(own.loc[old, "table"])
    fresh = [str(name) for name in rows["table"].cat.categories if name in set(own["table"]) - former]
    if not fresh:
        return "These rows have neither."
    if not former:
        return "All rows have both."
    return f"The rows of {_listed(fresh, 'and')} have both, those of the other tables neither."


def _what_was_run(rows: pd.DataFrame) -> str:
    counts = coverage(rows)
    main = [name for name in main_methods(rows) if name != PICK]
    fewest, most = counts[main].min(axis=1), counts[main].max(axis=1)
    spans = [f"{n} {a}" if a == b else f"{n} {a} to {b}" for n, a, b in zip(counts.index, fewest, most, strict=True)]
    text = f"## What was run\n\nSplits, by table: {', '.join(spans)}."
    if missing := [name for name in names("claim") if name not in counts.index]:
        text += f" **Not run yet:** {', '.join(missing)}."
    if absent := [title(name) for name in METHODS if name not in set(rows["method"])]:
        text += f" Methods without any row yet: {', '.join(absent)}."
    own = rows["commit"].value_counts()
    machines, libraries = ("; ".join(sorted(set(rows[column]))) for column in ("machine", "libraries"))
    text += f"\n\nMachine: {machines}. Libraries: {libraries}."
    return text + f" Commits of metricfit: {', '.join(f'`{c}` ({n} rows)' for c, n in own.items())}."


def _of_table(rows: pd.DataFrame, name: str) -> str:
    here = rows[rows["table"] == name]
    first, known = here.iloc[0], TABLES.get(name)
    what = f" ({known.predicts}){' *' if known.earlier else ''}" if known else ""
    size = f"{first['classes']} classes, {first['train_rows']:,} training rows, {first['test_rows']:,} test rows"
    heads = ["method", *(TITLES[m] for m in METRICS), "splits", "CPU s"]
    lines = [f"<details><summary>{name}{what}: {size}</summary>", "", _line(heads), "|---" * len(heads) + "|"]
    wide = {metric: values(here, metric) for metric in METRICS}
    for method in (PORTFOLIO, PICK, *METHODS):
        mine = here[here["method"] == method]
        if mine.empty or (method == PORTFOLIO and len(lines) > 4):
            continue
        cells = []
        for table in wide.values():
            found = table[method].dropna()
            text = f"{found.mean():.1f}" + (f" ± {found.sem():.1f}" if len(found) > 1 else "")
            cells.append(f"**{text}**" if found.mean() >= table.mean().max() - 1e-9 else text)
        lines.append(_line([title(method), *cells, str(mine["split"].nunique()), f"{mine['cpu_seconds'].mean():.1f}"]))
    return "\n".join([*lines, "", "</details>"])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
