"""``metricfit report`` and the rule that goes from the page into a model."""

import json
import shlex
import shutil

import numpy as np
import pandas as pd
import pytest

import metricfit
from metricfit.store import load, open_model
from metricfit.store.folder import write_folder
from metricfit.store.model import scores_from, scores_to_bytes
from tests.cli.helper import customers, write_csv
from tests.report.helper import binary_scores, class_scores, label_scores


def page_in(folder):
    return (folder / "report.html").read_text(encoding="utf-8")


def test_train_writes_the_page_and_report_writes_it_again(program, model, tmp_path, show):
    before = page_in(model)
    assert "Operating-point explorer" in before
    (model / "report.html").unlink()
    program("report", model)
    assert page_in(model) == before
    load(model)
    page = show(before)
    value = float(page.get_attribute("#answer-table tr.own td.big", "data-value"))
    back = load(model)
    report = back.validation_report_.set_index("model")["value"]
    assert value == pytest.approx(report["portfolio"])
    rows = page.locator("#answer-table td.big")
    found = [float(rows.nth(i).get_attribute("data-value")) for i in range(rows.count())]
    single = [name for name in [back.held_out_.single_name] if name != "network_ce"]
    rivals = [*single, "cross-entropy, arg max", "cross-entropy, tuned rule"]
    assert found[1:] == pytest.approx([report[name] for name in rivals])
    board = page.locator("#leaderboard-table tbody tr")
    shown = [board.nth(i).inner_text() for i in range(board.count())]
    for row, text in zip(back.leaderboard_.itertuples(), shown, strict=True):
        assert text.startswith(row.model), shown
        assert f"{row.value:.4f}" in text
        assert f"{row.low:.3f} to {row.high:.3f}" in text
        assert f"{100 * row.weight:.1f} %" in text
        assert f"{row.fit_seconds:.1f}" in text
    of_segments = open_model(model).notes["findings"]
    assert page.locator("#segments tbody tr").count() == len(of_segments["segments"]) > 0
    assert page.locator("#errors tbody tr").count() == len(of_segments["errors"])
    table = customers()
    for error in of_segments["errors"]:  # its number is that of the row of the file
        assert table[error["row"] - 1]["churn"] == error["true"] != error["decided"]
    page.locator('nav a[href="#data"]').click()
    assert "18 to" in page.inner_text("#column-table"), "what the columns held"


def test_importance_gains_and_lift_are_drawn_where_they_are_asked_for(program, model, tmp_path, show):
    data = write_csv(tmp_path / "new.csv", customers(90, seed=5))
    program("report", model, data, "--out", tmp_path / "new.html", "--importance")
    page = show((tmp_path / "new.html").read_text(encoding="utf-8"))
    names = page.locator("#columns tbody th").all_text_contents()
    assert names[0] == "age"
    assert "when a column is set to one value" in page.locator("#columns").text_content()
    for chart in ("#c-gain", "#c-lift"):
        assert page.locator(f"{chart} svg[aria-label]").count() == 1
    table = pd.read_csv(data)
    y, p = table["churn"].eq("yes").to_numpy(), load(model).predict_proba(table.drop(columns="churn"), raw=True)[:, 1]
    first = y[np.argsort(-p)[:9]].sum() / y.sum()
    assert f"finds {first:.3f}" in page.locator("#c-gain svg[aria-label]").get_attribute("aria-label")
    table.drop(columns="churn").to_csv(plain := tmp_path / "plain.csv", index=False)
    for words in ((), (plain,)):
        program("report", model, *words, "--importance", code=2)


def test_report_of_a_labelled_file_measures_it(program, model, tmp_path):
    data = write_csv(tmp_path / "new.csv", customers(90, seed=5))
    result = json.loads(program("report", model, data, "--out", tmp_path / "new.html", "--json"))
    assert result["rows"] == 90
    text = (tmp_path / "new.html").read_text(encoding="utf-8")
    assert "on 90 held-out rows" in text
    measured = json.loads(program("evaluate", model, data, "--metric", "f1[yes]", "--json"))["metrics"]["f1[yes]"]
    assert f"F1 of yes is {measured['value']:.3f}" in text


def test_report_of_a_file_without_the_target(program, model, tmp_path):
    rows = [{k: v for k, v in row.items() if k != "churn"} for row in customers(40)]
    data = write_csv(tmp_path / "new.csv", rows)
    program("report", model, data, "--out", tmp_path / "new.html")
    assert "new.csv has no column 'churn'" in program.err
    text = (tmp_path / "new.html").read_text(encoding="utf-8")
    assert "new.csv has no column &#39;churn&#39;" in text
    assert "x-slider" not in text.split("<script")[0]
    program("report", model, data, "--target", "chrun", "--out", tmp_path / "x.html", code=2)
    assert not (tmp_path / "x.html").exists()


