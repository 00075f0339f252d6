"""What may sit in a portfolio: networks, forests, boosting, any scikit-learn classifier."""

from metricfit.models.estimators import DEFAULT, EstimatorModel, names_of
from metricfit.models.portfolio import Folds, Model, NetworkModel, Table, fit_models

__all__ = ["DEFAULT", "EstimatorModel", "Folds", "Model", "NetworkModel", "Table", "fit_models", "names_of"]
