"""Searching in Python: trials that several processes share, what is kept when one is killed, and what is refused."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from metricfit import MetricClassifier, Recipe
from metricfit import search as room
from metricfit.choices import Range
from metricfit.data import BadArgumentError
from metricfit.data.preprocessing import UnusedColumnsWarning
from metricfit.models import estimators
from metricfit.search import Search, suggest_model, suggest_recipe

optuna = pytest.importorskip("optuna", reason="pip install 'metricfit[search]'")


@pytest.fixture(autouse=True)
def small_forests(monkeypatch):
    monkeypatch.setattr(estimators, "TREES", 5)


def table(rows=90):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(rows, 2)), columns=["a", "b"])
    return X, (X["a"] + rng.normal(size=rows) > 0).to_numpy().astype(int)


def opened(study, **options):
    X, y = table()
    given = {"models": ["forest", "extra_trees"], "cv": 2, "study": study, **options}
    return Search(X, y, given.pop("metric", "mcc"), **given)


def test_each_model_gets_its_share_and_the_first_trial_is_the_model_as_usual(tmp_path):
    told = []
    found = opened(tmp_path / "study.log")
    found.run(7, progress=lambda rows: told.append(rows[-1]))
    assert [row["model"] for row in told].count("extra_trees") == 4
    assert {row["model"]: row["spec"] for row in told[::-1]} == {"forest": "forest", "extra_trees": "extra_trees"}
    assert [{**row, "seconds": 0} for row in found.history()] == [{**row, "seconds": 0} for row in told]
    best, models, _ = found.best()
    for model in ("forest", "extra_trees"):
        values = {row["spec"]: row["value"] for row in told if row["model"] == model}
        assert best[model]["value"] == max(values.values())
        assert best[model]["spec"] in models
        assert len(values) == len([row for row in told if row["model"] == model])


def test_a_trial_is_the_classifier_with_its_parameters():
    found = opened(None)
    found.run(4)
    X, y = table()
    for row in found.history():
        plain = MetricClassifier("mcc", models=[row["spec"]], cv=2, baseline=False, verbose=False, random_state=0)
        assert plain.fit(X, y).leaderboard_["value"].iloc[0] == row["value"]


def test_the_same_search_again_goes_on_and_draws_what_one_run_would_have_drawn(tmp_path):
    whole, parts = opened(None), opened(tmp_path / "study.log")
    whole.run(12)
    parts.run(5)
    opened(tmp_path / "study.log").run(12)
    specs = [sorted((row["model"], row["number"], row["spec"]) for row in one.history()) for one in (whole, parts)]
    assert specs[0] == specs[1]
    assert whole.importances().keys() == {"forest", "extra_trees"}


def test_a_network_that_is_behind_is_pruned_by_its_soft_metric(monkeypatch):
    monkeypatch.setattr(
        room, "suggest_recipe", lambda trial, recipe: Recipe.of(recipe).with_parts({"learning_rate": 1e-9})
    )
    found = opened(None, models="network", recipe=Recipe(max_epochs=20, min_updates=0, hidden_sizes=(8,)))
    study = found.studies["network"]
    for value in (0.9, 0.91, 0.92, 0.93, 0.94):
        past = optuna.trial.create_trial(value=value, intermediate_values=dict.fromkeys(range(1, 21), value))
        study.add_trial(past)
    found.run(6)
    last = found.history()[-1]
    assert last["state"] == "pruned"
    assert len(study.trials[-1].intermediate_values) < room.LOOKS


def test_the_gain_is_measured_on_rows_that_no_trial_saw():
    X, y = table(120)
    found = Search(X[:90], y[:90], "mcc", models=["forest", "boosting:max_features=0.5"], cv=2)
    found.run(3)
    classifier = found.fit()
    assert classifier.get_params()["models"] == ["boosting:max_features=0.5", found.best()[0]["forest"]["spec"]]
    gain = found.gain(classifier, X[90:], y[90:])
    assert gain["value"] == pytest.approx(classifier.score(X[90:], y[90:]))
    assert gain["usual"] == pytest.approx(found.fit(usual=True).score(X[90:], y[90:]))
    assert gain["gain"] == pytest.approx(gain["value"] - gain["usual"])
    assert gain["low"] <= gain["gain"] <= gain["high"]


def test_unused_columns_are_told_of_by_the_fit_and_not_again_by_the_gain():
    X, y = table(120)
    X = X.assign(site=[f"place {k}" for k in range(120)])
    found = Search(X[:90], y[:90], "mcc", models=["forest"], cv=2)
    found.run(1)
    with pytest.warns(UnusedColumnsWarning, match="'site'"):
        classifier = found.fit()
    with warnings.catch_warnings(action="error"):
        assert found.gain(classifier, X[90:], y[90:])["value"] <= 1


def test_a_model_that_cannot_be_fitted_is_told_and_not_tried_for_ever(monkeypatch):
    def fails(*_):
        raise ValueError("no such luck")

    monkeypatch.setattr(MetricClassifier, "fit", fails)
    found = opened(None)
    found.run(4)
    assert [(row["state"], row["error"]) for row in found.history()] == [("pruned", "ValueError: no such luck")] * 4
    assert found.best()[1] == ["extra_trees", "forest"]


def test_spaces_work_in_studies_of_ones_own():
    drawn = []

    def objective(trial):
        drawn.append((suggest_recipe(trial, "east"), suggest_model(trial, "boosting")))
        return 0.0

    optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0)).optimize(objective, n_trials=5)
    for recipe, model in drawn:
        assert recipe.complete().name == "east"
        assert Recipe.of(recipe.spec()) == recipe
        space = {name: part for name, part in recipe.__class__("east").space().items() if isinstance(part, Range)}
        assert all(part.low <= getattr(recipe, name) <= part.high for name, part in space.items())
        MetricClassifier("f1", models=model)
    assert len({recipe.spec() for recipe, _ in drawn}) == 5


def test_another_study_and_a_store_that_cannot_be_used_are_refused(tmp_path):
    opened(tmp_path / "study.log").run(2)
    with pytest.raises(BadArgumentError, match=r"study: .*study.log holds a study of other metric \(mcc\)"):
        opened(tmp_path / "study.log", metric="accuracy")
    with pytest.raises(BadArgumentError, match=r"holds a study of other rows and settings \(mcc\); choose another"):
        opened(tmp_path / "study.log", random_state=1)
    assert len(opened(tmp_path / "study.log").history()) == 2
    (tmp_path / "table.csv").write_text("a,b\n1,2\n3,4\n")
    for place in (tmp_path / "table.csv", f"sqlite:///{tmp_path}/no/such/folder.db", "nosuch://host/name", tmp_path):
        with pytest.raises(BadArgumentError, match=r"study: .*: expected a journal file of Optuna or the URL of a"):
            opened(place)
    with pytest.raises(BadArgumentError, match="models: expected at least one built-in model without parameters"):
        opened(None, models=["forest:max_features=0.5"])


def test_a_database_holds_a_study_as_well(tmp_path):
    url = f"sqlite:///{tmp_path}/study.db"
    opened(url).run(2)
    opened(url, name="other").run(3)
    assert len(opened(url).history()) == 2


WORKER = """
import sys
import time
import warnings
from metricfit import MetricClassifier, search
from metricfit.models import estimators
from tests.test_search import opened

