"""Train the classifier on the metric you report."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from metricfit import functional, losses, metrics
from metricfit.annealing import TemperatureAnnealer
from metricfit.confusion import ConfusionMatrix
from metricfit.losses import MetricLoss

if TYPE_CHECKING:
    from metricfit import data, decisions
    from metricfit.classifier import MetricClassifier

__version__ = "0.1.0"
__all__ = [
    "ConfusionMatrix",
    "MetricClassifier",
    "MetricLoss",
    "TemperatureAnnealer",
    "__version__",
    "data",
    "decisions",
    "functional",
    "losses",
    "metrics",
]

# What needs scikit-learn and pandas is imported when it is first asked for: a loss alone starts quickly.
_LAZY = {
    "MetricClassifier": "metricfit.classifier",
    "data": "metricfit.data",
    "decisions": "metricfit.decisions",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_LAZY[name])
    return module if _LAZY[name] == f"{__name__}.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
