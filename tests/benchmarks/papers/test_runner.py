"""Runs, killed ones too, on synthetic data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from benchmarks.papers import fits, grid, runner
from benchmarks.papers.__main__ import main
from benchmarks.papers.config import Experiment, read
from benchmarks.papers.results import append, done
from benchmarks.papers.results import read as read_rows
from benchmarks.papers.runner import Clock, Job, Plan, jobs

ARGUMENTS = ["run", "btg-table5", "--size", "toy", "--datasets", "synthetic_33", "--methods", "f1/linear", "bce"]


def values(folder: Path) -> pd.DataFrame:
    """Scores without what differs from run to run."""
    rows = read_rows("scores", folder).drop(columns=["date", "version"])
    rows = rows[rows["metric"] != "seconds"]
    return rows.sort_values([*rows.columns[:11]]).reset_index(drop=True)


def test_a_killed_run_goes_on_and_ends_like_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert main([*ARGUMENTS, "--results", str(whole)]) == 0
    assert "[16/16, about 0 min left]" in capsys.readouterr().err
    real, calls = runner._work, []

    def stumbling(job: Job) -> None:
        calls.append(job)
        if len(calls) == 7:
            raise KeyboardInterrupt
        real(job)

    monkeypatch.setattr(runner, "_work", stumbling)
    with pytest.raises(KeyboardInterrupt):
        main([*ARGUMENTS, "--results", str(killed)])
    assert len(done(killed)) == 6
    file = next((killed / "scores").glob("*.csv"))
    # Killed in the middle of a write: half a row is left, and before it a trial that is not all there.
    file.write_text(file.read_text()[:-150])
    assert len(done(killed)) == 5
    assert main([*ARGUMENTS, "--results", str(killed)]) == 0
    pd.testing.assert_frame_equal(values(killed), values(whole))
    before = file.read_text()
    assert main([*ARGUMENTS, "--results", str(killed)]) == 0
    assert file.read_text() == before


@pytest.mark.slow
def test_trials_in_processes_give_the_same_rows(tmp_path: Path) -> None:
    few = [*ARGUMENTS[:-1], "--trials", "1"]
    assert main([*few, "--results", str(tmp_path / "one")]) == 0
    assert main([*few, "--results", str(tmp_path / "two"), "--jobs", "2"]) == 0
    pd.testing.assert_frame_equal(values(tmp_path / "two"), values(tmp_path / "one"))


def test_a_run_with_nothing_left_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = [*ARGUMENTS, "--trials", "1", "--results", str(tmp_path)]
    assert main(few) == 0
    assert "Nothing is missing" not in capsys.readouterr().err
    assert main(few) == 0
    assert capsys.readouterr().err == "Nothing is missing: all of these fits are there.\n"


def test_rows_carry_seed_version_and_time(tmp_path: Path) -> None:
    assert main([*ARGUMENTS, "--trials", "1", "--results", str(tmp_path)]) == 0
    rows = read_rows("scores", tmp_path)
    assert set(rows["seed"]) == {0}
    assert rows["version"].str.len().min() > 5
    assert pd.to_datetime(rows["date"], format="%Y-%m-%dT%H:%M:%SZ").notna().all()
    assert set(rows["rule"]) == {"decision", "scores", "mean_tau", "mean_tau_raw", "tuned", "fit"}


def test_a_budget_of_no_time_starts_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ARGUMENTS, "--results", str(tmp_path), "--budget", "0s"]) == 0
    assert not list(tmp_path.rglob("*.csv"))
    assert "16 jobs left; the same command goes on with them" in capsys.readouterr().err


def test_a_failed_fit_is_reported_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = runner.fit

    def broken(experiment: Experiment, *rest: object) -> object:
        if experiment.method == "bce":
            raise ArithmeticError("broken on purpose")
        return real(experiment, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(runner, "fit", broken)
    assert main([*ARGUMENTS, "--results", str(tmp_path)]) == 1
    assert "broken on purpose" in capsys.readouterr().err
    assert {experiment.method for experiment, _ in done(tmp_path)} == {"f1"}


def test_the_grid_is_searched_once_and_its_best_point_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = Experiment("synthetic_33", "ce", "", "multiclass-fbeta-tabular", "grid", "", "toy")
    points = grid.points(experiment, "toy")
    assert {(p.learning_rate, p.batch_size) for p in points} == {(0.01, 128), (0.001, 128)}
    for point in grid.missing(experiment, "toy", tmp_path):
        grid.search(experiment, point, tmp_path)
    rows = read_rows("grid", tmp_path)
    assert len(rows) == 2
    assert not grid.missing(experiment, "toy", tmp_path)
    best = rows.loc[rows["validation_loss"].idxmin()]
    assert grid.chosen(experiment, "toy", tmp_path).learning_rate == best["learning_rate"]


def test_what_the_grid_search_trained_last_is_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = Experiment("synthetic_33", "ce", "", "multiclass-fbeta-tabular", "grid", "", "toy")
    fits._network.cache_clear()
    real, seeds = fits.train, []

    def counted(*arguments: Any, seed: int, **options: Any) -> Any:
        seeds.append(seed)
        return real(*arguments, seed=seed, **options)

    monkeypatch.setattr(fits, "train", counted)
    for trial in range(2):
        runner._work(Job(experiment, trial, "full", tmp_path))
    assert seeds == [0, 0, 1]  # two points, of which trial 0 takes one, and trial 1
    fits._network.cache_clear()
    again = {
        (s.rule, s.metric): s.value for s in fits.fit(experiment, 0, grid.chosen(experiment, "toy", tmp_path)).scores
    }
    rows = read_rows("scores", tmp_path)
    rows = rows[(rows["trial"] == 0) & (rows["metric"] != "seconds")]
    assert len(rows) > 10
    for rule, metric, value in zip(rows["rule"], rows["metric"], rows["value"], strict=True):
        assert value == pytest.approx(again[rule, metric], abs=1e-6, nan_ok=True)
    assert set(read_rows("scores", tmp_path).query("metric == 'seconds'")["value"] > 0) == {True}


def test_one_hot_codes_take_what_was_chosen_with_integer_codes(tmp_path: Path) -> None:
    onehot = Experiment("synthetic_33", "ce", "", "multiclass-fbeta-tabular", "grid", "onehot", "toy")
    point = grid.points(onehot, "toy")[0]
    grid.search(onehot, point, tmp_path)
    assert set(read_rows("grid", tmp_path)["encoding"]) == {"integer"}
    assert grid.chosen(onehot, "toy", tmp_path) == grid.chosen(replace(onehot, encoding="integer"), "toy", tmp_path)
    assert point not in grid.missing(replace(onehot, encoding="integer"), "toy", tmp_path)


def test_the_fewest_trials_that_a_table_names_count() -> None:
    config = replace(read("btg-table1"), trials={"creditcard": 5, "creditcard bce": 2, "adult onehot": 3})
    trials = {
        (e.dataset, e.encoding, e.method): config.trials_of(e)
        for e in config.experiments()
        if e.method in ("bce", "wmw_auroc")
    }
    assert trials["creditcard", "", "bce"] == 2
    assert trials["creditcard", "", "wmw_auroc"] == 5
    assert trials["adult", "onehot", "bce"] == 3
    assert trials["adult", "integer", "bce"] == 10


def test_the_full_grid_is_the_papers(monkeypatch: pytest.MonkeyPatch) -> None:
    annealed = Experiment("mammography", "mcc", "linear", "east-tabular", "grid", "", "full")
    plain = Experiment("mammography", "ce", "", "east-tabular", "grid", "", "full")
    wide = Experiment("creditcard", "mcc", "linear", "east-tabular", "grid", "", "full")

    # Whether a loss is annealed is known without its data.
    monkeypatch.setattr(grid, "loss_of", lambda e: SimpleNamespace(annealed=e.method != "ce"))
    assert [len(grid.points(e, "full")) for e in (annealed, plain, wide)] == [60, 30, 84]
    assert {p.batch_size for p in grid.points(wide, "full")} >= {4096, 8192}


def test_patience_is_the_papers_but_where_an_epoch_takes_long() -> None:
    patience = {
        (one.dataset, one.size): fits.protocol_of(one).patience
        for size in ("full", "toy")
        for one in read("east-table1").experiments(size)
        if one.protocol == "east-tabular"
    }
    short = {key: patience.pop(key) for key in list(patience) if key[0] in ("adult", "creditcard")}
    assert set(short.values()) == {10}
    assert set(patience.values()) == {50}


def test_first_trials_come_first_and_shared_trainings_once() -> None:
    plan = Plan([read("east-table1"), read("east-table3")], datasets=["mammography", "cocktail_party"], trials=2)
    planned = list(jobs(plan, Path("/nowhere")))
    assert [job.experiment.dataset for job in planned] == ["mammography"] * 14 + ["cocktail_party"] * 14
    assert [job.trial for job in planned[:14]] == [0] * 7 + [1] * 7
    assert len({job.experiment for job in planned}) == 14


def test_the_clock_expects_what_was_seen_before() -> None:
    first = Experiment("a", "bce", "", "p", "1", "", "full")
    second = Experiment("a", "f1", "linear", "p", "1", "", "full")
    todo = [Job(first, 1, "full", Path()), Job(second, 0, "full", Path())]
    clock = Clock(todo, {(first, 0): 60.0}, workers=1)
    assert clock.left() == 120
    clock.count(todo[0], 120.0)
    assert clock.left() == pytest.approx((60 + 120) / 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "btg-table99"], "there is no table or figure 'btg-table99'; did you mean btg-table9?"),
        (["run", "btg-table1", "--reduced"], "size: the tables have no section for 'reduced'"),
        (
            ["run", "btg-table1", "--datasets", "mamography"],
            "--datasets: 'mamography' is not in these tables; there are",
        ),
        (["run", "btg-table1", "--methods", "f1/linaer"], "--methods: 'f1/linaer' is not in these tables; there are"),
        (["run", "btg-table1", "--budget", "soon"], "expected a time such as 90s, 30m or 2h"),
        (["table"], "say which table, or --all"),
    ],
)
def test_mistakes_are_told_plainly(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit):
        main([*arguments, "--results", str(tmp_path)])
    assert message in capsys.readouterr().err


def test_two_writers_do_not_mix_rows(tmp_path: Path) -> None:
    experiment = Experiment("a", "bce", "", "p", "1", "", "full")
    for trial in range(3):
        append("scores", experiment, [{"trial": trial, "rule": "fit", "metric": "seconds", "value": 1.0}], tmp_path)
    text = next((tmp_path / "scores").glob("*.csv")).read_text()
    assert text.count("dataset,method") == 1
    assert len(done(tmp_path)) == 3
