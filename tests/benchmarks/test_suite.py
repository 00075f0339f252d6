"""The benchmark suite on data that come with scikit-learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import rankdata
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import f1_score, matthews_corrcoef
from sklearn.model_selection import train_test_split

from benchmarks.suite import datasets, results
from benchmarks.suite.__main__ import main
from benchmarks.suite.methods import METHODS, METRICS, Prediction
from benchmarks.suite.runner import Plan, decisions, jobs
from benchmarks.suite.summary import differences, finished_sets, main_methods, one_configuration, ranks, verdicts


def run(folder: Path, *options: str) -> int:
    places = ("--results", str(folder / "results"), "--cache", str(folder / "cache"))
    return main(["run", "--datasets", "iris", "--splits", "1", *places, *options])


COSTS = {"seconds": 1.0, "cpu_seconds": 1.0, "train_rows": 80, "test_rows": 20, "classes": 3}
PLACE = {"machine": "one core", "libraries": "torch=1", "commit": "abc"}


def row(**changes: object) -> results.Row:
    usual: dict[str, object] = dict.fromkeys(results.COLUMNS, "")
    usual |= {"dataset": "iris", "configuration": "full", "split": 0, "metric": "f1", "method": "hist", "value": 0.5}
    return results.Row(**(usual | changes))  # type: ignore[arg-type]


def test_a_run_scores_as_scikit_learn_does_and_is_never_repeated(tmp_path: Path) -> None:
    assert run(tmp_path, "--methods", "hist") == 0
    rows = results.read(tmp_path / "results")
    data = datasets.table("iris")
    train, test = train_test_split(np.arange(150), test_size=0.2, stratify=data.y, random_state=0)
    model = HistGradientBoostingClassifier(random_state=0).fit(data.X.iloc[train], data.y[train])
    predicted = model.predict(data.X.iloc[test])
    found = rows.set_index("metric")["value"]
    assert found["f1"] == pytest.approx(f1_score(data.y[test], predicted, average="macro"), abs=1e-6)
    assert found["mcc"] == pytest.approx(matthews_corrcoef(data.y[test], predicted), abs=1e-6)
    before = (tmp_path / "results" / "iris.csv").read_text()
    assert run(tmp_path, "--methods", "hist") == 0
    assert (tmp_path / "results" / "iris.csv").read_text() == before


def test_one_network_serves_arg_max_and_tuned_rule(tmp_path: Path) -> None:
    assert run(tmp_path, "--methods", "ce", "ce_tuned", "--metrics", "f1") == 0
    assert len(list((tmp_path / "cache").rglob("*.npz"))) == 1
    rows = results.read(tmp_path / "results")
    assert rows["method"].tolist() == ["ce", "ce_tuned"]
    assert (rows["value"] > 0.8).all()


def test_a_half_written_row_is_dropped_and_computed_again(tmp_path: Path) -> None:
    results.append([row(split=0), row(split=1)], tmp_path)
    file = tmp_path / "iris.csv"
    file.write_text(file.read_text()[:-20])
    assert {key[2] for key in results.existing(tmp_path)} == {0}
    results.append([row(split=1)], tmp_path)
    assert results.read(tmp_path)["split"].tolist() == [0, 1]


def test_only_missing_fits_are_planned_and_rules_share_them(tmp_path: Path) -> None:
    plan = Plan(["iris"], ["default", "ce", "ce_tuned"], METRICS, [0])
    planned = [job.wanted for job in jobs(plan, tmp_path)]
    assert [len(wanted) for wanted in planned] == [1, 1, 1, 6]
    results.append([row(method="default", metric="mcc")], tmp_path)
    assert len(list(jobs(plan, tmp_path))) == 3


def test_redo_removes_only_its_method(tmp_path: Path) -> None:
    results.append([row(), row(method="forest")], tmp_path)
    assert results.remove(["iris"], ["hist"], "full", tmp_path) == 1
    assert results.read(tmp_path)["method"].tolist() == ["forest"]


def test_rescoring_trains_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, "--methods", "hist_tuned")
    before = results.read(tmp_path / "results")
    monkeypatch.setattr(HistGradientBoostingClassifier, "fit", None)
    assert run(tmp_path, "--methods", "hist_tuned", "--rescore", "hist_tuned") == 0
    pd.testing.assert_series_equal(results.read(tmp_path / "results")["value"], before["value"])
    assert run(tmp_path, "--methods", "hist_tuned", "--redo", "hist_tuned") == 1


def test_the_tuned_rule_is_chosen_on_training_rows_alone() -> None:
    y = np.array([0] * 8 + [1] * 4)
    held = np.where(y, 0.3, 0.1)
    split = datasets.Part(pd.DataFrame(), y, pd.DataFrame(), np.array([0, 1]))
    prediction = Prediction(np.array([[0.9, 0.1], [0.7, 0.3]]), np.arange(12), np.stack([1 - held, held], axis=1))
    assert decisions(prediction, split, (0, 1), "f1", tuned=False).tolist() == [0, 0]
    assert decisions(prediction, split, (0, 1), "f1", tuned=True).tolist() == [0, 1]


def test_a_cap_keeps_test_rows_shares_and_rare_classes() -> None:
    y = np.repeat([0, 1, 2], [1000, 200, 30])
    data = datasets.Table("made up", pd.DataFrame({"a": np.arange(len(y))}), y)
    whole, capped = datasets.part(data, 3), datasets.part(data, 3, 120)
    assert capped.X_test.equals(whole.X_test)
    assert set(capped.X_train["a"]) <= set(whole.X_train["a"])
    assert np.bincount(capped.y_train).tolist() == [98, 20, 20]


def test_ranks_are_of_means_with_ties_shared_and_differences_are_paired() -> None:
    values = {"default": [0.9, 0.7], "hist": [0.8, 0.8], "forest": [0.7, 0.6]}
    made = [
        row(method=method, split=split, metric=metric, value=value)
        for method, scores in values.items()
        for split, value in enumerate(scores)
        for metric in METRICS
    ]
    frame = one_configuration(pd.DataFrame(made))
    comparison = ranks(frame, list(values))
    expected = rankdata([-np.mean(v).round(6) for v in values.values()])
    assert comparison.average().loc[list(values), "overall"].tolist() == expected.tolist() == [1.5, 1.5, 3]
    table = differences(frame, "f1", "forest")
    assert table.loc["iris", "mean"] == pytest.approx(0.15)
    assert table.loc["iris", "error"] == pytest.approx(0.05)
    assert verdicts(table) == (1, 0, 0)
    assert verdicts(differences(frame, "f1", "hist")) == (0, 1, 0)


def test_a_method_that_has_not_finished_takes_no_set_out_of_the_ranking() -> None:
    splits = {("iris", "hist"): 10, ("wine", "hist"): 10, ("iris", "east"): 10, ("wine", "east"): 9}
    splits |= {("iris", "default"): 10, ("wine", "default"): 10}
    made = [
        row(dataset=name, method=method, split=split, metric=metric, value=0.5)
        for (name, method), count in splits.items()
        for split in range(count)
        for metric in METRICS
    ]
    frame = one_configuration(pd.DataFrame(made))
    assert finished_sets(frame) == ["iris"]
    assert main_methods(frame) == ["default", "east", "hist"]  # nine splits are a set, if a noisy one
    without = frame[(frame["method"] != "east") | (frame["dataset"] != "wine") | (frame["split"] < 4)]
    assert finished_sets(without) == ["iris"]
    assert main_methods(without) == ["default", "hist"]
    assert ranks(without, main_methods(without)).sets == ["iris", "wine"]


def test_the_table_command_writes_page_and_plots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = [
        row(
            dataset=name,
            method=method,
            split=split,
            metric=metric,
            value=split / 10 + len(method) / 50,
            **COSTS,
            **PLACE,
        )
        for name in ("iris", "wine")
        for method in METHODS
        for split in (0, 1)
        for metric in METRICS
    ]
    results.append(made, tmp_path / "results")
    assert main(["table", "--results", str(tmp_path / "results"), "--docs", str(tmp_path / "docs")]) == 0
    text = (tmp_path / "docs" / "results.md").read_text()
    assert text in capsys.readouterr().out
    assert all(method.title in text for method in METHODS.values())
    assert {path.name for path in (tmp_path / "docs" / "images").iterdir()} == {"suite-ranks.png", "suite-sets.png"}


def test_unknown_names_are_errors_with_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--datasets", "adlut"])
    assert "did you mean adult?" in capsys.readouterr().err
