"""Train the classifier on the metric you report."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from metricfit import data, decisions, losses, metrics, plots
    from metricfit.annealing import TemperatureAnnealer
    from metricfit.classifier import MetricClassifier
    from metricfit.confusion import ConfusionMatrix
    from metricfit.losses import MetricLoss
    from metricfit.store import load
    from metricfit.training.recipes import Recipe

__version__ = "0.1.0"
__all__ = [
    "ConfusionMatrix", "MetricClassifier", "MetricLoss", "Recipe", "TemperatureAnnealer", "__version__", "data",
    "decisions", "load", "losses", "metrics", "plots", "save",
]  # fmt: skip

# Everything, each room too, is imported when it is first asked for: a loss alone needs no scikit-learn, and the command
# line's help no torch.
_LAZY = {
    "ConfusionMatrix": "metricfit.confusion",
    "MetricClassifier": "metricfit.classifier",
    "MetricLoss": "metricfit.losses",
    "Recipe": "metricfit.training.recipes",
    "TemperatureAnnealer": "metricfit.annealing",
    "load": "metricfit.store",
}


def save(
    classifier: MetricClassifier, folder: str | os.PathLike[str], *, overwrite: bool = False,
    notes: dict[str, Any] | None = None, files: Mapping[str, bytes] | None = None,
) -> Path:  # fmt: skip
    """Write a fitted classifier as a model folder, with its report and its model card; :func:`load` reads it.

    Args:
        classifier: A fitted :class:`MetricClassifier` with a built-in network and a metric that has a spec.
        folder: Where to write; missing parent folders are made.
        overwrite: Whether to replace a model folder that is there.
        notes: Anything that JSON can hold, kept with the model.
        files: Further files by name; ``train.toml`` holds the options of ``metricfit train``.

    Returns:
        The folder.
    """
    from pathlib import Path

    from metricfit import report, store

    path, given = Path(folder), dict(files or {})
    store.check_replaceable(path, overwrite=overwrite)
    description = store.description_of(classifier, notes)
    settings = given.get("train.toml", b"").decode()
    given["report.html"] = report.render(classifier, description, settings=settings or None).encode()
    given["README.md"] = report.model_card(description, report.warnings_of(classifier)).encode()
    store.write_model(path, classifier, description, given)
    return path


def lazily(package: str, names: Sequence[str], rooms: Sequence[str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package: modules are looked into for one of its names when it is first asked for."""

    def found(name: str) -> Any:
        for room in rooms if name in names else ():
            if hasattr(module := import_module(f"{package}.{room}"), name):
                return getattr(module, name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return found


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name.startswith("_") or find_spec(room := f"{__name__}.{name}") is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(room)


def __dir__() -> list[str]:
    return sorted(__all__)
