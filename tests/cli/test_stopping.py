"""Two runs into one folder, and Ctrl-C while methods are compared: real processes."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from metricfit.cli.command import Interrupted, stoppable
from metricfit.files import BusyError, locked


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(3000, 6)), columns=list("abcdef"))
    frame["y"] = np.where(frame["a"] + rng.normal(size=3000) > 0.5, "yes", "no")
    path = tmp_path / "table.csv"
    frame.to_csv(path, index=False)
    return path


def started(*words, **options):
    command = [sys.executable, "-m", "metricfit", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def wait_for(condition, process, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "it did not come so far"
        time.sleep(0.05)


def test_a_second_train_into_the_same_folder_names_the_process_that_writes(table, tmp_path):
    words = ["train", table, "--target", "y", "--metric", "f1", "--out", tmp_path / "model", "--models", "network"]
    first = started(*words)
    try:
        wait_for((tmp_path / ".model.lock").exists, first)
        wait_for(lambda: (tmp_path / ".model.lock").read_text(), first)
        second = started(*words)
        _, text = second.communicate(timeout=120)
        assert second.returncode == 2
        assert f"--out: process {first.pid} is writing to {tmp_path / 'model'}; wait until it is done" in text
    finally:
        first.kill()
        first.communicate()
    # A lock goes with its process: what a kill leaves behind is in nobody's way.
    with locked(tmp_path / "model"):
        pass
    assert not (tmp_path / ".model.lock").exists()


def test_a_lock_is_held_once_and_again_after_it_was_let_go(tmp_path):
    with locked(tmp_path / "model"), pytest.raises(BusyError, match=f"process {os.getpid()} is writing to"):
        locked(tmp_path / "model").__enter__()
    with locked(tmp_path / "model"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_locks_is_no_reason_not_to_train(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with locked(tmp_path / "model"):
        assert (tmp_path / ".model.lock").read_text() == str(os.getpid())
    assert list(tmp_path.iterdir()) == []


def test_an_error_that_a_library_makes_of_ctrl_c_is_ctrl_c():
    """As NumPy does where it is pressed while the boosting hands over a buffer."""

    def library():
        try:
            signal.raise_signal(signal.SIGINT)
        except BaseException as error:
            raise ValueError("not a valid PEP 3118 buffer format string") from error

    with pytest.raises(Interrupted), stoppable():
        library()
    with pytest.raises(ValueError, match="own"), stoppable():
        raise ValueError("own")


@pytest.mark.parametrize("jobs", [1, 2])
def test_compare_stops_within_five_seconds_of_ctrl_c_and_keeps_finished_rows(table, tmp_path, jobs):
    out = tmp_path / "results.jsonl"
    words = ["compare", table, "--target", "y", "--metric", "f1", "--splits", 50, "--out", out, "--jobs", jobs,
             "--methods", "boosting,network", "--max-epochs", 20]  # fmt: skip
    process = started(*words, start_new_session=True)
    try:
        wait_for(lambda: out.exists() and len(out.read_text().splitlines()) >= 2, process, 300)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        began = time.monotonic()
        _, text = process.communicate(timeout=60)
        assert time.monotonic() - began < 5
        assert process.returncode == 1
        assert "Stopped; the results so far are in" in text
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        assert len(rows) >= 2
        assert not any(row["error"] for row in rows)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
