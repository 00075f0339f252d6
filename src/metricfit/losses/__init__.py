"""Losses: any metric of the confusion matrix, and what it is compared with."""

from metricfit.losses.comparison import AnyLoss, DiceLoss, FocalLoss, MAELoss, SoftFBetaLoss, WMWLoss
from metricfit.losses.diagnosis import Diagnosis
from metricfit.losses.memory import ConfusionMemory
from metricfit.losses.metric_loss import MetricLoss
from metricfit.losses.ranking import AUPRCLoss, AUROCLoss
from metricfit.losses.surrogate_fbeta import SurrogateFBetaLoss

__all__ = [
    "AUPRCLoss",
    "AUROCLoss",
    "AnyLoss",
    "ConfusionMemory",
    "Diagnosis",
    "DiceLoss",
    "FocalLoss",
    "MAELoss",
    "MetricLoss",
    "SoftFBetaLoss",
    "SurrogateFBetaLoss",
    "WMWLoss",
]
