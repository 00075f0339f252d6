"""The campaign of random cases: a slice of two minutes, and that it finds, keeps and replays a failure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from metricfit import fast
from tests.fuzz import cases, trial

ROOT = Path(__file__).parents[2]


def campaign(*words, first="", folder=ROOT):
    path = os.pathsep.join(part for part in (str(first), str(ROOT), os.environ.get("PYTHONPATH", "")) if part)
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.fuzz", *words], cwd=folder, capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}, timeout=900,
    )  # fmt: skip


@pytest.mark.slow
def test_two_minutes_of_the_campaign_find_nothing():
    done = campaign("--minutes", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| folders |" in done.stdout


@pytest.mark.slow
def test_a_failing_case_is_kept_as_a_seed_that_one_command_replays(tmp_path):
    """A loss whose fast way is wrong must be found: the campaign can fail."""
    (tmp_path / "sitecustomize.py").write_text(
        "import metricfit.fast as fast\n"
        "right = fast.metric_loss\n"
        "def wrong(batch, input):\n"
        "    value = right(batch, input)\n"
        "    return None if value is None else value * 1.001\n"
        "fast.metric_loss = wrong\n"
    )
    done = campaign("--minutes", "0.3", "--seed", "1", "--only", "losses", first=tmp_path, folder=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    case = (tmp_path / "build" / "fuzz-failures.txt").read_text().split()[0]
    again = campaign("--replay", case, first=tmp_path, folder=tmp_path)
    assert again.returncode == 1
    assert "plain" in again.stdout


def test_a_case_that_kills_its_process_is_named_and_those_before_it_are_kept():
    def case(seed):
        if seed == 13:
            os._exit(1) if trial.in_batch else None
            return "dies"
        return "wrong" if seed == 11 else ""

    assert trial.outcomes(case, range(10, 20), 60) == ["", "wrong", "", "dies"]
    assert trial.outcomes(case, range(14, 16), 60) == ["", ""]


def test_many_batches_at_once_hold_a_loss_that_is_wrong(monkeypatch):
    right = fast.metric_loss
    assert cases.members(1) == ""
    monkeypatch.setattr(fast, "metric_loss", lambda *args: None if (v := right(*args)) is None else v * (1 + 1e-6))
    assert "plain" in cases.members(1)


@pytest.mark.parametrize("seed", [18, 42, 141])
def test_gradients_at_ties_are_compared_with_the_slopes_of_both_sides(seed, monkeypatch):
    """Cases with tied logits at which the two ways differ; one that is off by a little must be found."""
    right = fast.metric_loss

    def wrong(batch, input):
        value = right(batch, input)
        return None if value is None else value + 1e-3 * (input - input.detach()).sum()

    assert cases.loss(seed) == ""
    monkeypatch.setattr(fast, "metric_loss", wrong)
    assert "gradients" in cases.loss(seed)


@pytest.mark.parametrize("seed", [38861204753, 38861204761])
def test_what_failed_before_and_no_other_test_holds_passes(seed):
    """MCC in float64 where nearly everything is predicted as one class."""
    assert cases.members(seed) == ""