def test_report_of_a_file_in_which_a_class_is_absent(program, model, tmp_path):
    data = write_csv(tmp_path / "new.csv", [r for r in customers(60) if r["churn"] == "no"])
    program("report", model, data, "--out", tmp_path / "new.html")
    assert "The class yes does not occur" in (tmp_path / "new.html").read_text(encoding="utf-8")


def test_an_older_folder_without_scores_still_loads_and_is_told(program, model, table):
    contents = {file.name: file.read_bytes() for file in model.iterdir() if file.name != "scores.safetensors"}
    description = json.loads(contents["model.json"])
    write_folder(model, {**contents, "model.json": json.dumps(description).encode()})
    assert load(model).held_out_ is None
    program("report", model)
    assert "holds no held-out scores" in program.err
    assert f"metricfit report {model} DATA" in program.err
    assert "holds no held-out scores" in page_in(model)
    program("report", model, table, "--out", model / "report.html")
    assert "Operating-point explorer" in page_in(model)


def test_wrong_calls(program, model, tmp_path):
    program("report", tmp_path / "nothing", code=2)  # as for a missing file
    program("report", model, "--target", "churn", code=2)
    assert "--target: has no effect without DATA" in program.err
    program("report", model, "--out", tmp_path, code=2)
    program("tune", model, code=2)
    program("tune", model, "--threshold", 0.3, "--metric", "f1", code=2)
    assert "--metric: has no effect" in program.err
    for impossible in (1.5, "nan"):
        program("tune", model, "--threshold", impossible, code=2)
        assert "--threshold: expected a probability from 0 to 1" in program.err
    program("predict", tmp_path / "nothing", model / "model.json", code=2)
    program("tune", model, "--rule", "{}", code=2)
    program("tune", model, "--rule", '{"format": "metricfit.decision_rule", "version": 1, "kind": "threshold", '
            '"classes": ["a", "b"], "threshold": 0.3}', code=2)  # fmt: skip
    assert "its classes are ['a', 'b']" in program.err


def test_the_rule_that_the_page_gives_is_taken_by_tune(program, model, table, tmp_path, show):
    page = show(page_in(model))
    page.fill("#x-number-0", "0.31")
    page.dispatch_event("#x-number-0", "change")
    words = shlex.split(page.text_content("#x-rule"))
    assert words[:3] == ["metricfit", "tune", "MODEL"]
    program("tune", model, *words[3:], "--out", tmp_path / "tuned")
    rule = json.loads(page.text_content("#x-json"))
    assert open_model(tmp_path / "tuned").description["decision_rule"] == rule
    again = tmp_path / "again"
    program("tune", model, "--rule", json.dumps(rule), "--out", again)
    first, second = metricfit.load(tmp_path / "tuned"), metricfit.load(again)
    frame = pd.DataFrame(customers())[["age", "plan"]]
    assert (first.predict(frame) == second.predict(frame)).all()
    assert (first.predict(frame) == np.where(first.predict_proba(frame, raw=True)[:, 1] >= 0.31, "yes", "no")).all()
    assert open_model(again).notes["earlier_rules"]
    assert 'value="0.9"' in page_in(again)
    start = show(page_in(again), name="again.html").input_value("#x-number-0")
    assert start == "0.31"


@pytest.mark.parametrize("scores", [binary_scores(weighted=True), class_scores(3), label_scores(3), label_scores(1)])
def test_scores_come_back_from_their_file(scores):
    back = scores_from(scores_to_bytes(scores))
    for name in ("truth", "proba", "decided", "baseline", "baseline_tuned", "weight"):
        one, other = getattr(scores, name), getattr(back, name)
        assert (one is None) == (other is None), name
        if one is not None:
            np.testing.assert_allclose(other, one, atol=1e-7)
            assert other.shape == one.shape
    assert back.source == scores.source


def test_very_many_scores_are_kept_as_a_sample(monkeypatch):
    from metricfit.store import model as module

    monkeypatch.setattr(module, "_MOST_NUMBERS", 3000)
    back = scores_from(scores_to_bytes(class_scores(3, 4000)))
    assert len(back) <= 520
    assert back.total == 4000
    assert back.weight.sum() == pytest.approx(4000)


def test_a_score_file_that_does_not_fit_is_one_error(model, tmp_path):
    from metricfit.store import ModelFolderError

    other = shutil.copytree(model, tmp_path / "other")
    contents = {file.name: file.read_bytes() for file in other.iterdir()}
    contents["scores.safetensors"] = contents["history.json"]
    write_folder(other, contents)
    with pytest.raises(ModelFolderError, match="do not fit together"):
        load(other)
