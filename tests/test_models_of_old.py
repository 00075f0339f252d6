"""Model folders of every released format, and of the present one, load and predict what they did."""

import json
from pathlib import Path

import numpy as np
import pytest

from metricfit import store
from metricfit.store.folder import OLDEST, VERSION
from tests.models_of_old.__main__ import HERE, rows

FOLDERS = sorted(path.parent for path in HERE.glob("*/*/model.json"))


@pytest.mark.parametrize("path", FOLDERS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_folder_of_old_loads_and_predicts_what_it_did(path):
    expected = json.loads((path.parent / f"{path.name}.json").read_text())
    model = store.load(path)
    assert np.asarray(model.predict(rows())).tolist() == expected["labels"]
    np.testing.assert_allclose(model.predict_proba(rows()), expected["probabilities"], atol=1e-6)
    assert store.open_model(path).formats.keys() == set(model.feature_names_in_)


def test_there_are_folders_of_every_version_and_they_are_small():
    assert {int(path.parent.name) for path in FOLDERS} == set(range(OLDEST, VERSION + 1))
    size = sum(file.stat().st_size for file in HERE.rglob("*") if file.is_file() and file.suffix != ".pyc")
    assert size < 300_000 * (VERSION - OLDEST + 1)


def shape(value):
    """The keys of a description, whatever its values: what a reader relies on."""
    if isinstance(value, dict):
        return {key: shape(part) for key, part in value.items()}
    return [shape(value[0])] if isinstance(value, list) and value else type(value).__name__


def test_a_change_of_the_format_bumps_its_version(tmp_path):
    """Where this fails: raise VERSION in store/folder.py, run ``python -m tests.models_of_old``, commit the folders."""
    committed = store.load(HERE / str(VERSION) / "two-classes")
    path = tmp_path / "again"
    store.write_model(path, committed, store.description_of(committed), {})
    old, new = (json.loads(Path(p, "model.json").read_text()) for p in (HERE / str(VERSION) / "two-classes", path))
    for part in ("libraries", "notes", "checksum"):
        del old[part], new[part]
    assert shape(new) == shape(old)
    assert sorted(f.name for f in path.iterdir()) == sorted(
        f.name for f in (HERE / str(VERSION) / "two-classes").iterdir()
    )
