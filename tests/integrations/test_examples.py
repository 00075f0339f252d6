"""Every example of an integration runs and prints what it promises; those for masks and text with few steps."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"
CASES = [
    ("with_lightning.py", ("lightning", "torchmetrics"), r"macro F1 on the validation points: (0\.\d+)", 0.6),
    ("with_huggingface.py", ("transformers", "accelerate"), r"F1 of the rare class: (0\.\d+)", 0.5),
    ("with_accelerate.py", ("accelerate",), r"F1: (0\.\d+)", 0.4),
    ("with_skorch.py", ("skorch",), r"macro F1 on new points: (0\.\d+)", 0.5),
    ("with_torchmetrics.py", ("torchmetrics",), r"gmean: (0\.\d+)", 0.5),
    ("with_tracking.py", ("tensorboard",), r"event files: (\d+)", 0.5),
]


def run(example: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    monkeypatch.setattr(sys, "argv", [example, *arguments])
    with torch.random.fork_rng(devices=[]):  # examples may set the global seed
        runpy.run_path(str(EXAMPLES / example), run_name="__main__")
    return capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:.*number of training batches")
@pytest.mark.filterwarnings("ignore:.*`isinstance.treespec, LeafSpec.` is deprecated", "ignore::DeprecationWarning")
@pytest.mark.parametrize(("example", "libraries", "pattern", "least"), CASES, ids=[case[0] for case in CASES])
def test_the_example_runs_and_learns_something(
    example: str,
    libraries: tuple[str, ...],
    pattern: str,
    least: float,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for library in libraries:
        pytest.importorskip(library, reason=f"{library} is not installed: make test-slow installs it")
    output = run(example, capsys, monkeypatch)
    assert float(re.search(pattern, output).group(1)) > least, output


@pytest.mark.parametrize(("example", "rows"), [("segmentation.py", 4), ("text.py", 5)])
def test_the_comparison_prints_a_row_for_each_loss(
    example: str, rows: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = run(example, capsys, monkeypatch, "--seeds", "2", "--steps", "5").splitlines()
    table = [line for line in lines if re.search(r"\d ± +\d", line)]
    assert len(table) == rows
    assert {"cross-entropy", "Dice"} <= {line.split("  ")[0] for line in table}


def test_every_example_of_an_integration_is_tested() -> None:
    assert {path.name for path in EXAMPLES.glob("with_*.py")} == {case[0] for case in CASES}
