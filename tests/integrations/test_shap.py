"""SHAP values of a messy table: they add up to the probabilities, of the portfolio and of each of its models."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from metricfit import MetricClassifier

pytest.importorskip("shap", reason="shap is not installed: make test-slow installs it")

from metricfit.integrations.shap import explanation

pytestmark = pytest.mark.filterwarnings("ignore")  # its libraries warn of their own future


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(40, 10, 160), "rooms": rng.integers(0, 5, 160)})
    frame["plan"] = rng.choice(["basic", "gold"], 160)
    frame["paid"] = rng.random(160) < 0.5
    frame["since"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, 160), "D")
    frame.loc[::9, "age"] = np.nan
    frame.loc[::7, ["plan", "since"]] = None
    return frame


def test_values_and_base_add_up_to_the_probabilities(table: pd.DataFrame) -> None:
    y = np.where(table["age"].fillna(40) + 20 * (table["plan"] == "gold") > 50, "yes", "no")
    clf = MetricClassifier("f1", models=["forest", "boosting"], cv=2, baseline=False, random_state=0, verbose=False)
    clf.fit(table, y)
    rows, background = table.iloc[:3], table.iloc[60:68]
    for model in (None, *clf.models_):
        found = explanation(clf, rows, background, model=model, silent=True)
        assert found.values.shape == (3, 5, 2)
        expected = clf.predict_proba(rows, raw=True) if model is None else clf.models_[model].predict(clf._table(rows))
        np.testing.assert_allclose(found.base_values + found.values.sum(axis=1), expected, atol=1e-6)
    most = np.abs(found.values[..., 1]).mean(axis=0)
    assert set(np.argsort(-most)[:2]) == {0, 2}, most
    assert found.display_data[1, 2] == table["plan"].iloc[1]
    with pytest.raises(ValueError, match="model: expected one of"):
        explanation(clf, rows, background, model="svm")
