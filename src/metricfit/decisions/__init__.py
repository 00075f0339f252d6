"""Decision rules: the best cut-off for any metric, exactly, and constraints that hold."""

from metricfit.decisions.areas import AreaBounds, area_of_chunks
from metricfit.decisions.multilabel import best_label_thresholds
from metricfit.decisions.offsets import best_offsets
from metricfit.decisions.problem import InfeasibleError, UntunableError
from metricfit.decisions.rules import BestRule, CalibratedRule, ConstraintValue, DecisionRule, bayes_rule
from metricfit.decisions.streaming import best_threshold_of_chunks, confusion_of_chunks
from metricfit.decisions.threshold import ThresholdCurve, best_threshold, score_sweep
from metricfit.decisions.tuned import TunedRuleClassifier, best_rule

__all__ = [
    "AreaBounds",
    "BestRule",
    "CalibratedRule",
    "ConstraintValue",
    "DecisionRule",
    "InfeasibleError",
    "ThresholdCurve",
    "TunedRuleClassifier",
    "UntunableError",
    "area_of_chunks",
    "bayes_rule",
    "best_label_thresholds",
    "best_offsets",
    "best_rule",
    "best_threshold",
    "best_threshold_of_chunks",
    "confusion_of_chunks",
    "score_sweep",
]
