"""The top of the page: the answer in one sentence, what it is compared with, and what to be wary of."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from metricfit.assess import Assessment, HeldOutScores, Verdict, assess_held_out
from metricfit.assess.verdicts import in_words as rival_in_words
from metricfit.metrics import Metric
from metricfit.report.formula import in_words

__all__ = ["answer"]

MODEL, PLAIN, TUNED = "This model", "Cross-entropy, arg max", "Cross-entropy, tuned rule"


def answer(metric: Metric, scores: HeldOutScores, labels: tuple[Any, ...]) -> dict[str, Any]:
    """Sentence, warning and table rows."""
    model, verdicts = assess_held_out(metric, scores, labels)
    name = in_words(metric)
    name = name[0].upper() + name[1:]
    main = verdicts[-1] if verdicts else None
    return {
        "metric": name,
        "sentence": _sentence(name, model, main, scores),
        "warning": _warning(model, main),
        "limits": _limits(model),
        "rows": [_row(model, None), *(_row(v.rival, v) for v in verdicts)],
        "greater": metric.greater_is_better,
        "classes_absent": _absent(scores, labels),
    }


def _sentence(name: str, model: Assessment, verdict: Verdict | None, scores: HeldOutScores) -> str:
    ours = model.estimate
    count = f"{scores.total or len(scores):,}"
    if math.isnan(ours.value):
        return f"{name} has no value on these {count} held-out rows."
    between = "" if math.isnan(ours.low) else f" (95 % interval {ours.low:.3f} to {ours.high:.3f})"
    start = f"{name} is {ours.value:.3f}{between} on {count} held-out rows"
    if verdict is None:
        return start + "."
    rival = rival_in_words(verdict.rival.name)
    if verdict.rival.missed and not model.missed:
        return f"{start}; {rival} does not meet {' and '.join(verdict.rival.missed)} there."
    if verdict.gain.low > 0:
        return f"{start}: {verdict.gain.value:.3f} better than {rival}."
    if verdict.gain.high < 0:
        return f"{start}: {-verdict.gain.value:.3f} worse than {rival}."
    return f"{start}: no clear difference from {rival}."


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


def _limits(found: Assessment) -> list[dict[str, Any]]:
    return [{"text": c.constraint, **vars(c.estimate), "met": c.met} for c in found.constraints]


def _row(found: Assessment, verdict: Verdict | None) -> dict[str, Any]:
    return {
        "name": found.name[0].upper() + found.name[1:],
        **vars(found.estimate),
        "gain": None if verdict is None else vars(verdict.gain),
        "limits": _limits(found),
    }


def _absent(scores: HeldOutScores, labels: tuple[Any, ...]) -> list[str]:
    """Classes without a row (labels without a positive one)."""
    several = scores.truth.ndim == 2
    counts = scores.truth.sum(axis=0) if several else np.bincount(scores.truth, minlength=len(labels))
    return [str(label) for label, count in zip(labels, counts, strict=True) if not count]
