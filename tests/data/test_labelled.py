"""Targets of files: the types of labels, and labels among a model's classes."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from metricfit.data import BadArgumentError, BadDataError, Roles, open_table, read_labelled
from metricfit.data.columns import labels_of
from metricfit.data.labelled import matched_labels
from tests.data.test_reader import written


def strings(*values):
    return pa.chunked_array([list(values)])


@pytest.mark.parametrize(
    ("texts", "labels"),
    [
        (["1", "0", "", "2.0"], [1, 0, None, 2]),
        (["TRUE", "False"], [True, False]),
        (["NA", "None", "?"], ["NA", "None", None]),
        (["007", "1"], ["007", "1"]),
    ],
)
def test_targets_keep_their_type(texts, labels):
    found = labels_of(strings(*texts))
    assert [None if pd.isna(v) else v for v in found] == labels


@pytest.mark.parametrize(
    ("classes", "texts", "labels"),
    [
        (np.array([0, 1]), ["1", "0.0", " 1"], [1, 0, 1]),
        (np.array([False, True]), ["TRUE", "false"], [True, False]),
        (np.array(["a b", "ü"]), ["ü", "a b"], ["ü", "a b"]),
    ],
)
def test_labels_are_matched_to_the_classes(tmp_path, classes, texts, labels):
    file = open_table(written(tmp_path, "y\n" + "\n".join(texts) + "\n"), separator=",")
    found, present = matched_labels(file.read(["y"]), "y", classes)
    assert found.tolist() == labels
    assert found.dtype == classes.dtype
    assert present.all()


def test_an_unknown_label_is_named_by_its_line(tmp_path):
    file = open_table(written(tmp_path, "y,z\na,1\n?,1\nc,1\n"))
    with pytest.raises(BadDataError, match=r"line 4, column 'y': expected one of the model's classes.*got 'c'"):
        matched_labels(file.read(["y"]), "y", np.array(["a", "b"]))


@pytest.mark.parametrize("words", [("0", "1"), ("no", "Yes"), ("false", "TRUE")])
def test_labels_may_be_words(tmp_path, words):
    lines = "".join(f"{i},{words[i % 2]},{words[i // 2 % 2]}\n" for i in range(8))
    table = read_labelled(open_table(written(tmp_path, "x,a,b\n" + lines)), Roles(["a", "b"]))
    assert table.task == "multilabel"
    np.testing.assert_array_equal(table.y, [[i % 2, i // 2 % 2] for i in range(8)])


def test_many_numbers_are_a_regression_unless_they_are_called_classes(tmp_path):
    file = open_table(written(tmp_path, "x,age\n" + "".join(f"{i % 7},{i % 89}\n" for i in range(900))))
    with pytest.raises(
        BadArgumentError, match=r"task: 'age' holds 89 distinct numbers, 0 to 88: .*regression.*'multiclass'"
    ):
        read_labelled(file, Roles(["age"]))
    assert len(read_labelled(file, Roles(["age"]), task="multiclass").classes) == 89
    few = open_table(written(tmp_path, "x,age\n" + "".join(f"{i % 7},{i % 30}\n" for i in range(900))))
    assert read_labelled(few, Roles(["age"])).task == "multiclass"
