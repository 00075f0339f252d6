"""From scores to the numbers of the tables: the papers' way, at the decision rule, and with a tuned rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit, softmax

from metricfit import metrics
from metricfit.confusion import ConfusionMatrix
from metricfit.decisions import best_rule

__all__ = ["BINARY", "MULTICLASS", "THRESHOLDS", "Score", "Scores", "evaluate", "spec_of"]

Array = NDArray[Any]

THRESHOLDS = tuple(round(0.1 * i, 1) for i in range(1, 10))
"""btg reports the mean over these."""

BINARY = {
    "f1": "f1",
    "f2": "fbeta:beta=2",
    "f3": "fbeta:beta=3",
    "accuracy": "accuracy",
    "precision": "precision",
    "recall": "recall",
    "balanced_accuracy": "balanced_accuracy",
    "gmean": "gmean",
    "mcc": "mcc",
    "macro_f1": "f1:average=macro",
}
"""Metrics of two classes, by the name in the rows, as metricfit spells them; without ``macro`` the positive class's."""

MULTICLASS = {
    "macro_f1": "f1:average=macro",
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced_accuracy",
    "mcc": "mcc",
}


@dataclass(frozen=True)
class Score:
    """A number and what it is.

    Attributes:
        rule: ``"mean_tau"``: the mean over thresholds 0.1, …, 0.9 of the probability; ``"mean_tau_raw"``: of the raw
            output, as btg's code does where the network has no sigmoid; ``"decision"``: probability one half or arg
            max; ``"tuned"``: a rule tuned on the validation part for this metric; ``"tuned_for_…"``: for another one;
            ``"scores"``: no decision at all.
        metric: Its name.
        of_class: The class, for precision and recall one by one.
        value: The number.
    """

    rule: str
    metric: str
    of_class: str
    value: float


@dataclass(frozen=True, eq=False)
class Scores:
    """Raw outputs of a part and its classes.

    Attributes:
        raw: Logits (n,) of a single output, or (n, classes).
        y: Classes.
        middle: A single output counts as positive from here on: 0 for a logit, 1/2 where the network itself gives
            what is compared with a threshold.
    """

    raw: Array
    y: Array
    middle: float = 0.0

    @property
    def probabilities(self) -> Array:
        """(n, classes)."""
        raw = np.asarray(self.raw, dtype=np.float64)
        if raw.ndim == 1:
            p = expit(raw - self.middle)
            return np.stack([1 - p, p], axis=1)
        return softmax(raw, axis=1)


def spec_of(metric: str, n_classes: int) -> str:
    """The metric as metricfit spells it."""
    table = BINARY if n_classes == 2 else MULTICLASS
    if metric not in table:
        raise ValueError(f"metric: expected one of {', '.join(table)} with {n_classes} classes, got {metric!r}.")
    return table[metric]


def evaluate(
    test: Scores,
    validation: Scores | None,
    classes: Sequence[str],
    *,
    tuned: Sequence[str] = (),
    single: Sequence[str] = (),
    objectives: dict[str, metrics.MetricLike] | None = None,
    thresholds: bool = False,
    raw_thresholds: bool = False,
) -> list[Score]:
    """All numbers of one fit.

    Args:
        test: Outputs on the test part.
        validation: Outputs on the validation part, for tuned rules; ``None`` for none.
        classes: Names of the classes.
        tuned: Metrics to tune a rule for.
        single: Classes whose precision and recall are wanted one by one.
        objectives: Further metrics to tune a rule for, by name; what counts is then the
            precision and recall of the single classes and the macro F1.
        thresholds: Whether the mean over thresholds is wanted (two classes).
        raw_thresholds: Whether also that of the raw outputs.
    """
    return list(_all(test, validation, classes, tuned, single, objectives or {}, thresholds, raw_thresholds))


def _all(
    test: Scores,
    validation: Scores | None,
    classes: Sequence[str],
    tuned: Sequence[str],
    single: Sequence[str],
    objectives: dict[str, metrics.MetricLike],
    thresholds: bool,
    raw_thresholds: bool,
) -> Iterator[Score]:
    p = test.probabilities
    binary = len(classes) == 2
    labels = range(len(classes))
    table = BINARY if binary else MULTICLASS
    yield from _decided("decision", test.y, p.argmax(axis=1) if not binary else p[:, 1] >= 0.5, classes, single)
    if binary:
        yield Score("scores", "auroc", "", float(metrics.get("auroc").score(test.y, p[:, 1])))
    if binary and thresholds:
        yield from mean_over_thresholds("mean_tau", test.y, test.raw if test.middle else p[:, 1])
    if binary and raw_thresholds:
        raw = test.raw if test.raw.ndim == 1 else test.raw[:, 1] - test.raw[:, 0]
        yield from mean_over_thresholds("mean_tau_raw", test.y, raw)
    if validation is None:
        return
    for metric in tuned:
        decided = best_rule(validation.y, validation.probabilities, table[metric], labels=labels).rule.apply(p)
        value = metrics.get(table[metric]).score(test.y, decided, labels=labels)
        yield Score("tuned", metric, "", float(value))
    for name, spec in objectives.items():
        decided = best_rule(validation.y, validation.probabilities, spec, labels=labels).rule.apply(p)
        wanted = ("macro_f1", "precision", "recall")
        yield from (s for s in _decided(f"tuned_for_{name}", test.y, decided, classes, single) if s.metric in wanted)


def _decided(rule: str, y: Array, decided: Array, classes: Sequence[str], single: Sequence[str]) -> Iterator[Score]:
    d = len(classes)
    matrix = np.bincount(d * y + np.asarray(decided, dtype=np.int64), minlength=d * d).reshape(d, d)
    confusion = ConfusionMatrix(torch.from_numpy(matrix), task="binary" if d == 2 else "multiclass")
    for metric, spec in (BINARY if d == 2 else MULTICLASS).items():
        yield Score(rule, metric, "", float(metrics.get(spec).compute(confusion)))
    for name in single:
        k = [c.lower() for c in classes].index(name.lower())
        for metric in ("precision", "recall"):
            yield Score(rule, metric, name, float(metrics.get(f"{metric}[{k}]").compute(confusion)))


def mean_over_thresholds(rule: str, y: Array, score: Array) -> Iterator[Score]:
    """Mean over :data:`THRESHOLDS` of each metric; the mean of balanced accuracies is what btg calls AUROC."""
    above = np.asarray(score)[None, :] >= np.asarray(THRESHOLDS)[:, None]
    positive = np.asarray(y) == 1
    tp, fp = (above & positive).sum(axis=1), (above & ~positive).sum(axis=1)
    fn, tn = positive.sum() - tp, (~positive).sum() - fp
    matrices = np.stack([np.stack([tn, fp], -1), np.stack([fn, tp], -1)], axis=1)
    confusion = ConfusionMatrix(torch.from_numpy(matrices), task="binary")
    for metric in ("f1", "f2", "f3", "accuracy", "precision", "recall", "balanced_accuracy"):
        yield Score(rule, metric, "", float(metrics.get(BINARY[metric]).compute(confusion).mean()))
