"""``metricfit compare``: the leaderboard, its intervals, and going on after a stop."""

import json
import sys

import joblib
import numpy as np
import pytest
from joblib._parallel_backends import ThreadingBackend

from metricfit.comparison import METHODS, Method, available_methods
from tests.cli.helper import customers, write_csv

QUICK = ("--methods", "metricfit,cross-entropy-tuned", "--methods", "boosting-tuned", "--splits", 2, "--max-epochs", 2)


def compare(program, data, out, *more, code=0):
    options = ("--target", "churn", "--metric", "f1", "--ignore", "day", "--out", out)
    return program("compare", data, *options, *QUICK, *more, code=code)


def test_a_leaderboard_that_goes_on_where_it_was(program, table, tmp_path):
    out = tmp_path / "results.jsonl"
    whole = json.loads(compare(program, table, out, "--json"))
    assert {row["method"] for row in whole["leaderboard"]} == {"metricfit", "cross-entropy-tuned", "boosting-tuned"}
    assert all(row["splits"] == 2 and row["seconds"] > 0 for row in whole["leaderboard"])
    means = [row["mean"] for row in whole["leaderboard"]]
    assert means == sorted(means, reverse=True)
    lines = out.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 6
    out.write_text("\n".join(lines[:4]) + "\n" + lines[4][:20], encoding="utf-8")
    again = json.loads(compare(program, table, out, "--json"))
    assert "4 of 6 results are in" in program.err
    assert [r["mean"] for r in again["leaderboard"]] == pytest.approx(means)
    compare(program, table, out)
    assert "6 of 6" in program.err
    assert "difference to metricfit" in program.out


def test_results_of_other_data_are_not_mixed(program, table, tmp_path):
    out = tmp_path / "results.jsonl"
    quick = ("--methods", "boosting", "--splits", 2, "--out", out, "--target", "churn", "--metric", "mcc")
    program("compare", table, *quick)
    other = write_csv(tmp_path / "other.csv", customers(seed=3))
    program("compare", other, *quick, code=2)
    assert "another comparison" in program.err
    program("compare", other, *quick, "--overwrite")


def test_names_of_methods(program, table, tmp_path):
    compare(program, table, tmp_path / "r", "--methods", "forest", code=2)
    assert "did you mean 'random-forest'" in program.err


@pytest.mark.parametrize("method", [m for m in available_methods() if not m.startswith(("metricfit", "cross", "east"))])
def test_every_tree_method_handles_rare_classes(program, tmp_path, method):
    rng = np.random.default_rng(0)
    rows = [{"a": rng.normal(), "y": "abc"[i % 2]} for i in range(60)] + [{"a": 9.0, "y": "c"}, {"a": 8.0, "y": "d"}]
    data = write_csv(tmp_path / "t.csv", rows)
    out = program("compare", data, "--target", "y", "--metric", "mcc", "--methods", method, "--splits", 2,
                  "--max-epochs", 3, "--out", tmp_path / "r", "--json")  # fmt: skip
    assert json.loads(out)["leaderboard"][0]["splits"] == 2


def test_a_method_that_fails_is_told_and_the_others_go_on(program, table, tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, "boosting", Method("no luck"))
    quick = ("--methods", "boosting,boosting-tuned", "--splits", 2, "--out", tmp_path / "r")
    out = program("compare", table, *quick, "--target", "churn", "--metric", "mcc", "--json")
    assert [row["method"] for row in json.loads(out)["leaderboard"]] == ["boosting-tuned"]
    assert "failed: ValueError: models: " in program.err


class Counted(ThreadingBackend):
    """A backend of someone else's: counts what it is given; hands over only whole lists, unless told otherwise."""

    supports_return_generator = False
    calls = 0

    def submit(self, func, callback=None):
        type(self).calls += 1
        return super().submit(func, callback)


@pytest.fixture
def counted(monkeypatch):
    monkeypatch.setattr(Counted, "calls", 0)
    joblib.register_parallel_backend("counted", Counted)
    yield Counted
    joblib.parallel.BACKENDS.pop("counted")


@pytest.mark.parametrize("generator", [False, True])
def test_any_joblib_backend_serves(program, table, tmp_path, monkeypatch, counted, generator):
    monkeypatch.setattr(Counted, "supports_return_generator", generator)
    common = (
        "compare",
        table,
        "--target",
        "churn",
        "--metric",
        "mcc",
        "--methods",
        "boosting",
        "--splits",
        3,
        "--json",
    )
    program(*common, "--out", tmp_path / "a", "--backend", "counted", "--jobs", 2)
    by_name, board = counted.calls, json.loads(program.out)["leaderboard"]
    assert by_name == 3
    with joblib.parallel_config(backend="counted", n_jobs=2):
        program(*common, "--out", tmp_path / "b", "--jobs", 2)
    assert counted.calls == 6, "a backend that is active already is used"
    program(*common, "--out", tmp_path / "c")
    assert json.loads(program.out)["leaderboard"][0]["mean"] == pytest.approx(board[0]["mean"])


def test_a_backend_that_does_not_exist_or_is_not_installed(program, table, tmp_path, monkeypatch):
    common = (
        "compare",
        table,
        "--target",
        "churn",
        "--metric",
        "mcc",
        "--out",
        tmp_path / "r",
        "--methods",
        "boosting",
    )
    program(*common, "--backend", "nothing", code=2)
    assert "--backend: Invalid backend: nothing" in program.err
    monkeypatch.setitem(sys.modules, "distributed", None)
    program(*common, "--backend", "dask", code=1)
    assert "pip install distributed" in program.err
