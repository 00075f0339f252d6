"""Tables and benchmark sets: from names and frames to features that a network can take."""

from metricfit.data.preprocessing import TablePreprocessor

__all__ = ["TablePreprocessor"]
