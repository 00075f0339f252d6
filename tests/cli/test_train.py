"""``metricfit train``: messy tables, honest splits, resuming, and what it says."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib

import numpy as np
import pytest

import metricfit
from metricfit.cli.command import seconds
from metricfit.data import labelled
from metricfit.models import DEFAULT
from metricfit.store import open_model
from tests.cli.helper import customers, write_csv
from tests.test_faults import room_for

QUICK = ("--max-epochs", 3, "--no-baseline", "--models", "forest,network")


def train(program, data, out, *more, target="churn", metric="f1", code=0):
    return program("train", data, "--target", target, "--metric", metric, "--out", out, *(more or QUICK), code=code)


def messy_rows():
    rng = np.random.default_rng(0)
    rows = []
    for i in range(120):
        price = rng.normal(100, 30)
        rows.append(
            {
                "": i,
                "<b>Preis</b>": f"{price:.2f}".replace(".", ","),
                "Größe": rng.choice(["klein", "groß", "", "?"]),
                "Notiz": f'Zeile "{i}"\nzwei',
                "Kündigt er?": "ja, sofort" if price + rng.normal(0, 10) > 110 else "nein",
                "gemischt": rng.choice(["a", "1", "2.5", "true"]),
                "Tag": f"{1 + i % 28}.{1 + i % 12}.2023",
                "leer": "",
                **{f"x{k}": int(rng.integers(0, 9)) for k in range(195)},
            }
        )
    return rows


def test_a_messy_table_works_first_time_and_says_what_it_took(program, tmp_path):
    data = write_csv(tmp_path / "messy.csv", messy_rows(), encoding="utf-8-sig", delimiter=";")
    out = tmp_path / "model"
    train(program, data, out, target="Kündigt er?", metric="f1[ja, sofort]")
    for told in (
        "separator ';'", "task binary", "'<b>Preis</b>': numbers with a decimal comma", "'column_1' left out",
        "'Notiz' not used: an identifier", "dates written as %d.%m.%Y", "'leer' not used",
    ):  # fmt: skip
        assert told in program.err, told
    assert program.err.count("'Notiz'") == 1
    assert "f1[ja, sofort] on 120 held-out rows" in program.out
    assert str(out / "report.html") in program.out
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "&lt;b&gt;Preis" in page
    assert "<b>Preis" not in page
    predicted = program("predict", out, data, "--keep", "column_1")
    assert predicted.splitlines()[0] == 'column_1,prediction,"probability_ja, sofort",probability_nein'
    assert len(predicted.splitlines()) == 121


@pytest.mark.parametrize(
    ("labels", "classes"), [(("0", "1"), [0, 1]), (("False", "True"), [False, True]), (("a b", "ü"), ["a b", "ü"])]
)
def test_targets_of_every_type_from_training_to_evaluation(program, tmp_path, labels, classes):
    rows = [{"x": i, "y y": labels[i % 3 == 0]} for i in range(60)]
    data = write_csv(tmp_path / "t.csv", rows)
    train(program, data, tmp_path / "m", "--use", "x", *QUICK, target="y y", metric="mcc")
    assert metricfit.load(tmp_path / "m").classes_.tolist() == classes
    result = json.loads(program("evaluate", tmp_path / "m", data, "--json", "--metric", "accuracy"))
    assert 0 <= result["metrics"]["accuracy"]["value"] <= 1


def test_the_table_has_cross_entropy_plain_and_tuned_with_intervals(program, table, tmp_path):
    result = json.loads(train(program, table, tmp_path / "m", "--max-epochs", 3, "--json", "--quiet"))
    assert program.err == ""
    models = [row["model"] for row in result["held_out"]]
    assert models[:2] == ["cross-entropy, arg max", "cross-entropy, tuned rule"]
    assert models[2] in DEFAULT, "the best single model"
    assert models[3:] == ["portfolio"]
    assert all(row["low"] <= row["value"] <= row["high"] for row in result["held_out"])
    assert result["held_out_rows"] == 150
    assert result["metric"] == "f1[yes]"


def test_the_positive_class_and_its_reason(program, table, tmp_path):
    train(program, table, tmp_path / "a")
    reason = "f1 was taken of class 'yes', the second in sorted order; write f1[no] for the other (--positive)"
    assert reason in program.err
    train(program, table, tmp_path / "b", *QUICK, "--positive", "no")
    assert "metric f1[no]: the positive class is 'no', as --positive says" in program.err
    train(program, table, tmp_path / "c", *QUICK, "--positive", "maybe", code=2)
    assert "no class 'maybe'" in program.err


def test_held_out_file_is_measured_and_not_trained_on(program, table, tmp_path):
    held = write_csv(tmp_path / "held.csv", [dict(reversed(row.items())) for row in customers(80, seed=1)])
    options = ("--max-epochs", 3, "--validation", held, "--json")
    result = json.loads(train(program, table, tmp_path / "m", *options))
    assert {row["rows"] for row in result["held_out"]} == {80}
    assert len(result["held_out"]) == 3
    ours = result["held_out"][-1]["value"]
    again = json.loads(program("evaluate", tmp_path / "m", held, "--metric", "f1[yes]", "--json"))
    assert again["metrics"]["f1[yes]"]["value"] == pytest.approx(ours)


def test_time_holds_out_the_latest_rows(program, table, tmp_path):
    result = json.loads(train(program, table, tmp_path / "m", *QUICK, "--time", "day", "--json"))
    assert result["held_out_rows"] == sum(
        row["day"] >= sorted(r["day"] for r in customers())[120] for row in customers()
    )
    assert any("latest" in choice for choice in result["choices"])
    assert "day" not in open_model(tmp_path / "m").description["columns"]["names"]


def test_group_ignore_and_weight_are_no_features(program, tmp_path):
    rows = [{**row, "who": f"p{i % 12}", "w": 1 + i % 3} for i, row in enumerate(customers())]
    data = write_csv(tmp_path / "t.csv", rows)
    train(program, data, tmp_path / "m", *QUICK, "--group", "who", "--weight", "w", "--ignore", "day,plan")
    assert open_model(tmp_path / "m").description["columns"]["names"] == ["age"]
    rows[10]["w"] = -1
    train(program, write_csv(data, rows), tmp_path / "n", *QUICK, "--weight", "w", code=3)
    assert "line 12, column 'w': expected a weight >= 0" in program.err


def test_options_in_a_file_are_the_same_run(program, table, tmp_path):
    train(program, table, tmp_path / "a", *QUICK, "--ignore", "day", "--seed", 3)
    used = tmp_path / "a" / "train.toml"
    assert tomllib.loads(used.read_text(encoding="utf-8"))["ignore"] == ["day"]
    program("train", "--config", used, "--out", tmp_path / "b")
    first, second = program("predict", tmp_path / "a", table), program("predict", tmp_path / "b", table)
    assert first == second
    used.write_text("taget = 'x'", encoding="utf-8")
    program("train", "--config", used, code=2)
    assert "did you mean 'target'" in " ".join(program.err.replace("│", " ").split())


def test_an_existing_folder_is_kept_unless_overwritten(program, table, tmp_path):
    out = tmp_path / "m"
    train(program, table, out)
    before = (out / "model.json").read_bytes()
    train(program, table, out, code=2)
    assert "--overwrite" in program.err
    assert (out / "model.json").read_bytes() == before
    train(program, table, out, *QUICK, "--overwrite")
    other = tmp_path / "photos"
    other.mkdir()
    (other / "a.jpg").touch()
    train(program, table, other, *QUICK, "--overwrite", code=2)
    assert (other / "a.jpg").exists()


@pytest.mark.parametrize(
    ("more", "code", "told"),
    [
        (("--target", "chrun"), 2, "did you mean 'churn'?"),
        (("--metric", "f11"), 2, "did you mean 'f1'"),
        (("--metric", "f1[maybe]"), 2, "maybe"),
        (("--ignore", "nothing"), 2, "--ignore"),
        (("--recipe", "cake"), 2, "cake"),
        (("--task", "multiclass"), 2, "binary, not multiclass"),
        (("--time-limit", "soon"), 2, "--time-limit"),
        (("--target", "age"), 3, "distinct values"),
    ],
)
def test_wrong_calls_and_data_have_their_exit_code_and_a_hint(program, tmp_path, more, code, told):
    rows = [{**row, "age": row["age"] + i / 200} for i, row in enumerate(customers())]
    data = write_csv(tmp_path / "t.csv", rows)
    options = {"--target": "churn", "--metric": "f1", "--out": tmp_path / "m"} | {more[0]: more[1]}
    program("train", data, *(word for pair in options.items() for word in pair), code=code)
    assert told in program.err
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_a_debug_run_shows_the_traceback(program, table, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["metricfit", "predict", str(tmp_path / "no model"), str(table), "--debug"])
    from metricfit.cli import entry
    from metricfit.cli.command import CommandError

    with pytest.raises(CommandError, match="no such model folder"):
        entry.main()


@pytest.mark.parametrize(("room", "file"), [(0, ".m.lock"), (10, "train.toml")])
def test_disk_full_from_the_start_names_the_file_and_leaves_nothing(program, table, tmp_path, room, file):
    before = set(tmp_path.iterdir())
    with room_for(room):
        train(program, table, tmp_path / "m", *QUICK, code=1)
    assert re.search(rf"Error: /.*{re.escape(file)}: File too large", program.err)
    assert set(tmp_path.iterdir()) == before


def test_disk_full_leaves_the_old_model_and_says_so(program, table, tmp_path, monkeypatch):
    out = tmp_path / "m"
    train(program, table, out)
    before = (out / "model.json").read_bytes()

    def full(path, content):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("metricfit.store.folder.write_synced", full)
    train(program, table, out, *QUICK, "--overwrite", code=1)
    assert "No space left on device" in program.err
    assert (out / "model.json").read_bytes() == before
    monkeypatch.undo()
    assert (tmp_path / "m.checkpoint").exists(), "what was trained is not lost"


def test_time_limit_ends_training_with_a_model(program, table, tmp_path):
    train(program, table, tmp_path / "m", "--time-limit", "0.0001s")
    assert list(metricfit.load(tmp_path / "m").models_) == ["boosting"], "the first one is always fitted"
    assert "not fitted, because the time was over: extra_trees, forest, network_ce, network" in program.err
    train(program, table, tmp_path / "n", "--time-limit", "0.0001s", "--no-baseline", "--models", "network")
    assert len(metricfit.load(tmp_path / "n").history_) == 1


@pytest.mark.parametrize(("text", "value"), [("90", 90), ("2m", 120), ("1.5h", 5400), ("3s", 3)])
def test_lengths_of_time(text, value):
    assert seconds(text) == value


def test_ctrl_c_says_how_to_resume_and_resuming_gives_the_same_model(program, table, tmp_path):
    out = tmp_path / "stopped"
    models = ["--models", "boosting,network_ce,network"]
    options = [str(table), "--target", "churn", "--metric", "f1", "--max-epochs", "300", *models]
    command = [sys.executable, "-m", "metricfit", "train", *options, "--out", str(out)]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    checkpoint = tmp_path / "stopped.checkpoint" / "network_ce.pt"
    for _ in range(1200):
        if checkpoint.exists() or process.poll() is not None:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 1, told
    assert "Traceback" not in told
    assert "--resume" in told
    assert checkpoint.exists()
    assert not out.exists()
    train(program, table, out, *options[5:], code=2)
    assert "--resume goes on" in program.err
    train(program, table, out, *options[5:], "--seed", 1, "--resume", code=2)
    assert "another --seed" in program.err
    train(program, table, out, *options[5:], "--resume")
    train(program, table, tmp_path / "straight", *options[5:])
    assert program("predict", out, table) == program("predict", tmp_path / "straight", table)
    assert not checkpoint.parent.exists()


def test_parquet_to_train_on_and_csv_to_predict(program, tmp_path):
    import pandas as pd

    rows = pd.DataFrame(customers())
    rows["plan"] = rows["plan"].astype("category")
    rows["day"] = pd.to_datetime(rows["day"], format="mixed", errors="coerce")
    rows["paid"] = rows["age"] > 50
    rows["count"] = rows["age"].astype("Int64").where(rows["age"] > 20)
    rows.to_parquet(tmp_path / "t.parquet")
    rows.to_csv(tmp_path / "t.csv", index=False)
    train(program, tmp_path / "t.parquet", tmp_path / "m")
    from_csv = program("predict", tmp_path / "m", tmp_path / "t.csv")
    assert from_csv == program("predict", tmp_path / "m", tmp_path / "t.parquet")
    frame = pd.read_parquet(tmp_path / "t.parquet")
    labels = metricfit.load(tmp_path / "m").predict(frame)
    assert [line.split(",")[0] for line in from_csv.splitlines()[1:]] == labels.tolist()


def test_standard_input_to_train_on(program, table, tmp_path, monkeypatch):
    import io

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(table.read_bytes())))
    train(program, "-", tmp_path / "a")
    train(program, table, tmp_path / "b")
    assert program("predict", tmp_path / "a", table) == program("predict", tmp_path / "b", table)


def test_columns_overridden_by_options(program, tmp_path):
    rows = [{"id": i, "code": i % 7, "x": i % 5, "y": "ab"[i % 3 == 0]} for i in range(90)]
    data = write_csv(tmp_path / "t.csv", rows)
    train(program, data, tmp_path / "a", target="y")
    assert "column 'id' left out as an identifier" in program.err
    train(program, data, tmp_path / "b", "--use", "id", "--categorical", "code", *QUICK, target="y")
    kinds = {c["name"]: c["kind"] for c in open_model(tmp_path / "b").description["columns"]["kinds"]}
    assert kinds == {"id": "number", "code": "category", "x": "number"}


def test_groups_are_never_split_and_time_respects_them(program, tmp_path):
    rows = [{**row, "who": f"p{i // 5}"} for i, row in enumerate(customers())]
    data = write_csv(tmp_path / "t.csv", rows)
    result = json.loads(train(program, data, tmp_path / "m", *QUICK, "--group", "who", "--time", "day", "--json"))
    assert any("their groups have earlier rows" in choice for choice in result["choices"])
    train(program, data, tmp_path / "n", *QUICK, "--group", "churn", code=2)


def test_a_constraint_is_shown_with_what_it_reached(program, table, tmp_path):
    out = train(program, table, tmp_path / "m", metric="precision[yes] subject to recall[yes] >= 0.8")
    assert "with recall[yes] 0." in out


def test_nothing_is_written_when_there_is_not_enough(program, tmp_path, monkeypatch):
    monkeypatch.setattr(labelled, "_SMALL", 0)
    monkeypatch.setattr(labelled, "free_memory", lambda: 5e8)
    data = write_csv(tmp_path / "t.csv", customers())
    train(program, data, tmp_path / "m", code=1)
    assert "GB are free" in program.err
    assert "--max-rows" in program.err
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_a_pattern_is_read_piece_by_piece(program, tmp_path):
    (tmp_path / "rows").mkdir()
    for part in range(3):
        write_csv(tmp_path / "rows" / f"{part}.csv", customers(80, seed=part))
    call = ("train", f"{tmp_path}/rows/*.csv", "--target", "churn", "--metric", "f1[yes]", "--ignore", "day")
    quick = ("--models", "extra_trees,network", "--no-baseline", "--max-epochs", 1)
    program(*call, *quick, "--out", tmp_path / "model")
    assert "240 rows were streamed" in program.err
    assert "extra_trees: fitted on a stratified sample of" in program.err
    assert "churn" in (tmp_path / "model" / "model.json").read_text()
    program("evaluate", tmp_path / "model", tmp_path / "rows" / "0.csv")
    program(*call, "--max-rows", 100, "--out", tmp_path / "other", code=2)
    assert "--max-rows: has no effect on files that are read piece by piece" in program.err
    program(*call[:3], "churn,age", *call[4:], "--out", tmp_path / "other", code=2)
    assert "one column of classes can be predicted, got churn, age" in program.err
    program("train", "nowhere://rows/*.csv", *call[2:], "--out", tmp_path / "other", code=3)
    assert "nowhere://rows/*.csv: cannot be reached" in program.err
