"""Decision rules: the best cut-off for any metric, exactly, and constraints that hold."""

from typing import TYPE_CHECKING

from metricfit import lazily
from metricfit.decisions.problem import InfeasibleError, UntunableError
from metricfit.decisions.rules import BestRule, ConstraintValue, DecisionRule, GroupThresholds, bayes_rule
from metricfit.decisions.threshold import best_rule, best_threshold, cautious_rule, least_probabilities

if TYPE_CHECKING:
    from metricfit.decisions.calibration import Calibration, calibrate
    from metricfit.decisions.coordinates import best_group_thresholds, best_label_thresholds, best_offsets
    from metricfit.decisions.streaming import best_threshold_of_chunks, confusion_of_chunks
    from metricfit.decisions.tuned import TunedRuleClassifier

__all__ = [
    "BestRule", "Calibration", "ConstraintValue", "DecisionRule", "GroupThresholds",
    "InfeasibleError", "TunedRuleClassifier", "UntunableError", "bayes_rule",
    "best_group_thresholds", "best_label_thresholds", "best_offsets", "best_rule", "best_threshold",
    "best_threshold_of_chunks", "calibrate", "cautious_rule", "confusion_of_chunks", "least_probabilities",
]  # fmt: skip

__getattr__ = lazily(__name__, __all__, ("calibration", "coordinates", "streaming", "tuned"))
