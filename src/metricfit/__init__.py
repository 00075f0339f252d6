"""Train the classifier on the metric you report."""

from metricfit import functional, losses, metrics
from metricfit.annealing import TemperatureAnnealer
from metricfit.confusion import ConfusionMatrix
from metricfit.losses import MetricLoss

__version__ = "0.1.0"
__all__ = [
    "ConfusionMatrix",
    "MetricLoss",
    "TemperatureAnnealer",
    "__version__",
    "functional",
    "losses",
    "metrics",
]
