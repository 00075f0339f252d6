"""Training and evaluation on files, piece by piece."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError

import metricfit
from metricfit import MetricClassifier
from metricfit.data.shards import Shards
from metricfit.training.streaming import _Stream, confusion_of_shards, fit_shards
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
    return make_classifier(metric, hidden_sizes=(16,), batch_size=256, random_state=0, verbose=False, **options)


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


def test_buffers_hold_every_training_row_once_a_pass_and_mix_the_files(tmp_path: Path) -> None:
    frame = rows(8000)
    frame["c"] = np.arange(8000.0)
    stream = _Stream(Shards(in_files(frame, tmp_path)), "y", ["c"], seed=3)
    held = stream.draw(800, 100)

    class Same:
        def transform(self, some: pd.DataFrame) -> np.ndarray:
            return np.array(some, np.float32)

    stream.preprocessor = Same()
    buffers = stream.buffers(600)
    training = 8000 - len(held)
    passes = [next(buffers) for _ in range(training // 600)]
    numbers = torch.cat([part.features for part in passes]).flatten().tolist()
    assert len(set(numbers)) == len(numbers)
    assert not set(numbers) & set(held["c"])
    # Sorted by class on disk, both classes in every buffer but perhaps a few.
    assert sum(len(part.target.unique()) == 2 for part in passes) >= 0.7 * len(passes)


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
    with pytest.raises(ValueError, match="validation_rows: none of"):
        fit_shards(model, folder, "y", validation_rows=1)
    assert not hasattr(model, "models_")  # half of another model is none
    with pytest.raises(NotFittedError):
        confusion_of_shards(model, folder, "y")
