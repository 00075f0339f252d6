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
    for name in ("streamed: losses", "streamed from one piece: losses"):
        np.testing.assert_allclose(two[0][name], one[name], rtol=0, atol=1e-6, err_msg=name)
    for name in (*fitting.CASES, "streamed", "streamed from one piece"):
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


STREAM = """
import json, os, signal, sys
from pathlib import Path
import numpy as np
from metricfit import MetricClassifier, Recipe
from metricfit.training.streaming import fit_shards
folder, deaths = Path(sys.argv[1]), int(sys.argv[2])
rank, restart = int(os.environ.get("RANK", 0)), int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))

def die(event):
    if rank == restart % 2 and restart < deaths and event.record.epoch == 2 + restart:
        os.kill(os.getpid(), signal.SIGKILL)

recipe = Recipe(hidden_sizes=(8,), batch_size=128)
model = MetricClassifier("mcc", models="network", recipe=recipe, random_state=0, baseline=False, verbose=False,
    callbacks=[die], checkpoint_dir=folder / f"c{deaths}")
fit_shards(model, folder / "rows", "y", passes=6, buffer_rows=500, validation_rows=200, sample_rows=300)
if rank == 0:
    np.save(folder / f"{deaths}-{os.environ.get('WORLD_SIZE', 1)}.npy", model.predict_proba(np.load(folder / "X.npy")))
"""


def table_of(folder: Path, rows: int = 900) -> None:
    X, y = fitting.make_classification(rows, 4, n_informative=4, n_redundant=0, flip_y=0.2, random_state=0)
    np.save(folder / "X.npy", X)
    (folder / "rows").mkdir()
    frame = pd.DataFrame(X, columns=list("abcd")).assign(y=y)
    for part in range(3):  # rank 0 has less to read
        frame[part::3].to_parquet(folder / "rows" / f"{part}.parquet", index=False, row_group_size=100)
    (folder / "stream.py").write_text(STREAM)


@pytest.mark.slow
def test_a_job_whose_processes_are_killed_goes_on_to_the_same_model(tmp_path: Path) -> None:
    table_of(tmp_path)
    for deaths in (0, 3):
        done = torchrun(f"--max-restarts={deaths}", tmp_path / "stream.py", tmp_path, deaths)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("exitcode: -9") >= (deaths > 0)
    subprocess.run([sys.executable, str(tmp_path / "stream.py"), str(tmp_path), "0"], check=True)
    whole, killed, alone = (np.load(tmp_path / f"{name}.npy") for name in ("0-2", "3-2", "0-1"))
    np.testing.assert_array_equal(killed, whole)
    np.testing.assert_allclose(whole, alone, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_the_command_line_trains_on_shards_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    table_of(tmp_path)
    options = [
        "train",
        f"{tmp_path}/rows/*.parquet",
        "--target",
        "y",
        "--metric",
        "mcc",
        "--models",
        "network,boosting",
    ]
    done = torchrun("--max-restarts=1", "-m", "metricfit", *options, "--max-epochs", 3, "--out", tmp_path / "two")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Model:") == 1
    assert "900 rows were streamed" in done.stderr
    alone = [sys.executable, "-m", "metricfit", *options, "--max-epochs", "3", "--out", str(tmp_path / "one")]
    subprocess.run(alone, check=True, capture_output=True)
    frame = pd.DataFrame(np.load(tmp_path / "X.npy"), columns=list("abcd"))
    one, two = (store.load(tmp_path / name).predict_proba(frame) for name in ("one", "two"))
    np.testing.assert_allclose(two, one, rtol=0, atol=1e-5)
