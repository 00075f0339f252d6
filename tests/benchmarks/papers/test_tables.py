"""The arithmetic of the tables, and what they look like."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.papers.__main__ import main
from benchmarks.papers.config import Experiment, read
from benchmarks.papers.figures import mean_loss_terms
from benchmarks.papers.results import append
from benchmarks.papers.tables import Mean, difference, lines, markdown
from tests.benchmarks.papers.rows import EXPERIMENT, row

VALUES = [0.60, 0.66, 0.63, 0.71]


def made() -> pd.DataFrame:
    rows = [row(trial=i, value=value) for i, value in enumerate(VALUES)]
    rows += [row(trial=i, rule="tuned", value=value + 0.05) for i, value in enumerate(VALUES)]
    return pd.concat(rows, ignore_index=True)


def test_ours_is_the_mean_and_standard_deviation_over_trials_beside_theirs() -> None:
    line = next(line for line in lines(read("btg-table3"), made()) if line.ours is not None)
    assert line.ours is not None
    assert (line.ours.mean, line.ours.std) == pytest.approx((np.mean(VALUES), np.std(VALUES, ddof=1)))
    assert line.ours.trials == 4
    assert str(line.theirs) == "0.61 ± 0.06"
    assert line.others["tuned"].mean == pytest.approx(np.mean(VALUES) + 0.05)
    assert line.difference is not None
    assert line.difference.value == pytest.approx(0.65 - 0.61)
    error = math.sqrt(np.var(VALUES, ddof=1) / 4 + 0.06**2 / 10 + 0.01**2 / 12)
    assert line.difference.error == pytest.approx(error)
    assert not line.difference.notable


def test_a_difference_of_more_than_two_standard_errors_is_bold() -> None:
    ours = Mean(0.70, 0.02, 4)
    assert str(difference(ours, Mean(0.60, 0.02, 10, 0.01))) == "**+0.100**"
    assert str(difference(ours, Mean(0.69, 0.02, 10, 0.01))) == "+0.010"
    assert str(difference(ours, Mean(0.70, math.nan, 10, 0.01))) == "+0.000"
    assert str(difference(Mean(0.70, math.nan, 1), Mean(0.60, 0.02, 10, 0.01))) == "+0.100"


def test_a_table_says_what_is_missing_what_is_reduced_and_what_is_not_run() -> None:
    text = markdown(read("btg-table3"), made())
    assert "| f1/linear | f1 | 0.61 ± 0.06 | 0.650 ± 0.047 | +0.040 | 0.700 ± 0.047 | 4 |" in text
    assert "| f2/linear | f2 | 0.67 ± 0.04 | not run |" in text
    reduced = row(dataset="cifar10", protocol="east-images", batch="grid", size="reduced", rule="decision", method="ce")
    reduced = reduced.assign(approximation="", metric="macro_f1", value=0.4)
    text = markdown(read("east-table2"), reduced)
    assert "## cifar10 — **reduced size, not the paper's**" in text
    assert "Not run: Caltech-256" in text


def test_at_a_reduced_size_no_difference_is_bold() -> None:
    usual = {"dataset": "cifar10_frog", "protocol": "btg-images", "batch": "128"}
    for size, shown in (("full", "**-0.630**"), ("reduced", "-0.630")):
        rows = pd.concat([row(**usual, size=size, trial=i, value=0.1) for i in range(3)])
        line = next(line for line in lines(read("btg-table2"), rows) if line.ours is not None)
        assert str(line.difference) == shown


def test_rules_for_a_preference_stand_where_the_table_has_such_losses() -> None:
    usual = {"dataset": "cifar10", "method": "ce", "protocol": "east-images", "batch": "grid", "size": "reduced"}
    rules = ["decision", "tuned", "tuned_for_fbeta_recall_Dog", "tuned_for_fbeta_recall_Frog"]
    rows = pd.concat([row(**usual, rule=rule, metric="macro_f1", value=0.4) for rule in rules])
    rows = rows.assign(approximation="")
    frog, dog = "| tuned for fbeta recall Frog |", "| tuned for fbeta recall Dog |"
    found = {name: markdown(read(name), rows) for name in ("east-table1", "east-table4", "east-table7")}
    assert [frog in text for text in found.values()] == [False, True, False]
    assert [dog in text for text in found.values()] == [False, True, True]


def test_the_true_auroc_stands_below_the_papers() -> None:
    rows = pd.concat([row(metric="balanced_accuracy", value=0.78), row(rule="scores", metric="auroc", value=0.9)])
    here = [line for line in lines(read("btg-table1"), rows) if line.ours is not None]
    assert [(line.title, line.ours.mean) for line in here if line.ours] == [("AUROC of labels", 0.78), ("AUROC", 0.9)]
    assert [str(line.theirs) for line in here] == ["0.78 ± 0.03", "None"]


def test_full_size_rows_go_before_reduced_ones() -> None:
    usual = {"dataset": "cifar10_frog", "protocol": "btg-images", "batch": "128"}
    both = pd.concat([row(**usual, size="reduced", value=0.1), row(**usual, value=0.7)])
    shown = [line for line in lines(read("btg-table2"), both) if line.ours is not None]
    assert [line.ours.mean for line in shown if line.ours] == [0.7]


def test_the_table_command_prints_and_writes_the_same_from_the_same_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = made().drop(columns=[*EXPERIMENT.__dataclass_fields__]).to_dict("records")
    last = [{"trial": i, "rule": "fit", "metric": "seconds", "class": "", "value": 1.0} for i in range(4)]
    append("scores", EXPERIMENT, [*rows, *last], tmp_path / "results")
    places = ["--results", str(tmp_path / "results"), "--images", str(tmp_path / "images")]
    assert main(["table", "btg-table3", *places, "--out", str(tmp_path / "out")]) == 0
    text = capsys.readouterr().out
    assert "| f1/linear | f1 | 0.61 ± 0.06 | 0.650 ± 0.047 |" in text
    assert (tmp_path / "out" / "btg-table3.md").read_text().strip() == text.strip()
    picture = (tmp_path / "images" / "papers-btg-table3.png").read_bytes()
    main(["table", "btg-table3", *places])
    assert (tmp_path / "images" / "papers-btg-table3.png").read_bytes() == picture
    main(["list", *places[:2]])
    assert "| btg-table3 | " in (listed := capsys.readouterr().out)
    assert "| 4 of 30 |  | 1 of 15 |" in listed


def test_scatters_print_the_correlation_of_loss_and_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(0)
    expected = {}
    for beta in ("0.5", "1", "2", "3"):
        method = Experiment(
            "fashion_mnist_class0", f"surrogate_fbeta@{beta}", "", "surrogate-fashion", "100", "", "full"
        )
        loss, score = random.random(20), random.random(20) if beta != "3" else np.full(20, 0.5)
        expected[beta] = f"{np.corrcoef(loss, score)[0, 1]:.3f}" if beta != "3" else "–"
        rows = [
            {"trial": 0, "epoch": i + 1, "metric": name, "value": value}
            for i in range(20)
            for name, value in (("train_loss", loss[i]), (f"train_f{beta}", score[i]))
        ]
        append("curves", method, rows, tmp_path)
    assert main(["table", "surrogate-fbeta-fig3", "--results", str(tmp_path), "--images", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    for beta, value in expected.items():
        assert f"| {beta} | {value} |" in text
    assert "–: the score is the same after every epoch." in text
    assert (tmp_path / "papers-surrogate-fbeta-fig3.png").exists()


def test_the_terms_of_the_mean_loss_start_at_zero_and_the_surrogate_grows_slowest() -> None:
    second = mean_loss_terms(np.array([0.0, 0.3, 0.9]))["function of the false positive rate"]
    assert second.iloc[0].tolist() == [0, 0, 0]
    assert (second["surrogate Fβ"][1:] < second["MAE"][1:]).all()
    assert (second["MAE"][1:] < second["BCE"][1:]).all()
