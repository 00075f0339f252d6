"""Fixtures of the command line's tests: the program, and one trained model for all of them."""

import shutil

import pytest

from metricfit.models import estimators
from tests.cli.helper import Program, customers, write_csv


@pytest.fixture(autouse=True)
def small_forests(monkeypatch):
    """A forest of 100 trees per fold would take most of the time of these tests."""
    monkeypatch.setattr(estimators, "TREES", 5)


@pytest.fixture
def program(capsys, monkeypatch):
    return Program(capsys, monkeypatch)


@pytest.fixture
def table(tmp_path):
    return write_csv(tmp_path / "customers.csv", customers())


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    from metricfit.cli.train import Train

    folder = tmp_path_factory.mktemp("trained")
    data = write_csv(folder / "customers.csv", customers())
    command = Train(
        data=str(data), metric="f1", out=folder / "model", target=["churn"], ignore=["day"], max_epochs=5, quiet=True
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimators, "TREES", 5)
        command.run()
    return folder / "model"


@pytest.fixture
def model(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "model")
