"""A cut-off is chosen on rows that one fold's models scored each; which mean of the folds' models does it fit?

    METRICFIT_DATA=../shared/data METRICFIT_KEPT=cache/rules python -m benchmarks.decisions.shipped --splits 10
    METRICFIT_DATA=../shared/data python -m benchmarks.decisions.shipped --classifier 10 20
    METRICFIT_DATA=../shared/data python -m benchmarks.decisions.shipped --classifier 20 60 --alone

Scores are those of ``kept.py`` with 2,000 training rows, on ten real tables. Weights of forest and boosting are chosen
on log-loss as in the package, cut-offs by ``best_threshold`` on out-of-fold scores, with and without a confidence of 95
%. Rivals are single models: the folds' mean, and one model that was fitted on all training rows, each with a cut-off of
its own. With ``--classifier`` nothing is put together here: a ``MetricClassifier`` of boosting and logistic regression
with ``confidence=0.95`` is fitted on splits of its own and judged on up to 10,000 test rows. Then a simulation in which
everything is known. Writes shipped.csv, classifier.csv and shipped.md beside itself.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import binom, binomtest
from sklearn.linear_model import LogisticRegression

from benchmarks.decisions.kept import LARGE, MEMBERS, Unit, rows_of_split, units
from metricfit import MetricClassifier, metrics
from metricfit.decisions import InfeasibleError, best_threshold
from metricfit.ensemble import HeldOut, _held_out, choose_ensemble, log_loss_weights, mean_of
from metricfit.models.portfolio import pooled

HERE = Path(__file__).parent
BOUND = 0.9
ASKED = {"recall": (f"precision subject to recall >= {BOUND}", BOUND), "f1": ("f1", 0.0), "mcc": ("mcc", 0.0)}
SIMULATED, FOLDS = 1000, 5
ALONE = "logistic regression as the whole portfolio"

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


class Opened(MetricClassifier):
    """A ``MetricClassifier`` that keeps its folds and models."""

    def _keep(self, folds: Any, begun: Any, fitted: Any, asked: Any) -> None:
        super()._keep(folds, begun, fitted, asked)
        self.folds_, self.fitted_ = folds, fitted


def of_classifier(first: int, last: int, alone: bool) -> None:
    """One row per table, split and way that classifier.csv has not yet: the classifier, and each model by itself.

    ``alone`` is the cheap one: logistic regression is the whole portfolio.
    """
    path = HERE / "classifier.csv"
    rows = pd.read_csv(path).to_dict("records") if path.exists() else []
    known = {(row["table"], row["split"]) for row in rows}
    for split, name in itertools.product(range(first, last), LARGE):
        if (name, split) in known:
            continue
        X, X_test, y, y_test = rows_of_split(name, 2000, split, 10_000)
        how: dict[str, Any] = {"baseline": False, "verbose": False, "n_jobs": 1, "random_state": split}
        models = [LogisticRegression(max_iter=1000), *([] if alone else ["boosting"])]
        clf = Opened(ASKED["recall"][0], models=models, confidence=0.95, **how).fit(X, y)
        held = _held_out(clf.folds_, {model.name: np.concatenate(model.held_out) for model in clf.fitted_})
        decided = {ALONE if alone else "portfolio": clf.predict(X_test)}
        for model in [] if alone else clf.fitted_:
            rule = choose_ensemble(held.of(model.name), clf.metric_, confidence=0.95).rule
            decided[model.name] = rule.decide(model.predict(clf._table(X_test)))
        if not alone:
            best = next(model for model in clf.leaderboard_["model"] if model != "portfolio")
            decided["best single model"] = decided[best]  # on held-out rows
        for way, called in decided.items():
            hits, positives = int((called * y_test).sum()), int(y_test.sum())
            rows.append({"table": name, "split": split, "model": way, "positives": positives, "hits": hits,
                         "called": int(called.sum())})  # fmt: skip
        pd.DataFrame(rows).to_csv(path, index=False)


def share(hits: int, of: int) -> str:
    """A share with its 95 % interval (Clopper and Pearson)."""
    found = binomtest(hits, of).proportion_ci(0.95)
    return f"{hits} of {of} ({found.low:.1%} to {found.high:.1%})"


def kept_promises(frame: pd.DataFrame, fitted: pd.DataFrame) -> list[str]:
    """How often a recall that was promised at 95 % is there on test rows, and the precision beside single models."""
    own = frame[(frame["confidence"] > 0) & (frame["model"] == "portfolio") & (frame["mean of"] == "log-odds")]
    held, missed = (share(int(own[c].sum()), len(own)) for c in ("held", "missed"))
    fitted = fitted.assign(
        recall=fitted["hits"] / fitted["positives"], precision=100 * fitted["hits"] / fitted["called"]
    )
    wide = fitted.pivot_table("precision", "table", "model")
    lines = ["", "## Where a confidence of 95 % is asked for", "",
             "Splits with a recall of 0.9 on test rows. *Missed*: by more than chance (binomial, 5 %). Precision in",
             "points, and the portfolio's less it: mean over tables ± standard error over tables. The first row is of",
             "the splits above (forest and boosting); the others are what `MetricClassifier(confidence=0.95)` of",
             "boosting and logistic regression ships on the same tables, and its models by themselves.", "",
             "| model | splits | recall | held | missed | precision | less |", "|---|---:|---:|---:|---:|---:|---:|",
             f"| portfolio, above | {len(own)} | {own['recall'].mean():.3f} | {held} | {missed} |  |  |"]  # fmt: skip
    for model, part in fitted.groupby("model", sort=False):
        far = binom.cdf(part["hits"], part["positives"], BOUND) < 0.05
        gap = wide["portfolio"] - wide[model]
        cells = [str(model), str(len(part)), f"{part['recall'].mean():.3f}"]
        cells += [share(int((part["recall"] >= BOUND).sum()), len(part)), share(int(far.sum()), len(part))]
        less = "" if model == ALONE else f"{gap.mean():+.1f} ± {gap.sem():.1f}"  # other splits
        lines.append(f"| {' | '.join(cells)} | {wide[model].mean():.1f} | {less} |")
    shipped = fitted[fitted["model"].isin(["portfolio", ALONE])]
    total = int(own["held"].sum() + (shipped["recall"] >= BOUND).sum()), len(own) + len(shipped)
    return [*lines, "", f"All that ships together: held in {share(*total)}."]


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


def page(frame: pd.DataFrame, known: pd.DataFrame, fitted: pd.DataFrame) -> str:
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
    lines += kept_promises(frame, fitted)
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
    parser.add_argument("--splits", type=int, default=0)
    parser.add_argument("--classifier", type=int, nargs=2, default=(0, 0), help="the first split, and the last but one")
    parser.add_argument("--alone", action="store_true", help="logistic regression as the whole portfolio")
    options, path = parser.parse_args(), HERE / "shipped.csv"
    of_classifier(*options.classifier, options.alone)
    if options.splits:
        frame = pd.DataFrame([row for unit in units(2000, options.splits) for row in rows_of(unit)])
        frame.round(5).to_csv(path, index=False)
    parts = pd.read_csv(path), simulated(), pd.read_csv(HERE / "classifier.csv")
    (HERE / "shipped.md").write_text(page(*parts), encoding="utf-8")


if __name__ == "__main__":
    main()
