"""Model folders: the same predictions, one clear error for anything that was not written so, and no code run."""

import io
import json
import os
import subprocess
import sys
import zipfile

import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from metricfit import MetricClassifier, save, steps, store
from metricfit.decisions import DecisionRule
from metricfit.report import model_card
from metricfit.store import ModelFolderError, description_of, folder, load, open_model
from metricfit.store.folder import write_folder
from metricfit.training.recipes import Recipe
from tests.helper import make_classifier

QUICK = {"cv": 2, "baseline": True, "min_updates": 20, "max_epochs": 1, "random_state": 0, "verbose": False}

pytestmark = pytest.mark.filterwarnings("ignore:X. column 'name' not used")


def mixed_table(rows=120, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": np.where(rng.random(rows) < 0.1, np.nan, rng.normal(40, 10, rows)),
            "<b>city</b>": rng.choice(["Rome", "Oslo", "Zürich", None], rows),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 400, rows), "D"),
            "name": [f"person {i}" for i in range(rows)],
            "paid": rng.random(rows) < 0.5,
            "written": [f"{value:.9f}" for value in rng.normal(size=rows)],
        }
    )


@pytest.fixture(scope="module")
def table():
    return mixed_table()


@pytest.fixture(scope="module")
def fitted(table):
    y = np.where(table["age"].fillna(0) + 20 * table["paid"] > 50, "sí, yes", "no")
    return make_classifier("f1", **QUICK).fit(table, y)


@pytest.fixture
def saved(fitted, tmp_path):
    return save(fitted, tmp_path / "model", notes={"choices": ["<script>alert(1)</script>"]})


def test_everything_comes_back(fitted, saved, table):
    back = load(saved)
    new = mixed_table(50, seed=1)[list(reversed(table.columns))]
    assert (back.predict(new) == fitted.predict(new)).all()
    assert (back.predict_proba(new) == fitted.predict_proba(new)).all()
    assert back.predict(new).dtype == fitted.predict(new).dtype
    assert back.explain() == fitted.explain()
    assert str(back.metric_) == str(fitted.metric_) == "f1[sí, yes]"
    pd.testing.assert_frame_equal(back.history_, fitted.history_)
    pd.testing.assert_frame_equal(back.validation_report_, fitted.validation_report_, check_dtype=False)
    assert back.get_params()["random_state"] == 0
    assert back.recipe_ == fitted.recipe_


@pytest.mark.parametrize(
    "labels",
    [np.array([0, 1]), np.array([False, True]), np.array(["a", "b", "c"]), np.array([-3, 7, 9], dtype=np.int8)],
)
def test_labels_of_every_type_come_back_with_their_type(labels, tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), labels[np.arange(60) % len(labels)]
    classifier = make_classifier("mcc", **{**QUICK, "cv": None, "baseline": False}).fit(X, y)
    back = load(save(classifier, tmp_path / "model"))
    assert back.predict(X).dtype == classifier.predict(X).dtype
    assert (back.predict(X) == classifier.predict(X)).all()


def test_a_tuned_rule_comes_back(fitted, table, tmp_path):
    import copy

    changed = copy.copy(fitted)
    changed.decision_rule_ = DecisionRule.at_threshold(0.9, fitted.classes_.tolist())
    back = load(save(changed, tmp_path / "model"))
    assert (back.predict(table) == changed.predict(table)).all()
    assert (back.predict(table) != fitted.predict(table)).any()


def test_a_model_refitted_after_loading_is_the_same(fitted, saved, table):
    back = load(saved)
    y = fitted.predict(table)
    y[:2] = fitted.classes_
    again, first = back.fit(table, y), make_classifier("f1", **QUICK).fit(table, y)
    assert (again.predict_proba(table) == first.predict_proba(table)).all()


