"""Training and evaluation on files, piece by piece."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import fsspec
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError

import metricfit
from metricfit import MetricClassifier
from metricfit.models import estimators
from metricfit.training import streaming
from metricfit.training.streaming import ShardedRows, confusion_of_shards, fit_shards
from tests.helper import make_classifier


def rows(n: int, classes: int = 2, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    y = random.choice(classes, n, p=[0.85, 0.15] if classes == 2 else [0.7, 0.2, 0.1])
    frame = pd.DataFrame(random.normal(size=(n, 3)), columns=list("abc"))
    frame["a"] += 1.5 * y
    frame["place"] = np.where(random.random(n) < 0.5, "north", "south")
    frame.loc[random.random(n) < 0.05, "b"] = np.nan
    frame["y"] = np.array(["no", "yes", "perhaps"])[y]
    return frame.sort_values("y", ignore_index=True)  # the worst order for a reader that does not mix


def in_files(frame: pd.DataFrame, folder: Path, kind: str = "parquet") -> Path:
    folder.mkdir(exist_ok=True)
    for part, rows_of_part in enumerate(np.array_split(np.arange(len(frame)), 4)):
        some = frame.iloc[rows_of_part]
        if kind == "csv":
            some.to_csv(folder / f"{part}.csv", index=False)
        else:
            some.to_parquet(folder / f"{part}.parquet", row_group_size=500, index=False)
    return folder


def quick(metric: str = "f1", **options) -> MetricClassifier:
    common = {"hidden_sizes": (16,), "batch_size": 256, "random_state": 0, "verbose": False}
    return make_classifier(metric, **{**common, **options})


@pytest.mark.parametrize(("kind", "classes"), [("parquet", 2), ("csv", 3)])
def test_learns_what_training_in_memory_learns(tmp_path: Path, kind: str, classes: int) -> None:
    frame = rows(8000, classes)
    folder = in_files(frame, tmp_path, kind)
    X, y = frame.drop(columns="y"), frame["y"]
    streamed = fit_shards(quick(), folder, "y", passes=10, buffer_rows=2048, validation_rows=1000)
    in_memory = quick(cv=None, baseline=False, max_epochs=10, min_updates=1).fit(X, y)
    assert streamed.score(X, y) > in_memory.score(X, y) - 0.03
    assert str(streamed.metric_) == str(in_memory.metric_)
    assert streamed.classes_.tolist() == in_memory.classes_.tolist()
    assert "8,000 rows were streamed through a buffer of 2,048" in streamed.explain()
    cm = confusion_of_shards(streamed, folder, "y", rows_at_once=3000)
    assert float(cm.matrix.sum()) == 8000
    assert float(streamed.metric_.compute(cm)) == pytest.approx(streamed.score(X, y), abs=1e-12)


def test_same_seed_same_model_and_saving(tmp_path: Path) -> None:
    frame = rows(3000)
    folder = in_files(frame, tmp_path / "rows")
    first, second = (fit_shards(quick("mcc"), folder, "y", buffer_rows=1000, validation_rows=500) for _ in range(2))
    X = frame.drop(columns="y")
    np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))
    metricfit.save(first, tmp_path / "model")
    np.testing.assert_allclose(metricfit.load(tmp_path / "model").predict_proba(X), first.predict_proba(X), atol=1e-6)


def test_buffers_hold_every_training_row_once_a_pass_and_any_of_them_can_be_the_first(tmp_path: Path) -> None:
    frame = rows(8000)
    frame["c"] = np.arange(8000.0)
    table = ShardedRows(in_files(frame, tmp_path), "y")
    fitted = fit_shards(quick(), table, "y", passes=0.1, buffer_rows=600, validation_rows=800, sample_rows=500)
    held = set(frame["c"]) - set(training_numbers(table, range(len(table.lanes))))
    assert len(held) == sum(np.ceil(0.1 * frame["y"].value_counts()))  # of each class its tenth
    assert fitted.held_out_.truth.mean() == pytest.approx((frame["y"] == "yes").mean(), abs=1 / 800)
    for lane in range(len(table.lanes)):
        size = sum(table.sizes[piece] for piece in table.lanes[lane])
        one_pass = training_numbers(table, [lane])
        assert len(one_pass) == len(set(one_pass)) == size
        buffers = table.buffers(lane, 60, 0)
        first = [next(buffers) for _ in range(40)]
        assert len({tuple(row) for part in first[: size // 60] for row in part[0].tolist()}) == size // 60 * 60
        later = table.buffers(lane, 60, 39)  # as after a checkpoint
        for one, other in zip(first[39], next(later), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)


def training_numbers(table: ShardedRows, lanes) -> list[float]:
    pieces = [piece for lane in lanes for piece in table.lanes[lane]]
    return [number for frame, *_ in table.training_rows(pieces, table.columns) for number in frame["c"]]


def test_errors(tmp_path: Path) -> None:
    folder = in_files(rows(500), tmp_path)
    with pytest.raises(ValueError, match="no column 'z'; the table has"):
        fit_shards(quick(), folder, "z")
    with pytest.raises(ValueError, match="buffer_rows: expected a number > 0"):
        fit_shards(quick(), folder, "y", buffer_rows=0)
    with pytest.raises(ValueError, match="sample_rows: expected a number > 0"):
        fit_shards(quick(), folder, "y", sample_rows=0)
    model = quick()
    model.models_, model.classes_ = {}, np.array(["no", "yes"])
    model.feature_names_in_ = np.array(["a", "z"], dtype=object)
    with pytest.raises(ValueError, match="no column 'z'; the table has"):
        confusion_of_shards(model, folder, "y")
    by_class = in_files(rows(500).assign(g=lambda frame: frame["y"]), tmp_path / "groups")
    with pytest.raises(ValueError, match="validation_rows: none of 0 random rows is of class 'yes'"):
        fit_shards(model, by_class, "y", groups="g", validation_rows=1)
    assert not hasattr(model, "models_")  # half of another model is none
    with pytest.raises(NotFittedError):
        confusion_of_shards(model, folder, "y")
    for options, told in (
        ({"cv": [([0], [1])]}, "cv: expected 'auto', None or a number of folds >= 2 for shards"),
        ({"preprocess": None}, "preprocess: shards are prepared by the built-in preprocessor"),
        ({"class_weight": {"no": -1}}, "class_weight: expected finite weights >= 0"),
        ({"batch_size": 3}, "batch_size: expected at least"),
    ):
        with pytest.raises(ValueError, match=told):
            fit_shards(quick(**options), folder, "y", sample_rows=100)
    in_files(rows(500).assign(w=-1.0), tmp_path / "weights")
    with pytest.raises(ValueError, match=r"0\.parquet, column 'w': expected a weight >= 0 in each row"):
        fit_shards(quick(), tmp_path / "weights", "y", weight="w")


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("after", [1, 4])
def test_a_stopped_run_goes_on_to_the_same_model(tmp_path: Path, after: int) -> None:
    frame = rows(4000)
    folder, how = in_files(frame, tmp_path / "rows"), {"passes": 3, "buffer_rows": 1500, "validation_rows": 300}

    def stop(event: object) -> None:
        if event.record.epoch > after:
            raise StoppedError

    whole = fit_shards(quick("mcc"), folder, "y", **how)
    assert len(whole.history_) == 7
    with pytest.raises(StoppedError):
        fit_shards(quick("mcc", checkpoint_dir=tmp_path / "c", callbacks=[stop]), folder, "y", **how)
    read = []
    resumed = fit_shards(quick("mcc", checkpoint_dir=tmp_path / "c", callbacks=[read.append]), folder, "y", **how)
    assert 0 < len([event for event in read if event.run == "network"]) < 7
    X = frame.drop(columns="y")
    np.testing.assert_array_equal(resumed.predict_proba(X), whole.predict_proba(X))
    with pytest.raises(ValueError, match="a checkpoint of another run, with other table"):
        fit_shards(quick("mcc", checkpoint_dir=tmp_path / "c"), folder, "y", **{**how, "passes": 4})


def test_folds_groups_weights_and_patience(tmp_path: Path) -> None:
    frame = rows(3000).assign(g=lambda f: np.arange(len(f)) // 10, w=lambda f: np.where(f["y"] == "yes", 3.0, 1.0))
    folder = in_files(frame, tmp_path)
    table = ShardedRows(folder, "y", weight="w", groups="g")
    how = {"passes": 2, "buffer_rows": 1000, "validation_rows": 600, "sample_rows": 1000}
    fitted = fit_shards(quick(cv=3, members=2), table, "y", **how)
    assert table.columns == ["a", "b", "c", "place"]
    assert fitted.network_.members == 6
    assert fitted.held_out_.fold.tolist() == sorted(fitted.held_out_.fold)
    fold_of_group: dict[int, set[int]] = {}
    for part, _, weight, fold in table.training_rows(range(len(table.sizes)), table.columns):
        for group, number in zip(part["g"], fold, strict=True):
            fold_of_group.setdefault(group, set()).add(number)
        np.testing.assert_allclose(weight, part["w"] / frame["w"].mean())
    assert all(len(found) == 1 for found in fold_of_group.values())
    assert set.union(*fold_of_group.values()) == {0, 1, 2}
    # Held out by group: no group on both sides.
    fit_shards(quick(), table, "y", **how)
    trained = {group for part, *_ in table.training_rows(range(len(table.sizes))) for group in part["g"]}
    assert 0.1 < 1 - len(trained) / 300 < 0.3
    assert sum(table.sizes) == 10 * len(trained)
    # Class weights have the mean 1 over rows with their weights.
    fit_shards(quick(class_weight="balanced"), table, "y", passes=0.1, sample_rows=500)
    share = frame.groupby("y")["w"].sum() / frame["w"].sum()
    assert table.factors @ share == pytest.approx(1)
    assert table.factors[1] / table.factors[0] == pytest.approx(np.divide(*frame["y"].value_counts()))
    stopped = fit_shards(quick(patience=1, min_delta=1.0), table, "y", **{**how, "passes": 9})
    assert len(stopped.history_) == 2


@pytest.mark.parametrize("boosting", ["lightgbm", ""])
def test_the_portfolio_is_fitted_from_shards(tmp_path: Path, boosting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if boosting:
        pytest.importorskip("lightgbm", reason="LightGBM is not installed: pip install 'metricfit[boost]'")
    else:
        found = importlib.util.find_spec
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "lightgbm" else found(name))
    monkeypatch.setattr(estimators, "TREES", 10)
    frame = rows(4000, classes=3)
    folder, X = in_files(frame, tmp_path / "rows"), frame.drop(columns="y")
    model = quick("f1:average=macro", models=["boosting", "extra_trees", "network"], cv=2 if boosting else "auto")
    fitted = fit_shards(model, folder, "y", passes=2, buffer_rows=2000, validation_rows=800, sample_rows=1000)
    assert set(fitted.leaderboard_["model"]) == {"portfolio", "boosting", "extra_trees", "network"}
    names = "extra_trees" if boosting else "boosting, extra_trees"
    assert f"{names}: fitted on a stratified sample of " in " ".join(map(str, fitted.choices_))
    values = fitted.leaderboard_.set_index("model")["value"]
    assert values["boosting"] > 0.5
    metricfit.save(fitted, tmp_path / "model")
    np.testing.assert_allclose(metricfit.load(tmp_path / "model").predict_proba(X), fitted.predict_proba(X), atol=1e-6)


def test_boosting_holds_bins_of_as_many_rows_as_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lightgbm = pytest.importorskip("lightgbm", reason="LightGBM is not installed: pip install 'metricfit[boost]'")
    sizes, whole = [], lightgbm.train
    monkeypatch.setattr(
        lightgbm, "train", lambda how, table, *a, **k: [whole(how, table, *a, **k), sizes.append(table.num_data())][0]
    )
    folder = in_files(rows(4000), tmp_path)
    for limit in (2 << 30, 2000 * (4 + 32)):
        monkeypatch.setattr(streaming, "BINNED_BYTES", limit)
        fit_shards(quick(models="boosting"), folder, "y", validation_rows=400, sample_rows=500)
    assert sizes[0] == 3600 - 1
    assert 1000 < sizes[1] <= 2000


def test_a_store_behind_an_address_is_read_as_a_folder_is(tmp_path: Path) -> None:
    frame = rows(1000)
    folder = in_files(frame, tmp_path / "rows")
    store = fsspec.filesystem("memory")
    for file in folder.iterdir():
        store.pipe(f"/table/{file.name}", file.read_bytes())
    how = {"buffer_rows": 500, "sample_rows": 300}
    local = fit_shards(quick(), folder, "y", **how)
    for source in ("memory://table", "memory://table/*.parquet", folder.as_uri(), f"{folder}/*.parquet"):
        remote = fit_shards(quick(), source, "y", **how)
        X = frame.drop(columns="y")
        np.testing.assert_array_equal(remote.predict_proba(X), local.predict_proba(X))
    store.rm("/table", recursive=True)
    with pytest.raises(ValueError, match=r"memory://table/\*.parquet"):
        ShardedRows("memory://table/*.parquet", "y")
    with pytest.raises(ValueError, match=r"memory://table/0\.parquet: cannot be reached \(FileNotFoundError"):
        ShardedRows("memory://table/0.parquet", "y")
    with pytest.raises(ValueError, match="nowhere://table: cannot be reached"):
        ShardedRows("nowhere://table", "y")


def test_bad_shards_are_named(tmp_path: Path) -> None:
    folder = in_files(rows(400), tmp_path)
    rows(10)[:0].to_parquet(folder / "9.parquet", index=False)
    table = ShardedRows(folder, "y")
    assert table.rows == 400
    assert "1 files without a row were left out" in str(table.choices[0])
    assert "9.parquet" in str(table.choices[0])
    rows(10).assign(a="much").to_parquet(folder / "8.parquet", index=False)
    with pytest.raises(
        ValueError, match=r"8\.parquet: does not go with .*0\.parquet \(.*[Ff]ield a has incompatible types"
    ):
        ShardedRows(folder, "y")
    rows(10).drop(columns="a").to_parquet(folder / "8.parquet", index=False)
    with pytest.raises(ValueError, match=r"8\.parquet has no column 'a'"):
        ShardedRows(folder, "y")
    (folder / "8.parquet").write_bytes(b"PAR1 is all there is")
    with pytest.raises(ValueError, match=r"8\.parquet: damaged Parquet file"):
        ShardedRows(folder, "y")
    with pytest.raises(ValueError, match=r"9\.parquet: has no rows, and neither has any other"):
        ShardedRows(folder / "9.parquet", "y")
