"""The commands that use a model, and those that need none."""

import io
import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score, matthews_corrcoef, recall_score

import metricfit
from metricfit import metrics, save
from metricfit.data import reader
from metricfit.decisions import best_rule
from metricfit.models import estimators
from tests.cli.helper import customers, write_csv
from tests.helper import make_classifier


@pytest.fixture
def new(tmp_path):
    return write_csv(tmp_path / "new.csv", customers(90, seed=5))


def test_predictions_equal_the_loaded_model_in_any_column_order(program, model, new):
    frame = pd.read_csv(new)
    classifier = metricfit.load(model)
    read = pd.read_csv(io.StringIO(program("predict", model, new, "--keep", "day", "--keep", "age")))
    assert list(read.columns) == ["day", "age", "prediction", "probability_no", "probability_yes"]
    assert (read["prediction"] == classifier.predict(frame)).all()
    probable = ["probability_no", "probability_yes"]
    np.testing.assert_array_equal(read[probable], classifier.predict_calibrated_proba(frame))
    raw = pd.read_csv(io.StringIO(program("predict", model, new, "--raw")))
    np.testing.assert_array_equal(raw[probable], classifier.predict_proba(frame, raw=True))
    assert (raw["prediction"] == read["prediction"]).all(), "the decision is the rule's, whatever is shown beside it"
    frame[["day", "churn", "plan", "age"]].to_csv(new, index=False)
    again = pd.read_csv(io.StringIO(program("predict", model, new)))
    assert (again["prediction"] == read["prediction"]).all()


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet", ".jsonl"])
def test_predictions_to_a_file_batch_by_batch(program, model, new, tmp_path, suffix, monkeypatch):
    monkeypatch.setattr(reader, "_BATCH_ROWS", 7)
    expected = program("predict", model, new)
    out = tmp_path / f"predicted{suffix}"
    program("predict", model, new, "--out", out)
    assert program.out == ""
    read = {".parquet": pd.read_parquet, ".jsonl": lambda p: pd.read_json(p, lines=True)}.get(suffix, pd.read_csv)(out)
    pd.testing.assert_frame_equal(read, pd.read_csv(io.StringIO(expected)), check_dtype=False)
    program("predict", model, new, "--out", out, code=2)
    assert "--overwrite" in program.err
    program("predict", model, new, "--out", out, "--overwrite")
    assert [p.name for p in tmp_path.iterdir() if p.name.endswith(".tmp")] == []


def test_a_failure_in_the_middle_leaves_no_half_written_file(program, model, tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "_BATCH_ROWS", 7)
    rows = customers(50)
    rows[40]["age"] = "old"
    data = write_csv(tmp_path / "bad.csv", rows)
    program("predict", model, data, "--out", tmp_path / "p.csv", code=3)
    assert "line 42, column 'age': expected a number, got 'old'" in program.err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.csv", "model"]


def test_standard_input(program, model, new, monkeypatch):
    expected = program("predict", model, new)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(new.read_bytes())))
    assert program("predict", model, "-") == expected


def test_missing_columns_are_bad_data_and_wrong_names_wrong_use(program, model, new):
    pd.read_csv(new).drop(columns="age").to_csv(new, index=False)
    program("predict", model, new, code=3)
    assert "lacks 1 column that the model was trained on: 'age'" in program.err
    program("predict", model, new, "--keep", "pln", code=2)
    assert "did you mean 'plan'" in program.err


def test_a_damaged_model_is_one_message(program, model, new):
    for name in json.loads((model / "model.json").read_text())["files"]:
        content = (model / name).read_bytes()
        (model / name).write_bytes(b"")
        program("predict", model, new, code=1)
        assert len(program.err.strip().splitlines()) == 1
        assert name in program.err
        (model / name).write_bytes(content)


