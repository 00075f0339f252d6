"""Lightning and the Trainer on two processes end with the model of one process that has the same batches whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.integrations.helper import network

SCRIPT = Path(__file__).parent / "training_ranks.py"
ROOT = Path(__file__).parents[2]


def train(framework: str, out: Path, processes: int) -> dict[str, object]:
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
    }
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, *(launcher if processes > 1 else []), str(SCRIPT), framework, str(out)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(out.read_text())


@pytest.mark.parametrize(("framework", "library"), [("lightning", "lightning"), ("huggingface", "transformers")])
def test_two_processes_train_as_one(framework: str, library: str, tmp_path: Path) -> None:
    pytest.importorskip(library, reason=f"{library} is not installed: make test-slow installs it")
    one, two = (train(framework, tmp_path / f"{n}.json", n) for n in (1, 2))
    start = np.concatenate([value.flatten().numpy() for value in network().state_dict().values()])
    assert np.abs(np.array(one["weights"]) - start).max() > 0.01  # it learnt something
    np.testing.assert_allclose(two["weights"], one["weights"], rtol=0, atol=1e-6)
    assert one["temperature"] == two["temperature"] < 0.2
