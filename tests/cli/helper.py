"""Running the program inside the test process, and tables for it."""

import csv
import sys

import numpy as np
import pytest

from metricfit.cli import entry


class Program:
    """Calls the command line; keeps what it wrote."""

    def __init__(self, capsys, monkeypatch):
        self.capsys, self.monkeypatch = capsys, monkeypatch
        self.out = self.err = ""

    def __call__(self, *arguments, code=0):
        self.monkeypatch.setattr(sys, "argv", ["metricfit", *map(str, arguments)])
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            entry.main()
        self.out, self.err = self.capsys.readouterr()
        assert (stopped.value.code or 0) == code, self.err
        assert "Traceback" not in self.err
        return self.out


def customers(rows=150, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 80, rows)
    plan = rng.choice(["basic", "plus", "max"], rows)
    leaves = age + 25 * (plan == "max") + rng.normal(0, 8, rows) > 68
    return [
        {"age": int(a), "plan": p, "churn": "yes" if y else "no", "day": f"2024-{1 + i // 30:02d}-{1 + i % 28:02d}"}
        for i, (a, p, y) in enumerate(zip(age, plan, leaves, strict=True))
    ]


def write_csv(path, rows, **options):
    with path.open("w", newline="", encoding=options.pop("encoding", "utf-8")) as file:
        writer = csv.DictWriter(file, list(rows[0]), **options)
        writer.writeheader()
        writer.writerows(rows)
    return path
