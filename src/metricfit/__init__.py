"""Train the classifier on the metric you report."""

from metricfit import metrics

__version__ = "0.1.0"
__all__ = ["__version__", "metrics"]
