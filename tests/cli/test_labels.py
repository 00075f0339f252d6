"""Several 0/1 columns as the target: every command, and what is wrong with columns that cannot be one."""

import io
import json
import tomllib

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score, matthews_corrcoef, recall_score

import metricfit
from metricfit import metrics
from metricfit.assess import Decided, estimate
from tests.cli.helper import write_csv

LABELS = ["cat", "dog", "bird, small"]
FEW = ("--models", "forest,network")  # boosting has a model per label, which takes long to save
QUICK = ("--metric", "f1", "--max-epochs", 5, "--no-baseline", *FEW)


def animals(rows=200, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))
    size = rng.choice(["S", "M", "L"], rows)
    return [
        {
            "a": a, "b": b, "size": s, "cat": int(a > 0.5), "dog": str(bool(b > 0.3)), "bird, small": float(s == "S"),
            "who": i // 4, "day": i // 2, "w": 1 + i % 3, "c": c,
        }
        for i, (a, b, c, s) in enumerate(zip(*x.T, size, strict=True))
    ]  # fmt: skip


@pytest.fixture
def data(tmp_path):
    return write_csv(tmp_path / "animals.csv", animals())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("labels")


@pytest.fixture
def model(program, folder):
    """Trained once, through the command."""
    if not (folder / "model").exists():
        table = write_csv(folder / "animals.csv", animals())
        program("train", table, "--target", *LABELS, "--ignore", "who", "day", "w", *QUICK, "--out", folder / "model")
    return folder / "model"


def truth_of(rows):
    frame = pd.DataFrame(rows)[LABELS]
    return frame.replace({"True": 1, "False": 0}).infer_objects().astype(int).to_numpy()


def test_names_in_a_row_by_commas_and_repeated_are_the_same(program, data, tmp_path):
    ways = (["--target", "cat", "dog"], ["--target", "cat,dog"], ["--target", "cat", "--target", "dog"])
    found = []
    for i, way in enumerate(ways):
        program("train", data, *way, "--ignore", "bird, small", *QUICK, "--out", tmp_path / f"m{i}")
        found.append(program("predict", tmp_path / f"m{i}", data))
    assert found[0] == found[1] == found[2]


def test_the_choice_is_told_and_the_run_can_be_repeated_from_its_file(program, data, tmp_path):
    program("train", data, "--target", *LABELS, *QUICK, "--out", tmp_path / "a")
    assert "task multilabel: 3 labels, of which a row may have any: 'cat'" in program.err
    assert "f1 was taken as the macro average over the 3 classes: f1:average=macro (--metric)" in program.err
    assert "f1:average=macro on 200 held-out rows" in program.out
    used = tmp_path / "a" / "train.toml"
    assert tomllib.loads(used.read_text(encoding="utf-8"))["target"] == LABELS
    program("train", "--config", used, "--out", tmp_path / "b")
    assert program("predict", tmp_path / "a", data) == program("predict", tmp_path / "b", data)
    one = tmp_path / "one.toml"
    one.write_text('target = "cat"', encoding="utf-8")
    program("train", data, "--config", one, "--ignore", "dog", *QUICK, "--out", tmp_path / "c")
    assert metricfit.load(tmp_path / "c").classes_.tolist() == [0, 1]


def test_predictions_equal_the_loaded_model(program, model, tmp_path):
    new = write_csv(tmp_path / "new.csv", animals(60, seed=1))
    read = pd.read_csv(io.StringIO(program("predict", model, new, "--keep", "who", "day")))
    names = [f"prediction_{label}" for label in LABELS]
    assert list(read.columns) == ["who", "day", *names, *(f"probability_{label}" for label in LABELS)]
    classifier = metricfit.load(model)
    assert classifier.classes_.tolist() == LABELS
    assert (read[names].to_numpy() == classifier.predict(pd.read_csv(new))).all()


def test_evaluate_equals_scikit_learn(program, model, tmp_path):
    rows = animals(120, seed=2)
    new = write_csv(tmp_path / "new.csv", rows)
    found = json.loads(program("evaluate", model, new, "--json"))
    truth, predicted = truth_of(rows), metricfit.load(model).predict(pd.read_csv(new))
    assert found["metrics"]["f1:average=macro"]["value"] == pytest.approx(f1_score(truth, predicted, average="macro"))
    assert [found["classes"]["mcc"][label]["value"] for label in LABELS] == pytest.approx(
        [matthews_corrcoef(t, p) for t, p in zip(truth.T, predicted.T, strict=True)]
    )
    out = program("evaluate", model, new, "--metric", "recall[dog]", "auroc", "--weight", "w")
    assert f"{recall_score(truth[:, 1], predicted[:, 1], sample_weight=[r['w'] for r in rows]):.4f}" in out
    assert "auroc:average=macro" in out


