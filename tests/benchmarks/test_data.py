"""Benchmark sets by name, from a folder of small stand-ins, from scikit-learn and from a simulated OpenML."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn import datasets

from benchmarks import data
from benchmarks.catalogue import SOURCES
from benchmarks.data import _openml_images

REAL_COUNTS = {
    "adult": {0: 37155, 1: 11687},
    "mammography": {0: 10923, 1: 260},
    "cocktail_party": {0: 3346, 1: 1454},
    "ann_thyroid": {1: 166, 2: 368, 3: 6666},
    "haberman": {0: 225, 1: 81},
    "nursery": {"not_recom": 4320, "priority": 4266, "recommend": 2, "spec_prior": 4044, "very_recom": 328},
    "glass": {1: 70, 2: 76, 3: 17, 5: 13, 6: 9, 7: 29},
    "sms_spam": {0: 4827, 1: 747},
}
real_data = pytest.mark.skipif("METRICFIT_DATA" not in os.environ, reason="needs the folder of real copies")


def write_csv(folder: Path, file: str, text: str) -> None:
    (folder / file).parent.mkdir(exist_ok=True)
    with gzip.open(folder / file, "wt") as stream:
        stream.write(text)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("METRICFIT_DATA", str(tmp_path))
    write_csv(tmp_path, "adult/adult_train.csv.gz", "age,work,target\n30,?,0\n40,None,1\n")
    write_csv(tmp_path, "adult/adult_test.csv.gz", "age,work,target\n50,NA,1\n")
    columns = "frame,stamp,person1,person2,dyad1_x,dyad1_y,dyad2_y,target"
    write_csv(tmp_path, "cocktail_party/pairs.csv.gz", f"{columns}\n1,2,a,b,0.5,0,0,1\n1,2,a,c,0.7,0,0,0\n")
    write_csv(tmp_path, "sms_spam/sms_spam.csv.gz", "text,target\n?,0\nNA,1\n")
    write_csv(tmp_path, "keel_imbalanced/glass1.csv.gz", "RI,target\n1.5,0\n1.6,1\n")
    (tmp_path / "fashion_mnist").mkdir()
    for part, rows in (("train", 3), ("test", 2)):
        images, labels = np.full((rows, 28, 28), rows, np.uint8), np.arange(rows, dtype=np.uint8)
        np.savez(tmp_path / "fashion_mnist" / f"{part}.npz", x=images, y=labels)
    return tmp_path


@pytest.fixture
def no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("METRICFIT_DATA", raising=False)


def test_parts_are_concatenated_and_only_a_question_mark_is_a_gap(folder: Path) -> None:
    adult = data.load("adult")
    assert adult.X["age"].tolist() == [30, 40, 50]
    assert adult.X["work"].isna().tolist() == [True, False, False]
    assert adult.X["work"].tolist()[1:] == ["None", "NA"]
    assert adult.y.tolist() == [0, 1, 1]
    assert adult.n_classes == 2
    assert adult.train_rows == 32561


def test_text_sets_have_no_gaps(folder: Path) -> None:
    assert data.load("sms_spam").X["text"].tolist() == ["?", "NA"]


def test_cocktail_party_positives_are_pairs_of_different_groups(folder: Path) -> None:
    pairs = data.load("cocktail_party")
    assert pairs.y.tolist() == [0, 1]
    assert list(pairs.X.columns) == ["dyad1_x"]


def test_images_are_arrays_in_train_then_test_order(folder: Path) -> None:
    images = data.load("fashion_mnist")
    assert images.X.shape == (5, 28, 28)
    assert images.X.dtype == np.uint8
    assert images.X[:, 0, 0].tolist() == [3, 3, 3, 2, 2]
    assert images.y.tolist() == [0, 1, 2, 0, 1]


def test_official_split_covers_all_rows(folder: Path) -> None:
    dataset = data.Dataset("x", np.zeros((5, 1)), np.arange(5), "", train_rows=3)
    assert dataset.split is not None
    assert [part.tolist() for part in dataset.split] == [[0, 1, 2], [3, 4]]
    assert data.load("iris").split is None


def test_keel_sets_are_found_by_file(folder: Path) -> None:
    assert data.load("keel/glass1").y.tolist() == [0, 1]
    assert "keel/glass1" in data.available()


def test_available_offline_lists_what_is_there(folder: Path) -> None:
    offline = data.available(offline=True)
    bundled = ["breast_cancer", "digits", "iris", "wine"]
    assert offline == sorted([*bundled, "adult", "cocktail_party", "sms_spam", "fashion_mnist", "keel/glass1"])
    assert set(offline) < set(data.available())


@pytest.mark.parametrize("name", ["breast_cancer", "digits", "iris", "wine"])
def test_bundled_sets_equal_scikit_learn(name: str, no_folder: None) -> None:
    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    dataset = data.load(name, as_frame=False)
    assert isinstance(dataset.X, np.ndarray)
    np.testing.assert_array_equal(dataset.X, X)
    np.testing.assert_array_equal(dataset.y, y)


def test_an_unknown_name_suggests_close_ones(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"no benchmark set 'adlut'; did you mean 'adult'"):
        data.load("adlut")
    with pytest.raises(FileNotFoundError, match=r"METRICFIT_DATA.*Did you mean 'keel/glass1'"):
        data.load("keel/glas1")


def test_a_folder_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METRICFIT_DATA", "nowhere-at-all")
    with pytest.raises(FileNotFoundError, match=r"METRICFIT_DATA.*nowhere-at-all"):
        data.load("adult")


def test_a_set_that_cannot_be_downloaded_says_what_to_set(no_folder: None) -> None:
    with pytest.raises(FileNotFoundError, match=r"'cocktail_party' cannot be downloaded.*set METRICFIT_DATA"):
        data.load("cocktail_party")


def fake_openml(monkeypatch: pytest.MonkeyPatch, table: pd.DataFrame, labels: list[str]) -> list[int]:
    asked: list[int] = []

    def fetch(data_id: int, **_: object) -> SimpleNamespace:
        asked.append(data_id)
        return SimpleNamespace(data=table, target=pd.Series(labels, dtype="category"))

    monkeypatch.setattr(datasets, "fetch_openml", fetch)
    return asked


def test_openml_labels_become_those_of_the_files(no_folder: None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = fake_openml(monkeypatch, pd.DataFrame({"x": np.arange(306.0)}), ["1", "2"] * 153)
    dataset = data.load("haberman")
    assert asked == [43]
    assert dataset.y.tolist() == [0, 1] * 153
    assert "OpenML" in dataset.description


def test_openml_number_labels_become_integers_and_names_stay(no_folder: None, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pd.DataFrame({"x": np.arange(214.0)})
    fake_openml(monkeypatch, table, ["10", "9"] * 107)
    assert data.load("glass").classes == [9, 10]
    fake_openml(monkeypatch, table, ["float", "lamps"] * 107)
    assert data.load("glass").classes == ["float", "lamps"]


def test_another_version_on_openml_is_refused(no_folder: None, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_openml(monkeypatch, pd.DataFrame({"x": [1.0]}), ["1"])
    with pytest.raises(ValueError, match=r"has 1 rows where 'adult' has 48842"):
        data.load("adult")


def test_openml_images_are_put_in_height_width_channel_order() -> None:
    pixels = np.zeros((6, 3072), np.uint8)
    pixels[:, 1024 + 33] = 7  # green channel, row 1, column 1
    images = _openml_images(pd.DataFrame(pixels), SOURCES["cifar10"])
    assert images.shape == (6, 32, 32, 3)
    assert images[5, 1, 1].tolist() == [0, 7, 0]


def test_a_network_failure_is_one_clear_error(no_folder: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr(datasets, "fetch_openml", fail)
    with pytest.raises(ConnectionError, match=r"adult.*Name or service not known; set METRICFIT_DATA"):
        data.load("adult")


@real_data
@pytest.mark.parametrize("name", sorted(REAL_COUNTS))
def test_real_copies_have_their_documented_classes(name: str) -> None:
    dataset = data.load(name)
    labels, counts = np.unique(np.asarray(dataset.y), return_counts=True)
    assert dict(zip(labels.tolist(), counts.tolist(), strict=True)) == REAL_COUNTS[name]


@real_data
def test_real_folder_has_every_named_set_and_all_load() -> None:
    names = data.available(offline=True)
    assert set(SOURCES) <= set(names)
    assert sum(name.startswith("keel/") for name in names) == 42
    for name in names:
        if name.startswith("keel/"):
            dataset = data.load(name)
            assert dataset.classes == [0, 1]
            assert len(dataset.X) == len(dataset.y)
    assert data.load("cocktail_party").X.shape == (4800, 22)
    assert int(data.load("adult").X.isna().sum().sum()) == 6465
