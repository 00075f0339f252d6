"""Saved models: safetensors, skops and JSON in one folder, written in one step, never pickle.

>>> import tempfile
>>> import pandas as pd
>>> from metricfit import MetricClassifier, save, store
>>> X = pd.DataFrame({"age": range(60), "plan": ["a", "b", "c"] * 20})
>>> clf = MetricClassifier("mcc", models="boosting", cv=2, baseline=False, random_state=0).fit(X, X["age"] > 30)
>>> with tempfile.TemporaryDirectory() as parent:
...     folder = save(clf, f"{parent}/model")
...     sorted(file.stem for file in folder.iterdir())
...     bool((store.load(folder).predict(X) == clf.predict(X)).all())
...     X.to_csv(f"{parent}/new.csv", index=False)
...     print(*next(store.open_model(folder).predictions(f"{parent}/new.csv", keep=["age"])).columns)
['README', 'boosting', 'history', 'model', 'preprocessing', 'report', 'scores', 'times']
True
age prediction probability_False probability_True
"""

from metricfit.store.folder import ModelFolderError, check_replaceable
from metricfit.store.model import SavedModel, description_of, load, open_model, write_model

__all__ = ["ModelFolderError", "SavedModel", "check_replaceable", "description_of", "load", "open_model", "write_model"]
