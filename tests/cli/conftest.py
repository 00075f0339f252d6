"""Fixtures of the command line's tests: the program, and one trained model for all of them."""

import shutil

import pytest

from tests.cli.helper import Program, customers, write_csv


@pytest.fixture
def program(capsys, monkeypatch):
    return Program(capsys, monkeypatch)


@pytest.fixture
def table(tmp_path):
    return write_csv(tmp_path / "customers.csv", customers())


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    from metricfit.cli.fitting import run

    folder = tmp_path_factory.mktemp("trained")
    data = write_csv(folder / "customers.csv", customers())
    names = [
        "validation",
        "group",
        "time",
        "folds",
        "weight",
        "positive",
        "max_time",
        "max_rows",
        "separator",
        "encoding",
    ]
    options = dict.fromkeys(names) | {"ignore": ["day"], "use": [], "categorical": [], "missing": []}
    options |= {"data": str(data), "target": ["churn"], "metric": "f1", "out": str(folder / "model"), "baseline": True}
    options |= {"task": "auto", "recipe": "default", "max_epochs": 5, "seed": 0}
    run(options, resume=False, overwrite=False, as_json=False, quiet=True)
    return folder / "model"


@pytest.fixture
def model(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "model")