def test_a_model_saved_in_python_predicts_from_the_command_line(program, tmp_path, new):
    frame = pd.read_csv(new)
    frame["flag"] = frame["age"] > 40
    quick = {"cv": None, "baseline": False, "min_updates": 5, "max_epochs": 1, "random_state": 0, "verbose": False}
    classifier = make_classifier("mcc", **quick).fit(frame.drop(columns="churn"), frame["churn"])
    frame.to_csv(new, index=False)
    read = pd.read_csv(io.StringIO(program("predict", save(classifier, tmp_path / "m"), new)))
    assert (read["prediction"] == classifier.predict(frame)).all()
    program("evaluate", tmp_path / "m", new, code=2)
    assert "--target" in program.err


def test_evaluate_equals_scikit_learn_for_every_metric_and_class(program, model, new):
    result = json.loads(program("evaluate", model, new, "--metric", "all", "--json"))
    frame = pd.read_csv(new)
    predicted = metricfit.load(model).predict(frame)
    found = {name: values["value"] for name, values in result["metrics"].items()}
    assert found["f1[yes]"] == pytest.approx(f1_score(frame["churn"], predicted, pos_label="yes"))
    assert found["mcc"] == pytest.approx(matthews_corrcoef(frame["churn"], predicted))
    each = recall_score(frame["churn"], predicted, average=None, labels=["no", "yes"])
    assert [result["classes"]["recall"][c]["value"] for c in ("no", "yes")] == pytest.approx(each)
    bare = {name.split("[")[0].split(":")[0] for name in found}
    assert bare >= set(metrics.available())
    assert all(v["low"] <= v["value"] <= v["high"] for v in result["metrics"].values() if v["low"] is not None)


def test_evaluate_prints_only_the_metrics_asked_for(program, model, new):
    out = program("evaluate", model, new, "--metric", "mcc", "--metric", "recall[no]")
    assert "mcc" in out
    assert "recall[no]" in out
    assert "kappa" not in out


def test_evaluate_takes_weights(program, model, new):
    frame = pd.read_csv(new)
    frame["w"] = np.arange(len(frame)) % 4
    frame.to_csv(new, index=False)
    result = json.loads(program("evaluate", model, new, "--weight", "w", "--metric", "f1[yes]", "--json"))
    expected = f1_score(frame["churn"], metricfit.load(model).predict(frame), pos_label="yes", sample_weight=frame["w"])
    assert result["metrics"]["f1[yes]"]["value"] == pytest.approx(expected)


def test_tune_changes_decisions_not_the_network(program, model, new):
    before = metricfit.load(model)
    frame = pd.read_csv(new)
    result = json.loads(
        program("tune", model, new, "--metric", "precision[yes] subject to recall[yes] >= 0.9", "--json")
    )
    after = metricfit.load(model)
    assert result["rule"]["kind"] == "threshold"
    assert recall_score(frame["churn"], after.predict(frame), pos_label="yes") >= 0.9
    np.testing.assert_array_equal(after.predict_proba(frame, raw=True), before.predict_proba(frame, raw=True))
    assert (model / "train.toml").exists()


def test_tune_to_another_folder_leaves_the_model_as_it_was(program, model, new, tmp_path):
    before = (model / "model.json").read_bytes()
    program("tune", model, new, "--metric", "fbeta:beta=3", "--out", tmp_path / "other")
    assert (model / "model.json").read_bytes() == before
    assert "fbeta:beta=3[yes]" in program.out
    program("tune", model, new, "--metric", "auroc", code=2)
    program("tune", model, new, "--metric", "precision[yes] subject to recall[yes] >= 0.9 and fpr[yes] <= 0", code=1)
    assert "Traceback" not in program.err


