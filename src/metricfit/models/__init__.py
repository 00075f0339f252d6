"""What may sit in a portfolio: networks, forests, boosting, any scikit-learn classifier."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from metricfit.models.base import Array, Deadline, Folds, Model, OutOfTimeError, Table
from metricfit.models.estimators import ESTIMATORS, EstimatorModel
from metricfit.models.networks import NetworkModel
from metricfit.training.history import progress_bar

__all__ = [
    "DEFAULT", "Deadline", "EstimatorModel", "FittedModel", "Folds", "Model", "NetworkModel", "Table", "fit_models",
    "names_of",
]  # fmt: skip

DEFAULT = ("boosting", "extra_trees", "forest", "network_ce", "network")
"""The portfolio of ``models="auto"``, the cheap ones first."""

NETWORKS = ("network", "network_ce")


def names_of(models: Any) -> list[tuple[str, Any]]:
    """The models of a portfolio by name; an estimator of the user's comes with it, None with the built-in ones.

    >>> from sklearn.naive_bayes import GaussianNB
    >>> names_of(["network", GaussianNB()])
    [('gaussiannb', GaussianNB()), ('network', None)]
    """
    given = models if isinstance(models, list | tuple) else [models]
    if models == "auto":
        given = DEFAULT
    found: list[tuple[str, Any]] = []
    known = (*NETWORKS, *ESTIMATORS)
    for model in given:
        if isinstance(model, str):
            if model not in known:
                raise ValueError(
                    f"models: expected 'auto', one or several of {', '.join(known)}, or scikit-learn classifiers, got "
                    f"{model!r}."
                )
            name = model
        else:
            name = type(model).__name__.lower()
        taken = [other for other, _ in found]
        if name in taken and isinstance(model, str):
            raise ValueError(f"models: {name!r} is given twice; leave one out.")
        while name in taken:
            name += "_2"
        found.append((name, None if isinstance(model, str) else model))
    if not found:
        raise ValueError("models: expected at least one model, got none.")
    # The cheap ones first, whatever the order they are named in; one's own and the libraries' before the networks.
    order = {name: place for place, name in enumerate(DEFAULT)}
    return sorted(found, key=lambda pair: order.get(pair[0], order["forest"]))


@dataclass(frozen=True)
class FittedModel:
    """A model and what it says of the rows that were held out.

    Attributes:
        model: The model.
        held_out: Probabilities of each fold's validation rows.
    """

    model: Model
    held_out: list[Array]


def fit_models(models: Sequence[Model], folds: Folds, time_limit: float | None, *, show: bool) -> list[FittedModel]:
    """Fit one model after another; what is complete is kept when the time is over, or at Ctrl-C.

    The first model is fitted whatever the limit, so that there is one.

    Args:
        models: In the order they are fitted.
        folds: Rows and folds.
        time_limit: Seconds; None for no limit.
        show: Whether to show progress.
    """
    fitted: list[FittedModel] = []
    deadline = Deadline(time_limit)
    for place, model in enumerate(models):
        if fitted and not deadline.left:
            break
        # What is left is shared among the networks that are still to come; trees are quick and take what they need.
        rest = [other for other in models[place:] if isinstance(other, NetworkModel)]
        part = deadline.left / len(rest) if isinstance(model, NetworkModel) else deadline.left
        own = Deadline(part if fitted or isinstance(model, NetworkModel) else None)
        try:
            with progress_bar(show, model.name) as progress:
                held_out = model.fit(folds, own, progress)
        except OutOfTimeError:
            break
        except KeyboardInterrupt:
            if not fitted:
                raise
            warnings.warn(
                f"training was interrupted while {model.name} was fitted; the {len(fitted)} models before it are kept.",
                RuntimeWarning,
                stacklevel=3,
            )
            break
        fitted.append(FittedModel(model, held_out))
        if not model.complete:
            break
    return fitted
