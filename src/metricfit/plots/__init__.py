"""Plots in scikit-learn's ``Display`` style; matplotlib is imported when something is drawn.

>>> from metricfit.plots import ThresholdCurveDisplay
>>> display = ThresholdCurveDisplay.from_predictions([0, 1, 0, 1], [0.1, 0.4, 0.6, 0.9], metric="f1")
>>> display.ax_.get_xlabel()
'Threshold'
"""

from metricfit.plots.displays import AlignmentDisplay, AnnealingDisplay, StepDisplay, ThresholdCurveDisplay

__all__ = ["AlignmentDisplay", "AnnealingDisplay", "StepDisplay", "ThresholdCurveDisplay"]