def test_metrics_lists_all_and_shows_one(program):
    listed = json.loads(program("metrics", "--json"))
    assert [m["name"] for m in listed] == metrics.available()
    assert all(m["formula"] and m["summary"] for m in listed)
    out = program("metrics", "matthews_corrcoef")
    assert "range      -1 to 1" in out
    assert "parameters average=auto, label=None, zero_division=0, beta=2\n" in program("metrics", "f2")
    assert "reference  sklearn.metrics.roc_auc_score\n" in program("metrics", "roc_auc")
    program("metrics", "mmc", code=2)
    assert "did you mean 'mcc'" in program.err


def test_advise_follows_the_bound(program):
    from metricfit.theory import deviation_bound

    result = json.loads(program("advise", "--classes", 2, "--batch", 1024, "--positives", 0.3, "--json"))
    assert result["bound"] == deviation_bound(1024, 2)
    assert result["large_enough"]
    assert "Large enough" in program("advise", "--classes", 2, "--batch", 1024, "--positives", 0.3)
    assert "Too small" in program("advise", "--classes", 10, "--batch", 64, "--positives", 0.01)
    assert "Borderline" in program("advise", "--classes", 2, "--batch", 1024, "--positives", 0.06)
    program("advise", "--classes", 2, "--batch", 64, "--positives", 0.9, code=2)


def test_positives_are_rows_of_the_batch_or_a_share_of_it(program):
    common = ("advise", "--classes", 2, "--batch", 1024, "--json", "--positives")
    assert program(*common, 256) == program(*common, 0.25)
    assert json.loads(program(*common, 1))["share_of_positives"] == 1 / 1024
    for wrong in (0, -1, 1.5, 513, "nan", "inf"):
        program(*common, wrong, code=2)
        assert "--positives" in program.err


def test_the_demo_ends_with_the_table_and_the_report(program, tmp_path, monkeypatch):
    from metricfit.cli import demo

    monkeypatch.setattr(demo, "_MAX_EPOCHS", 3)
    monkeypatch.setattr(estimators, "DEFAULT", ("forest", "network_ce", "network"))  # boosting has a model per digit
    out = program("demo", "--out", tmp_path / "demo")
    assert "metricfit train" in program.err
    assert "cross-entropy, tuned rule" in out
    assert out.strip().splitlines()[-1] == f"Report: {tmp_path / 'demo' / 'model' / 'report.html'}"
    program("demo", "--out", tmp_path / "demo", code=2)


COMMANDS = ("train", "compare", "predict", "evaluate", "tune", "export", "metrics", "advise", "demo")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_in_which_brackets_survive(program, command):
    text = program(command, "--help")
    assert "--json" in text
    if command in ("train", "tune"):
        assert "recall[yes]" in " ".join(text.split())
    if command == "export":
        assert "numbers as double" in " ".join(text.replace("│", " ").split()), "as the graph's inputs are"


