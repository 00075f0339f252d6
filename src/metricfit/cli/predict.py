"""``metricfit predict``."""

from __future__ import annotations

import hashlib
import importlib
import io
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import metricfit
from metricfit.cli import command as cli

_MANY = "Many files"
_ENGINES = {"local": "joblib", "ray": "ray", "spark": "pyspark"}
_NOTE = "metricfit.toml"  # in a folder of predictions: of which model, and with which of these options
_SHAPING = ("keep", "raw", "escape")


class Predict(cli.Reading):
    """Predict labels and probabilities for the rows of a table, or of a folder of tables.

    The column prediction has the decision, by the model's rule. The columns probability_… are calibrated on the rows
    that were held out in training: of the rows with 0.2, about a fifth are positive, and a rule may call them so.

    The columns are found by name, in any order; further columns are ignored. The file is read, and the result
    written, some ten thousand rows at a time: it may be larger than memory. With --json each row is a JSON object.

    For a folder or a pattern, --out is a folder that gets one file per file, of the same kind. The same command again
    goes on where it stopped. --engine says who shares out the files; workers need the same paths.

    Example: metricfit predict model new.csv --keep customer_id --out predictions.csv

    Example: metricfit predict model 'in/*.parquet' --out out --engine ray --workers 8
    """

    model: Path = cli.a_model()
    data: str = cli.argument(
        "DATA", "A CSV, JSON Lines, Parquet or Excel file, a folder, a pattern or an address; - for standard input."
    )
    out: Path | None = cli.an_out(
        "Write to this .csv, .csv.gz, .parquet or .jsonl, or for several files to this folder.", "FILE",
        shown="standard output",
    )  # fmt: skip
    keep: list[str] | None = cli.option("Columns to pass through: --keep id name, or --keep id,name.", "COL…")
    raw: bool = cli.switch("--raw", "The models' mean probabilities as they are, not calibrated.")
    escape: bool = cli.switch("--escape", "Put ' before CSV text that a spreadsheet takes for a formula.")
    overwrite: bool = cli.to_overwrite()
    engine: str | None = cli.option("For several files: local, ray or spark.", "NAME", _MANY, shown="local")
    workers: int | None = cli.option("Files at a time.", "N", _MANY, shown="1, or what the engine has", min=1)

    def run(self) -> None:
        several = self.data != "-" and not Path(self.data).is_file()
        if several and (files := metricfit.data.shards.files_of(self.data)) != [self.data]:
            return self._many(files)
        self.refuse("for one file", "engine", "workers")
        free = self.out is None or self.overwrite or not self.out.exists()
        cli.expect(free, f"--out: {self.out} exists; --overwrite replaces it.")
        count = self._one(self.data, self.out)
        if self.out is not None:
            self.note(f"{count:,} rows predicted: {self.out}")

    def _one(self, data: str, out: Path | None) -> int:
        """Predict the rows of a file; how many there were."""
        loaded, file = _model(self.model), self.open(data)
        count = 0
        with _writer(out, lines=self.json, escape=self.escape) as write:
            for frame in loaded.predictions(file, keep=cli.columns_of(self.keep, file.columns), raw=self.raw):
                count += len(frame)
                write(frame)
        return count

    def _many(self, files: list[str]) -> None:
        """Predict the rows of each file into a file of its own, those that are not there yet."""
        out, engine = self.out, self.engine or "local"
        known = f"for several files, --engine is one of {', '.join(_ENGINES)}"
        cli.expect(engine in _ENGINES, f"--engine: no {engine!r}; {known}.")
        if out is None or out.is_file():
            raise cli.UsageError("--out: name a folder for the results of several files.")
        cli.expect(bool(files), f"{self.data}: no table there.")
        places = {f: out / f"{Path(f).stem}{'.csv' if f.lower().endswith('.csv') else '.parquet'}" for f in files}
        twice = metricfit.labels.repeated(places.values())
        cli.expect(
            not twice,
            f"{self.data}: two files would become {', '.join(map(str, twice))}; predict their folders one by one.",
        )
        _model(self.model)  # a model that cannot be read is found here, not by every worker
        content = hashlib.sha256((self.model / metricfit.store.folder.DESCRIPTION).read_bytes()).hexdigest()
        note, said = out / _NOTE, cli.to_toml({"model": content, **{n: getattr(self, n) for n in _SHAPING}})
        same = self.overwrite or not note.exists() or note.read_text(encoding="utf-8") == said
        cli.expect(same, f"--out: {out} holds predictions of another model, or with other options; --overwrite.")
        with metricfit.files.written_whole(note) as file:
            file.write_text(said, encoding="utf-8")
        left = [file for file in files if self.overwrite or not places[file].exists()]
        if len(left) < len(files):
            self.note(f"{len(files) - len(left)} of {len(files)} files are there already.")
        plain = {name: getattr(self, name) for name in (*_SHAPING, "separator", "encoding")}
        work = partial(_predict_file, {"model": self.model.absolute(), "quiet": True, **plain})
        count, failed = 0, list[str]()
        found = _shared_out(engine, work, [(file, places[file].absolute()) for file in left], self.workers)
        for done, (rows, problem) in enumerate(found, start=1):
            count += rows
            failed += [problem] if problem else []
            self.note(f"{done} of {len(left)} files, {count:,} rows")
        if failed:
            told = f"{failed[0]} ({len(failed)} of {len(left)} files could not be used.)"
            kept = f"{len(left) - len(failed)} files are predicted and kept; correct the rest and run this again."
            raise metricfit.data.BadDataError(f"{told} {kept}")
        self.note(f"{count:,} rows of {len(left)} files predicted: {out}")


