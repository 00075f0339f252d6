"""A recall that is promised at 95 %: is it there in 95 % of the fits, where the true recall is known well?

    METRICFIT_DATA=../shared/data python -m benchmarks.decisions.promise --splits 0 18 --draws 500
    METRICFIT_DATA=../shared/data python -m benchmarks.decisions.promise --splits 100 136 --alone

The promise is about the recall on endless new rows, not about the share found in one test set, which lies below the
true recall as often as above. So the ten tables are large, of each only 1,000 to 20,000 rows are fitted on, and the
test set has 13 to 51 times as many positives. Ways: what ``MetricClassifier(confidence=0.95)`` of boosting and
logistic regression ships, each of its models by itself with the same promise, the one of them that is best on held-out
rows, and (``--alone``) logistic regression as the whole portfolio. Then a simulation in which the recall is known
exactly: two normal classes, logistic regression on five folds. Nothing is chosen here. Writes promise.csv,
simulated.csv and promise.md beside itself.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import beta, betabinom, binom, norm
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, train_test_split

from benchmarks.data import load
from benchmarks.decisions.shipped import ALONE, ASKED, BOUND, Opened, share
from metricfit.decisions import best_threshold
from metricfit.ensemble import _held_out, choose_ensemble, mean_of

HERE = Path(__file__).parent
SPEC, CONFIDENCE, MOST = ASKED["recall"][0], 0.95, (5_000, 20_000)
TABLES: dict[str, tuple[int, str]] = {
    "adult": (2000, "1"), "diabetes_prediction": (2000, "1"), "krkopt": (2000, "3"), "letter": (1000, "18"),
    "connect4": (2000, "0"), "fars": (2000, "6"), "shuttle": (2000, "4"), "kddcup99_10pct": (2000, "11"),
    "fashion_mnist": (2000, "6"), "creditcard": (20_000, "1"),
}  # fmt: skip
"""Rows to fit on, and the positive class; all tables of 20,000 rows and more."""
SETTINGS = [(300, 0.2, 5, 2.0), (300, 0.3, 60, 1.0), (1000, 0.1, 5, 2.0), (1000, 0.1, 50, 2.0), (1000, 0.04, 5, 3.0),
            (2000, 0.05, 100, 2.0), (4000, 0.25, 50, 1.5)]  # fmt: skip
"""Simulated: rows, share of positives, columns, and how many standard deviations the classes lie apart."""

Array = NDArray[np.float64]


@cache
def table(name: str) -> tuple[Any, NDArray[np.int64]]:
    """Features, and 1 for the positive class; images as means of 4 x 4 pixels."""
    data = load(name)
    X, y = data.X, (np.asarray(data.y).astype(str) == TABLES[name][1]).astype(np.int64)
    if name == "fashion_mnist":
        small = np.asarray(X).reshape(len(y), 7, 4, 7, 4).mean(axis=(2, 4)).reshape(len(y), 49)
        X = pd.DataFrame(small.astype(np.float32), columns=[f"pixel{i}" for i in range(49)])
    return X, y


def of_table(name: str, split: int, alone: bool) -> list[dict[str, Any]]:
    """One row per way: what it finds among test rows, at most ``MOST`` negatives and positives."""
    X, y = table(name)
    train, rest = train_test_split(np.arange(len(y)), train_size=TABLES[name][0], stratify=y, random_state=split)
    found, others = (np.random.default_rng(split).permutation(rest[y[rest] == k])[: MOST[k]] for k in (1, 0))
    stand_for = (y[rest] == 0).sum() / len(others) / ((y[rest] == 1).sum() / len(found))
    how: dict[str, Any] = {"baseline": False, "verbose": False, "n_jobs": 1, "random_state": split}
    models = [LogisticRegression(max_iter=1000), *([] if alone else ["boosting"])]
    clf = Opened(SPEC, models=models, confidence=CONFIDENCE, **how).fit(X.iloc[train], y[train])
    proba = {model.name: model.predict(clf._table(X.iloc[np.append(found, others)])) for model in clf.fitted_}
    decided = {ALONE if alone else "portfolio": clf.decision_rule_.decide(mean_of(proba, clf.weights_))}
    if not alone:
        held = _held_out(clf.folds_, {model.name: np.concatenate(model.held_out) for model in clf.fitted_})
        for model in proba:
            rule = choose_ensemble(held.of(model), clf.metric_, confidence=CONFIDENCE).rule
            decided[model] = rule.decide(proba[model])
        decided["best single model"] = decided[next(m for m in clf.leaderboard_["model"] if m != "portfolio")]
    return [
        {"table": name, "split": split, "model": way, "fitted": int(y[train].sum()), "positives": len(found),
         "hits": int(called[: len(found)].sum()), "false": round(float(called[len(found) :].sum() * stand_for), 1)}
        for way, called in decided.items()
    ]  # fmt: skip


def allowed(fitted: NDArray[Any]) -> NDArray[Any]:
    """How many of so many positives a cut-off may miss (Clopper and Pearson)."""
    return fitted - binom.isf(1 - CONFIDENCE, fitted, BOUND).astype(int) - 1


def expected(fitted: Any, positives: Any) -> tuple[Array, Array]:
    """How often a cut-off for scores of one fixed model holds: truly, and on so many test positives.

    The recall at an order statistic of the positives has a beta distribution, what is missed of a test set is
    beta-binomial.
    """
    fitted, positives = np.asarray(fitted), np.asarray(positives)
    below = allowed(fitted) + 1
    truly = beta.cdf(1 - BOUND, below, fitted - below + 1)
    return truly, betabinom.cdf(np.floor(positives * (1 - BOUND) + 1e-9), positives, below, fitted - below + 1)


def simulated(rows: int, positive: float, columns: int, apart: float, rng: np.random.Generator) -> dict[str, float]:
    """The true recall of the mean of five folds' logistic regressions at the cut-off that was promised for 0.9."""
    y = rng.permutation((np.arange(rows) < round(rows * positive)).astype(int))
    centre = np.where(np.arange(columns) < 5, apart / np.sqrt(5), 0.0)
    X = rng.normal(size=(rows, columns)) + np.outer(y, centre)
    held, lines = np.empty(rows), list[Array]()
    for train, test in StratifiedKFold(5, shuffle=True, random_state=int(rng.integers(1 << 30))).split(X, y):
        model = LogisticRegression(max_iter=1000).fit(X[train], y[train])
        held[test] = model.decision_function(X[test])
        lines.append(np.append(model.coef_[0], model.intercept_[0]))
    cut = best_threshold(y, held, SPEC, confidence=CONFIDENCE, belief=1.0).threshold
    each = np.array([*lines, np.mean(lines, axis=0)])
    called = norm.cdf((each[:, :-1] @ np.array([centre, 0 * centre]).T + each[:, -1:] - cut)
                      / np.linalg.norm(each[:, :-1], axis=1)[:, None])  # fmt: skip
    return {"recall": called[-1, 0], "false alarms": called[-1, 1], "of one fold": called[:-1, 0].mean()}


