"""The same number has the same interval on the command line, in the report, the card and Python."""

import json

import pytest

import metricfit
from metricfit.assess import assess_held_out
from tests.cli.helper import customers, write_csv


def ends(row):
    return pytest.approx((row["value"], row["low"], row["high"]), abs=1e-12)


@pytest.mark.parametrize("validated", [False, True])
def test_one_number_one_interval_everywhere(program, table, tmp_path, validated):
    new = write_csv(tmp_path / "new.csv", customers(200, seed=3))
    more = ["--validation", new] if validated else []
    told = json.loads(program(
        "train", table, "--target", "churn", "--metric", "f1[yes]", "--ignore", "day", "--max-epochs", 2,
        "--out", tmp_path / "model", "--json", *more,
    ))  # fmt: skip
    back = metricfit.load(tmp_path / "model")
    ours = told["held_out"][-1]
    assert ours["low"] < ours["value"] < ours["high"]
    # Python: the report of the folds, and the assessment of the held-out scores
    found, verdicts = assess_held_out(back.metric_, back.held_out_, back.classes_.tolist())
    assert (found.estimate.value, found.estimate.low, found.estimate.high) == ends(ours)
    rows = {row["model"]: row for row in told["held_out"]}
    for v in verdicts:
        rival = v.rival.estimate
        assert (rival.value, rival.low, rival.high) == ends(rows[v.rival.name])
    board = back.leaderboard_.set_index("model")
    singles = [name for name in rows if name in board.index and name != ours["model"]]
    assert len(singles) == (0 if validated else 1), "the best single model"
    assert not set(rows) - {v.rival.name for v in verdicts} - {*singles, ours["model"]}
    for name in singles:
        assert tuple(board.loc[name, ["value", "low", "high"]]) == ends(rows[name])
    if validated:
        evaluated = json.loads(program("evaluate", tmp_path / "model", new, "--metric", "f1[yes]", "--json"))
        assert ends(evaluated["metrics"]["f1[yes]"]) == (ours["value"], ours["low"], ours["high"])
    else:
        rows = back.validation_report_.set_index("model").loc[ours["model"]]
        assert (rows["value"], rows["low"], rows["high"]) == ends(ours)
        assert f"{ours['model']}: {ours['value']:.4f} ({ours['low']:.4f} to {ours['high']:.4f})" in back.explain()
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert f"| {ours['value']:.4f} | {ours['low']:.4f} to {ours['high']:.4f} |" in card
    page = (tmp_path / "model" / "report.html").read_text(encoding="utf-8")
    assert f"is {ours['value']:.3f} (95 % interval {ours['low']:.3f} to {ours['high']:.3f})" in page
    assert str(verdicts[-1]) in program("train", table, "--target", "churn", "--metric", "f1[yes]", "--ignore", "day",
                                        "--max-epochs", 2, "--out", tmp_path / "again", *more)  # fmt: skip
