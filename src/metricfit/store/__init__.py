"""Saved models: safetensors, skops and JSON in one folder, written in one step, never pickle.

The folder that :func:`save` writes holds the model alone. :func:`metricfit.save` adds the pages for people.

>>> import tempfile
>>> import pandas as pd
>>> from metricfit import MetricClassifier, store
>>> X = pd.DataFrame({"age": range(60), "plan": ["a", "b", "c"] * 20})
>>> clf = MetricClassifier("mcc", models="boosting", cv=2, baseline=False, random_state=0).fit(X, X["age"] > 30)
>>> with tempfile.TemporaryDirectory() as parent:
...     folder = store.save(clf, f"{parent}/model")
...     sorted(file.name for file in folder.iterdir())
...     bool((store.load(folder).predict(X) == clf.predict(X)).all())
...     X.to_csv(f"{parent}/new.csv", index=False)
...     print(*next(store.open_model(folder).predictions(f"{parent}/new.csv", keep=["age"])).columns)
['boosting.skops', 'history.json', 'model.json', 'preprocessing.skops', 'scores.safetensors', 'times.json']
True
age prediction probability_False probability_True
"""

from metricfit.store.folder import ModelFolderError, check_replaceable
from metricfit.store.model import SavedModel, description_of, load, open_model, save

__all__ = ["ModelFolderError", "SavedModel", "check_replaceable", "description_of", "load", "open_model", "save"]
