"""The run behind ``metricfit predict``: batch by batch, from file to file."""

from __future__ import annotations

import errno
import gzip
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from metricfit.cli.errors import UsageError
from metricfit.cli.models import load_model
from metricfit.cli.options import columns_of
from metricfit.cli.output import Output
from metricfit.data import open_table

__all__ = ["run"]


def run(
    model: Path,
    data: str,
    *,
    out: Path | None,
    keep: list[str],
    raw: bool,
    overwrite: bool,
    separator: str | None,
    encoding: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Predict with the options of the command."""
    output = Output(as_json, quiet)
    if out is not None and out.exists() and not overwrite:
        raise UsageError(f"--out: {out} exists; --overwrite replaces it.")
    loaded = load_model(model)
    file = open_table(data, separator=separator, encoding=encoding)
    kept = columns_of(keep, file.columns)
    file.check_columns(kept, "keep")
    classifier = loaded.classifier
    several = classifier.task_ == "multilabel"
    labels = classifier.classes_.tolist()
    decided = [f"prediction_{label}" for label in labels] if several else ["prediction"]
    probable = [f"probability_{label}" for label in labels]
    names = [*decided, *probable]
    if clash := [name for name in kept if name in names]:
        raise UsageError(f"--keep: {clash[0]!r} is the name of a result; rename the column.")
    count = 0
    with _writer(out, as_json) as write:
        for X, rows in file.frames(loaded.formats, kept, loaded.gaps):
            proba = classifier.predict_raw_proba(X)
            folded = proba if classifier.decision_rule_.kind == "argmax" else classifier.decision_rule_.fold(proba)
            found = {name: rows.column(name).to_pandas() for name in kept}
            if several:
                found |= dict(zip(decided, (folded > 0.5).astype(np.int64).T, strict=True))
            else:
                found["prediction"] = classifier.classes_[folded.argmax(axis=1)]
            found |= dict(zip(probable, (proba if raw else folded).T, strict=True))
            write(pd.DataFrame(found))
            count += len(X)
        if not count:
            write(pd.DataFrame({name: [] for name in [*kept, *names]}))
    if out is not None:
        output.note(f"{count:,} rows predicted: {out}")


@contextmanager
def _writer(out: Path | None, as_json: bool) -> Iterator[Any]:
    """A function that takes frames; a file appears only when all are written."""
    if out is None:
        sys.stdout.flush()
        yield _TextWriter(sys.stdout, as_json)
        sys.stdout.flush()
        return
    out = out.absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{out.name}.", suffix=".tmp", dir=out.parent)
    os.close(handle)
    try:
        if out.suffix == ".parquet":
            writer: Any = _ParquetWriter(Path(name))
            yield writer
            writer.close()
        else:
            opened: Any = gzip.open if out.suffix == ".gz" else open
            lines = as_json or out.suffix in (".jsonl", ".ndjson")
            with opened(name, "wt", encoding="utf-8", newline="") as stream:
                yield _TextWriter(stream, lines)
        os.chmod(name, 0o644)
        os.replace(name, out)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise OSError(error.errno, error.strerror, str(out)) from error
        raise


class _TextWriter:
    def __init__(self, stream: Any, lines: bool) -> None:
        self.stream, self.lines, self.first = stream, lines, True

    def __call__(self, frame: pd.DataFrame) -> None:
        if self.lines:
            if len(frame):
                frame.to_json(self.stream, orient="records", lines=True, force_ascii=False, double_precision=15)
        else:
            frame.to_csv(self.stream, index=False, header=self.first, lineterminator="\n")
        self.first = False


class _ParquetWriter:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.writer: Any = None

    def __call__(self, frame: pd.DataFrame) -> None:
        for name in frame.columns:
            if frame[name].dtype == object:
                frame[name] = frame[name].astype(str)
        table = pa.Table.from_pandas(frame, preserve_index=False)
        if self.writer is None:
            self.writer = pq.ParquetWriter(self.path, table.schema)
        self.writer.write_table(table.cast(self.writer.schema))

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