def test_without_preprocessing_and_with_a_scaler_of_scikit_learn(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = (X[:, 0] > 0).astype(int)
    for name, preprocess in (("none", None), ("scaler", StandardScaler())):
        classifier = make_classifier("mcc", preprocess=preprocess, **{**QUICK, "baseline": False}).fit(X, y)
        back = load(save(classifier, tmp_path / name))
        assert (back.predict_proba(X) == classifier.predict_proba(X)).all()


@pytest.mark.parametrize(
    "name", ["model.json", "network.safetensors", "preprocessing.skops", "history.json", "scores.safetensors"]
)
@pytest.mark.parametrize("damage", ["truncated", "changed", "missing", "empty"])
def test_a_damaged_folder_is_one_clear_error(saved, name, damage):
    file = saved / name
    content = file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        middle = len(content) // 2
        changed = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        file.write_bytes({"truncated": content[:middle], "changed": changed, "empty": b""}[damage])
    with pytest.raises(ModelFolderError, match=name) as caught:
        load(saved)
    assert "\n" not in str(caught.value)


def test_every_field_of_the_description_is_protected(saved):
    description = json.loads((saved / "model.json").read_text(encoding="utf-8"))
    for field in description:
        (saved / "model.json").write_text(json.dumps({**description, field: "other"}), encoding="utf-8")
        with pytest.raises(ModelFolderError):
            load(saved)


def rewrite(path, **changes):
    """Write the folder anew with right checksums, as someone who knows the format could."""
    contents = {file.name: file.read_bytes() for file in path.iterdir()}
    description = json.loads(contents["model.json"])
    contents.update({name: value for name, value in changes.items() if isinstance(value, bytes)})
    description.update({name: value for name, value in changes.items() if not isinstance(value, bytes)})
    contents["model.json"] = json.dumps(description).encode()
    write_folder(path, contents)


def test_a_newer_format_asks_for_an_upgrade(saved):
    rewrite(saved, version=folder.VERSION + 1)
    with pytest.raises(ModelFolderError, match=rf"format version {folder.VERSION + 1}.*upgrade metricfit"):
        load(saved)


def test_an_older_format_asks_for_training_again(saved):
    rewrite(saved, version=1)
    with pytest.raises(ModelFolderError, match=r"format version 1.*train the model again"):
        load(saved)


def test_a_type_that_is_not_allowed_is_refused_and_nothing_runs(saved, tmp_path):
    marker = tmp_path / "ran"
    schema = {
        "__class__": "system",
        "__module__": "os",
        "__loader__": "ObjectNode",
        "__id__": 1,
        "content": {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode", "__id__": 2,
                    "content": json.dumps(f"touch {marker}"), "is_json": True},
        "protocol": 2,
        "_skops_version": "0.16",
    }  # fmt: skip
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("schema.json", json.dumps(schema))
    rewrite(saved, **{"preprocessing.skops": buffer.getvalue()})
    with pytest.raises(ModelFolderError):
        load(saved)
    assert not marker.exists()


def test_a_type_outside_the_list_is_named(saved):
    rewrite(saved, **{"preprocessing.skops": skops.io.dumps(FunctionTransformer(os.path.join))})
    with pytest.raises(ModelFolderError, match=r"join.*not allowed.*nothing was run"):
        load(saved)


@pytest.mark.parametrize(
    "changes",
    [
        {"metric": "no_such_metric"},
        {"metric": "__import__('os').system('true')"},
        {"classes": {"values": [1], "dtype": "<i8"}},
        {"classes": {"values": ["a"] * 2, "dtype": "M8[s]"}},
        {"models": [
            {"name": "network", "weight": 1, "kind": "networks", "members": 1, "inputs": 3, "outputs": 2,
             "hidden_sizes": []}
        ]},
        {"models": [{"name": "forest", "weight": 1, "kind": "estimators", "form": "trees", "outputs": 2}]},
        {"decision_rule": {"kind": "magic"}},
        {"recipe": {"unknown": 1}},
        {"network.safetensors": b"no tensors"},
        {"preprocessing.skops": b"no zip"},
        {"history.json": b"[1]"},
        {"scores.safetensors": b"no tensors"},
    ],
    ids=lambda changes: next(iter(changes)),
)  # fmt: skip
def test_contents_that_do_not_fit_are_one_error_though_the_checksums_are_right(saved, changes):
    rewrite(saved, **changes)
    with pytest.raises(ModelFolderError, match="model"):
        load(saved)


def test_no_folder_and_other_folders(tmp_path):
    with pytest.raises(ModelFolderError, match="no such model folder"):
        load(tmp_path / "nothing")
    with pytest.raises(ModelFolderError, match=r"no model\.json"):
        load(tmp_path)
    (tmp_path / "model.json").write_text("[]")
    with pytest.raises(ModelFolderError, match="not the description"):
        load(tmp_path)


def test_an_existing_model_is_overwritten_only_on_purpose_and_other_folders_never(fitted, saved, tmp_path):
    before = (saved / "model.json").read_bytes()
    with pytest.raises(FileExistsError, match="on purpose"):
        save(fitted, saved)
    assert (saved / "model.json").read_bytes() == before
    save(fitted, saved, overwrite=True, notes={"again": True})
    assert open_model(saved).notes == {"again": True}
    other = tmp_path / "photos"
    other.mkdir()
    (other / "me.jpg").write_bytes(b"x")
    with pytest.raises(FileExistsError, match="other files"):
        save(fitted, other, overwrite=True)
    assert [file.name for file in other.iterdir()] == ["me.jpg"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model", "photos"], "no temporary folder may be left"


@pytest.mark.parametrize("exchange", [True, False])
def test_a_failure_at_any_write_leaves_the_old_folder(fitted, saved, monkeypatch, exchange):
    before = {file.name: file.read_bytes() for file in saved.iterdir()}
    if not exchange:
        monkeypatch.setattr(folder, "_exchange", lambda first, second: False)
    real = folder.write_synced
    for failing in range(len(before)):
        calls = []

        def write(path, content, calls=calls, failing=failing):
            calls.append(path)
            if len(calls) > failing:
                raise OSError(28, "No space left on device")
            real(path, content)

        monkeypatch.setattr(folder, "write_synced", write)
        with pytest.raises(OSError, match="No space left"):
            save(fitted, saved, overwrite=True, notes={"new": 1})
        assert {file.name: file.read_bytes() for file in saved.iterdir()} == before
        assert [file.name for file in saved.parent.iterdir()] == ["model"]
    monkeypatch.setattr(folder, "write_synced", real)
    save(fitted, saved, overwrite=True, notes={"new": 1})
    assert open_model(saved).notes == {"new": 1}
    assert [file.name for file in saved.parent.iterdir()] == ["model"]


def test_a_kill_while_overwriting_leaves_a_whole_folder(tmp_path):
    script = """
import sys
from pathlib import Path
from metricfit.store.folder import write_folder
path = Path(sys.argv[1])
for i in range(10**9):
    write_folder(path, {"model.json": b'{}', "big": str(i).encode() * 1000})
    if i == 0:
        print("started", flush=True)
"""
    path = tmp_path / "model"
    process = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE)
    process.stdout.readline()
    for _ in range(500):
        assert (path / "model.json").exists(), "there is never a moment without a folder"
    process.kill()
    process.wait()
    process.stdout.close()
    folder.read_folder(path)


def test_what_cannot_be_saved_is_said_before_anything_is_written(table, fitted, tmp_path):
    import torch

    X = np.random.default_rng(0).normal(size=(60, 3))
    y = (X[:, 0] > 0).astype(int)
    quick = {**QUICK, "baseline": False}
    own = make_classifier("mcc", network=torch.nn.Linear(6, 2), **quick).fit(X, y)
    with pytest.raises(ValueError, match="network: only the built-in"):
        save(own, tmp_path / "model")
    function = make_classifier(lambda cm: cm.tp[1] / (cm.tp[1] + cm.fn[1] + 1), **quick).fit(X, y)
    with pytest.raises(ValueError, match=r"metric: .*expression"):
        save(function, tmp_path / "model")
    code = make_classifier("mcc", preprocess=FunctionTransformer(np.abs), **quick).fit(X, y)
    assert (load(save(code, tmp_path / "ufunc")).predict(X) == code.predict(X)).all()
    code.preprocessor_ = FunctionTransformer(mixed_table)
    with pytest.raises(ValueError, match=r"preprocess: .*mixed_table"):
        save(code, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_the_pages_escape_everything(saved):
    for name in ("report.html", "README.md"):
        page = (saved / name).read_text(encoding="utf-8")
        assert "<b>city" not in page
        assert "<script>alert" not in page
    assert "<script" not in page
    page = (saved / "report.html").read_text(encoding="utf-8")
    assert page.count("<script") == 2, "its data and its own script, nothing else"
    assert "&lt;b&gt;city" in page
    assert "&lt;script&gt;" in page
    rest = page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    assert "http" not in rest, "the page needs nothing from elsewhere"
    assert "f1[sí, yes]" in page


def test_no_pickle_in_any_file(saved):
    for file in saved.iterdir():
        content = file.read_bytes()
        assert not content.startswith(b"\x80")
        if zipfile.is_zipfile(file):
            names = zipfile.ZipFile(file).namelist()
            assert all(name.endswith((".json", ".npy")) for name in names)


def test_the_card_shows_text_as_it_is_and_only_rows_with_a_value(fitted):
    description = description_of(fitted)
    description["metric"] = "precision[yes] subject to recall[yes] >= 0.9"
    row = {"model": "none", "value": None, "low": None, "high": None, "note": ""}
    description["validation_report"].append(row)
    card = model_card(description)
    assert "`precision[yes] subject to recall[yes] >= 0.9`" in card
    assert "&gt;" not in card
    assert "| none |" not in card
    assert card.count("| trained on the metric") >= 1
    assert f"* Inputs: {fitted.n_features_in_} columns" in card


def test_a_model_saved_without_its_pages_loads(fitted, table, tmp_path):
    path = tmp_path / "bare"
    store.write_model(path, fitted, description_of(fitted), {})
    assert not (path / "report.html").exists()
    assert (load(path).predict(table) == fitted.predict(table)).all()


def test_a_step_is_saved_by_its_spec_and_a_function_is_refused(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = (X[:, 0] > 0).astype(int)
    quick = {"models": "network", "cv": None, "baseline": False, "random_state": 0, "verbose": False}
    recipe = Recipe(step=steps.Linear(0.2), min_updates=20, max_epochs=1)
    classifier = MetricClassifier("mcc", recipe=recipe, **quick).fit(X, y)
    back = load(save(classifier, tmp_path / "model"))
    assert back.recipe_.step == "linear:delta=0.2"
    assert (back.predict(X) == classifier.predict(X)).all()
    own = MetricClassifier("mcc", recipe=Recipe(step=lambda p, tau: p, min_updates=20, max_epochs=1), **quick)
    with pytest.raises(ValueError, match="recipe: its step is a Python function"):
        save(own.fit(X, y), tmp_path / "own")


def test_the_same_run_gives_the_same_bytes_but_for_times(table, tmp_path):
    """Objects lie elsewhere in memory in the second process, and it runs at another time."""
    script = """
import sys
import pandas as pd
from metricfit import save
from tests.helper import make_classifier
padding = [object() for _ in range(int(sys.argv[2]))]
table = pd.DataFrame({"x": [k % 7 for k in range(60)], "c": list("ab") * 30})
options = {"cv": 2, "baseline": False, "min_updates": 20, "max_epochs": 1, "random_state": 0, "verbose": False}
classifier = make_classifier("f1", models=["boosting", "forest"], **options).fit(table, table["x"] > 3)
save(classifier, sys.argv[1])
"""
    for name in ("one", "two"):
        words = [sys.executable, "-c", script, str(tmp_path / name), "1" if name == "one" else "100000"]
        subprocess.run(words, check=True)
    first, second = ({f.name: f.read_bytes() for f in (tmp_path / n).iterdir()} for n in ("one", "two"))
    assert first.keys() == second.keys()
    free = {"times.json", "report.html", "README.md"}
    assert [name for name in first if first[name] != second[name] and name not in free] == []


def test_times_come_back_and_a_file_without_them_is_the_same_model(fitted, saved, table):
    assert load(saved).fit_seconds_ == fitted.fit_seconds_
    pd.testing.assert_frame_equal(load(saved).leaderboard_, fitted.leaderboard_, check_dtype=False)
    (saved / "times.json").write_text("[[1], 2")
    back = load(saved)
    assert np.isnan(back.fit_seconds_)
    assert (back.predict(table) == fitted.predict(table)).all()


def test_files_of_a_folder_have_plain_names(fitted, tmp_path):
    with pytest.raises(ValueError, match="files: expected plain names"):
        save(fitted, tmp_path / "model", files={"../train.toml": b""})
    assert list(tmp_path.iterdir()) == []


def test_many_arrays_are_written_without_a_list_of_all_names_for_each(monkeypatch):
    from metricfit import objects

    asked = []
    usual = zipfile.ZipFile.namelist
    monkeypatch.setattr(zipfile.ZipFile, "namelist", lambda self: asked.append(1) or usual(self))
    objects.to_bytes([np.arange(3.0) + k for k in range(50)], [], "arrays")
    assert len(asked) < 10


def test_a_file_that_compresses_beyond_the_limit_is_written_uncompressed_and_read_again():
    from metricfit import objects

    zeros = [np.zeros(2**22) for _ in range(2)]
    content = objects.to_bytes(zeros, [], "zeros")
    assert len(content) > 2**25
    assert all((one == other).all() for one, other in zip(objects.from_bytes(content, [], "zeros"), zeros, strict=True))
