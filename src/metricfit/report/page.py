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
from metricfit.assess.verdicts import MODEL, PLAIN, TUNED, cautions
from metricfit.metrics import Metric
from metricfit.metrics.algebra import named_class
from metricfit.report import tables
from metricfit.report.explorer import explorer, formulas, histogram, in_words

__all__ = ["NO_SCORES", "Unlabelled", "answer", "model_card", "render", "to_script_json", "warnings_of"]

_SCRIPTS = ("metrics.js", "charts.js", "models.js", "explorer.js", "page.js")
NO_SCORES = (
    "This model holds no held-out scores, because nothing was held out in training. So the measured values, curves, "
    "matrices and the explorer are left out. 'metricfit report MODEL DATA' with labelled rows that the model was not "
    "trained on adds them, and so does training it again with cross-validation."
)
_HISTOGRAMS = 4
_CAPITALS = {name: name[0].upper() + name[1:] for name in (MODEL, PLAIN, TUNED)}


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
    name, noted = in_words(metric), description["notes"]
    if scores is None and unlabelled is None:
        scores = classifier.held_out_
    found: dict[str, Any] = dict.fromkeys(("answer", "explorer", "matrices", "classes", "pairs", "scores"))
    given, lost = (None, 0) if scores is None else scores.finite()
    if given is not None and len(given):
        found |= _measured(classifier, given, labels, task)
    elif unlabelled is None:
        notices = [*notices, NO_SCORES if scores is None else "No row with a score is left: there is nothing to draw."]
    predictions = None if unlabelled is None else _predictions(unlabelled, labels, named_class(metric, labels))
    target = noted.get("target") or []
    content = {
        **found,
        "task": task,
        "labels": labels,
        "metric": str(metric),
        "metric_short": name,
        "rule": classifier.decision_rule_,
        "target": [target] if isinstance(target, str) else target,
        "notices": notices,
        "lost": lost,
        "earlier": [] if found["scores"] else _measured_rows(description),
        "leaderboard": classifier.leaderboard_.to_dict(orient="records"),
        "training": tables.training(classifier),
        "unlabelled": predictions,
        "columns": tables.columns_of(classifier, description),
        "choices": noted.get("choices") or [text for _, text in description["fitted"]["choices"]],
        "reproduction": tables.reproduction(classifier, description, settings),
        "trained": (noted.get("data") or {}).get("rows"),
    }
    data = {"metric": name, "explorer": found["explorer"], "training": content["training"],
            "histograms": None if predictions is None else predictions["histograms"]}  # fmt: skip
    return _page(content, data)


def _measured(classifier: Any, scores: HeldOutScores, labels: tuple[Any, ...], task: Any) -> dict[str, Any]:
    """Everything that needs scores and truth."""
    return {
        "answer": answer(classifier.metric_, scores, labels),
        "explorer": explorer(scores, labels, task, classifier.metric_, classifier.decision_rule_),
        "matrices": tables.matrices(scores, labels),
        "classes": tables.class_table(scores, labels),
        "pairs": tables.confused_pairs(scores, labels),
        "scores": scores,
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
    said, warned = "" if scores.baseline is None else str(verdicts[-1]), cautions(model, verdicts)
    if said and verdicts[-1].better == "level":
        warned.append(said)
    rows = [_row(model, None), *(_row(v.rival, v) for v in verdicts)]
    _add_bars(rows)
    return {
        "metric": name,
        "sentence": sentence,
        "verdict": "" if said in warned else said,
        "warnings": warned,
        **_per_thousand(metric, scores, labels),
        "limits": rows[0]["limits"],
        "rows": rows,
    }


def _per_thousand(metric: Metric, scores: HeldOutScores, labels: tuple[Any, ...]) -> dict[str, Any]:
    """What the decisions mean in counts: of the positive class for two classes, else how many are right."""
    if scores.truth.ndim == 2:
        return {"counts": None, "right": None}
    cm = counted(scores.truth, scores.decided, labels, scores.weight)
    share = 1000 / (float(cm.total) or 1.0)
    if len(labels) > 2:
        return {"counts": None, "right": round(share * float(cm.tp.sum()))}
    k = 0 if named_class(metric, labels) == 0 else 1
    found, missed, alarms = (round(share * float(count[k])) for count in (cm.tp, cm.fn, cm.fp))
    counts = {"label": labels[k], "positive": found + missed, "found": found, "missed": missed, "alarms": alarms}
    return {"counts": counts, "right": None}


def _row(found: Assessment, verdict: Verdict | None) -> dict[str, Any]:
    return {
        "name": _CAPITALS.get(found.name, f"Best single model: {found.name}"),
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


def _predictions(unlabelled: Unlabelled, labels: tuple[Any, ...], named: int | None) -> dict[str, Any]:
    decided = unlabelled.decided
    called = tables.rates(counted(decided, decided, labels))
    if len(labels) == 2 and decided.ndim == 1:
        order = [1 if named is None else named]
    else:
        order = np.argsort(-called["support"], kind="stable")[:_HISTOGRAMS].tolist()
    return {
        "rows": len(decided),
        "source": unlabelled.source,
        "shares": [
            {"label": str(label), "support": float(called["support"][k]), "share": float(called["share"][k])}
            for k, label in enumerate(labels)
        ],
        "histograms": [
            {"label": str(labels[k]), "histogram": histogram(unlabelled.proba[:, k], None, None)} for k in order
        ],
    }


def _page(content: dict[str, Any], data: dict[str, Any]) -> str:
    """The page from what the template shows, where every text is escaped, and the plain values of the script."""
    scripts = "\n".join([formulas(), *map(_asset, _SCRIPTS)])
    # Only this very script and style may run: text that got into the page as markup could do nothing.
    trusted = {"script": f'"use strict";(() => {{\n{scripts}\n}})();', "style": _asset("report.css")}
    hashes = {f"{name}_hash": _hash(text) for name, text in trusted.items()}
    template = _environment(html=True).get_template("report.html")
    return template.render(**content, **trusted, **hashes, data=to_script_json(data))


def warnings_of(classifier: Any) -> list[str]:
    """What to know before a fitted classifier is used: a missed constraint, a better rival, a fold that collapsed."""
    if classifier.held_out_ is None:
        return []
    return cautions(*assess_held_out(classifier.metric_, classifier.held_out_, tuple(classifier.classes_.tolist())))


def model_card(description: dict[str, Any], warnings: Sequence[str] = ()) -> str:
    """The model card as Markdown, from a description, see :func:`metricfit.store.description_of`, and warnings."""
    classes = [str(value) for value in description["classes"]["values"]]
    template = _environment(html=False).get_template("card.md")
    return template.render(
        {**description, "classes": classes, "rows": _measured_rows(description), "warnings": warnings}
    )


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
