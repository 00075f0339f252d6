"""The page: what is on it, gathered from a classifier and held-out scores, and one HTML file that loads nothing."""

from __future__ import annotations

import math
import re
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from jinja2 import Environment, PackageLoader, StrictUndefined
from numpy.typing import NDArray

from metricfit.assess import Decided, HeldOutScores, assess_held_out
from metricfit.assess.verdicts import MODEL, PLAIN, TUNED, cautions
from metricfit.confusion import ConfusionMatrix
from metricfit.data import TablePreprocessor
from metricfit.files import to_json
from metricfit.metrics import Metric, Money, get
from metricfit.metrics.algebra import named_class
from metricfit.report.explorer import explorer, formulas, histogram, in_words
from metricfit.steps import Annealed
from metricfit.steps import get as get_step
from metricfit.training.recipes import Recipe

_SHOWN, _PAIRS = 12, 20  # classes of a matrix, and confused pairs, at most
_SCRIPTS = ("metrics.js", "charts.js", "models.js", "explorer.js", "page.js")
NO_SCORES = (
    "This model holds no held-out scores, because nothing was held out in training. So the measured values, curves, "
    "matrices and the explorer are left out. 'metricfit report MODEL DATA' with labelled rows that the model was not "
    "trained on adds them, and so does training it again with cross-validation."
)


class Unlabelled(NamedTuple):
    """Predictions about rows whose labels are not known."""

    proba: NDArray[Any]  # (n, classes) or (n, labels)
    decided: NDArray[np.int64]  # codes (n,) or 0/1 (n, labels)
    source: str  # in words, which rows these are


def render(
    classifier: Any,
    description: dict[str, Any],
    *,
    settings: str | None = None,
    scores: HeldOutScores | None = None,
    unlabelled: Unlabelled | None = None,
    notices: Sequence[str] = (),
    findings: dict[str, Any] | None = None,
) -> str:
    """The report of a fitted classifier as one HTML page that loads nothing.

    ``description`` is that of :func:`metricfit.store.open_model`, ``settings`` the training command's options as TOML.
    ``scores`` or predictions of ``unlabelled`` rows take the place of the classifier's own held-out scores.
    ``findings`` are the segments, errors and columns of these; those of the description for the classifier's own.
    """
    labels, task = tuple(classifier.classes_.tolist()), description["task"]
    metric, rule, noted = classifier.metric_, classifier.decision_rule_, description["notes"]
    if scores is None and unlabelled is None:
        scores = classifier.held_out_
    if findings is None and scores is classifier.held_out_:
        findings = noted.get("findings")
    found: dict[str, Any] = dict.fromkeys(("answer", "explorer", "matrices", "classes", "pairs", "scores"))
    given, lost = (None, 0) if scores is None else scores.finite()
    if given is not None and not given.holds(metric):
        notices = [*notices, f"The held-out rows lack a column that the metric names: {', '.join(metric.columns)}."]
    elif given is not None and len(given):
        found = {
            "answer": answer(metric, given, labels),
            "explorer": explorer(given, labels, task, metric, rule),
            "matrices": matrices(given, labels),
            "classes": class_table(given, labels),
            "pairs": confused_pairs(given, labels),
            "scores": given,
        }
    elif unlabelled is None:
        notices = [*notices, NO_SCORES if scores is None else "No row with a score is left: there is nothing to draw."]
    predictions = None if unlabelled is None else _predictions(unlabelled, labels, named_class(metric, labels))
    data = {
        "metric": in_words(metric),
        "explorer": found["explorer"],
        "training": training(classifier),
        "search": noted.get("search"),
        "histograms": None if predictions is None else predictions["histograms"],
    }
    recipe = classifier.recipe_.parts()
    scripts = "\n".join([formulas(), *map(_asset, _SCRIPTS)])
    # Only this very script and style may run: text that got into the page as markup could do nothing.
    trusted = {"script": f'"use strict";(() => {{\n{scripts}\n}})();', "style": _asset("report.css")}
    return _page(
        "report.html",
        trusted,
        **found,
        **{name: data[name] for name in ("training", "search")},
        description=description,
        task=task,
        labels=labels,
        metric=str(metric),
        metric_short=data["metric"],
        rule=rule,
        notices=notices,
        lost=lost,
        own_rows=scores is classifier.held_out_,
        leaderboard=classifier.leaderboard_.to_dict(orient="records"),
        unlabelled=predictions,
        findings=findings,
        columns=columns_of(classifier, description),
        settings=settings,
        recipe=recipe,
        usual=Recipe(recipe["name"]).complete().parts(),
        own_names=(MODEL, PLAIN, TUNED),
        data=to_script_json(data),
    )


