"""What is on the page, gathered from a classifier, its description and held-out scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit.assess import Assessment, HeldOutScores, Verdict, assess_held_out
from metricfit.assess.intervals import counted
from metricfit.assess.verdicts import in_words as rival_in_words
from metricfit.metrics import Metric
from metricfit.report import sections
from metricfit.report.explorer import explorer, histogram, named_class
from metricfit.report.formula import in_words
from metricfit.report.page import measured_rows, page

__all__ = ["NO_SCORES", "Unlabelled", "answer", "render"]

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
        found["earlier"] = measured_rows(description)
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
        "leaderboard": sections.leaderboard(classifier),
        "training": sections.training(classifier),
        "unlabelled": predictions,
        "columns": sections.columns_of(classifier, description),
        "choices": description["notes"].get("choices") or [text for _, text in description["fitted"]["choices"]],
        "reproduction": sections.reproduction(classifier, description, settings),
        "explanation": classifier.explain(),
        "data_rows": _data_rows(description, scores, unlabelled),
    }
    data = {"metric": name, "explorer": found["explorer"], "training": content["training"],
            "histograms": None if predictions is None else predictions["histograms"]}  # fmt: skip
    return page({**content, "sections": _sections(content)}, data)


def _measured(
    classifier: Any, scores: HeldOutScores, labels: tuple[Any, ...], task: Any, notes: list[str]
) -> dict[str, Any]:
    """Everything that needs scores and truth."""
    metric, rule = classifier.metric_, classifier.decision_rule_
    classes = sections.class_table(scores, labels)
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
        "matrices": sections.matrices(scores, labels),
        "classes": classes,
        "pairs": sections.confused_pairs(scores, labels),
        "measured": measured,
        "weighted": scores.weight is not None,
    }


def answer(metric: Metric, scores: HeldOutScores, labels: tuple[Any, ...]) -> dict[str, Any]:
    """The top of the page: the answer in one sentence, what to be wary of, and the rows of its table."""
    model, verdicts = assess_held_out(metric, scores, labels)
    name = in_words(metric)
    name = name[0].upper() + name[1:]
    main = verdicts[-1] if verdicts else None
    rows = [_row(model, None), *(_row(v.rival, v) for v in verdicts)]
    _add_bars(rows)
    return {
        "metric": name,
        "sentence": _sentence(name, model, main, scores),
        "warning": _warning(model, main),
        "limits": rows[0]["limits"],
        "rows": rows,
    }


def _sentence(name: str, model: Assessment, verdict: Verdict | None, scores: HeldOutScores) -> str:
    ours, count = model.estimate, f"{scores.total or len(scores):,}"
    if math.isnan(ours.value):
        return f"{name} has no value on these {count} held-out rows."
    between = "" if math.isnan(ours.low) else f" (95 % interval {ours.low:.3f} to {ours.high:.3f})"
    start = f"{name} is {ours.value:.3f}{between} on {count} held-out rows"
    if verdict is None:
        return start + "."
    rival, gain = rival_in_words(verdict.rival.name), verdict.gain
    if verdict.rival.missed and not model.missed:
        return f"{start}; {rival} does not meet {' and '.join(verdict.rival.missed)} there."
    if gain.low > 0:
        return f"{start}: {gain.value:.3f} better than {rival}."
    return (
        f"{start}: {-gain.value:.3f} worse than {rival}."
        if gain.high < 0
        else f"{start}: no clear difference from {rival}."
    )


def _warning(model: Assessment, verdict: Verdict | None) -> str:
    if model.missed:
        return f"On these rows the model does not meet {' and '.join(model.missed)}."
    if verdict is None or verdict.better in ("model", "unknown"):
        return ""
    gain, rival = verdict.gain, rival_in_words(verdict.rival.name)
    paired = f"{gain.value:+.3f}, paired 95 % interval {gain.low:+.3f} to {gain.high:+.3f}".replace("-", "\u2212")
    if verdict.better == "rival":
        return f"Cross-entropy did better here: against {rival} the gain is {paired}. Prefer it, or look at its rule."
    return (
        f"The gain over {rival} is within the noise: {paired}. With these rows the two cannot be told apart; a simpler "
        "model is as good a choice, or measure on more rows."
    )


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
    called = sections.rates(counted(decided, decided, labels))
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


def _data_rows(description: dict[str, Any], scores: HeldOutScores | None, unlabelled: Unlabelled | None) -> str:
    parts = []
    if rows := (description["notes"].get("data") or {}).get("rows"):
        parts.append(f"Trained on {rows:,} rows of {description['columns']['count']} columns.")
    if unlabelled is not None:
        parts.append(f"Predicted: {len(unlabelled.decided):,} {unlabelled.source}.")
    elif scores is not None and len(scores):
        parts.append(f"Measured: {scores.total or len(scores):,} {scores.source or 'rows'}.")
    return " ".join(parts)


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
