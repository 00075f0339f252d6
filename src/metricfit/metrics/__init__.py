"""Metrics of the confusion matrix: each is a score, a loss and an objective at once."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from metricfit.metrics import rates
from metricfit.metrics.base import AVERAGES, ClassMetric, Metric
from metricfit.metrics.formula import FormulaMetric, Symbols, Term
from metricfit.metrics.registry import MetricLike, available, get, metric, metric_class, register, resolve, unregister

if TYPE_CHECKING:
    from metricfit.metrics.algebra import CallableMetric, Combination, Constant, Constrained, Constraint
    from metricfit.metrics.catalogue import describe, reference_page
    from metricfit.metrics.ranking import AUPRC, AUROC, ThresholdMean

__all__ = [
    "AUPRC", "AUROC", "AVERAGES", "F1", "MCC", "Accuracy", "BalancedAccuracy", "CallableMetric", "ClassMetric",
    "CohenKappa", "Combination", "Constant", "Constrained", "Constraint", "CriticalSuccessIndex", "ExpectedCost",
    "FBeta", "FalseNegativeRate", "FalsePositiveRate", "FormulaMetric", "FowlkesMallows", "GMean", "HeidkeSkillScore",
    "Informedness", "Jaccard", "Markedness", "Metric", "MetricLike", "NegativePredictiveValue", "Precision",
    "PredictedCount", "PredictedShare", "Recall", "Specificity", "Symbols", "Term", "ThresholdMean",
    "TrueSkillStatistic", "available", "describe", "get", "metric", "metric_class", "reference_page", "register",
    "resolve", "unregister",
]  # fmt: skip

Accuracy, BalancedAccuracy, CohenKappa = rates.accuracy, rates.balanced_accuracy, rates.cohen_kappa
CriticalSuccessIndex, ExpectedCost, F1 = rates.critical_success_index, rates.expected_cost, rates.f1
FBeta, FalseNegativeRate, FalsePositiveRate = rates.f_beta, rates.false_negative_rate, rates.false_positive_rate
FowlkesMallows, GMean, HeidkeSkillScore = rates.fowlkes_mallows, rates.g_mean, rates.heidke_skill_score
Informedness, Jaccard, Markedness, MCC = rates.informedness, rates.jaccard, rates.markedness, rates.mcc
NegativePredictiveValue, Precision = rates.negative_predictive_value, rates.precision
PredictedCount, PredictedShare = rates.predicted_count, rates.predicted_share
Recall, Specificity = rates.recall, rates.specificity
TrueSkillStatistic = rates.true_skill_statistic


def __getattr__(name: str) -> Any:
    """Import what a loss of one decision does without when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room = {"describe": "catalogue", "reference_page": "catalogue"}.get(name)
    room = room or ("ranking" if name in ("AUPRC", "AUROC", "ThresholdMean") else "algebra")
    return getattr(import_module(f"{__name__}.{room}"), name)


def __dir__() -> list[str]:
    return __all__
