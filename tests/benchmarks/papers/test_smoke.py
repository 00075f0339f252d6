"""Every table and figure end to end at toy size, as ``make bench-papers-smoke`` runs them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.papers.__main__ import main
from benchmarks.papers.config import names
from benchmarks.papers.results import done

ROOT = Path(__file__).parents[3]
DATA = Path(os.environ.get("METRICFIT_DATA", ROOT.parent / "shared" / "data"))


@pytest.mark.slow
@pytest.mark.skipif(not DATA.exists(), reason="the data sets are neither in METRICFIT_DATA nor in ../shared/data")
def test_every_config_runs_end_to_end_in_less_than_five_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("METRICFIT_DATA", str(DATA))
    results, images = str(tmp_path / "results"), str(tmp_path / "images")
    before = time.process_time()
    assert main(["run", "--size", "toy", "--results", results]) == 0, capsys.readouterr().err
    assert main(["table", "--all", "--results", results, "--images", images]) == 0
    assert time.process_time() - before < 300
    for name in names():
        text = (tmp_path / "results" / f"{name}.md").read_text()
        assert "not run" not in text.replace("Not run: ", "").lower(), name
        assert (tmp_path / "images" / f"papers-{name}.png").exists(), name


@pytest.mark.slow
def test_a_run_that_is_really_killed_goes_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.papers", "run", "btg-table5", "--size", "toy"]
    command += ["--datasets", "synthetic_5", "--results", str(tmp_path)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("[1/40")
    process.kill()
    process.communicate()
    there = len(done(tmp_path))
    assert 1 <= there < 40
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert len(done(tmp_path)) == 40
    assert f"[1/{40 - there}," in again.stderr
