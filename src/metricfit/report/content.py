"""What is on the page, gathered from a classifier, its description and held-out scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit.assess.scores import HeldOutScores
from metricfit.report.about import columns_of, reproduction, shares
from metricfit.report.answer import answer
from metricfit.report.curves import histogram
from metricfit.report.explorer import explorer, named_class
from metricfit.report.formula import in_words
from metricfit.report.page import page
from metricfit.report.tables import class_table, confused_pairs, matrices
from metricfit.report.training import training

__all__ = ["Unlabelled", "render"]

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
    notes = list(notices)
    if scores is None and unlabelled is None:
        scores = classifier.held_out_
    found: dict[str, Any] = dict.fromkeys(("answer", "explorer", "matrices", "classes", "pairs", "shares"))
    found |= {"measured": "", "weighted": False, "earlier": [], "data_rows": ""}
    if scores is not None:
        scores, lost = scores.finite()
        if lost:
            notes.append(f"{lost:,} rows are left out: their scores are not numbers (NaN).")
    if scores is not None and len(scores):
        found |= _measured(classifier, scores, labels, task, notes)
    else:
        if unlabelled is None:
            notes.append(NO_SCORES if scores is None else "No row with a score is left, so there is nothing to draw.")
        found["earlier"] = _earlier(description)
    explored = found["explorer"]
    history = training(classifier)
    name = in_words(metric)
    predictions = None if unlabelled is None else _predictions(unlabelled, labels, named_class(metric, labels))
    content = {
        **found,
        "title": f"{name}: metricfit report",
        "subtitle": _subtitle(description, task, len(labels)),
        "metric": str(metric),
        "metric_short": name,
        "task": {"multilabel": "multi-label"}.get(task, task) if not explored else task,
        "labels": labels,
        "notices": notes,
        "training": history,
        "alignment": "" if history is None else _alignment(history),
        "unlabelled": predictions,
        "columns": columns_of(classifier, description),
        "choices": description["notes"].get("choices") or description["fitted"]["choices"],
        "reproduction": reproduction(classifier, description, settings),
        "explanation": classifier.explain(),
        "data_rows": _data_rows(description, scores, unlabelled),
    }
    content["sections"] = _sections(content)
    data = {"metric": name, "explorer": explored, "training": history,
            "histograms": None if predictions is None else predictions["histograms"]}  # fmt: skip
    return page(content, data)


def _measured(
    classifier: Any, scores: HeldOutScores, labels: tuple[Any, ...], task: Any, notes: list[str]
) -> dict[str, Any]:
    """Everything that needs scores and truth."""
    metric, rule = classifier.metric_, classifier.decision_rule_
    top = answer(metric, scores, labels)
    _add_bars(top["rows"])
    if top["classes_absent"]:
        names = ", ".join(top["classes_absent"][:10]) + (", …" if len(top["classes_absent"]) > 10 else "")
        one = len(top["classes_absent"]) == 1
        notes.append(f"{'The class' if one else 'Classes'} {names} {'does' if one else 'do'} not occur in these rows; "
                    f"{'its' if one else 'their'} recall and curves are not defined.")  # fmt: skip
    if rule.kind == "costs" and task == "multiclass":
        notes.append(
            "The model decides by expected cost, which is no offset of classes: the explorer starts at arg max."
        )
    explored = explorer(scores, labels, task, metric, rule)
    size = f"{scores.total or len(scores):,}"
    measured = f"Measured on {size} {scores.source or 'rows'}."
    if scores.total:
        measured += f" A stratified sample of {len(scores):,} of them is kept, with weights that make up for the rest."
    if scores.cross_fitted:
        measured += (
            " Each fold was decided by a rule tuned on the other folds; the explorer starts at the final rule, which "
            "was tuned on all of these rows and so looks a little better than it is."
        )
    return {
        "answer": top,
        "explorer": explored,
        "explorer_text": _explorer_text(task, explored, labels),
        "matrices": matrices(scores, labels),
        "classes": class_table(scores, labels),
        "pairs": confused_pairs(scores, labels),
        "shares": shares(scores, labels),
        "measured": measured,
        "weighted": scores.weight is not None,
    }


def _explorer_text(task: str, explored: dict[str, Any], labels: tuple[Any, ...]) -> str:
    if task == "binary":
        axis, rest = explored["axes"][0], ""
        if axis["scores"] is None:
            rest = f" {len(axis['cuts']):,} cut-offs are in the page; what you type goes to the nearest of them."
        name = labels[explored["positive"]]
        level = "above this value" if axis["strict"] else "at least this value"
        return f"Move the threshold: a row is called {name!s} if its probability is {level}.{rest}"
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


def _add_bars(rows: list[dict[str, Any]]) -> None:
    """Places of dots and whiskers on a common scale of 240 units."""
    ends = [v for row in rows for v in (row["low"], row["high"], row["value"]) if np.isfinite(v)]
    if not ends:
        for row in rows:
            row["bar"] = None
        return
    low, high = float(min(ends)), float(max(ends))
    span = (high - low) or 1.0

    def place(value: float) -> float:
        return round(float(12 + 216 * (value - low) / span), 1)

    for row in rows:
        known = np.isfinite(row["value"]) and np.isfinite(row["low"])
        row["bar"] = {**{key: place(row[key]) for key in ("value", "low", "high")}, "zero": place(rows[0]["value"])
                      } if known else None  # fmt: skip


def _earlier(description: dict[str, Any]) -> list[dict[str, Any]]:
    """What was measured when the model was trained."""
    noted = description["notes"].get("held_out")
    if noted:
        return list(noted)
    rows = [row for row in description["validation_report"] if row["value"] is not None]
    return rows


def _predictions(unlabelled: Unlabelled, labels: tuple[Any, ...], named: int | None) -> dict[str, Any]:
    n = max(1, len(unlabelled.decided))
    several = unlabelled.decided.ndim == 2
    counts = unlabelled.decided.sum(axis=0) if several else np.bincount(unlabelled.decided, minlength=len(labels))
    order = (
        [1 if named is None else named]
        if len(labels) == 2 and not several
        else np.argsort(-counts, kind="stable")[:_HISTOGRAMS].tolist()
    )
    return {
        "shares": [
            {"label": str(label), "count": float(count), "share": float(count / n)}
            for label, count in zip(labels, counts, strict=True)
        ],
        "histograms": [
            {"label": str(labels[k]), "histogram": histogram(unlabelled.proba[:, k], None, None)} for k in order
        ],
    }


def _subtitle(description: dict[str, Any], task: str, size: int) -> str:
    target = description["notes"].get("target")
    if isinstance(target, list):
        target = ", ".join(map(str, target[:6])) + (", …" if len(target) > 6 else "")
    of = f"{target}: " if target else ""
    kind = {"binary": "two classes", "multiclass": f"{size} classes", "multilabel": f"{size} labels"}[task]
    return f"{of}{kind}"


def _alignment(history: dict[str, Any]) -> str:
    r, ranks = history["alignment"]["correlation"], history["alignment"]["rank_correlation"]
    start = "One point per validated epoch: the surrogate in the loss against the exact metric."
    if r is None:
        return f"{start} There are too few different values for a correlation."
    words = "it tracked the metric closely" if r > 0.9 else "it tracked the metric" if r > 0.6 else (
        "it tracked the metric only loosely" if r > 0.2 else "it did not track the metric")  # fmt: skip
    return f"{start} Correlation {r:.2f}, of the ranks {ranks:.2f}: {words}."


def _data_rows(description: dict[str, Any], scores: HeldOutScores | None, unlabelled: Unlabelled | None) -> str:
    parts = []
    noted = description["notes"].get("data") or {}
    if noted.get("rows"):
        parts.append(f"Trained on {noted['rows']:,} rows of {description['columns']['count']} columns.")
    if unlabelled is not None:
        parts.append(f"Predicted: {len(unlabelled.decided):,} {unlabelled.source}.")
    elif scores is not None and len(scores):
        parts.append(f"Measured: {scores.total or len(scores):,} {scores.source or 'rows'}.")
    return " ".join(parts)


def _sections(content: dict[str, Any]) -> list[tuple[str, str]]:
    names = {
        "explorer": ("explorer", "Explorer"),
        "matrices": ("matrices", "Matrices"),
        "scores": ("explorer", "Scores"),
        "classes": ("classes", "Labels" if content["task"] == "multilabel" else "Classes"),
        "training": ("training", "Training"),
    }
    found = [(anchor, name) for anchor, (key, name) in names.items() if content[key]]
    if content["unlabelled"]:
        found.insert(0, ("scores", "Predictions"))
    return [*found, ("data", "Data"), ("settings", "To reproduce")]
