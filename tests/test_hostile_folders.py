"""Folders that someone crafted: one error, in bounded time and memory, and nothing outside of them is touched."""

import numpy as np
import pandas as pd
import pytest

from metricfit import save
from metricfit.store import ModelFolderError, load
from tests.fuzz import folders
from tests.fuzz.trial import load_trial
from tests.helper import make_classifier

QUICK = {"cv": 2, "baseline": True, "min_updates": 20, "max_epochs": 1, "random_state": 0, "verbose": False}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.normal(40, 10, 80), "plan": rng.choice(["a", "b"], 80)})
    y = np.where(table["age"] > 40, "yes", "no")
    classifier, forest = (make_classifier("f1", models=name, **QUICK).fit(table, y) for name in ("network", "forest"))
    classifier.models_ |= forest.models_
    classifier.weights_ = {"network": 0.5, "forest": 0.5}
    path = save(classifier, tmp_path_factory.mktemp("hostile") / "model")
    description, contents = folders.read(path)
    folders.seal(path.parent / "again", description, contents)
    assert (load(path.parent / "again").predict(table) == classifier.predict(table)).all(), "the seal must be right"
    return description, contents


@pytest.mark.parametrize("name", folders.HOSTILE)
def test_a_crafted_folder_is_refused_in_bounded_time_and_memory(model, tmp_path, name):
    folders.HOSTILE[name](tmp_path / "model", *model)
    outcome, problem = load_trial(tmp_path / "model")
    assert not problem
    assert outcome.kind == "refused", outcome
    assert "\n" not in outcome.text
    assert len(outcome.text) < 1000


def test_other_files_than_those_of_the_folder_are_not_named_in_the_error(model, tmp_path):
    (tmp_path / "secret").write_text("secret")
    folders.seal(tmp_path / "model", *model, files={"../secret": {"bytes": 6, "sha256": "0"}})
    with pytest.raises(ModelFolderError, match=r"lists a file named '\.\./secret', which is not allowed"):
        load(tmp_path / "model")
