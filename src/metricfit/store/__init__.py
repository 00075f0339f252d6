"""Saved models: safetensors, skops and JSON in one folder, written in one step, never pickle.

The folder that :func:`save` writes holds the model alone. :func:`metricfit.save` adds the pages for people.

>>> import tempfile
>>> from sklearn.datasets import load_iris
>>> from metricfit import MetricClassifier, store
>>> X, y = load_iris(return_X_y=True)
>>> clf = MetricClassifier("mcc", models="boosting", cv=2, baseline=False, random_state=0).fit(X, y)
>>> with tempfile.TemporaryDirectory() as parent:
...     folder = store.save(clf, f"{parent}/model")
...     sorted(file.name for file in folder.iterdir())
...     bool((store.load(folder).predict(X) == clf.predict(X)).all())
['boosting.skops', 'history.json', 'model.json', 'preprocessing.skops', 'scores.safetensors', 'times.json']
True
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from metricfit.store.folder import ModelFolderError, check_replaceable, describe

if TYPE_CHECKING:
    from metricfit.store.contents import description_of, load, save
    from metricfit.store.model import SavedModel, open_model

__all__ = [
    "ModelFolderError", "SavedModel", "check_replaceable", "describe", "description_of", "load", "open_model", "save",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    # On first use: a description is read without torch.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "model" if name in ("SavedModel", "open_model") else "contents"
    return getattr(import_module(f"{__name__}.{module}"), name)