def page(frame: pd.DataFrame, known: pd.DataFrame, before: pd.DataFrame) -> str:
    """What was found, in words and tables."""
    precision = 100 * frame["hits"] / (frame["hits"] + frame["false"])
    frame = frame.assign(recall=frame["hits"] / frame["positives"], precision=precision)
    frame["far"] = binom.cdf(frame["hits"], frame["positives"], BOUND) < 0.05
    frame["truly"], frame["on_test"] = expected(frame["fitted"], frame["positives"])
    frame["held"] = frame["recall"] >= BOUND
    wide, ways = frame.pivot_table("precision", "table", "model"), [*dict.fromkeys(frame["model"])]
    fits = frame.drop_duplicates(["table", "split"]).groupby("table").size()
    shipped = frame[frame["model"].isin(["portfolio", ALONE])]
    lines = [
        "# Is a promise kept?", "",
        f"{frame['table'].nunique()} tables of 20,000 to 494,020 rows, at least {fits.min()} fits of each, on",
        "1,000 to 20,000 rows; precision subject to a recall of 0.9 at a confidence of 95 %. The promise is about the",
        "recall on endless new rows. *Held*: the share found of the test positives is at least 0.9. *Expected*: how",
        "often that would be so for a cut-off that was chosen on as many positives for a model that never saw them;",
        "truly such a cut-off holds in the share of the last column, and the difference is the noise of the test set.",
        "*Missed*: below 0.9 by more than that noise (binomial, 5 %). Made by `promise.py`.", "",
        "| model | fits | recall | held | expected | missed | truly, for a fixed model |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]  # fmt: skip
    for name, own in [("all that ships", shipped), *((way, frame[frame["model"] == way]) for way in ways)]:
        cells = [name, str(len(own)), f"{own['recall'].mean():.3f}", share(int(own["held"].sum()), len(own))]
        cells += [f"{own['on_test'].mean():.1%}", share(int(own["far"].sum()), len(own)), f"{own['truly'].mean():.1%}"]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "Precision in points, mean over tables, and the portfolio's less it ± standard error over tables:",
        "",
    ]
    lines += ["| model | precision | less | tables better |", "|---|---:|---:|---:|"]
    for way in ways:
        if way != ALONE:
            gap = (wide["portfolio"] - wide[way]).dropna()
            better = "" if way == "portfolio" else f"{(gap > 0).sum()} of {len(gap)}"
            lines.append(f"| {way} | {wide[way].mean():.1f} | {gap.mean():+.2f} ± {gap.sem():.2f} | {better} |")
    lines += ["", "Table by table, of what ships:", "",
              "| table | positives fitted on | tested on | held | expected | missed | least recall |",
              "|---|---:|---:|---:|---:|---:|---:|"]  # fmt: skip
    for name, own in shipped.groupby("table", sort=False):
        cells = [str(name), f"{own['fitted'].iloc[0]}", f"{own['positives'].iloc[0]:,}"]
        cells += [f"{own['held'].sum()} of {len(own)}", f"{own['on_test'].mean():.1%}"]
        lines.append(f"| {' | '.join(cells)} | {own['far'].sum()} | {own['recall'].min():.3f} |")
    truly, on_test = expected(before["fitted"], before["positives"])
    held = share(int((before["hits"] >= BOUND * before["positives"]).sum()), len(before))
    lines += [
        "", f"The same for the {len(before)} fits of `MetricClassifier` in [shipped.md](shipped.md), whose tables have",
        f"as few as {before['positives'].min()} test positives: held in {held}; {on_test.mean():.1%} is expected,",
        f"where {truly.mean():.1%} hold truly.", "", "## Where the recall is known exactly", "",
        "Two normal classes in so many columns, five of which differ; logistic regression on five folds, a cut-off",
        "from its out-of-fold scores, decisions by the mean of the five log-odds. *Fixed*: the share for a model that",
        "never saw the rows, exactly.", "",
        "| rows | positives | columns | apart | draws | recall | held | fixed | false alarms |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]  # fmt: skip
    for (rows, positive, columns, apart), own in known.groupby(["rows", "positive", "columns", "apart"], sort=False):
        held, fixed = share(int((own["recall"] >= BOUND).sum()), len(own)), expected(round(rows * positive), 1)[0]
        cells = [f"{rows:,}", f"{positive:.0%}", str(columns), str(apart), str(len(own)), f"{own['recall'].mean():.3f}"]
        cells += [f"{(own['recall'] >= BOUND).mean():.1%} ({held.split(' (')[1]}", f"{float(fixed):.1%}"]
        lines.append(f"| {' | '.join(cells)} | {own['false alarms'].mean():.3f} |")
    return "\n".join(lines) + "\n"


def earlier() -> pd.DataFrame:
    """What ships in the rows of classifier.csv, which were fitted on 2,000 rows of smaller tables, too."""
    from benchmarks.decisions.kept import LARGE, rows_of_split

    rows = pd.read_csv(HERE / "classifier.csv")
    fitted = {name: int(rows_of_split(name, 2000, 0, 10_000)[2].sum()) for name in LARGE}
    return rows[rows["model"].isin(["portfolio", ALONE])].assign(fitted=lambda found: found["table"].map(fitted))


def main() -> None:
    """Fit what is not there, simulate, write."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("--splits", type=int, nargs=2, default=(0, 0), help="the first split, and the last but one")
    parser.add_argument("--alone", action="store_true", help="logistic regression as the whole portfolio")
    parser.add_argument("--draws", type=int, default=0, help="simulate so many, anew")
    options, path, drawn = parser.parse_args(), HERE / "promise.csv", HERE / "simulated.csv"
    rows = pd.read_csv(path).to_dict("records") if path.exists() else []
    known = {(row["table"], row["split"]) for row in rows}
    for split, name in itertools.product(range(*options.splits), TABLES):
        if (name, split) not in known:
            rows += of_table(name, split, options.alone)
            pd.DataFrame(rows).to_csv(path, index=False)
    if options.draws:
        rng, names = np.random.default_rng(0), ("rows", "positive", "columns", "apart")
        found = [dict(zip(names, each, strict=True)) | simulated(*each, rng)
                 for each in SETTINGS for _ in range(options.draws)]  # fmt: skip
        pd.DataFrame(found).round(5).to_csv(drawn, index=False)
    parts = pd.read_csv(path), pd.read_csv(drawn), earlier()
    (HERE / "promise.md").write_text(page(*parts), encoding="utf-8")


if __name__ == "__main__":
    main()
