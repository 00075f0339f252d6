"""One cut-off per label: each label for itself, or all together for metrics that mix them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from metricfit.confusion import ConfusionMatrix
from metricfit.decisions.belief import check_belief, mixed_labels
from metricfit.decisions.confidence import certified_rule, check_confidence, halves
from metricfit.decisions.problem import ConstraintLike, Goal, Samples, goal_of, label_samples, values_of
from metricfit.decisions.rules import BestRule, DecisionRule
from metricfit.decisions.threshold import CHUNK, Sweep, best_cut, infeasible, infeasible_cuts
from metricfit.metrics import MetricLike

__all__ = ["best_label_thresholds"]

_MOST_PASSES = 50

Array = NDArray[np.float64]


def best_label_thresholds(
    y_true: ArrayLike,
    score: ArrayLike,
    metric: MetricLike,
    *,
    how: Literal["joint", "each"] = "joint",
    subject_to: ConstraintLike | Sequence[ConstraintLike] = (),
    confidence: float | None = None,
    sample_weight: ArrayLike | None = None,
    labels: Sequence[Hashable] | None = None,
    default: float = 0.5,
    restarts: int = 2,
    random_state: int | np.random.Generator | None = 0,
    belief: float = 0.0,
) -> BestRule:
    """The best cut-off for every label of a multi-label target.

    Args:
        y_true: 0/1 indicators, shape (n, labels).
        score: Scores, shape (n, labels).
        metric: A name, an expression, a spec with ``subject to``, a metric or a function of the confusion matrix.
        how: ``"joint"`` maximises the metric of all labels together by coordinate ascent with an exact sweep per label
            (one pass is exact for a macro average; micro averages and others need several). ``"each"`` maximises the
            metric (and meets the constraints) for each label on its own.
        subject_to: Constraints.
        confidence: If given, the constraints hold on new data with this probability.
        sample_weight: Weights, shape (n,).
        labels: Names of the labels.
        default: Cut-off of labels for which the data say nothing.
        restarts: Starting points of the joint search beside ``default`` and each label's own best.
        random_state: Seed of the random starting points and of the split for ``confidence``.
        belief: The share of every label that is replaced by its calibrated probability, as for :func:`best_threshold`.

    Raises:
        InfeasibleError: If the constraints cannot be met.

    >>> y = [[1, 0], [1, 1], [0, 0], [0, 1]]
    >>> best_label_thresholds(y, [[0.9, 0.1], [0.3, 0.3], [0.2, 0.2], [0.1, 0.4]], "f1").thresholds
    array([0.25, 0.25])
    """
    if how not in ("joint", "each"):
        raise ValueError(f"how: expected 'joint' or 'each', got {how!r}.")
    goal = goal_of(metric, subject_to)
    check_belief(belief)
    samples = label_samples(y_true, score, sample_weight, labels=labels)
    rng = np.random.default_rng(random_state)
    promises: tuple[float | None, ...] = (None,) * len(goal.constraints)
    if confidence is None:
        thresholds = _search(samples, goal, how, default, restarts, rng, belief)
    elif how == "each":
        raise ValueError(
            "confidence: speaks of all constraints together; use how='joint', or best_threshold for a label on its own."
        )
    else:
        alpha = check_confidence(confidence, goal.constraints, samples.weight is not None)
        thresholds, promises = certified_rule(
            goal,
            halves(np.zeros(len(samples.score)), rng),
            alpha,
            propose=lambda g, rows: _search(samples.take(rows), g, how, default, restarts, rng, belief),
            confusion=lambda found, rows: _confusion(samples.take(rows), found),
        )
    rule = DecisionRule.at_thresholds(thresholds.tolist(), samples.classes, metric=goal.spec)
    cm = _confusion(samples, thresholds)
    if how == "each":  # the constraints were met for each label on its own, and have no one value
        return BestRule(rule, float(values_of(goal.metric, cm)), cm)
    return BestRule.of(rule, goal, cm, promises, confidence=confidence)


def _search(
    samples: Samples, goal: Goal, how: str, default: float, restarts: int, rng: np.random.Generator, belief: float
) -> Array:
    mixed = mixed_labels(samples, belief)
    beliefs = [None] * samples.target.shape[1] if mixed is None else mixed.T
    columns = zip(samples.target.T, samples.score.T, beliefs, strict=True)
    sweeps = [Sweep.of(Samples(hit, score, samples.weight), believed) for hit, score, believed in columns]
    plain = [sweep.index_of(default) for sweep in sweeps]
    if how == "each":
        cuts = _each(sweeps, goal, plain, must_hold=True)
    else:
        cuts = _jointly(sweeps, goal, plain, restarts, rng, samples.classes)
    chosen = zip(sweeps, cuts, plain, strict=True)
    return np.array([default if cut == usual else sweep.threshold(cut) for sweep, cut, usual in chosen])


def _each(sweeps: Sequence[Sweep], goal: Goal, plain: Sequence[int], *, must_hold: bool) -> list[int]:
    """Each label's own best cut-off; the metric sees a multi-label matrix of that one label."""
    cuts = []
    for label, (sweep, start) in enumerate(zip(sweeps, plain, strict=True)):

        def alone(counts: Tensor) -> ConfusionMatrix:
            return ConfusionMatrix(counts[..., None, :, :], "multilabel")

        cut = best_cut(sweep, goal, wrap=alone)
        if must_hold and cut is not None and cut.violation > 0:
            raise infeasible_cuts(sweep, goal, wrap=alone, what=f"cut-off for label {label}")
        informative = sweep.tp[-1] > 0 and sweep.fp[-1] > 0
        cuts.append(start if cut is None or not informative else cut.index)
    return cuts


