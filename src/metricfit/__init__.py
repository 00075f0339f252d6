"""Train the classifier on the metric you report."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metricfit import data, decisions, functional, losses, metrics, plots
    from metricfit.annealing import TemperatureAnnealer
    from metricfit.classifier import MetricClassifier
    from metricfit.confusion import ConfusionMatrix
    from metricfit.losses import MetricLoss
    from metricfit.store import load
    from metricfit.training.recipes import Recipe

__version__ = "0.1.0"
__all__ = [
    "ConfusionMatrix",
    "MetricClassifier",
    "MetricLoss",
    "Recipe",
    "TemperatureAnnealer",
    "__version__",
    "data",
    "decisions",
    "functional",
    "load",
    "losses",
    "metrics",
    "plots",
]

# Everything is imported when it is first asked for: a loss alone needs no scikit-learn, and the command line's help
# no torch.
_LAZY = {
    "ConfusionMatrix": "metricfit.confusion",
    "MetricClassifier": "metricfit.classifier",
    "MetricLoss": "metricfit.losses",
    "Recipe": "metricfit.training.recipes",
    "TemperatureAnnealer": "metricfit.annealing",
    "data": "metricfit.data",
    "decisions": "metricfit.decisions",
    "functional": "metricfit.functional",
    "load": "metricfit.store",
    "losses": "metricfit.losses",
    "metrics": "metricfit.metrics",
    "plots": "metricfit.plots",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_LAZY[name])
    return module if _LAZY[name] == f"{__name__}.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
