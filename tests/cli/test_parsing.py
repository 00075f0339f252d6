"""Several values after one option, and help pages without noise."""

import re

import pytest
from typer.main import get_command

from metricfit.cli.entry import app, spread

PARAMETERS = {name: command.params for name, command in get_command(app).commands.items()}


@pytest.mark.parametrize(
    ("command", "given", "meant"),
    [
        ("train", "d.csv --ignore a b --seed 1", "d.csv --ignore a --ignore b --seed 1"),
        ("train", "--ignore a d.csv --seed 1", "--ignore a d.csv --seed 1"),
        ("train", "--ignore a d.csv b", "--ignore a d.csv b"),
        ("train", "d.csv --ignore=a b --quiet c", "d.csv --ignore=a --ignore b --quiet c"),
        ("train", "d.csv --seed 1 2", "d.csv --seed 1 2"),
        ("train", "d.csv --ignore a -- b", "d.csv --ignore a -- b"),
        ("predict", "--keep id model new.csv", "--keep id model new.csv"),
        ("predict", "model - --keep id name", "model - --keep id --keep name"),
        ("predict", "model new.csv --keep", "model new.csv --keep"),
        ("evaluate", "m d --metric mcc f1 --target a b", "m d --metric mcc --metric f1 --target a --target b"),
    ],
)
def test_only_what_would_be_an_argument_too_many_is_a_further_value(command, given, meant):
    assert spread(given.split(), PARAMETERS[command]) == meant.split()


def test_a_word_too_many_is_still_an_error(program, table):
    program("metrics", "mcc", "f1", code=2)
    program("train", table, "more.csv", "--target", "churn", "--metric", "f1", "--out", "m", code=2)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("command", [None, *PARAMETERS])
def test_help_pages_name_values_and_not_types(program, monkeypatch, command, width):
    monkeypatch.setenv("COLUMNS", str(width))
    text = program(*([command] if command else []), "--help")
    assert max(map(len, text.splitlines())) <= width
    options = [line for line in text.splitlines() if re.match(r"│ +\*? *--", line)]
    assert options
    assert not [line for line in options if re.search(r"<\w+", line)]
    usage = next(line for line in text.splitlines() if "Usage:" in line)
    assert "{" not in usage
    assert "[[" not in usage
