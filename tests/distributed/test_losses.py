"""Losses of 2 and 3 processes equal those of one: see ranks.py, which every process runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from metricfit import MetricLoss
from tests.distributed.ranks import CASES

HERE = Path(__file__).parent


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, str(HERE / script), *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def found_by_ranks(world: int, folder: Path) -> list[dict[str, Any]]:
    ranks = [start("ranks.py", rank, world, folder / "store", folder / f"{rank}.json") for rank in range(world)]
    outputs = [rank.communicate(timeout=240)[0] for rank in ranks]
    assert not any(rank.returncode for rank in ranks), "\n".join(outputs)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(world)]


@pytest.mark.parametrize("world", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_losses_gradients_weights_and_memory_equal_one_process(tmp_path: Path, world: int) -> None:
    # One start of the processes for all checks: a start takes longer than the checks.
    found = found_by_ranks(world, tmp_path)
    for case in [*CASES, "FSDP f1", "FSDP recipe, float32", "FSDP multi-label"]:
        tolerance = 1e-6 if "compiled" in case or "float32" in case else 1e-12
        for rank in found:
            assert max(rank[case]) < tolerance, (case, rank[case])
    for rank in found:
        assert rank["sync=False is this process alone"] == 0
        assert "differentiate twice" in rank["second derivatives"]
        # One message: the total weight, 7×7 counts, 7 sums of cross-entropies and of weights, in float64.
        assert rank["bytes"] == [8 * (1 + 7 * 7 + 2 * 7)]
    assert found[0]["evaluation waits for nobody"] == 0
    assert all(abs(rank["a group of two"]) < 1e-6 for rank in found[:2])


@pytest.mark.parametrize("how", ["killed", "error", "stuck"])
def test_a_lost_process_ends_the_others_soon_with_a_clear_message(tmp_path: Path, how: str) -> None:
    first, second = (start("dying.py", rank, tmp_path / "store", how) for rank in range(2))
    started = time.monotonic()
    output = first.communicate(timeout=60)[0]
    assert first.returncode != 0
    assert time.monotonic() - started < 50
    assert "another process has ended, or did not call the loss as often as this one" in output
    second.kill()
    theirs = second.communicate()[0]
    if how == "error":
        assert "input: NaN logits in 1 of 8 samples" in theirs


def test_unknown_option() -> None:
    with pytest.raises(ValueError, match="sync: expected 'auto', False or a torch"):
        MetricLoss("f1", sync=True)
