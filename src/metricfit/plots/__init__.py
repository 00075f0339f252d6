"""Plots in scikit-learn's ``Display`` style; matplotlib is imported when something is drawn.

>>> from metricfit.plots import ThresholdCurveDisplay
>>> display = ThresholdCurveDisplay.from_predictions([0, 1, 0, 1], [0.1, 0.4, 0.6, 0.9], metric="f1")
>>> display.ax_.get_xlabel()
'Threshold'
"""

from metricfit.plots.threshold import ThresholdCurveDisplay
from metricfit.plots.training import AlignmentDisplay, AnnealingDisplay, StepDisplay

__all__ = ["AlignmentDisplay", "AnnealingDisplay", "StepDisplay", "ThresholdCurveDisplay"]
