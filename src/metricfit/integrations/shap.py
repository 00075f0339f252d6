"""SHAP: what each column of a row adds to the probabilities of a classifier, or of one model of its portfolio."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from metricfit.classifier import MetricClassifier
from metricfit.inputs import expect
from metricfit.integrations import library

__all__ = ["explanation"]


def explanation(
    classifier: MetricClassifier, X: pd.DataFrame, background: pd.DataFrame, *, model: str | None = None, **options: Any
) -> Any:
    """A ``shap.Explanation`` of the probabilities before the decision rule of some rows, (rows, columns, classes).

    Texts, categories, dates and gaps are welcome; ``display_data`` holds the values as they were.

    ``background`` are rows of the same columns, such as 100 of training, whose values stand in for what is left out.
    ``model`` is one of ``classifier.models_``, by default the portfolio itself; ``options`` are those of the
    explainer's call, such as ``max_evals`` and ``silent``.

    Example: ``shap.plots.bar(explanation(classifier, X_test, X_train[:100])[..., 1])``
    """
    shap, columns = library("shap", "metricfit[shap]"), list(X.columns)
    expect(model is None or model in classifier.models_, "model", f"one of {', '.join(classifier.models_)}", model)
    # What is no number is numbered: explainers take arrays of numbers.
    both, levels = pd.concat([background[columns], X]), dict[Any, Any]()
    for name in columns:
        if both[name].dtype.kind not in "iuf":
            both[name], known = pd.factorize(both[name])
            levels[name] = np.array([*known, None], dtype=object)  # a gap is -1, the last

    def predict(rows: Any) -> Any:
        parts = {n: rows[:, k] if n not in levels else levels[n][rows[:, k].astype(int)] for k, n in enumerate(columns)}
        frame = pd.DataFrame({n: pd.Series(part).astype(X[n].dtype) for n, part in parts.items()})
        if model is None:
            return classifier.predict_proba(frame, raw=True)
        return classifier.models_[model].predict(classifier._table(frame))

    coded = both.to_numpy(dtype=np.float64, na_value=np.nan)
    masker = shap.maskers.Independent(coded[: len(background)], max_samples=len(background))
    explainer = shap.Explainer(predict, masker, feature_names=columns, output_names=[*map(str, classifier.classes_)])
    found = explainer(coded[len(background) :], **options)
    found.display_data = X.to_numpy(dtype=object)
    return found