def test_intervals_resample_whole_rows():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, (300, 1)).repeat(3, axis=1)
    predicted = np.where(rng.random((300, 1)) < 0.8, truth, 1 - truth)
    labels = ("a", "b", "c")
    three = estimate(metrics.get("accuracy:average=macro"), Decided(truth, predicted, labels))
    one = estimate(metrics.get("accuracy"), Decided(truth[:, 0], predicted[:, 0], (0, 1)))
    assert three.value == pytest.approx(one.value)
    assert three.high - three.low == pytest.approx(one.high - one.low, rel=0.1)


def test_tune_chooses_a_threshold_for_each_label(program, model, tmp_path):
    new = write_csv(tmp_path / "new.csv", animals(120, seed=3))
    result = json.loads(program("tune", model, new, "--metric", "fbeta:beta=2", "--out", tmp_path / "tuned", "--json"))
    assert result["rule"]["kind"] == "thresholds"
    assert result["rows"][0]["after"] >= result["rows"][0]["before"]
    after = metricfit.load(tmp_path / "tuned")
    assert after.decision_rule_.classes == tuple(LABELS)


def test_held_out_rows_by_file_time_and_group(program, data, tmp_path):
    held = write_csv(tmp_path / "held.csv", animals(50, seed=4))
    common = ("train", data, "--target", "cat,dog", "--metric", "f1", "--max-epochs", 3, "--json", "--ignore", "c",
              "--models", "network")  # fmt: skip
    result = json.loads(program(*common, "--validation", held, "--out", tmp_path / "a"))
    assert [row["rows"] for row in result["held_out"]] == [50] * 3
    result = json.loads(program(*common, "--time", "day", "--weight", "w", "--out", tmp_path / "b"))
    assert result["held_out_rows"] == 40
    program(*common, "--group", "who", "--out", tmp_path / "c")


def test_compare_networks_and_trees(program, data, tmp_path):
    methods = ("metricfit", "cross-entropy-weighted", "cross-entropy-tuned", "boosting", "boosting-tuned")
    out = program("compare", data, "--target", "cat", "dog", "--metric", "f1", "--methods", *methods, "--splits", 2,
                  "--max-epochs", 3, "--ignore", "bird, small", "--out", tmp_path / "r.jsonl", "--json")  # fmt: skip
    board = json.loads(out)["leaderboard"]
    assert {row["method"] for row in board} == set(methods), program.err
    assert {row["method"]: row["mean"] for row in board}["boosting-tuned"] > 0.8
    program("compare", data, "--target", "dog", "cat", "--metric", "f1[cat]", "--methods", "boosting", "--splits", 2,
            "--ignore", "bird, small", "--out", tmp_path / "r2.jsonl")  # fmt: skip


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (("--target", "cat", "size"), 3, "line 2, column 'size': expected 0 or 1, as one of several target columns"),
        (("--target", "cat", "w"), 3, "line 3, column 'w': expected 0 or 1"),
        (("--target", "cat", "cat"), 2, "'cat' cannot have a second role"),
        (("--target", "cat", "dog", "--ignore", "dog"), 2, "'dog' cannot have a second role"),
        (("--target", "cat", "dog", "--group", "dog"), 2, "'dog' cannot have a second role"),
        (("--target", "cat", "dgo"), 2, "did you mean 'dog'"),
        (("--target", "cat", "dog", "--task", "binary"), 2, "multilabel, not binary"),
        (("--target", "cat", "--task", "multilabel"), 2, "several 0/1 columns"),
        (("--target", "cat", "dog", "--positive", "1"), 2, "the target has 2 labels"),
        (("--target", "cat", "none"), 3, "'none' holds only 0"),
        (("--target", "cat", "dog", "--metric", "f1[cow]"), 2, "cow"),
    ],
)
def test_columns_that_cannot_be_labels(program, tmp_path, options, code, told):
    data = write_csv(tmp_path / "t.csv", [{**row, "none": 0} for row in animals()])
    metric = () if "--metric" in options else ("--metric", "f1")
    program("train", data, *options, *metric, "--out", tmp_path / "m", code=code)
    assert told in program.err


def test_rows_that_lack_a_label_are_left_out_and_told(program, tmp_path):
    rows = animals()
    rows[3]["cat"] = ""
    rows[5]["dog"] = "?"
    data = write_csv(tmp_path / "t.csv", rows)
    result = json.loads(program("train", data, "--target", "cat", "dog", *QUICK, "--out", tmp_path / "m", "--json"))
    assert result["held_out_rows"] == 198
    assert "2 rows that lack one of the labels left out" in program.err
    program("evaluate", tmp_path / "m", data, "--target", "cat", code=2)
    assert "the model predicts 2 columns, for cat, dog; got 'cat'" in program.err


def test_export_to_onnx(program, model, tmp_path):
    import onnxruntime

    program("export", model, "--out", tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    assert [output.shape for output in session.get_outputs()] == [["rows", 3], ["rows", 3]]
