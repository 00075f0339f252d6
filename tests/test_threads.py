"""Fits and predictions in concurrent threads equal the serial ones."""

import numpy as np
import pandas as pd
import pytest

from metricfit import MetricClassifier, Recipe
from tests.losses.test_threads import concurrently

MODELS = ["network", "boosting", "forest"]


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.normal(40, 10, 120), "plan": rng.choice(["a", "b"], 120)})
    return X, np.where(X["age"] + 5 * rng.normal(size=120) > 42, "yes", "no")


def fitted(X, y, models, seed):
    recipe = Recipe(min_updates=0, max_epochs=4)
    options = {"recipe": recipe, "cv": 2, "baseline": False, "verbose": False, "random_state": seed}
    return MetricClassifier("f1", models=models, **options).fit(X, y)


@pytest.mark.slow
@pytest.mark.parametrize("models", MODELS)
def test_fits(table, models):
    works = [lambda seed=seed: fitted(*table, models, seed).predict_proba(table[0]) for seed in range(3)]
    expected = [work() for work in works]
    assert not np.array_equal(expected[0], expected[1])  # the seeds matter
    for found, one in zip(concurrently(works), expected, strict=True):
        np.testing.assert_array_equal(found, one)


@pytest.mark.slow
def test_predictions_of_one_classifier(table):
    X, y = table
    classifier = fitted(X, y, MODELS, 0)
    parts = [X[start::4] for start in range(4)]
    expected = [classifier.predict_proba(part) for part in parts]
    found = concurrently([lambda part=part: classifier.predict_proba(part) for part in parts])
    assert all(map(np.array_equal, found, expected))
