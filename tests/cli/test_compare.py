"""``metricfit compare``: the leaderboard, its intervals, and going on after a stop."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from metricfit.cli.comparing import leaderboard
from metricfit.cli.rivals import METHODS, available_methods
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
                  "--out", tmp_path / "r", "--json")  # fmt: skip
    assert json.loads(out)["leaderboard"][0]["splits"] == 2


def test_a_method_that_fails_is_told_and_the_others_go_on(program, table, tmp_path, monkeypatch):
    def broken(part):
        raise RuntimeError("no luck")

    monkeypatch.setitem(METHODS, "boosting", ("", broken))
    quick = ("--methods", "boosting,boosting-tuned", "--splits", 2, "--out", tmp_path / "r")
    out = program("compare", table, *quick, "--target", "churn", "--metric", "mcc", "--json")
    assert [row["method"] for row in json.loads(out)["leaderboard"]] == ["boosting-tuned"]
    assert "failed: RuntimeError: no luck" in program.err


def test_intervals_of_the_leaderboard_are_the_corrected_ones():
    a, b = np.array([0.5, 0.6, 0.55, 0.58]), np.array([0.52, 0.57, 0.5, 0.6])
    rows = [
        {"split": i, "method": m, "value": v[i], "seconds": 1.0, "error": ""}
        for i in range(4)
        for m, v in (("a", a), ("b", b))
    ]
    board = {row["method"]: row for row in leaderboard(rows, ["a", "b"], True)}
    half = stats.t.ppf(0.975, 3) * math.sqrt((1 / 4 + 0.25) * (b - a).var(ddof=1))
    assert board["b"]["difference_high"] == pytest.approx((b - a).mean() + half)
    assert board["a"]["difference"] == 0
