"""``metricfit search``: trials that are kept, a model measured on rows apart, and a train.toml that trains it again."""

import json
import tomllib

import pytest

from metricfit.store import open_model
from tests.cli.helper import customers, write_csv

pytest.importorskip("optuna", reason="pip install 'metricfit[search]'")


def search(program, data, tmp_path, *more, trials=4, code=0):
    given = ("--study", tmp_path / "study.log", "--trials", trials, "--models", "forest,boosting", "--folds", 2)
    out = ("--out", tmp_path / "m", "--no-baseline")
    return program("search", data, "--target", "churn", "--metric", "mcc", *given, *out, *more, code=code)


def test_a_search_from_a_table_to_a_model_and_to_the_training_of_another(program, table, tmp_path):
    result = json.loads(search(program, table, tmp_path, "--json"))
    found = result["search"]
    assert len(found["trials"]) == 4
    assert "[4/4] " in program.err
    assert "best so far" in program.err
    assert result["held_out_rows"] == 30
    assert result["held_out"][-1]["value"] == pytest.approx(found["value"])
    notes = open_model(tmp_path / "m").notes["search"]
    assert [trial["spec"] for trial in notes["trials"]] == [trial["spec"] for trial in found["trials"]]
    page = (tmp_path / "m" / "report.html").read_text(encoding="utf-8")
    assert "4 trials chose the parameters" in page
    assert "A random fifth" in page or "a random fifth" in page
    settings = tomllib.loads((tmp_path / "m" / "train.toml").read_text(encoding="utf-8"))
    assert settings["models"].count("boosting") == settings["models"].count("forest") == 1
    assert "study" not in settings
    program("train", "--config", tmp_path / "m" / "train.toml", "--out", tmp_path / "again", table)
    assert (tmp_path / "again" / "report.html").exists()
    search(program, table, tmp_path, code=2)
    assert "holds a model" in program.err


def test_a_stopped_search_goes_on_and_another_study_is_refused(program, table, tmp_path):
    search(program, table, tmp_path, "--time-limit", "0.0000001s", code=1)
    assert "no trial could be fitted: the time was over" in program.err
    search(program, table, tmp_path, trials=2)
    assert "Best trials" in program.out
    assert "On the rows apart the search gained" in program.out
    assert program.err.count("/2] ") == 2
    search(program, table, tmp_path, "--overwrite", "--seed", "1", code=2)
    assert "--study: " in program.err
    assert "holds a study of other rows and settings (mcc)" in program.err
    other = write_csv(tmp_path / "other.csv", customers(seed=1))
    search(program, other, tmp_path, "--overwrite", code=2)
    search(program, table, tmp_path, "--study", tmp_path / "no" / "such" / "study.log", "--overwrite", code=2)
    assert "expected a journal file of Optuna or the URL of a database" in program.err
