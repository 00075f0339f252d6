"""The page: what is on it, gathered from a classifier and held-out scores, and one HTML file that loads nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from numpy.typing import NDArray

from metricfit.assess import Assessment, HeldOutScores, Verdict, assess_held_out
from metricfit.assess.intervals import counted
from metricfit.metrics import Metric
from metricfit.metrics.algebra import named_class
from metricfit.report import tables
from metricfit.report.explorer import explorer, formulas, histogram, in_words

__all__ = ["NO_SCORES", "Unlabelled", "answer", "model_card", "render", "to_script_json"]

_SCRIPTS = ("metrics.js", "charts.js", "models.js", "explorer.js", "page.js")
NO_SCORES = (
    "This model holds no held-out scores, because nothing was held out in training. So the measured values, curves, "
    "matrices and the explorer are left out. 'metricfit report MODEL DATA' with labelled rows that the model was not "
    "trained on adds them, and so does training it again with cross-validation."
)
_HISTOGRAMS = 4


@dataclass(frozen=True)
class Unlabelled:
    """Predictions about rows whose labels are not known.

    Attributes:
        proba: Probabilities (n, classes) or (n, labels).
        decided: Codes (n,), or 0/1 (n, labels).
        source: Which rows these are, in words.
    """

    proba: NDArray[Any]
    decided: NDArray[np.int64]
    source: str


def render(
    classifier: Any,
    description: dict[str, Any],
    *,
    settings: str | None = None,
    scores: HeldOutScores | None = None,
    unlabelled: Unlabelled | None = None,
    notices: Sequence[str] = (),
) -> str:
    """The report of a fitted classifier as one HTML page that loads nothing.

    Args:
        classifier: The fitted :class:`metricfit.MetricClassifier`.
        description: As :func:`metricfit.store.describe` gives it.
        settings: The options of the training command as TOML, if it was one.
        scores: What to draw instead of the classifier's own held-out scores, ``classifier.held_out_``.
        unlabelled: Predictions about rows without labels, to be shown instead of scores.
        notices: Sentences to put on top.
    """
    labels = tuple(classifier.classes_.tolist())
    task, metric = description["task"], classifier.metric_
    name, notes = in_words(metric), list(notices)
    if scores is None and unlabelled is None:
        scores = classifier.held_out_
    found: dict[str, Any] = dict.fromkeys(("answer", "explorer", "matrices", "classes", "pairs"))
    found |= {"measured": "", "weighted": False, "earlier": []}
    if scores is not None:
        scores, lost = scores.finite()
        if lost:
            notes.append(f"{lost:,} rows are left out: their scores are not numbers (NaN).")
    if scores is not None and len(scores):
        found |= _measured(classifier, scores, labels, task, notes)
    else:
        if unlabelled is None:
            notes.append(NO_SCORES if scores is None else "No row with a score is left, so there is nothing to draw.")
        found["earlier"] = _measured_rows(description)
    predictions = None if unlabelled is None else _predictions(unlabelled, labels, named_class(metric, labels))
    content = {
        **found,
        "title": f"{name}: metricfit report",
        "subtitle": _subtitle(description, task, len(labels)),
        "metric": str(metric),
        "metric_short": name,
        "task": "multi-label" if task == "multilabel" and not found["explorer"] else task,
        "labels": labels,
        "notices": notes,
        "leaderboard": tables.leaderboard(classifier),
        "training": tables.training(classifier),
        "unlabelled": predictions,
        "columns": tables.columns_of(classifier, description),
        "choices": description["notes"].get("choices") or [text for _, text in description["fitted"]["choices"]],
        "reproduction": tables.reproduction(classifier, description, settings),
        "data_rows": _data_rows(description, unlabelled),
    }
    data = {"metric": name, "explorer": found["explorer"], "training": content["training"],
            "histograms": None if predictions is None else predictions["histograms"]}  # fmt: skip
    return _page({**content, "sections": _sections(content)}, data)


def _measured(
    classifier: Any, scores: HeldOutScores, labels: tuple[Any, ...], task: Any, notes: list[str]
) -> dict[str, Any]:
    """Everything that needs scores and truth."""
    metric, rule = classifier.metric_, classifier.decision_rule_
    classes = tables.class_table(scores, labels)
    if absent := [row["label"] for row in classes if not row["support"]]:
        names = ", ".join(absent[:10]) + (", …" if len(absent) > 10 else "")
        notes.append(
            f"The class {names} does not occur in these rows; its recall and curves are not defined."
            if len(absent) == 1
            else f"Classes {names} do not occur in these rows; their recall and curves are not defined."
        )
    if rule.kind == "costs" and task == "multiclass":
        notes.append(
            "The model decides by expected cost, which is no offset of classes: the explorer starts at arg max."
        )
    explored = explorer(scores, labels, task, metric, rule)
    measured = f"Measured on {scores.total or len(scores):,} {scores.source or 'rows'}."
    if scores.total:
        measured += f" A stratified sample of {len(scores):,} of them is kept, with weights that make up for the rest."
    if scores.cross_fitted:
        measured += (
            " Each fold was decided by a rule tuned on the other folds; the explorer starts at the final rule, which "
            "was tuned on all of these rows and so looks a little better than it is."
        )
    return {
        "answer": answer(metric, scores, labels),
        "explorer": explored,
        "explorer_text": _explorer_text(task, explored, labels),
        "matrices": tables.matrices(scores, labels),
        "classes": classes,
        "pairs": tables.confused_pairs(scores, labels),
        "measured": measured,
        "weighted": scores.weight is not None,
    }


def answer(metric: Metric, scores: HeldOutScores, labels: tuple[Any, ...]) -> dict[str, Any]:
    """The top of the page: the answer in one sentence, what to be wary of, and the rows of its table."""
    model, verdicts = assess_held_out(metric, scores, labels)
    name, ours, count = in_words(metric), model.estimate, f"{scores.total or len(scores):,}"
    name = name[0].upper() + name[1:]
    between = "" if math.isnan(ours.low) else f" (95 % interval {ours.low:.3f} to {ours.high:.3f})"
    sentence = f"{name} is {ours.value:.3f}{between} on {count} held-out rows."
    if math.isnan(ours.value):
        sentence = f"{name} has no value on these {count} held-out rows."
    if model.missed:
        said, warned = f"On these rows the model does not meet {' and '.join(model.missed)}.", True
    else:
        said = verdicts[-1].sentence("that rule, or more rows") if verdicts else ""
        warned = bool(verdicts) and verdicts[-1].better in ("rival", "level")
    rows = [_row(model, None), *(_row(v.rival, v) for v in verdicts)]
    _add_bars(rows)
    return {
        "metric": name,
        "sentence": sentence if warned else f"{sentence} {said}".rstrip(),
        "warning": said if warned else "",
        "limits": rows[0]["limits"],
        "rows": rows,
    }


def _row(found: Assessment, verdict: Verdict | None) -> dict[str, Any]:
    return {
        "name": found.name[0].upper() + found.name[1:],
        **vars(found.estimate),
        "gain": None if verdict is None else vars(verdict.gain),
        "limits": [{"text": c.constraint, **vars(c.estimate), "met": c.met} for c in found.constraints],
    }


def _add_bars(rows: list[dict[str, Any]]) -> None:
    """Places of dots and whiskers on a common scale of 240 units."""
    ends = [v for row in rows for v in (row["low"], row["high"], row["value"]) if np.isfinite(v)]
    low, span = (min(ends), (max(ends) - min(ends)) or 1.0) if ends else (0.0, 1.0)

    def place(value: float) -> float:
        return round(float(12 + 216 * (value - low) / span), 1)

    for row in rows:
        row["bar"] = None
        if np.isfinite(row["value"]) and np.isfinite(row["low"]):
            row["bar"] = {key: place(row[key]) for key in ("value", "low", "high")} | {"zero": place(rows[0]["value"])}


def _explorer_text(task: str, explored: dict[str, Any], labels: tuple[Any, ...]) -> str:
    if task == "binary":
        axis = explored["axes"][0]
        level = "above this value" if axis["strict"] else "at least this value"
        text = f"Move the threshold: a row is called {labels[explored['positive']]!s} if its probability is {level}."
        if axis["scores"] is None:
            text += f" {len(axis['cuts']):,} cut-offs are in the page; what you type goes to the nearest of them."
        return text
    if task == "multilabel":
        return "Move the threshold of each label: a row gets the label if its probability is at least this value."
    sample = explored["sample"]
    text = (
        "Move the offsets: the class with the highest log-probability plus offset is chosen. +0.69 makes a class count "
        "as if it were twice as probable."
    )
    if sample["rows"] < sample["of"]:
        text += (
            f" The explorer works on a stratified sample of {sample['rows']:,} of {sample['of']:,} rows, weighted to "
            "stand for all; the table on top and the matrices below use every row."
        )
    if sample["index"] is not None:
        text += f" Of each row the {sample['width']} most probable classes are in this page."
    return text


def _predictions(unlabelled: Unlabelled, labels: tuple[Any, ...], named: int | None) -> dict[str, Any]:
    decided = unlabelled.decided
    called = tables.rates(counted(decided, decided, labels))
    if len(labels) == 2 and decided.ndim == 1:
        order = [1 if named is None else named]
    else:
        order = np.argsort(-called["support"], kind="stable")[:_HISTOGRAMS].tolist()
    return {
        "shares": [
            {"label": str(label), "support": float(called["support"][k]), "share": float(called["share"][k])}
            for k, label in enumerate(labels)
        ],
        "histograms": [
            {"label": str(labels[k]), "histogram": histogram(unlabelled.proba[:, k], None, None)} for k in order
        ],
    }


def _subtitle(description: dict[str, Any], task: str, size: int) -> str:
    target = description["notes"].get("target")
    if isinstance(target, list):
        target = ", ".join(map(str, target[:6])) + (", …" if len(target) > 6 else "")
    kind = {"binary": "two classes", "multiclass": f"{size} classes", "multilabel": f"{size} labels"}[task]
    return f"{target}: {kind}" if target else kind


def _data_rows(description: dict[str, Any], unlabelled: Unlabelled | None) -> str:
    rows = (description["notes"].get("data") or {}).get("rows")
    trained = f"Trained on {rows:,} rows of {description['columns']['count']} columns." if rows else ""
    told = "" if unlabelled is None else f"Predicted: {len(unlabelled.decided):,} {unlabelled.source}."
    return f"{trained} {told}".strip()


def _sections(content: dict[str, Any]) -> list[tuple[str, str]]:
    shown = [
        ("leaderboard", "leaderboard", "Models"),
        ("scores", "unlabelled", "Predictions"),
        ("explorer", "explorer", "Explorer"),
        ("matrices", "matrices", "Matrices"),
        ("scores", "explorer", "Scores"),
        ("classes", "classes", "Labels" if content["task"] == "multilabel" else "Classes"),
        ("training", "training", "Training"),
    ]
    found = [(anchor, name) for anchor, key, name in shown if content[key]]
    return [*found, ("data", "Data"), ("settings", "To reproduce")]


def _page(content: dict[str, Any], data: dict[str, Any]) -> str:
    """The page from what the template shows, where every text is escaped, and the plain values of the script."""
    scripts = "\n".join([formulas(), *map(_asset, _SCRIPTS)])
    # Only this very script and style may run: text that got into the page as markup could do nothing.
    trusted = {"script": f'"use strict";(() => {{\n{scripts}\n}})();', "style": _asset("report.css")}
    hashes = {f"{name}_hash": _hash(text) for name, text in trusted.items()}
    template = _environment(html=True).get_template("report.html")
    return template.render(**content, **trusted, **hashes, data=to_script_json(data))


def model_card(description: dict[str, Any]) -> str:
    """The model card as Markdown, from a description, see :func:`metricfit.store.description_of`."""
    classes = [str(value) for value in description["classes"]["values"]]
    template = _environment(html=False).get_template("card.md")
    return template.render({**description, "classes": classes, "rows": _measured_rows(description)})


def _measured_rows(description: dict[str, Any]) -> list[dict[str, Any]]:
    """What was measured when the model was trained: model, value, low and high; only rows that have a value."""
    return [row for row in description["validation_report"] if row["value"] is not None]


def to_script_json(data: Any) -> str:
    r"""JSON that stays inside its script element, whatever texts it holds.

    >>> print(to_script_json({"name": "</script><!--"}))
    {"name":"\u003c/script\u003e\u003c!--"}
    """
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


@cache
def _environment(*, html: bool) -> Environment:
    # The card is no HTML; every text in it goes through the filter "text" or "code".
    environment = Environment(
        loader=PackageLoader("metricfit.report"), autoescape=html, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    shown = (_num, _signed, _count, _percent, _plain, _text, _code)
    environment.filters |= {function.__name__[1:]: function for function in shown}
    return environment


@cache
def _asset(name: str) -> str:
    return (files("metricfit.report") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _plain(value: float | None, form: str = "", missing: str = "") -> str:
    return missing if value is None or not math.isfinite(value) else format(float(value), form)


def _num(value: float | None, places: int) -> str:
    return _plain(value, f".{places}f", "–").replace("-", "\u2212")


def _signed(value: float | None) -> str:
    return _plain(value, "+.3f", "–").replace("-", "\u2212")


def _count(value: float) -> str:
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,.6g}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _text(value: Any) -> str:
    r"""Text that Markdown shows as it is: no HTML, no end of a table's cell, no formatting.

    >>> print(_text("a|b <b> >= *c*"))
    a\|b &lt;b> >= \*c\*
    """
    line = " ".join(str(value).split()).replace("&", "&amp;").replace("<", "&lt;")
    for mark in "\\`*_|[]":
        line = line.replace(mark, f"\\{mark}")
    return line


def _code(value: Any) -> str:
    """A code span, where the text has nothing that could end it or be taken for HTML."""
    line = " ".join(str(value).split())
    return _text(line) if any(mark in line for mark in "`<|&") else f"`{line}`"
