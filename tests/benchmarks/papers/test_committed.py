"""The committed rows give the committed tables."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from benchmarks.papers.report import write_all

ROOT = Path(__file__).parents[3]
RESULTS = Path("benchmarks/papers/results")


@pytest.mark.slow
def test_the_committed_rows_give_the_committed_tables(tmp_path: Path) -> None:
    # A run in progress appends to the working copy, so what is committed is compared.
    command = ["git", "archive", "HEAD", str(RESULTS)]
    archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip("not a git checkout")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(tmp_path, filter="data")
    committed = tmp_path / RESULTS
    written = list(write_all(committed, tmp_path / "again", None))
    assert len(written) > 20
    for path in written:
        assert path.read_text() == (committed / path.name).read_text(), path.name
