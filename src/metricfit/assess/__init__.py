"""What held-out scores are worth: values, the one interval, paired differences and verdicts."""

from metricfit.assess.columns import partial_dependence, permutation_importance, segments, worst_errors
from metricfit.assess.cutoffs import ThresholdUncertainty, UnstableThresholdWarning, threshold_uncertainty
from metricfit.assess.intervals import Decided, Estimate, difference, estimate, estimate_classes, over_splits, share
from metricfit.assess.verdicts import (
    Assessment,
    HeldOutScores,
    Reached,
    Verdict,
    assess,
    assess_held_out,
    leaderboard,
    scores_of,
    verdict,
)  # fmt: skip
from metricfit.assess.watching import Watched, estimate_prevalence, expected_metric, monitor

__all__ = [
    "Assessment", "Decided", "Estimate", "HeldOutScores", "Reached", "ThresholdUncertainty",
    "UnstableThresholdWarning", "Verdict", "Watched", "assess", "assess_held_out", "difference", "estimate",
    "estimate_classes", "estimate_prevalence", "expected_metric", "leaderboard", "monitor", "over_splits",
    "partial_dependence", "permutation_importance", "scores_of", "segments", "share", "threshold_uncertainty",
    "verdict", "worst_errors",
]  # fmt: skip
