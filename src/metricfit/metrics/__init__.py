"""Metrics of the confusion matrix: each is a score, a loss and an objective at once."""

from metricfit.metrics.agreement import (
    MCC,
    CohenKappa,
    HeidkeSkillScore,
    Informedness,
    Markedness,
    TrueSkillStatistic,
)
from metricfit.metrics.arithmetic import Combination, Constant
from metricfit.metrics.averaging import AVERAGES, ClassMetric
from metricfit.metrics.base import CallableMetric, Metric
from metricfit.metrics.classification import (
    F1,
    Accuracy,
    BalancedAccuracy,
    CriticalSuccessIndex,
    ExpectedCost,
    FalseNegativeRate,
    FalsePositiveRate,
    FBeta,
    FowlkesMallows,
    GMean,
    Jaccard,
    NegativePredictiveValue,
    Precision,
    PredictedShare,
    Recall,
    Specificity,
)
from metricfit.metrics.constraints import Constrained, Constraint
from metricfit.metrics.ranking import AUPRC, AUROC, ThresholdMean
from metricfit.metrics.registry import MetricLike, available, get, metric_class

__all__ = [
    "AUPRC",
    "AUROC",
    "AVERAGES",
    "F1",
    "MCC",
    "Accuracy",
    "BalancedAccuracy",
    "CallableMetric",
    "ClassMetric",
    "CohenKappa",
    "Combination",
    "Constant",
    "Constrained",
    "Constraint",
    "CriticalSuccessIndex",
    "ExpectedCost",
    "FBeta",
    "FalseNegativeRate",
    "FalsePositiveRate",
    "FowlkesMallows",
    "GMean",
    "HeidkeSkillScore",
    "Informedness",
    "Jaccard",
    "Markedness",
    "Metric",
    "MetricLike",
    "NegativePredictiveValue",
    "Precision",
    "PredictedShare",
    "Recall",
    "Specificity",
    "ThresholdMean",
    "TrueSkillStatistic",
    "available",
    "get",
    "metric_class",
]
