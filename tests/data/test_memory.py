"""Memory: what training needs is said before it starts, and is what it then takes."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from metricfit.data import NotEnoughMemoryError, labelled, open_table
from metricfit.data.labelled import check_memory, free_memory

COLUMNS = [f"x{k}" for k in range(16)] + ["city", "plan", "count", "day"]


def table(rows):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(rows, 16)).round(5), columns=COLUMNS[:16])
    frame["city"] = rng.choice(["Rome", "Oslo", "Paris", "Bern"], rows)
    frame["plan"] = rng.choice([f"plan {i}" for i in range(30)], rows)
    frame["count"] = rng.integers(0, 50, rows)
    frame["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1000, rows), "D")
    frame["y"] = np.where(frame["x0"] + rng.normal(size=rows) > 1, "yes", "no")
    return frame


@pytest.fixture
def file(tmp_path):
    table(2000).to_csv(tmp_path / "t.csv", index=False)
    return open_table(str(tmp_path / "t.csv"))


def test_little_data_is_not_worth_a_word(file):
    assert check_memory(file, COLUMNS, 10_000) == ""


def test_what_five_million_rows_need_is_said(file, monkeypatch):
    monkeypatch.setattr(labelled, "free_memory", lambda: 64e9)
    told = check_memory(file, COLUMNS, 5_000_000)
    assert told.startswith("about 5,000,000 rows × 20 columns; training needs about ")
    assert 7.0 < float(re.search(r"about (\S+) GB", told)[1]) < 9.0, "1.39 GB for 250,000 rows, 2.37 GB for a million"


def test_what_does_not_fit_is_an_error_with_a_way_out(file, monkeypatch):
    monkeypatch.setattr(labelled, "free_memory", lambda: 2e9)
    with pytest.raises(
        NotEnoughMemoryError, match=r"5,000,000 rows × 20 columns need about \d.*2\.0 GB are free.*max_rows="
    ) as e:
        check_memory(file, COLUMNS, 5_000_000)
    rows = int(re.search(r"max_rows=(\d+)", str(e.value))[1])
    assert rows >= 500_000
    check_memory(file, COLUMNS, rows)


def test_a_wide_table_is_judged_by_some_of_its_columns(tmp_path, monkeypatch):
    monkeypatch.setattr(labelled, "free_memory", lambda: 64e9)
    wide = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 2000)).round(3))
    wide.columns = [f"c{i}" for i in range(2000)]
    wide.to_csv(tmp_path / "w.csv", index=False)
    file, fit, looked = open_table(tmp_path / "w.csv"), labelled.TablePreprocessor.fit, []
    monkeypatch.setattr(labelled.TablePreprocessor, "fit", lambda self, X: looked.append(X.shape[1]) or fit(self, X))

    def needed(columns):
        return float(re.search(r"about (\S+) GB", check_memory(file, columns, 400_000))[1])

    few, all_ = needed(file.columns[:200]), needed(file.columns)
    assert looked == [200, 200]
    size = 1.1 * file.size / file.rows * 400_000 / 1e9  # the rows of the file, whatever columns are used
    program = labelled._PROGRAM / 1e9
    assert all_ - program - size == pytest.approx(10 * (few - program - size), rel=0.05)


def test_categories_cost_more_than_numbers(file, monkeypatch):
    monkeypatch.setattr(labelled, "free_memory", lambda: 64e9)

    def needed(categorical):
        return float(re.search(r"about (\S+) GB", check_memory(file, COLUMNS, 5_000_000, categorical=categorical))[1])

    assert needed(["count"]) > needed([]) * 1.02


@pytest.mark.parametrize(
    ("limit", "stat", "name"),
    [("memory.max", "memory.stat", "anon"), ("memory/memory.limit_in_bytes", "memory/memory.stat", "total_rss")],
)
def test_the_limit_of_a_container_counts(tmp_path, monkeypatch, limit, stat, name):
    monkeypatch.setattr(labelled, "_CONTROL_GROUP", tmp_path)
    sizes = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    assert free_memory() == pytest.approx(int(sizes["MemAvailable"].split()[0]) * 1024, rel=0.2)
    (tmp_path / limit).parent.mkdir(exist_ok=True)
    (tmp_path / limit).write_text("2000000\n")
    (tmp_path / stat).write_text(f"cache 900000\n{name} 500000\n")
    assert free_memory() == 1_500_000
    (tmp_path / limit).write_text("max\n")
    assert free_memory() > 2_000_000


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_many_rows_take_what_was_said(tmp_path, suffix):
    """The estimate is an upper one, and not by much."""
    path = tmp_path / f"t.{suffix}"
    frame = table(200_000)
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    # The kernel's record of this program alone: getrusage's also holds what the tests took before they started it.
    script = (
        "import json, re; from pathlib import Path; from metricfit.cli.entry import main\n"
        "try:\n    main()\nexcept SystemExit as stopped:\n    code = stopped.code\n"
        "print(json.dumps([code, int(re.search(r'VmHWM:\\s+(\\d+) kB', Path('/proc/self/status').read_text())[1])]))"
    )
    options = ["--target", "y", "--metric", "f1", "--max-epochs", "1", "--no-baseline", "--out", str(tmp_path / "m")]
    command = [sys.executable, "-c", script, "train", str(path), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = float(re.search(r"needs about (\S+) GB", done.stderr)[1]) * 1e9
    code, peak = json.loads(done.stdout.splitlines()[-1])
    assert code in (0, None)
    print(f"{suffix}: said {said / 1e9:.2f} GB, took {peak * 1024 / 1e9:.2f} GB")
    assert 0.6 < peak * 1024 / said < 1.1