search.SIGN, search.LOST, estimators.TREES = 0.3, 4.0, 5
fit = MetricClassifier.fit
MetricClassifier.fit = lambda *given: (time.sleep(0.5), fit(*given))[1]
opened(sys.argv[1]).run(int(sys.argv[2]))
"""


@pytest.mark.slow
def test_two_processes_share_a_journal_and_a_killed_one_loses_nothing(tmp_path):
    study, trials = tmp_path / "study.log", 14
    root = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    command = [sys.executable, "-W", "ignore", "-c", WORKER, str(study), str(trials)]
    log = (tmp_path / "errors.txt").open("w")
    workers = [subprocess.Popen(command, env=environment, stderr=log) for _ in range(2)]
    while not study.exists() or study.read_text().count('"op_code":4') < 4:  # trials begun
        time.sleep(0.05)
        assert all(worker.poll() is None for worker in workers), (tmp_path / "errors.txt").read_text()
    time.sleep(np.random.default_rng().random())
    workers[0].send_signal(signal.SIGKILL)
    assert workers[0].wait() == -signal.SIGKILL
    assert workers[1].wait(timeout=300) == 0, (tmp_path / "errors.txt").read_text()
    log.close()
    rows = opened(study).history()
    assert len(rows) == trials
    assert {row["model"]: row["state"] for row in rows} == {"forest": "complete", "extra_trees": "complete"}
    specs = [row["spec"] for row in rows]
    assert len(set(specs)) == trials
    assert {"forest", "extra_trees"} <= set(specs)
    for name in ("forest", "extra_trees"):
        tried = opened(study).studies[name].trials
        given_up = [t.params for t in tried if t.state.name == "FAIL" and t.params]
        kept = [t.params for t in tried if t.state.name == "COMPLETE"]
        assert all(params in kept for params in given_up)  # what was in the killed process is tried again
    assert json.loads(study.read_text().splitlines()[-1])
