"""The benchmark suite on tables that come with scikit-learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import rankdata, sem
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import f1_score, matthews_corrcoef

from benchmarks.suite import cache, fits, methods, report, results, runner, summary, tables
from benchmarks.suite.__main__ import RESULTS, ROOT, main
from benchmarks.suite.fits import METRICS
from benchmarks.suite.methods import CANDIDATES, METHODS, PICK, PORTFOLIO
from metricfit import MetricClassifier


def run(folder: Path, *options: str) -> int:
    places = ("--results", str(folder / "results"), "--cache", str(folder / "cache"))
    return main(["run", "--tables", "iris", "--splits", "1", *places, *options])


COSTS = {"cpu_seconds": 1.0, "train_rows": 80, "test_rows": 20, "classes": 3}
PLACE = {"machine": "one core", "libraries": "torch=1", "commit": "abc"}


def row(**changes: object) -> results.Row:
    usual: dict[str, object] = dict.fromkeys(results.COLUMNS, "") | COSTS | PLACE
    usual |= {"table": "iris", "split": 0, "metric": "f1", "method": "forest", "value": 0.5, "held_out": 0.5}
    return results.Row(**(usual | {"arg_max": 0.4} | changes))  # type: ignore[arg-type]


def frame(made: dict[str, list[float]], table: str = "iris", **changes: object) -> pd.DataFrame:
    """Rows of methods with one value per split, the same for all metrics."""
    return pd.DataFrame([
        row(table=table, method=method, split=split, metric=metric, value=value, held_out=value, **changes)
        for method, found in made.items()
        for split, value in enumerate(found)
        for metric in METRICS
    ])  # fmt: skip


def test_the_portfolio_is_exactly_metric_classifier() -> None:
    part = fits.part("iris", 3)
    made = {name: fits.FITS[fit](part) for name, fit in methods.needs(PORTFOLIO, "mcc").items()}
    clf = MetricClassifier("mcc", random_state=3, verbose=False, device="cpu").fit(part.X_train, part.y_train)
    assert clf.held_out_ is not None
    assert clf.held_out_.rows.tolist() == np.concatenate([split.validation for split in part.folds]).tolist()
    mean = sum(weight * made[name].test for name, weight in clf.weights_.items())
    np.testing.assert_array_equal(mean, clf.predict_proba(part.X_test, raw=True))
    found = methods.scored(PORTFOLIO, "mcc", part, made)
    assert found.value == pytest.approx(matthews_corrcoef(part.y_test, clf.predict(part.X_test)))
    assert found.held_out == pytest.approx(matthews_corrcoef(clf.held_out_.truth, clf.held_out_.decided))


def test_a_run_scores_as_scikit_learn_does_and_is_never_repeated(tmp_path: Path) -> None:
    assert run(tmp_path, "--methods", "forest", "logistic") == 0
    rows = results.read(tmp_path / "results")
    assert set(zip(rows["method"], rows["metric"], strict=True)) == {
        (method, metric) for method in ("forest", "logistic") for metric in METRICS
    }
    made, _ = cache.recall(cache.path(tmp_path / "cache", "iris", 0, "forest"))  # type: ignore[misc]
    plain = rows[(rows["method"] == "forest") & (rows["metric"] == "f1")]["arg_max"].item()
    truth = fits.part("iris", 0).y_test
    assert plain == pytest.approx(f1_score(truth, made.test.argmax(axis=1), average="macro"), abs=1e-6)
    before = (tmp_path / "results" / "iris.csv").read_text()
    assert run(tmp_path, "--methods", "forest", "logistic") == 0
    assert (tmp_path / "results" / "iris.csv").read_text() == before


def test_rescoring_trains_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, "--methods", "forest")
    before = results.read(tmp_path / "results")
    monkeypatch.setattr(RandomForestClassifier, "fit", None)
    assert run(tmp_path, "--methods", "forest", "--rescore", "forest") == 0
    pd.testing.assert_series_equal(results.read(tmp_path / "results")["value"], before["value"])
    assert run(tmp_path, "--methods", "forest", "--redo", "forest") == 1


def test_rivals_are_fitted_on_the_same_folds_and_spread_over_all_classes() -> None:
    part = fits.part("iris", 1)

    class Frequencies:
        def __init__(self, y: np.ndarray) -> None:
            self.shares = np.bincount(y) / len(y)

        def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
            return np.tile(self.shares, (len(X), 1))

    seen = []

    def fit(fold: fits.Fold, seed: int) -> Frequencies:
        X, y, X_held, y_held = fold
        seen.append((set(X.index), set(X_held.index)))
        assert len(X_held) == len(y_held)
        return Frequencies(y)

    held_out, test = fits._folded(part, fit)
    assert [b for _, b in seen] == [set(split.validation.tolist()) for split in part.folds]
    assert all(not a & b for a, b in seen)
    assert held_out.shape == (len(part.y_train), 3)
    np.testing.assert_allclose(test, np.full((len(part.y_test), 3), 1 / 3), atol=0.02)


def test_a_class_that_a_fold_lacks_has_no_probability() -> None:
    X, y = pd.DataFrame({"a": np.arange(20.0)}), np.array([0, 1] * 9 + [2, 2])
    part = fits.Part(X, y, X, y, 0)

    class Sure:
        def __init__(self, classes: int) -> None:
            self.classes = classes

        def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
            return np.full((len(X), self.classes), 1 / self.classes)

    lacking = [k for k, split in enumerate(part.folds) if 2 not in y[split.train]]
    held_out, test = fits._folded(part, lambda fold, seed: Sure(int(fold[1].max()) + 1))
    assert held_out.sum(axis=1) == pytest.approx(1)
    assert test.sum(axis=1) == pytest.approx(1)
    for k in lacking:
        start = sum(len(split.validation) for split in part.folds[:k])
        assert (held_out[start : start + len(part.folds[k].validation), 2] == 0).all()


def test_the_rule_is_chosen_on_training_rows_alone() -> None:
    y = np.array([0] * 80 + [1] * 40)
    part = fits.Part(pd.DataFrame(index=range(120)), y, pd.DataFrame(), np.array([0, 1]), 0)
    rows = np.concatenate([split.validation for split in part.folds])
    score = np.where(y, 0.3, 0.1)[rows]
    made = fits.Prediction(np.array([[0.9, 0.1], [0.7, 0.3]]), np.stack([1 - score, score], axis=1))
    found = methods.scored("forest", "f1", part, {"forest": made})
    assert found == methods.Scored(1.0, 1.0, 0.0)
    decided = fits.Prediction(made.test, np.empty((0, 0)), np.array([1, 1]))
    assert methods.scored("autogluon", "f1", part, {"autogluon": decided}).value == pytest.approx(2 / 3)


def test_a_half_written_row_is_dropped_and_computed_again(tmp_path: Path) -> None:
    results.append([row(split=0), row(split=1)], tmp_path)
    file = tmp_path / "iris.csv"
    file.write_text(file.read_text()[:-20])
    assert {key[1] for key in results.existing(tmp_path)} == {0}
    results.append([row(split=1)], tmp_path)
    assert results.read(tmp_path)["split"].tolist() == [0, 1]


def test_only_missing_methods_are_planned_first_splits_first(tmp_path: Path) -> None:
    results.append([row(method="forest")], tmp_path)
    planned = list(runner.jobs(["iris", "wine"], ["forest", "boosting"], [0, 1], tmp_path, tmp_path))
    assert [(job.table, job.split) for job in planned] == [("iris", 0), ("wine", 0), ("iris", 1), ("wine", 1)]
    assert planned[0].methods == ("boosting",)


def test_redo_removes_only_its_method(tmp_path: Path) -> None:
    results.append([row(), row(method="boosting")], tmp_path)
    assert results.remove(["iris"], ["boosting"], tmp_path) == 1
    assert results.read(tmp_path)["method"].tolist() == ["forest"]


def test_training_rows_are_capped_with_rare_classes_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    y = np.repeat([0, 1, 2], [1000, 200, 30])
    monkeypatch.setattr(tables, "load_table", lambda name: (pd.DataFrame({"a": np.arange(len(y))}), y))
    (train, test), (capped, same) = tables.splits("made up")[3], tables.splits("made up", 120)[3]
    assert same.tolist() == test.tolist()
    assert set(capped) <= set(train)
    assert np.bincount(y[capped]).tolist() == [80, 20, 20]


def test_the_halves_share_no_table_and_no_source() -> None:
    chosen, claimed = tables.names("choose"), tables.names("claim")
    assert len(chosen) == len(claimed) == 20
    assert not set(chosen) & set(claimed)
    assert len({table.source for table in tables.TABLES.values()}) == 40


def test_the_careful_user_picks_by_the_value_out_of_fold() -> None:
    made = frame({name: [0.5] for name in CANDIDATES})
    made.loc[made["method"] == "xgboost", ["held_out", "value"]] = [0.8, 0.3]
    picked = summary.with_pick(made).query("method == @PICK")
    assert picked["value"].tolist() == pytest.approx([30, 30, 30])
    assert picked["picked"].tolist() == ["xgboost"] * 3
    assert picked["cpu_seconds"].tolist() == [len(CANDIDATES)] * 3
    fewer = made[made["method"] != "logistic"]
    assert PICK not in set(summary.with_pick(fewer)["method"])


def test_ranks_are_of_means_with_ties_shared_and_differences_are_paired() -> None:
    made = {PORTFOLIO: [0.9, 0.7], "boosting": [0.8, 0.8], "forest": [0.7, 0.6]}
    rows = summary.with_pick(pd.concat([frame(made), frame({name: [v[0]] for name, v in made.items()}, "wine")]))
    ranks = summary.ranks(rows, list(made))
    expected = [rankdata([-np.mean(v).round(6) for v in made.values()]), rankdata([-v[0] for v in made.values()])]
    assert ranks.mean().loc[list(made), "all"].tolist() == np.mean(expected, axis=0).tolist() == [1.25, 1.75, 3]
    assert ranks.splits.to_dict() == {"iris": 2, "wine": 1}
    found = summary.difference(rows, "f1", PORTFOLIO, "forest")
    assert found is not None
    assert found.by_table.to_dict() == pytest.approx({"iris": 15, "wine": 20})
    assert (found.mean, found.error) == pytest.approx((17.5, sem([15, 20])))
    assert found.errors["iris"] == pytest.approx(5)
    worse = summary.difference(rows, None, "forest", PORTFOLIO)
    assert worse is not None
    assert summary.behind(worse) == pytest.approx({"wine": -20, "iris": -15})
    assert summary.behind(worse, 17) == pytest.approx({"wine": -20})


def test_a_method_that_lacks_a_table_takes_none_out_of_the_ranking() -> None:
    both = {PORTFOLIO: [0.9], "forest": [0.8]}
    rows = summary.with_pick(pd.concat([frame(both | {"tabm_d": [0.7]}), frame(both, "wine")]))
    assert summary.main_methods(rows) == [PORTFOLIO, "forest"]
    assert list(summary.ranks(rows, summary.main_methods(rows)).splits.index) == ["iris", "wine"]


def test_the_table_command_writes_page_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for table in ("pima", "krkopt"):
        made = frame({name: [0.1 + len(name) / 50, 0.3] for name in METHODS}, table)
        partial = made[(made["method"] != "autogluon") | (made["table"] == "pima")]
        results.append([results.Row(**each) for each in partial.to_dict("records")], tmp_path / "results")
    assert main(["table", "--results", str(tmp_path / "results"), "--docs", str(tmp_path / "docs")]) == 0
    text = (tmp_path / "docs" / "results.md").read_text()
    assert text in capsys.readouterr().out
    assert all(method.title in text for method in METHODS.values())
    assert {path.name for path in (tmp_path / "docs" / "images").iterdir()} == {"suite.png"}
    assert "On 2 tables that the portfolio was not chosen on" in text
    gap = 50 * (len("portfolio") - len("catboost")) / 50
    assert f"{gap:+.1f} ± 0.0 points from CatBoost with the best rule" in text


def test_the_pages_show_the_committed_rows(tmp_path: Path) -> None:
    pages = ("README.md", "docs/guides/cross-entropy.md", "docs/results.md")
    for page in pages:
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / page).write_text((ROOT / page).read_text())
    report.write_report(RESULTS, tmp_path / "docs")
    report.write_marked(RESULTS, tmp_path)
    for page in pages:
        same = (tmp_path / page).read_text() == (ROOT / page).read_text()
        assert same, f"{page}: the rows have changed; run python -m benchmarks.suite table"


def test_unknown_names_are_errors_with_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--tables", "krkop"])
    assert "did you mean krkopt?" in capsys.readouterr().err
