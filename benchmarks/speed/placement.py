"""The bytes that a comparison over Dask sends: a scheduler, two workers, a large table, calls that only look at it.

    python benchmarks/speed/placement.py --megabytes 500

writes placement.csv: what the client wrote to its connections, by Dask's own count of every message.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[2]))  # the workers import this file

from metricfit.comparison import Comparison

HERE = Path(__file__).parent


class Looking(Comparison):
    """Fits nothing: a call costs what it costs to bring it to the table."""

    def _result(self, split: int, name: str) -> dict[str, Any]:
        time.sleep(0.2)  # long enough for both workers to get calls
        row = {"split": split, "method": name, "seconds": 0.0, "error": "", "note": f"process {os.getpid()}"}
        return row | {"value": float(self.X.iloc[split].mean())}


class Sent:
    """Bytes that this process writes to connections of Dask."""

    def __init__(self) -> None:
        from distributed.comm.tcp import TCP

        self.bytes, plain = 0, TCP.write

        async def counted(comm: Any, *given: Any, **options: Any) -> Any:
            written = await plain(comm, *given, **options)
            self.bytes += int(written or 0)
            return written

        TCP.write = counted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--splits", type=int, nargs="+", default=[2, 20])
    asked = parser.parse_args()
    sys.modules.setdefault("placement", sys.modules[__name__])
    Looking.__module__ = "placement"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scheduler.json"
        dask = [sys.executable, "-W", "ignore", "-m", "distributed.cli"]
        programs = [["dask_scheduler", "--port", "0", "--no-dashboard"]] + [["dask_worker", "--nthreads", "1"]] * 2
        started = []
        for program in programs:
            command = [*dask[:-1], f"distributed.cli.{program[0]}", *program[1:], "--scheduler-file", str(file)]
            started.append(subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL))
            while not file.exists():
                time.sleep(0.2)
        try:
            measure(asked, file)
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait()


def measure(asked: argparse.Namespace, scheduler: Path) -> None:
    import dask
    from distributed import Client

    dask.config.set(scheduler_address=json.loads(scheduler.read_text())["address"])
    with Client() as client:
        client.wait_for_workers(2)
    sent = Sent()
    random = np.random.default_rng(0)
    X = pd.DataFrame(random.normal(size=(asked.megabytes * 1_000_000 // 80, 10)))
    y = random.integers(0, 2, len(X))
    for splits in asked.splits:
        comparison = Looking(X, y, "f1", methods=["boosting", "random-forest"], splits=splits)
        before, began = sent.bytes, time.perf_counter()
        comparison.run(backend="dask")
        errors = [row["error"] for row in comparison.results if row["error"]]
        row = {
            "table_megabytes": round((X.memory_usage(index=False).sum() + y.nbytes) / 1e6), "workers": 2,
            "processes": len({row["note"] for row in comparison.results}), "calls": len(comparison.results),
            "sent_megabytes": round((sent.bytes - before) / 1e6, 1), "seconds": round(time.perf_counter() - began, 1),
            "errors": len(errors),
        }  # fmt: skip
        print(row, errors[:1], flush=True)
        place, new = HERE / "placement.csv", not (HERE / "placement.csv").exists()
        with place.open("a", newline="") as file:
            writer = csv.DictWriter(file, list(row))
            if new:
                writer.writeheader()
            writer.writerow(row)


if __name__ == "__main__":
    main()
