"""The top of the page: the answer in one sentence, what it is compared with, and what to be wary of."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from metricfit.assess.intervals import Estimate, Rival, Verdict, estimate
from metricfit.assess.scores import HeldOutScores
from metricfit.inputs import Task
from metricfit.metrics import Metric
from metricfit.report.formula import in_words

__all__ = ["answer"]

MODEL, PLAIN, TUNED = "This model", "Cross-entropy, arg max", "Cross-entropy, tuned rule"


def answer(metric: Metric, scores: HeldOutScores, labels: tuple[Any, ...], task: Task) -> dict[str, Any]:
    """Sentence, warning and table rows."""
    rivals = [Rival(MODEL, scores.decided, scores.proba)]
    plain = scores.baseline_decided
    if plain is not None and scores.baseline is not None:
        rivals.append(Rival(PLAIN, plain, scores.baseline))
        if scores.baseline_tuned is not None and not metric.judges_scores:
            rivals.append(Rival(TUNED, scores.baseline_tuned, scores.baseline))
    verdicts = estimate(metric, scores.truth, rivals, labels, task, scores.weight)
    name = in_words(metric)
    name = name[0].upper() + name[1:]
    return {
        "metric": name,
        "sentence": _sentence(name, verdicts, scores),
        "warning": _warning(verdicts),
        "limits": _limits(verdicts[0]),
        "rows": [_row(v) for v in verdicts],
        "greater": metric.greater_is_better,
        "classes_absent": _absent(scores, labels),
    }


def _sentence(name: str, verdicts: list[Verdict], scores: HeldOutScores) -> str:
    ours = verdicts[0].estimate
    count = f"{scores.total or len(scores):,}"
    if math.isnan(ours.value):
        return f"{name} has no value on these {count} held-out rows."
    start = f"{name} is {ours.value:.3f}{_between(ours)} on {count} held-out rows"
    if len(verdicts) == 1 or verdicts[-1].gain is None:
        return start + "."
    gain, rival = verdicts[-1].gain, _in_words(verdicts[-1].name)
    missed = _missed(verdicts[-1])
    if missed and not _missed(verdicts[0]):
        return f"{start}; {rival} does not meet {' and '.join(missed)} there."
    if gain.low > 0:
        return f"{start}: {gain.value:.3f} better than {rival}."
    if gain.high < 0:
        return f"{start}: {-gain.value:.3f} worse than {rival}."
    return f"{start}: no clear difference from {rival}."


def _in_words(name: str) -> str:
    return {PLAIN: "the same network trained with cross-entropy", TUNED: "cross-entropy with a tuned rule"}[name]


def _between(value: Estimate) -> str:
    return "" if math.isnan(value.low) else f" (95 % interval {value.low:.3f} to {value.high:.3f})"


def _warning(verdicts: list[Verdict]) -> str:
    missed = _missed(verdicts[0])
    if missed:
        return f"On these rows the model does not meet {' and '.join(missed)}."
    if len(verdicts) == 1 or verdicts[-1].gain is None or math.isnan(verdicts[-1].gain.value):
        return ""
    if _missed(verdicts[-1]):
        return ""  # whatever it reaches, it is not what was asked for
    gain, rival = verdicts[-1].gain, _in_words(verdicts[-1].name)
    if gain.low > 0:
        return ""
    paired = f"{gain.value:+.3f}, paired 95 % interval {gain.low:+.3f} to {gain.high:+.3f}".replace("-", "\u2212")
    if gain.high < 0:
        return f"Cross-entropy did better here: against {rival} the gain is {paired}. Prefer it, or look at its rule."
    return (
        f"The gain over {rival} is within the noise: {paired}. With these rows the two cannot be told apart; a simpler "
        "model is as good a choice, or measure on more rows."
    )


def _missed(verdict: Verdict) -> list[str]:
    return [text for text, _, met in verdict.constraints if not met]


def _limits(verdict: Verdict) -> list[dict[str, Any]]:
    return [{"text": text, "value": value, "met": met} for text, value, met in verdict.constraints]


def _row(verdict: Verdict) -> dict[str, Any]:
    e, g = verdict.estimate, verdict.gain
    return {
        "name": verdict.name,
        "value": e.value,
        "low": e.low,
        "high": e.high,
        "gain": None if g is None else {"value": g.value, "low": g.low, "high": g.high},
        "limits": _limits(verdict),
    }


def _absent(scores: HeldOutScores, labels: tuple[Any, ...]) -> list[str]:
    """Classes without a row (labels without a positive one)."""
    several = scores.truth.ndim == 2
    counts = scores.truth.sum(axis=0) if several else np.bincount(scores.truth, minlength=len(labels))
    return [str(label) for label, count in zip(labels, counts, strict=True) if not count]
