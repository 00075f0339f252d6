"""Rows of results: one file per table, appended to, never half a row."""

from __future__ import annotations

import csv
import fcntl
import hashlib
import io
import os
import platform
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path

import pandas as pd

from benchmarks.running import cut_half_row

__all__ = ["RESULTS", "Row", "append", "commit", "existing", "libraries", "machine", "now", "read", "remove"]

RESULTS = Path(__file__).parent / "results"

Key = tuple[str, int, str]


@dataclass(frozen=True)
class Row:
    """One score.

    Attributes:
        table: The table.
        split: Number of the split, which is also the seed of the models.
        metric: The metric.
        method: The method.
        value: Its score on the test rows.
        held_out: Its score on the training rows, each fold decided by a rule chosen on the others; empty if unknown.
        arg_max: The score on the test rows if arg max decided.
        cpu_seconds: Processor time of all its fits, predictions and its rule.
        train_rows: Rows trained on.
        test_rows: Rows tested on.
        classes: Number of classes.
        commit: The commits of metricfit that made fits and rule; ``+`` and a fingerprint if the sources differed.
        libraries: Versions of the libraries that matter.
        machine: Processor, cores, threads used.
        date: When, UTC.
    """

    table: str
    split: int
    metric: str
    method: str
    value: float
    held_out: float
    arg_max: float
    cpu_seconds: float
    train_rows: int
    test_rows: int
    classes: int
    commit: str
    libraries: str
    machine: str
    date: str


COLUMNS = [field.name for field in fields(Row)]


def append(rows: Iterable[Row], folder: Path) -> None:
    """Add rows, each group in one write, so that a run killed at any moment leaves whole rows and can go on."""
    by_table: dict[str, list[Row]] = {}
    for row in rows:
        by_table.setdefault(row.table, []).append(row)
    folder.mkdir(parents=True, exist_ok=True)
    for table, group in by_table.items():
        with (folder / f"{table}.csv").open("a+b") as file:
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
    """Table, split and method of what is there; the metrics of one are written together."""
    frame = read(folder)
    return set(zip(*(frame[c] for c in ("table", "split", "method")), strict=True))


def remove(tables: Iterable[str], methods: Iterable[str], folder: Path) -> int:
    """Take rows out, to compute them again; returns how many."""
    gone = 0
    for table in tables:
        path = folder / f"{table}.csv"
        if not path.exists():
            continue
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
        out = frame["method"].isin(list(methods))
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
def libraries() -> str:
    """Versions of what is fitted."""
    packages = ("scikit-learn", "torch", "numpy", "catboost", "lightgbm", "xgboost-cpu", "pytabkit")
    found = []
    for package in packages:
        with suppress(metadata.PackageNotFoundError):
            found.append(f"{package}={metadata.version(package)}")
    return " ".join(found)


@cache
def commit() -> str:
    """The commit of the package that is imported, which need not be the one these files are in."""
    import metricfit

    source = Path(metricfit.__file__).parents[1]

    def git(*arguments: str) -> str:
        found = subprocess.run(["git", *arguments], cwd=source, capture_output=True, text=True, check=True)
        return found.stdout.strip()

    try:
        name, changed = git("rev-parse", "--short=10", "HEAD"), git("status", "--porcelain", "--", ".")
    except (OSError, subprocess.CalledProcessError):
        return f"unknown+{_fingerprint(source)}"
    return f"{name}+{_fingerprint(source)}" if changed else name


def _fingerprint(source: Path) -> str:
    """Eight digits that change with any source of the package."""
    digest = hashlib.sha256()
    for path in sorted(source.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


def now() -> str:
    """The time, UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
