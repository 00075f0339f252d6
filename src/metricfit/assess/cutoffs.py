"""How far a chosen cut-off can be trusted: where it would lie on other samples of the same kind."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from metricfit.assess.intervals import Decided, estimate
from metricfit.decisions.problem import ConstraintLike, Goal, Samples, binary_samples, goal_of
from metricfit.decisions.threshold import CHUNK, Sweep, best_place, feasible_cut
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

    Attributes:
        threshold: The best cut-off on all data.
        value: The metric there.
        threshold_interval: Where the best cut-offs of the resamples lie.
        value_interval: The interval of the metric at the chosen cut-off, see :func:`metricfit.assess.estimate`.
        corrected_value: ``value`` less what choosing the cut-off on the same data adds to it (the optimism).
        level: The level of the intervals.
        thresholds: The best cut-off of each resample that had one.
        failed: How many resamples had none, because a constraint could not be met or a class was missing.
        stable: Whether the cut-off is much the same over the resamples.
    """

    threshold: float
    value: float
    threshold_interval: tuple[float, float]
    value_interval: tuple[float, float]
    corrected_value: float
    level: float
    thresholds: Array = field(repr=False)
    failed: int
    stable: bool


def threshold_uncertainty(
    y_true: ArrayLike,
    score: ArrayLike,
    metric: MetricLike,
    *,
    subject_to: ConstraintLike | Sequence[ConstraintLike] = (),
    sample_weight: ArrayLike | None = None,
    labels: Sequence[Hashable] | None = None,
    pos_label: Hashable | None = None,
    resamples: int = 500,
    level: float = 0.95,
    random_state: int | np.random.Generator | None = 0,
) -> ThresholdUncertainty:
    """Bootstrap intervals of the best cut-off and of its metric, with a warning where the cut-off is unstable.

    The counts of a resample are drawn at once for all cut-offs (a multinomial draw over the steps between them), so
    no samples are copied. With more than about a thousand distinct scores the resamples choose among that many
    cut-offs, spread evenly over all samples and over the positive ones; the cut-off reported is the exact one.

    Args:
        y_true: Labels of two classes, shape (n,).
        score: Scores of the positive class, shape (n,).
        metric: As for :func:`best_threshold`.
        subject_to: Constraints.
        sample_weight: Weights, shape (n,).
        labels: The two classes.
        pos_label: The positive class.
        resamples: How many.
        level: The level of the intervals.
        random_state: Seed.

    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 2000)
    >>> found = threshold_uncertainty(y, rng.normal(size=2000) + 2 * y, "balanced_accuracy")
    >>> low, high = found.threshold_interval
    >>> low < found.threshold < high, found.stable
    (True, True)
    """
    if resamples < 20:
        raise ValueError(f"resamples: expected at least 20, got {resamples}.")
    if not 0 < level < 1:
        raise ValueError(f"level: expected a number between 0 and 1, got {level!r}.")
    goal = goal_of(metric, subject_to)
    samples = binary_samples(y_true, score, sample_weight, labels=labels, pos_label=pos_label)
    sweep = Sweep.of(samples)
    best = feasible_cut(sweep, goal)
    cuts = _thinned(sweep, best.index)
    chosen, optimism = _resample(samples, sweep, goal, cuts, resamples, random_state)
    if len(chosen) == 0:
        raise ValueError("resamples: none of them has both classes and meets the constraints; bring more data.")
    sign = 1.0 if goal.metric.greater_is_better else -1.0
    thresholds = sweep.thresholds(chosen).astype(np.float64)
    tails = ((1 - level) / 2, (1 + level) / 2)
    interval = np.quantile(thresholds, tails, method="inverted_cdf")
    failed = resamples - len(chosen)
    stable = _is_stable(sweep, chosen, tails) and failed <= _FAILED_SHARE * resamples
    if not stable:
        _warn(interval, level, failed, resamples)
    threshold = sweep.threshold(best.index)
    called = samples.score >= np.asarray(threshold, dtype=samples.score.dtype)
    rows = Decided(samples.target.astype(np.int64), called.astype(np.int64), samples.classes, weight=samples.weight)
    found = estimate(goal.metric, rows, level=level)
    return ThresholdUncertainty(
        threshold=threshold,
        value=sign * best.gain,
        threshold_interval=(float(interval[0]), float(interval[1])),
        value_interval=(found.low, found.high),
        corrected_value=sign * (best.gain - float(optimism.mean())),
        level=level,
        thresholds=thresholds,
        failed=failed,
        stable=stable,
    )


