"""Tables of thousands of columns: less work where each step costs more, and files that are quickly written and read."""

import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from metricfit import MetricClassifier, load, save
from metricfit.models.estimators import FEW_BINS
from metricfit.training.recipes import WIDE, Recipe


def table(rows, columns, seed=0):
    random = np.random.default_rng(seed)
    X = pd.DataFrame(random.normal(size=(rows, columns)), columns=[f"c{i}" for i in range(columns)])
    return X, (X.iloc[:, :20].sum(axis=1) + random.normal(size=rows) > 3).map({True: "yes", False: "no"}).to_numpy()


def test_networks_of_wide_tables_take_fewer_updates_in_proportion_to_the_features():
    recipe = Recipe(min_updates=600, max_epochs=10).complete()
    assert [recipe.epochs(2, features) for features in (1, WIDE, 2 * WIDE, 10 * WIDE, 1000 * WIDE)] == [
        300,
        300,
        150,
        30,
        10,
    ]


def test_boosting_takes_fewer_bins_for_wide_tables_without_categories():
    for columns, bins in ((20, 255), (WIDE + 1, FEW_BINS)):
        X, y = table(40, columns)
        clf = MetricClassifier("accuracy", models="boosting", cv=2, baseline=False, verbose=False, random_state=0).fit(
            X, y
        )
        assert {fits[0].max_bins for fits in clf.models_["boosting"].fits} == {bins}
        clf.fit(X.assign(c0=np.where(X["c0"] > 0, "a", "b")), y)
        assert {fits[0].max_bins for fits in clf.models_["boosting"].fits} == {255}


@pytest.mark.slow
def test_ten_thousand_columns_are_trained_saved_and_loaded(tmp_path):
    X, y = table(1000, 10_000)
    begin = time.process_time()
    clf = MetricClassifier("f1[yes]", verbose=False, random_state=0).fit(X, y)
    start = time.process_time()
    save(clf, tmp_path / "model")
    saved = time.process_time()
    # In a program of its own, as a user loads it: here the garbage collector also looks through the fit and its rows.
    script = (
        "import sys, time; from metricfit import load\n"
        "start = time.process_time(); load(sys.argv[1]); print(time.process_time() - start)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "model")]
    read = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    print(f"CPU: fitted in {start - begin:.0f} s, saved in {saved - start:.1f} s, loaded in {read:.1f} s")
    assert len(clf.leaderboard_) == 6  # five models, and all together
    assert saved - start < 5
    assert read < 2
    np.testing.assert_array_equal(load(tmp_path / "model").predict_proba(X[:50]), clf.predict_proba(X[:50]))
