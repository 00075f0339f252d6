"""Memory and time of training on tables of 1 to 50 million generated rows, and of a search over 10⁶ to 10⁸ scores.

Every training keeps its state after each buffer, as one of that length should.

    python benchmarks/speed/streaming.py run --rows 1 5 20 50 --folder rows    # millions; writes streaming.csv
    python benchmarks/speed/streaming.py search --scores 1 10 100                   # millions; writes search.csv
    python benchmarks/speed/streaming.py ranks --rows 1 --folder rows    # 1, 2, killed processes; writes ranks.csv
    python benchmarks/speed/streaming.py plots

Every size runs in a process of its own; memory is the kernel's record of its largest resident size, seconds are of
processor time, so that other work on the machine matters little.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

STARTED = time.time()
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
IMAGES = HERE.parents[1] / "docs" / "images"
MILLION = 1_000_000
ROWS_OF_FILE = 500_000


def generate(folder: Path, millions: float) -> list[Path]:
    """Parquet files of half a million rows, 5 % positives; those that exist are kept."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for part in range(round(millions * MILLION / ROWS_OF_FILE)):
        files.append(folder / f"part-{part:04d}.parquet")
        if files[-1].exists():
            continue
        random = np.random.default_rng(part)
        y = random.random(ROWS_OF_FILE) < 0.05
        columns = {f"x{i}": random.standard_normal(ROWS_OF_FILE, dtype=np.float32) for i in range(10)}
        for i in range(3):
            columns[f"x{i}"] += np.where(y, 0.8, 0.0).astype(np.float32) * (1 + np.abs(columns["x9"]))
        columns["place"] = random.choice(["north", "south", "east", "west"], ROWS_OF_FILE)
        table = pa.table({**columns, "y": np.where(y, "yes", "no")})
        unfinished = files[-1].with_suffix(".tmp")
        pq.write_table(table, unfinished, row_group_size=100_000)
        unfinished.rename(files[-1])
    return files


def peak_megabytes() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def one_training(folder: Path, millions: float) -> dict[str, object]:
    import torch

    from metricfit import MetricClassifier, Recipe
    from metricfit.training.streaming import confusion_of_shards, fit_shards

    torch.set_num_threads(1)
    files = sorted(folder.glob("*.parquet"))[: round(millions * MILLION / ROWS_OF_FILE)]
    started = time.process_time()
    rank, kept, batch = int(os.environ.get("RANK", 0)), os.environ.get("KEPT"), int(os.environ.get("BATCH", 512))
    options = {"models": "network", "baseline": False, "checkpoint_dir": kept, "recipe": Recipe(batch_size=batch)}
    options |= {"callbacks": [deaths]} if int(os.environ.get("KILLS", 0)) else {}
    model = MetricClassifier("f1", random_state=0, verbose=False, **options)
    classifier = fit_shards(model, files, "y", buffer_rows=2**16 if "RANK" in os.environ else 2**18)
    trained = time.process_time() - started
    training_peak = peak_megabytes()
    if "RANK" in os.environ:
        return {
            "rank": rank, "restarts": int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)),
            "training_seconds": round(trained, 1),
            "wall_seconds": round(time.time() - STARTED, 1), "megabytes": round(training_peak),
            "loss": float(classifier.history_["loss"].iloc[-1]), "buffers": len(classifier.history_),
        }  # fmt: skip
    matrix = confusion_of_shards(classifier, files, "y")
    return {
        "rows": round(millions * MILLION), "training_seconds": round(trained, 1),
        "evaluation_seconds": round(time.process_time() - started - trained, 1),
        "training_megabytes": round(training_peak), "megabytes": round(peak_megabytes()),
        "megabytes_of_files": round(sum(file.stat().st_size for file in files) / MILLION),
        "f1_of_all_rows": round(float(classifier.metric_.compute(matrix)), 4),
    }  # fmt: skip


def deaths(event) -> None:
    """Kill one process in turn in the middle of its training, as often as KILLS says."""
    restart = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
    mine = int(os.environ["RANK"]) == restart % int(os.environ["WORLD_SIZE"])
    if mine and restart < int(os.environ.get("KILLS", 0)) and event.record.epoch > restart + 1:
        os.kill(os.getpid(), signal.SIGKILL)


def of_ranks(folder: Path, millions: float, processes: int, kills: int, batch: int) -> list[dict[str, object]]:
    """One training by so many processes, one of which is killed so many times."""
    with tempfile.TemporaryDirectory() as kept:
        setting = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "KILLS": str(kills)}
        setting |= {"BATCH": str(batch)} | ({"KEPT": kept} if kills else {})
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        command += [
            f"--max-restarts={kills}",
            __file__,
            "one-training",
            "--rows",
            str(millions),
            "--folder",
            str(folder),
        ]
        started = time.time()
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=setting)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    whole = {"rows": round(millions * MILLION), "batch_rows": batch, "processes": processes, "kills": kills}
    return [{**whole, **one, "job_seconds": round(time.time() - started, 1)} for one in found]