def _thinned(sweep: Sweep, keep: int) -> NDArray[np.intp]:
    """All cut-offs, or about a thousand of them, the best and both ends included."""
    last = len(sweep) - 1
    if last <= _MOST_CUTS:
        return np.arange(last + 1)
    levels = np.linspace(0, 1, _MOST_CUTS // 2)
    by_sample = np.searchsorted(sweep.tp + sweep.fp, levels * (sweep.tp[-1] + sweep.fp[-1]))
    by_positive = np.searchsorted(sweep.tp, levels * sweep.tp[-1])
    return np.unique(np.concatenate([by_sample.clip(0, last), by_positive.clip(0, last), [0, keep, last]]))


def _resample(
    samples: Samples,
    sweep: Sweep,
    goal: Goal,
    cuts: NDArray[np.intp],
    resamples: int,
    random_state: int | np.random.Generator | None,
) -> tuple[NDArray[np.intp], Array]:
    """For each resample that works: its best cut-off, and the optimism."""
    rng = np.random.default_rng(random_state)
    steps = len(cuts) - 1
    original = goal.keys(sweep.matrix(sweep.cells(sweep.tp[cuts], sweep.fp[cuts])))[1].numpy()
    chosen, optimism = [], []
    for drawn in _draws(samples, sweep, cuts, resamples, max(CHUNK // len(cuts), 1), rng):
        totals = np.concatenate([np.zeros((len(drawn), 1, 2)), drawn.reshape(-1, steps, 2).cumsum(axis=1)], axis=1)
        cm = sweep.matrix(_matrices(totals[..., 1], totals[..., 0]))
        violation, gain = goal.keys(cm)
        violation = torch.where(gain == -torch.inf, torch.inf, violation)
        place = best_place(violation, gain, cm.tp.sum(dim=-1))[:, None]
        both = torch.from_numpy((totals[:, -1] > 0).all(axis=-1))
        works = both & (violation.gather(1, place)[:, 0] <= 0)
        found = place[works, 0]
        chosen.append(cuts[found.numpy()])
        optimism.append(gain[works].gather(1, place[works])[:, 0].numpy() - original[found.numpy()])
    return np.concatenate(chosen), np.concatenate(optimism)


def _draws(
    samples: Samples, sweep: Sweep, cuts: NDArray[np.intp], resamples: int, at_once: int, rng: np.random.Generator
) -> Iterator[Array]:
    """Weight of (step, class) cells in resamples, shape (some resamples, steps * 2)."""
    n = len(samples.score)
    if samples.weight is None:
        cells = np.stack([np.diff(sweep.fp[cuts]), np.diff(sweep.tp[cuts])], axis=-1).ravel()
        for start in range(0, resamples, at_once):
            yield rng.multinomial(n, cells / n, size=min(at_once, resamples - start)).astype(np.float64)
        return
    distinct = np.searchsorted(sweep.scores[::-1], samples.score)  # rank of the score from below
    step = np.searchsorted(cuts, len(sweep.scores) - distinct) - 1
    cell = step * 2 + samples.target
    for start in range(0, resamples, at_once):
        rows = []
        for _ in range(min(at_once, resamples - start)):
            times = np.bincount(rng.integers(0, n, n), minlength=n)
            rows.append(np.bincount(cell, weights=times * samples.weight, minlength=2 * (len(cuts) - 1)))
        yield np.stack(rows)


def _matrices(tp: Array, fp: Array) -> torch.Tensor:
    cells = np.stack([fp[..., -1:] - fp, fp, tp[..., -1:] - tp, tp], axis=-1)
    return torch.from_numpy(cells.reshape(*tp.shape, 2, 2))


def _is_stable(sweep: Sweep, chosen: NDArray[np.intp], tails: tuple[float, float]) -> bool:
    """Stable: over the interval of cut-offs the number of samples called positive at most doubles."""
    few, many = (int(np.quantile(chosen, tail, method="inverted_cdf")) for tail in tails)
    called = sweep.tp + sweep.fp
    return bool(called[many] <= 2 * called[few])


def _warn(interval: Array, level: float, failed: int, resamples: int) -> None:
    if failed > _FAILED_SHARE * resamples:
        reason = f"{failed} of {resamples} resamples have no cut-off that meets the constraints"
    else:
        reason = (
            f"the {level:.0%} interval reaches from {interval[0]:.4g} to {interval[1]:.4g}, over which the number of "
            "samples called positive more than doubles"
        )
    warnings.warn(
        f"The cut-off is unstable: {reason}. Bring more data, or choose a metric that depends on more samples.",
        UnstableThresholdWarning,
        stacklevel=3,
    )
