"""Losses: any metric of the confusion matrix, and what it is compared with; each as a module and as a function."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from metricfit.losses.companions import ConfusionMemory
from metricfit.losses.metric_loss import MetricLoss, metric_loss

if TYPE_CHECKING:
    from metricfit.losses.comparison import (
        DiceLoss,
        FocalLoss,
        MAELoss,
        WMWLoss,
        dice_loss,
        focal_loss,
        mae_loss,
        wmw_loss,
    )
    from metricfit.losses.diagnosis import Diagnosis
    from metricfit.losses.presets import (
        AnyLoss,
        AUPRCLoss,
        AUROCLoss,
        SoftFBetaLoss,
        any_loss,
        auprc_loss,
        auroc_loss,
        soft_fbeta_loss,
    )
    from metricfit.losses.surrogate_fbeta import SurrogateFBetaLoss, surrogate_fbeta_loss

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
    "any_loss",
    "auprc_loss",
    "auroc_loss",
    "dice_loss",
    "focal_loss",
    "mae_loss",
    "metric_loss",
    "soft_fbeta_loss",
    "surrogate_fbeta_loss",
    "wmw_loss",
]

# What MetricLoss is compared with is imported when it is first asked for.
_ROOMS = ("comparison", "diagnosis", "presets", "surrogate_fbeta")


def __getattr__(name: str) -> Any:
    if name in __all__:
        for room in _ROOMS:
            module = import_module(f"{__name__}.{room}")
            if name in module.__all__:
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
