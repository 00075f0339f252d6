"""Metrics of the confusion matrix: each is a score, a loss and an objective at once."""

from typing import TYPE_CHECKING

from metricfit import lazily
from metricfit.metrics.base import AVERAGES, ClassMetric, Metric, MetricLike
from metricfit.metrics.formula import FormulaMetric, Symbols, Term
from metricfit.metrics.rates import accuracy as Accuracy
from metricfit.metrics.rates import balanced_accuracy as BalancedAccuracy
from metricfit.metrics.rates import cohen_kappa as CohenKappa
from metricfit.metrics.rates import critical_success_index as CriticalSuccessIndex
from metricfit.metrics.rates import expected_cost as ExpectedCost
from metricfit.metrics.rates import f1 as F1
from metricfit.metrics.rates import f_beta as FBeta
from metricfit.metrics.rates import false_negative_rate as FalseNegativeRate
from metricfit.metrics.rates import false_positive_rate as FalsePositiveRate
from metricfit.metrics.rates import fowlkes_mallows as FowlkesMallows
from metricfit.metrics.rates import g_mean as GMean
from metricfit.metrics.rates import heidke_skill_score as HeidkeSkillScore
from metricfit.metrics.rates import informedness as Informedness
from metricfit.metrics.rates import jaccard as Jaccard
from metricfit.metrics.rates import markedness as Markedness
from metricfit.metrics.rates import mcc as MCC
from metricfit.metrics.rates import negative_predictive_value as NegativePredictiveValue
from metricfit.metrics.rates import precision as Precision
from metricfit.metrics.rates import predicted_count as PredictedCount
from metricfit.metrics.rates import predicted_share as PredictedShare
from metricfit.metrics.rates import recall as Recall
from metricfit.metrics.rates import specificity as Specificity
from metricfit.metrics.rates import true_skill_statistic as TrueSkillStatistic
from metricfit.metrics.registry import available, describe, get, metric, metric_class, register, resolve, unregister

if TYPE_CHECKING:
    from metricfit.metrics.algebra import CallableMetric, Combination, Constant, Constrained, Constraint
    from metricfit.metrics.money import Money
    from metricfit.metrics.ranking import AUPRC, AUROC, PrecisionAt, RecallAt, ThresholdMean

__all__ = [
    "AUPRC", "AUROC", "AVERAGES", "F1", "MCC", "Accuracy", "BalancedAccuracy", "CallableMetric", "ClassMetric",
    "CohenKappa", "Combination", "Constant", "Constrained", "Constraint", "CriticalSuccessIndex", "ExpectedCost",
    "FBeta", "FalseNegativeRate", "FalsePositiveRate", "FormulaMetric", "FowlkesMallows", "GMean", "HeidkeSkillScore",
    "Informedness", "Jaccard", "Markedness", "Metric", "MetricLike", "Money", "NegativePredictiveValue", "Precision",
    "PrecisionAt", "PredictedCount", "PredictedShare", "Recall", "RecallAt", "Specificity", "Symbols", "Term",
    "ThresholdMean", "TrueSkillStatistic", "available", "describe", "get", "metric", "metric_class", "register",
    "resolve", "unregister",
]  # fmt: skip

__getattr__ = lazily(__name__, __all__, ("algebra", "ranking", "money"))


def __dir__() -> list[str]:
    return __all__
