"""Rows of results: one file a data set, appended to, never half a row."""

from __future__ import annotations

import csv
import fcntl
import hashlib
import io
import os
import platform
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pandas as pd

from benchmarks.running import cut_half_row

__all__ = ["RESULTS", "Key", "Row", "append", "existing", "machine", "provenance", "read", "remove"]

RESULTS = Path(__file__).parent / "results"

Key = tuple[str, str, int, str, str]


@dataclass(frozen=True)
class Row:
    """One score.

    Attributes:
        dataset: The data set.
        configuration: ``"full"``, or ``"train<=N"`` where the training rows were capped.
        split: Number of the split, which is also the seed of the models.
        metric: The metric.
        method: The method.
        value: Its score on the test rows.
        seconds: Wall time of the fit with its folds, predictions and rule.
        cpu_seconds: Processor time of the same: what other work on the machine does not change.
        train_rows: Rows trained on.
        test_rows: Rows tested on.
        classes: Number of classes.
        seed: Seed of the models.
        version: Version of metricfit.
        commit: Its commit; ``+`` and a fingerprint of the sources if they differed from it.
        libraries: Versions of the libraries that matter.
        machine: Processor, cores, threads used.
        date: When, UTC.
    """

    dataset: str
    configuration: str
    split: int
    metric: str
    method: str
    value: float
    seconds: float
    cpu_seconds: float
    train_rows: int
    test_rows: int
    classes: int
    seed: int
    version: str
    commit: str
    libraries: str
    machine: str
    date: str

    @property
    def key(self) -> Key:
        """What a row is the answer to; there is one row a key."""
        return self.dataset, self.configuration, self.split, self.metric, self.method


COLUMNS = [field.name for field in fields(Row)]


def _file(dataset: str, folder: Path) -> Path:
    return folder / f"{dataset.replace('/', '--')}.csv"


def append(rows: Iterable[Row], folder: Path) -> None:
    """Add rows, each group in one write, so that a run killed at any moment leaves whole rows and can go on."""
    by_dataset: dict[str, list[Row]] = {}
    for row in rows:
        by_dataset.setdefault(row.dataset, []).append(row)
    folder.mkdir(parents=True, exist_ok=True)
    for dataset, group in by_dataset.items():
        with _file(dataset, folder).open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            cut_half_row(file)
            text = io.StringIO()
            writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
            if file.tell() == 0:
                writer.writeheader()
            writer.writerows(asdict(row) for row in group)
            file.write(text.getvalue().encode())
            file.flush()
            os.fsync(file.fileno())


def read(folder: Path) -> pd.DataFrame:
    """All rows of all files."""
    frames = []
    for path in sorted(folder.glob("*.csv")):
        content = path.read_text()
        frames.append(pd.read_csv(io.StringIO(content[: content.rfind("\n") + 1])))
    frames = [frame for frame in frames if len(frame)]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=COLUMNS)


def existing(folder: Path) -> set[Key]:
    """Keys of the rows that are there."""
    frame = read(folder)
    return set(zip(*(frame[c] for c in ("dataset", "configuration", "split", "metric", "method")), strict=True))


def remove(datasets: Iterable[str], methods: Iterable[str], configuration: str | None, folder: Path) -> int:
    """Take rows out, to compute them again; returns how many."""
    gone = 0
    for dataset in datasets:
        path = _file(dataset, folder)
        if not path.exists():
            continue
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
        out = frame["method"].isin(list(methods))
        if configuration is not None:
            out &= frame["configuration"] == configuration
        if out.any():
            fresh = path.with_suffix(".tmp")
            frame[~out].to_csv(fresh, index=False, lineterminator="\n")
            fresh.replace(path)
            gone += int(out.sum())
    return gone


@cache
def machine(threads: int) -> str:
    """Processor, cores and threads, in a few words."""
    name = platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{name}; {os.cpu_count()} cores; {threads} thread{'s' if threads > 1 else ''}"


@cache
def provenance() -> dict[str, str]:
    """Version, commit and libraries of this process."""
    import numpy as np
    import sklearn
    import torch

    import metricfit

    libraries = {"scikit-learn": sklearn.__version__, "torch": torch.__version__, "numpy": np.__version__}
    try:
        import xgboost

        libraries["xgboost"] = xgboost.__version__
    except ImportError:
        pass
    return {
        "version": metricfit.__version__,
        "commit": _commit(),
        "libraries": " ".join(f"{name}={version}" for name, version in libraries.items()),
    }


def _commit() -> str:
    def git(*arguments: str) -> str:
        root = Path(__file__).parents[2]
        return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout.strip()

    try:
        commit, changed = git("rev-parse", "--short=10", "HEAD"), git("status", "--porcelain", "--", "src")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{commit}+{_fingerprint()}" if changed else commit


def _fingerprint() -> str:
    """Eight digits that change with any source of the package."""
    digest = hashlib.sha256()
    for path in sorted((Path(__file__).parents[2] / "src").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


def now() -> str:
    """The time, UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
