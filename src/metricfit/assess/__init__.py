"""What held-out scores are worth: values, the one interval, paired differences and verdicts."""

from metricfit.assess.cutoffs import ThresholdUncertainty, UnstableThresholdWarning, threshold_uncertainty
from metricfit.assess.intervals import Decided, Estimate, difference, estimate, estimate_classes, over_splits
from metricfit.assess.leaderboard import leaderboard
from metricfit.assess.scores import HeldOutScores, scores_of
from metricfit.assess.verdicts import Assessment, Reached, Verdict, assess, assess_held_out, verdict

__all__ = [
    "Assessment",
    "Decided",
    "Estimate",
    "HeldOutScores",
    "Reached",
    "ThresholdUncertainty",
    "UnstableThresholdWarning",
    "Verdict",
    "assess",
    "assess_held_out",
    "difference",
    "estimate",
    "estimate_classes",
    "leaderboard",
    "over_splits",
    "scores_of",
    "threshold_uncertainty",
    "verdict",
]