def test_help_imports_nothing_heavy():
    script = (
        "import sys; sys.argv = ['metricfit', '--help']\n"
        "from metricfit.cli.entry import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('torch', 'sklearn', 'pandas', 'numpy', 'pyarrow', 'scipy') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip().splitlines()[-1] == "[]"


def test_help_takes_little_more_than_python_itself():
    """CPU time, the least of a few runs, beside that of importing torch, which the help must not need."""

    def seconds(*arguments):
        found = []
        for _ in range(3):
            before = os.times()
            subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
            after = os.times()
            found.append(after.children_user + after.children_system - before.children_user - before.children_system)
        return min(found)

    own = seconds("-c", "pass")
    beyond, torch = seconds("-m", "metricfit", "--help") - own, seconds("-c", "import torch") - own
    print(f"metricfit --help: {beyond:.2f} s beyond Python's own, import torch: {torch:.2f} s")
    assert beyond < torch / 5


def test_no_color_and_pipes_have_no_escapes(program, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in program("metrics")


def test_version_and_usage(program):
    assert program("--version").strip() == f"metricfit {metricfit.__version__}"
    program("predict", code=2)
    program("no-such-command", code=2)


def test_a_reader_that_stops_early_is_no_error(program, model, new):
    command = f"{sys.executable} -m metricfit predict {model} {new} | head -1"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert result.stdout.startswith("prediction,")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_shell_completion_can_be_had(shell):
    environment = {**os.environ, "_METRICFIT_COMPLETE": f"source_{shell}"}
    script = "import sys; sys.argv = ['metricfit']; from metricfit.cli.entry import main; main()"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert "_METRICFIT_COMPLETE" in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("words", "offered"),
    [("metricfit tr", {"train"}), ("metricfit train --max-", {"--max-rows", "--max-epochs"})],
)
def test_bash_completes_commands_and_options(tmp_path, words, offered):
    """Through bash itself: the function that the script defines, called as bash would."""
    source = "import sys; sys.argv = ['metricfit']; from metricfit.cli.entry import main; main()\n"
    program = tmp_path / "metricfit"
    program.write_text(f"#!{sys.executable}\n{source}", encoding="utf-8")
    program.chmod(0o755)
    given = words.split()
    script = (
        f'eval "$(_METRICFIT_COMPLETE=source_bash metricfit)"; COMP_WORDS=({words}); COMP_CWORD={len(given) - 1}; '
        'COMP_LINE="${COMP_WORDS[*]}"; _metricfit_completion metricfit; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    path = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=path, check=True)
    assert set(result.stdout.split()) == offered, result.stderr


def test_shell_completion_knows_the_commands():
    environment = {"_METRICFIT_COMPLETE": "complete_bash", "COMP_WORDS": "metricfit ", "COMP_CWORD": "1"}
    script = "import sys; sys.argv = ['metricfit']; from metricfit.cli.entry import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert set(COMMANDS) <= set(result.stdout.split())


def test_monitor_ends_with_exit_code_4_at_an_alarm_and_writes_a_page(program, model, tmp_path):
    same = write_csv(tmp_path / "same.csv", customers(200, seed=5))
    content = json.loads(program("monitor", model, same, "--labels", "churn", "--json"))
    assert (content["rows"], content["alarm"]) == (200, False)
    assert {each["kind"] for each in content["found"]} >= {"scores", "predicted share", "expected", "measured"}
    older = [{**row, "age": min(99, row["age"] + 30), "churn": ""} for row in customers(200, seed=5)]
    page = tmp_path / "watched.html"
    out = program("monitor", model, write_csv(tmp_path / "older.csv", older), "--out", page, code=4)
    assert "ALARM" in out
    assert "Alarm: scores of yes" in program.err
    text = page.read_text(encoding="utf-8")
    assert "Something has changed." in text
    assert "<script" not in text


def test_tune_moves_the_rule_to_another_share_of_the_positive_class(program, model, tmp_path):
    before = metricfit.load(model)
    held, labels = before.held_out_, before.classes_[before.held_out_.truth]
    content = json.loads(program("tune", model, "--prevalence", "0.05", "--out", tmp_path / "rare", "--json"))
    proba = held.proba.astype(float)
    found = best_rule(labels, proba, before.metric_, labels=("no", "yes"), belief=1.0, prevalence=0.05)
    after = metricfit.load(tmp_path / "rare")
    assert after.decision_rule_ == found.rule
    assert after.decision_rule_.parameter > before.decision_rule_.parameter
    assert content["rows"][0]["after"] == pytest.approx(found.value)
    new = [row for row in customers(600, seed=3) if row["churn"] == "no" or row["age"] % 5 == 0]
    for row in new:
        del row["churn"]
    program("tune", model, write_csv(tmp_path / "new.csv", new), "--prevalence", "auto", "--out", tmp_path / "auto")
    assert "Shares of the classes" in program.out
    assert metricfit.load(tmp_path / "auto").decision_rule_ != before.decision_rule_
    for wrong in ("2", "some"):
        program("tune", model, "--prevalence", wrong, code=2)
    program("tune", model, "--prevalence", "auto", code=2)
    assert "give DATA" in program.err
