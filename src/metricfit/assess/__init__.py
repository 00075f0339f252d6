"""What held-out scores are worth: values, intervals, paired differences and verdicts."""

from metricfit.assess.scores import HeldOutScores, scores_of

__all__ = ["HeldOutScores", "scores_of"]
