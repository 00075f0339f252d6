"""What may sit in a portfolio: networks, forests, boosting, any scikit-learn classifier."""

from metricfit.models.estimators import DEFAULT, EstimatorModel, names_of
from metricfit.models.linear import ConvexCalibratedSurrogates, SVMPerf
from metricfit.models.portfolio import Model, NetworkModel, fit_models
from metricfit.training.rows import Folds, Table

__all__ = [
    "DEFAULT", "ConvexCalibratedSurrogates", "EstimatorModel", "Folds", "Model", "NetworkModel", "SVMPerf", "Table",
    "fit_models", "names_of",
]  # fmt: skip
