"""MetricClassifier and ``metricfit train`` started by torchrun: the model of one process with the same batches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from metricfit import store
from tests.distributed import fitting

HERE = Path(__file__).parent


def torchrun(*arguments: object, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return subprocess.run(
        [*command, *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=timeout
    )


def test_classifiers_equal_those_of_one_process(tmp_path: Path) -> None:
    done = torchrun(HERE / "fitting.py", tmp_path / "two")
    assert done.returncode == 0, done.stderr
    fitting.main(tmp_path / "one", "")
    (one,) = (json.loads(path.read_text()) for path in tmp_path.glob("one-*.json"))
    two = [json.loads((tmp_path / f"two-{rank}.json").read_text()) for rank in range(2)]
    for name in (*fitting.CASES, "streamed"):
        assert two[0][name] == two[1][name], name
        np.testing.assert_allclose(two[0][name], one[name], rtol=0, atol=1e-5, err_msg=name)
    assert two[0]["seed"] == two[1]["seed"]  # drawn by the first process
    assert sorted(p.name for p in (tmp_path / "checkpoints-2").iterdir()) == ["network.pt"]


@pytest.mark.slow
def test_command_line_writes_and_prints_once(tmp_path: Path) -> None:
    X, y = fitting.data(2)
    pd.DataFrame(X).add_prefix("x").assign(y=np.where(y, "yes", "no")).to_csv(tmp_path / "rows.csv", index=False)
    options = [
        "train",
        tmp_path / "rows.csv",
        "--target",
        "y",
        "--metric",
        "f1[yes]",
        "--max-epochs",
        "3",
        "--seed",
        "1",
    ]
    done = torchrun("-m", "metricfit", *options, "--out", tmp_path / "two")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Model:") == 1
    assert done.stderr.count("Training on") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.csv", "two"]
    alone = [sys.executable, "-m", "metricfit", *map(str, options), "--out", str(tmp_path / "one")]
    subprocess.run(alone, check=True, capture_output=True)
    frame = pd.read_csv(tmp_path / "rows.csv").drop(columns="y")
    one, two = (store.load(tmp_path / name).predict_proba(frame) for name in ("one", "two"))
    np.testing.assert_allclose(two, one, rtol=0, atol=1e-5)


def test_a_dying_process_ends_the_job_soon(tmp_path: Path) -> None:
    started = time.monotonic()
    done = torchrun(HERE / "fitting.py", tmp_path / "two", "dying", timeout=120)
    assert done.returncode != 0
    assert time.monotonic() - started < 90
    assert "Signal 9 (SIGKILL)" in done.stderr