@cache
def _model(folder: Path) -> Any:
    return metricfit.store.open_model(folder)


def _predict_file(options: dict[str, Any], file: tuple[str, Path]) -> tuple[int, str]:
    """Run by a worker: the rows of a file that were predicted, or what is wrong with it."""
    try:
        return Predict(data=file[0], **options)._one(*file), ""
    except (ValueError, OSError) as error:
        return 0, str(error)


def _shared_out(engine: str, work: Any, files: list[Any], workers: int | None) -> Iterator[tuple[int, str]]:
    """What the work gives for each file, in any order, done by the workers of an engine."""
    try:
        library: Any = importlib.import_module(_ENGINES[engine])
    except ImportError:
        raise cli.UsageError(f"--engine: {engine} is not installed; pip install 'metricfit[{engine}]'.") from None
    if engine == "local":
        yield from library.Parallel(workers or 1, return_as="generator_unordered")(
            library.delayed(work)(file) for file in files
        )
    elif engine == "ray":
        if not library.is_initialized():  # where RAY_ADDRESS names a cluster, that one
            library.init(**({} if "RAY_ADDRESS" in os.environ else {"num_cpus": workers, "include_dashboard": False}))
        with importlib.import_module("ray.util.multiprocessing").Pool(workers) as pool:
            yield from pool.imap_unordered(work, files, chunksize=1)
    elif files:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        known = library.SparkConf().setIfMissing("spark.master", f"local[{workers or '*'}]")  # or that of spark-submit
        with library.SparkContext.getOrCreate(known.setIfMissing("spark.app.name", "metricfit")) as context:
            yield from context.parallelize(files, len(files)).map(work).collect()


@contextmanager
def _writer(out: Path | None, *, lines: bool, escape: bool) -> Iterator[Callable[[Any], None]]:
    """A function that writes frames one after another to one file, or to standard output."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    suffix = "" if out is None else out.suffix
    known = suffix in ("", ".csv", ".gz", ".txt", ".parquet", ".jsonl", ".ndjson")
    cli.expect(known, f"--out: expected a .csv, .csv.gz, .parquet or .jsonl file, got {suffix!r} in {out}.")
    header, parquet = iter([True]), list[Any]()
    with ExitStack() as opened:
        path = None if out is None else opened.enter_context(metricfit.files.written_whole(out))
        stream: Any = sys.stdout
        if path is not None and suffix != ".parquet":
            binary: Any = pa.output_stream(str(path), compression="gzip" if suffix == ".gz" else None)
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
