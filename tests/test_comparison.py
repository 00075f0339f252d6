"""Comparing methods in Python: the same splits, results that are kept, and what is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from metricfit.comparison import Comparison
from metricfit.data import BadArgumentError


def table(rows=90):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(rows, 2)), columns=["a", "b"])
    return X, (X["a"] > 0).to_numpy().astype(int)


def test_trees_are_tuned_with_few_groups():
    X, y = table()
    groups = np.arange(90) % 5
    board = Comparison(X, y, "accuracy", methods=["random-forest-tuned"], splits=2, groups=groups).run()
    assert board[0]["mean"] > 0.9


def test_results_are_kept_and_reported_one_by_one(tmp_path):
    X, y = table()
    told = []
    first = Comparison(X, y, "f1", methods=["boosting"], splits=2, out=tmp_path / "r.jsonl")
    board = first.run(progress=told.append)
    assert [row["split"] for row in told] == [0, 1]
    assert first.todo == []
    assert board[0]["mean"] == pytest.approx(np.mean([row["value"] for row in told]))
    again = Comparison(X, y, "f1", methods=["boosting"], splits=3, out=tmp_path / "r.jsonl")
    assert again.todo == [(2, "boosting")]
    assert json.loads((tmp_path / "r.jsonl").read_text().splitlines()[0])["value"] == told[0]["value"]
    with pytest.raises(BadArgumentError, match="another comparison"):
        Comparison(X, y, "mcc", methods=["boosting"], out=tmp_path / "r.jsonl")


def test_finished_results_outlive_a_kill_while_they_are_read(tmp_path, monkeypatch):
    X, y = table()
    options = {"methods": ["boosting"], "splits": 2, "out": tmp_path / "r.jsonl"}
    Comparison(X, y, "f1", **options).run()
    kept = (tmp_path / "r.jsonl").read_text()
    with (tmp_path / "r.jsonl").open("a") as file:
        file.write('{"split": 2, "meth')  # a kill cut it off

    def kill(path, *_, **__):
        path.open("w").close()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.write_text", kill)
        with pytest.raises(KeyboardInterrupt):
            Comparison(X, y, "f1", **options)
    assert (tmp_path / "r.jsonl").read_text().startswith(kept)
    assert Comparison(X, y, "f1", **options).todo == []
    assert (tmp_path / "r.jsonl").read_text() == kept


def test_nothing_is_written_without_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y = table()
    labels = pd.DataFrame({"up": y, "down": 1 - y})
    board = Comparison(X, labels, "f1", methods=["boosting"], splits=2, sample_weight=np.ones(90)).run()
    assert board[0]["mean"] > 0.9
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_a_scheduler_that_does_not_answer_is_named_at_once(backend, tmp_path, monkeypatch):
    pytest.importorskip({"dask": "distributed", "ray": "ray"}[backend])
    X, y = table()
    first = Comparison(X, y, "f1", methods=["boosting"], splits=2, out=tmp_path / "r.jsonl")
    kept = (tmp_path / "r.jsonl").read_text()
    monkeypatch.setenv({"dask": "DASK_SCHEDULER_ADDRESS", "ray": "RAY_ADDRESS"}[backend], "127.0.0.1:9")
    with pytest.raises(BadArgumentError, match=f"backend: {backend}: nothing answers at 127.0.0.1:9 .*; start the"):
        first.run(backend=backend)
    assert (tmp_path / "r.jsonl").read_text() == kept


PLACED = """
import sys
import warnings

from metricfit.comparison import Comparison
from tests.test_comparison import table

warnings.simplefilter("ignore")
packed = 0


def state(self):
    global packed
    packed += 1
    return vars(self)


if __name__ == "__main__":
    Comparison.__getstate__ = state
    X, y = table()
    plain = Comparison(X, y, "f1", methods=["boosting"], splits=4)
    far = Comparison(X, y, "f1", methods=["boosting"], splits=4)
    far.run(jobs=2, backend=sys.argv[1])
    assert not any(row["error"] for row in far.results), far.results
    values = [{row["split"]: row["value"] for row in one} for one in (far.results, (plain.run(), plain.results)[1])]
    assert values[0] == values[1], values
    print("packed", packed)
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["loky", "dask", "ray"])
def test_the_table_is_placed_once_and_other_processes_get_the_same_results(backend, tmp_path):
    pytest.importorskip({"dask": "distributed"}.get(backend, backend if backend == "ray" else "joblib"))
    (tmp_path / "placed.py").write_text(PLACED)
    root = str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([f"{root}/src", root])}
    command = [sys.executable, str(tmp_path / "placed.py"), backend]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "packed 1"