def render_watched(title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """What ``metricfit monitor`` found as a page: its table, the alarms on top."""
    alarms = [row for row in rows if row[-1] == "ALARM"]
    return _page("watched.html", {"style": _asset("report.css")}, title=title, heads=heads, rows=rows, alarms=alarms)


def _page(name: str, trusted: dict[str, str], **content: Any) -> str:
    hashes = {f"{n}_hash": f"sha256-{b64encode(sha256(t.encode()).digest()).decode()}" for n, t in trusted.items()}
    return _environment(html=True).get_template(name).render(**content, **trusted, **hashes)


def answer(metric: Metric, scores: HeldOutScores, labels: tuple[Any, ...]) -> dict[str, Any]:
    """The top of the page: the value, the verdict, what to be wary of, the counts, and the rows of its table."""
    model, verdicts = assess_held_out(metric, scores, labels)
    said, warned = "" if scores.baseline is None else str(verdicts[-1]), cautions(model, verdicts)
    if said and verdicts[-1].better == "level":
        warned.append(said)
    found = [(model, None), *((v.rival, v.gain) for v in verdicts)]
    ends = np.array([[e.value, e.low, e.high] for e in (assessment.estimate for assessment, _ in found)])
    known = ends[np.isfinite(ends)]
    return {
        "value": model.estimate,
        "money": isinstance(getattr(metric, "objective", metric), Money),
        "rows_in_all": scores.total or len(scores),
        "verdict": "" if said in warned else said,
        "warnings": warned,
        **_per_thousand(metric, scores, labels),
        "rows": found,
        "least": known.min(initial=1e300),
        "span": np.ptp(known) or 1.0 if known.size else 1.0,
    }


def _per_thousand(metric: Metric, scores: HeldOutScores, labels: tuple[Any, ...]) -> dict[str, Any]:
    """What the decisions mean in counts: of the positive class for two classes, else how many are right."""
    cm, counts = scores.judged(labels).confusion, None
    share = 1000 / (float(cm.total) or 1.0)
    if cm.task == "binary":
        k = 0 if named_class(metric, labels) == 0 else 1
        found, missed, alarms = (round(share * float(count[k])) for count in (cm.tp, cm.fn, cm.fp))
        counts = {"label": labels[k], "positive": found + missed, "found": found, "missed": missed, "alarms": alarms}
    return {"counts": counts, "right": round(share * float(cm.tp.sum())) if cm.task == "multiclass" else None}


def _predictions(unlabelled: Unlabelled, labels: tuple[Any, ...], named: int | None) -> dict[str, Any]:
    proba, decided, source = unlabelled
    shares = class_rows(Decided(decided, decided, labels).confusion)
    order = sorted(range(len(labels)), key=lambda k: -shares[k]["support"])[:4]
    if len(labels) == 2 and decided.ndim == 1:
        order = [1 if named is None else named]
    histograms = [{"label": str(labels[k]), "histogram": histogram(proba[:, k], None, None)} for k in order]
    return {"rows": len(decided), "source": source, "shares": shares, "histograms": histograms}


def matrices(scores: HeldOutScores, labels: tuple[Any, ...]) -> list[dict[str, Any]]:
    """The matrices before (cross-entropy; without it the model's arg max) and after: counts and shares of the row."""
    if scores.truth.ndim == 2:
        return []
    shown, joined = np.arange(len(labels)), len(labels) > _SHOWN
    if joined:  # those with most errors; all others together are one more row and column
        ours = scores.judged(labels).confusion
        shown = np.sort(np.argsort(-(ours.fp + ours.fn).numpy(), kind="stable")[:_SHOWN])
    names = [str(labels[k]) for k in shown] + (["all others"] if joined else [])
    place = np.full(len(labels), len(shown))
    place[shown] = np.arange(len(shown))
    found = []
    for name, decided in _decisions(scores).items():
        rows = Decided(
            place[scores.truth], np.where(decided < 0, -1, place[decided]), tuple(names), weight=scores.weight
        )
        cells = rows.confusion.matrix.numpy()
        shares = cells / np.maximum(cells.sum(axis=1, keepdims=True), np.finfo(float).tiny)
        found.append({"name": name, "labels": names, "joined": joined, "cells": np.stack([cells, shares], -1).tolist()})
    return found


def _decisions(scores: HeldOutScores) -> dict[str, NDArray[np.int64]]:
    found: dict[str, NDArray[np.int64]] = {}
    if scores.baseline_decided is not None:
        found[f"Before: {PLAIN}"] = scores.baseline_decided
        if scores.baseline_tuned is not None:
            found[TUNED] = scores.baseline_tuned
    else:
        argmax = scores.proba.argmax(axis=1)
        if not np.array_equal(argmax, scores.decided):
            found["Before: this model, arg max"] = argmax
    found[f"After: {MODEL}" if found else MODEL] = scores.decided
    return found


def class_table(scores: HeldOutScores, labels: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Of each class (or label): support and its share, predictions, rates, and F1 of the tuned baseline."""
    rows = class_rows(scores.judged(labels).confusion)
    rival = scores.baseline_tuned if scores.baseline_tuned is not None else scores.baseline_decided
    usual = None if rival is None else class_rows(scores.judged(labels, rival).confusion)
    return [{**row, "baseline_f1": None if usual is None else usual[k]["f1"]} for k, row in enumerate(rows)]


def class_rows(cm: ConfusionMatrix) -> list[dict[str, Any]]:
    """Counts and rates of each class or label; NaN where a rate is not defined."""
    found = {"support": cm.support, "share": cm.support / (float(cm.total) or 1.0), "predicted": cm.predicted,
             "alarms": cm.fp, "missed": cm.fn}  # fmt: skip
    found |= {name: get(f"{name}:average=none,zero_division=nan").compute(cm) for name in ("precision", "recall", "f1")}
    frame = pd.DataFrame({"label": list(map(str, cm.labels or ())), **{n: v.numpy() for n, v in found.items()}})
    rows: list[Any] = frame.to_dict(orient="records")
    return rows


def confused_pairs(scores: HeldOutScores, labels: tuple[Any, ...]) -> list[dict[str, Any]]:
    """The cells off the diagonal that hold most, from high to low."""
    if scores.truth.ndim == 2 or len(labels) == 2:
        return []
    matrix = scores.judged(labels).confusion.matrix.numpy()
    support = matrix.sum(axis=1)
    np.fill_diagonal(matrix, 0)
    order = np.argsort(-matrix, axis=None, kind="stable")[:_PAIRS]
    return [
        {"true": str(labels[i]), "predicted": str(labels[j]), "count": float(matrix[i, j]),
         "share": float(matrix[i, j] / support[i])}
        for i, j in zip(*np.unravel_index(order, matrix.shape), strict=True) if matrix[i, j] > 0
    ]  # fmt: skip


def training(classifier: Any) -> dict[str, Any] | None:
    """The data of the training charts, or None without a single epoch."""
    history: pd.DataFrame = classifier.history_
    if not len(history):
        return None
    recipe: Recipe = classifier.recipe_
    columns = ("epoch", "loss", "soft_metric", "hard_metric", "temperature")
    return {
        **{name: history[name].tolist() for name in columns},
        "coolings": coolings(history),
        "kept": sorted({int(e) for e in classifier.best_epochs_}),
        "selection_temperature": recipe.selection_temperature,
        "alignment": alignment(history),
        "step": str(recipe.step),
        "steps": _steps(recipe, float(history["temperature"].iloc[-1])) if recipe.objective == "metric" else {},
    }


def coolings(history: pd.DataFrame) -> list[int]:
    """Epochs at whose end the temperature was lower than before."""
    return [int(e) for e in history.loc[history["temperature"].diff() < -1e-12, "epoch"]]


def alignment(history: pd.DataFrame) -> dict[str, Any]:
    """Pairs of the surrogate and the exact metric, epoch by epoch, and how closely they and their ranks go together."""
    known = history[["soft_metric", "hard_metric"]].replace([np.inf, -np.inf], np.nan).dropna()
    r, ranks = (correlation(*values.to_numpy().T) for values in (known, known.rank()))
    return {"points": known.to_numpy(dtype=float).tolist(), "correlation": r, "of_ranks": ranks}


def correlation(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Of two rows of numbers; NaN if there are too few different values."""
    enough = len(first) > 2 and first.std() > 1e-12 and second.std() > 1e-12
    return float(np.corrcoef(first, second)[0, 1]) if enough else math.nan


def _steps(recipe: Recipe, last: float) -> dict[str, list[list[float]]]:
    """The step over the probability at the threshold one half, at the last temperature and the first, if it has one."""
    p, chosen = torch.linspace(0, 1, 201, dtype=torch.float64), get_step(recipe.step)
    shown = {str(chosen): chosen}
    if isinstance(chosen, Annealed):
        when = {round(recipe.temperature, 6): "start", round(last, 6): "end"}
        shown = {f"T = {t:.3g}, at the {name}": Annealed(t) for t, name in when.items()}
    return {name: torch.stack([p, step(p, torch.tensor(0.5))], 1).tolist() for name, step in shown.items()}


def columns_of(classifier: Any, description: dict[str, Any]) -> list[dict[str, Any]]:
    """Of each column what it was taken for and what it held."""
    made, unknown = classifier.preprocessor_, {"values": "", "gaps": None}
    columns = made.columns_ if isinstance(made, TablePreprocessor) else []
    known = {column.name: {"values": column.values, "gaps": column.gaps} for column in columns}
    return [kind | known.get(kind["name"], unknown) for kind in description["columns"]["kinds"] or []]


def warnings_of(classifier: Any) -> list[str]:
    """What to know before a fitted classifier is used: a missed constraint, a better rival, a fold that collapsed."""
    if classifier.held_out_ is None or not classifier.held_out_.holds(classifier.metric_):
        return []
    return cautions(*assess_held_out(classifier.metric_, classifier.held_out_, tuple(classifier.classes_.tolist())))


def model_card(description: dict[str, Any], warnings: Sequence[str] = ()) -> str:
    """The model card as Markdown, from a description, see :func:`metricfit.store.description_of`, and warnings."""
    return _environment(html=False).get_template("card.md").render(description, warnings=warnings)


def to_script_json(data: Any) -> str:
    """JSON that stays inside its script element, whatever texts it holds."""
    return re.sub("[<>&\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", to_json(data))


@cache
def _environment(*, html: bool) -> Environment:
    # The card is no HTML; every text in it goes through the filter "text" or "code".
    loader, filters = PackageLoader("metricfit.report"), (_num, _count, _plain, _text, _code)
    made = Environment(loader=loader, autoescape=html, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters |= {function.__name__[1:]: function for function in filters}
    return made


@cache
def _asset(name: str) -> str:
    return (files("metricfit.report") / "assets" / name).read_text(encoding="utf-8")


def _plain(value: float | None, form: str = "", missing: str = "") -> str:
    return missing if value is None or not math.isfinite(value) else format(float(value), form)


def _num(value: float | None, form: str) -> str:
    if value is not None and abs(value) >= 1000:  # money
        form = ("+" if form.startswith("+") else "") + ",.0f"
    return _plain(value, form, "–").replace("-", "\u2212")


def _count(value: float) -> str:
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,.6g}"


def _text(value: Any) -> str:
    """Text that Markdown shows as it is: no HTML, no end of a table's cell, no formatting."""
    line = " ".join(str(value).split()).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"[\\`*_|\[\]]", r"\\\g<0>", line)


def _code(value: Any) -> str:
    """A code span, where the text has nothing that could end it or be taken for HTML."""
    line = " ".join(str(value).split())
    return _text(line) if any(mark in line for mark in "`<|&") else f"`{line}`"
