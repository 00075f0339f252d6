"""Cut-offs of groups from the command line: trained, predicted with, measured, shown, watched, refused."""

import json

import numpy as np
import pandas as pd
import pytest

import metricfit
from metricfit.cli.train import Train
from metricfit.models import estimators
from tests.cli.helper import customers, write_csv

SPEC = "accuracy subject to recall[yes] >= 0.5 in plan with thresholds by plan"


@pytest.fixture(scope="module")
def grouped(tmp_path_factory):
    folder = tmp_path_factory.mktemp("grouped")
    data, out = write_csv(folder / "train.csv", customers(400)), folder / "model"
    how = {"target": ["churn"], "ignore": ["day"], "models": "forest", "baseline": False, "quiet": True}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimators, "TREES", 5)
        Train(data=str(data), metric=SPEC, out=out, **how).run()
    return out


@pytest.fixture
def new(tmp_path):
    return write_csv(tmp_path / "new.csv", customers(200, seed=1))


def test_predict_and_evaluate_decide_each_row_by_the_cut_off_of_its_plan(program, grouped, new, tmp_path):
    program("predict", grouped, new, "--out", tmp_path / "p.csv", "--keep", "plan")
    found, model, rows = pd.read_csv(tmp_path / "p.csv"), metricfit.load(grouped), pd.read_csv(new)
    X = rows[["age", "plan"]]
    before = model._by_group(model.predict_proba(X, raw=True), X, back=True)[:, 1]
    limits = model.group_thresholds_.thresholds
    plain = ["yes" if p >= limits[plan] else "no" for p, plan in zip(before, rows["plan"], strict=True)]
    assert len(set(limits.values())) > 1
    assert found["prediction"].tolist() == plain
    assert found["probability_yes"].to_numpy() == pytest.approx(model.predict_calibrated_proba(X)[:, 1])
    result = json.loads(program("evaluate", grouped, new, "--json"))
    assert result["metrics"]["accuracy"]["value"] == pytest.approx(np.mean(np.array(plain) == rows["churn"]))


def test_the_report_and_the_monitor_know_them(program, grouped, new, tmp_path):
    program("report", grouped, new, "--out", tmp_path / "r.html")
    assert "cut-offs by plan: basic" in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "predicted share" in program("monitor", grouped, new)


def test_the_shared_cut_off_is_tuned_on_top_and_groups_are_not_tuned_here(program, grouped, new, tmp_path):
    program("tune", grouped, new, "--metric", SPEC, "--out", tmp_path / "t", code=2)
    assert "--metric: thresholds by groups are chosen in training" in program.err
    program("tune", grouped, new, "--metric", "recall[yes] subject to precision[yes] >= 0.3", "--out", tmp_path / "t")
    old, tuned = metricfit.load(grouped), metricfit.load(tmp_path / "t")
    assert tuned.group_thresholds_ == old.group_thresholds_
    X = pd.read_csv(new)[["age", "plan"]]
    assert (tuned.predict(X) == "yes").sum() > (old.predict(X) == "yes").sum()
    program("tune", grouped, "--prevalence", "0.05", "--out", tmp_path / "rare")
    assert (metricfit.load(tmp_path / "rare").predict(X) == "yes").sum() < (old.predict(X) == "yes").sum()


def test_export_and_a_column_that_is_ignored_are_refused_in_a_sentence(program, grouped, table, tmp_path):
    program("export", grouped, "--out", tmp_path / "m.onnx", code=1)
    assert "has a cut-off for each group, for which ONNX has no place" in program.err
    program("train", table, "--target", "churn", "--metric", SPEC, "--ignore", "plan", "--out", tmp_path / "m", code=3)
    assert "thresholds by 'plan' need it among the columns of X" in program.err
