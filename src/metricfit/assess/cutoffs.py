"""How far a chosen cut-off can be trusted: where it would lie on other samples of the same kind."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metricfit.assess.intervals import Decided, estimate, tails
from metricfit.decisions.problem import ConstraintLike, Goal, Samples, binary_samples, goal_of
from metricfit.decisions.threshold import Sweep, best_cut, feasible_cut
from metricfit.metrics import MetricLike

__all__ = ["ThresholdUncertainty", "UnstableThresholdWarning", "threshold_uncertainty"]

_MOST_CUTS = 1024
_FAILED_SHARE = 0.05

Array = NDArray[np.float64]


class UnstableThresholdWarning(UserWarning):
    """The chosen cut-off would be quite another one on a different sample of the same kind."""


@dataclass(frozen=True)
class ThresholdUncertainty:
    """What the bootstrap says about a cut-off.

    ``corrected_value`` is the value less what choosing the cut-off on the same data adds to it (the optimism);
    ``failed`` counts resamples that lack a class or in which no cut-off meets the constraints.
    """

    threshold: float  # the best one on all data
    value: float  # the metric there
    threshold_interval: tuple[float, float]  # where the best cut-offs of the resamples lie
    value_interval: tuple[float, float]  # at the chosen cut-off, see :func:`metricfit.assess.estimate`
    corrected_value: float
    level: float
    thresholds: Array = field(repr=False)  # the best one of each resample that had one
    failed: int
    stable: bool  # whether the cut-off is much the same over the resamples


def threshold_uncertainty(
    y_true: ArrayLike, score: ArrayLike, metric: MetricLike, *,
    subject_to: ConstraintLike | Sequence[ConstraintLike] = (), sample_weight: ArrayLike | None = None,
    labels: Sequence[Hashable] | None = None, pos_label: Hashable | None = None, resamples: int = 500,
    level: float = 0.95, random_state: int | np.random.Generator | None = 0,
) -> ThresholdUncertainty:  # fmt: skip
    """Bootstrap intervals of the best cut-off and of its metric, with a warning where the cut-off is unstable.

    The counts of a resample are drawn at once for all cut-offs (a multinomial draw over the steps between them), so
    no samples are copied. With more than about a thousand distinct scores the resamples choose among that many
    cut-offs, spread evenly over all samples and over the positive ones; the cut-off reported is the exact one.

    ``resamples`` are drawn with the seed ``random_state``, intervals have this ``level``; other arguments are those of
    :func:`metricfit.decisions.best_threshold`.

    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 2000)
    >>> threshold_uncertainty(y, rng.normal(size=2000) + 2 * y, "balanced_accuracy").stable
    True
    """
    if resamples < 20:
        raise ValueError(f"resamples: expected at least 20, got {resamples}.")
    if not 0 < level < 1:
        raise ValueError(f"level: expected a number between 0 and 1, got {level!r}.")
    goal = goal_of(metric, subject_to)
    samples = binary_samples(y_true, score, sample_weight, labels=labels, pos_label=pos_label)
    sweep = Sweep.of(samples)
    best = feasible_cut(sweep, goal)
    chosen, optimism = _resample(samples, sweep, goal, best.index, resamples, np.random.default_rng(random_state))
    if len(chosen) == 0:
        raise ValueError("resamples: none of them has both classes and meets the constraints; bring more data.")
    thresholds = sweep.thresholds(chosen).astype(np.float64)
    low, high = (float(end) for end in np.quantile(thresholds, tails(level), method="inverted_cdf"))
    failed = resamples - len(chosen)
    # Stable: over the interval of cut-offs the number of samples called positive at most doubles.
    few, many = (sweep.tp + sweep.fp)[np.quantile(chosen, tails(level), method="inverted_cdf").astype(np.intp)]
    reason = None
    if failed > _FAILED_SHARE * resamples:
        reason = f"{failed} of {resamples} resamples have no cut-off that meets the constraints"
    elif many > 2 * few:
        reason = (
            f"the {level:.0%} interval reaches from {low:.4g} to {high:.4g}, over which the number of samples called "
            "positive more than doubles"
        )
    if reason is not None:
        warnings.warn(
            f"The cut-off is unstable: {reason}. Bring more data, or choose a metric that depends on more samples.",
            UnstableThresholdWarning,
            stacklevel=2,
        )
    threshold = sweep.threshold(best.index)
    called = samples.score >= np.asarray(threshold, dtype=samples.score.dtype)
    rows = Decided(samples.target.astype(np.int64), called.astype(np.int64), samples.classes, weight=samples.weight)
    found = estimate(goal.metric, rows, level=level)
    corrected = goal.sign * (best.gain - float(np.mean(optimism)))
    intervals = (low, high), (found.low, found.high)
    return ThresholdUncertainty(
        threshold, goal.sign * best.gain, *intervals, corrected, level, thresholds, failed, stable=reason is None
    )


def _resample(
    samples: Samples, sweep: Sweep, goal: Goal, best: int, resamples: int, rng: np.random.Generator
) -> tuple[NDArray[np.intp], list[float]]:
    """For each resample that works: its best cut-off, and the optimism."""
    last, n = len(sweep) - 1, len(samples.score)
    cuts: NDArray[np.intp] = np.arange(last + 1)
    if last > _MOST_CUTS:
        levels = np.linspace(0, 1, _MOST_CUTS // 2)
        by_sample = np.searchsorted(sweep.tp + sweep.fp, levels * (sweep.tp[-1] + sweep.fp[-1]))
        by_positive = np.searchsorted(sweep.tp, levels * sweep.tp[-1])
        cuts = np.unique(np.concatenate([by_sample.clip(0, last), by_positive.clip(0, last), [0, best, last]]))
    # A cell: the samples of one class between two cut-offs. What is drawn are cells or, if they differ, samples.
    counts = np.stack([np.diff(sweep.fp[cuts]), np.diff(sweep.tp[cuts])], axis=-1).ravel()
    cell, weight = np.arange(len(counts)), np.ones(len(counts))
    if samples.weight is not None:
        from_below = np.searchsorted(sweep.scores[::-1], samples.score)
        cell = 2 * (np.searchsorted(cuts, last - from_below) - 1) + samples.target
        weight = samples.weight
    original = goal.keys(sweep.matrix(sweep.cells(sweep.tp[cuts], sweep.fp[cuts])))[1].numpy()
    chosen, optimism = [], []
    for _ in range(resamples):
        of_samples = samples.weight is not None
        times = np.bincount(rng.integers(0, n, n), minlength=n) if of_samples else rng.multinomial(n, counts / n)
        drawn = np.bincount(cell, times * weight, minlength=len(counts))
        fp, tp = np.concatenate([np.zeros((1, 2)), drawn.reshape(-1, 2).cumsum(axis=0)]).T
        cut = best_cut(replace(sweep, tp=tp, fp=fp), goal) if fp[-1] > 0 and tp[-1] > 0 else None
        if cut is not None and cut.violation <= 0:
            chosen.append(cuts[cut.index])
            optimism.append(cut.gain - float(original[cut.index]))
    return np.array(chosen), optimism
