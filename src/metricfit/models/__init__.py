"""What may sit in a portfolio: networks, forests, boosting, any scikit-learn classifier."""

from metricfit.models.base import Deadline, FittedModel, Folds, Model, Table, fit_models
from metricfit.models.estimators import DEFAULT, EstimatorModel, names_of
from metricfit.models.networks import NetworkModel

__all__ = [
    "DEFAULT", "Deadline", "EstimatorModel", "FittedModel", "Folds", "Model", "NetworkModel", "Table", "fit_models",
    "names_of",
]  # fmt: skip
