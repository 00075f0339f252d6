"""What may sit in a portfolio: networks, forests, boosting, any scikit-learn classifier; and two rivals from papers."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from metricfit.models.estimators import DEFAULT, EstimatorModel, names_of
from metricfit.models.portfolio import Model, NetworkModel, fit_models
from metricfit.training.rows import Folds, Table

if TYPE_CHECKING:
    from metricfit.models.rivals import ConvexCalibratedSurrogate, SVMPerf

__all__ = [
    "DEFAULT", "ConvexCalibratedSurrogate", "EstimatorModel", "Folds", "Model", "NetworkModel", "SVMPerf", "Table",
    "fit_models", "names_of",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import what no portfolio needs when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.rivals"), name)
