"""Losses: any metric of the confusion matrix, and what it is compared with."""

from typing import TYPE_CHECKING

from metricfit import lazily
from metricfit.losses.companions import ConfusionMemory
from metricfit.losses.metric_loss import MetricLoss, metric_loss

if TYPE_CHECKING:
    from metricfit.losses.diagnosis import Diagnosis
    from metricfit.losses.rivals import (
        AdversarialF1Loss,
        AnyLoss,
        DiceLoss,
        FocalLoss,
        MAELoss,
        MultiSOLLoss,
        SoftFBetaLoss,
        SOLLoss,
        SurrogateFBetaLoss,
        WMWLoss,
    )

__all__ = [
    "AdversarialF1Loss", "AnyLoss", "ConfusionMemory", "Diagnosis", "DiceLoss", "FocalLoss", "MAELoss", "MetricLoss",
    "MultiSOLLoss", "SOLLoss", "SoftFBetaLoss", "SurrogateFBetaLoss", "WMWLoss", "metric_loss",
]  # fmt: skip

__getattr__ = lazily(__name__, __all__, ("diagnosis", "rivals"))
