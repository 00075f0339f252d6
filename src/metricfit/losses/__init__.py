"""Losses: any metric of the confusion matrix, and what it is compared with."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from metricfit.losses.companions import ConfusionMemory
from metricfit.losses.metric_loss import MetricLoss, metric_loss

if TYPE_CHECKING:
    from metricfit.losses.adversarial import AdversarialF1Loss
    from metricfit.losses.diagnosis import Diagnosis
    from metricfit.losses.rivals import (
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


def __getattr__(name: str) -> Any:
    """Import what MetricLoss alone does not need when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room = {"Diagnosis": "diagnosis", "AdversarialF1Loss": "adversarial"}.get(name, "rivals")
    return getattr(import_module(f"{__name__}.{room}"), name)
