"""How far a chosen cut-off can be trusted: where it would lie on other samples of the same kind."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metricfit.assess.intervals import TAILS, Decided, estimate
from metricfit.decisions.problem import ConstraintLike, Goal, Samples, binary_samples, goal_of
from metricfit.decisions.threshold import Sweep, best_cut, feasible_cut
from metricfit.metrics import MetricLike

_MOST_CUTS = 1024
_FAILED_SHARE = 0.05


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
    thresholds: NDArray[np.float64] = field(repr=False)  # the best one of each resample that had one
    failed: int
    stable: bool  # whether the cut-off is much the same over the resamples


def threshold_uncertainty(
    y_true: ArrayLike, score: ArrayLike, metric: MetricLike, *,
    subject_to: ConstraintLike | Sequence[ConstraintLike] = (), sample_weight: ArrayLike | None = None,
    labels: Sequence[Hashable] | None = None, resamples: int = 500, random_state: int | np.random.Generator | None = 0,
) -> ThresholdUncertainty:  # fmt: skip
    """Intervals of the best cut-off (by the bootstrap) and of its metric; a warning where the cut-off is unstable.

    The counts of a resample are drawn at once for all cut-offs (a multinomial draw over the steps between them), so
    no samples are copied. With more than about a thousand distinct scores the resamples choose among that many
    cut-offs, spread evenly over all samples and over the positive ones; the cut-off reported is the exact one.

    ``resamples`` are drawn with the seed ``random_state``; other arguments are those of
    :func:`metricfit.decisions.best_threshold`.

    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 2000)
    >>> threshold_uncertainty(y, rng.normal(size=2000) + 2 * y, "balanced_accuracy").stable
    True
    """
    if resamples < 20:
        raise ValueError(f"resamples: expected at least 20, got {resamples}.")
    goal = goal_of(metric, subject_to)
    samples = binary_samples(y_true, score, sample_weight, labels=labels)
    sweep = Sweep.of(samples)
    best = feasible_cut(sweep, goal)
    chosen, optimism = _resample(samples, sweep, goal, best.index, resamples, np.random.default_rng(random_state))
    if len(chosen) == 0:
        raise ValueError("resamples: none of them has both classes and meets the constraints; bring more data.")
    low, high = np.quantile(chosen, TAILS, method="inverted_cdf").astype(np.intp)
    lowest, highest = float(sweep.threshold(high)), float(sweep.threshold(low))
    failed = resamples - len(chosen)
    reason = None
    if failed > _FAILED_SHARE * resamples:
        reason = f"{failed} of {resamples} resamples have no cut-off that meets the constraints"
    elif (sweep.tp + sweep.fp)[high] > 2 * (sweep.tp + sweep.fp)[low]:
        reason = (
            f"the 95% interval reaches from {lowest:.4g} to {highest:.4g}, over which the number of samples called "
            "positive more than doubles"
        )
    if reason is not None:
        warnings.warn(
            f"The cut-off is unstable: {reason}. Bring more data, or choose a metric that depends on more samples.",
            UnstableThresholdWarning,
            stacklevel=2,
        )
    called = sweep.index_of(samples.score) <= best.index
    rows = Decided(samples.target.astype(np.int64), called.astype(np.int64), samples.classes, weight=samples.weight)
    found = estimate(goal.metric, rows)
    return ThresholdUncertainty(
        sweep.threshold(best.index), goal.sign * best.gain, (lowest, highest), (found.low, found.high),
        goal.sign * (best.gain - float(np.mean(optimism))), sweep.thresholds(chosen).astype(np.float64), failed,
        stable=reason is None,
    )  # fmt: skip


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
    # What is drawn is how many samples of one class lie between two cut-offs, each of their mean weight.
    cell = 2 * (np.searchsorted(cuts, sweep.index_of(samples.score)) - 1) + samples.target
    number, weight = (np.bincount(cell, w, minlength=2 * len(cuts) - 2) for w in (None, samples.weight))
    mean_weight = weight / np.maximum(number, 1)
    original = goal.keys(sweep.matrix(sweep.cells(sweep.tp[cuts], sweep.fp[cuts])))[1].numpy()
    chosen, optimism = [], []
    for _ in range(resamples):
        drawn = (rng.multinomial(n, number / n) * mean_weight).reshape(-1, 2)
        fp, tp = np.concatenate([np.zeros((1, 2)), drawn.cumsum(axis=0)]).T
        cut = best_cut(replace(sweep, tp=tp, fp=fp), goal)
        if fp[-1] > 0 and tp[-1] > 0 and cut.violation == 0:
            chosen.append(cuts[cut.index])
            optimism.append(cut.gain - float(original[cut.index]))
    return np.array(chosen), optimism
