"""Decision rules: the best cut-off for any metric, exactly, and constraints that hold."""

from metricfit.decisions.areas import AreaBounds, area_of_chunks
from metricfit.decisions.choose import BestRule, best_rule
from metricfit.decisions.goal import InfeasibleError
from metricfit.decisions.multilabel import BestLabelThresholds, best_label_thresholds
from metricfit.decisions.offsets import BestOffsets, best_offsets
from metricfit.decisions.rules import CalibratedRule, DecisionRule, bayes_rule
from metricfit.decisions.search import (
    BestThreshold,
    ConstraintValue,
    ThresholdCurve,
    best_threshold,
    score_sweep,
)
from metricfit.decisions.streaming import best_threshold_of_chunks, confusion_of_chunks
from metricfit.decisions.tuned import TunedRuleClassifier
from metricfit.decisions.uncertainty import (
    ThresholdUncertainty,
    UnstableThresholdWarning,
    threshold_uncertainty,
)

__all__ = [
    "AreaBounds",
    "BestLabelThresholds",
    "BestOffsets",
    "BestRule",
    "BestThreshold",
    "CalibratedRule",
    "ConstraintValue",
    "DecisionRule",
    "InfeasibleError",
    "ThresholdCurve",
    "ThresholdUncertainty",
    "TunedRuleClassifier",
    "UnstableThresholdWarning",
    "area_of_chunks",
    "bayes_rule",
    "best_label_thresholds",
    "best_offsets",
    "best_rule",
    "best_threshold",
    "best_threshold_of_chunks",
    "confusion_of_chunks",
    "score_sweep",
    "threshold_uncertainty",
]
