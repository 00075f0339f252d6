"""Tables and benchmark sets: from names and frames to features that a network can take."""

from metricfit.data.benchmarks import Dataset, available, load
from metricfit.data.preprocessing import TablePreprocessor

__all__ = ["Dataset", "TablePreprocessor", "available", "load"]