def scores_in_chunks(millions: float):
    """Labels, 5 % positive, and scores, a million at a time."""
    for seed in range(round(millions)):
        random = np.random.default_rng(seed)
        y = random.random(MILLION, dtype=np.float32) < 0.05
        score = random.standard_normal(MILLION, dtype=np.float32)
        yield y.astype(np.int64), score + np.where(y, 1.5, 0.0).astype(np.float32)


def one_search(millions: float, how: str) -> dict[str, object]:
    import torch

    from metricfit.decisions import best_threshold, best_threshold_of_chunks

    torch.set_num_threads(1)

    chunks = partial(scores_in_chunks, millions)
    for _ in chunks():
        break
    before, started = peak_megabytes(), time.process_time()
    if how == "chunks":
        best = best_threshold_of_chunks(chunks, "mcc")
    else:
        y, score = (np.concatenate(columns) for columns in zip(*chunks(), strict=True))
        best = best_threshold(y, score, "mcc")
    return {
        "scores": round(millions * MILLION), "how": how, "seconds": round(time.process_time() - started, 1),
        "megabytes_more": round(peak_megabytes() - before), "threshold": best.threshold, "mcc": best.value,
    }  # fmt: skip


def in_process(*arguments: object) -> dict[str, object]:
    command = [sys.executable, __file__, *map(str, arguments)]
    with tempfile.TemporaryDirectory() as kept:
        done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "KEPT": kept})
    return json.loads(done.stdout.splitlines()[-1])


def write(name: str, rows: list[dict[str, object]]) -> None:
    from loss import machine

    extra = machine()
    with (HERE / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], *extra], lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, **extra, "threads": 1} for row in rows)


def plots() -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with (HERE / "streaming.csv").open() as file:
        rows = list(csv.DictReader(file))
    millions = [int(row["rows"]) / MILLION for row in rows]
    figure, (memory, seconds) = plt.subplots(1, 2, figsize=(9, 3.6))
    memory.plot(millions, [float(row["megabytes"]) for row in rows], marker="o", label="peak memory of the process")
    memory.plot(millions, [float(row["megabytes_of_files"]) for row in rows], marker=".", label="the files")
    memory.set_ylim(0)
    memory.set_ylabel("MB")
    seconds.plot(millions, [float(row["training_seconds"]) for row in rows], marker="o", label="training, one pass")
    seconds.plot(millions, [float(row["evaluation_seconds"]) for row in rows], marker=".", label="evaluation")
    seconds.set_ylim(0)
    seconds.set_ylabel("seconds of processor time")
    for axes in (memory, seconds):
        axes.set_xlabel("million rows")
        axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(IMAGES / "scale-streaming.png", dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "ranks", "search", "plots", "one-training", "one-search"])
    parser.add_argument("--rows", type=float, nargs="+", default=[1, 5, 20], help="millions")
    parser.add_argument("--scores", type=float, nargs="+", default=[1, 10, 100], help="millions")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "metricfit-rows")
    parser.add_argument("--how", choices=["chunks", "memory"], default="chunks")
    arguments = parser.parse_args()
    if arguments.what == "run":
        generate(arguments.folder, max(arguments.rows))
        rows = []
        for millions in arguments.rows:
            rows.append(in_process("one-training", "--folder", arguments.folder, "--rows", millions))
            print(rows[-1], flush=True)
            write("streaming.csv", rows)
    elif arguments.what == "ranks":
        generate(arguments.folder, max(arguments.rows))
        rows = []
        for millions in arguments.rows:
            cases = [(processes, 0, batch) for batch in (512, 8192) for processes in (1, 2)]
            for processes, kills, batch in [*cases, (2, arguments.kills, 512)]:
                rows += of_ranks(arguments.folder, millions, processes, kills, batch)
                print(*rows[-processes:], sep="\n", flush=True)
                write("ranks.csv", rows)
    elif arguments.what == "search":
        rows = []
        for how, largest in (("chunks", 1e9), ("memory", 10)):
            for millions in (size for size in arguments.scores if size <= largest):
                rows.append(in_process("one-search", "--scores", millions, "--how", how))
                print(rows[-1], flush=True)
        write("search.csv", rows)
    elif arguments.what == "one-training":
        print(json.dumps(one_training(arguments.folder, arguments.rows[0])))
    elif arguments.what == "one-search":
        print(json.dumps(one_search(arguments.scores[0], arguments.how)))
    else:
        plots()


if __name__ == "__main__":
    main()
