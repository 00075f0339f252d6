"""``metricfit predict``."""

from __future__ import annotations

import gzip
import io
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metricfit.cli import options as opt
from metricfit.cli.command import UsageError, option, switch


@dataclass(kw_only=True)
class Predict(opt.Reading):
    """Predict labels and probabilities for the rows of a table.

    The column prediction has the decision, by the model's rule. The columns probability_… are calibrated on the rows
    that were held out in training: of the rows with 0.2, about a fifth are positive, and a rule may call them so.

    The columns are found by name, in any order; further columns are ignored. The file is read, and the result
    written, some ten thousand rows at a time: it may be larger than memory. With --json each row is a JSON object.

    Example: metricfit predict model new.csv --keep customer_id --out predictions.csv
    """

    model: Path = opt.a_model()
    data: str = opt.a_table()
    out: Path | None = opt.an_out("Write to this .csv, .csv.gz, .parquet or .jsonl.", "FILE", shown="standard output")
    keep: list[str] | None = option("Columns to pass through: --keep id name, or --keep id,name.", "COL…")
    raw: bool = switch("--raw", "The models' mean probabilities as they are, not calibrated.")
    escape: bool = switch("--escape", "Put ' before CSV text that a spreadsheet takes for a formula.")
    overwrite: bool = opt.to_overwrite()

    def run(self) -> None:
        if self.out is not None and self.out.exists() and not self.overwrite:
            raise UsageError(f"--out: {self.out} exists; --overwrite replaces it.")
        from metricfit.store import open_model

        loaded, file = open_model(self.model), self.open(self.data)
        count = 0
        with _writer(self.out, lines=self.json, escape=self.escape) as write:
            for frame in loaded.predictions(file, keep=opt.columns_of(self.keep, file.columns), raw=self.raw):
                count += len(frame)
                write(frame)
        if self.out is not None:
            self.note(f"{count:,} rows predicted: {self.out}")


@contextmanager
def _writer(out: Path | None, *, lines: bool, escape: bool) -> Iterator[Callable[[Any], None]]:
    """A function that writes frames one after another to one file, or to standard output."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from metricfit.files import written_whole

    suffix = "" if out is None else out.suffix
    if suffix not in ("", ".csv", ".gz", ".txt", ".parquet", ".jsonl", ".ndjson"):
        raise UsageError(f"--out: expected a .csv, .csv.gz, .parquet or .jsonl file, got {suffix!r} in {out}.")
    header, parquet = iter([True]), list[Any]()
    with ExitStack() as opened:
        path = None if out is None else opened.enter_context(written_whole(out))
        stream: Any = sys.stdout
        if path is not None and suffix != ".parquet":
            binary: Any = opened.enter_context(path.open("wb"))
            if suffix == ".gz":  # its head tells neither the time nor the name of the file that is not yet in place
                binary = opened.enter_context(gzip.GzipFile("", "wb", fileobj=binary, mtime=0))
            stream = opened.enter_context(io.TextIOWrapper(binary, encoding="utf-8", newline=""))

        def write(frame: Any) -> None:
            if suffix == ".parquet":
                texts = {name: str for name in frame.columns if frame[name].dtype == object}
                table = pa.Table.from_pandas(frame.astype(texts), preserve_index=False)
                if not parquet:  # the schema is that of the first frame
                    parquet.append(opened.enter_context(pq.ParquetWriter(path, table.schema)))
                parquet[0].write_table(table.cast(parquet[0].schema))
            elif not lines and suffix not in (".jsonl", ".ndjson"):
                frame = frame.map(_escaped).rename(columns=_escaped) if escape else frame
                frame.to_csv(stream, index=False, header=next(header, False), lineterminator="\n")
            elif len(frame):
                frame.to_json(stream, orient="records", lines=True, force_ascii=False, double_precision=15)

        yield write
        stream.flush()


def _escaped(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and re.match(r"[=@\t\r]|[+-](?![\d.,]+$)", cell) else cell