def _jointly(
    sweeps: Sequence[Sweep],
    goal: Goal,
    plain: list[int],
    restarts: int,
    rng: np.random.Generator,
    labels: tuple[object, ...] | None,
) -> list[int]:
    starts = [plain]
    if not any(_names_a_class(part) for part in (goal.metric, *(c.metric for c in goal.constraints))):
        starts.append(_each(sweeps, goal, plain, must_hold=False))
    starts += [[int(rng.integers(len(sweep))) for sweep in sweeps] for _ in range(restarts)]
    found = [_ascend(sweeps, goal, start, labels) for start in starts]
    cuts, key = max(found, key=lambda result: result[1])
    if key[0] < 0:
        cm = ConfusionMatrix(_counts(sweeps, cuts)[0], "multilabel", labels)
        missed = {c: (float(values_of(c.metric, cm)), " that was found") for c in goal.constraints}
        raise infeasible(goal, missed, "set of cut-offs found")
    return cuts


def _counts(sweeps: Sequence[Sweep], cuts: Sequence[int]) -> Tensor:
    """The views of the labels at their cut-offs, shape (1 or 2, labels, 2, 2)."""
    return torch.cat([sweep.views(cut, cut + 1) for sweep, cut in zip(sweeps, cuts, strict=True)], dim=1)


def _names_a_class(metric: object) -> bool:
    return "[" in str(metric) or str(metric).startswith("<")


def _ascend(
    sweeps: Sequence[Sweep], goal: Goal, start: list[int], labels: tuple[object, ...] | None
) -> tuple[list[int], tuple[float, float]]:
    """Sweep one label after the other, the others held, until a whole pass improves nothing."""
    cuts = list(start)
    base = _counts(sweeps, cuts)
    violations, gains = goal.keys(ConfusionMatrix(base, "multilabel", labels))
    key = (-float(violations[0]), float(gains[-1]))
    for _ in range(_MOST_PASSES):
        before = key
        for k, sweep in enumerate(sweeps):

            def among_others(counts: Tensor, k: int = k) -> ConfusionMatrix:
                matrices = base[:, None].repeat(1, counts.shape[1], 1, 1, 1)
                matrices[:, :, k] = counts
                return ConfusionMatrix(matrices, "multilabel", labels)

            cut = best_cut(sweep, goal, wrap=among_others, chunk=max(CHUNK // len(sweeps), 1))
            if cut is not None and (-cut.violation, cut.gain) > key:
                cuts[k], key = cut.index, (-cut.violation, cut.gain)
                base[:, k] = sweep.views(cut.index, cut.index + 1)[:, 0]
        if key == before:
            break
    return cuts, key


def _confusion(samples: Samples, thresholds: Array) -> ConfusionMatrix:
    decided, names = samples.score >= thresholds.astype(samples.score.dtype), samples.classes
    size = decided.shape[1]
    return ConfusionMatrix.from_codes(samples.target, decided, size, samples.weight, task="multilabel", labels=names)
