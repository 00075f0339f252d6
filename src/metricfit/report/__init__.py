"""The report: what a model reaches, compared with what, and at which operating point, as one HTML page.

>>> import tempfile
>>> from sklearn.datasets import load_breast_cancer
>>> import metricfit
>>> X, y = load_breast_cancer(return_X_y=True)
>>> quick = metricfit.Recipe(min_updates=20, max_epochs=1)
>>> clf = metricfit.MetricClassifier("f1", recipe=quick, cv=2, random_state=0, verbose=False).fit(X, y)
>>> with tempfile.TemporaryDirectory() as folder:
...     text = (metricfit.save(clf, f"{folder}/model") / "report.html").read_text(encoding="utf-8")
>>> "Operating-point explorer" in text
True
"""

from metricfit.report.page import Unlabelled, model_card, render, warnings_of

__all__ = ["Unlabelled", "model_card", "render", "warnings_of"]
