"""Metrics of the confusion matrix: each is a score, a loss and an objective at once."""

from metricfit.metrics import rates
from metricfit.metrics.arithmetic import Combination, Constant
from metricfit.metrics.averaging import AVERAGES, ClassMetric, FormulaMetric
from metricfit.metrics.base import CallableMetric, Metric
from metricfit.metrics.constraints import Constrained, Constraint
from metricfit.metrics.formula import Symbols, Term
from metricfit.metrics.ranking import AUPRC, AUROC, ThresholdMean
from metricfit.metrics.registry import (
    MetricLike,
    available,
    describe,
    get,
    metric,
    metric_class,
    register,
    resolve,
    unregister,
)

Accuracy = rates.accuracy
BalancedAccuracy = rates.balanced_accuracy
CohenKappa = rates.cohen_kappa
CriticalSuccessIndex = rates.critical_success_index
ExpectedCost = rates.expected_cost
F1 = rates.f1
FBeta = rates.f_beta
FalseNegativeRate = rates.false_negative_rate
FalsePositiveRate = rates.false_positive_rate
FowlkesMallows = rates.fowlkes_mallows
GMean = rates.g_mean
HeidkeSkillScore = rates.heidke_skill_score
Informedness = rates.informedness
Jaccard = rates.jaccard
MCC = rates.mcc
Markedness = rates.markedness
NegativePredictiveValue = rates.negative_predictive_value
Precision = rates.precision
PredictedShare = rates.predicted_share
Recall = rates.recall
Specificity = rates.specificity
TrueSkillStatistic = rates.true_skill_statistic

__all__ = [
    "AUPRC", "AUROC", "AVERAGES", "F1", "MCC", "Accuracy", "BalancedAccuracy", "CallableMetric", "ClassMetric",
    "CohenKappa", "Combination", "Constant", "Constrained", "Constraint", "CriticalSuccessIndex", "ExpectedCost",
    "FBeta", "FalseNegativeRate", "FalsePositiveRate", "FormulaMetric", "FowlkesMallows", "GMean", "HeidkeSkillScore",
    "Informedness", "Jaccard", "Markedness", "Metric", "MetricLike", "NegativePredictiveValue", "Precision",
    "PredictedShare", "Recall", "Specificity", "Symbols", "Term", "ThresholdMean", "TrueSkillStatistic", "available",
    "describe", "get", "metric", "metric_class", "register", "resolve", "unregister",
]  # fmt: skip
